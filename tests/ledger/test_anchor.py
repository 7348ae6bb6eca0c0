from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import replace

import pytest

from tacit.accounting import PureDp
from tacit.errors import InvalidArgument, LedgerError, TamperedLedger
from tacit.ledger import Head, Ledger, verify
from tacit.ledger.anchor import AnchorFile, default_anchor
from tacit.ledger.entries import canonical, hashed
from tacit.reports import ledger_summary

from .conftest import Place
from .tampering import anchor_to, chained_anew, rewrite

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
    with pytest.raises(TamperedLedger, match=r"is damaged. .*adopt"):
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


# ---- anchors that were emptied, and keys


def test_older_copy_with_an_emptied_anchor_grants_nothing(place):
    with place.ledger() as ledger:
        budget = ledger.open("data", 1.0, 0.0)
        budget.charge(PureDp(0.9))
        plain = {"ledger": ledger.identity, "number": 0, "hash": ""}
        place.anchor.write_text(json.dumps(plain))
        with pytest.raises(TamperedLedger, match="knows no entry"):
            budget.charge(PureDp(0.05))
    with pytest.raises(TamperedLedger, match=r"knows no entry, .*verify --accept"):
        place.ledger()
    assert "knows no entry" in verify(place.url, anchor=place.anchor).problems[0]
    with Ledger.adopt(place.url, reason="the disk was full", anchor=place.anchor) as ledger:
        assert ledger.budget("data").spent().epsilon == 0.9
    assert place.ledger().verify().ok


@pytest.mark.parametrize("content", [b"", bytes(132), b"\xff" * 132, b"[" * 5000, b"1" * 10**6])
def test_zeroed_or_filled_anchor_is_refused(sqlite, content):
    with sqlite.ledger() as ledger:
        ledger.open("data", 1.0, 0.0)
    sqlite.anchor.write_bytes(content)
    with pytest.raises(TamperedLedger, match="is damaged"):
        sqlite.ledger()
    assert not verify(sqlite.url).ok


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "elsewhere.key"
    path.write_text("ab" * 32 + "\n")
    return path


def sealed_ledger(place, key):
    with Ledger(place.url, anchor=place.anchor, key=key) as ledger:
        ledger.open("data", 1.0, 0.0).charge(PureDp(0.5))
        return list(ledger.history())


def test_sealed_ledger_works_with_its_key_and_only_with_it(place, key, tmp_path):
    sealed_ledger(place, key)
    with Ledger(place.url, anchor=place.anchor, key=key) as ledger:
        ledger.budget("data").charge(PureDp(0.25))
        assert ledger.verify().ok
    with pytest.raises(
        LedgerError, match=r"is sealed with a key; name the file .*TACIT_LEDGER_KEY"
    ):
        place.ledger()
    other = tmp_path / "other.key"
    other.write_text("cd" * 32)
    with pytest.raises(TamperedLedger, match="was not sealed with this key"):
        Ledger(place.url, anchor=place.anchor, key=other)
    with pytest.raises(TamperedLedger, match="entry 1 was not sealed with this key"):
        Ledger.adopt(place.url, anchor=place.anchor, key=other, reason="please")
    found = verify(place.url, anchor=place.anchor, key=other)
    assert any("entry 1 was not sealed" in problem for problem in found.problems)


def test_chain_that_was_rewritten_whole_is_refused_by_the_key(place, key):
    entries = sealed_ledger(place, key)
    for forged in (
        chained_anew(entries[:2]),  # an older state
        chained_anew([without_seal(entry) for entry in entries[:2]]),  # all seals taken off
        [*entries, hashed(follow(entries))],  # one more entry, beyond the anchor
    ):
        rewrite(place, forged)
        anchor_to(place, forged)
        assert not verify(place.url, anchor=place.anchor, key=key).ok
        with pytest.raises(LedgerError):
            Ledger(place.url, anchor=place.anchor, key=key)
    # With the sealed anchor left alone, entries past it need a seal, too.
    rewrite(place, entries)
    place.anchor.unlink()
    Ledger.adopt(place.url, anchor=place.anchor, key=key, reason="a test").close()
    with Ledger(place.url, anchor=place.anchor, key=key) as ledger:
        entries = list(ledger.history())
    rewrite(place, [*entries, hashed(follow(entries))])
    with pytest.raises(TamperedLedger, match="it has no seal"):
        Ledger(place.url, anchor=place.anchor, key=key)


def without_seal(entry):
    body = entry.data
    body.pop("seal", None)
    return replace(entry, body=canonical(body))


def follow(entries):
    """An amendment after the last entry, as one would write who has no key."""
    body = {"epsilon": 100.0, "delta": 0.0, "reason": "more"}
    last = entries[-1]
    return replace(
        last, number=last.number + 1, kind="amend", budget="data", body=canonical(body),
        previous=last.hash,
    )  # fmt: skip


def test_ledger_can_be_sealed_later(place, key, monkeypatch):
    with place.ledger() as ledger:
        ledger.open("data", 1.0, 0.0).charge(PureDp(0.5))
    with pytest.raises(TamperedLedger, match="was not sealed with this key"):
        Ledger(place.url, anchor=place.anchor, key=key)
    Ledger.adopt(place.url, anchor=place.anchor, key=key, reason="sealed from now on").close()
    monkeypatch.setenv("TACIT_LEDGER_KEY", str(key))
    with place.ledger() as ledger:
        ledger.budget("data").charge(PureDp(0.25))
        assert ledger.verify().ok
        assert "seal" in ledger.history()[-1].data
    monkeypatch.delenv("TACIT_LEDGER_KEY")
    found = verify(place.url, anchor=place.anchor)
    assert not found.ok  # the anchor cannot be read without the key


@pytest.mark.parametrize("content", [None, b"", b"short", b"x" * 5000])
def test_key_that_is_none_is_refused_and_not_shown(sqlite, tmp_path, content):
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgument, match="key must name a file") as refusal:
        Ledger(sqlite.url, key=path)
    assert "short" not in str(refusal.value)


def test_a_key_without_a_name_makes_no_unsealed_ledger(sqlite, tmp_path, monkeypatch):
    """As of ``--key "$UNSET"``: whoever gave it took the ledger for sealed."""
    with pytest.raises(InvalidArgument, match="key must name a file, got ''"):
        Ledger(sqlite.url, key="")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("TACIT_LEDGER_KEY", "")  # for a variable this is to be without one
    sqlite.ledger()


# ---- files


@pytest.mark.parametrize("there", [False, True])
def test_files_of_a_ledger_are_their_owners_only(sqlite, tmp_path, there):
    before = os.umask(0)
    try:
        if there:  # empty, and everybody's
            (tmp_path / "budget.db").touch()
        with sqlite.ledger() as ledger:
            ledger.open("data", 1.0, 0.0).charge(PureDp(0.5))
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
            ledger_summary.export(ledger.history(), tmp_path / "out.jsonl")
    finally:
        os.umask(before)
    assert {"budget.db", "budget.db-wal", "budget.db-shm", "budget.db.anchor"} <= set(modes)
    modes["out.jsonl"] = stat.S_IMODE((tmp_path / "out.jsonl").stat().st_mode)
    assert set(modes.values()) == {0o600}


def test_links_laid_beside_are_not_written_through(sqlite, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("budget.db.anchor.new", "budget.db.anchor.part", "budget.db.anchor.lock"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(LedgerError, match="cannot be written"):
        sqlite.ledger()  # its lock is a link
    (tmp_path / "budget.db.anchor.lock").unlink()
    with sqlite.ledger() as ledger:
        ledger.open("data", 1.0, 0.0)
    assert victim.read_text() == "precious"
    (tmp_path / "other.db").symlink_to(tmp_path / "nowhere")
    with pytest.raises(LedgerError, match="is a link to nowhere"):
        Ledger(tmp_path / "other.db")
    assert not (tmp_path / "nowhere").exists()


# ---- servers


def test_server_is_known_at_any_address_by_the_id_of_its_ledger(monkeypatch, tmp_path, server):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    name = server.new_database()
    addresses = [
        server.url(name),
        server.url(name).replace("127.0.0.1", "localhost"),
        f"postgresql://tacit@/{name}?host={server.folder}&port={server.port}",
        f"postgresql:///{name}?host=127.0.0.1&port={server.port}&user=tacit",
    ]
    with Ledger(addresses[0]) as ledger:
        ledger.open("data", 1.0, 0.0)
        old = list(ledger.history())
        ledger.budget("data").charge(PureDp(0.75))
        anchors = {ledger.anchor}
    for address in addresses[1:]:
        with Ledger(address) as ledger:
            assert ledger.budget("data").spent().epsilon == 0.75
            anchors.add(ledger.anchor)
    assert len(anchors) == 1
    rewrite(Place(server.url(name), tmp_path / "unused", lambda _: None), old)
    for address in addresses:
        with pytest.raises(TamperedLedger, match="an older copy was put back"):
            Ledger(address)
        assert not verify(address).ok
    server.give_back(name)


def test_another_ledger_at_a_known_address_is_refused(monkeypatch, tmp_path, server):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    name = server.new_database()
    with Ledger(server.url(name)) as ledger:
        ledger.open("data", 1.0, 0.0)
    server.give_back(name)
    assert server.new_database() == name
    with Ledger(server.url(name), anchor=tmp_path / "own.anchor") as ledger:
        ledger.open("data", 1.0, 0.0)
    with pytest.raises(TamperedLedger, match="another one was at this address before"):
        Ledger(server.url(name))
    Ledger.adopt(server.url(name), reason="a new server").close()
    assert Ledger(server.url(name)).verify().ok
    server.give_back(name)


def test_anchor_by_address_of_an_earlier_tacit_is_taken_over(monkeypatch, tmp_path, server):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    name = server.new_database()
    early = default_anchor(f"127.0.0.1:{server.port}/{name}")
    with Ledger(server.url(name), anchor=early) as ledger:
        ledger.open("data", 1.0, 0.0)
        head = ledger.head
    with Ledger(server.url(name)) as ledger:
        assert AnchorFile(ledger.anchor).read().head == head
        assert AnchorFile(early).read().head is None
        ledger.anchor.unlink()  # now the address alone does not vouch for anything
    with pytest.raises(LedgerError, match="knows no entry"):
        Ledger(server.url(name))
    server.give_back(name)
