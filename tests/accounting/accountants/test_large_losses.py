"""Losses beyond the range of exp: a bound, perhaps an infinite one, or a refusal of one line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import pytest

from tacit.accounting import (
    ApproxDp,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SparseVector,
    bounds,
    delta,
    epsilon,
)
from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting import Adjacency, Event

Answer = TypeVar("Answer")
DELTA = 1e-5

# The event, and its ε at DELTA under add-remove to a millionth (None where no formula is at hand).
LOUD: list[tuple[Event, float | None]] = [
    (PureDp(800.0), 800.0),
    (PureDp(1e4), 1e4),
    (PureDp(1e300), 1e300),
    (Repeated(PureDp(1e4), 3), 3e4),
    (Composed(PureDp(1e4), PureDp(1.0)), None),
    (Composed(PureDp(1e4), Gaussian(1.0)), None),
    (ApproxDp(1e4, 1e-6), 1e4),
    (ApproxDp(1e4, 1e-3), math.inf),
    (ApproxDp(1e300, 1e-7), 1e300),
    (RandomizedResponse(1e4), 1e4),
    (RandomizedResponse(1e4, categories=5), 1e4),
    (RandomizedResponse(1e300), 1e300),
    (Laplace(1e-3), 1e3 + 2.0 * math.log1p(-DELTA)),
    (Laplace(1e-300), 1e300),
    (Repeated(Laplace(1e-4), 5), None),
    (DiscreteLaplace(1e-4), 1e4),
    (Gaussian(1e-8), 0.5e16 + 4.264890794e8),  # 1/2σ² + z/σ, with P(N > z) = DELTA
    (Gaussian(1e-300), math.inf),
    (DiscreteGaussian(1e-3), None),
    (DiscreteGaussian(1e-200), None),
    (PoissonSampled(0.1, PureDp(1e4)), 1e4 + math.log(0.1)),
    (PoissonSampled(0.1, ApproxDp(1e4, 1e-6)), 1e4 + math.log(0.1)),
    (PoissonSampled(0.1, RandomizedResponse(1e4)), 1e4 + math.log(0.1)),
    (PoissonSampled(0.1, Laplace(1e-4)), 1e4 + math.log(0.1)),
    (PoissonSampled(1e-7, PureDp(1e4)), None),
    (Repeated(PoissonSampled(0.1, PureDp(800.0)), 3), None),
    (Repeated(PoissonSampled(0.1, Gaussian(1e-300)), 3), None),
    (SampledWithoutReplacement(100, 10, PureDp(1e4, "replace-one")), 1e4 + math.log(0.1)),
    (SparseVector(1e-4, 1e-4), None),
]


def _or_refusal(ask: Callable[[], Answer]) -> Answer | str:
    try:
        return ask()
    except TacitError as refusal:
        return str(refusal)


@pytest.mark.parametrize(("event", "truth"), LOUD)
def test_the_interval_holds_the_truth(event: Event, truth: float | None) -> None:
    found = _or_refusal(lambda: bounds(event, DELTA))
    if isinstance(found, str):
        assert "\n" not in found
        return
    assert 0.0 <= found.lower <= found.upper
    assert found.upper == epsilon(event, DELTA)
    if truth is not None:
        assert found.lower <= truth * (1.0 + 1e-6)
        assert found.upper >= truth * (1.0 - 1e-6)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("event", [event for event, _ in LOUD])
@pytest.mark.parametrize("at", [1.0, 1e4])
def test_delta_is_a_probability_or_refused(event: Event, at: float, adjacency: Adjacency) -> None:
    found = _or_refusal(lambda: delta(event, at, adjacency=adjacency))
    if isinstance(found, str):
        assert "\n" not in found
    else:
        assert 0.0 <= found <= 1.0


def test_a_pure_loss_is_answered_to_the_last_digits() -> None:
    found = bounds(PureDp(1e4), DELTA)
    # δ(ε) = 1 - exp(ε - 10⁴) up to e^{-10⁴}.
    assert found.lower <= 1e4 + math.log1p(-DELTA) <= found.upper <= 1e4


@pytest.mark.parametrize("rate", [0.1, 1e-6])
def test_replacing_a_sampled_record_of_a_loud_release(rate: float) -> None:
    # (1-q + q·e^ε)/(1-q + q·e^-ε) is q·e^ε/(1-q) where e^ε is beyond floating-point numbers.
    event = PoissonSampled(rate, PureDp(1e4, "add-remove"))
    found = epsilon(event, 1e-12, adjacency="replace-one")
    assert found == pytest.approx(1e4 + math.log(rate / (1.0 - rate)), rel=1e-9)


@pytest.mark.parametrize("rate", [1.0, 0.1, 1e-6])
def test_a_loud_release_that_may_tell_who_was_drawn(rate: float) -> None:
    # q·(1 - e^(ε' - ε)) = δ
    event = PoissonSampled(rate, PureDp(1e4, "replace-one"))
    found = epsilon(event, 1e-12, adjacency="replace-one")
    assert found == pytest.approx(1e4 + math.log1p(-1e-12 / rate), rel=1e-11)
