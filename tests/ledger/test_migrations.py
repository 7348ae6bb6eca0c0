from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.resources import files
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from alembic.script import ScriptDirectory

from tacit.accounting import PureDp
from tacit.errors import TamperedLedger
from tacit.ledger import Ledger, verify
from tacit.ledger.anchor import Anchored, AnchorFile
from tacit.ledger.migrations.versions import revision_0001
from tacit.ledger.store import VERSION

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = files("tacit.ledger").joinpath("migrations")


def test_newest_migration_is_the_version_that_is_written():
    scripts = ScriptDirectory(str(SCRIPTS))
    assert scripts.get_heads() == [VERSION]
    # Numbers in order, so that an older tacit can tell that tables are newer than it is.
    numbers = [int(one.revision) for one in scripts.walk_revisions()]
    assert numbers == list(range(len(numbers), 0, -1))


def test_there_is_no_way_back():
    with pytest.raises(NotImplementedError, match="never taken apart"):
        revision_0001.downgrade()


THREADS = 8


def tables_of(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT type, name FROM sqlite_master ORDER BY 1, 2")
        return rows.fetchall()


def test_ledgers_that_threads_make_at_once_are_each_whole(tmp_path):
    """Alembic's own context is one for all threads: tables would land in another's database."""
    barrier = Barrier(THREADS)

    def work(number: int) -> None:
        for turn in range(5):
            barrier.wait(timeout=60)
            with Ledger(tmp_path / f"{turn}-{number}.db") as own:
                own.open("own", 1.0, 0.0).charge(PureDp(0.1 * (number + 1)))
            with Ledger(tmp_path / f"{turn}-shared.db") as shared:
                shared.open(f"of {number}", 1.0, 0.0)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    wanted = tables_of(tmp_path / "0-0.db")
    assert [kind for kind, _ in wanted].count("trigger") == 2
    for turn in range(5):
        for number in range(THREADS):
            path = tmp_path / f"{turn}-{number}.db"
            assert tables_of(path) == wanted
            with Ledger(path) as ledger:
                assert ledger.budget("own").spent().epsilon == 0.1 * (number + 1)
        assert tables_of(tmp_path / f"{turn}-shared.db") == wanted
        with Ledger(tmp_path / f"{turn}-shared.db") as ledger:
            assert len(ledger.budgets()) == THREADS


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER entries_no_delete",
        "DROP TRIGGER entries_no_update",
        "CREATE TRIGGER more AFTER INSERT ON entries BEGIN DELETE FROM tacit_ledger_version; END",
        "CREATE VIEW more AS WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n FROM x) "
        "SELECT n FROM x",
    ],
)
def test_ledger_without_its_triggers_is_refused(sqlite, tmp_path, statement):
    with sqlite.ledger() as ledger:
        ledger.open("data", 1.0, 0.0)
    with closing(sqlite3.connect(tmp_path / "budget.db")) as connection:
        connection.execute(statement)
    with pytest.raises(TamperedLedger, match=r"trigger|did not make"):
        sqlite.ledger()
    assert not verify(sqlite.url).ok
    if statement.startswith("DROP"):
        Ledger.adopt(sqlite.url, reason="restored from a dump").close()
        assert sqlite.ledger().verify().ok


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER entries_no_change ON entries",
        "ALTER TABLE entries DISABLE TRIGGER entries_no_truncate",
        "CREATE OR REPLACE FUNCTION tacit_entries_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN NULL; END $$",
    ],
)
def test_server_without_its_triggers_is_refused(postgresql, statement):
    with postgresql.ledger() as ledger:
        ledger.open("data", 1.0, 0.0)
    postgresql.execute(statement)
    with pytest.raises(TamperedLedger, match="the trigger entries_no_"):
        postgresql.ledger()
    assert not verify(postgresql.url, anchor=postgresql.anchor).ok
    Ledger.adopt(postgresql.url, reason="restored", anchor=postgresql.anchor).close()
    assert postgresql.ledger().verify().ok


def test_what_is_written_while_a_new_ledger_is_read_is_no_sign_of_tampering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An anchor that was read before the first entry is read again, and then the entries are."""
    path, read, reads = tmp_path / "budget.db", AnchorFile.read, []
    with Ledger(path) as first, Ledger(path) as second:
        first.open("one", 1.0, 0.0)

        def between(anchor: AnchorFile) -> Anchored | None:
            reads.append(read(anchor))
            if len(reads) == 1:
                assert reads[0] is not None
                return Anchored(reads[0].ledger_id, None)  # as it was when the ledger was begun
            monkeypatch.setattr(AnchorFile, "read", read)
            first.open("other", 1.0, 0.0)
            return read(anchor)

        monkeypatch.setattr(AnchorFile, "read", between)
        assert [one.name for one in second.budgets()] == ["one", "other"]
    assert len(reads) == 2
