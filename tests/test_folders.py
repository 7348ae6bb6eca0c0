"""Folders that hold the finished parts of a long job."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from tacit._folders import WARNING, PartsFolder
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


def folder(path: Path) -> PartsFolder:
    return PartsFolder(path, record="job.json", holds="job")


def begun(path: Path) -> PartsFolder:
    made = folder(path)
    with made.opened():
        assert made.record() is None
        made.begin("of nobody's business")
        made.write("part-1", b"one")
        made.conclude({"count": 3})
    return made


def test_a_second_process_goes_on(tmp_path: Path) -> None:
    begun(tmp_path / "job")
    again = folder(tmp_path / "job")
    with again.opened():
        assert again.record("count") == {"count": 3}
        assert again.read("part-1") == b"one"


def test_all_is_for_the_owner_alone(tmp_path: Path) -> None:
    made = begun(tmp_path / "job")
    assert (made.path / WARNING).read_text() == "of nobody's business"
    for one in (made.path, *made.path.iterdir()):
        assert not stat.S_IMODE(one.stat().st_mode) & 0o077, one


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        folder(tmp_path / "job").opened(),
        pytest.raises(CheckpointError, match="in use by another process: wait for it"),
        folder(tmp_path / "job").opened(),
    ):
        pass


@pytest.mark.parametrize("harm", ["changed", "renamed", "of another run", "gone"])
def test_a_part_that_was_not_written_so_is_refused(tmp_path: Path, harm: str) -> None:
    made = begun(tmp_path / "job")
    part = made.path / "part-1"
    name = "part-1"
    if harm == "changed":
        part.write_bytes(part.read_bytes()[:-1] + b"f")
    elif harm == "renamed":
        part.rename(made.path / "part-2")
        name = "part-2"
    elif harm == "of another run":
        part.write_bytes((begun(tmp_path / "other").path / "part-1").read_bytes())
    else:
        part.unlink()
    again = folder(made.path)
    assert again.record("count") == {"count": 3}
    with pytest.raises(CheckpointError, match=f"is damaged: {name}"):
        again.read(name)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "run": "00"}', '{"format": 2}'])
def test_a_record_that_cannot_be_one_is_refused(tmp_path: Path, text: str) -> None:
    made = begun(tmp_path / "job")
    (made.path / "job.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"damaged|has the format 2, not 1"):
        folder(made.path).record("count")


def test_without_a_record_only_what_a_cut_off_begin_leaves_is_overwritten(tmp_path: Path) -> None:
    made = begun(tmp_path / "job")
    (made.path / "job.json").unlink()
    assert folder(made.path).record(left=("part-1",)) is None
    with pytest.raises(CheckpointError, match="holds 'part-1' and no job: name a new or empty"):
        folder(made.path).record()


def test_a_record_says_only_what_was_asked(tmp_path: Path) -> None:
    made = begun(tmp_path / "job")
    assert set(json.loads((made.path / "job.json").read_text())) == {"format", "run", "count"}
    assert folder(made.path).record() == {}
