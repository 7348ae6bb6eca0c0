"""The numbers of an attack, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import Gaussian, profile
from tacit.auditing import Scores, every_threshold, judge
from tacit.auditing.canaries import one_run_audit
from tacit.recipes.auditing.evidence import (
    EXCHANGEABLE,
    POINTS,
    RATES,
    by_guesses,
    by_thresholds,
    measured,
    most_allowed,
)

# ---- The numbers of an attack, against counting by hand

DRAW = np.random.default_rng(1)
SCORES = Scores(1.0 + DRAW.normal(size=3000), DRAW.normal(size=4000))


def test_rates_are_those_of_counting() -> None:
    found = measured("a", SCORES, None)
    assert (found.members, found.others) == (3000, 4000)
    for one in found.found:
        worst = np.sort(SCORES.outside)[::-1][int(one.fpr * 4000)]
        assert one.tpr.value == np.mean(SCORES.inside > worst)
        assert one.tpr.lower <= one.tpr.value <= one.tpr.upper
        assert one.allowed is None
    pairs = SCORES.inside[:, None] > SCORES.outside[None, :]
    assert found.auc.value == pytest.approx(pairs.mean(), abs=1e-12)


def test_what_is_allowed_is_the_curve_of_the_guarantee() -> None:
    curve = profile(Gaussian(2.0))
    found = measured("a", SCORES, most_allowed(curve))
    for rate, one in zip(RATES, found.found, strict=True):
        assert one.allowed is not None
        assert one.allowed == pytest.approx(1.0 - curve.tradeoff(rate), rel=0.03)


def test_the_curve_is_short_enough_and_within_its_band() -> None:
    found = measured("a", SCORES, None)
    assert 4 <= len(found.roc) <= POINTS
    assert all(lower <= tpr <= upper for _, tpr, lower, upper in found.roc)
    assert [one[0] for one in found.roc] == sorted(one[0] for one in found.roc)


# ---- Verdicts: valid where coins decided, and outspoken where they did not


def scores(distance: float, count: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    members = draw.random(count) < 0.5
    return distance * members + draw.normal(size=count), members


def test_a_strong_attack_contradicts_a_small_claim_only() -> None:
    values, members = scores(4.0)
    for sigma, contradicted in ((2.0, True), (0.2, False)):
        curve = profile(Gaussian(sigma))
        found = by_guesses(curve.epsilon(1e-5), 1e-5, {"a": values}, members, curve)
        assert found.contradicted is contradicted
        words = found.describe()
        assert words.startswith("the evidence contradicts" if contradicted else "no evidence")


def test_chance_contradicts_nothing() -> None:
    curve = profile(Gaussian(2.0))
    members = np.random.default_rng(1).random(1000) < 0.5
    for seed in range(5):
        values = np.random.default_rng([seed, 7]).normal(size=1000)
        found = by_guesses(curve.epsilon(1e-5), 1e-5, {"a": values}, members, curve)
        assert not found.contradicted
        assert found.p_value > 1e-3


def test_the_strongest_of_several_attacks_is_paid_for() -> None:
    values, members = scores(2.0)
    noise = np.random.default_rng(2).normal(size=len(values))
    curve = profile(Gaussian(1.0))
    alone = by_guesses(4.0, 1e-5, {"a": values}, members, curve)
    both = by_guesses(4.0, 1e-5, {"a": values, "b": noise}, members, curve)
    halved = one_run_audit(values, members, 1e-5, 0.975)
    assert both.verdict.shown.epsilon == halved.epsilon < alone.verdict.shown.epsilon
    assert both.verdict.shown.confidence == 0.95
    assert both.p_value == min(1.0, 2.0 * alone.p_value)


def test_a_run_is_judged_by_every_threshold_and_says_what_that_assumes() -> None:
    values, members = scores(2.0)
    trials = Scores(values[members], values[~members])
    found = by_thresholds(1.0, 1e-5, {"a": trials})
    expected = judge(1.0, lambda confidence: every_threshold(trials, 1e-5, confidence))
    assert found.decisive.epsilon == expected.decisive.epsilon
    assert found.shown.assumption == EXCHANGEABLE
    assert "only roughly" in found.describe()
