"""A budget's account: the same figures as the ledger's own, and a word for where things stand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.accounting import Gaussian, PoissonSampled, PureDp, Repeated
from tacit.ledger import Ledger, Person, Release, approve, ask
from tacit.reports.ledger_summary import (
    BUDGET_STATES,
    RESERVATION_STATES,
    account,
    printable,
    summarise,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = Release(Repeated(PoissonSampled(0.01, Gaussian(2.0)), 100))
numbers = st.floats(0.0, 1e300)


@pytest.fixture
def ledger(tmp_path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{tmp_path}/budget.db") as made:
        yield made


def used(ledger: Ledger, composition: str) -> None:
    """A budget with a bit of everything that its rule allows."""
    budget = ledger.open("data", 4.0, 1e-5, composition=composition)
    if composition == "declared":
        one, other, _ = budget.declare([RUN, Release(Gaussian(5.0)), Release(PureDp(0.1))])
        other.end()
        one.lease(10)
        return
    budget.reserve(RUN, steps=100).lease(10)
    budget.reserve(Release(Gaussian(5.0))).end()
    budget.charge(PureDp(0.1))
    budget.amend(epsilon=5.0, reason="a test")
    budget.charge(PureDp(0.2))


@pytest.mark.parametrize("composition", ["basic", "renyi", "declared"])
def test_the_figures_are_the_ledgers_own(ledger, composition):
    used(ledger, composition)
    ledger.open("another", 1.0, 1e-5).charge(PureDp(0.5))
    budget = ledger.budget("data")
    found = account(ledger.history("data"))
    assert found.budget == summarise(ledger.budgets()[0])
    assert (found.budget.spent, found.budget.remaining) == (budget.spent(), budget.remaining())
    last = found.changes[-1]
    assert (last.epsilon, last.share) == (budget.remaining().epsilon, budget.remaining().share)
    assert [one.state for one in found.reservations] == ledger.books.of("data")
    json.dumps(found.as_dict(), allow_nan=False)


def test_the_burn_down_is_what_was_left_after_each_charge(ledger):
    budget = ledger.open("data", 4.0, 1e-5)
    seen = [budget.remaining()]
    for event in (PureDp(0.5), Gaussian(4.0), PureDp(0.25)):
        budget.charge(event)
        seen.append(budget.remaining())
    made = budget.reserve(RUN, steps=100)
    seen.append(budget.remaining())
    made.end()  # before a single step, so that it is taken back
    seen.append(budget.remaining())
    budget.amend(epsilon=8.0, reason="a test")
    seen.append(budget.remaining())
    changes = account(ledger.history("data")).changes
    assert [(one.epsilon, one.delta, one.share) for one in changes] == [
        (one.epsilon, one.delta, one.share) for one in seen
    ]
    assert [one.kind for one in changes][-3:] == ["reserve", "end", "amend"]
    assert changes[-1].limits == (8.0, 1e-5)
    assert changes[0].delta_share == 1.0
    assert changes[-1].delta_share == seen[-1].delta / 1e-5


def test_an_end_that_takes_nothing_back_is_no_change(ledger):
    budget = ledger.open("data", 4.0, 1e-5)
    made = budget.reserve(RUN, steps=100)
    made.lease(5)
    made.end()
    assert [one.kind for one in account(ledger.history("data")).changes] == ["open", "reserve"]


def test_a_word_for_every_state_of_a_reservation(ledger):
    budget = ledger.open("data", 50.0, 1e-5)
    made = [budget.reserve(RUN, steps=100) for _ in range(6)]
    made[1].lease(10)
    made[2].lease(10)
    made[2].give_back(3)
    made[3].lease(100)
    made[4].lease(10)
    made[4].end()
    made[5].end()
    fixed = ledger.open("fixed", 4.0, 1e-5, composition="declared")
    fixed.declare([RUN])
    ada, bo = Person("Ada", "engineer", "a" * 32), Person("Bo", "officer", "b" * 32)
    asked = ask(ledger, "data", RUN, steps=100, by=ada, reason="a model")
    approve(ledger, asked.number, by=bo, reason="fine")
    words = [one.standing for one in account(ledger.history("data")).reservations]
    words += [one.standing for one in account(ledger.history("fixed")).reservations]
    assert words == [
        "reserved", "unfinished", "stopped", "granted", "ended", "void", "approved", "declared",
    ]  # fmt: skip
    assert set(words) == set(RESERVATION_STATES)


def test_a_run_that_goes_on_after_a_clean_stop_is_unfinished_again(ledger):
    made = ledger.open("data", 4.0, 1e-5).reserve(RUN, steps=100)
    made.lease(10)
    made.give_back(3)
    made.lease(1)
    (found,) = account(ledger.history("data")).reservations
    assert (found.standing, found.last) == ("unfinished", ledger.history()[-1].at)


def test_a_word_for_every_state_of_a_budget(ledger):
    ledger.open("fresh", 1.0, 1e-5)
    ledger.open("open", 1.0, 1e-5).charge(PureDp(0.5))
    ledger.open("pure only", 8.0, 1e-5).at(1e-5).reserve(RUN, steps=100)
    ledger.open("spent", 1.0, 0.0).charge(PureDp(1.0))
    fixed = ledger.open("fixed", 4.0, 1e-5, composition="declared")
    fixed.declare([RUN])[0].lease(1)
    found = {one.state.name: one.standing for one in map(summarise, ledger.budgets())}
    assert found == {name: name for name in BUDGET_STATES}


def test_a_charge_that_was_taken_back_leaves_the_budget_fresh(ledger):
    ledger.open("data", 1.0, 1e-5).reserve(RUN, steps=100).end()
    assert account(ledger.history("data")).budget.standing == "fresh"


def test_a_reservation_without_a_label_has_its_events_name(ledger):
    budget = ledger.open("data", 4.0, 1e-5)
    budget.charge(PureDp(0.1))
    budget.charge(PureDp(0.1), label="mean age")
    names = [one.name for one in account(ledger.history("data")).reservations]
    assert names == ["PureDp", "mean age"]


@given(st.text())
def test_printable_text_is_one_line_without_controls(text):
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) == len(text)
    assert printable(shown) == shown
