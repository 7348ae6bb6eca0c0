"""Numbers read from scores, each with an interval: area, rate at a rate, advantage.

The intervals take the scores for independent trials, and nothing else unless they say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, expit, logit, ndtri

from tacit._validation import open_probability
from tacit.auditing.statistics.bound import failure_rate
from tacit.auditing.statistics.rates import lower_rate, upper_rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.statistics.scores import Scores

    Numbers = NDArray[np.float64]


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
