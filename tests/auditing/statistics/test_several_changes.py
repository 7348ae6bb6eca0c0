"""Group privacy in the bounds: against induction, and against what one change says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.accounting import gaussian_profile
from tacit.auditing import Guesses, Scores, every_threshold, gaussian_scores, one_run
from tacit.auditing.statistics.several_changes import pair_for
from tacit.errors import InvalidArgument

DELTA = 1e-5


@given(st.floats(0.0, 3.0), st.floats(0.0, 1e-4), st.integers(1, 6))
def test_one_change_after_the_other(epsilon: float, delta: float, changes: int) -> None:
    """P ≤ e^ε Q + δ, and Q by the same of the next: δ_k = e^ε δ_(k-1) + δ."""
    told = 0.0
    for _ in range(changes):
        told = math.exp(epsilon) * told + delta
    found = pair_for(epsilon, delta, changes)
    assert found == pytest.approx((changes * epsilon, min(1.0, told)), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 20.0, 699.0, 1e6])
def test_nothing_overflows(epsilon: float) -> None:
    assert pair_for(epsilon, 0.0, 3) == (3 * epsilon, 0.0)
    assert pair_for(epsilon, 1.0, 3)[1] == 1.0
    assert 0.0 < pair_for(epsilon, 1e-300, 3)[1] <= 1.0


def test_without_delta_twice_the_changes_are_half_of_epsilon() -> None:
    draw = np.random.default_rng(1)
    scores = Scores(2.0 + draw.laplace(size=500), draw.laplace(size=500))
    guesses = Guesses(canaries=300, made=100, right=95)
    for one, two in (
        (every_threshold(scores, 0.0), every_threshold(scores, 0.0, changes=2)),
        (one_run(guesses, 0.0), one_run(guesses, 0.0, changes=2)),
    ):
        assert two.epsilon == pytest.approx(0.5 * one.epsilon, abs=1e-6)


def test_with_delta_it_is_less() -> None:
    draw = np.random.default_rng(1)
    scores = Scores(4.0 + draw.laplace(size=500), draw.laplace(size=500))
    guesses = Guesses(canaries=300, made=100, right=100)
    assert every_threshold(scores, 1e-3, changes=2).epsilon < (
        0.5 * every_threshold(scores, 1e-3).epsilon
    )
    assert one_run(guesses, 1e-3, changes=2).epsilon < 0.5 * one_run(guesses, 1e-3).epsilon


def test_a_gaussians_distance_is_shared() -> None:
    draw = np.random.default_rng(1)
    scores = Scores(1.0 + draw.normal(size=1000), draw.normal(size=1000))
    one, two = gaussian_scores(scores, DELTA), gaussian_scores(scores, DELTA, changes=2)
    assert two.number("mu") == pytest.approx(0.5 * one.number("mu"))
    assert two.epsilon == pytest.approx(gaussian_profile.epsilon(two.number("mu"), DELTA))


def test_scores_that_are_not_gaussian_fall_back_with_the_same_changes() -> None:
    draw = np.random.default_rng(1)
    scores = Scores(3.0 + draw.laplace(size=1000), draw.laplace(size=1000))
    found = gaussian_scores(scores, DELTA, changes=2)
    assert found.method.startswith("every threshold")
    assert found.epsilon == pytest.approx(every_threshold(scores, DELTA, changes=2).epsilon)


def test_the_bounds_are_bounds() -> None:
    """400 audits of a Gaussian mechanism at twice its distance."""
    mu, trials, audits = 0.7, 200, 400
    truth, draw = gaussian_profile.epsilon(mu, DELTA), np.random.default_rng(5)
    missed = np.zeros(2)
    for _ in range(audits):
        scores = Scores(mu + draw.normal(size=trials), -mu + draw.normal(size=trials))
        missed[0] += gaussian_scores(scores, DELTA, changes=2).epsilon > truth
        missed[1] += every_threshold(scores, DELTA, changes=2).epsilon > truth
    assert (binom.sf(missed - 1, audits, 0.05) > 0.01).all()
    assert missed[0] >= 5  # of 20: it is not far below


@pytest.mark.parametrize("changes", [0, -1, 1.5])
def test_refusals(changes: int) -> None:
    draw = np.random.default_rng(1)
    scores = Scores(draw.normal(size=100), draw.normal(size=100))
    for bound in (every_threshold, gaussian_scores):
        with pytest.raises(InvalidArgument, match="changes"):
            bound(scores, DELTA, changes=changes)
    with pytest.raises(InvalidArgument, match="changes"):
        one_run(Guesses(canaries=3, made=2, right=1), DELTA, changes=changes)
