"""Where sets are looked for, in which order, and what is taken for what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tacit.data import load
from tacit.data.description import File, FileLayout
from tacit.data.sets import SETS, cache, find, names, places, set_named
from tacit.errors import DataError, InvalidArgument

from .writing import known_set, sha256, write_mnist


def first_pixels(split) -> list[int]:
    return split.train.inputs[0, 0, 0, :5].tolist()


def test_the_folder_comes_before_the_variable_and_that_before_the_cache(tmp_path, monkeypatch):
    written = {
        place: write_mnist(tmp_path / place / "mnist", seed=seed)
        for seed, place in enumerate(("folder", "variable", "cache/tacit/data"))
    }
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "variable"))

    def expected(place: str) -> list[int]:
        return written[place][0][0, 0, :5].tolist()

    found = load("mnist", tmp_path / "folder", unverified=True)
    assert first_pixels(found) == expected("folder")
    assert first_pixels(load("mnist", unverified=True)) == expected("variable")
    monkeypatch.delenv("TACIT_DATA")
    assert first_pixels(load("mnist", unverified=True)) == expected("cache/tacit/data")


@pytest.mark.parametrize("under", ["mnist", "MNIST/raw", "."])
def test_files_lie_in_a_folder_of_the_sets_name_or_directly(under, tmp_path):
    write_mnist(tmp_path / under)
    assert len(load("mnist", tmp_path, unverified=True).train) == 7


def test_a_place_that_lacks_a_file_is_passed_over(tmp_path, cache):
    write_mnist(tmp_path / "folder" / "mnist", seed=1)
    (tmp_path / "folder" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    whole = write_mnist(cache / "mnist", seed=2)
    found = load("mnist", tmp_path / "folder", download=False, unverified=True)
    assert first_pixels(found) == whole[0][0, 0, :5].tolist()


def test_what_is_nowhere_is_said_with_all_places(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    with pytest.raises(DataError) as refusal:
        load("mnist", tmp_path, download=False)
    expected = f"mnist is in none of {tmp_path}, {tmp_path}, {cache}; run: tacit data get mnist"
    assert str(refusal.value) == expected


@pytest.mark.parametrize("missing", ["none", "file"])
def test_a_named_place_must_be_a_folder(missing, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(
        DataError, match=f"^folder names .*{missing}, which is no folder that can be read"
    ):
        load("digits", tmp_path / missing)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / missing))
    with pytest.raises(DataError, match=r"^\$TACIT_DATA names .*, which is no folder"):
        load("digits")


def test_a_folder_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read any folder
    with pytest.raises(DataError, match="no folder that can be read"):
        load("digits", tmp_path)


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("TACIT_DATA", "")
    assert places(None) == (cache(),)


def test_files_of_another_set_with_the_same_names_are_not_taken(tmp_path, monkeypatch):
    """MNIST and Fashion-MNIST share all names; directly in a folder, the checksum tells."""
    (tmp_path / "images").write_bytes(b"one set's")
    ours = File(name="images", digest=sha256(b"one set's"))
    theirs = File(name="images", digest=sha256(b"the other's"))
    monkeypatch.setitem(SETS, "ours", known_set("ours", (ours,), lambda _: None))
    monkeypatch.setitem(SETS, "theirs", known_set("theirs", (theirs,), lambda _: None))
    assert find(SETS["ours"], (tmp_path,)) is not None
    assert find(SETS["theirs"], (tmp_path,)) is None
    (tmp_path / "images").write_bytes(b"nobody's")  # to be refused, not to be passed over
    assert find(SETS["theirs"], (tmp_path,)) is not None


def test_layouts_with_the_same_names_are_told_apart_by_checksums(tmp_path, monkeypatch):
    """GLUE's train.tsv and dev.tsv are not those that come with a labelled test.tsv."""
    contents = {
        name: f"sentence\tlabel\n{name}\t1\n" for name in ("train.tsv", "dev.tsv", "test.tsv")
    }
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
    sst2 = set_named("sst2")
    found = find(sst2, (tmp_path,))
    assert found is not None
    assert len(found.paths) == 2  # none fits: the first is there to be refused
    digests = {name: sha256(text.encode()) for name, text in contents.items()}
    fitting = FileLayout(
        files=tuple(File(name=name, digest=digest) for name, digest in digests.items()),
        read=sst2.layouts[2].read,
    )
    monkeypatch.setitem(SETS, "sst2", replace(sst2, layouts=(*sst2.layouts[:2], fitting)))
    split = load("sst2", tmp_path)
    assert split.train.inputs == ("train.tsv", "dev.tsv")
    assert split.test.inputs == ("test.tsv",)
    assert split.files == digests


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/tacit/data"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/me/.cache/tacit/data"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/tacit/data"),
        ("darwin", {}, "/home/me/Library/Caches/tacit/data"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/tacit/Cache/data"),
        ("win32", {"LOCALAPPDATA": ""}, "/home/me/AppData/Local/tacit/Cache/data"),
    ],
)
def test_the_cache_is_where_the_system_keeps_such_things(
    platform, variables, expected, monkeypatch
):
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache() == Path(expected)


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(InvalidArgument, match=r"name must be one of digits, mnist, .*got 'minst'"):
        load("minst")
    assert names() == tuple(SETS)
