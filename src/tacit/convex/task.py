"""The task: everything public about a problem of convex learning, in one frozen value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit._validation import positive, probability, whole
from tacit.accounting.events import check_adjacency
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency
    from tacit.convex.losses import Loss


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
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
