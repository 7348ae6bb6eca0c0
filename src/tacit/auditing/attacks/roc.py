"""How good an attack is: its ROC curve, the numbers read from it, and what a guarantee allows.

All intervals take the scores for independent trials. Those of many examples under one model, or of
one example under many models, are not quite; the intervals then describe, and prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np

from tacit._validation import whole
from tacit.auditing.attacks.measured import Measured, advantage, area, rate_at
from tacit.auditing.statistics.bound import failure_rate
from tacit.auditing.statistics.rates import lower_rate, upper_rate
from tacit.auditing.statistics.tradeoffs import PairsTradeOff
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tacit.accounting import PrivacyCurve
    from tacit.auditing.statistics.scores import Scores

    Numbers = NDArray[np.float64]
    Counts = NDArray[np.int64]


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
        """The area under the curve (``measured.area``)."""
        return area(self.scores, confidence)

    def tpr_at(self, fpr: float, confidence: float = 0.95) -> Measured:
        """The true-positive rate at this false-positive rate (``measured.rate_at``)."""
        return rate_at(self.scores, fpr, confidence)

    def advantage(self, confidence: float = 0.95) -> Measured:
        """The largest true-positive rate less false-positive rate (``measured.advantage``)."""
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
