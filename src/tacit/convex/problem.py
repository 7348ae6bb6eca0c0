"""The problem: a task with its data; sums of losses, gradients and second derivatives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast, final

import numpy as np

from tacit._validation import positive, probability, whole
from tacit.accounting.events import check_adjacency
from tacit.convex.losses import Huberised
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency
    from tacit.convex.losses import Array, Loss, ScalarLoss


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

    task: ConvexTask
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


# ---- the task: everything public about a problem


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConvexTask:
    """What may be known before looking at the data, and the guarantee that is wanted.

    Losses are added up over the examples unless a name says mean. θ has ``parameters`` numbers.

    Args:
        examples: n, how many examples there are or may be; public, and the same for neighbours.
        features: The length of an example, with the constant one for the intercept if there is one.
        loss: One of ``tacit.convex.losses``.
        norm: R, the largest norm of an example.
        epsilon: The ε that is wanted.
        delta: The δ that is wanted; 0 asks for pure differential privacy.
        adjacency: ``"add-remove"`` or ``"replace-one"``. Of the first, that an example's loss is
            in the sum or not: n, and with it the ridge nλ, the noise and the steps, is a setting
            and not counted, so that neighbours have the same.
        radius: The norm that the coefficients of one score are expected to have when the examples
            are scaled to R = 1. It steers step sizes and regularisation and carries no guarantee.
        regularization: λ of the mean loss, that is λ/2·|θ|² beside (1/n)·Σ ℓ; left out, each method
            takes what its theory says is best. The sum of the losses has nλ.
        clip: The largest norm of an example's gradient; left out, it is what the loss allows.
    """

    examples: int
    features: int
    loss: Loss
    norm: float
    epsilon: float
    delta: float
    adjacency: Adjacency = "add-remove"
    radius: float = 20.0
    regularization: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        checked = {
            "examples": whole("examples", self.examples),
            "features": whole("features", self.features),
            "norm": positive("norm", self.norm),
            "epsilon": positive("epsilon", self.epsilon),
            "delta": _delta(self.delta),
            "adjacency": _adjacency(self.adjacency),
            "radius": positive("radius", self.radius),
            "regularization": _optional("regularization", self.regularization),
            "clip": _optional("clip", self.clip),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if math.isinf(self.lipschitz):
            raise InvalidArgument(
                f"clip must be given: the gradients of {type(self.loss).__name__} have no bound"
            )

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return self.features * self.loss.outputs

    @property
    def lipschitz(self) -> float:
        """L, the largest norm of one example's gradient."""
        natural = self.loss.slope * self.norm
        return natural if self.clip is None else min(self.clip, natural)

    @property
    def smoothness(self) -> float:
        """β, the largest eigenvalue of one example's second derivative."""
        return self.loss.curvature * self.norm**2

    @property
    def has_objective(self) -> bool:
        """Whether the gradients are those of a function: not so if several scores are clipped."""
        return self.clip is None or self.loss.outputs == 1

    @property
    def reach(self) -> float:
        """D, how far the solution is expected to be from 0, all scores together."""
        return self.radius / self.norm * math.sqrt(self.loss.outputs)

    @property
    def distance(self) -> float:
        """By how many L a neighbouring data set moves the sum of the gradients: 1 or 2."""
        return 2.0 if self.adjacency == "replace-one" else 1.0

    @property
    def rounding(self) -> float:
        """What floating point may add to the distance between two sums of n gradients, in L.

        A sum of n terms is off by at most n·2⁻⁵³ times the sum of their sizes, and a score of d
        terms by d·2⁻⁵³ times its size (Higham 2002, eq. 4.4 and 3.5), which is taken to be below
        1000 and moves the gradient less than in proportion. Both sums may be off.
        """
        return self.examples * (self.examples + 1000.0 * self.features) * 2.0**-52


def _delta(delta: float) -> float:
    number = probability("delta", delta)
    if number == 1.0:
        raise InvalidArgument(f"delta must be below 1, got {delta!r}: at 1 nothing is private")
    return number


def _adjacency(adjacency: str) -> Adjacency:
    known = check_adjacency(adjacency)
    if known == "zero-out":
        raise InvalidArgument(
            "adjacency must be 'add-remove' or 'replace-one' for convex learning, got 'zero-out'"
        )
    return known


def _optional(name: str, value: float | None) -> float | None:
    return None if value is None else positive(name, value)
