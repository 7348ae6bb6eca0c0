"""A ledger that fails in the middle of training: one clear error, and no uncharged release before.

The referee of the crash tests counts what was released and compares it with the ledger's rows.
Afterwards the trouble is over, and the run goes on from its checkpoint to its end.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
import subprocess
import tempfile
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tacit.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..ledger.postgres import Server
    from .crash_run import Arena

STEPS = 40
LEASES = [1, 4]


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others may enter and write, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        found = Path(name)
        if os.geteuid() == 0:
            os.chown(found, pwd.getpwnam("nobody").pw_uid, -1)
        yield found


def job(folder: Path, lease: int, **more: Any) -> dict[str, Any]:
    return {
        "url": f"sqlite:///{folder}/budget.db", "anchor": str(folder / "budget.db.anchor"),
        "checkpoint": str(folder / "run"), "steps": STEPS, "lease": lease, "noise": "fast",
        "every": 3, "since": 0, "timeout": 0.5,
    } | more  # fmt: skip


def granted(told: dict[str, Any]) -> int:
    with Ledger(told["url"], anchor=told["anchor"]) as ledger:
        assert ledger.verify().ok
        (made,) = ledger.books.of("data")
        return made.granted


def judge(ring: Arena, told: dict[str, Any], report: dict[str, Any], words: str) -> None:
    """Training stopped by itself, every release is counted, and it goes on once it can."""
    ended = report["ended"]
    assert not report["killed"]
    assert ended.get("kind") == "LedgerError", report
    assert words in ended["error"], ended
    assert "nothing was granted" in ended["error"]
    assert "\n" not in ended["error"]
    assert report["undercounts"] == report["repeated"] == 0
    assert 0 < report["released"] < STEPS
    before = granted(told)
    assert report["released"] <= before <= report["released"] + max(1, report["largest"])
    healthy = {key: value for key, value in told.items() if key not in ("pause", "limit", "nobody")}
    again = ring.attempt(healthy | {"timeout": 30.0})
    assert "error" not in again["ended"], again
    assert again["undercounts"] == again["repeated"] == 0
    assert granted(told) == STEPS
    assert report["released"] + again["released"] <= STEPS
    assert again["begun"]["granted"] == before
    assert again["ended"]["steps_taken"] + again["ended"]["lost"] == STEPS


def interrupted(
    ring: Arena, told: dict[str, Any], mischief: Callable[[], Any], nth: int = 6
) -> dict[str, Any]:
    """Trains to the ``nth`` lot, lets the mischief happen, and goes on to see what comes of it."""
    ring.begin(told | {"pause": {"point": "drawing", "nth": nth}})
    assert ring.heard() == {"paused": True}
    try:
        mischief()
    finally:
        ring.go_on()
        report = ring.end()  # heard even if the mischief failed, or the next test would hear it
    return report


@pytest.mark.parametrize("lease", LEASES)
def test_files_that_cannot_grow_stop_training(ring: Arena, folder: Path, lease: int) -> None:
    told = job(folder, lease, every=1000)  # a checkpoint could not be written either
    report = ring.attempt(told | {"limit": {"point": "drawing", "nth": 6, "bytes": 100}})
    judge(ring, told, report, "Make room")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_full_disk_stops_training(ring: Arena, folder: Path) -> None:
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        told = job(disk, 2, checkpoint=str(folder / "run"))
        ballast = disk / "ballast"

        def fill() -> None:
            with ballast.open("wb", buffering=0) as file:
                while True:
                    try:
                        file.write(bytes(4096))
                    except OSError:
                        return

        report = interrupted(ring, told, fill)
        ballast.unlink()
        judge(ring, told, report, "oom on the disk")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("lease", LEASES)
def test_read_only_folder_stops_training(ring: Arena, folder: Path, lease: int) -> None:
    # The checkpoints lie elsewhere: it is the ledger that fails.
    runs = folder / "runs"
    runs.mkdir()
    runs.chmod(0o777)
    told = job(folder, lease, nobody=True, checkpoint=str(runs / "run"))
    report = interrupted(ring, told, lambda: folder.chmod(0o555))
    folder.chmod(0o755)
    judge(ring, told, report, "make the folder writable")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@pytest.mark.parametrize("lease", LEASES)
def test_locked_database_stops_training(ring: Arena, folder: Path, lease: int) -> None:
    told = job(folder, lease)
    ring.begin(told | {"pause": {"point": "drawing", "nth": 6}})
    assert ring.heard() == {"paused": True}
    with locked(folder / "budget.db"):
        ring.go_on()
        report = ring.end()
    judge(ring, told, report, "Try again, or give a longer timeout=")


def test_ledger_that_is_taken_away_stops_training(ring: Arena, folder: Path) -> None:
    told = job(folder, 4)
    hidden = folder / "hidden"
    hidden.mkdir()
    names: list[Path] = []

    def take_away() -> None:
        for path in [path for path in folder.iterdir() if path.name.startswith("budget")]:
            with suppress(FileNotFoundError):  # a draft that got its name in the meantime
                path.rename(hidden / path.name)
                names.append(path)

    report = interrupted(ring, told | {"watched": False}, take_away)
    for path in names:
        (hidden / path.name).rename(path)
    assert report["ended"]["kind"] in ("TamperedLedger", "LedgerError")
    assert "nothing was granted" in report["ended"]["error"] or "anchor" in report["ended"]["error"]
    assert report["released"] <= granted(told) <= report["released"] + 4
    again = ring.attempt(told)
    assert again["ended"]["steps_taken"] + again["ended"]["lost"] == STEPS


@pytest.mark.parametrize(("lease", "mode"), [(1, "fast"), (4, "immediate")])
def test_stopped_server_stops_training(
    ring: Arena, server: Server, tmp_path: Path, lease: int, mode: str
) -> None:
    url = server.url(server.new_database())
    told = job(tmp_path, lease, url=url, timeout=2.0, watched=False)
    try:
        report = interrupted(ring, told, lambda: server.stop(mode))
    finally:
        server.start()
    judge(ring, told, report, "heck that the server can be reached")


def test_server_that_comes_back_in_time_is_not_noticed(
    ring: Arena, server: Server, tmp_path: Path
) -> None:
    told = job(tmp_path, 8, url=server.url(server.new_database()), timeout=10.0)

    def restart() -> None:
        server.stop("fast")
        server.start()

    report = interrupted(ring, told, restart, nth=4)  # when nothing is being written
    assert "error" not in report["ended"], report
    assert report["undercounts"] == 0
    assert report["released"] == STEPS == granted(told)
