"""Areas, rates, advantages and curves of attacks, and their intervals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest, norm
from sklearn.metrics import roc_auc_score, roc_curve

from tacit.accounting import Gaussian, PoissonSampled, Repeated, profile
from tacit.auditing import Scores
from tacit.auditing.attacks import Roc, allowed, pooled, split
from tacit.auditing.attacks.roc import advantage, area, placements, rate_at
from tacit.errors import InvalidArgument

# ---- Numbers with intervals against brute force, and how often the intervals miss


def gaussian(seed: int, n_in: int, n_out: int, shift: float = 1.0) -> Scores:
    draw = np.random.default_rng(seed)
    return Scores(shift + draw.normal(size=n_in), draw.normal(size=n_out))


def tied(seed: int) -> Scores:
    draw = np.random.default_rng(seed)
    return Scores(draw.integers(2, 7, size=30), draw.integers(0, 5, size=23))


@pytest.mark.parametrize("scores", [gaussian(1, 40, 25), tied(2), Scores([1.0], [1.0])])
def test_the_area_is_the_share_of_pairs_in_order(scores: Scores) -> None:
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0 for a, b in product(scores.inside, scores.outside)
    ]
    assert area(scores).value == pytest.approx(np.mean(pairs), rel=1e-12)
    truth = [1] * len(scores.inside) + [0] * len(scores.outside)
    given = np.concatenate((scores.inside, scores.outside))
    assert area(scores).value == pytest.approx(roc_auc_score(truth, given), rel=1e-12)


@pytest.mark.parametrize("scores", [gaussian(1, 40, 25), tied(2)])
def test_delong_s_variance_pair_by_pair(scores: Scores) -> None:
    """The components of structure, each from its definition: a double loop."""
    kernel = np.array(
        [[1.0 if a > b else 0.5 if a == b else 0.0 for b in scores.outside] for a in scores.inside]
    )
    above, below = placements(scores)
    np.testing.assert_allclose(above, kernel.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(below, kernel.mean(axis=0), rtol=1e-12)
    variance = kernel.mean(axis=1).var(ddof=1) / len(kernel)
    variance += kernel.mean(axis=0).var(ddof=1) / kernel.shape[1]
    value = kernel.mean()
    reach = 1.959963985 * np.sqrt(variance) / (value * (1 - value))
    odds = np.log(value / (1 - value))
    found = area(scores)
    assert found.lower == pytest.approx(1 / (1 + np.exp(reach - odds)), rel=1e-8)
    assert found.upper == pytest.approx(1 / (1 + np.exp(-reach - odds)), rel=1e-8)


def test_delong_against_the_bootstrap() -> None:
    scores, draw = gaussian(3, 300, 400), np.random.default_rng(4)
    areas = [
        area(
            Scores(
                draw.choice(scores.inside, len(scores.inside)),
                draw.choice(scores.outside, len(scores.outside)),
            )
        ).value
        for _ in range(1000)
    ]
    found = area(scores)
    low, high = np.quantile(areas, [0.025, 0.975])
    assert found.lower == pytest.approx(low, abs=0.006)
    assert found.upper == pytest.approx(high, abs=0.006)


def test_a_perfect_order_has_an_exact_interval() -> None:
    perfect = Scores(np.arange(50.0) + 100.0, np.arange(30.0))
    found = area(perfect)
    assert (found.value, found.upper) == (1.0, 1.0)
    assert found.lower == pytest.approx(0.025 ** (1 / 30))  # 30 pairs of 30 in order
    mirrored = area(Scores(perfect.outside, perfect.inside))
    assert (mirrored.value, mirrored.lower) == (0.0, 0.0)
    assert mirrored.upper == pytest.approx(1 - found.lower)


def test_equal_scores_say_half_and_no_more() -> None:
    found = area(Scores(np.zeros(200), np.zeros(100)))
    assert found.value == 0.5
    assert found.upper - 0.5 == pytest.approx(np.sqrt(np.log(40) / 200))
    assert area(Scores([1.0], [0.0, 2.0])).lower == 0.0


def test_intervals_of_the_area_miss_as_often_as_they_say() -> None:
    truth = norm.cdf(1 / np.sqrt(2))
    found = [area(gaussian(seed, 60, 80)) for seed in range(1000)]
    missed = sum(not one.lower <= truth <= one.upper for one in found)
    assert missed <= binom.ppf(1 - 1e-6, 1000, 0.05)
    assert missed >= binom.ppf(1e-6, 1000, 0.05)  # and are no wider than they need be


def brute_rate(scores: Scores, fpr: float) -> float:
    thresholds = np.concatenate((scores.inside, scores.outside, [np.inf]))
    allowed = [t for t in thresholds if np.mean(scores.outside >= t) <= fpr + 1e-12]
    return max(float(np.mean(scores.inside >= t)) for t in allowed)


@pytest.mark.parametrize("scores", [gaussian(1, 40, 50), tied(2), gaussian(3, 7, 1000)])
@pytest.mark.parametrize("fpr", [1e-4, 0.001, 0.02, 0.1, 0.3, 0.9])
def test_the_rate_at_a_rate_is_the_best_over_thresholds(scores: Scores, fpr: float) -> None:
    found = rate_at(scores, fpr)
    assert found.value == pytest.approx(brute_rate(scores, fpr))
    assert 0.0 <= found.lower <= found.value <= found.upper <= 1.0


@pytest.mark.parametrize(
    ("n_in", "n_out", "fpr"),
    [(300, 300, 0.1), (400, 1000, 0.01), (500, 500, 0.001), (500, 500, 1e-4)],
)
def test_intervals_of_a_rate_cover_the_true_rate(n_in: int, n_out: int, fpr: float) -> None:
    truth = norm.cdf(norm.ppf(fpr) + 2.0)
    found = [rate_at(gaussian(seed, n_in, n_out, 2.0), fpr) for seed in range(500)]
    assert sum(one.lower > truth for one in found) <= binom.ppf(1 - 1e-6, 500, 0.025)
    assert sum(one.upper < truth for one in found) <= binom.ppf(1 - 1e-6, 500, 0.025)


@pytest.mark.parametrize("scores", [gaussian(1, 90, 400), tied(2), gaussian(3, 50, 2000)])
@pytest.mark.parametrize("fpr", [0.01, 0.05, 0.3])
def test_the_ends_of_a_rate_are_at_the_nearest_safe_thresholds(scores: Scores, fpr: float) -> None:
    """One rank after another, by the law of the share of others above the threshold there."""
    outside, n_in, n_out = np.sort(scores.outside)[::-1], len(scores.inside), len(scores.outside)
    part = 0.1 / 4
    lower, upper, found = None, None, rate_at(scores, fpr, 0.9)
    law = beta(np.arange(n_out) + 1, n_out - np.arange(n_out))
    for threshold, more, fewer in zip(outside, law.sf(fpr), law.cdf(fpr), strict=True):
        if more <= part:  # surely no more than fpr of others exceed it: the lowest such
            hits = np.count_nonzero(scores.inside > threshold)
            lower = beta.ppf(part, hits, n_in - hits + 1) if hits else 0.0
        if fewer <= part and upper is None:  # surely more reach it: the highest such
            hits = np.count_nonzero(scores.inside >= threshold)
            upper = beta.ppf(1 - part, hits + 1, n_in - hits) if hits < n_in else 1.0
    if lower is not None:
        assert found.lower == pytest.approx(lower)
    assert found.upper == pytest.approx(upper)


def test_a_rate_with_ties_on_the_threshold() -> None:
    """A third of members and a tenth of others score 1: the rate at 5 % is that of a coin on it."""
    draw = np.random.default_rng(1)
    missed = 0
    for _ in range(300):
        scores = Scores(draw.random(300) < 1 / 3, draw.random(300) < 0.1)
        found = rate_at(scores, 0.05)
        missed += not found.lower <= 1 / 6 <= found.upper
    assert missed <= binom.ppf(1 - 1e-6, 300, 0.05)


def test_below_one_in_n_the_lower_end_is_shared_by_a_coin() -> None:
    """All members above all others: the least true FPR that is sure is 1-(α/4)^(1/n)."""
    found = rate_at(Scores(np.ones(1000), np.zeros(100)), 0.001)
    assert (found.value, found.upper) == (1.0, 1.0)
    sure = 1 - 0.0125 ** (1 / 100)
    least = beta.ppf(0.0125, 1000, 1)
    assert found.lower == pytest.approx(least * 0.001 / sure)
    many = rate_at(Scores(np.ones(1000), np.zeros(10_000)), 0.001)
    assert many.lower == pytest.approx(least)


def test_the_advantage_is_the_widest_gap() -> None:
    for scores in (gaussian(1, 40, 25), tied(2)):
        gaps = [
            np.mean(scores.inside >= t) - np.mean(scores.outside >= t)
            for t in np.concatenate((scores.inside, scores.outside))
        ]
        assert advantage(scores).value == pytest.approx(max(*gaps, 0.0))
    assert advantage(Scores([0.0], [1.0])).value == 0.0


def test_intervals_of_the_advantage_cover_it() -> None:
    truth = 2 * norm.cdf(0.5) - 1
    found = [advantage(gaussian(seed, 200, 300)) for seed in range(300)]
    missed = sum(not one.lower <= truth <= one.upper for one in found)
    assert missed <= binom.ppf(1 - 1e-6, 300, 0.05)
    wide = advantage(gaussian(1, 200, 300))
    reach = np.sqrt(np.log(80) / 400) + np.sqrt(np.log(80) / 600)
    assert wide.upper - wide.value == pytest.approx(reach)


def test_only_the_order_matters() -> None:
    scores = gaussian(1, 50, 60)
    bent = Scores(np.exp(scores.inside), np.exp(scores.outside))
    for measure in (area, advantage, lambda one: rate_at(one, 0.05)):
        assert measure(scores) == measure(bent)
    far = Scores(np.append(scores.inside, np.inf), np.append(scores.outside, -np.inf))
    assert area(far).value > area(scores).value


def test_more_confidence_is_wider() -> None:
    scores = gaussian(1, 100, 100)
    for measure in (area, advantage, lambda one, at: rate_at(one, 0.05, at)):
        narrow, wide = measure(scores, 0.9), measure(scores, 0.999)
        assert wide.lower < narrow.lower < narrow.upper < wide.upper


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1])
def test_refusals_of_rates(fpr: float) -> None:
    with pytest.raises(InvalidArgument, match="fpr must lie strictly between 0 and 1"):
        rate_at(gaussian(1, 5, 5), fpr)
    with pytest.raises(InvalidArgument, match="confidence must lie strictly"):
        area(gaussian(1, 5, 5), 1.0)


# ---- Curves against scikit-learn, bands against SciPy, and what a guarantee allows


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


def test_only_the_order_matters_to_the_curve() -> None:
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


# ---- Pooled scores against the plain curve, a bootstrap by hand, and how often intervals miss


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
    """Models and examples resampled, and every score repeated: no weights."""
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


def test_refusals_of_pooled_scores() -> None:
    members = np.array([True, False])
    with pytest.raises(InvalidArgument, match=r"a row for each model .* got shape \(2,\)"):
        pooled([1.0, 2.0], members)
    with pytest.raises(InvalidArgument, match="members must be true or false"):
        pooled([[1.0, 2.0]], members)
    with pytest.raises(InvalidArgument, match="must hold no NaN"):
        pooled([[np.nan, 2.0]], members[None])
    with pytest.raises(InvalidArgument, match="nothing masked"):
        pooled(np.ma.masked_equal([[9.0, 2.0]], 9.0), members[None])
    with pytest.raises(InvalidArgument, match="draws must be a whole number, 20 or more"):
        pooled([[1.0, 2.0]], members[None], draws=3)
    with pytest.raises(InvalidArgument, match="fprs must lie strictly between 0 and 1, got 0"):
        pooled([[1.0, 2.0]], members[None], fprs=(0.0,))
