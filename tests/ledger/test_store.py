"""Disk full, read-only folder, locked database, lost connection: one line, and nothing granted."""

from __future__ import annotations

import json
import os
import pwd
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tacit.accounting import PureDp
from tacit.errors import LedgerError
from tacit.ledger import Ledger, Release, anchor, verify
from tacit.ledger.entries import Draft
from tacit.ledger.store import _ADVISORY_LOCK

from .proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Newer Pythons warn of threads that a forked child does not have; ours use none.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def reserved(place, steps=1000, **more):
    return place.ledger(**more).open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=steps)


def released_by_child(work: Callable[[Callable[[str], None]], None]) -> list[str]:
    """What a child process said, line by line, until it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            work(lambda line: os.write(writer, f"{line}\n".encode()))
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as lines:
        said = lines.read().splitlines()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return said


def leasing(made) -> Callable[[Callable[[str], None]], None]:
    """Leases two steps at a time, tells the referee each, and tells the error that ends it."""

    def work(say: Callable[[str], None]) -> None:
        try:
            while more := made.lease(2):
                say(f"released {more}")
        except LedgerError as error:
            say(f"refused {error}")

    return work


def judged(place, number: int, before: int, said: list[str], *words: str) -> None:
    """The child was refused in one line, and the ledger counts all it released, and one lease."""
    *released, last = said
    assert last.startswith("refused ")
    assert all(word in last for word in (*words, "nothing was granted"))
    used = before + sum(int(line.removeprefix("released ")) for line in released)
    ledger = place.ledger()
    counted = ledger.budget("data").reservation(number).granted
    assert used <= counted <= used + 2
    assert ledger.verify().ok
    assert ledger.budget("data").reservation(number).lease(1) == 1  # and it goes on


def test_full_disk_grants_nothing(sqlite, tmp_path):
    made = reserved(sqlite)
    made.lease(2)
    size = (tmp_path / "budget.db-wal").stat().st_size
    for room in (0, 1, 5000, 20_000, 40_000):

        def work(say, room=room):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))
            leasing(made)(say)

        sqlite.opened[0].refresh()
        before = made.granted
        said = released_by_child(work)
        judged(sqlite, made.number, before, said, "Make room on the disk")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_full_disk_of_a_small_file_system_grants_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        ballast = disk / "ballast"
        with Ledger(f"sqlite:///{disk}/budget.db") as ledger:
            made = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=1000)
            ballast.write_bytes(bytes(60_000))
            used = 0
            with pytest.raises(LedgerError, match="nothing was granted"):
                while True:
                    used += made.lease(2)
            ballast.unlink()
            assert made.lease(2) == 2
            assert used + 2 <= made.granted <= used + 4
            assert ledger.verify().ok
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@contextmanager
def read_only(folder: Path):
    """``folder`` as somebody sees it who may not write there."""
    modes = {one: one.stat().st_mode for one in (folder, *folder.iterdir())}
    for one in modes:
        one.chmod(0o555 if one.is_dir() else 0o444)
    try:
        yield
    finally:
        for one, mode in modes.items():
            if one.exists():  # SQLite's side files go with its last connection
                one.chmod(mode)


def as_nobody() -> None:
    """Gives up root's rights, which no mode of a file holds back."""
    if os.geteuid() == 0:
        os.setresuid(*[pwd.getpwnam("nobody").pw_uid] * 3)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that others may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        found = Path(name)
        found.chmod(0o755)
        yield found


def test_read_only_folder_grants_nothing(folder):
    url = f"sqlite:///{folder}/budget.db"
    with Ledger(url) as ledger:
        made = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=10)
        made.lease(1)

        def work(say):
            as_nobody()
            try:
                with Ledger(url) as again:
                    say(f"released {again.budget('data').reservation(made.number).lease(1)}")
            except LedgerError as error:
                say(f"refused {error}")

        with read_only(folder):
            (said,) = released_by_child(work)
        assert said.startswith("refused ")
        assert "writable" in said
        ledger.refresh()
        assert made.granted == 1


def test_ledger_cannot_be_made_in_a_read_only_folder(folder):
    def work(say):
        as_nobody()
        try:
            Ledger(f"sqlite:///{folder}/budget.db")
        except LedgerError as error:
            say(f"refused {error}")

    with read_only(folder):
        (said,) = released_by_child(work)
    assert said.startswith("refused ")
    assert "writable" in said
    assert list(folder.iterdir()) == []


def test_a_ledger_in_somebody_elses_folder_is_refused_in_a_line(folder):
    (folder / "theirs").mkdir(mode=0o700)

    def work(say):
        as_nobody()
        url = f"sqlite:///{folder}/theirs/budget.db"
        for call in (Ledger, verify):
            try:
                say(f"refused {'; '.join(call(url).problems)}")
            except LedgerError as error:
                say(f"refused {error}")

    if os.geteuid() != 0:
        (folder / "theirs").chmod(0)
    said = released_by_child(work)
    assert len(said) == 2
    for line in said:
        assert line.startswith(("refused the ledger", "refused the anchor"))
        assert "cannot be read: " in line
        assert "ermission denied" in line


def test_locked_file_is_waited_for_and_then_reported(sqlite, tmp_path):
    made = reserved(sqlite, timeout=0.3)
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "budget.db")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        start = time.monotonic()
        with pytest.raises(LedgerError, match=r"is locked; nothing was granted\. Try again"):
            made.lease(1)
        assert 0.2 < time.monotonic() - start < 20.0  # without the timeout it would be 30
        holder.stdin.close()
        holder.wait()
    assert made.lease(1) == 1


def test_a_file_with_two_names_is_refused_under_both(sqlite, tmp_path):
    """Processes that had it by two names were granted 1.85 of 1 together, and one charge was lost.

    SQLite names its log after the file, so that each of them had a log of its own.
    """
    budget = sqlite.ledger().open("data", 1.0, 0.0)
    budget.charge(PureDp(0.25))
    copied = tmp_path / "copied"  # as by cp -al
    copied.mkdir()
    os.link(tmp_path / "budget.db", copied / "budget.db")
    (copied / "budget.db.anchor").write_bytes(sqlite.anchor.read_bytes())
    two = r"budget\.db has 2 names \(hard links\), .*nothing was granted"
    with pytest.raises(LedgerError, match=two):
        budget.charge(PureDp(0.25))
    budget.ledger.close()
    for one in (tmp_path / "budget.db", copied / "budget.db"):
        with pytest.raises(LedgerError, match=two):
            Ledger(one)
        assert "has 2 names" in " ".join(verify(one).problems)
    (copied / "budget.db").unlink()
    assert sqlite.ledger().budget("data").charge(PureDp(0.25)).budget.spent().epsilon == 0.5


def test_a_file_that_is_mounted_without_its_folder_is_refused(tmp_path, monkeypatch):
    """As by ``docker -v ./budget.db:/data/budget.db``: it has a log of its own in there."""
    path = tmp_path / "a b\\c.db"
    with Ledger(path) as ledger:
        budget = ledger.open("data", 1.0, 0.0)
        mounts = tmp_path / "mounts"
        place = str(path).replace("\\", r"\134").replace(" ", r"\040")
        line = f"63 43 254:0 /host/budget.db {place} rw,relatime - ext4 /dev/vda rw\n"
        mounts.write_text(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n{line}")
        monkeypatch.setattr("tacit.ledger.store._MOUNTS", mounts)
        with pytest.raises(LedgerError, match="mounted without its folder"):
            Ledger(path)
        mounts.write_text(line.replace(place, str(tmp_path)))  # with it
        assert Ledger(path).budget("data").charge(PureDp(0.5)).epsilon == 0.5
        assert budget.spent().epsilon == 0.5


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator mounts")
def test_a_file_in_a_container_of_its_own_is_refused(sqlite, tmp_path):
    """Two processes were granted 1.85 of 1 together."""
    (tmp_path / "inside").mkdir()
    with sqlite.ledger() as ledger:
        ledger.open("data", 1.0, 0.0)
    inside = tmp_path / "inside" / "budget.db"
    inside.touch()
    Path(f"{inside}.anchor").write_bytes(sqlite.anchor.read_bytes())
    code = "import sys; from tacit.ledger import Ledger; Ledger(sys.argv[1])"
    line = 'mount --bind "$1" "$2" || exit 99; exec "$3" -c "$4" "$2"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", line, "sh", str(tmp_path / "budget.db"), str(inside),
         sys.executable, code], capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert "was mounted without its folder" in done.stderr


def test_a_database_without_an_encoding_keeps_text(server, tmp_path):
    server.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    with Ledger(server.url("plain"), anchor=tmp_path / "plain.anchor") as ledger:
        ledger.open("Zürich", epsilon=1.0, delta=1e-5).charge(PureDp(0.5))
        assert ledger.verify().ok
        assert [one.name for one in ledger.budgets()] == ["Zürich"]


def test_locked_server_is_waited_for_and_then_reported(postgresql):
    import psycopg  # noqa: PLC0415

    made = reserved(postgresql, timeout=0.3)
    with psycopg.connect(postgresql.url) as holder:
        holder.execute(f"SELECT pg_advisory_lock({_ADVISORY_LOCK})")
        with pytest.raises(LedgerError, match=r"lock timeout; nothing was granted\. Try again"):
            made.lease(1)
    assert made.lease(1) == 1


def test_stopped_server_grants_nothing_and_is_found_again(server, postgresql):
    made = reserved(postgresql, timeout=2.0)
    assert made.lease(2) == 2
    server.stop()
    try:
        for _ in range(2):
            with pytest.raises(LedgerError, match=r"nothing was granted\. Check that the server"):
                made.lease(2)
        with pytest.raises(LedgerError, match="Check that the server"):
            Ledger(postgresql.url, anchor=postgresql.anchor, timeout=2.0)
        assert not verify(postgresql.url, anchor=postgresql.anchor, timeout=2.0).ok
    finally:
        server.start()
    assert made.lease(2) == 2
    assert (made.granted, made.left) == (4, 996)


def test_connection_lost_inside_a_transaction_writes_nothing(postgresql):
    ledger = postgresql.ledger()
    ledger.open("data", 1.0, 0.0)
    head = ledger.head

    def decide(_books):
        postgresql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return [Draft("", "adopt", {"reason": "never written", "anchored": ""})]

    with pytest.raises(LedgerError, match="nothing was granted"):
        ledger.append(decide)
    ledger.refresh()
    assert ledger.head == head
    assert ledger.verify().ok


@pytest.mark.parametrize(("cut", "stands"), [("before", 0), ("after", 3)])
def test_connection_lost_during_a_commit_is_never_taken_as_granted(server, postgresql, cut, stands):
    proxy = Proxy(server.port)
    url = postgresql.url.replace(f":{server.port}/", f":{proxy.port}/")
    try:
        with Ledger(url, anchor=postgresql.anchor, timeout=5.0) as ledger:
            made = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=10)
            proxy.cut = cut
            with pytest.raises(
                LedgerError, match="nothing was granted, though the charge may stand"
            ):
                made.lease(3)
            proxy.cut = None
            assert proxy.cuts == 1
            until = time.monotonic() + 10.0
            while ledger.refresh() and made.granted != stands and time.monotonic() < until:
                time.sleep(0.02)
            assert made.granted == stands
            assert made.lease(4) == 4
            assert made.granted == stands + 4
            assert ledger.verify().ok
    finally:
        proxy.close()


def test_commit_that_the_server_refuses_is_not_granted(postgresql):
    made = reserved(postgresql)
    postgresql.execute(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$"
    )
    postgresql.execute(
        "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON entries DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION die()"
    )
    with pytest.raises(LedgerError, match="nothing was granted"):
        made.lease(1)
    postgresql.execute("DROP TRIGGER die ON entries")
    assert made.lease(1) == 1
    assert made.granted == 1


def test_anchor_that_cannot_be_written_grants_nothing(sqlite, monkeypatch):
    made = reserved(sqlite)
    made.lease(1)

    def full(path: Path, content: bytes, *, mode: int) -> None:
        del path, content, mode
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(anchor, "put", full)
    with pytest.raises(LedgerError, match=r"anchor .* cannot be written: .*nothing was granted"):
        made.lease(1)
    monkeypatch.undo()
    assert made.granted == 2  # it was committed before: too much is charged, never too little
    assert made.lease(1) == 1
    assert json.loads(sqlite.anchor.read_text())["number"] == sqlite.opened[0].head.number


def test_commit_is_synced_and_in_the_log(sqlite, tmp_path):
    ledger = sqlite.ledger()
    ledger.open("data", 1.0, 0.0)
    with closing(sqlite3.connect(tmp_path / "budget.db")) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with ledger._store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_server_is_asked_to_sync_whatever_its_default(postgresql):
    name = postgresql.url.rpartition("/")[2]
    postgresql.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    postgresql.execute(
        f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
    )
    ledger = postgresql.ledger()
    with ledger._store._engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
