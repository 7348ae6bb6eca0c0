"""Filters and odometers against an adversary who chooses every event from the past outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from tacit.accounting.accountants import rdp
from tacit.accounting.adaptive import RenyiFilter, RenyiOdometer
from tacit.accounting.events import (
    ApproxDp,
    Composed,
    Gaussian,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    Repeated,
)
from tacit.errors import BudgetExceeded, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

Transcript = tuple[float, float, float]  # its probability under both neighbours, and a reading


def play(
    budget: RenyiFilter, choose: Callable[[float, int], float], depth: int
) -> list[Transcript]:
    """All transcripts of randomised responses whose ε follows the loss so far, until refused."""
    finished: list[Transcript] = []

    def go(state: RenyiFilter, p: float, q: float, left: int) -> None:
        event = RandomizedResponse(choose(math.log(p / q), left))
        if left == 0 or not state.affords(event):
            finished.append((p, q, 0.0))
            return
        truth = event.probability
        assert truth is not None
        after = state.after(event)
        go(after, p * truth, q * (1 - truth), left - 1)
        go(after, p * (1 - truth), q * truth, left - 1)

    go(budget, 1.0, 1.0, depth)
    return finished


def hockey_stick(transcripts: list[Transcript], epsilon: float) -> float:
    return math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q, _ in transcripts)


def greedy(loss: float, left: int) -> float:
    """Press on where the loss is large already, be careful elsewhere."""
    del left
    return 0.9 if loss > 0.5 else 0.35


@pytest.mark.parametrize("orders", [(3.0,), (2.5, 3.0, 4.0)])
def test_a_filter_holds_its_budget_against_an_adaptive_adversary(orders: tuple[float, ...]) -> None:
    epsilon, delta = 2.0, 0.1
    granted = play(RenyiFilter(epsilon, delta, orders=orders), greedy, depth=10)
    assert math.fsum(p for p, _, _ in granted) == pytest.approx(1.0)
    assert len(granted) > 60
    assert hockey_stick(granted, epsilon) <= delta
    if len(orders) == 1:  # then the bound is nearly attained
        assert hockey_stick(granted, epsilon) > 0.6 * delta
    # The check has power: with twice the ε granted, the same adversary breaks the smaller promise.
    larger = play(RenyiFilter(2.0 * epsilon, delta, orders=orders), greedy, depth=10)
    assert hockey_stick(larger, epsilon) > delta


def test_an_odometer_reading_holds_wherever_the_adversary_stops() -> None:
    delta = 0.05
    finished: list[Transcript] = []

    def go(meter: RenyiOdometer, p: float, q: float, left: int) -> None:
        loss = math.log(p / q)
        if left == 0 or loss > 2.0:  # stop when it hurts most
            finished.append((p, q, meter.reading))
            return
        event = RandomizedResponse(greedy(loss, left))
        truth = event.probability
        assert truth is not None
        after = meter.after(event)
        go(after, p * truth, q * (1 - truth), left - 1)
        go(after, p * (1 - truth), q * truth, left - 1)

    go(RenyiOdometer(delta, orders=(2.0, 4.0)), 1.0, 1.0, 10)
    assert math.fsum(p for p, _, _ in finished) == pytest.approx(1.0)
    exceeded = math.fsum(max(0.0, p - math.exp(reading) * q) for p, q, reading in finished)
    assert exceeded <= delta
    # A third of the reading would not do.
    shrunk = math.fsum(max(0.0, p - math.exp(reading / 3.5) * q) for p, q, reading in finished)
    assert shrunk > delta


def test_one_order_alone_uses_all_of_delta() -> None:
    order, epsilon, delta = 9.0, 2.0, 1e-5
    budget = RenyiFilter(epsilon, delta, orders=(order,))
    overhead = math.log(1 - 1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
    assert budget.thresholds == pytest.approx((epsilon - overhead,))
    sigma = math.sqrt(order / (2.0 * (epsilon - overhead)))
    assert budget.affords(Gaussian(1.0001 * sigma))
    assert not budget.affords(Gaussian(0.9999 * sigma))


def test_orders_share_delta() -> None:
    alone = RenyiFilter(2.0, 1e-5, orders=(9.0,)).thresholds[0]
    shared = RenyiFilter(2.0, 4e-5, orders=(5.0, 7.0, 9.0, 12.0)).thresholds[2]
    assert shared == pytest.approx(alone)


def test_charges_add_up_and_are_never_granted_beyond_the_budget() -> None:
    step = PoissonSampled(0.01, Gaussian(4.0))
    budget = RenyiFilter(1.0, 1e-5)
    once = budget.after(Repeated(step, 4000))
    twice = once.after(Repeated(step, 3000))
    assert all(
        later <= earlier for earlier, later in zip(once.remaining, twice.remaining, strict=True)
    )
    assert twice.remaining == pytest.approx(budget.after(Repeated(step, 7000)).remaining)
    with pytest.raises(BudgetExceeded, match=r"epsilon=1\.0, delta=1e-05 does not hold Repeated"):
        twice.after(Repeated(step, 3000))
    assert not twice.affords(Repeated(step, 3000))
    # What was granted would have been within the budget had it been fixed in advance.
    assert rdp.epsilon(Repeated(step, 7000), 1e-5, "add-remove") < 1.0


def test_a_filter_is_nearly_as_good_as_composition_in_advance() -> None:
    for epsilon in (0.1, 1.0, 10.0):
        budget = RenyiFilter(epsilon, 1e-5)
        sigma = 1e-2
        while not budget.affords(Gaussian(sigma)):
            sigma *= 1.02
        assert 0.75 * epsilon < rdp.epsilon(Gaussian(sigma), 1e-5, "add-remove") <= epsilon


def test_a_large_pure_release_fits_by_the_highest_order() -> None:
    assert RenyiFilter(1.0, 1e-5).affords(PureDp(0.9))
    assert not RenyiFilter(1.0, 1e-5).affords(PureDp(1.1))


def test_failures_need_their_own_share() -> None:
    event = ApproxDp(0.1, 4e-7)
    assert not RenyiFilter(1.0, 1e-5).affords(event)
    budget = RenyiFilter(1.0, 1e-5, failure_delta=1e-6).after(event).after(event)
    assert not budget.affords(event)
    assert budget.affords(PureDp(0.1))
    cut = PoissonSampled(0.01, Gaussian(4.0), cap=640, population=50_000)
    assert RenyiFilter(1.0, 1e-5, failure_delta=1e-8).affords(cut)
    assert not RenyiFilter(1.0, 1e-5, failure_delta=1e-9).affords(cut)


def test_an_odometer_only_rises_and_stays_above_composition() -> None:
    step = PoissonSampled(0.01, Gaussian(4.0))
    meter = RenyiOdometer(1e-5)
    assert meter.reading == 0.0
    last = 0.0
    for count in (1, 10, 100, 1000, 10_000):
        reading = meter.after(Repeated(step, count)).reading
        assert reading >= last
        fixed = rdp.epsilon(Repeated(step, count), 1e-5, "add-remove")
        assert fixed < reading < 3.5 * fixed
        last = reading


def test_odometer_charges_add_up() -> None:
    meter = RenyiOdometer(1e-6)
    both = meter.after(Gaussian(3.0)).after(PureDp(0.5))
    assert both.reading == meter.after(Composed(Gaussian(3.0), PureDp(0.5))).reading
    with pytest.raises(
        BudgetExceeded, match=r"failure_delta=0\.0 does not hold the failures of Approx"
    ):
        meter.after(ApproxDp(0.1, 1e-9))
    assert RenyiOdometer(1e-6, failure_delta=1e-7).after(ApproxDp(0.1, 1e-9)).reading > 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon must be a positive"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must lie strictly between"),
        ({"epsilon": 1.0, "delta": 1e-5, "orders": (1.0,)}, "orders must all be above 1"),
        (
            {"epsilon": 0.1, "delta": 1e-5, "orders": (2.0,)},
            "orders must contain one that epsilon=0.1",
        ),
        (
            {"epsilon": 1.0, "delta": 1e-5, "failure_delta": 1e-5},
            "failure_delta must be below delta",
        ),
        ({"epsilon": 1.0, "delta": 1e-5, "adjacency": "swap"}, "adjacency must be one of"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        RenyiFilter(**arguments)  # type: ignore[arg-type]
