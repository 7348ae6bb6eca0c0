"""The scores of many models on the same examples, told as one curve with intervals that know it.

Such scores are no independent trials: an example that one model remembers, others remember too, and
a model that remembers much does so for many examples. Intervals that take them for independent are
too narrow. Here models and examples are drawn anew, each with all their scores (the pigeonhole
bootstrap: Owen 2007), which is on the wide side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tacit._validation import open_probability, whole
from tacit.auditing.attacks.measured import Measured
from tacit.auditing.attacks.outputs import split
from tacit.auditing.statistics.bound import failure_rate
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Numbers = NDArray[np.float64]

_RATES: Final = (0.01, 0.001, 0.0001)


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
    fprs: Sequence[float] = _RATES,
    confidence: float = 0.95,
    draws: int = 400,
    seed: int = 0,
) -> Pooled:
    """The numbers of one curve for the scores (models, examples) of an attack on each model.

    The values are those of ``Roc(split(scores, members))``. The intervals are for other models and
    other examples of the same kind, and approximate: they hold for many of both. A rate at which a
    handful of scores decide is told roughly at best.

    Args:
        scores: A row for each model, as ``lira_each`` and its like give.
        members: Whether the model was trained on the example, of the same shape.
        fprs: The false-positive rates at which the true-positive rate is wanted.
        confidence: Of the intervals.
        draws: How many times models and examples are drawn anew.
        seed: Of these draws.

    >>> draw = np.random.default_rng(1)
    >>> members = draw.random((16, 100)) < 0.5
    >>> found = pooled(draw.normal(size=(16, 100)) + members, members)
    >>> found.auc.describe()
    '0.763 (0.7259 to 0.7984 at 95%)'
    """
    failure, rates = failure_rate(confidence), [open_probability("fprs", rate) for rate in fprs]
    table, inside = np.asarray(scores, dtype=np.float64), np.asarray(members)
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
