"""Pairs of samples: replace-one up to distance 1 and many draws, against pairs of real outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest

from tacit.accounting import (
    Composed,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDp,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    bounds,
    delta,
    epsilon,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting import Event

    Floats = NDArray[np.float64]

GRID = 1e-3  # of the losses that the oracle adds up


def _gaussian_profile(mu: float, eps: float) -> mpmath.mpf:
    """δ of two Gaussians at distance mu (Balle & Wang 2018, Theorem 8)."""
    mpmath.mp.dps = 40
    below, above = mpmath.mpf(mu) / 2 - mpmath.mpf(eps) / mu, -mpmath.mpf(mu) / 2 - eps / mu
    return mpmath.ncdf(below) - mpmath.exp(eps) * mpmath.ncdf(above)


@pytest.mark.parametrize("distance", [0.25, 1.0])
@pytest.mark.parametrize("eps", [0.3, 2.5])
@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_one_step_is_the_rate_times_the_profile(distance: float, eps: float, rate: float) -> None:
    sigma = 2.0
    event = PoissonSampled(rate, Gaussian(sigma, replace_distance=distance))
    there = math.log1p(rate * math.expm1(eps))
    expected = float(rate * _gaussian_profile(1 / sigma, eps))
    found = delta(event, epsilon=there, adjacency="replace-one")
    assert expected <= found <= expected * 1.01


def _attained(sigma: float, rate: float, u: Floats, v: Floats, steps: int, eps: float) -> float:
    """No more than the δ of records that add u and v: losses are rounded down on the way."""
    side = np.linspace(-9.0, 9.0, 501) * sigma
    x = np.stack(np.meshgrid(side + 0.5, side, indexing="ij"), axis=-1)
    density = np.exp(-0.5 * (x**2).sum(-1) / sigma**2)
    density *= (side[1] - side[0]) ** 2 / (2 * math.pi * sigma**2)

    def mixture(shift: Floats) -> Floats:
        ratio = np.exp((x @ shift - 0.5 * shift @ shift) / sigma**2)
        found: Floats = density * (1 - rate + rate * ratio)
        return found

    p, q = mixture(u), mixture(v)
    cells = np.floor(np.log(p / q) / GRID).astype(np.int64).ravel()
    first = int(cells.min())
    one = np.bincount(cells - first, weights=p.ravel())
    total, start = np.ones(1), 0
    for _ in range(steps):
        total, start = np.convolve(total, one), start + first
    losses = GRID * (start + np.arange(len(total)))
    return float((total * -np.expm1(np.minimum(eps - losses, 0.0))).sum())


@pytest.mark.parametrize(
    ("u", "v", "distance"),
    [
        ((1.0, 0.0), (0.0, 0.0), 1.0),
        ((0.0, 0.0), (1.0, 0.0), 1.0),
        ((1.0, 0.0), (0.5, math.sqrt(0.75)), 1.0),
        ((1.0, 0.0), (0.8, 0.6), 0.64),
    ],
)
@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.5, 0.2, 1), (3.0, 0.5, 3)])
def test_no_real_pair_costs_more(
    u: tuple[float, float],
    v: tuple[float, float],
    distance: float,
    sigma: float,
    rate: float,
    steps: int,
) -> None:
    run = Repeated(PoissonSampled(rate, Gaussian(sigma, replace_distance=distance)), steps)
    for eps in (0.05, 0.15, 0.6):
        least = _attained(sigma, rate, np.array(u), np.array(v), steps, eps)
        assert least * (1 - 1e-9) <= delta(run, epsilon=eps, adjacency="replace-one")


def test_a_pair_at_distance_one_comes_close() -> None:
    """A record that is replaced by one that adds nothing costs what a removed one does."""
    run = Repeated(PoissonSampled(0.2, Gaussian(10.8, replace_distance=1.0)), 100)
    replaced = bounds(run, delta=1e-5, adjacency="replace-one")
    removed = bounds(run, delta=1e-5)
    assert not replaced.two_sided
    assert removed.lower <= replaced.upper <= 1.03 * removed.upper


@pytest.mark.parametrize("distance", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 10.0])
def test_never_above_the_pair_at_two(distance: float, sigma: float) -> None:
    def cost(apart: float) -> float:
        run = Repeated(PoissonSampled(0.01, Gaussian(sigma, replace_distance=apart)), 50)
        return epsilon(run, delta=1e-5, adjacency="replace-one")

    assert cost(distance) <= cost(2.0) * (1 + 1e-9)


@pytest.mark.parametrize("sigma", [0.3, 0.5])
def test_little_noise_in_a_sample_of_fixed_size(sigma: float) -> None:
    """Losses far below 0 of the base's pair used to be lost, or not to be numbers."""
    rate = 1e-3
    event = SampledWithoutReplacement(1000, 1, Gaussian(sigma, replace_distance=1.0))
    for eps in (1.0, 5.0, 9.0):
        there = math.log1p(rate * math.expm1(eps))
        expected = float(rate * _gaussian_profile(1 / sigma, eps))
        found = delta(event, epsilon=there, adjacency="replace-one")
        assert expected <= found <= expected * 1.01


@pytest.mark.parametrize("accountant", ["exact", "rdp", "basic"])
def test_a_sample_of_everybody_is_one_where_a_record_is_added(accountant: str) -> None:
    """Of n + 1 records, n are taken: somebody else is missing. By hand, n = 10 and Laplace(1).

    The last of 11 records may be left out (1 in 11) or stand for another one, at distance 2, so
    that the ratio of densities is up to (1 + 10·e²)/11.
    """
    truth = math.log((1.0 + 10.0 * math.exp(2.0)) / 11.0)
    event = SampledWithoutReplacement(10, 10, Laplace(1.0))
    found = epsilon(event, 1e-12, accountant=accountant, adjacency="add-remove")
    assert truth * (1.0 - 1e-9) <= found <= 2.0 + 1e-6
    for adjacency in ("replace-one", "zero-out"):  # nobody is missing in either data set
        found, alone = (
            epsilon(one, 1e-6, accountant=accountant, adjacency=adjacency)
            for one in (event, Laplace(1.0))
        )
        assert found == pytest.approx(alone, rel=1e-9)


def _drawn_profile(population: int, size: int, sigma: float, eps: float) -> mpmath.mpf:
    """δ of the mixture of K ~ Binomial(size, 1/population) shifts against none, the larger way."""
    mpmath.mp.dps = 60
    chance = mpmath.mpf(1) / population
    shares = {}
    for k in range(min(size, 60) + 1):
        shares[k] = mpmath.binomial(size, k) * chance**k * (1 - chance) ** (size - k)

    def excess(x: mpmath.mpf, sign: int) -> mpmath.mpf:
        ratio = sum(
            share * mpmath.exp((k * x - mpmath.mpf(k * k) / 2) / mpmath.mpf(sigma) ** 2)
            for k, share in shares.items()
        )
        return sign * mpmath.log(ratio) - eps

    found = mpmath.mpf(0)
    for sign in (1, -1):
        if sign < 0 and -mpmath.log(shares[0]) <= eps:
            continue
        low, high = mpmath.mpf(-400), mpmath.mpf(400)
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (low, middle) if sign * excess(middle, sign) > 0 else (middle, high)
        tail = sum(p * mpmath.ncdf(sign * (k - low) / sigma) for k, p in shares.items())
        plain = mpmath.ncdf(-sign * low / sigma)
        one, other = (tail, plain) if sign > 0 else (plain, tail)
        found = max(found, one - mpmath.exp(eps) * other)
    return found


@pytest.mark.parametrize("eps", [0.5, 500.0, 1000.0])
def test_draws_beyond_counting_are_not_left_out(eps: float) -> None:
    # The 38th draw of 60 is where masses fall below 1e-30; at ε = 1000 more draws are all of δ.
    event = SampledWithReplacement(20, 60, Gaussian(1.0, replace_distance=1.0))
    truth = float(_drawn_profile(20, 60, 1.0, eps))
    found = delta(event, epsilon=eps)
    assert truth <= found <= truth * (1.0 + 1e-9) + 1e-29


@pytest.mark.parametrize("eps", [0.1, 3.0])
def test_many_draws_have_their_digits(eps: float) -> None:
    event = SampledWithReplacement(2_000_000, 1_000_000, Gaussian(2.0, replace_distance=1.0))
    truth = float(_drawn_profile(2_000_000, 1_000_000, 2.0, eps))
    assert truth <= delta(event, epsilon=eps) <= truth * (1.0 + 1e-11)


def _pure_losses(losses: tuple[float, ...]) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """P's and Q's masses of all answers of randomised responses of these losses."""
    laws = [(mpmath.mpf(1), mpmath.mpf(1))]
    for loss in losses:
        truth = 1 / (1 + mpmath.exp(-mpmath.mpf(loss)))
        laws = [
            (p * a, q * b) for p, q in laws for a, b in ((truth, 1 - truth), (1 - truth, truth))
        ]
    return laws


def _hockey_stick(laws: list[tuple[mpmath.mpf, mpmath.mpf]], eps: float) -> mpmath.mpf:
    grown = mpmath.exp(mpmath.mpf(eps))
    return max(
        mpmath.fsum(max(0, p - grown * q) for p, q in laws),
        mpmath.fsum(max(0, q - grown * p) for p, q in laws),
    )


@pytest.mark.parametrize("losses", [(10.0, 12.0), (20.0, 20.0), (30.0, 31.0), (1e-3, 40.0)])
@pytest.mark.parametrize("rate", [1e-4, 0.5])
def test_a_sampled_composition_keeps_its_large_losses(
    rate: float, losses: tuple[float, ...]
) -> None:
    """Q's masses there are smaller than the rounding of its law: 25.5 was said where ε is 30.7."""
    mpmath.mp.dps = 120
    event = PoissonSampled(rate, Composed(*map(PureDp, losses)))
    laws = [(rate * p + (1 - mpmath.mpf(rate)) * q, q) for p, q in _pure_losses(losses)]
    largest = float(mpmath.log1p(rate * mpmath.expm1(sum(losses))))
    for share in (0.5, 0.97):
        truth = _hockey_stick(laws, share * largest)
        found = delta(event, share * largest)
        assert (
            truth * (1 - mpmath.mpf("1e-12")) <= found <= truth * (1 + mpmath.mpf("1e-6")) + 1e-10
        )
        assert epsilon(event, float(truth)) >= share * largest * (1 - 1e-12)


@pytest.mark.parametrize(
    "inner",
    [
        DiscreteLaplace(0.1, sensitivity=80),
        DiscreteLaplace(0.005, sensitivity=5),
        RandomizedResponse(710.0),
        RandomizedResponse(5000.0, categories=3),
        Laplace(0.001),
        PureDp(1000.0),
    ],
)
@pytest.mark.parametrize("rate", [1e-9, 0.3])
def test_a_sample_that_hides_nothing_does_not_void_what_is_beside_it(
    inner: Event, rate: float
) -> None:
    """P's mass at its smallest loss is no number; Q's there is nearly all of Q.

    Who is sampled is seen, and else the answer beside it is: δ = q + (1-q)·δ', but for e^-690.
    """
    beside = RandomizedResponse(3.0)
    truth = 1 / (1 + math.exp(-3.0))
    for eps in (0.0, 1.0, 2.5):
        answers = ((truth, 1 - truth), (1 - truth, truth))
        kept = [(1 - rate) * one - math.exp(eps) * other for one, other in answers]
        shown = rate + sum(max(0.0, one) for one in kept)
        assert shown * (1 - 1e-9) <= delta(Composed(PoissonSampled(rate, inner), beside), eps)
    assert bounds(PoissonSampled(rate, inner), 0.5 * rate).lower <= 5001.0
