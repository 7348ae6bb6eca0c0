"""A crash of the machine at file level: what was not synced is lost, in whole or in part.

A ledger is copied while it is in use: the database as of some checkpoint, the write-ahead log with
everything since, and the anchor. Then parts of the copy are cut off, zeroed or put back to an older
state. Whatever is opened must be a prefix of the truth that holds all that was anchored, or be
refused: never less than the anchor without a word.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tacit.accounting import PureDp
from tacit.errors import LedgerError, TamperedLedger
from tacit.ledger import Ledger, Release
from tacit.ledger.anchor import AnchorFile

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096
FRAME = PAGE + 24
NAMES = ("budget.db", "budget.db-wal", "budget.db.anchor")


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """A ledger in use: files after each entry, and the hashes of all entries."""
    folder = tmp_path_factory.mktemp("used")
    moments = []
    with Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        made = ledger.open("data", 1.0, 0.0).reserve(Release(PureDp(0.5)), steps=100)
        for number in range(14):
            made.lease(2)
            if number == 5:
                _checkpoint(folder / "budget.db")
            moments.append({name: (folder / name).read_bytes() for name in NAMES})
        return moments, list(ledger.books.hashes)


def _checkpoint(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def settled(folder: Path, files: dict[str, bytes], hashes: list[str]) -> str:
    """Opens what the crash left, and says what came of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    anchored = AnchorFile(folder / "budget.db.anchor").read().head.number
    try:
        with Ledger(f"sqlite:///{folder}/budget.db") as ledger:
            found = ledger.books.hashes
            assert found == hashes[: len(found)]
            assert len(found) >= anchored
            # What is open must also work, and never give a step away twice.
            left = ledger.budget("data").reservation(3).left
            assert left == 100 - 2 * (len(found) - 3)
            return "all" if len(found) == len(hashes) else "behind, as anchored"
    except TamperedLedger:
        return "tampered"
    except LedgerError:
        return "damaged"


def live_end(log: bytes) -> int:
    """Where the frames of the log's current round end; older ones may follow.

    A frame carries the salts of the header it belongs to (SQLite's file format, section 4.2).
    """
    end = 32
    while end < len(log) and log[end + 8 : end + 16] == log[16:24]:
        end += FRAME
    return end


def test_log_cut_at_every_page_and_anywhere_is_found(used, tmp_path):
    moments, hashes = used
    whole = moments[-1]
    log = whole["budget.db-wal"]
    assert settled(tmp_path / "x", whole, hashes) == "all"
    cuts = [32 + FRAME * number for number in range(len(log) // FRAME)]
    cuts += random.Random(1).sample(range(len(log)), 60)
    for cut in cuts:
        outcome = settled(tmp_path / "x", whole | {"budget.db-wal": log[:cut]}, hashes)
        # The last sync is what the anchor speaks for.
        assert outcome == ("tampered" if cut < live_end(log) else "all")


def test_log_whose_pages_never_reached_the_disk_is_found(used, tmp_path):
    moments, hashes = used
    whole = moments[-1]
    log = whole["budget.db-wal"]
    for start in range(0, len(log), 4096):
        torn = log[:start] + bytes(min(4096, len(log) - start)) + log[start + 4096 :]
        outcome = settled(tmp_path / "x", whole | {"budget.db-wal": torn}, hashes)
        assert outcome == ("tampered" if start < live_end(log) else "all")


def test_lost_log_is_found(used, tmp_path):
    moments, hashes = used
    whole = dict(moments[-1])
    del whole["budget.db-wal"]
    assert settled(tmp_path / "x", whole, hashes) == "tampered"


def test_database_cut_anywhere_is_found_or_mended_by_the_log(used, tmp_path):
    moments, hashes = used
    whole = moments[-1]
    database = whole["budget.db"]
    cuts = [*range(0, len(database), PAGE), *random.Random(2).sample(range(len(database)), 40)]
    for cut in cuts:
        for log in (whole["budget.db-wal"], b""):
            torn = whole | {"budget.db": database[:cut], "budget.db-wal": log}
            outcome = settled(tmp_path / "x", torn, hashes)
            assert outcome in {"tampered", "damaged", "all"}
            if not log:
                assert outcome != "all"


def test_files_of_different_moments_are_never_less_than_the_anchor(used, tmp_path):
    moments, hashes = used
    seen = set()
    for anchor in moments[1::3]:
        for files in moments[1::3]:
            mixed = files | {"budget.db.anchor": anchor["budget.db.anchor"]}
            seen.add(settled(tmp_path / "x", mixed, hashes))
    assert seen == {"all", "behind, as anchored", "tampered"}


def test_database_and_log_of_different_moments_are_a_true_prefix_or_refused(used, tmp_path):
    moments, hashes = used
    for database in moments[::4]:
        for log in moments[1::4]:
            for anchor in (moments[0], moments[-1]):
                mixed = {"budget.db": database["budget.db"], "budget.db-wal": log["budget.db-wal"]}
                mixed["budget.db.anchor"] = anchor["budget.db.anchor"]
                settled(tmp_path / "x", mixed, hashes)  # holds what it finds against the truth


def test_one_flipped_byte_of_the_file_changes_nothing_or_is_found(used, tmp_path):
    moments, hashes = used
    whole = moments[-1]
    rng = random.Random(3)
    outcomes = set()
    for name in ("budget.db", "budget.db-wal"):
        for _ in range(100):
            raw = bytearray(whole[name])
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            outcomes.add(settled(tmp_path / "x", whole | {name: bytes(raw)}, hashes))
    # Bytes of pages that are not in use may change without harm.
    assert outcomes <= {"all", "tampered", "damaged"}
    assert "tampered" in outcomes


def test_every_text_byte_of_every_row_is_covered(tmp_path):
    """All rows in the database proper, the log empty: bytes of each text flipped in the file."""
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        ledger.open("data", 1.0, 0.0).charge(PureDp(0.5), label="mean")
        texts = [getattr(one, name) for one in ledger.history() for name in ("body", "at", "hash")]
        hashes = list(ledger.books.hashes)
    files = {name: (tmp_path / name).read_bytes() for name in ("budget.db", "budget.db.anchor")}
    rng = random.Random(4)
    for text in texts:
        places = _places(files["budget.db"], text.encode())
        assert places
        for offset in {rng.randrange(len(text)) for _ in range(6)}:
            raw = bytearray(files["budget.db"])
            for place in places:  # "previous" repeats a hash; both are flipped then
                raw[place + offset] ^= 1
            torn = files | {"budget.db": bytes(raw)}
            assert settled_first(tmp_path / "x", torn, hashes) in {"tampered", "damaged"}


def _places(raw: bytes, text: bytes) -> list[int]:
    found, start = [], raw.find(text)
    while start >= 0:
        found.append(start)
        start = raw.find(text, start + 1)
    return found


def settled_first(folder: Path, files: dict[str, bytes], hashes: list[str]) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    try:
        with Ledger(f"sqlite:///{folder}/budget.db") as ledger:
            return "all" if ledger.books.hashes == hashes else "other"
    except TamperedLedger:
        return "tampered"
    except LedgerError:
        return "damaged"
