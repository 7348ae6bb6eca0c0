"""How good an attack is: its ROC curve, the numbers read from it, and what a guarantee allows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import numpy as np
from scipy.special import bdtr, expit, logit, ndtri

from tacit._validation import open_probability, whole
from tacit.auditing.attacks.outputs import split
from tacit.auditing.statistics.bound import failure_rate
from tacit.auditing.statistics.scores import lower_rate, nan_where_masked, upper_rate
from tacit.auditing.statistics.tradeoffs import PairsTradeOff
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tacit.accounting import PrivacyCurve
    from tacit.auditing.statistics.scores import Scores

    Numbers = NDArray[np.float64]
    Counts = NDArray[np.int64]


# ---- numbers read from scores, each with an interval: area, rate at a rate, advantage
#
# The intervals take the scores for independent trials, and nothing else unless they say so.


@dataclass(frozen=True)
class Measured:
    """A number as observed, and the ends of an interval of that confidence."""

    value: float
    lower: float
    upper: float
    confidence: float

    def describe(self) -> str:
        """One line for people.

        >>> Measured(0.0212, 0.0154, 0.0301, 0.95).describe()
        '0.0212 (0.0154 to 0.0301 at 95%)'
        """
        ends = f"{self.lower:.4g} to {self.upper:.4g}"
        return f"{self.value:.4g} ({ends} at {100 * self.confidence:g}%)"


def area(scores: Scores, confidence: float = 0.95) -> Measured:
    """The chance that a member scores above another, ties by half: the area under the ROC curve.

    With the interval of DeLong, DeLong & Clarke-Pearson (1988) on the log-odds; it holds for many
    trials. If the order is perfect their variance is 0, and the interval exact: min(n_in, n_out)
    pairs without a common trial were all in order. If all scores are equal it is Hoeffding's.

    >>> from tacit.auditing import Scores
    >>> area(Scores([0.9, 0.8, 0.3], [0.5, 0.2, 0.1, 0.0])).value
    0.9166666666666666
    """
    failure = failure_rate(confidence)
    above, below = placements(scores)
    value, pairs = float(above.mean()), min(len(above), len(below))
    if value in (0.0, 1.0):
        hits = pairs * value
        ends = lower_rate(hits, pairs, 0.5 * failure), upper_rate(hits, pairs, 0.5 * failure)
        return Measured(value, float(ends[0]), float(ends[1]), confidence)
    variance = (
        sum(float(one.var(ddof=1)) / len(one) for one in (above, below)) if pairs > 1 else 0.0
    )
    if variance == 0.0:
        reach = float(np.sqrt(np.log(2.0 / failure) / (2.0 * pairs)))
        return Measured(value, max(0.0, value - reach), min(1.0, value + reach), confidence)
    odds, spread = float(logit(value)), np.sqrt(variance) / (value * (1.0 - value))
    reach = -float(ndtri(0.5 * failure) * spread)
    return Measured(value, float(expit(odds - reach)), float(expit(odds + reach)), confidence)


def placements(scores: Scores) -> tuple[Numbers, Numbers]:
    """For each member the share of others below it, and for each other of members above it.

    Ties count by half. Both have the area as their mean, and their variances are DeLong's.
    """
    inside, outside = scores.inside, scores.outside
    return _share_below(inside, outside), 1.0 - _share_below(outside, inside)


def _share_below(values: Numbers, others: Numbers) -> Numbers:
    ordered = np.sort(others)
    below, from_there = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return (below + from_there) / (2.0 * len(others))


def rate_at(scores: Scores, fpr: float, confidence: float = 0.95) -> Measured:
    """The true-positive rate at this false-positive rate.

    As observed it is the largest over thresholds whose observed false-positive rate is no higher:
    below 1/n_out, the share of members above all others. The interval is for the attack's true
    rate. It knows that the threshold was found on these trials: n_out·fpr of the others exceed the
    right one only by chance, so the lower end is counted at a higher threshold and the upper end at
    a lower one, each on the safe side of it with probability 1 - α/4. Where n_out is too small for
    any to be safe, the lower end is for an attack that drops a part of its calls by a coin, so as
    to keep to the false-positive rate.

    >>> from tacit.auditing import Scores
    >>> draw = np.random.default_rng(1)
    >>> scores = Scores(1.0 + draw.normal(size=4000), draw.normal(size=4000))
    >>> found = rate_at(scores, 0.01)  # in truth 0.0924
    >>> round(found.value, 3), round(found.lower, 3), round(found.upper, 3)
    (0.095, 0.061, 0.134)
    """
    rate, part = open_probability("fpr", fpr), 0.25 * failure_rate(confidence)
    inside, outside = np.sort(scores.inside), np.sort(scores.outside)[::-1]
    n_in, n_out = len(inside), len(outside)
    ranks = np.arange(n_out)
    exceeded = int(np.floor(rate * n_out + 1e-9))
    at_most = bdtr(ranks.astype(np.float64), n_out, rate)  # P(Bin(n_out, rate) ≤ rank)
    safe = int(np.count_nonzero(at_most <= part)) - 1
    share = 1.0 if safe >= 0 else min(1.0, rate / -float(np.expm1(np.log(part) / n_out)))
    hits = _beyond(inside, outside[max(safe, 0)])
    lower = share * float(lower_rate(hits, n_in, part))
    last = int(np.count_nonzero(1.0 - at_most > part))
    upper = float(upper_rate(_from(inside, outside[last]), n_in, part)) if last < n_out else 1.0
    value = _beyond(inside, outside[exceeded]) / n_in if exceeded < n_out else 1.0
    return Measured(value, lower, upper, confidence)


def _beyond(inside: Numbers, threshold: float) -> int:
    return len(inside) - int(np.searchsorted(inside, threshold, side="right"))


def _from(inside: Numbers, threshold: float) -> int:
    return len(inside) - int(np.searchsorted(inside, threshold, side="left"))


def advantage(scores: Scores, confidence: float = 0.95) -> Measured:
    """The largest true-positive rate less false-positive rate over all thresholds.

    The interval is for the attack's best threshold, whichever that is (Dvoretzky, Kiefer, Wolfowitz
    & Massart, for each of the two distributions).

    >>> from tacit.auditing import Scores
    >>> advantage(Scores([0.9, 0.8, 0.3], [0.5, 0.2, 0.1, 0.0])).value
    0.75
    """
    part = 0.25 * failure_rate(confidence)
    values = np.concatenate((scores.inside, scores.outside))
    rates = [
        1.0 - np.searchsorted(np.sort(side), values, side="left") / len(side)
        for side in (scores.inside, scores.outside)
    ]
    value = max(0.0, float((rates[0] - rates[1]).max()))
    trials = np.array([len(scores.inside), len(scores.outside)])
    reach = float(np.sqrt(np.log(1.0 / part) / (2.0 * trials)).sum())
    return Measured(value, max(0.0, value - reach), min(1.0, value + reach), confidence)


# ---- the curve
#
# All intervals take the scores for independent trials. Those of many examples under one model, or
# of one example under many models, are not quite; the intervals then describe, and prove nothing.


@dataclass(frozen=True, eq=False)
class Bands:
    """Points of a ROC curve with an exact (Clopper-Pearson) interval for either rate.

    Each interval is for one threshold by itself: the band is pointwise, and of many points some lie
    outside of theirs.
    """

    fpr: Numbers
    tpr: Numbers
    fpr_lower: Numbers
    fpr_upper: Numbers
    tpr_lower: Numbers
    tpr_upper: Numbers
    confidence: float


@final
@dataclass(frozen=True, eq=False)
class Roc:
    """The ROC curve of an attack's scores: the rates at every threshold.

    >>> from tacit.auditing import Scores
    >>> roc = Roc(Scores([0.9, 0.8, 0.3], [0.5, 0.2, 0.1, 0.0]))
    >>> fpr, tpr = roc.curve()
    >>> fpr.tolist(), tpr.round(2).tolist()
    ([0.0, 0.0, 0.25, 0.25, 1.0], [0.0, 0.67, 0.67, 1.0, 1.0])
    >>> roc.auc().describe()
    '0.9167 (0.3484 to 0.9956 at 95%)'
    """

    scores: Scores

    def curve(self, points: int | None = None) -> tuple[Numbers, Numbers]:
        """False-positive and true-positive rates, both rising from 0 to 1.

        At most ``points`` of them, about evenly over the logarithm of the false-positive rate.
        """
        fp, tp = self._thinned(points)
        return fp / len(self.scores.outside), tp / len(self.scores.inside)

    def bands(self, confidence: float = 0.95, points: int | None = None) -> Bands:
        """The curve with an exact interval for each of the two rates, point by point."""
        half = 0.5 * failure_rate(confidence)
        fp, tp = self._thinned(points)
        n_in, n_out = len(self.scores.inside), len(self.scores.outside)
        return Bands(
            fp / n_out,
            tp / n_in,
            lower_rate(fp, n_out, half),
            upper_rate(fp, n_out, half),
            lower_rate(tp, n_in, half),
            upper_rate(tp, n_in, half),
            confidence,
        )

    def auc(self, confidence: float = 0.95) -> Measured:
        """The area under the curve (``area``)."""
        return area(self.scores, confidence)

    def tpr_at(self, fpr: float, confidence: float = 0.95) -> Measured:
        """The true-positive rate at this false-positive rate (``rate_at``)."""
        return rate_at(self.scores, fpr, confidence)

    def advantage(self, confidence: float = 0.95) -> Measured:
        """The largest true-positive rate less false-positive rate (``advantage``)."""
        return advantage(self.scores, confidence)

    def _thinned(self, points: int | None) -> tuple[Counts, Counts]:
        fp, tp = self._counts
        if points is None or len(fp) <= whole("points", points, at_least=4):
            return fp, tp
        # From no false positive at all: the last point on or before each line of a grid.
        lines = np.geomspace(0.5, len(self.scores.outside), points - 2)
        chosen = np.searchsorted(fp, lines, side="right") - 1
        kept = np.unique(np.concatenate(([0], chosen, [len(fp) - 1])))
        return fp[kept], tp[kept]

    @cached_property
    def _counts(self) -> tuple[Counts, Counts]:
        """False and true positives wherever the curve turns, from none to all."""
        inside, outside = np.sort(self.scores.inside), np.sort(self.scores.outside)
        values = np.unique(np.concatenate((inside, outside)))[::-1]
        fp = np.append(0, len(outside) - np.searchsorted(outside, values, side="left"))
        tp = np.append(0, len(inside) - np.searchsorted(inside, values, side="left"))
        level = (tp[1:-1] == tp[:-2]) & (tp[2:] == tp[1:-1])
        upright = (fp[1:-1] == fp[:-2]) & (fp[2:] == fp[1:-1])
        turns = np.concatenate(([True], ~(level | upright), [True]))
        return fp[turns], tp[turns]


def allowed(curve: PrivacyCurve, fpr: ArrayLike) -> Numbers:
    """The largest true-positive rates that the guarantee permits at these false-positive rates.

    1 - f(FPR), with f the trade-off function of ``curve`` (Dong, Roth & Su 2022), from pairs (ε, δ)
    that lie close together: as ``curve.tradeoff`` to 2 %, and far faster for a picture.

    Guarantee:
        No attack on one record that was added or removed (or replaced, by the curve's adjacency)
        has a higher rate, for an event as stated. The rates in this are true ones; observed ones
        may lie above by chance.

    >>> from tacit.accounting import Gaussian, profile
    >>> allowed(profile(Gaussian(1.0)), [0.001, 0.1]).round(3).tolist()
    [0.018, 0.389]
    """
    rates = np.asarray(fpr, dtype=np.float64)
    if not ((rates >= 0.0) & (rates <= 1.0)).all():
        raise InvalidArgument("fpr must hold rates between 0 and 1")
    return PairsTradeOff.of_curve(curve).tpr(rates)


# ---- the scores of many models on the same examples, as one curve
#
# Such scores are no independent trials: an example that one model remembers, others remember too,
# and a model that remembers much does so for many examples. Intervals that take them for
# independent are too narrow. Here models and examples are resampled, each with all their scores
# (the pigeonhole bootstrap: Owen 2007), which is on the wide side.

_FPRS: Final = (0.01, 0.001, 0.0001)


@dataclass(frozen=True)
class Pooled:
    """What an attack achieves over models and examples.

    Attributes:
        auc: The area under the curve.
        advantage: The largest true-positive rate less false-positive rate.
        tpr: Pairs of a false-positive rate and the true-positive rate at it.
    """

    auc: Measured
    advantage: Measured
    tpr: tuple[tuple[float, Measured], ...]


def pooled(
    scores: ArrayLike,
    members: ArrayLike,
    *,
    fprs: Sequence[float] = _FPRS,
    confidence: float = 0.95,
    draws: int = 400,
    seed: int = 0,
) -> Pooled:
    """The numbers of one curve for the scores (models, examples) of an attack on each model.

    The values are those of ``Roc(split(scores, members))``. The intervals are for other models and
    other examples of the same kind, and approximate: they hold for many of both. A rate at which a
    handful of scores decide is a rough figure at best.

    Args:
        scores: A row for each model, as ``lira_each`` and its like give.
        members: Whether the model was trained on the example, of the same shape.
        fprs: The false-positive rates at which the true-positive rate is wanted.
        confidence: Of the intervals.
        draws: How many times models and examples are resampled.
        seed: Of these draws.

    >>> draw = np.random.default_rng(1)
    >>> members = draw.random((16, 100)) < 0.5
    >>> found = pooled(draw.normal(size=(16, 100)) + members, members)
    >>> found.auc.describe()
    '0.763 (0.7259 to 0.7984 at 95%)'
    """
    failure, rates = failure_rate(confidence), [open_probability("fprs", rate) for rate in fprs]
    table, inside = nan_where_masked(scores), np.asarray(members)
    split(table, inside)  # refuses what is not a score, and one side without any
    if table.ndim != 2:
        raise InvalidArgument(
            f"scores must have a row for each model and a column for each example, got "
            f"shape {table.shape}"
        )
    curve = _Curve.of(table, inside)
    draw = np.random.default_rng(seed)
    observed = curve.numbers(np.ones(len(table)), np.ones(table.shape[1]), rates)
    again = np.stack(
        [
            curve.numbers(_weights(len(table), draw), _weights(table.shape[1], draw), rates)
            for _ in range(whole("draws", draws, at_least=20))
        ]
    )
    ends = np.nanquantile(again, [0.5 * failure, 1.0 - 0.5 * failure], axis=0)
    found = [
        Measured(
            float(value), min(float(low), float(value)), max(float(high), float(value)), confidence
        )
        for value, low, high in zip(observed, *ends, strict=True)
    ]
    return Pooled(found[0], found[1], tuple(zip(rates, found[2:], strict=True)))


def _weights(count: int, draw: np.random.Generator) -> Numbers:
    """How often each of them is drawn, in as many draws with replacement."""
    return np.bincount(draw.integers(count, size=count), minlength=count).astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Curve:
    """Scores from the highest to the lowest, once and for all: a draw only weighs them."""

    model: NDArray[np.int64]
    example: NDArray[np.int64]
    inside: NDArray[np.bool_]
    last: NDArray[np.int64]  # of each run of equal scores

    @classmethod
    def of(cls, table: Numbers, inside: NDArray[np.bool_]) -> _Curve:
        flat = table.ravel()
        order = np.argsort(-flat, kind="stable")
        model, example = np.divmod(order, table.shape[1])
        last = np.flatnonzero(np.append(np.diff(flat[order]) != 0.0, True))
        return cls(model, example, inside.ravel()[order], last)

    def numbers(self, models: Numbers, examples: Numbers, rates: Sequence[float]) -> Numbers:
        """Area, advantage and true-positive rates, each score counted by its weight."""
        weights = models[self.model] * examples[self.example]
        tp = np.append(0.0, np.cumsum(weights * self.inside)[self.last])
        fp = np.append(0.0, np.cumsum(weights * ~self.inside)[self.last])
        if not tp[-1] or not fp[-1]:  # a draw without members, or of nothing else
            return np.full(2 + len(rates), np.nan)
        tpr, fpr = tp / tp[-1], fp / fp[-1]
        area = float((np.diff(fpr) * 0.5 * (tpr[1:] + tpr[:-1])).sum())
        places = np.searchsorted(fpr, np.asarray(rates) + 1e-12, side="right") - 1
        return np.array([area, float((tpr - fpr).max()), *tpr[places]])
