"""Lower bounds from scores: all thresholds at once, or one that was chosen on a part of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import open_probability, whole
from tacit.accounting import gaussian_profile
from tacit.auditing.statistics.bound import (
    GAUSSIAN_CURVE,
    NOTHING,
    LowerBound,
    delta_of,
    failure_rate,
)
from tacit.auditing.statistics.ranks import joint_p_value, largest_refuted, rank_tests
from tacit.auditing.statistics.rates import (
    clopper_pearson,
    epsilon_of_rates,
    lower_rate,
    upper_rate,
)
from tacit.auditing.statistics.scores import Scores
from tacit.auditing.statistics.several_changes import pair_for
from tacit.auditing.statistics.tradeoffs import GaussianTradeOff, PairsTradeOff
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting import PrivacyCurve
    from tacit.auditing.statistics.ranks import RankTests

_CANDIDATES = 200
_WARY = 0.0005


def every_threshold(
    scores: Scores, delta: float, confidence: float = 0.95, *, changes: int = 1
) -> LowerBound:
    """The ε below which (ε, δ)-differential privacy contradicts the scores at some threshold.

    Both rates of a threshold are tested jointly and exactly, and all thresholds at once
    (``tacit.auditing.statistics.ranks``): nobody needs to choose one. Where the inputs of the two
    sides differ in several ``changes``, what group privacy makes of (ε, δ) is tested.

    Guarantee:
        As for ``LowerBound``; nothing is taken for granted but independent trials.

    >>> draw = np.random.default_rng(1)
    >>> scores = Scores(1.0 + draw.laplace(size=1000), draw.laplace(size=1000))  # its ε is 1
    >>> round(every_threshold(scores, delta=0).epsilon, 3)
    0.834
    """
    failed, tests, apart = delta_of(delta), rank_tests(scores), whole("changes", changes)

    def family(epsilon: float) -> PairsTradeOff:
        return PairsTradeOff.of_pair(*pair_for(epsilon, failed, apart))

    epsilon, by = largest_refuted(tests, family, failure_rate(confidence))
    return LowerBound(
        epsilon,
        failed,
        confidence,
        "every threshold, tested jointly",
        NOTHING,
        _numbers(scores, tests, by),
    )


def every_threshold_gaussian(scores: Scores, delta: float, confidence: float = 0.95) -> LowerBound:
    """The μ below which μ-GDP contradicts the scores at some threshold, told as an ε at δ.

    Guarantee:
        "Not μ'-GDP for any μ' < μ" holds as for ``every_threshold``. The ε is that of a Gaussian
        mechanism: it tests a Gaussian claim, and no other.

    >>> draw = np.random.default_rng(1)
    >>> scores = Scores(1.0 + draw.normal(size=1000), draw.normal(size=1000))  # its μ is 1
    >>> round(every_threshold_gaussian(scores, delta=1e-5).number("mu"), 3)
    0.785
    """
    failed, tests = open_probability("delta", delta), rank_tests(scores)
    mu, by = largest_refuted(tests, GaussianTradeOff, failure_rate(confidence), most=30.0)
    return LowerBound(
        gaussian_profile.epsilon(mu, failed),
        failed,
        confidence,
        "Gaussian differential privacy, every threshold tested jointly",
        GAUSSIAN_CURVE,
        (*_numbers(scores, tests, by), ("mu", mu)),
    )


def curve_p_value(scores: Scores, curve: PrivacyCurve) -> float:
    """How likely scores at least as telling are, at most, for an event with this privacy curve.

    Guarantee:
        For every mechanism that has the curve's guarantee the p-value is at most p with
        probability at most p. A claim is contradicted at 99.99 % if it is at most 1e-4.

    >>> from tacit.accounting import Gaussian, profile
    >>> draw = np.random.default_rng(1)
    >>> scores = Scores(1.0 + draw.normal(size=1000), draw.normal(size=1000))
    >>> curve_p_value(scores, profile(Gaussian(1.0)))  # as claimed
    1.0
    >>> curve_p_value(scores, profile(Gaussian(2.0))) < 1e-4  # the claim is too small
    True
    """
    return joint_p_value(rank_tests(scores), PairsTradeOff.of_curve(curve))


def held_out_threshold(
    scores: Scores, delta: float, confidence: float = 0.95, *, pilot: float = 0.2
) -> LowerBound:
    """``clopper_pearson`` at a threshold that was chosen on other trials.

    A random part of the trials, ``pilot`` of them, chooses the threshold; the bound is computed on
    the rest.

    Guarantee:
        As for ``clopper_pearson``.

    >>> draw = np.random.default_rng(1)
    >>> scores = Scores(1.0 + draw.laplace(size=1000), draw.laplace(size=1000))  # its ε is 1
    >>> round(held_out_threshold(scores, delta=0).epsilon, 3)
    0.785
    """
    share = open_probability("pilot", pilot)
    first_in, rest_in = _parted("inside", scores.inside, share)
    first_out, rest_out = _parted("outside", scores.outside, share)
    threshold = _best_threshold(Scores(first_in, first_out), delta)
    bound = clopper_pearson(Scores(rest_in, rest_out).at(threshold), delta, confidence)
    return LowerBound(
        bound.epsilon,
        bound.delta,
        confidence,
        "Clopper-Pearson at a threshold chosen on other trials",
        NOTHING,
        (*bound.numbers, ("threshold", threshold)),
    )


def _parted(
    name: str, values: NDArray[np.float64], share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    mixed = np.random.default_rng(1).permutation(values)  # they may have come sorted
    count = max(1, round(share * len(mixed)))
    if count >= len(mixed):
        raise InvalidArgument(f"{name} must hold at least two scores to be split, got {len(mixed)}")
    return mixed[:count], mixed[count:]


def _best_threshold(pilot: Scores, delta: float) -> float:
    """The threshold with the largest bound on the pilot.

    With intervals wider than those asked for: the best of many thresholds is best by chance.
    """
    inside, outside = np.sort(pilot.inside), np.sort(pilot.outside)
    values = np.sort(np.concatenate((inside, outside)))
    ends = np.geomspace(1.0, len(values), _CANDIDATES).astype(np.int64) - 1
    candidates = np.unique(values[np.concatenate((ends, len(values) - 1 - ends))])
    tpr = lower_rate(_at_least(inside, candidates), len(inside), _WARY)
    fpr = upper_rate(_at_least(outside, candidates), len(outside), _WARY)
    return float(candidates[np.argmax(epsilon_of_rates(tpr, fpr, delta))])


def _at_least(values: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of the sorted values reach each threshold."""
    return len(values) - np.searchsorted(values, thresholds, side="left")


def _numbers(scores: Scores, tests: RankTests, by: RankTests) -> tuple[tuple[str, float], ...]:
    """The sizes, and the test that refuted the most: its rates, members above or others below."""
    found: tuple[tuple[str, float], ...] = (
        ("n_in", len(scores.inside)),
        ("n_out", len(scores.outside)),
        ("tests", len(tests)),
    )
    if len(by):
        names = ("tpr", "fpr") if by.forward[0] else ("tnr", "fnr")
        hit, missed = by.hits[0] / by.trials[0], by.rank[0] / by.others[0]
        found += ((names[0], float(hit)), (names[1], float(missed)))
    return found
