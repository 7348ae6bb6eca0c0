"""The Gaussian profile against 40 digits: μ from 1e-4 to 1e3, δ from 1e-300 to 0.5."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import mpmath as mp
import pytest

from tacit.accounting import gaussian_profile


def reference_delta(mu: float, epsilon: float) -> mp.mpf:
    with mp.workdps(40):
        low = mp.mpf(epsilon) / mp.mpf(mu) - mp.mpf(mu) / 2
        digits = 60 + int(max(mp.mpf(0), min(low, mp.mpf(40))) ** 2 / mp.mpf("4.6"))
    with mp.workdps(digits):
        low = mp.mpf(epsilon) / mp.mpf(mu) - mp.mpf(mu) / 2
        tail = mp.erfc(low / mp.sqrt(2)) / 2
        return +(tail - mp.exp(mp.mpf(epsilon)) * mp.erfc((low + mp.mpf(mu)) / mp.sqrt(2)) / 2)


def settings(count: int) -> list[tuple[float, float]]:
    draw = random.Random(20)
    exponents = [
        draw.uniform(-300.0, -0.31) if i % 2 else draw.uniform(-12.0, -0.31) for i in range(count)
    ]
    return [(10.0 ** draw.uniform(-4.0, 3.0), 10.0**exponent) for exponent in exponents]


@pytest.mark.parametrize(("mu", "target"), settings(120))
def test_profile_agrees_with_forty_digits(mu: float, target: float) -> None:
    epsilon = gaussian_profile.epsilon(mu, target)
    if epsilon == 0.0:
        assert reference_delta(mu, 0.0) <= target * (1 + 1e-14)
        return
    for at in (epsilon, 0.5 * epsilon):
        truth = reference_delta(mu, at)
        assert abs(mp.mpf(gaussian_profile.delta(mu, at)) / truth - 1) < 3e-14
        assert abs(mp.mpf(gaussian_profile.log_delta(mu, at)) - mp.log(truth)) < 1e-13 * (
            1 + abs(float(mp.log(truth)))
        )
    # The root: moving ε by 1e-12 (relative, plus the conditioning near 0) brackets the target.
    slack = 1e-12 * epsilon + 1e-14 * mu
    assert reference_delta(mu, epsilon + slack) < target
    assert reference_delta(mu, max(0.0, epsilon - slack)) > target * (1 - 1e-13)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    [(1.0, 1e-5, 3.7306316348), (0.5, 1e-6, 8.0576184807), (8.0, 1e-5, 0.6002290722)],
)
def test_analytic_calibration(epsilon: float, delta: float, sigma: float) -> None:
    assert gaussian_profile.epsilon(1.0 / sigma, delta) == pytest.approx(epsilon, abs=2e-10)


def test_at_zero_it_is_the_total_variation_distance() -> None:
    for mu in (1e-9, 1e-4, 0.3, 2.0, 20.0):
        truth = math.erf(mu / (2.0 * math.sqrt(2.0)))
        assert gaussian_profile.delta(mu, 0.0) == pytest.approx(truth, rel=1e-14)


def test_extremes_neither_overflow_nor_lie() -> None:
    assert gaussian_profile.delta(0.0, 1.0) == 0.0
    assert gaussian_profile.delta(1.0, math.inf) == 0.0
    assert gaussian_profile.log_delta(1e-30, 1.0) == pytest.approx(-5e59, rel=1e-12)
    assert gaussian_profile.epsilon(1.0, 0.0) == math.inf
    assert gaussian_profile.epsilon(1e160, 1e-5) == math.inf
    assert gaussian_profile.epsilon(1e-310, 1e-5) == 0.0
    assert gaussian_profile.delta(1e300, 1e7) == 1.0


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 30.0])
def test_delta_falls_with_epsilon_and_rises_with_mu(mu: float) -> None:
    grid = [mu * 0.1 * step for step in range(60)]
    logs = [gaussian_profile.log_delta(mu, epsilon) for epsilon in grid]
    assert all(later < earlier for earlier, later in pairwise(logs))
    assert all(
        gaussian_profile.log_delta(1.01 * mu, one) > log
        for one, log in zip(grid, logs, strict=True)
    )
