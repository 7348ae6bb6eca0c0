"""The cancellation-free excess f_α(t) = t^α - 1 - α(t-1), and the three ways to read a pair."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from tacit.accounting.renyi.pairs import Nodes, log_moments

ORDERS = [1.0 + 1e-6, 1.01, 1.5, 2.0, 7.3, 100.0, 1e4]
LOG_RATIOS = [1e-9, 1e-5, 1e-3, 0.02, 0.3, 3.0, 40.0]


def pair(ell: float) -> Nodes:
    """Two outcomes with log ratios ±ell and E_Q[t] = 1."""
    likely = -np.log1p(np.exp(-ell))
    return Nodes(np.asarray([ell, -ell]), np.asarray([likely - ell, likely]))


def reference_excess(order: float, ell: float) -> mp.mpf:
    """ln E_Q[t^α] of that pair, in many digits."""
    with mp.workdps(60):
        a, e = mp.mpf(order), mp.mpf(ell)
        return mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ell", LOG_RATIOS)
def test_moments_keep_their_relative_precision(order: float, ell: float) -> None:
    found = log_moments(pair(ell), np.asarray([order]), "forward")[0]
    # The order itself is known to 1e-16, which its distance from 1 magnifies.
    assert found == pytest.approx(float(reference_excess(order, ell)), rel=1e-13)


def test_both_readings_agree_on_a_symmetric_pair() -> None:
    orders = np.asarray([1.5, 3.0])
    nodes = pair(0.7)
    assert log_moments(nodes, orders, "either") == pytest.approx(
        log_moments(nodes, orders, "forward")
    )


def test_either_direction_takes_the_larger() -> None:
    # t = 3 with probability 1/4 under Q, else 1/3: the reversed pair has t = 1/3 w.p. 3/4, else 3.
    weight = np.asarray([0.25, 0.75])
    nodes = Nodes(np.log([3.0, 1.0 / 3.0]), np.log(weight))
    order = 4.0
    forward = 0.25 * 3.0**order + 0.75 * 3.0**-order
    backward = 0.75 * (1 / 3.0) * 3.0**order + 0.25 * 3.0 * 3.0**-order
    assert forward == pytest.approx(backward)  # this one is symmetric
    skewed = Nodes(np.log([5.0, 0.5]), np.log([1 / 9, 8 / 9]))
    forward = 5.0**order / 9 + 8 / 9 * 0.5**order
    backward = 5.0 / 9 * 5.0**-order + 8 / 9 * 0.5 * 2.0**order
    found = log_moments(skewed, np.asarray([order]), "either")[0]
    assert found == pytest.approx(np.log(max(forward, backward)), rel=1e-13)
    assert log_moments(nodes, np.asarray([order]), "either")[0] == pytest.approx(
        np.log(0.25 * 81 + 0.75 / 81), rel=1e-13
    )


def test_folded_reading_sums_both_halves_above_one() -> None:
    order = 2.5
    nodes = Nodes(np.log([5.0, 0.5]), np.log([1 / 9, 8 / 9]))

    def f(beta: float, t: float) -> float:
        return t**beta - 1 - beta * (t - 1)

    truth = np.log1p((f(order, 5.0) + f(1 - order, 5.0)) / 9)
    assert log_moments(nodes, np.asarray([order]), "folded")[0] == pytest.approx(truth, rel=1e-13)


def test_no_overflow_at_huge_losses() -> None:
    found = log_moments(pair(1e7), np.asarray([2.0, 1e6]), "either")
    assert found == pytest.approx([1e7, (1e6 - 1) * 1e7], rel=1e-12)
