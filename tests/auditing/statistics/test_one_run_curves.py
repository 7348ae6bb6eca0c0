"""One run against trade-off curves: the issue's figures, and two roads to the same place."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.accounting import Gaussian, Laplace, PureDp, profile
from tacit.auditing import (
    Guesses,
    one_run,
    one_run_curve_p_value,
    one_run_family,
    one_run_gaussian,
)
from tacit.auditing.statistics.one_run_curves import refutes_curve
from tacit.auditing.statistics.tradeoffs import PairsTradeOff

ISSUE = [
    (1000, 1000, 1000, 12.3346),
    (1000, 100, 100, 5.5490),
    (1000, 100, 95, 3.3233),
    (1000, 1000, 900, 3.7793),
    (5000, 500, 490, 4.9501),
]


@pytest.mark.parametrize(("canaries", "made", "right", "epsilon"), ISSUE)
def test_the_figures_of_the_issue(canaries: int, made: int, right: int, epsilon: float) -> None:
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
