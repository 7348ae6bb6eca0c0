"""Pooled scores against the plain curve, a bootstrap by hand, and how often intervals miss."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from tacit.auditing import Scores
from tacit.auditing.attacks import Roc, pooled, split
from tacit.errors import InvalidArgument


def remembered(seed: int, models: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """A fifth of the examples is remembered by every model, some models more than others."""
    draw = np.random.default_rng(seed)
    members = draw.random((models, examples)) < 0.5
    members[1::2] = ~members[0::2]
    shift = np.where(draw.random(examples) < 0.2, 3.0, 0.2)
    much = 1.0 + 0.3 * draw.normal(size=(models, 1))
    return shift * much * members + draw.normal(size=members.shape), members


@pytest.mark.parametrize("ties", [False, True])
def test_the_values_are_those_of_the_curve(ties: bool) -> None:
    scores, members = remembered(1, 8, 60)
    scores = scores.round() if ties else scores
    found = pooled(scores, members, fprs=(0.5, 0.1, 0.02, 0.001), draws=20)
    roc = Roc(split(scores, members))
    assert found.auc.value == pytest.approx(roc.auc().value)
    assert found.advantage.value == pytest.approx(roc.advantage().value)
    for fpr, rate in found.tpr:
        assert rate.value == pytest.approx(roc.tpr_at(fpr).value)


def test_the_intervals_are_those_of_a_bootstrap_by_hand() -> None:
    """Models and examples drawn anew, and every score repeated: no weights."""
    scores, members = remembered(2, 8, 60)
    draw, areas, rates = np.random.default_rng(5), [], []
    for _ in range(600):
        rows, columns = draw.integers(8, size=8), draw.integers(60, size=60)
        table, inside = scores[np.ix_(rows, columns)], members[np.ix_(rows, columns)]
        roc = Roc(Scores(table[inside], table[~inside]))
        areas.append(roc.auc().value)
        rates.append(roc.tpr_at(0.1).value)
    found = pooled(scores, members, fprs=(0.1,), draws=600)
    for mine, theirs in ((found.auc, areas), (found.tpr[0][1], rates)):
        low, high = np.quantile(theirs, [0.025, 0.975])
        assert mine.lower == pytest.approx(low, abs=0.02)
        assert mine.upper == pytest.approx(high, abs=0.02)


def test_intervals_know_that_scores_belong_together() -> None:
    """Those for independent trials miss the area over other examples five times too often."""
    truth = np.mean([Roc(split(*remembered(10**6 + s, 64, 3000))).auc().value for s in range(2)])
    missed = naive = 0
    for seed in range(100):
        scores, members = remembered(seed, 16, 300)
        found, plain = pooled(scores, members, draws=60).auc, Roc(split(scores, members)).auc()
        missed += not found.lower <= truth <= found.upper
        naive += not plain.lower <= truth <= plain.upper
    assert missed <= binom.ppf(1 - 1e-3, 100, 0.05)
    assert naive >= 15


def test_the_same_seed_and_another() -> None:
    scores, members = remembered(3, 8, 60)
    first = pooled(scores, members)
    assert pooled(scores, members) == first
    assert pooled(scores, members, seed=1).auc.lower != first.auc.lower
    wide = pooled(scores, members, confidence=0.999, draws=2000)
    assert wide.auc.lower < first.auc.lower < first.auc.upper < wide.auc.upper


def test_a_draw_without_members_is_passed_over() -> None:
    members = np.array([[True, False], [False, False]])
    found = pooled(np.array([[3.0, 1.0], [0.0, 2.0]]), members, draws=50)
    assert np.isfinite([found.auc.lower, found.auc.upper]).all()


def test_refusals() -> None:
    members = np.array([True, False])
    with pytest.raises(InvalidArgument, match=r"a row for each model .* got shape \(2,\)"):
        pooled([1.0, 2.0], members)
    with pytest.raises(InvalidArgument, match="members must be true or false"):
        pooled([[1.0, 2.0]], members)
    with pytest.raises(InvalidArgument, match="must hold no NaN"):
        pooled([[np.nan, 2.0]], members[None])
    with pytest.raises(InvalidArgument, match="draws must be a whole number, 20 or more"):
        pooled([[1.0, 2.0]], members[None], draws=3)
    with pytest.raises(InvalidArgument, match="fprs must lie strictly between 0 and 1, got 0"):
        pooled([[1.0, 2.0]], members[None], fprs=(0.0,))
