"""Discrete noise against sums of 40 digits that share no code with the accountant."""

from __future__ import annotations

import math
import time
from functools import lru_cache

import mpmath
import numpy as np
import pytest

from tacit.accounting import (
    Composed,
    DiscreteGaussian,
    RandomizedResponse,
    Repeated,
    SampledWithReplacement,
    bounds,
    calibrate,
    delta,
    epsilon,
)
from tacit.accounting.exact.discrete import DiscreteGaussianProfile, WideProfile

DIGITS = 40


@lru_cache
def _sums(sigma: float, count: int) -> tuple[tuple[int, mpmath.mpf], ...]:
    """The law of the sum of ``count`` discrete Gaussians, by convolution."""
    with mpmath.workdps(DIGITS):
        reach = math.ceil(15 * sigma) + 3
        weights = [mpmath.exp(-mpmath.mpf(x) ** 2 / (2 * mpmath.mpf(sigma) ** 2))
                   for x in range(-reach, reach + 1)]  # fmt: skip
        total = mpmath.fsum(weights)
        one = [weight / total for weight in weights]
        law = one
        for _ in range(count - 1):
            law = [
                mpmath.fsum(
                    law[i - j] * one[j]
                    for j in range(max(0, i - len(law) + 1), min(len(one), i + 1))
                )
                for i in range(len(law) + len(one) - 1)
            ]
        return tuple((x - count * reach, p) for x, p in enumerate(law))


def _true_delta(sigma: float, distance: int, count: int, at: float) -> mpmath.mpf:
    with mpmath.workdps(DIGITS):
        variance, level = mpmath.mpf(sigma) ** 2, mpmath.mpf(at)
        found = mpmath.mpf(0)
        for x, p in _sums(sigma, count):
            loss = (count * mpmath.mpf(distance) ** 2 - 2 * distance * x) / (2 * variance)
            if loss > level:
                found += p * (1 - mpmath.exp(level - loss))
        return found


@pytest.mark.parametrize(
    ("sigma", "distance", "count", "target"),
    [
        (0.3, 1, 1, 1e-3),
        (0.307, 1, 1, 1e-5),
        (0.5, 1, 20, 1e-9),
        (0.7, 2, 5, 1e-9),
        (0.9, 3, 2, 1e-7),
        (1.3, 1, 12, 1e-6),
        (1.99, 1, 6, 1e-5),
        (1.67, 1, 5, 1e-7),
        (2.0, 1, 7, 1e-6),
        (2.5, 3, 4, 1e-10),
        (4.0, 1, 1, 0.02),
        (11.0, 4, 1, 1e-12),
    ],
)
def test_the_ends_enclose_the_truth(sigma: float, distance: int, count: int, target: float) -> None:
    event = Repeated(DiscreteGaussian(sigma, distance), count)
    found = bounds(event, target)
    assert found.two_sided
    assert found.width <= 1e-8 * max(1.0, found.upper)
    assert _true_delta(sigma, distance, count, found.upper) <= target
    assert _true_delta(sigma, distance, count, found.lower) >= target
    assert float(_true_delta(sigma, distance, count, found.upper)) == pytest.approx(
        delta(event, found.upper), rel=1e-7
    )


def test_published_figures() -> None:
    assert epsilon(DiscreteGaussian(0.307), 1e-5) == pytest.approx(15.913, abs=5e-4)
    assert epsilon(DiscreteGaussian(0.3), 1e-3) == pytest.approx(16.365, abs=5e-4)
    assert epsilon(Repeated(DiscreteGaussian(0.5), 20), 1e-9) == pytest.approx(91.86, abs=5e-3)
    found = epsilon(Repeated(DiscreteGaussian(0.7, 2), 5), 1e-9)
    assert found == pytest.approx(57.10, abs=5e-3)


def test_every_sigma_has_its_digits_in_time() -> None:
    slowest = 0.0
    for sigma in np.geomspace(0.3, 1000.0, 40).tolist():
        for count, target in ((1, 1e-9), (30, 1e-5), (1000, 1e-7)):
            start = time.process_time()
            found = bounds(Repeated(DiscreteGaussian(sigma), count), target)
            slowest = max(slowest, time.process_time() - start)
            assert found.two_sided
            assert found.width <= 1e-8 * max(1.0, found.upper), (sigma, count, found)
    assert slowest < 0.5  # 0.05 on an idle machine


def test_calibration_is_monotone() -> None:
    wanted = [0.5, 1.0, 4.0, 12.0, 15.0, 15.9, 16.0, 20.0, 60.0]
    found = [calibrate(DiscreteGaussian, one, 1e-5) for one in wanted]
    assert found == sorted(found, reverse=True)
    assert all(
        epsilon(DiscreteGaussian(sigma), 1e-5) <= one
        for sigma, one in zip(found, wanted, strict=True)
    )


def test_a_wrong_sigma_is_rejected() -> None:
    right = float(_true_delta(0.5, 1, 4, 20.0))
    assert DiscreteGaussianProfile(1.0, 4).enclose(20.0).estimate != pytest.approx(right, rel=1e-3)
    assert delta(Repeated(DiscreteGaussian(0.5), 4), 20.0) == pytest.approx(right, rel=1e-9)


def test_several_losses_on_one_lattice() -> None:
    # Randomised response of ε and 3 categories, and of 2 categories at half of it: spacing ε.
    pair = Composed(RandomizedResponse(1.0, categories=3), RandomizedResponse(0.5))
    truth, p = 0.0, [(1.0 / (1.0 + 2.0 * math.exp(-1.0)), 1.0)]
    p += [(p[0][0] * math.exp(-1.0), 0.0), (p[0][0] * math.exp(-1.0), -1.0)]
    other = [(1.0 / (1.0 + math.exp(-0.5)), 0.5), (math.exp(-0.5) / (1.0 + math.exp(-0.5)), -0.5)]
    for one, first in p:
        for two, second in other:
            truth += one * two * max(0.0, -math.expm1(0.3 - first - second))
    assert delta(pair, 0.3) == pytest.approx(truth, rel=1e-12)


def test_losses_beyond_numbers_warn_nobody() -> None:
    event = SampledWithReplacement(38, 59, DiscreteGaussian(1.6579592534627383))
    found = bounds(event, delta=1e-7)
    assert 0.0 < delta(event, found.upper) <= 1e-7 * (1.0 + 1e-6)


@pytest.mark.parametrize(("sigma", "count"), [(400.0, 900), (900.0, 100), (3000.0, 1)])
def test_wide_noise_is_next_to_its_integral(sigma: float, count: int) -> None:
    total = math.sqrt(count) * sigma
    wide, summed = WideProfile(total, count), DiscreteGaussianProfile(total, count)
    mu = count / total
    for at in (0.01 * mu, mu, 4.0 * mu, 9.0 * mu):
        found, truth = wide.enclose(at), summed.enclose(at)
        assert abs(found.estimate - truth.estimate) <= found.errors.above + truth.errors.above
        assert found.errors.above < 1e-8
    coarse = WideProfile(4.0, 4).enclose(0.5)  # where it would not do
    assert abs(coarse.estimate - DiscreteGaussianProfile(4.0, 4).enclose(0.5).estimate) > 1e-6
    assert coarse.lower <= DiscreteGaussianProfile(4.0, 4).enclose(0.5).estimate <= coarse.upper


def test_very_many_releases_have_their_digits_at_once() -> None:
    for sigma, count in ((1000.0, 100_000), (2e4, 10_000), (0.3, 100_000), (0.5, 100_000)):
        start = time.process_time()
        found = bounds(Repeated(DiscreteGaussian(sigma), count), 1e-9)
        assert time.process_time() - start < 0.5  # 45 s once
        assert found.width <= 1e-8 * max(1.0, found.upper), (sigma, count, found)


@pytest.mark.parametrize(
    ("sigma", "distance"), [(30.0, 4), (30.25, 1), (50.0, 200), (60.0, 25), (40.0, 120)]
)
def test_the_corner_of_a_wide_sum_is_accounted_for(sigma: float, distance: int) -> None:
    profile = WideProfile(sigma, distance)
    mu, off, plainly = distance / sigma, 0.0, 0.0
    for at in (0.0, 0.3 * mu, 2.0 * mu + 0.0123, 0.5 * mu * mu + 3.21 * mu):
        truth, found = _true_delta(sigma, distance, 1, at), profile.enclose(at)
        assert found.lower <= truth <= found.upper
        assert found.errors.above < 0.2 * truth
        off += abs(found.estimate - truth)
        plainly += abs(profile._smooth.enclose(at).estimate - truth)
    assert off < 0.1 * plainly  # than without the term of the corner
