"""What clipping optimises: clipped gradients of a linear model are those of another loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from tacit._validation import positive

if TYPE_CHECKING:
    from tacit.convex.losses import Array, ScalarLoss


@final
@dataclass(frozen=True, slots=True)
class Huberised:
    """The loss whose gradients are those of ``loss``, each clipped to the norm ``clip``.

    The gradient of f_y(x·θ) is f_y'(x·θ)·x. Clipping it to norm B cuts the slope f' at ±B/|x|, and
    a cut increasing function is increasing: it is the derivative of the convex function that equals
    f between the scores t₁ ≤ t₂ where |f'| ≤ B/|x| and goes on in straight lines of slope ±B/|x|
    beyond (Song, Steinke, Thakkar & Thakurta 2021; Yu-Xiang Wang's lecture 13). So DP-SGD on a
    linear model converges to the minimum of this loss, which may be far from that of ``loss``. With
    several scores an example there is no such function in general.

    ``norms`` are the norms |x| of the examples.

    >>> from tacit.convex.losses import Squared
    >>> hubers = Huberised(Squared(), clip=1.0)
    >>> scores, targets, norms = np.array([[0.5], [9.0]]), np.zeros(2), np.array([1.0, 2.0])
    >>> hubers.slopes(scores, targets, norms).tolist()
    [[0.5], [0.5]]
    >>> hubers.values(scores, targets, norms).tolist()
    [0.125, 4.375]
    """

    loss: ScalarLoss
    clip: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", positive("clip", self.clip))

    def limits(self, norms: Array) -> Array:
        """The largest slope B/|x| of each example; infinite for x = 0."""
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.clip / norms)

    def interval(self, targets: Array, norms: Array) -> tuple[Array, Array]:
        """The scores t₁ and t₂ between which the loss is unchanged."""
        return self.loss.interval(targets, self.limits(norms))

    def values(self, scores: Array, targets: Array, norms: Array) -> Array:
        """The Huberised loss of each example.

        It is f at the score moved into [t₁, t₂], and a straight line from there. Where the loss is
        linear everywhere (t₁ = t₂ = ∞) the line goes through f(0) at 0.
        """
        low, high = self.interval(targets, norms)
        given = scores[:, 0]
        anchor = np.where(np.isinf(low) & (low == high), 0.0, np.clip(given, low, high))
        beyond = given - anchor
        slope = self.slopes(scores, targets, norms)[:, 0]
        base = self.loss.values(anchor[:, None], targets)
        return np.asarray(base + np.where(beyond == 0.0, 0.0, slope * beyond))

    def slopes(self, scores: Array, targets: Array, norms: Array) -> Array:
        """Its derivative: that of ``loss``, cut at ±B/|x|."""
        limits = self.limits(norms)[:, None]
        return np.clip(self.loss.slopes(scores, targets), -limits, limits)

    def bends(self, scores: Array, targets: Array, norms: Array, directions: Array) -> Array:
        """Its second derivative times a direction: none on the straight parts."""
        inside = np.abs(self.loss.slopes(scores, targets)) < self.limits(norms)[:, None]
        return np.where(inside, self.loss.bends(scores, targets, directions), 0.0)
