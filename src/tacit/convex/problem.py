"""The problem: a task with its data; sums of losses, gradients and second derivatives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast, final

import numpy as np

from tacit.convex.huberised import Huberised
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.convex.losses import Array, ScalarLoss
    from tacit.convex.task import Task


@final
@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Private data, held to the bounds of its task.

    A row longer than ``task.norm`` is refused: ``shortened`` brings rows to the norm. With
    ``task.clip`` a loss of one score is replaced by its ``Huberised`` form, whose gradients are the
    clipped ones; the gradients of several scores are clipped example by example.

    Guarantee:
        ``gradient`` adds up vectors of norm at most ``task.lipschitz``, one per example.
    """

    task: Task
    features: Array
    targets: Array
    norms: Array = field(init=False, repr=False)
    _huberised: Huberised | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        task = self.task
        if self.features.shape != (task.examples, task.features):
            raise InvalidArgument(
                f"features must have the task's shape {(task.examples, task.features)}, "
                f"got {self.features.shape}"
            )
        norms = np.linalg.norm(self.features, axis=1)
        if not np.all(norms <= task.norm):
            raise InvalidArgument(
                f"features must be finite rows of norm at most {task.norm!r}; use shortened()"
            )
        object.__setattr__(self, "norms", norms)
        hubers = None
        if task.clip is not None and task.loss.outputs == 1:
            hubers = Huberised(cast("ScalarLoss", task.loss), task.clip)
        object.__setattr__(self, "_huberised", hubers)

    @property
    def has_objective(self) -> bool:
        """Whether the gradients are those of a function: not so if several scores are clipped."""
        return self.task.clip is None or self._huberised is not None

    def value(self, theta: Array) -> float:
        """The sum of the losses."""
        return self._value(self._scores(theta, self.features))

    def gradient(self, theta: Array, rows: NDArray[np.int64] | None = None) -> Array:
        """The sum of the (clipped) gradients, over all examples or those in ``rows``."""
        features, targets, norms = self.features, self.targets, self.norms
        if rows is not None:
            features, targets, norms = features[rows], targets[rows], norms[rows]
        slopes = self._slopes(self._scores(theta, features), targets, norms)
        return np.asarray((features.T @ slopes).T.ravel())

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """Both, with the scores computed once."""
        scores = self._scores(theta, self.features)
        slopes = self._slopes(scores, self.targets, self.norms)
        return self._value(scores), np.asarray((self.features.T @ slopes).T.ravel())

    def curved(self, theta: Array, direction: Array) -> Array:
        """The second derivative of the sum of the losses, times a direction."""
        scores = self._scores(theta, self.features)
        moved = self._scores(direction, self.features)
        if self._huberised is not None:
            bends = self._huberised.bends(scores, self.targets, self.norms, moved)
        else:
            bends = self.task.loss.bends(scores, self.targets, moved)
        return np.asarray((self.features.T @ bends).T.ravel())

    def _value(self, scores: Array) -> float:
        if self._huberised is not None:
            return float(np.sum(self._huberised.values(scores, self.targets, self.norms)))
        return float(np.sum(self.task.loss.values(scores, self.targets)))

    def _slopes(self, scores: Array, targets: Array, norms: Array) -> Array:
        if self._huberised is not None:
            return self._huberised.slopes(scores, targets, norms)
        slopes = self.task.loss.slopes(scores, targets)
        return slopes if self.task.clip is None else _clipped(slopes, norms, self.task.clip)

    def _scores(self, theta: Array, features: Array) -> Array:
        return features @ theta.reshape(self.task.loss.outputs, self.task.features).T


def shortened(rows: Array, norm: float) -> Array:
    """The rows, each brought down to ``norm`` if it is longer; a row that is not finite becomes 0.

    >>> shortened(np.array([[3.0, 4.0], [0.3, 0.4], [np.inf, 0.0]]), 1.0).round(3).tolist()
    [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]
    """
    kept = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    # By the largest entry first, so that no square overflows.
    largest = np.maximum(np.max(np.abs(kept), axis=1, keepdims=True, initial=0.0), norm)
    lengths = np.linalg.norm(kept / largest, axis=1, keepdims=True)
    # A little below the norm, so that rounding does not lift it above.
    allowed = norm * (1.0 - 1e-12) / largest
    return np.asarray(kept * np.minimum(1.0, allowed / np.maximum(lengths, 1e-300)))


def _clipped(slopes: Array, norms: Array, clip: float) -> Array:
    """Slopes cut down so that slope ⊗ row has norm at most ``clip``."""
    lengths = np.linalg.norm(slopes, axis=1) * norms
    scales = np.minimum(1.0, clip / np.maximum(lengths, np.finfo(float).tiny))
    return np.asarray(slopes * scales[:, None])
