from __future__ import annotations

import pytest

import tacit
from tacit.accounting import Gaussian, PureDp
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.ledger import Release

from .memory import InMemory


def test_refusal_names_the_budget_what_was_asked_what_is_left_and_the_remedy():
    budget = InMemory().open(1.0, 1e-5)
    budget.charge(PureDp(0.75))
    with pytest.raises(BudgetExceeded) as refusal:
        budget.charge(PureDp(0.5))
    text = str(refusal.value)
    for part in ("'data'", "PureDp with epsilon = 0.5", "epsilon=0.25", "amend"):
        assert part in text
    assert "\n" not in text


def test_adjacency_and_unit_must_be_those_of_the_budget():
    budget = InMemory().open(1.0, 1e-5, adjacency="replace-one", unit="user")
    with pytest.raises(InvalidArgument, match="adjacency must be that of the budget 'data'"):
        budget.reserve(Release(Gaussian(9.0), "add-remove", "user"))
    with pytest.raises(InvalidArgument, match="unit must be that of the budget 'data'"):
        budget.affordable(Release(Gaussian(9.0), "replace-one", "example"))
    made = budget.charge(Gaussian(9.0))
    twice = tacit.accounting.epsilon(Gaussian(9.0), made.delta, adjacency="replace-one")
    assert made.epsilon == twice > tacit.accounting.epsilon(Gaussian(9.0), made.delta)


def test_reservation_keeps_label_and_detail():
    ledger = InMemory()
    budget = ledger.open(1.0, 1e-5)
    plan = tacit.Plan(examples=100, lot_size=10, steps=5, noise_multiplier=9.0, clip=1.0)
    made = budget.reserve(plan, steps=5, label="ridge", detail=plan.as_dict())
    assert made.state.label == "ridge"
    assert tacit.Plan.from_dict(made.state.detail) == plan
    with pytest.raises(InvalidArgument, match="detail must be in JSON's types"):
        budget.reserve(plan, detail={"model": object()})
    for detail in ({"model": "x" * 2_000_001}, ["model"]):
        with pytest.raises(InvalidArgument, match="detail must be an object of up to"):
            budget.reserve(plan, detail=detail)
    with pytest.raises(InvalidArgument, match="label must be one line"):
        budget.reserve(plan, label="two\nlines")


def test_steps_cannot_be_more_than_the_event_pays_for():
    budget = InMemory().open(1.0, 1e-5)
    plan = tacit.Plan(examples=100, lot_size=10, steps=5, noise_multiplier=9.0, clip=1.0)
    with pytest.raises(InvalidArgument, match="at most the 5 repetitions"):
        budget.reserve(plan, steps=6)
    assert budget.reserve(plan, steps=5).left == 5


def test_amendment_is_recorded_with_its_reason():
    ledger = InMemory()
    budget = ledger.open(1.0, 1e-5)
    budget.charge(PureDp(0.9))
    assert budget.amend(epsilon=2.0, delta=1e-6, reason=" board of 3 May ") is budget
    assert (budget.epsilon, budget.delta) == (2.0, 1e-6)
    assert ledger.entries[-1].data == {"epsilon": 2.0, "delta": 1e-6, "reason": "board of 3 May"}
    budget.charge(PureDp(1.1))
    for reason in ("", "  ", None):
        with pytest.raises(InvalidArgument, match="reason must be"):
            budget.amend(epsilon=3.0, reason=reason)


@pytest.mark.parametrize("composition", ["basic", "renyi", "declared"])
def test_limits_cannot_be_amended_below_what_is_charged(composition):
    budget = InMemory().open(4.0, 1e-5, composition)
    plan = tacit.Plan.for_budget(
        epsilon=4.0, delta=1e-5, examples=900, lot_size=30, steps=90, clip=1.0
    )
    budget.reserve(plan, steps=90)
    for limits in ({"epsilon": 3.9}, {"delta": 9e-6}):
        with pytest.raises(BudgetExceeded, match="cannot be amended"):
            budget.amend(**limits, reason="less")
    budget.amend(epsilon=4.5, reason="more")
    assert budget.epsilon == 4.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", 1.0, 1e-5), "name must be"),
        (("a\nb", 1.0, 1e-5), "name must be"),
        (("x" * 201, 1.0, 1e-5), "name must be"),
        (("x", 0.0, 1e-5), "epsilon must be"),
        (("x", float("inf"), 1e-5), "epsilon must be"),
        (("x", 1e7, 1e-5), "epsilon must be at most"),
        (("x", 1.0, 1.0), "delta must be below 1"),
        (("x", 1.0, -1e-5), "delta must be"),
        (("x", 1.0, 1e-5, "pupil"), "unit must be"),
        (("x", 1.0, 1e-5, "user", "near"), "adjacency must be"),
        (("x", 1.0, 1e-5, "user", "zero-out", "magic"), "composition must be"),
    ],
)
def test_opening_refuses_what_makes_no_budget(arguments, words):
    name, eps, dlt, *more = arguments
    unit, adjacency, composition = [*more, *("example", "add-remove", "basic")[len(more) :]]
    with pytest.raises(InvalidArgument, match=words):
        InMemory().open(eps, dlt, composition, name=name, adjacency=adjacency, unit=unit)


def test_reservation_is_found_again_by_its_number_and_only_by_that():
    ledger = InMemory()
    budget = ledger.open(1.0, 1e-5)
    made = budget.reserve(Release(PureDp(0.1)), steps=3)
    made.lease(1)
    assert budget.reservation(made.number).left == 2
    other = ledger.open(1.0, 1e-5, name="other")
    for wrong in (made.number + 1, 0):
        with pytest.raises(InvalidArgument, match="number must be that of a reservation"):
            budget.reservation(wrong)
    with pytest.raises(InvalidArgument, match="of the budget 'other'"):
        other.reservation(made.number)
