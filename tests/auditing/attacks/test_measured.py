"""Numbers with intervals against brute force, and how often the intervals miss."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import beta, binom, norm
from sklearn.metrics import roc_auc_score

from tacit.auditing import Scores
from tacit.auditing.attacks.measured import advantage, area, placements, rate_at
from tacit.errors import InvalidArgument


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
def test_refusals(fpr: float) -> None:
    with pytest.raises(InvalidArgument, match="fpr must lie strictly between 0 and 1"):
        rate_at(gaussian(1, 5, 5), fpr)
    with pytest.raises(InvalidArgument, match="confidence must lie strictly"):
        area(gaussian(1, 5, 5), 1.0)
