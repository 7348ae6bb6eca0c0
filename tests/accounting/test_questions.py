"""Questions at the ends of their range, of one direction, of little-known events, of tiny noise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath
import pytest
from scipy.special import ndtr, ndtri

from tacit.accounting import (
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
    SampledWithReplacement,
    UnsupportedEvent,
    ZeroConcentrated,
    bounds,
    compare,
    delta,
    epsilon,
    from_json,
    group,
    profile,
    sample_rate,
    to_json,
)
from tacit.accounting.accountants import NAMES
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

# Each tells for sure whether a record was in the data, or in the sample.
LOUD: list[Event] = [
    Gaussian(1e-200),
    Repeated(PoissonSampled(0.1, Gaussian(1e-200)), 3),
    DiscreteGaussian(1e-200),
    PoissonSampled(0.1, Laplace(1e-200)),
]


def _answer(ask: Callable[[], float]) -> float | str:
    """What was answered, or the words of the refusal."""
    try:
        return ask()
    except UnsupportedEvent as refusal:
        return str(refusal)


@pytest.mark.parametrize("accountant", NAMES)
@pytest.mark.parametrize("event", LOUD, ids=repr)
def test_an_overflow_is_infinite_or_refused_in_one_line(event: Event, accountant: str) -> None:
    for ask, least in ((epsilon, 1e100), (delta, 0.09)):
        found = _answer(lambda ask=ask: ask(event, 1e-5, accountant))
        if isinstance(found, str):
            assert accountant in found
            assert "\n" not in found
        else:
            assert found >= least


@pytest.mark.parametrize("accountant", ["rdp", "moments", "zcdp", "gdp"])
def test_an_overflow_names_the_remedy(accountant: str) -> None:
    for ask in (epsilon, delta):
        with pytest.raises(UnsupportedEvent, match=r"1e-200.*its noise must be larger"):
            ask(Gaussian(1e-200), 1e-5, accountant)
    assert math.isfinite(epsilon(Gaussian(1e-100), 1e-5, accountant))


def test_a_comparison_has_a_row_for_what_overflows() -> None:
    rows = {row.accountant: row for row in compare(Gaussian(1e-200), 1e-5)}
    assert rows["exact"].epsilon == math.inf
    assert rows["rdp"].epsilon is None
    assert "floating-point" in rows["rdp"].note


def test_a_delta_of_0_or_1() -> None:
    assert epsilon(Gaussian(1.0), 0) == math.inf
    assert epsilon(Gaussian(1.0), 1) == 0.0
    assert bounds(Gaussian(1.0), 1).upper == 0.0
    assert epsilon(Repeated(Laplace(2.0), 7), 0) == pytest.approx(3.5, rel=1e-14)
    assert epsilon(Repeated(Laplace(2.0), 7), 0) >= 3.5
    found = bounds(PoissonSampled(0.1, Laplace(1.0)), 0)
    truth = math.log1p(0.1 * math.expm1(1.0))
    assert found.lower <= truth <= found.upper <= truth * (1 + 1e-12)
    assert found.two_sided
    assert epsilon(SampledWithReplacement(10, 2, Laplace(1.0)), 0, adjacency="replace-one") > 2.0
    assert epsilon(ApproxDp(1.0, 1e-6), 0) == math.inf
    assert epsilon(PureDp(0.7), 0) == 0.7
    assert epsilon(Composed(), 0) == 0.0


def test_one_way_of_add_remove() -> None:
    """By the two directions of one release, in closed form (mpmath would add nothing to Φ)."""
    run = PoissonSampled(0.3, Gaussian(1.0))
    ways = [delta(run, 0.2, adjacency=way) for way in ("remove-only", "add-only")]
    # P = 0.7·N(0) + 0.3·N(1) against N(0): the loss exceeds ε beyond x₀.
    cut = math.log((math.exp(0.2) - 0.7) / 0.3) + 0.5
    removed = 0.7 * ndtr(-cut) + 0.3 * ndtr(1 - cut) - math.exp(0.2) * ndtr(-cut)
    low = math.log((math.exp(-0.2) - 0.7) / 0.3) + 0.5
    added = ndtr(low) - math.exp(0.2) * (0.7 * ndtr(low) + 0.3 * ndtr(low - 1))
    assert ways == pytest.approx([float(removed), float(added)], rel=1e-10)
    assert delta(run, 0.2) == pytest.approx(max(ways), rel=1e-12)
    assert delta(run, 0.2, "rdp", "add-only") == delta(run, 0.2, "rdp")
    with pytest.raises(InvalidArgument, match="adjacency"):
        delta(run, 0.2, adjacency="add")  # type: ignore[arg-type]


def test_zero_concentrated_with_an_offset() -> None:
    event = ZeroConcentrated(0.1, xi=0.2)
    for accountant in ("rdp", "zcdp", "exact"):
        plain = epsilon(ZeroConcentrated(0.1), 1e-6, accountant)
        assert epsilon(event, 1e-6, accountant) == pytest.approx(plain + 0.2, abs=1e-9)
    pair = group(event, 2)
    assert isinstance(pair, ZeroConcentrated)
    assert (pair.rho, pair.xi) == (pytest.approx(0.4), pytest.approx(0.6))
    assert from_json(to_json(event)) == event
    assert from_json('{"kind": "ZeroConcentrated", "rho": 0.1}') == ZeroConcentrated(0.1)


def test_a_rate_is_calibrated() -> None:
    found = sample_rate(epsilon=1.0, delta=1e-5, noise_multiplier=1.5, steps=500)
    step = Gaussian(1.5)
    assert epsilon(Repeated(PoissonSampled(found, step), 500), 1e-5) <= 1.0
    assert epsilon(Repeated(PoissonSampled(1.0001 * found, step), 500), 1e-5) > 1.0
    assert sample_rate(epsilon=1.0, delta=1e-5, noise_multiplier=1e4, steps=500) == 1.0


def test_power_at_small_rates() -> None:
    for rate in (1e-6, 1e-9, 1e-12):
        assert profile(Gaussian(1.0)).power(rate) == pytest.approx(
            float(ndtr(ndtri(rate) + 1.0)), rel=1e-9
        )
    run = Composed(Gaussian(2.0), RandomizedResponse(1e-6))  # no closed form
    for rate in (1e-6, 1e-9):
        truth = float(ndtr(ndtri(rate) + 0.5))
        assert truth <= profile(run).power(rate) <= truth * (1 + 1e-3)


def test_a_sampled_composition() -> None:
    """A Gaussian beside what tells nothing is that Gaussian."""
    both = PoissonSampled(0.1, Composed(Gaussian(2.0), RandomizedResponse(1e-9)))
    alone = epsilon(Repeated(PoissonSampled(0.1, Gaussian(2.0)), 20), 1e-6)
    found = bounds(Repeated(both, 20), 1e-6)
    assert alone <= found.upper <= 1.001 * alone
    assert not found.two_sided
    laplace = PoissonSampled(0.1, Repeated(Laplace(5.0), 4))
    assert epsilon(laplace, 0) == pytest.approx(math.log1p(0.1 * math.expm1(0.8)), rel=1e-3)


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 9.9e-301])
def test_a_delta_below_all_digits_is_refused(tiny: float) -> None:
    for ask in (epsilon, bounds):
        with pytest.raises(
            InvalidArgument, match="0, which asks for the pure ε, or at least 1e-300"
        ):
            ask(Gaussian(1.0), tiny)
    with pytest.raises(InvalidArgument, match="got 1e-310"):
        profile(Gaussian(1.0)).epsilon(1e-310)
    assert bounds(Gaussian(1.0), 1e-300).width < 1e-9


@pytest.mark.parametrize(
    ("rate", "scale"),
    [(0.023721449084244763, 0.5868875930859334), (0.0015295315563874643, 0.1160058181280601)],
)
def test_the_pure_epsilon_of_a_sample_is_no_digit_below(rate: float, scale: float) -> None:
    with mpmath.workdps(40):
        loss = [1 / mpmath.mpf(scale), 2 / mpmath.mpf(scale)]
        truths = [mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(one)) for one in loss]
    for inner, truth in zip((Laplace(scale), DiscreteLaplace(scale, 2)), truths, strict=True):
        found = bounds(PoissonSampled(rate, inner), 0, "remove-only")
        assert found.lower <= truth <= found.upper <= truth * (1 + 1e-11)
