from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tacit.accounting import PureDp
from tacit.errors import BudgetExceeded, InvalidArgument, LedgerError, TamperedLedger
from tacit.ledger import Release
from tacit.ledger.entries import Draft, entry_after, hashed
from tacit.ledger.replay import Books, ReservationCost, Totals, replay

from .memory import InMemory

sizes = st.floats(1e-3, 0.7)
picks = st.integers(0, 10_000)
steps = st.integers(1, 6)


class Model(RuleBasedStateMachine):
    """A budget against a plain list of what happened to it."""

    def __init__(self):
        super().__init__()
        self.ledger = InMemory()
        self.budget = self.ledger.open(1.0, 0.0)
        self.limit = 1.0
        self.rows = []  # [reservation, size, granted, ended, leased and not given back, used]

    def charged(self):
        return sum(Fraction(row[1]) for row in self.rows if row[5] or not row[3])

    @rule(size=sizes, count=steps)
    def reserve(self, size, count):
        fits = self.charged() + Fraction(size) <= Fraction(self.limit)
        assert self.budget.affordable(Release(PureDp(size))) == fits
        before = len(self.ledger.entries)
        try:
            made = self.budget.reserve(Release(PureDp(size)), steps=count)
        except BudgetExceeded:
            assert not fits
            assert len(self.ledger.entries) == before
        else:
            assert fits
            self.rows.append([made, size, 0, False, 0, False])

    @rule(size=sizes)
    def charge(self, size):
        try:
            self.rows.append([self.budget.charge(PureDp(size)), size, 1, False, 0, True])
        except BudgetExceeded:
            assert self.charged() + Fraction(size) > Fraction(self.limit)

    @precondition(lambda self: self.rows)
    @rule(pick=picks, count=steps)
    def lease(self, pick, count):
        row = self.rows[pick % len(self.rows)]
        expected = 0 if row[3] else min(count, row[0].steps - row[2])
        assert row[0].lease(count) == expected
        row[2] += expected
        row[4] += expected
        row[5] = row[5] or expected > 0

    @precondition(lambda self: self.rows)
    @rule(pick=picks, count=st.integers(0, 6))
    def give_back(self, pick, count):
        row = self.rows[pick % len(self.rows)]
        if count > row[4] or (row[3] and count):
            with pytest.raises(InvalidArgument):
                row[0].give_back(count)
        else:
            row[0].give_back(count)
            row[2] -= count
            row[4] = 0 if count else row[4]

    @precondition(lambda self: self.rows)
    @rule(pick=picks)
    def end(self, pick):
        row = self.rows[pick % len(self.rows)]
        row[0].end()
        row[3] = True

    @rule(limit=st.floats(0.1, 3.0))
    def amend(self, limit):
        if self.charged() <= Fraction(limit):
            self.limit = self.budget.amend(epsilon=limit, reason="a test").epsilon
        else:
            with pytest.raises(BudgetExceeded, match="cannot be amended"):
                self.budget.amend(epsilon=limit, reason="a test")

    @invariant()
    def books_are_the_replay_and_the_list(self):
        again = replay(self.ledger.entries)
        assert again.budgets == self.ledger.books.budgets
        assert again.reservations == self.ledger.books.reservations
        assert again.hashes == self.ledger.books.hashes
        state = again.budgets["data"]
        assert state.totals.epsilon == self.charged() <= Fraction(self.limit)
        assert state.granted == sum(row[2] for row in self.rows)
        for made, _, granted, ended, *_ in self.rows:
            assert (made.granted, made.left) == (granted, 0 if ended else made.steps - granted)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_what_was_added_can_be_taken_away_exactly():
    charges = [
        ReservationCost(0.1 * k, 1e-7 / k, (0.3 / k, 1e300), 1e-9 * k, 1e-17) for k in range(1, 9)
    ]
    totals = Totals()
    for charge in charges:
        totals = totals.plus(charge)
    assert totals.epsilon == sum(Fraction(one.epsilon) for one in charges)
    assert totals.divergences[0] == sum(Fraction(one.divergences[0]) for one in charges)
    for charge in charges:
        totals = totals.plus(charge, -1)
    assert totals == replace(Totals(), divergences=(Fraction(0), Fraction(0)))


def test_kind_of_a_newer_tacit_is_refused_with_the_remedy():
    entry = entry_after(None, Draft("", "merge", {}))
    with pytest.raises(LedgerError, match=r"entry 1 is of the kind 'merge'.*upgrade tacit"):
        Books().take(entry)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("open", "{}"),
        ("open", "["),
        ("open", "[1]"),
        ("lease", '{"reservation":4,"steps":1}'),
        ("lease", '{"reservation":3,"steps":3}'),
        ("lease", '{"reservation":3,"steps":"many"}'),
        ("give-back", '{"reservation":3,"steps":2}'),
        ("end", '{"reservation":2}'),
        ("ledger", '{"id":"again"}'),
        ("reserve", '{"event":{}}'),
    ],
)
def test_entry_that_makes_no_sense_is_named(kind, body):
    ledger = InMemory()
    budget = ledger.open(1.0, 0.0)  # entry 1
    budget.charge(PureDp(0.1))  # entry 2
    budget.reserve(Release(PureDp(0.1)), steps=2)  # entry 3
    ledger.books.reservations.pop(2)
    draft = entry_after(ledger.books.head, Draft("data", kind, {}))
    with pytest.raises(TamperedLedger, match="entry 4 cannot be read"):
        ledger.books.take(hashed(replace(draft, body=body)))
