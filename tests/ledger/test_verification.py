from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from tacit.accounting import PureDp
from tacit.errors import LedgerError, TamperedLedger
from tacit.ledger import Ledger, entries, verify
from tacit.ledger.entries import canonical

from .tampering import anchor_to, chained_anew, filled, rewrite

COLUMNS = ("budget", "kind", "at", "body", "previous", "hash")


def refused(place, *words):
    """Every way in refuses the ledger, and names what the words say."""
    found = verify(place.url, anchor=place.anchor)
    assert not found.ok
    assert all(any(word in problem for problem in found.problems) for word in words), found
    with pytest.raises(TamperedLedger) as refusal:
        place.ledger()
    assert "entr" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    return found


def test_untouched_ledger_is_whole(place):
    entries = filled(place)
    found = verify(place.url, anchor=place.anchor)
    assert found.ok
    assert (found.entries, found.head, found.anchored) == (8, entries[-1].head, entries[-1].head)


def test_one_changed_byte_in_any_column_of_any_row_is_found_and_named(place):
    entries = filled(place)
    for index, entry in enumerate(entries):
        for column in COLUMNS:
            text = getattr(entry, column)
            middle = len(text) // 2
            changed = text[:middle] + chr(ord(text[middle : middle + 1] or "a") ^ 1)
            changed += text[middle + 1 :]
            forged = replace(entry, **{column: changed})
            rewrite(place, [*entries[:index], forged, *entries[index + 1 :]])
            refused(place, f"entry {entry.number} ")
    rewrite(place, entries)
    assert place.ledger().verify().ok


def test_changed_number_is_found(place):
    entries = filled(place)
    for index, entry in enumerate(entries):
        rewrite(place, [*entries[:index], replace(entry, number=entry.number + 16)])
        refused(place, f"{entry.number}")


@pytest.mark.parametrize("index", range(8))
def test_removed_row_is_found_and_named(sqlite, index):
    entries = filled(sqlite)
    rewrite(sqlite, entries[:index] + entries[index + 1 :])
    refused(sqlite, f"entry {index + 1}")


def test_removed_last_rows_are_found(place):
    entries = filled(place)
    for count in range(8):
        rewrite(place, entries[:count])
        refused(place, "entry 8")


def test_reordered_rows_are_found(place):
    entries = filled(place)
    for index in range(7):
        one, other = entries[index], entries[index + 1]
        swapped = [replace(other, number=one.number), replace(one, number=other.number)]
        rewrite(place, entries[:index] + swapped + entries[index + 2 :])
        refused(place, f"entry {one.number} ", f"entry {other.number} ")


def test_old_copy_put_back_is_found(sqlite, tmp_path):
    entries = filled(sqlite)
    path = tmp_path / "budget.db"
    shutil.copy(path, tmp_path / "old.db")
    with sqlite.ledger() as ledger:
        ledger.budget("data").charge(PureDp(0.2))
        head = ledger.head
    shutil.copy(tmp_path / "old.db", path)
    refused(sqlite, "entry 9", "an older copy was put back")
    # Put back together with its old anchor it looks whole; what carries the head finds it.
    old = {"number": 8, "hash": entries[-1].hash, "ledger": entries[0].data["id"]}
    sqlite.anchor.write_text(json.dumps(old))
    assert not sqlite.ledger().contains(head)


def test_removed_ledger_is_found(sqlite, tmp_path):
    filled(sqlite)
    (tmp_path / "budget.db").unlink()
    refused(sqlite, "entry 8")
    assert not (tmp_path / "budget.db").exists()


def test_file_replaced_under_an_open_ledger_grants_nothing(sqlite, tmp_path):
    filled(sqlite)
    path = tmp_path / "budget.db"
    shutil.copy(path, tmp_path / "old.db")
    budget = sqlite.ledger().budget("data")
    budget.charge(PureDp(0.1))
    (tmp_path / "old.db").replace(path)
    with pytest.raises(TamperedLedger, match="was removed or replaced while it was open"):
        budget.charge(PureDp(0.1))


def test_rows_removed_under_an_open_ledger_are_noticed(place):
    entries = filled(place)
    budget = place.ledger().budget("data")
    budget.charge(PureDp(0.1))
    rewrite(place, entries)
    with pytest.raises(TamperedLedger, match="entry 9 was changed or removed"):
        budget.charge(PureDp(0.1))


def test_forged_chain_is_found_by_the_anchor(place):
    entries = filled(place)
    rewrite(place, chained_anew([one for one in entries if one.kind != "lease"]))
    refused(place, "entry 8")
    cheaper = replace(entries[5], body=entries[5].body.replace("0.1", "0.0"))
    rewrite(place, chained_anew([*entries[:5], cheaper, *entries[6:]]))
    refused(place, "entry 8 is not the one")


def test_charge_below_what_its_event_costs_is_found_even_in_a_forged_chain(place):
    entries = filled(place)
    body = entries[2].data
    body["charge"]["epsilon"] = 0.001
    forged = chained_anew([*entries[:2], replace(entries[2], body=canonical(body)), *entries[3:]])
    rewrite(place, forged)
    anchor_to(place, forged)
    problems = verify(place.url, anchor=place.anchor).problems
    assert problems == ("entry 3 charges less than its event costs",)
    with pytest.raises(TamperedLedger, match="entry 3 charges less than its event costs"):
        place.ledger().budget("data")
    place.anchor.unlink()
    with pytest.raises(TamperedLedger, match="entry 3 charges less than its event costs"):
        Ledger.adopt(place.url, reason="a test", anchor=place.anchor)


def test_charges_over_the_limit_are_found_even_in_a_forged_chain(place):
    entries = filled(place)
    rewrite(place, chained_anew([*entries[:3], entries[2], entries[2], entries[2]]))
    found = verify(place.url, anchor=place.anchor)
    assert any("takes the budget" in one and "entry 5 " in one for one in found.problems)


def test_ledger_with_changed_entries_cannot_be_adopted(place):
    entries = filled(place)
    rewrite(place, [*entries[:3], replace(entries[3], at="yesterday"), *entries[4:]])
    with pytest.raises(TamperedLedger, match="entry 4 was changed"):
        Ledger.adopt(place.url, reason="please", anchor=place.anchor)
    with pytest.raises(LedgerError):
        Ledger.adopt("sqlite:////tmp/no-such-folder/x.db", reason="please")


def test_a_day_that_is_to_come_is_noted(place, monkeypatch):
    ledger = place.ledger()
    budget = ledger.open("data", 1.0, 0.0)
    assert ledger.verify().notes == ()
    with monkeypatch.context() as wrong:
        wrong.setattr(entries, "today", lambda: "2999-01-01")
        budget.charge(PureDp(0.1))
    found = ledger.verify()
    assert found.ok
    assert "dated 2999-01-01, which is to come: a clock was wrong" in found.notes[0]


def test_restored_backup_can_be_adopted_and_says_so_for_good(sqlite):
    entries = filled(sqlite)
    rewrite(sqlite, entries[:5])
    refused(sqlite, "entry 8")
    with Ledger.adopt(sqlite.url, reason="restored the backup of Monday") as ledger:
        assert ledger.history()[-1].data["anchored"] == str(entries[-1].head)
    for _ in range(2):
        found = sqlite.ledger().verify()
        assert found.ok
        assert "entry 6" in found.notes[0]
        assert "Monday" in found.notes[0]
