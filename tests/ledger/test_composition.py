from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.accounting import (
    ApproxDp,
    Composed,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    RenyiFilter,
    Repeated,
    SampledWithReplacement,
    delta,
    epsilon,
)
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.ledger import Release
from tacit.ledger.composition import within_limits

from .memory import InMemory

COMPOSITIONS = ("basic", "renyi", "declared")


def plan_for(epsilon, delta, **more):
    given = {"examples": 6000, "lot_size": 60, "steps": 300, "clip": 1.0} | more
    return tacit.Plan.for_budget(epsilon=epsilon, delta=delta, **given)


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize(("eps", "dlt"), [(0.3, 1e-7), (2.0, 1e-5), (8.0, 1e-4)])
def test_plan_for_a_budget_fits_it_fresh_and_only_once(composition, eps, dlt):
    budget = InMemory().open(eps, dlt, composition)
    plan = plan_for(eps, dlt)
    assert budget.affordable(plan)
    made = budget.reserve(plan, steps=plan.steps)
    assert made.epsilon == plan.epsilon(dlt) <= eps
    assert made.delta == dlt
    assert budget.spent().epsilon == pytest.approx(made.epsilon, rel=1e-12)
    assert not budget.affordable(plan)
    with pytest.raises(BudgetExceeded):
        budget.reserve(plan, steps=plan.steps)


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_what_ended_before_its_first_step_is_not_charged(composition):
    budget = InMemory().open(2.0, 1e-5, composition)
    plan = plan_for(2.0, 1e-5)
    budget.reserve(plan, steps=plan.steps).end()
    assert (budget.spent().epsilon, budget.spent().delta) == (0.0, 0.0)
    again = budget.reserve(plan, steps=plan.steps)
    again.lease(1)
    again.end()
    assert budget.spent().epsilon > 1.99
    assert not budget.affordable(plan)


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("event", [PureDp(0.4), Gaussian(11.0), ApproxDp(0.4, 4e-7)])
def test_what_is_reserved_bit_by_bit_is_refused_unless_there_is_room_for_all(composition, event):
    """The first count that has no room is the first that cannot be charged one by one."""
    budget = InMemory().open(1.0, 1e-5, composition)
    most = next(n for n in itertools.count(1) if not holds(budget, n, event)) - 1
    assert most >= 2
    assert budget.spent().epsilon == 0.0
    if composition == "declared":
        budget.declare([Release(event)] * most)
        return
    for _ in range(most):
        budget.reserve(Release(event))
    assert not budget.affordable(Release(event))


def holds(budget, count, event):
    try:
        budget.check_room([Release(event)] * count)
    except BudgetExceeded:
        return False
    return True


def test_room_is_asked_for_the_budgets_own_neighbours_and_unit():
    budget = InMemory().open(1.0, 1e-5, "basic")
    with pytest.raises(InvalidArgument, match="unit"):
        budget.check_room([Release(PureDp(0.1), "add-remove", "user")])


@settings(deadline=None)
@given(st.lists(st.floats(1e-4, 0.5), max_size=30))
def test_pure_releases_fill_a_basic_budget_to_the_last_bit_and_cost_no_delta(sizes):
    budget = InMemory().open(1.0, 1e-5)
    total = Fraction(0)
    for size in sizes:
        fits = total + Fraction(size) <= 1
        if fits:
            assert budget.charge(PureDp(size)).delta == 0.0
            total += Fraction(size)
        else:
            with pytest.raises(BudgetExceeded):
                budget.charge(PureDp(size))
    assert budget.state.totals.epsilon == total
    assert budget.state.totals.delta == 0
    assert Fraction(budget.spent().epsilon) >= total
    assert Fraction(budget.remaining().epsilon) <= 1 - total


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(1.0, 60.0), min_size=1, max_size=12))
def test_gaussians_in_a_basic_budget_are_charged_true_pairs_within_the_limits(sigmas):
    budget = InMemory().open(3.0, 1e-5)
    pairs = []
    for sigma in sigmas:
        try:
            made = budget.charge(Gaussian(sigma))
        except BudgetExceeded:
            continue
        pairs.append((made.epsilon, made.delta))
        assert delta(Gaussian(sigma), made.epsilon) <= made.delta * (1.0 + 1e-6)
    assert sum(Fraction(one) for one, _ in pairs) <= Fraction(3.0)
    assert sum(Fraction(one) for _, one in pairs) <= Fraction(1e-5)
    assert budget.state.totals.delta == sum(Fraction(one) for _, one in pairs)


def test_delta_is_halved_so_that_it_never_quite_runs_out():
    budget = InMemory().open(100.0, 1e-5)
    deltas = [budget.charge(Gaussian(40.0)).delta for _ in range(60)]
    assert deltas[0] == 5e-6
    assert all(later <= sooner / 1.9 for sooner, later in itertools.pairwise(deltas))
    assert deltas[-1] > 0.0
    assert budget.remaining().delta > 0.0


def test_release_with_a_delta_of_its_own_is_charged_that():
    budget = InMemory().open(100.0, 1e-5)
    for _ in range(99):
        made = budget.charge(ApproxDp(0.1, 1e-7))
        assert (made.epsilon, made.delta) == (0.1, 1e-7)
    assert not budget.affordable(Release(ApproxDp(0.1, 1.1e-7)))
    many = budget.charge(Repeated(PureDp(0.01), 3))
    assert (many.epsilon, many.delta) == (pytest.approx(0.03, rel=1e-15), 0.0)
    assert many.epsilon >= 0.03


def test_many_pure_releases_are_charged_as_a_trade_where_that_is_much_less():
    budget = InMemory().open(20.0, 1e-5)
    run = Repeated(PureDp(0.01), 1000)
    made = budget.charge(run)
    assert (made.epsilon, made.delta) == (epsilon(run, 5e-6), 5e-6)
    assert made.epsilon < 1.3
    pure = InMemory().open(20.0, 0.0).charge(run)
    assert (pure.epsilon, pure.delta) == (pytest.approx(10.0, rel=1e-14), 0.0)


def test_delta_of_a_charge_can_be_chosen():
    ledger = InMemory()
    budget = ledger.open(10.0, 1e-5)
    made = budget.at(1e-6).charge(Gaussian(4.0))
    assert (made.epsilon, made.delta) == (epsilon(Gaussian(4.0), 1e-6), 1e-6)
    assert budget.at(0.0).charge(Laplace(2.0)).epsilon == 0.5
    with pytest.raises(BudgetExceeded):
        budget.at(0.0).charge(Gaussian(100.0))
    with pytest.raises(BudgetExceeded):
        budget.at(9.5e-6).charge(Gaussian(100.0))
    with pytest.raises(InvalidArgument, match="one δ for all"):
        ledger.open(1.0, 1e-5, "renyi", name="other").at(1e-6)


def test_pure_budget_has_no_delta_and_takes_pure_releases_only():
    budget = InMemory().open(1.0, 0.0)
    assert budget.charge(Laplace(2.0)).epsilon == 0.5
    assert not budget.affordable(Release(Gaussian(1000.0)))
    for composition in ("renyi", "declared"):
        with pytest.raises(InvalidArgument, match="delta must be above 0"):
            InMemory().open(1.0, 0.0, composition)


def test_a_delta_too_small_to_be_shared_out_is_refused():
    """The shares of 5e-324 are 0: the filter took the logarithm of one, and crashed."""
    with pytest.raises(InvalidArgument, match="delta must be at least 1e-300 with composition="):
        InMemory().open(1.0, 5e-324, composition="renyi")
    least = InMemory().open(1.0, 1e-300, composition="renyi")
    least.charge(PureDp(0.5))
    assert least.spent().epsilon > 0.0


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.floats(5.0, 80.0).map(Gaussian)
        | st.floats(0.01, 0.3).map(PureDp)
        | st.just(ApproxDp(0.05, 3e-7)),
        max_size=25,
    )
)
def test_renyi_budget_grants_what_the_filter_grants(events):
    budget = InMemory().open(2.0, 1e-5, "renyi")
    kept = RenyiFilter(2.0, 1e-5, failure_delta=1e-6)
    assert budget.state.orders == kept.orders
    for event in events:
        fits = kept.affords(event)
        # On an empty budget an event may also be granted as its sole occupant.
        assert budget.affordable(Release(event)) in (fits, fits or not budget.state.totals.charges)
        if fits:
            budget.charge(event)
            kept = kept.after(event)
    assert [float(one) for one in budget.state.totals.divergences] == pytest.approx(
        list(kept.spending.divergences) if budget.state.totals.charges else [], rel=1e-12
    )
    assert within_limits(budget.state)


def test_renyi_budget_holds_many_more_small_releases_than_a_basic_one():
    def count(composition):
        budget = InMemory().open(2.0, 1e-5, composition)
        for number in itertools.count():
            try:
                budget.charge(Gaussian(30.0))
            except BudgetExceeded:
                return number
        raise AssertionError

    basic, renyi = count("basic"), count("renyi")
    assert renyi > 5 * basic > 0
    # The filter pays for being adaptive: it holds less than exact composition, but not far less.
    exact = max(n for n in range(1, 1000) if epsilon(Repeated(Gaussian(30.0), n), 1e-5) <= 2.0)
    assert 0.6 * exact < renyi <= exact


def test_sole_occupant_of_a_renyi_budget_shares_it_with_nobody():
    budget = InMemory().open(2.0, 1e-5, "renyi")
    event = SampledWithReplacement(1000, 1, PureDp(0.1))
    plan = plan_for(2.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        budget.charge(Gaussian(0.5))
    made = budget.reserve(plan, steps=plan.steps)
    made.lease(1)
    assert "to itself" in budget.spent().meaning
    assert budget.spent().share == 1.0
    for other in (PureDp(1e-9), Gaussian(1e6), event):
        assert not budget.affordable(Release(other))
    used = InMemory().open(2.0, 1e-5, "renyi")
    used.charge(Gaussian(1000.0))
    assert not used.affordable(plan)


def test_declared_plans_compose_exactly():
    budget = InMemory().open(2.0, 1e-5, "declared")
    plans = [
        Release(Repeated(PoissonSampled(0.01, Gaussian(1.5)), 400)),
        Release(Repeated(PoissonSampled(0.02, Gaussian(2.0)), 300)),
        Release(Gaussian(8.0)),
    ]
    made = budget.declare(plans, label="study")
    assert [one.steps for one in made] == [400, 300, 1]
    together = epsilon(Composed(*(one.event for one in plans)), 1e-5)
    assert budget.spent().epsilon == together
    assert together < sum(epsilon(one.event, 1e-5) for one in plans)
    assert together > max(epsilon(one.event, 1e-5) for one in plans)


def test_declared_plan_is_used_once_and_nothing_is_declared_after_a_release():
    budget = InMemory().open(2.0, 1e-5, "declared")
    one, other = (Release(Repeated(Gaussian(sigma), 50)) for sigma in (60.0, 70.0))
    first, _ = budget.declare([one, other])
    assert budget.reserve(one, steps=50, label="first").number == first.number
    with pytest.raises(BudgetExceeded, match="no unused declaration"):
        budget.reserve(one, steps=50)
    with pytest.raises(BudgetExceeded, match="no unused declaration"):
        budget.reserve(Release(Gaussian(1e6)))
    budget.declare([Release(Gaussian(50.0))])  # still before the first release
    first.lease(1)
    with pytest.raises(InvalidArgument, match="something was released already"):
        budget.declare([Release(Gaussian(1e6))])
    assert budget.reserve(other, steps=50).left == 50
    assert budget.charge(Gaussian(50.0)).granted == 1


def test_declared_plans_stay_charged_after_the_first_release():
    budget = InMemory().open(2.0, 1e-5, "declared")
    one, other = budget.declare([Release(Gaussian(10.0)), Release(Gaussian(4.0))])
    before = budget.spent().epsilon
    one.lease(1)
    other.end()
    assert budget.spent().epsilon == before


def test_plans_declared_together_must_fit_together():
    budget = InMemory().open(1.0, 1e-5, "declared")
    fitting = Release(Gaussian(5.0))
    assert epsilon(fitting.event, 1e-5) <= 1.0 < epsilon(Repeated(fitting.event, 2), 1e-5)
    with pytest.raises(BudgetExceeded, match="2 declared plans"):
        budget.declare([fitting, fitting])
    assert budget.spent().epsilon == 0.0
    for composition in ("basic", "renyi"):
        with pytest.raises(InvalidArgument, match="cannot be declared"):
            InMemory().open(1.0, 1e-5, composition).declare([fitting])


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_spending_says_which_figure_it_is_and_adds_up(composition):
    budget = InMemory().open(4.0, 1e-5, composition)
    fresh = budget.spent()
    assert (fresh.epsilon, fresh.share) == (0.0, 0.0)
    assert budget.remaining().epsilon == 4.0
    budget.charge(Gaussian(6.0))
    spent, left = budget.spent(), budget.remaining()
    assert 0.0 < spent.share < 1.0
    assert spent.share + left.share == pytest.approx(1.0)
    assert spent.epsilon + left.epsilon == pytest.approx(4.0)
    assert spent.meaning != left.meaning
    assert math.isfinite(spent.epsilon)
