from __future__ import annotations

import json
import threading

import pytest

from tacit.accounting import PureDp
from tacit.errors import LedgerError, TamperedLedger
from tacit.ledger import Head, Ledger, verify
from tacit.ledger.anchor import AnchorFile, default_anchor

HASH = "ab" * 32


def test_anchor_goes_forward_only(tmp_path):
    anchor = AnchorFile(tmp_path / "deep" / "anchor")
    assert anchor.read() is None
    name = anchor.begin().ledger_id
    assert anchor.begin().ledger_id == name
    assert anchor.read().head is None
    anchor.advance(name, Head(7, HASH))
    anchor.advance(name, Head(5, HASH))
    assert anchor.read().head == Head(7, HASH)
    anchor.reset(name, Head(6, HASH))
    assert anchor.read().head == Head(6, HASH)


def test_many_writers_leave_the_newest(tmp_path):
    anchor = AnchorFile(tmp_path / "anchor")

    def write(start: int) -> None:
        for number in range(start, 200, 4):
            anchor.advance("x", Head(number, HASH))

    threads = [threading.Thread(target=write, args=(start,)) for start in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert anchor.read().head.number == 199


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"number":1}', '{"ledger":"x","number":1,"hash":"a"}']
)
def test_damaged_anchor_is_refused_with_the_remedy(sqlite, text):
    with sqlite.ledger() as ledger:
        ledger.open("data", 1.0, 0.0)
    sqlite.anchor.write_text(text)
    with pytest.raises(TamperedLedger, match=r"is damaged; .*adopt"):
        sqlite.ledger()
    assert not verify(sqlite.url).ok


def test_every_entry_is_anchored_when_it_is_granted(place):
    ledger = place.ledger()
    budget = ledger.open("data", 1.0, 0.0)
    for _ in range(3):
        budget.charge(PureDp(0.1))
        written = json.loads(place.anchor.read_text())
        assert (written["number"], written["hash"]) == (ledger.head.number, ledger.head.hash)
        assert written["ledger"] == ledger.identity


def test_missing_anchor_of_a_file_is_refused_until_it_is_adopted(sqlite):
    with sqlite.ledger() as ledger:
        budget = ledger.open("data", 1.0, 0.0)
        budget.charge(PureDp(0.1))
        sqlite.anchor.unlink()
        with pytest.raises(LedgerError, match=r"has no anchor: .*adopt"):
            budget.charge(PureDp(0.1))
    with pytest.raises(LedgerError, match=r"has no anchor: .*adopt"):
        sqlite.ledger()
    assert "entry 3" in verify(sqlite.url).problems[0]
    with Ledger.adopt(sqlite.url, reason="moved to a new disk") as ledger:
        assert ledger.budget("data").spent().epsilon == 0.1
        assert ledger.history()[-1].data["reason"] == "moved to a new disk"
    with sqlite.ledger() as ledger:
        found = ledger.verify()
    assert found.ok
    assert "moved to a new disk" in found.notes[0]


def test_a_machine_without_an_anchor_of_a_server_accepts_it_with_a_reason(postgresql):
    postgresql.ledger().open("data", 1.0, 0.0)
    postgresql.anchor.unlink()
    found = verify(postgresql.url, anchor=postgresql.anchor)
    assert "is entry 2 the newest?" in found.problems[0]
    with pytest.raises(LedgerError, match=r"has no anchor: .*adopt"):
        postgresql.ledger()
    Ledger.adopt(postgresql.url, reason="a new machine", anchor=postgresql.anchor).close()
    head = postgresql.ledger().head
    assert json.loads(postgresql.anchor.read_text())["number"] == head.number == 3


def test_each_server_database_has_an_anchor_of_its_own(monkeypatch, tmp_path, server):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    names = [server.new_database() for _ in range(2)]
    for name in names:
        with Ledger(server.url(name)) as ledger:
            ledger.open("data", 1.0, 0.0)
            assert ledger.anchor.is_relative_to(tmp_path / "state" / "tacit")
    # One for each ledger by its id, and one for each address.
    assert len(list((tmp_path / "state" / "tacit" / "anchors").glob("*.anchor"))) == 4
    server.execute(f"DROP DATABASE {names[0]}")
    server.execute(f"CREATE DATABASE {names[0]}")
    with pytest.raises(TamperedLedger, match="there is no ledger here any more"):
        Ledger(server.url(names[0]))
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_anchor("x").is_relative_to(tmp_path / ".local" / "state")


def test_making_of_a_ledger_can_be_interrupted_anywhere(sqlite, tmp_path):
    path = tmp_path / "budget.db"
    AnchorFile(sqlite.anchor).begin()  # a crash before the database was there
    name = AnchorFile(sqlite.anchor).read().ledger_id
    path.touch()  # and one before its first page
    with sqlite.ledger() as ledger:
        assert ledger.identity == name
        AnchorFile(sqlite.anchor).path.write_text(
            json.dumps({"ledger": name, "number": 0, "hash": ""})
        )  # and one before its first entry was anchored
    with sqlite.ledger() as ledger:
        assert ledger.head.number == 1


def test_ledger_with_another_ledgers_anchor_is_refused(place, tmp_path):
    place.ledger().open("data", 1.0, 0.0)
    with Ledger(f"sqlite:///{tmp_path}/other.db") as other:
        other.open("data", 1.0, 0.0)
        place.anchor.write_bytes(other.anchor.read_bytes())
    with pytest.raises(TamperedLedger, match="is the anchor of another ledger"):
        place.ledger()


def test_locked_anchor_is_waited_for_and_then_reported(sqlite):
    fcntl = pytest.importorskip("fcntl")
    budget = sqlite.ledger(timeout=0.2).open("data", 1.0, 0.0)
    with open(f"{sqlite.anchor}.lock") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(LedgerError, match="is locked by another process; nothing was granted"):
            budget.charge(PureDp(0.25))
    # The entry was committed before: too much is charged, never too little.
    assert budget.spent().epsilon == 0.25
    budget.charge(PureDp(0.25))
    assert sqlite.ledger().verify().ok
