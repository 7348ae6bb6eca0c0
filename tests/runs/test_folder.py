"""A run's folder: locked, written whole or not at all, and never left half-made."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tacit import Plan
from tacit.errors import CheckpointError, InvalidArgument, TacitError
from tacit.recipes import Interrupted, run
from tacit.runs.folder import RECORD, Folder

from . import small

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
    code = f"from tacit.runs.folder import Folder; Folder({str(tmp_path)!r}).begin()"
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


def race(folder: Path, start: float) -> str:
    """How a run ends that begins at the same moment as others in the same folder."""
    recipe, data = small.recipe(also=False), small.split()
    while time.monotonic() < start:
        pass
    try:
        run(recipe, epsilon=2.0, data=data, folder=folder, stop=small.StopAfter(8))
    except Interrupted as stopped:
        return "resumable" if stopped.resumable else "nothing kept"
    except TacitError as error:
        return str(error)
    return "finished"


def raced(folder: Path) -> list[str]:
    """What three processes say that begin at once."""
    reader, writer = os.pipe()
    start, racers = time.monotonic() + 0.05, []
    for _ in range(3):
        racers.append(os.fork())
        if racers[-1] == 0:
            try:
                os.write(writer, f"{race(folder, start)}\n".encode())
            finally:
                os._exit(0)
    os.close(writer)
    for racer in racers:
        os.waitpid(racer, 0)
    with os.fdopen(reader) as said:
        return said.read().splitlines()


@pytest.mark.skipif(os.name != "posix", reason="processes are forked, which is POSIX's")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the fork, in newer Pythons
@pytest.mark.parametrize("rounds", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_of_runs_that_start_at_once_one_lives_and_can_be_resumed(
    rounds: int, tmp_path: Path
) -> None:
    """Three processes, several folders: whoever is refused leaves the other's files alone."""
    Plan.for_budget(epsilon=2.0, delta=1e-5, examples=300, lot_size=60, steps=10, clip=1.0)  # warm
    for number in range(rounds):
        said = raced(tmp_path / f"run-{number}")
        assert len(said) == 3
        assert said.count("resumable") == 1, said
        refused = [one for one in said if one != "resumable"]
        reasons = ("is in use by another process", "holds a run already")
        assert all(any(reason in one for reason in reasons) for one in refused), said
        names = {one.name for one in (tmp_path / f"run-{number}").iterdir()}
        assert {"run.json", "checkpoint.safetensors"} <= names
    run(small.recipe(also=False), epsilon=2.0, data=small.split(), folder=tmp_path / "run-0",
        resume=True)  # fmt: skip


def test_who_is_refused_touches_nothing(tmp_path: Path) -> None:
    first, second = Folder(tmp_path / "a"), Folder(tmp_path / "a")
    second.check_new()
    first.write(RECORD, b"{}")
    with pytest.raises(InvalidArgument, match="is in use by another process"):
        second.begin()
    second.leave([RECORD])
    second.close()
    assert {one.name for one in first.path.iterdir()} == {RECORD, ".lock"}
    with pytest.raises(InvalidArgument, match="is in use by another process"):
        Folder(tmp_path / "a").begin()
    first.close()
    with pytest.raises(InvalidArgument, match="holds a run already"):
        second.begin()
    Folder(tmp_path / "a").begin()  # the refused one does not keep the lock


def test_a_lock_whose_file_was_removed_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    """Two processes must not have one folder by two files of one name."""
    first = Folder(tmp_path / "a")
    first.begin()
    (tmp_path / "a" / ".lock").unlink()
    before = os.open(tmp_path / "a" / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.unlink(tmp_path / "a" / ".lock")
    second = Folder(tmp_path / "a")
    second.begin()
    assert os.path.samestat(os.fstat(second._handle), (tmp_path / "a" / ".lock").stat())
    os.close(before)


def test_the_folder_and_its_secrets_are_its_owners(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a" / "run")
    folder.write("audit.json", b"{}", secret=True)
    folder.private("votes").write_bytes(b"")
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.path.iterdir()}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert modes == {"audit.json": 0o600, ".lock": 0o600, "private": 0o700}


@pytest.mark.parametrize("name", ["private", "search"])
def test_secrets_that_cannot_be_removed_are_not_left_in_silence(name: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    secret = folder.inner(name) / "secret"
    secret.write_bytes(b"1")
    folder.remove_secrets()
    assert not secret.parent.exists()
    secret.parent.symlink_to(tmp_path)  # which is never followed
    with pytest.raises(CheckpointError, match=f"{name} is secret and cannot be removed"):
        folder.remove_secrets()


def test_a_link_in_the_place_of_what_is_private_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    folder = Folder(tmp_path / "run")
    folder.begin()
    (folder.path / "private").symlink_to(tmp_path / "seen")
    with pytest.raises(CheckpointError, match="it is a link to another place"):
        folder.private("votes")
    (folder.path / "private").unlink()
    (folder.path / "private").mkdir(mode=0o777)
    assert stat.S_IMODE(folder.private("votes").parent.stat().st_mode) == 0o700


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="cannot be written"):
        Folder(tmp_path / "run").begin()
    assert not (tmp_path / "elsewhere").exists()
