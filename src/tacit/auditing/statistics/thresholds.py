"""Lower bounds from scores: all thresholds at once, or one that was chosen on a part of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, betaincc, betainccinv, betaincinv, betaln

from tacit._validation import open_probability, whole
from tacit.accounting import gaussian_profile
from tacit.auditing.statistics.bound import (
    GAUSSIAN_CURVE,
    NOTHING,
    LowerBound,
    delta_of,
    failure_rate,
    last_refuted,
    pair_for,
)
from tacit.auditing.statistics.scores import (
    Scores,
    ascending,
    clopper_pearson,
    epsilon_of_rates,
    lower_rate,
    upper_rate,
)
from tacit.auditing.statistics.tradeoffs import GaussianTradeOff, PairsTradeOff
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting import PrivacyCurve
    from tacit.auditing.statistics.tradeoffs import TradeOff


# ---- an exact test of a trade-off curve by the ranks of scores, for all thresholds at once
#
# Fix a rank j. Let T be the number of members that score above the (j+1)-th highest non-member: the
# true positives of the lowest threshold with j false positives. Replace each score by the chance x
# that a non-member exceeds it. The (j+1)-th smallest x of n_out non-members has the law Beta(j+1,
# n_out-j); under a guarantee that allows TPR(x) true positives at the false-positive rate x, a
# member lies below x with probability at most TPR(x). So, whatever the mechanism and the scores,
#
#     P(T ≥ c) ≤ E[P(Bin(n_in, TPR(X)) ≥ c)],   X ~ Beta(j+1, n_out-j),
#
# and a mechanism whose curve is TPR attains it. Both rates are tested jointly by this: an interval
# for each of them apart is wider by half. The mirror image (non-members below the (j+1)-th lowest
# member) obeys the same bound with the sides exchanged. The ranks are fixed by the numbers of
# trials alone, in geometric progression: T changes little between neighbours, so that few of them
# (16 a side for 1,000 trials) stand for all thresholds, and the union bound over them gives little
# away.

_RATIO = 1.5  # of one rank to the next
_TAIL = 1e-14  # what the integral leaves out at each end, and the p-value adds
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS


@dataclass(frozen=True, eq=False)
class RankTests:
    """One test a row: ``hits`` of ``trials`` lie beyond the (``rank`` + 1)-th of ``others``."""

    rank: NDArray[np.float64]
    others: NDArray[np.float64]
    hits: NDArray[np.float64]
    trials: NDArray[np.float64]
    forward: NDArray[np.bool_]  # members above non-members; else the mirror image

    def __len__(self) -> int:
        return len(self.rank)

    def rows(self, chosen: NDArray[np.bool_]) -> RankTests:
        """Some of the tests."""
        return RankTests(
            rank=self.rank[chosen],
            others=self.others[chosen],
            hits=self.hits[chosen],
            trials=self.trials[chosen],
            forward=self.forward[chosen],
        )


def ranks_for(trials: int) -> NDArray[np.int64]:
    """Ranks from 0 to half of the trials, each 1.5 times the one before.

    >>> ranks_for(100).tolist()
    [0, 1, 2, 4, 6, 9, 14, 22, 33, 50]
    """
    steps = int(np.log(max(1.0, 0.5 * trials)) / np.log(_RATIO)) + 1
    ranks = np.floor(0.5 * trials * _RATIO ** -np.arange(steps)).astype(np.int64)
    return np.unique(np.append(ranks[ranks < trials], 0))


def rank_tests(scores: Scores) -> RankTests:
    """The tests of both directions. Equal scores are put in a random order (``ascending``).

    Scores that are all equal say nothing, and count no hits.
    """
    n_in, n_out = len(scores.inside), len(scores.outside)
    values = np.concatenate((scores.inside, scores.outside))
    member = np.arange(n_in + n_out) < n_in
    order = ascending(values)
    above = _beyond(member[order][::-1], ranks_for(n_out))
    below = _beyond(~member[order], ranks_for(n_in))
    differ = values.min() < values.max()
    forward = np.arange(len(above) + len(below)) < len(above)
    return RankTests(
        rank=np.concatenate((ranks_for(n_out), ranks_for(n_in))).astype(np.float64),
        others=np.where(forward, float(n_out), float(n_in)),
        hits=np.where(differ, np.concatenate((above, below)), 0).astype(np.float64),
        trials=np.where(forward, float(n_in), float(n_out)),
        forward=forward,
    )


def _beyond(hit: NDArray[np.bool_], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The hits that come before the (j+1)-th miss, for each rank j."""
    places = np.flatnonzero(~hit)[ranks]
    return places - ranks


def p_values(tests: RankTests, curve: TradeOff) -> NDArray[np.float64]:
    """The largest chance, under ``curve``, of as many hits as were seen, for each test apart.

    Beyond the place where the binomial tail is 1 (to 1e-14) the integral is a Beta tail; before the
    place where it is 0, nothing; between them a Gauss rule on either side of the curve's kink.
    """
    first, second = tests.rank + 1.0, tests.others - tests.rank
    hits, misses = np.maximum(tests.hits, 1.0), tests.trials - np.maximum(tests.hits, 1.0) + 1.0
    start = np.maximum(betaincinv(first, second, _TAIL), curve.fpr(betaincinv(hits, misses, _TAIL)))
    sure = curve.fpr(betainccinv(hits, misses, _TAIL))
    end = np.maximum(start, np.minimum(betainccinv(first, second, _TAIL), sure))
    middle = np.clip(curve.kink, start, end)
    total = betaincc(first, second, end) + 2.0 * _TAIL
    for low, high in ((start, middle), (middle, end)):
        x = low[:, None] + (high - low)[:, None] * _NODES
        tail = betainc(hits[:, None], misses[:, None], curve.tpr(x))
        total = total + (high - low) * ((_density(x, first, second) * tail) @ _WEIGHTS)
    return np.where(tests.hits < 1.0, 1.0, np.minimum(total, 1.0))


def _density(
    x: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The density of Beta(first, second); x lies inside of (0, 1) or the panel has no width."""
    inside = np.clip(x, 1e-300, 1.0 - 1e-16)
    powers = (first - 1.0)[:, None] * np.log(inside) + (second - 1.0)[:, None] * np.log1p(-inside)
    return np.asarray(np.exp(powers - betaln(first, second)[:, None]))


def joint_p_value(tests: RankTests, curve: TradeOff) -> float:
    """The p-value of all tests together, by the union bound."""
    return min(1.0, len(tests) * float(np.min(p_values(tests, curve))))


def largest_refuted(
    tests: RankTests, family: Callable[[float], TradeOff], failure: float, *, most: float = 700.0
) -> tuple[float, RankTests]:
    """The largest member of an increasing family that the tests refute, and by which of them.

    p-values grow along the family, so that a test which fails to refute one member is of no use
    for larger ones.
    """
    level = failure / len(tests)
    left = tests

    def refutes(value: float) -> bool:
        nonlocal left
        strong = p_values(left, family(value)) <= level
        if strong.any():
            left = left.rows(strong)
        return bool(strong.any())

    if not refutes(0.0):
        return 0.0, tests.rows(np.zeros(len(tests), dtype=bool))
    return last_refuted(refutes, most, within=1e-7), left


# ---- the bounds

_CANDIDATES = 200
_WARY = 0.0005


def every_threshold(
    scores: Scores, delta: float, confidence: float = 0.95, *, changes: int = 1
) -> LowerBound:
    """The ε below which (ε, δ)-differential privacy contradicts the scores at some threshold.

    Both rates of a threshold are tested jointly and exactly, and all thresholds at once
    (``rank_tests``): nobody needs to choose one. Where the inputs of the two sides differ in
    several ``changes``, what group privacy makes of (ε, δ) is tested.

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
    """The μ below which μ-GDP contradicts the scores at some threshold, as an ε at δ.

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
    """How likely scores at least as extreme are, at most, for an event with this privacy curve.

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
    first_in, rest_in = _pilot_and_rest("inside", scores.inside, share)
    first_out, rest_out = _pilot_and_rest("outside", scores.outside, share)
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


def _pilot_and_rest(
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
