"""Bounds over all thresholds: how much they find, and what they must not depend on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import Gaussian, Laplace, profile
from tacit.auditing import (
    Scores,
    clopper_pearson,
    curve_p_value,
    every_threshold,
    every_threshold_gaussian,
    held_out_threshold,
)
from tacit.auditing.statistics.ranks import joint_p_value, rank_tests
from tacit.auditing.statistics.tradeoffs import GaussianTradeOff, PairsTradeOff
from tacit.errors import InvalidArgument


def laplace_scores(draw: np.random.Generator, trials: int) -> Scores:
    return Scores(1.0 + draw.laplace(size=trials), draw.laplace(size=trials))


@pytest.mark.parametrize(
    ("trials", "audits", "joint", "held_out"),
    [(1000, 60, 0.80, 0.72), (10_000, 25, 0.93, 0.90)],
)
def test_the_mean_bound_for_laplace(
    trials: int, audits: int, joint: float, held_out: float
) -> None:
    """ε is 1; JAX-Privacy's mean bounds are 0.745 and 0.910."""
    draw = np.random.default_rng(7)
    sets = [laplace_scores(draw, trials) for _ in range(audits)]
    assert np.mean([every_threshold(scores, 0.0).epsilon for scores in sets]) >= joint
    assert np.mean([held_out_threshold(scores, 0.0).epsilon for scores in sets]) >= held_out


def test_the_bound_is_where_the_p_value_is_the_failure_rate() -> None:
    scores = laplace_scores(np.random.default_rng(1), 300)
    tests = rank_tests(scores)
    for confidence in (0.95, 0.9999):
        found = every_threshold(scores, 0.01, confidence).epsilon
        curve = PairsTradeOff.of_pair(found, 0.01)
        assert joint_p_value(tests, curve) == pytest.approx(1.0 - confidence, rel=1e-5)
        mu = every_threshold_gaussian(scores, 1e-5, confidence).number("mu")
        assert joint_p_value(tests, GaussianTradeOff(mu)) == pytest.approx(
            1.0 - confidence, rel=1e-5
        )


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(2, 60), st.floats(0.1, 3.0))
def test_laws(seed: int, n_in: int, n_out: int, shift: float) -> None:
    draw = np.random.default_rng(seed)
    inside, outside = shift + draw.normal(size=n_in), draw.normal(size=n_out)
    found = every_threshold(Scores(inside, outside), 0.001).epsilon
    same = pytest.approx(found, abs=1e-6)
    assert every_threshold(Scores(np.exp(inside), np.exp(outside)), 0.001).epsilon == same
    assert every_threshold(Scores(-outside, -inside), 0.001).epsilon == same  # sides exchanged
    assert every_threshold(Scores(inside[::-1], np.sort(outside)), 0.001).epsilon == same
    assert every_threshold(Scores(inside + 0.5, outside), 0.001).epsilon >= found - 1e-6
    assert every_threshold(Scores(inside, outside), 0.1).epsilon <= found + 1e-6
    assert every_threshold(Scores(inside, outside), 0.001, 0.999).epsilon <= found + 1e-6


@pytest.mark.parametrize("trials", [100, 1000, 10_000])
def test_a_perfect_attack_shows_no_less_than_at_a_threshold_fixed_beforehand(trials: int) -> None:
    """What all thresholds cost, the joint test of both rates brings in again."""
    scores = Scores(np.arange(trials) + 0.5, -1.0 - np.arange(trials))
    fixed = clopper_pearson(scores.at(0.0), 0.0).epsilon
    found = every_threshold(scores, 0.0).epsilon
    assert fixed < found < math.log(2 * trials / math.log(20))  # all 2n right: p^2n = 0.05


def test_infinite_scores_are_ranked() -> None:
    scores = Scores(np.full(100, math.inf), np.full(100, -math.inf))
    assert every_threshold(scores, 0.0).epsilon > 2.5
    assert held_out_threshold(scores, 0.0).epsilon > 2.5


def test_nothing_is_found_where_nothing_is() -> None:
    same = np.arange(50.0)
    assert every_threshold(Scores(same, same), 0.0).epsilon == 0.0
    assert every_threshold(Scores([1.0], [0.0]), 0.0).epsilon == 0.0
    assert every_threshold(Scores(same + 100.0, same), 1.0).epsilon == 0.0


def test_a_true_curve_stands_and_a_false_one_falls() -> None:
    scores = laplace_scores(np.random.default_rng(2), 3000)
    assert curve_p_value(scores, profile(Laplace(1.0))) > 0.05
    assert curve_p_value(scores, profile(Laplace(1.4))) < 1e-4
    # A Gaussian with the same ε at δ = 1e-5 has another curve: less at ε = 0.
    assert curve_p_value(scores, profile(Gaussian(3.73))) < 1e-4


def test_the_numbers_say_where_it_was_found() -> None:
    found = every_threshold(laplace_scores(np.random.default_rng(1), 1000), 0.0)
    sides = {name for name, _ in found.numbers}
    assert {"tpr", "fpr"} <= sides or {"tnr", "fnr"} <= sides
    assert found.number("n_in") == 1000.0


def test_a_single_score_cannot_be_split() -> None:
    with pytest.raises(InvalidArgument, match="inside"):
        held_out_threshold(Scores([1.0], [0.0, 1.0]), 0.0)
    with pytest.raises(InvalidArgument, match="pilot"):
        held_out_threshold(Scores([1.0, 2.0], [0.0, 1.0]), 0.0, pilot=1.0)
