"""What sampling does to a Rényi curve: worst positions, and the theorems for a curve alone."""

from __future__ import annotations

import math
import random

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting.events import (
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    SampledWithoutReplacement,
)
from tacit.accounting.renyi.curves import linear, of_pair
from tacit.accounting.renyi.pairs import GaussianPair, two_gaussians
from tacit.accounting.renyi.profile import renyi_divergence
from tacit.accounting.renyi.sampling import (
    SampledRate,
    _log_even_differences,
    fixed_size_gaussian,
    poisson_general,
    three_laws_general,
)

Point = tuple[float, float]
GRID = np.linspace(-14.0, 22.0, 361)


def plane_divergence(rate: float, order: float, a: Point, b: Point, c: Point) -> float:
    """D_α((1-q)N(a) + qN(b) ‖ (1-q)N(a) + qN(c)) in the plane, by a trapezoidal rule."""
    x, y = np.meshgrid(GRID, GRID, indexing="ij")

    def bell(at: Point) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.exp(-0.5 * ((x - at[0]) ** 2 + (y - at[1]) ** 2)) / (2.0 * math.pi)

    first = (1 - rate) * bell(a) + rate * bell(b)
    second = (1 - rate) * bell(a) + rate * bell(c)
    step = GRID[1] - GRID[0]
    integrand = (first / second) ** order * second
    return math.log(float(integrand.sum()) * step * step) / (order - 1)


def somewhere(draw: random.Random, reach: float) -> Point:
    angle, radius = draw.uniform(0.0, 2.0 * math.pi), reach * math.sqrt(draw.random())
    return radius * math.cos(angle), radius * math.sin(angle)


@pytest.mark.parametrize("distance", [1.0, 1.5, 2.0])
def test_no_replaced_record_is_worse_than_the_collinear_one(distance: float) -> None:
    rate, sigma, order = 0.3, 0.9, 2.5
    event = PoissonSampled(rate, Gaussian(sigma, replace_distance=distance))
    bound = float(renyi_divergence(event, np.asarray([order]), "replace-one", "rdp")[0])
    draw = random.Random(5)
    worst = 0.0
    pairs = [((1.0, 0.0), (1.0 - distance, 0.0)), ((1.0 - distance, 0.0), (1.0, 0.0))]
    while len(pairs) < 14:
        u, v = somewhere(draw, 1.0), somewhere(draw, 1.0)
        if math.dist(u, v) <= distance:
            pairs.append((u, v))
    for u, v in pairs:
        b, c = (u[0] / sigma, u[1] / sigma), (v[0] / sigma, v[1] / sigma)
        worst = max(worst, plane_divergence(rate, order, (0.0, 0.0), b, c))
    assert worst <= bound * (1 + 1e-9)
    if distance == 2.0:  # there the pair is attained
        assert worst == pytest.approx(bound, rel=1e-6)
    assert worst > 0.7 * bound


def test_no_fixed_size_sample_is_worse_than_the_folded_pair() -> None:
    rate, shift, order = 0.3, 1.2, 2.5
    pair = GaussianPair(two_gaussians(rate, shift))
    folded = float(of_pair(pair, "folded", linear(math.inf))(np.asarray([order]))[0])
    event = SampledWithoutReplacement(10, 3, Gaussian(1.0 / shift, replace_distance=1.0))
    published = float(renyi_divergence(event, np.asarray([order]), "replace-one", "rdp")[0])
    draw = random.Random(6)
    worst, found = 0.0, 0
    while found < 14:
        b, c = somewhere(draw, shift), somewhere(draw, shift)
        if math.dist(b, c) <= shift:
            found += 1
            worst = max(worst, plane_divergence(rate, order, (0.0, 0.0), b, c))
    worst = max(worst, plane_divergence(rate, order, (0.0, 0.0), (shift, 0.0), (0.0, 0.0)))
    assert 0.7 * folded < worst <= folded * (1 + 1e-9)
    assert folded <= published


@pytest.mark.parametrize("event", [PureDp(0.8), Laplace(1.25)])
@pytest.mark.parametrize("sampler", ["poisson", "fixed"])
def test_replacing_in_a_sample_is_no_better_than_adding_and_amplifies(
    event: PureDp | Laplace, sampler: str
) -> None:
    orders = np.asarray([1.5, 4.0, 30.0])
    drawn = (
        PoissonSampled(0.1, event)
        if sampler == "poisson"
        else SampledWithoutReplacement(10, 1, event)
    )
    adding = renyi_divergence(PoissonSampled(0.1, event), orders, "add-remove", "rdp")
    replacing = renyi_divergence(drawn, orders, "replace-one", "rdp")
    whole = renyi_divergence(event, orders, "replace-one", "rdp")
    assert np.all(adding <= replacing)
    assert np.all(replacing < whole)


def test_positions() -> None:
    assert SampledRate(0.1, fixed_size=False, adjacency="add-remove").positions(2.0) == (1.0, 0.0)
    assert SampledRate(0.1, fixed_size=False, adjacency="replace-one").positions(1.5) == (1.0, -0.5)
    assert SampledRate(0.1, fixed_size=False, adjacency="replace-one").positions(0.5) == (1.0, 0.0)
    assert SampledRate(0.1, fixed_size=True, adjacency="add-remove").positions(1.5) == (1.5, 0.0)
    assert SampledRate(0.1, fixed_size=True, adjacency="zero-out").positions(0.5) == (1.0, 0.0)


# ---- the published subsampling theorems: their terms, and that none falls below the exact curve


def alternating_difference(shift: float, power: int) -> mp.mpf:
    with mp.workdps(300):
        s = mp.mpf(shift)
        return mp.fsum(
            (-1) ** (power - j) * mp.binomial(power, j) * mp.exp(j * (j - 1) * s * s / 2)
            for j in range(power + 1)
        )


@pytest.mark.parametrize("shift", [0.02, 0.25, 1.0, 3.5])
def test_even_differences_agree_with_the_alternating_sum(shift: float) -> None:
    found = _log_even_differences(shift, 64)
    for power in (2, 4, 10, 32, 64):
        truth = mp.log(alternating_difference(shift, power))
        assert found[power // 2] == pytest.approx(
            float(truth), abs=1e-11 * max(1.0, abs(float(truth)))
        )


def test_fixed_size_gaussian_adds_up_the_published_terms() -> None:
    rate, shift, order = 0.01, 0.5, 6
    total = mp.mpf(0)
    for j in range(2, order + 1):
        rest = mp.mpf(2) * mp.exp(j * (j - 1) * mp.mpf(shift) ** 2 / 2)
        if j == 2:
            factor = min(4 * mp.expm1(mp.mpf(shift) ** 2), rest)
        else:
            low, high = 2 * (j // 2), 2 * ((j + 1) // 2)
            product = alternating_difference(shift, low) * alternating_difference(shift, high)
            factor = min(4 * mp.sqrt(product), rest)
        total += mp.mpf(rate) ** j * mp.binomial(order, j) * factor
    truth = float(mp.log1p(total) / (order - 1))
    assert fixed_size_gaussian(rate, shift)(np.asarray([6.0]))[0] == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("rate", [1e-3, 0.05, 0.5])
@pytest.mark.parametrize("shift", [0.1, 0.5, 2.0])
def test_no_theorem_falls_below_the_exact_curve(rate: float, shift: float) -> None:
    orders = np.asarray([1.3, 2.0, 3.5, 8.0, 17.0, 40.0])
    pair = GaussianPair(two_gaussians(rate, shift))
    nothing = linear(math.inf)
    base = linear(0.5 * shift * shift)
    adding = of_pair(pair, "either", nothing)(orders)
    replacing = of_pair(pair, "folded", nothing)(orders)
    assert np.all(poisson_general(rate, base)(orders) >= adding * (1 - 1e-12))
    assert np.all(three_laws_general(rate, base)(orders) >= replacing)
    assert np.all(fixed_size_gaussian(rate, shift)(orders) >= replacing)
    assert np.all(
        fixed_size_gaussian(rate, shift)(orders) <= three_laws_general(rate, base)(orders)
    )


def test_between_whole_orders_the_scaled_curve_is_linear() -> None:
    curve = poisson_general(0.1, linear(0.3))
    low, middle, high = (
        k * d for k, d in zip((2, 2.25, 3), curve(np.asarray([3.0, 3.25, 4.0])), strict=True)
    )
    assert middle == pytest.approx(0.75 * low + 0.25 * high, rel=1e-13)


def test_an_unknown_order_of_the_base_makes_the_result_unknown() -> None:
    curve = poisson_general(0.1, linear(0.3, below=5.0))
    found = curve(np.asarray([4.0, 4.5, 6.0]))
    assert found[0] < 1.0
    assert math.isinf(found[1])
    assert math.isinf(found[2])


def test_a_sample_of_all_records_amplifies_nothing() -> None:
    event, orders = Exponential(0.5), np.asarray([2.0, 3.5, 17.0])
    found = renyi_divergence(SampledWithoutReplacement(12, 12, event), orders, "add-remove", "rdp")
    due = renyi_divergence(event, orders, "replace-one", "rdp")
    assert np.all(np.isfinite(found))
    assert np.all(found >= due * (1.0 - 1e-9))
