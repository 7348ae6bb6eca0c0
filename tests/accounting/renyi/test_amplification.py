"""The published subsampling theorems: their terms, and that none falls below the exact curve."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting.renyi.curves import linear, of_pair
from tacit.accounting.renyi.pairs import GaussianPair, two_gaussians
from tacit.accounting.renyi.sampling import (
    _log_even_differences,
    fixed_size_gaussian,
    poisson_general,
    three_laws_general,
)


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
