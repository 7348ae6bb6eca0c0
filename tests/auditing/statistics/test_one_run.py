"""One run against the issue's figures and a sum by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.accounting import Gaussian, Laplace, PureDp, profile
from tacit.auditing import (
    Guesses,
    one_run,
    one_run_curve_p_value,
    one_run_family,
    one_run_gaussian,
    one_run_p_value,
)
from tacit.auditing.statistics.one_run import refutes_curve
from tacit.auditing.statistics.tradeoffs import PairsTradeOff
from tacit.errors import InvalidArgument

# ---- One run against the issue's figures and a sum by hand

ISSUE = [
    (1000, 1000, 1000, 5.7823),
    (1000, 100, 100, 3.4654),
    (1000, 100, 95, 2.1652),
    (1000, 1000, 900, 2.0206),
    (5000, 500, 490, 3.3357),
]
guesses = st.integers(1, 60).flatmap(
    lambda made: st.builds(
        lambda canaries, right: Guesses(canaries=made + canaries, made=made, right=right),
        st.integers(0, 60),
        st.integers(0, made),
    )
)


@pytest.mark.parametrize(("canaries", "made", "right", "epsilon"), ISSUE)
def test_the_figures_of_the_issue(canaries: int, made: int, right: int, epsilon: float) -> None:
    found = one_run(Guesses(canaries=canaries, made=made, right=right), 1e-5)
    assert found.epsilon == pytest.approx(epsilon, abs=5.1e-5)
    assert found.number("right") == right


@settings(max_examples=60, deadline=None)
@given(guesses, st.floats(0.0, 5.0), st.sampled_from([0.0, 1e-5, 1e-2]))
def test_the_p_value_is_the_sum_by_hand(found: Guesses, epsilon: float, delta: float) -> None:
    p = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    below = binom.cdf(found.right - 1, found.made, p)
    worst = max(
        (
            (below - binom.cdf(found.right - i - 1, found.made, p)) / i
            for i in range(1, found.right + 1)
        ),
        default=0.0,
    )
    truth = min(1.0, 1.0 - below + 2.0 * found.canaries * delta * worst)
    assert one_run_p_value(found, epsilon, delta) == pytest.approx(truth, rel=1e-7, abs=1e-13)


@settings(max_examples=60, deadline=None)
@given(guesses, st.sampled_from([0.0, 1e-4]))
def test_laws(found: Guesses, delta: float) -> None:
    epsilon = one_run(found, delta).epsilon
    assert one_run(found, delta + 1e-4).epsilon <= epsilon + 1e-8
    assert one_run(found, delta, 0.999).epsilon <= epsilon + 1e-8
    if found.right < found.made:
        more = Guesses(canaries=found.canaries, made=found.made, right=found.right + 1)
        assert one_run(more, delta).epsilon >= epsilon - 1e-8


@pytest.mark.parametrize("wrong", [(5, 6, 1), (5, 5, 6), (5, 0, 0), (5, 3, -1)])
def test_impossible_guesses_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidArgument):
        Guesses(canaries=wrong[0], made=wrong[1], right=wrong[2])


# ---- One run against trade-off curves: the issue's figures, and two roads to the same place

GAUSSIAN_ISSUE = [
    (1000, 1000, 1000, 12.3346),
    (1000, 100, 100, 5.5490),
    (1000, 100, 95, 3.3233),
    (1000, 1000, 900, 3.7793),
    (5000, 500, 490, 4.9501),
]


@pytest.mark.parametrize(("canaries", "made", "right", "epsilon"), GAUSSIAN_ISSUE)
def test_the_gaussian_figures_of_the_issue(
    canaries: int, made: int, right: int, epsilon: float
) -> None:
    found = one_run_gaussian(Guesses(canaries=canaries, made=made, right=right), 1e-5)
    assert found.epsilon == pytest.approx(epsilon, abs=5.1e-5)
    assert "Gaussian" in found.assumption


@pytest.mark.parametrize(("canaries", "made", "right"), [(1000, 100, 95), (300, 300, 240)])
def test_the_accountants_curve_of_a_gaussian_gives_the_same(
    canaries: int, made: int, right: int
) -> None:
    guesses = Guesses(canaries=canaries, made=made, right=right)
    direct, tabulated = one_run_gaussian(guesses, 1e-5), one_run_family(guesses, Gaussian, 1e-5)
    assert direct.epsilon * 0.995 < tabulated.epsilon <= direct.epsilon * (1.0 + 1e-6)
    # At the noise found, the p-value of the curve is the failure rate.
    curve = profile(Gaussian(tabulated.number("noise")))
    assert one_run_curve_p_value(guesses, curve) == pytest.approx(0.05, rel=0.02)


def test_randomised_response_is_met_by_the_binomial() -> None:
    """With every canary guessed, (ε, 0) allows Bin(m, p): no curve test may do better than that."""
    guesses = Guesses(canaries=200, made=200, right=170)
    exact = one_run(guesses, 0.0).epsilon
    by_curve = _bound_of_pure(guesses, 0.05)
    assert 0.6 * exact < by_curve <= exact


def _bound_of_pure(guesses: Guesses, failure: float) -> float:
    low, high = 0.0, 10.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        pair = PairsTradeOff.of_pair(middle, 0.0)
        refuted = refutes_curve(
            guesses, lambda tpr, pair=pair: float(pair.fpr(np.asarray(tpr))), failure
        )
        low, high = (middle, high) if refuted else (low, middle)
    return low


def test_more_noise_is_refuted_more_surely() -> None:
    guesses = Guesses(canaries=500, made=100, right=90)
    for family in (Gaussian, Laplace):
        found = [
            one_run_curve_p_value(guesses, profile(family(noise))) for noise in (0.5, 1.0, 4.0)
        ]
        assert found == sorted(found, reverse=True)
        assert found[0] > 0.05 > found[-1]


def test_guesses_no_better_than_chance_refute_nothing() -> None:
    guesses = Guesses(canaries=100, made=100, right=50)
    assert one_run_gaussian(guesses, 1e-5).epsilon == 0.0
    assert one_run_family(guesses, Gaussian, 1e-5).epsilon < 0.02
    assert one_run_curve_p_value(guesses, profile(PureDp(1.0))) == 1.0


def test_a_smaller_failure_rate_is_harder_to_refute_at() -> None:
    guesses = Guesses(canaries=100, made=60, right=50)
    found = [
        one_run_gaussian(guesses, 1e-5, confidence).epsilon for confidence in (0.9, 0.99, 0.9999)
    ]
    assert found == sorted(found, reverse=True)
    assert math.isfinite(found[0])
