"""The noncentral t against SciPy and draws; the check that gives way to ranks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import nct

from tacit.accounting import gaussian_profile
from tacit.auditing import Scores, every_threshold, gaussian_scores
from tacit.auditing.statistics.gaussian_scores import (
    gaussian_shape_p_value,
    least_distance,
    noncentral_t_tail,
)
from tacit.errors import InvalidArgument


@pytest.mark.parametrize("freedom", [38, 100, 5000, 2_000_000])
@pytest.mark.parametrize("noncentrality", [0.0, 1.0, 30.0, 300.0])
def test_the_tail_agrees_with_scipy(freedom: int, noncentrality: float) -> None:
    for excess in (0.2, 1.0, 1.64, 3.7):
        at = noncentrality + excess * max(1.0, noncentrality / math.sqrt(2.0 * freedom))
        truth = float(nct.sf(at, freedom, noncentrality))
        assert noncentral_t_tail(at, freedom, noncentrality) == pytest.approx(truth, rel=1e-9)


def test_the_interval_has_its_chance() -> None:
    scores = Scores(np.random.default_rng(1).normal(1.0, 2.0, 60), _normal(50))
    found = least_distance(scores, 0.05)
    n_in, n_out = 60, 50
    pooled = math.sqrt(
        (59 * np.var(scores.inside, ddof=1) + 49 * np.var(scores.outside, ddof=1)) / 108
    )
    scale = math.sqrt(1 / n_in + 1 / n_out)
    statistic = (scores.inside.mean() - scores.outside.mean()) / (pooled * scale)
    assert float(nct.sf(statistic, 108, found / scale)) == pytest.approx(0.05, rel=1e-6)


def _normal(count: int) -> np.ndarray:
    return 2.0 * np.random.default_rng(2).normal(size=count)


def test_it_does_not_depend_on_the_units() -> None:
    draw = np.random.default_rng(3)
    inside, outside = 1.0 + draw.normal(size=400), draw.normal(size=500)
    found = gaussian_scores(Scores(inside, outside), 1e-5)
    moved = gaussian_scores(Scores(7.0 + 1e-3 * inside, 7.0 + 1e-3 * outside), 1e-5)
    assert moved.epsilon == pytest.approx(found.epsilon, rel=1e-6)
    mirrored = gaussian_scores(Scores(-outside, -inside), 1e-5)
    assert mirrored.epsilon == pytest.approx(found.epsilon, rel=1e-9)
    assert found.epsilon == pytest.approx(gaussian_profile.epsilon(found.number("mu"), 1e-5))
    assert "Gaussian" in found.assumption


def test_members_that_score_lower_show_nothing() -> None:
    draw = np.random.default_rng(3)
    assert (
        gaussian_scores(Scores(draw.normal(size=100) - 1.0, draw.normal(size=100)), 1e-5).epsilon
        == 0.0
    )


@pytest.mark.parametrize("kind", ["laplace", "skewed", "wide", "few", "infinite", "constant"])
def test_it_falls_back_where_scores_are_not_gaussian(kind: str) -> None:
    draw = np.random.default_rng(4)
    inside, outside = 1.0 + draw.normal(size=1000), draw.normal(size=1000)
    inside, outside = {
        "laplace": lambda: (1.0 + draw.laplace(size=1000), draw.laplace(size=1000)),
        "skewed": lambda: (np.exp(inside), np.exp(outside)),
        "wide": lambda: (1.3 * inside, outside),
        "few": lambda: (inside[:19], outside),
        "infinite": lambda: (np.append(inside, math.inf), outside),
        "constant": lambda: (np.full(1000, 2.0), outside),
    }[kind]()
    scores = Scores(inside, outside)
    assert gaussian_shape_p_value(scores) < 1e-3
    found, plain = gaussian_scores(scores, 1e-5), every_threshold(scores, 1e-5)
    assert (found.epsilon, found.method, found.assumption) == (
        plain.epsilon,
        plain.method,
        plain.assumption,
    )


def test_what_fails_the_check_fails_it_at_every_confidence() -> None:
    """Were the check as strict as the bound, 99.99 % would trust what 95 % does not."""
    draw = np.random.default_rng(5)
    scores = Scores(1.0 + draw.standard_t(20, size=1500), draw.standard_t(20, size=1500))
    assert 1e-5 < gaussian_shape_p_value(scores) < 1e-3
    for confidence in (0.95, 0.9999):
        found = gaussian_scores(scores, 1e-5, confidence)
        assert found.method == "every threshold, tested jointly"
        assert found.confidence == confidence


def test_the_check_fails_for_few_gaussian_sets() -> None:
    draw = np.random.default_rng(6)
    found = [
        gaussian_shape_p_value(Scores(1.0 + draw.normal(size=60), draw.normal(size=40)))
        for _ in range(400)
    ]
    assert np.mean(np.array(found) <= 0.05) < 0.1


def test_a_gaussian_has_no_epsilon_at_zero() -> None:
    with pytest.raises(InvalidArgument, match="delta"):
        gaussian_scores(Scores([1.0], [0.0]), 0.0)
