"""From the server to arrays: what is missing is downloaded, what is there is compared."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from tacit.data import get, load
from tacit.data.description import File
from tacit.data.images import read_idx
from tacit.data.sets import SETS
from tacit.errors import DataError

from .writing import known_set, sha256, write_mnist

if TYPE_CHECKING:
    from pathlib import Path

    from .serving import Server


class Tiny(NamedTuple):
    """A set called tiny, in MNIST's format, on the server and nowhere else."""

    server: Server
    arrays: list[np.ndarray]


@pytest.fixture
def tiny(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    arrays = write_mnist(tmp_path / "published")
    files = []
    for path in sorted((tmp_path / "published").iterdir(), key=_place):
        data = server.files[path.name] = path.read_bytes()
        url = server.url(path.name)
        file = File(name=path.name, size=len(data), digest=sha256(data), urls=(url,))
        files.append(file)
    known = known_set("tiny", tuple(files), read_idx, remedy="ask for it nicely")
    monkeypatch.setitem(SETS, "tiny", known)
    return Tiny(server, arrays)


def _place(path: Path) -> int:
    order = ("train-images", "train-labels", "t10k-images", "t10k-labels")
    return [path.name.startswith(start) for start in order].index(True)


def test_what_is_missing_is_downloaded_once(tiny, cache):
    seen: set[str] = set()
    split = load("tiny", progress=lambda name, *_: seen.add(name))
    np.testing.assert_array_equal(split.train.inputs[:, 0], tiny.arrays[0])
    np.testing.assert_array_equal(split.test.labels, tiny.arrays[3])
    assert seen == {*tiny.server.files}
    assert {path.name for path in (cache / "tiny").iterdir()} == {*tiny.server.files}
    assert split.files == {name: sha256(data) for name, data in tiny.server.files.items()}
    again = load("tiny", download=False)
    np.testing.assert_array_equal(again.train.inputs, split.train.inputs)
    assert len(tiny.server.asked) == 4


@pytest.mark.usefixtures("tiny")
def test_a_named_folder_is_downloaded_to(tmp_path, cache):
    (tmp_path / "mine").mkdir()
    load("tiny", tmp_path / "mine")
    assert len(list((tmp_path / "mine" / "tiny").iterdir())) == 4
    assert not cache.exists()


def test_get_makes_the_folder_and_leaves_what_is_there(tiny, tmp_path):
    found = get("tiny", tmp_path / "new" / "folder")
    assert found.folder == tmp_path / "new" / "folder" / "tiny"
    assert get("tiny", tmp_path / "new" / "folder") == found
    assert len(tiny.server.asked) == 4


def test_only_what_is_missing_is_downloaded(tiny, cache):
    load("tiny")
    (cache / "tiny" / "t10k-labels-idx1-ubyte.gz").unlink()
    tiny.server.asked.clear()
    load("tiny")
    assert [path for path, _ in tiny.server.asked] == ["/t10k-labels-idx1-ubyte.gz"]


@pytest.mark.usefixtures("tiny")
def test_a_damaged_file_is_refused_and_not_replaced(cache):
    load("tiny")
    damaged = cache / "tiny" / "t10k-labels-idx1-ubyte.gz"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    for refusing in (load, get):
        with pytest.raises(DataError, match="delete it and run: tacit data get tiny"):
            refusing("tiny")
    damaged.write_bytes(data[:10])
    for refusing in (load, get):
        with pytest.raises(DataError, match="has only 10 of"):
            refusing("tiny")
    damaged.unlink()
    load("tiny")


@pytest.mark.usefixtures("tiny")
def test_a_damaged_file_beside_missing_ones_is_refused_too(cache):
    (cache / "tiny").mkdir(parents=True)
    (cache / "tiny" / "train-images-idx3-ubyte.gz").write_bytes(b"x" * 10_000)
    with pytest.raises(DataError, match="is not the published file"):
        get("tiny")


def test_a_failed_download_says_of_which_set_and_what_else_to_try(tiny, cache):
    tiny.server.moods = ["404"]
    with pytest.raises(DataError, match=r"^tiny: train-images.*404.*; ask for it nicely$"):
        load("tiny")
    assert not cache.exists()


def test_nothing_is_downloaded_unless_allowed(tiny):
    with pytest.raises(DataError, match=r"tiny is in none of .*; ask for it nicely"):
        load("tiny", download=False)
    assert tiny.server.asked == []


def test_the_room_is_light_and_needs_no_terminal():
    code = "import sys, tacit.data; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "scipy", "sklearn", "click", "rich", "pandas"}
    assert not heavy & {*done.stdout.split()}
