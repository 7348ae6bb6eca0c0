"""Bounds from rates against the issue's figures, mpmath and the laws that they obey."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import gaussian_profile
from tacit.auditing import Rates, clopper_pearson, gaussian_rates
from tacit.auditing.statistics.rates import epsilon_of_rates, lower_rate, upper_rate
from tacit.errors import InvalidArgument

counts = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def bound(tp: int, n_in: int, fp: int, n_out: int, delta: float = 0.0, at: float = 0.95) -> float:
    return clopper_pearson(Rates(tp=tp, n_in=n_in, fp=fp, n_out=n_out), delta, at).epsilon


@pytest.mark.parametrize(("trials", "epsilon"), [(100, 3.281), (1000, 5.601), (10_000, 7.905)])
def test_a_perfect_attack(trials: int, epsilon: float) -> None:
    assert bound(trials, trials, 0, trials) == pytest.approx(epsilon, abs=5e-4)


def test_half_of_the_members_at_one_percent() -> None:
    assert bound(500, 1000, 10, 1000, 1e-5) == pytest.approx(3.241995, abs=5e-7)


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (17, 1000), (999, 1000)])
@pytest.mark.parametrize("failure", [0.025, 5e-5])
def test_the_ends_have_the_chance_that_defines_them(hits: int, trials: int, failure: float) -> None:
    low, high = float(lower_rate(hits, trials, failure)), float(upper_rate(hits, trials, failure))
    assert low == 0.0 if hits == 0 else _tail(trials, low, hits) == pytest.approx(failure)
    assert (
        high == 1.0
        if hits == trials
        else 1 - _tail(trials, high, hits + 1) == pytest.approx(failure)
    )


def _tail(trials: int, rate: float, hits: int) -> float:
    with mp.workdps(40):
        p = mp.mpf(rate)
        return float(
            sum(mp.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(hits)) * -1
            + 1
        )


@settings(max_examples=60, deadline=None)
@given(counts, counts, st.sampled_from([0.0, 1e-5, 0.1]))
def test_laws(inside: tuple[int, int], outside: tuple[int, int], delta: float) -> None:
    (tp, n_in), (fp, n_out) = inside, outside
    found = bound(tp, n_in, fp, n_out, delta)
    assert 0.0 <= found < math.inf
    assert bound(tp, n_in, fp, n_out, delta, 0.9999) <= found  # more confidence, less said
    assert bound(tp, n_in, fp, n_out, min(1.0, delta + 0.05)) <= found
    assert tp == n_in or bound(tp + 1, n_in, fp, n_out, delta) >= found
    assert fp == n_out or bound(tp, n_in, fp + 1, n_out, delta) <= found
    mirrored = bound(n_out - fp, n_out, n_in - tp, n_in, delta)  # others called so, members not
    assert mirrored == pytest.approx(found, rel=1e-9, abs=1e-12)


def test_rates_that_say_nothing() -> None:
    assert bound(0, 10, 0, 10) == 0.0
    assert bound(10, 10, 10, 10) == 0.0
    assert bound(10, 10, 0, 10, 1.0) == 0.0
    assert float(epsilon_of_rates(np.array(0.0), np.array(0.0), 0.0)) == 0.0


def test_the_gaussian_bound_meets_the_gaussian_curve() -> None:
    found = gaussian_rates(Rates(tp=700, n_in=1000, fp=300, n_out=1000), 1e-5)
    tpr, fpr = float(lower_rate(700, 1000, 0.025)), float(upper_rate(300, 1000, 0.025))
    with mp.workdps(30):
        mu = mp.sqrt(2) * (mp.erfinv(2 * mp.mpf(tpr) - 1) - mp.erfinv(2 * mp.mpf(fpr) - 1))
    assert found.number("mu") == pytest.approx(float(mu), rel=1e-10)
    assert gaussian_profile.delta(float(mu), found.epsilon) == pytest.approx(1e-5, rel=1e-8)
    assert "Gaussian" in found.assumption


@pytest.mark.parametrize(
    "wrong", [{"tp": 11}, {"fp": -1}, {"n_in": 0}, {"tp": 1.5}, {"fp": 11, "n_out": 10}]
)
def test_impossible_rates_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Rates(**({"tp": 5, "n_in": 10, "fp": 5, "n_out": 10} | wrong))


def test_arguments_outside_their_range_are_refused() -> None:
    rates = Rates(tp=5, n_in=10, fp=1, n_out=10)
    with pytest.raises(InvalidArgument, match="delta"):
        clopper_pearson(rates, 1.5)
    with pytest.raises(InvalidArgument, match="confidence"):
        clopper_pearson(rates, 0.0, 1.0)
    with pytest.raises(InvalidArgument, match="delta"):
        gaussian_rates(rates, 0.0)  # a Gaussian has no ε there
