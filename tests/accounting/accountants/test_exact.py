"""The exact accountant where certified ends are not enough: huge losses, wide ends, tiny noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import pytest

from tacit.accounting import (
    AboveThreshold,
    ApproxDp,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    UnsupportedEvent,
    bounds,
    delta,
    epsilon,
    gaussian_profile,
    noise_multiplier,
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
    (DiscreteLaplace(1e-4), 1e4),
    (Gaussian(1e-8), 0.5e16 + 4.264890794e8),  # 1/2σ² + z/σ, with P(N > z) = DELTA
    (Gaussian(1e-300), math.inf),
    (DiscreteGaussian(1e-3), None),
    (DiscreteGaussian(1e-200), None),
    (PoissonSampled(0.1, PureDp(1e4)), 1e4 + math.log(0.1)),
    (PoissonSampled(0.1, Laplace(1e-6)), 1e6 + math.log(0.1)),
    (PoissonSampled(0.1, Laplace(1e-200)), 1e200),
    (PoissonSampled(0.1, ApproxDp(1e4, 1e-6)), 1e4 + math.log(0.1)),
    (PoissonSampled(0.1, RandomizedResponse(1e4)), 1e4 + math.log(0.1)),
    (PoissonSampled(1e-7, PureDp(1e4)), None),
    (Repeated(PoissonSampled(0.1, PureDp(800.0)), 3), None),
    (Repeated(PoissonSampled(0.1, Gaussian(1e-300)), 3), None),
    (SampledWithoutReplacement(100, 10, PureDp(1e4, "replace-one")), 1e4 + math.log(0.1)),
    (AboveThreshold(1e-4, 1e-4), None),
]
SLOW: list[tuple[Event, float | None]] = [
    (Repeated(Laplace(1e-4), 5), None),
    (PoissonSampled(0.1, Laplace(1e-4)), 1e4 + math.log(0.1)),
]


def _or_refusal(ask: Callable[[], Answer]) -> Answer | str:
    try:
        return ask()
    except TacitError as refusal:
        return str(refusal)


@pytest.mark.parametrize(
    ("event", "truth"), [*LOUD, *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW)]
)
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
@pytest.mark.parametrize(
    "event",
    [
        *(event for event, _ in LOUD),
        *(pytest.param(event, marks=pytest.mark.slow) for event, _ in SLOW),
    ],
)
@pytest.mark.parametrize("at", [1.0, pytest.param(1e4, marks=pytest.mark.slow)])
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


@pytest.mark.parametrize("loss", [1e-12, 1e-9, 1e-7, 1e-5, 1e-3])
@pytest.mark.parametrize("least", [1e-300, 1e-30, 1e-18])
def test_a_small_pure_loss_is_not_below_itself(loss: float, least: float) -> None:
    """The difference of two logarithms is off by 1e-16, which is a lot of a loss of 1e-12."""
    assert epsilon(PureDp(loss), least) >= loss * (1.0 - 2.0 * least / loss)
    assert epsilon(Composed(PureDp(loss), PureDp(loss / 2)), 1e-300) >= 1.5 * loss * (1.0 - 1e-15)
    halved = math.log1p(0.5 * math.expm1(loss))
    assert epsilon(PoissonSampled(0.5, PureDp(loss)), 0.0) >= halved * (1.0 - 1e-15)


def test_a_larger_delta_never_costs_more_next_to_an_atom() -> None:
    """The tilt of a δ next to an atom has no digits there: 34.9 was said at 1e-3, 8.7 at 1e-4."""
    drawn = SampledWithReplacement(100, 2, Gaussian(0.564, replace_distance=1.0))
    event = Composed(drawn, DiscreteLaplace(0.3, sensitivity=2, replace_distance=1.0))
    found = [bounds(event, least, "replace-one") for least in (1e-4, 1e-3, 0.2)]
    assert found[0].upper > found[1].upper > found[2].upper
    for one, room in zip(found[1:], (1.1, 1.001), strict=True):
        assert one.lower <= one.upper <= room * one.lower


def test_a_delta_next_to_the_largest_loss_is_answered() -> None:
    """No smoothing is little enough there: its logarithm used to be taken of 0."""
    loud = Repeated(DiscreteLaplace(0.005, sensitivity=5), 2)
    found = epsilon(Composed(loud, PoissonSampled(1e-12, PureDp(1.0))), 1e-100)
    assert found == pytest.approx(2000.0, rel=1e-12)


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


def test_noise_without_a_square_inside_a_sample_is_answered() -> None:
    """Merging it with the other noise used to divide by σ² = 0."""
    once = PoissonSampled(0.1, Repeated(Gaussian(1e-200), 2))
    assert epsilon(once, 1e-5) == epsilon(Repeated(once, 2), 1e-5) == math.inf


# ---- where the certificate is wide, the least bound of any theorem counts, and the type says so


OTHERS = ("rdp", "zcdp", "advanced", "basic")


def run(rate: float, sigma: float, steps: int) -> Event:
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


def least_of_others(event: Event, delta: float) -> float:
    found = []
    for name in OTHERS:
        try:
            found.append(epsilon(event, delta, name))
        except UnsupportedEvent:
            continue
    return min(found)


# The truths of discrete noise are sums of 40 digits over the integers.
WIDE = [
    (DiscreteGaussian(0.3), 1e-3, 16.365),
    (Repeated(DiscreteGaussian(0.5), 20), 1e-9, 91.86),
    (Repeated(DiscreteGaussian(0.7, sensitivity=2), 5), 1e-9, 57.10),
    (run(1e-6, 2.0, 10**6), 1e-10, 0.002541),
]


@pytest.mark.parametrize(("event", "delta", "truth"), WIDE)
def test_no_other_theorem_says_less(event: Event, delta: float, truth: float) -> None:
    found = bounds(event, delta)
    assert truth * (1 - 1e-3) <= found.upper <= least_of_others(event, delta)
    assert found.lower <= truth * (1 + 1e-3)
    assert epsilon(event, delta) <= found.upper * (1 + 1e-9)


@pytest.mark.parametrize(("event", "delta", "truth"), WIDE)
def test_a_lower_end_of_zero_is_no_end(event: Event, delta: float, truth: float) -> None:
    found = bounds(event, delta)
    assert found.two_sided == (found.lower > 0.0)
    assert found.upper > truth * (1 - 1e-3)


def test_what_no_neighbours_attain_is_asked_elsewhere_too() -> None:
    event = Repeated(PoissonSampled(0.01, Laplace(2.0)), 1000)
    found = bounds(event, 1e-6, "replace-one")
    assert not found.two_sided
    assert found.upper <= epsilon(event, 1e-6, "rdp", "replace-one")


@pytest.mark.slow
def test_more_steps_never_cost_less() -> None:
    found = [epsilon(run(1e-6, 1.0, steps), 1e-10) for steps in (100, 1000, 10_000)]
    assert found == sorted(found)


@pytest.mark.slow
def test_no_other_accountant_asks_for_less_noise() -> None:
    asked = {"epsilon": 0.2, "delta": 1e-8, "sample_rate": 1e-4, "steps": 10_000}
    least = noise_multiplier(**asked)
    assert all(least <= noise_multiplier(**asked, accountant=name) for name in ("rdp", "advanced"))


# ---- noise that hides next to nothing still gets an answer, and a bound: a plan may have any σ > 0


@pytest.mark.parametrize("steps", [1, 10, 10_000])
@pytest.mark.parametrize("sigma", [0.0349, 0.02, 0.01, 1e-3, 1e-6])
def test_tiny_noise_is_bounded_by_the_run_without_sampling(sigma: float, steps: int) -> None:
    run = Repeated(PoissonSampled(0.01, Gaussian(sigma)), steps)
    found = bounds(run, 1e-5)
    assert found.upper <= epsilon(Repeated(Gaussian(sigma), steps), 1e-5)
    assert not found.two_sided
    # One step at least is seen with probability 0.01 > δ, and by δ₁(ε) = δ/q, up to ln q, at
    # this loss; more of them only add to it.
    assert math.isfinite(found.upper)
    seen = gaussian_profile.epsilon(1.0 / sigma, 1e-5 / 0.01)
    assert found.upper >= (seen + math.log(0.01)) * (1 - 1e-9)


def test_less_noise_never_costs_less() -> None:
    answers = [
        epsilon(Repeated(PoissonSampled(0.01, Gaussian(sigma)), 100), 1e-5)
        for sigma in (0.06, 0.036, 0.035, 0.0349, 0.03, 0.01)
    ]
    assert answers == sorted(answers)


def test_other_parts_of_a_run_keep_their_sampling() -> None:
    ordinary = Repeated(PoissonSampled(0.01, Gaussian(2.0)), 100)
    tiny = PoissonSampled(0.01, Gaussian(0.01))
    both = epsilon(Composed(ordinary, tiny), 1e-5)
    assert both <= epsilon(Composed(ordinary, Gaussian(0.01)), 1e-5)
    assert both > epsilon(ordinary, 1e-5)
    assert both < epsilon(Composed(Repeated(Gaussian(2.0), 100), Gaussian(0.01)), 1e-5)


def test_delta_is_bounded_too() -> None:
    run = PoissonSampled(0.5, Gaussian(0.03))
    assert 0.0 < delta(run, 500.0) <= 1.0
    # Seen with probability ½, it is worth ½·δ₁ at the loss that sampling turns into 500.
    least = 0.5 * delta(Gaussian(0.03), 500.0 + math.log(2.0))
    assert least * (1 - 1e-9) <= delta(run, 500.0) <= delta(Gaussian(0.03), 500.0)


@pytest.mark.parametrize("cutoff", [1, 3])
def test_a_sparse_vector_is_not_called_the_worst_of_its_class(cutoff: int) -> None:
    """Its Rényi curve proves less than its pure loss: that loss's curve is no lower end."""
    event = Composed(AboveThreshold(2.0, 4.0, cutoff=cutoff), ApproxDp(0.1, 1e-7))
    found = bounds(event, 1e-5)
    assert not found.two_sided
    assert found.lower <= epsilon(event, 1e-5) <= found.upper
