"""Screening of Private-kNN: 50 digits by another formula, and what autodp reports."""

from __future__ import annotations

import itertools
import time

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import norm

from tacit.accounting import RenyiCurve, Repeated, epsilon
from tacit.errors import InvalidArgument
from tacit.transfer.rdp_cost import screening_rdp


def truth(k, threshold, sigma, order):
    """The largest of 2k divergences, as they are defined, of the coin that is thrown.

    Noise is rounded to 2^-24, so it reaches T - m from half a step below the next multiple on.
    """
    with mp.workdps(50):
        reached = (mp.ceil(mp.mpf(threshold) * 2**24) - mp.mpf("0.5")) / 2**24
        far = [(mp.mpf(m) - reached) / mp.mpf(sigma) for m in range(k + 1)]
        laws = [(mp.ncdf(one), mp.ncdf(-one)) for one in far]
        a = mp.mpf(order)
        found = [
            mp.log(p[0] ** a * q[0] ** (1 - a) + p[1] ** a * q[1] ** (1 - a)) / (a - 1)
            for lower, upper in itertools.pairwise(laws)
            for p, q in ((lower, upper), (upper, lower))
        ]
        return max(found)


@pytest.mark.parametrize(
    ("k", "threshold", "sigma"),
    [
        (60, 42.0, 17.0),
        (20, 12.0, 1.0),
        (20, 12.5, 0.3),
        (10, 7.3, 1.0),
        (5, 3.0, 1000.0),
        (30, 0.0, 5.5),
        (1, 1, 2),
    ],
)
def test_against_the_definition(k, threshold, sigma):
    orders = [1.01, 2.0, 8.0, 64.0, 128.0, 1000.5]
    for order, found in zip(orders, screening_rdp(k, threshold, sigma, orders), strict=True):
        exact = truth(k, threshold, sigma, order)
        assert found >= exact * (1 - mp.mpf(10) ** -15)
        assert found <= exact + mp.mpf(10) ** -10 * (exact + mp.mpf(10) ** -3)


def test_it_covers_every_pair_of_largest_counts():
    k, threshold, sigma, order = 25, 15.0, 4.0, 6.0
    bound = screening_rdp(k, threshold, sigma, [order])[0]
    for m in range(k + 1):
        for other in (m - 1, m + 1):
            if not 0 <= other <= k:
                continue
            p, q = norm.sf((threshold - m) / sigma), norm.sf((threshold - other) / sigma)
            moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
            assert np.log(moment) / (order - 1) <= bound


def published(k, threshold, sigma, order):
    """autodp 0.2.3.1, ``RDP_independent_noisy_screen``: the last of four values it finds."""
    values = []
    for adjacent in (+1, -1):
        for largest in (int(k / 10), threshold):
            p = norm.sf(threshold - largest, scale=sigma)
            q = norm.sf(threshold - largest + adjacent, scale=sigma)
            moment = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
            values.append(np.log(moment) / (order - 1))
    return values[-1]


def test_autodp_reports_a_fifth_less_than_the_truth():
    """k, T and σ are those of the published figure; the truth is where 290 of 300 agree."""
    found = screening_rdp(300, 210.0, 85.0, [128.0])[0]
    theirs = published(300, 210, 85, 128)
    assert found == pytest.approx(0.005882461990522, rel=1e-11)
    assert theirs == pytest.approx(0.004667258779371, rel=1e-9)
    assert theirs / found == pytest.approx(0.7934, abs=1e-4)


def test_between_two_thirds_and_all_of_the_gaussian():
    """Near α = 1 a bit tells 2/π of what its noisy count does; it never tells more."""
    orders = np.array([1.001, 2.0, 32.0, 256.0, 1e5])
    share = screening_rdp(300, 210.0, 85.0, orders) / (orders / (2 * 85.0**2))
    assert share[0] == pytest.approx(2 / np.pi, rel=1e-3)
    assert np.all(np.diff(share[1:4]) > 0)
    assert np.all(share <= 1.0)


def test_it_is_a_curve_that_accountants_take():
    orders = np.linspace(1.5, 200.0, 400)
    event = RenyiCurve(tuple(orders), tuple(screening_rdp(300, 210.0, 85.0, orders)))
    run = Repeated(event, 1000)
    assert 0 < epsilon(run, 1e-5, accountant="rdp") < 1.7


def test_a_threshold_nobody_can_reach_tells_next_to_nothing():
    assert screening_rdp(50, 2000.0, 7.0, [2.0])[0] < 1e-8


def test_quick():
    start = time.process_time()
    screening_rdp(1000, 700.0, 100.0, np.linspace(1.1, 500.0, 300))
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"sigma": 0.0}, {"threshold": -1.0}, {"orders": [1.0]}]
)
def test_refusals(wrong):
    given = {"k": 3, "threshold": 2.0, "sigma": 1.0, "orders": [2.0], **wrong}
    with pytest.raises(InvalidArgument):
        screening_rdp(**given)
