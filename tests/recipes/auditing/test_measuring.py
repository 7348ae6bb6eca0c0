"""The numbers of an attack, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import Gaussian, profile
from tacit.auditing import Scores
from tacit.recipes.auditing.measuring import POINTS, RATES, measured, most_allowed

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
