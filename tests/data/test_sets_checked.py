"""Files are compared with what was published, on the bytes that are given out."""

from __future__ import annotations

import gzip

import pytest

from tacit.data import load
from tacit.data.description import File
from tacit.data.sets import SETS, check, read_checked
from tacit.errors import DataError

from .writing import known_set, sha256, write_mnist

DATA = b"as published"


@pytest.mark.parametrize(
    ("file", "data"),
    [
        (File(name="a", digest=sha256(DATA)), DATA),
        (File(name="a", digest=sha256(DATA), size=len(DATA)), DATA),
        (File(name="a", digest=sha256(DATA), inside="gzip"), gzip.compress(DATA, 1)),
        (File(name="a", digest=sha256(DATA), inside="gzip"), gzip.compress(DATA, 9)),
    ],
)
def test_a_published_file_is_verified(tmp_path, file, data):
    (tmp_path / "a").write_bytes(data)
    contents, found = read_checked("own", tmp_path / "a", file)
    assert contents.data == DATA
    assert contents.verified
    assert found == sha256(DATA)


def test_another_file_is_refused_with_both_checksums_and_the_remedy(tmp_path):
    (tmp_path / "a").write_bytes(b"something else")
    file = File(name="a", digest=sha256(DATA))
    with pytest.raises(DataError) as refusal:
        read_checked("own", tmp_path / "a", file)
    message = str(refusal.value)
    assert sha256(DATA).partition(":")[2] in message
    assert sha256(b"something else").partition(":")[2] in message
    assert "delete it and run: tacit data get own" in message
    assert "unverified=True" in message
    contents, found = read_checked("own", tmp_path / "a", file, unverified=True)
    assert not contents.verified
    assert found == f"unverified {sha256(b'something else')}"


def test_a_short_file_is_called_short(tmp_path):
    (tmp_path / "a").write_bytes(DATA[:5])
    with pytest.raises(DataError, match="has only 5 of 12 bytes"):
        read_checked("own", tmp_path / "a", File(name="a", digest=sha256(DATA), size=12))


def test_a_file_without_a_known_checksum_is_said_to_be_unverified(tmp_path):
    (tmp_path / "a").write_bytes(DATA)
    contents, found = read_checked("own", tmp_path / "a", File(name="a", digest=None))
    assert not contents.verified
    assert found == f"unverified {sha256(DATA)}"


def test_an_unreadable_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_checked("own", tmp_path, File(name="a", digest=None))


def test_users_own_files_are_refused_unless_they_are_asked_for(tmp_path):
    write_mnist(tmp_path)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz has only .* of 9,912,422"):
        load("mnist", tmp_path)
    assert len(load("mnist", tmp_path, unverified=True).test) == 3


def test_check_gives_a_verdict_for_each_file(tmp_path, monkeypatch):
    files = (File(name="a", digest=sha256(b"a")), File(name="b", digest=sha256(b"b")))
    monkeypatch.setitem(SETS, "own", known_set("own", files, lambda _: None))
    assert check("own", tmp_path) == ()
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"c")
    sound, wrong = check("own", tmp_path)
    assert (sound.path, sound.digest, sound.problem) == (tmp_path / "a", sha256(b"a"), None)
    assert wrong.digest is None
    assert "is not the published file" in str(wrong.problem)


@pytest.mark.parametrize("name", SETS)
def test_every_set_can_be_downloaded_and_checked(name):
    """The first layout has addresses; every checksum is an MD5 or a SHA-256 in full."""
    known = SETS[name]
    assert known.layouts
    assert all(file.urls for file in known.layouts[0].files)
    for layout in known.layouts:
        for file in layout.files:
            algorithm, _, value = (file.digest or "").partition(":")
            assert len(value) == {"md5": 32, "sha256": 64}[algorithm]
            assert int(value, 16)
            assert all(url.startswith(("https://", "http://")) for url in file.urls)
