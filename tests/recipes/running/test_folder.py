"""A run's folder: locked, written whole or not at all, and never left half-made."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tacit.errors import CheckpointError, InvalidArgument
from tacit.recipes.running.folder import RECORD, Folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd"])
def test_names_cannot_leave_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="file in the folder"):
        Folder(tmp_path).write(name, b"x")
    assert not [one for one in tmp_path.iterdir() if one.name != ".lock"]


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    folder.write("x", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device; make room"):
        folder.write("x", b"new")
    folder.close()
    assert (tmp_path / "x").read_bytes() == b"old"
    assert {one.name for one in tmp_path.iterdir()} == {"x", ".lock"}


def test_two_processes_cannot_have_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin()
    code = f"from tacit.recipes.running.folder import Folder; Folder({str(tmp_path)!r}).begin()"
    other = [sys.executable, "-c", code]
    done = subprocess.run(other, capture_output=True, text=True, timeout=600, check=False)
    assert "is in use by another process" in done.stderr
    folder.close()
    assert subprocess.run(other, timeout=600, check=False).returncode == 0


def test_leaving_removes_what_was_made_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    folder = Folder(tmp_path / "mine" / "a" / "b")
    folder.write(RECORD, b"{}")
    folder.leave([RECORD])
    assert list((tmp_path / "mine").iterdir()) == []
    folder = Folder(tmp_path / "mine")
    folder.write(RECORD, b"{}")
    folder.leave([RECORD])
    assert (tmp_path / "mine").is_dir()


def test_places_are_checked_before_anything_is_made(tmp_path: Path) -> None:
    Folder(tmp_path / "new" / "one").check_new()
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidArgument, match="is no folder"):
        Folder(tmp_path / "file").check_new()
    with pytest.raises(InvalidArgument, match="cannot be written"):
        Folder(tmp_path / "file" / "x").check_new()
    with pytest.raises(InvalidArgument, match="is not empty"):
        Folder(tmp_path).check_new()
    with pytest.raises(InvalidArgument, match="holds no run"):
        Folder(tmp_path).check_run()
