"""A labelling run's account: what it grants, and that ledger and journal must agree."""

from __future__ import annotations

import pytest

from tacit.accounting import PureDp, Repeated
from tacit.errors import InvalidArgument, LedgerError, TamperedLedger
from tacit.ledger import Ledger, Release, Reservation
from tacit.mechanisms.release import agreed
from tacit.randomness import SystemStream, UnsafeSeededStream
from tacit.transfer.charges import LabellingAccount
from tacit.transfer.journal import LabelJournal

RELEASE = Release(Repeated(PureDp(0.01), 10))


@pytest.fixture(name="budget")
def a_budget(tmp_path):
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as ledger:
        yield ledger.open("crowd", epsilon=1.0, delta=0.0)


def account(budget, tmp_path, announced=0, last=0):
    journal = LabelJournal(tmp_path / "run", {}, 10)
    journal.run = "a name of its own"
    made = LabellingAccount(budget, "test")
    made.begin(RELEASE, 10, announced, last, journal)
    return made


def test_the_whole_is_reserved_once_and_found_again(budget, tmp_path):
    first = account(budget, tmp_path)
    first.grant(4)
    again = account(budget, tmp_path, announced=4, last=4)
    assert first.entry == again.entry
    assert budget.reservation(first.entry).granted == 4
    assert budget.spent().epsilon == pytest.approx(0.1)


def test_what_was_announced_and_not_granted_is_granted_at_once(budget, tmp_path):
    account(budget, tmp_path).grant(4)
    resumed = account(budget, tmp_path, announced=7, last=3)
    assert budget.reservation(resumed.entry).granted == 7


@pytest.mark.parametrize(("announced", "last"), [(3, 3), (9, 4), (7, 5)])
def test_an_older_copy_of_either_is_refused(budget, tmp_path, announced, last):
    account(budget, tmp_path).grant(4)
    with pytest.raises(TamperedLedger, match="older copy"):
        account(budget, tmp_path, announced, last)


def test_of_two_runs_of_one_journal_the_second_is_granted_nothing(budget, tmp_path):
    first, second = account(budget, tmp_path), account(budget, tmp_path)
    first.grant(4)
    first.grant(2)
    with pytest.raises(LedgerError, match=r"0 of 3 releases were granted; go on with the journal"):
        second.grant(3)
    first.grant(1)
    assert budget.reservation(first.entry).granted == 7


def test_the_journal_of_a_run_that_was_refused_is_ended(budget, tmp_path):
    """What it announced would be found granted, were it as much as the other run was granted."""
    first, second = account(budget, tmp_path), LabellingAccount(budget, "test")
    journal = LabelJournal(tmp_path / "run", {}, 10)
    journal.run = "a name of its own"
    second.begin(RELEASE, 10, 0, 0, journal)
    first.grant(2)
    journal.screen([0, 1])
    with pytest.raises(LedgerError, match="used by another run"):
        second.grant(2)
    assert journal.record.ended


def test_what_a_crash_left_open_is_granted_to_one_of_two_runs(budget, tmp_path, monkeypatch):
    account(budget, tmp_path).grant(4)
    lease = Reservation.lease

    def overtaken(self, steps, after):
        monkeypatch.setattr(Reservation, "lease", lease)
        account(budget, tmp_path, announced=7, last=3).grant(1)
        return lease(self, steps, after)

    monkeypatch.setattr(Reservation, "lease", overtaken)
    with pytest.raises(LedgerError, match="0 of 3 releases were granted"):
        account(budget, tmp_path, announced=7, last=3)
    (held,) = budget.ledger.books.of("crowd")
    assert held.granted == 8


def test_a_journal_that_announces_needs_its_reservation(budget, tmp_path):
    with pytest.raises(TamperedLedger, match="no reservation of this journal"):
        account(budget, tmp_path, announced=4, last=4)
    assert budget.spent().epsilon == 0.0


def test_no_more_is_granted_than_was_reserved(budget, tmp_path):
    made = account(budget, tmp_path)
    made.grant(10)
    with pytest.raises(LedgerError, match="0 of 1 releases were granted"):
        made.grant(1)
    made.end()


def test_without_a_budget_everything_is_granted(tmp_path):
    made = account(None, tmp_path)
    made.grant(10**6)
    made.end()
    assert made.entry is None


def test_terms_are_checked(budget):
    agreed("label", None, None, None, "", UnsafeSeededStream(0, "votes"))
    agreed("label", None, None, budget, "", SystemStream())
    with pytest.raises(InvalidArgument, match="budget must be"):
        agreed("label", None, None, "crowd", "", None)
    with pytest.raises(InvalidArgument, match="stream must be left out"):
        agreed("label", None, None, budget, "", UnsafeSeededStream(0, "votes"))
