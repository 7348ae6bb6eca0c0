"""Curves against scikit-learn, bands against SciPy, and what a guarantee allows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_curve

from tacit.accounting import Gaussian, PoissonSampled, Repeated, profile
from tacit.auditing import Scores
from tacit.auditing.attacks import Roc, allowed
from tacit.errors import InvalidArgument


def scores_of(seed: int, n: int = 200, *, ties: bool = False) -> Scores:
    draw = np.random.default_rng(seed)
    found = Scores(1.0 + draw.normal(size=n), draw.normal(size=n + 50))
    return Scores(found.inside.round(), found.outside.round()) if ties else found


@pytest.mark.parametrize("ties", [True, False])
def test_the_curve_is_scikit_learn_s(ties: bool) -> None:
    scores = scores_of(1, ties=ties)
    truth = [1] * len(scores.inside) + [0] * len(scores.outside)
    expected = roc_curve(truth, np.concatenate((scores.inside, scores.outside)))
    fpr, tpr = Roc(scores).curve()
    # scikit-learn drops points on slanted straight lines too: compare the lines.
    places = np.linspace(0.0, 1.0, 997)
    np.testing.assert_allclose(
        np.interp(places, fpr, tpr), np.interp(places, *expected[:2]), atol=1e-12
    )
    assert {(0.0, 0.0), (1.0, 1.0)} <= set(zip(fpr, tpr, strict=True))
    assert (np.diff(fpr) >= 0).all()
    assert (np.diff(tpr) >= 0).all()


def test_every_point_is_the_rates_of_a_threshold() -> None:
    scores = scores_of(2, 30)
    fpr, tpr = Roc(scores).curve()
    points = {
        (np.mean(scores.outside >= t), np.mean(scores.inside >= t))
        for t in (*scores.inside, *scores.outside, np.inf)
    }
    assert set(zip(fpr, tpr, strict=True)) <= points


def test_fewer_points_are_points_of_the_curve() -> None:
    roc = Roc(scores_of(3, 5000))
    whole = set(zip(*roc.curve(), strict=True))
    fpr, tpr = roc.curve(60)
    assert len(fpr) <= 60
    assert set(zip(fpr, tpr, strict=True)) <= whole
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert np.count_nonzero((fpr > 0) & (fpr < 0.01)) > 10  # evenly over the logarithm
    assert len(roc.curve(10**6)[0]) == len(whole)


def test_bands_are_exact_intervals() -> None:
    scores = scores_of(4, 40)
    bands = Roc(scores).bands(0.9, points=12)
    assert bands.confidence == 0.9
    for index in range(len(bands.fpr)):
        for name, n in (("tpr", len(scores.inside)), ("fpr", len(scores.outside))):
            rate = getattr(bands, name)[index]
            expected = binomtest(round(rate * n), n).proportion_ci(0.9, "exact")
            assert getattr(bands, f"{name}_lower")[index] == pytest.approx(expected.low)
            assert getattr(bands, f"{name}_upper")[index] == pytest.approx(expected.high)


def test_only_the_order_matters() -> None:
    scores = scores_of(5)
    bent = Scores(np.arctan(scores.inside), np.arctan(scores.outside))
    for mine, other in zip(Roc(scores).curve(), Roc(bent).curve(), strict=True):
        np.testing.assert_array_equal(mine, other)
    # Members and others exchanged: the curve is mirrored.
    fpr, tpr = Roc(scores).curve()
    turned = Roc(Scores(-scores.outside, -scores.inside)).curve()
    np.testing.assert_allclose(turned[0], 1 - tpr[::-1], atol=1e-12)
    np.testing.assert_allclose(turned[1], 1 - fpr[::-1], atol=1e-12)


def test_numbers_are_read_from_the_curve() -> None:
    roc = Roc(scores_of(6))
    fpr, tpr = roc.curve()
    assert roc.auc().value == pytest.approx(np.trapezoid(tpr, fpr))
    assert roc.advantage().value == pytest.approx((tpr - fpr).max())
    assert roc.tpr_at(0.1).value == pytest.approx(tpr[fpr <= 0.1].max())


def test_what_a_gaussian_allows() -> None:
    rates = np.array([0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0])
    found = allowed(profile(Gaussian(0.5)), rates)
    best = norm.cdf(norm.ppf(rates) + 2.0)
    assert (found >= best - 1e-12).all()  # never less than is possible
    np.testing.assert_allclose(found[1:], best[1:], rtol=0.02)
    assert found[0] < 1e-9


def test_what_private_training_allows() -> None:
    curve = profile(Repeated(PoissonSampled(0.01, Gaussian(1.0)), 200))
    rates = np.array([1e-3, 0.1])
    best = np.array([1 - curve.tradeoff(float(rate)) for rate in rates])
    found = allowed(curve, rates)
    assert (found >= best - 1e-9).all()
    np.testing.assert_allclose(found, best, rtol=0.02)


@pytest.mark.parametrize("fpr", [[-0.1], [1.1], [np.nan]])
def test_rates_are_rates(fpr: list[float]) -> None:
    with pytest.raises(InvalidArgument, match="fpr must hold rates between 0 and 1"):
        allowed(profile(Gaussian(1.0)), fpr)


def test_too_few_points() -> None:
    with pytest.raises(InvalidArgument, match="points must be a whole number, 4 or more"):
        Roc(scores_of(7)).curve(3)
