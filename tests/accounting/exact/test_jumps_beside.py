"""Rare sampling beside a Gaussian release without sampling, against integrals of another kind."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from tacit.accounting import Composed, Gaussian, PoissonSampled, Repeated, bounds, delta
from tacit.accounting.exact.jump_curves import Step
from tacit.accounting.exact.jump_search import delta_with_jumps, profile_with_jumps


def _one_step(rate: float, sigma: float, eps: mpmath.mpf, sign: int) -> mpmath.mpf:
    """δ of one sampled step, for any ε: of the record's mixture first, or of plain noise first."""
    rate, sigma = mpmath.mpf(rate), mpmath.mpf(sigma)
    excess = mpmath.exp(sign * eps) - 1 + rate
    if excess <= 0:  # all outputs count, or none
        return 1 - mpmath.exp(eps) if sign > 0 else mpmath.mpf(0)
    place = sigma**2 * mpmath.log(excess / rate) + mpmath.mpf(1) / 2
    plain = mpmath.ncdf(-sign * place / sigma)
    drawn = (1 - rate) * plain + rate * mpmath.ncdf(-sign * (place - 1) / sigma)
    first, second = (drawn, plain) if sign > 0 else (plain, drawn)
    return first - mpmath.exp(eps) * second


def _beside(rate: float, sigma: float, mu: float, eps: float) -> float:
    """δ of one step and a Gaussian: over the Gaussian's loss, which is N(μ²/2, μ²)."""
    with mpmath.workdps(30):
        middle, m = mpmath.mpf(mu) ** 2 / 2, mpmath.mpf(mu)

        def integrand(t: mpmath.mpf, sign: int) -> mpmath.mpf:
            return mpmath.npdf(t) * _one_step(rate, sigma, eps - middle - m * t, sign)

        found = []
        for sign in (1, -1):
            kink = (eps - middle - sign * mpmath.log(1 - mpmath.mpf(rate))) / m
            near = [kink + mpmath.mpf(0.1) ** k * one for k in range(9) for one in (-1, 1)]
            edges = sorted({*range(-13, 14, 2), kink, *(one for one in near if abs(one) < 13)})
            found.append(mpmath.quad(lambda t, sign=sign: integrand(t, sign), edges))
        return float(max(found))


@pytest.mark.parametrize(
    ("rate", "sigma", "mu", "eps"),
    [
        (1e-4, 0.6, 0.02, 0.05),
        pytest.param(1e-3, 0.8, 0.05, 0.1, marks=pytest.mark.slow),
        pytest.param(1e-5, 1.0, 0.1, 0.4, marks=pytest.mark.slow),
        pytest.param(0.01, 1.5, 0.3, 1.0, marks=pytest.mark.slow),
    ],
)
def test_one_step_beside_a_gaussian(rate: float, sigma: float, mu: float, eps: float) -> None:
    truth = _beside(rate, sigma, mu, eps)
    found = delta_with_jumps(Step(rate, sigma, 1, mu), eps)
    assert found is not None
    assert found.lower <= truth * (1.0 + 1e-13)
    assert found.upper >= truth * (1.0 - 1e-13)
    assert found.errors.below <= 1e-9 * truth
    event = Composed(PoissonSampled(rate, Gaussian(sigma)), Gaussian(1.0 / mu))
    assert truth * (1.0 - 1e-13) <= delta(event, epsilon=eps) <= truth * (1.0 + 1e-8)


def _along_a_line(step: Step, eps: float, tilt: float = 5.0) -> float:
    """δ by the inversion integral on Re z = tilt, in extended precision; the Gaussian ends it."""
    wide = np.longdouble
    y = np.arange(-12.0 / step.sigma - 2.0, 12.0 / step.sigma + 20.0, 0.06, dtype=wide)
    variance = wide(step.sigma) ** 2
    mass = np.exp(-0.5 * variance * (y + 0.5 / variance) ** 2) * wide(0.06)
    mass *= np.sqrt(variance / (2.0 * wide(np.pi)))
    mass /= mass.sum()
    loss = np.log1p(wide(step.rate) * np.expm1(y))
    z = tilt + 1j * np.arange(0.0, 13.0 / step.beside, 0.5, dtype=wide)
    grown = np.concatenate(
        [np.expm1(np.multiply.outer(some + 1.0, loss)) @ mass for some in np.array_split(z, 20)]
    )
    exponent = step.count * np.log1p(grown) + 0.5 * wide(step.beside) ** 2 * z * (z + 1.0) - z * eps
    terms = (np.exp(exponent) / (z * (z + 1.0))).real
    return float((terms.sum() - 0.5 * terms[0]) * wide(0.5) / wide(np.pi))


@pytest.mark.skipif(bool(np.finfo(np.longdouble).eps > 1e-18), reason="needs extended precision")
@pytest.mark.parametrize(
    ("step", "target"),
    [
        (Step(1e-5, 0.7, 10_000, 0.05), 1e-6),
        (Step(1e-4, 1.0, 1000, 0.05), 1e-7),
        (Step(1e-3, 0.8, 300, 0.1), 1e-6),
    ],
)
def test_a_rare_run_beside_a_gaussian(step: Step, target: float) -> None:
    run = Repeated(PoissonSampled(step.rate, Gaussian(step.sigma)), step.count)
    found = bounds(Composed(run, Gaussian(1.0 / step.beside)), delta=target)
    assert found.two_sided
    assert found.width <= 1e-9
    for end, sign in ((found.lower, 1.0), (found.upper, -1.0)):
        assert sign * (_along_a_line(step, end) / target - 1.0) >= -1e-9
    # The Gaussian alone, and the run alone, are less: an end that left one out would be far off.
    alone = profile_with_jumps(Step(step.rate, step.sigma, step.count), target)
    assert alone is not None
    assert found.lower > 1.001 * alone[1].upper


def test_several_gaussians_are_one() -> None:
    run = Repeated(PoissonSampled(1e-5, Gaussian(0.7)), 10_000)
    one = bounds(Composed(run, Gaussian(20.0)), delta=1e-6)
    four = bounds(
        Composed(run, Repeated(Gaussian(40.0), 2), Gaussian(math.sqrt(800.0))), delta=1e-6
    )
    assert one.lower <= four.upper <= one.upper + 1e-9
    assert four.lower <= one.upper


def test_a_bound_in_every_triangle() -> None:
    step, source = Step(1e-3, 1.0, 10, 0.3), np.random.default_rng(3)
    corners = source.uniform(0.0, 30.0, (200, 3)) + 1j * source.uniform(0.0, 60.0, (200, 3))
    most = step.log_beside_bound(corners).max(axis=1)
    for _ in range(50):
        inside = (corners * source.dirichlet(np.ones(3), 200)).sum(axis=1)
        assert (step.log_beside(inside).real <= most + 1e-9).all()
