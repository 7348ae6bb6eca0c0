"""Convex losses of linear scores, and the constants that every guarantee here rests on.

A model has one score x·θ (``outputs`` = 1) or one per class. A loss is a frozen value; its
functions take the scores of many examples, shape (n, outputs), and their targets, shape (n,):

- ``values``: the loss of each example, shape (n,);
- ``slopes``: its derivative in the scores, shape (n, outputs);
- ``bends``: its second derivative in the scores times a direction, both of shape (n, outputs).

The constants hold for all scores and targets: ``slope`` is the largest norm of the derivative,
``curvature`` the largest eigenvalue of the second derivative H. The derivative of an example lies
in the convex hull of 0 and of ``corners`` vectors, none longer than ``slope``: a classifier pushes
away from wrong classes and never towards them, so that the logistic loss has one corner, not two.
``log_volume(r)`` bounds ln det(I + r·H).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

import numpy as np
from scipy.special import expit, logit

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64]


class Loss(Protocol):
    """What the methods ask of a loss."""

    @property
    def outputs(self) -> int:
        """How many scores an example has."""

    @property
    def slope(self) -> float:
        """The largest norm of the derivative in the scores; infinite if there is none."""

    @property
    def curvature(self) -> float:
        """The largest eigenvalue of the second derivative in the scores."""

    @property
    def corners(self) -> int:
        """How many vectors, together with 0, have all derivatives in their convex hull."""

    def log_volume(self, ratio: float) -> float:
        """An upper bound of ln det(I + ratio·H)."""

    def values(self, scores: Array, targets: Array) -> Array:
        """The loss of each example."""

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Its derivative in the scores."""

    def bends(self, scores: Array, targets: Array, directions: Array) -> Array:
        """Its second derivative in the scores, times a direction."""


class ScalarLoss(Loss, Protocol):
    """A loss of one score: what clipping turns into another loss."""

    def interval(self, targets: Array, limits: Array) -> tuple[Array, Array]:
        """Between which scores the derivative stays within ± ``limits``; ±∞ where it always does.

        Where it never does, the ends are the same infinity: the loss is linear everywhere.
        """


@final
@dataclass(frozen=True, slots=True)
class Logistic:
    """ln(1 + e^{-y·t}) for y = ±1.

    >>> Logistic().values(np.array([[0.0]]), np.array([1.0])).round(6).tolist()
    [0.693147]
    """

    outputs: int = 1
    slope: float = 1.0
    curvature: float = 0.25
    corners: int = 1

    def log_volume(self, ratio: float) -> float:
        """One eigenvalue of at most 1/4."""
        return math.log1p(self.curvature * ratio)

    def values(self, scores: Array, targets: Array) -> Array:
        """The loss of each example."""
        return np.asarray(np.logaddexp(0.0, -targets * scores[:, 0]))

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Its derivative."""
        return np.asarray(-targets[:, None] * expit(-targets[:, None] * scores))

    def bends(self, scores: Array, targets: Array, directions: Array) -> Array:  # noqa: ARG002
        """Its second derivative times a direction."""
        return np.asarray(expit(scores) * expit(-scores) * directions)

    def interval(self, targets: Array, limits: Array) -> tuple[Array, Array]:
        """The slope is within s on one side of -y·logit(s), and everywhere if s ≥ 1."""
        with np.errstate(divide="ignore"):
            place = -logit(np.minimum(limits, 1.0))
        return np.where(targets > 0, place, -np.inf), np.where(targets > 0, np.inf, -place)


@final
@dataclass(frozen=True, slots=True)
class Squared:
    """(t - y)²/2. Its slope is unbounded, so that no method takes it unless it is clipped."""

    outputs: int = 1
    slope: float = math.inf
    curvature: float = 1.0
    corners: int = 2

    def log_volume(self, ratio: float) -> float:
        """One eigenvalue of 1."""
        return math.log1p(ratio)

    def values(self, scores: Array, targets: Array) -> Array:
        """The loss of each example."""
        return np.asarray(0.5 * (scores[:, 0] - targets) ** 2)

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Its derivative."""
        return scores - targets[:, None]

    def bends(self, scores: Array, targets: Array, directions: Array) -> Array:  # noqa: ARG002
        """Its second derivative times a direction."""
        return directions

    def interval(self, targets: Array, limits: Array) -> tuple[Array, Array]:
        """The slope is within s for scores within s of the target."""
        return targets - limits, targets + limits


@final
@dataclass(frozen=True, slots=True)
class Linear:
    """The score itself: the hard instance of the lower bounds, and of the lecture on clipping."""

    outputs: int = 1
    slope: float = 1.0
    curvature: float = 0.0
    corners: int = 1

    def log_volume(self, ratio: float) -> float:  # noqa: ARG002
        """There is no second derivative."""
        return 0.0

    def values(self, scores: Array, targets: Array) -> Array:  # noqa: ARG002
        """The loss of each example."""
        return scores[:, 0]

    def slopes(self, scores: Array, targets: Array) -> Array:  # noqa: ARG002
        """Its derivative, 1."""
        return np.ones_like(scores)

    def bends(self, scores: Array, targets: Array, directions: Array) -> Array:  # noqa: ARG002
        """Its second derivative, 0."""
        return np.zeros_like(directions)

    def interval(self, targets: Array, limits: Array) -> tuple[Array, Array]:  # noqa: ARG002
        """The slope is within s everywhere or nowhere; nowhere is an interval at +∞."""
        return np.where(limits >= 1.0, -np.inf, np.inf), np.full_like(limits, np.inf)


@final
@dataclass(frozen=True, slots=True)
class HuberHinge:
    """The hinge max(0, 1 - y·t) with its kink rounded over ±width (Chaudhuri et al. 2011, eq. 7).

    0 for y·t > 1 + h, (1 + h - y·t)²/4h within h of 1, and 1 - y·t below.
    """

    width: float = 0.5
    outputs: int = 1
    slope: float = 1.0
    corners: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", positive("width", self.width))

    @property
    def curvature(self) -> float:
        """1/2h."""
        return 0.5 / self.width

    def log_volume(self, ratio: float) -> float:
        """One eigenvalue of at most 1/2h."""
        return math.log1p(self.curvature * ratio)

    def values(self, scores: Array, targets: Array) -> Array:
        """The loss of each example."""
        short = 1.0 + self.width - targets * scores[:, 0]
        bend = np.clip(short, 0.0, 2.0 * self.width)
        return np.asarray(0.25 * bend**2 / self.width + (short - bend) * (short > bend))

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Its derivative."""
        short = 1.0 + self.width - targets[:, None] * scores
        return -targets[:, None] * np.clip(short / (2.0 * self.width), 0.0, 1.0)

    def bends(self, scores: Array, targets: Array, directions: Array) -> Array:
        """Its second derivative times a direction: it has jumps at both ends of the rounding."""
        short = 1.0 + self.width - targets[:, None] * scores
        return self.curvature * directions * ((short > 0.0) & (short < 2.0 * self.width))

    def interval(self, targets: Array, limits: Array) -> tuple[Array, Array]:
        """The slope is within s on one side of y·(1 + h - 2hs), and everywhere if s ≥ 1."""
        place = np.where(limits >= 1.0, -np.inf, 1.0 + self.width - 2.0 * self.width * limits)
        return np.where(targets > 0, place, -np.inf), np.where(targets > 0, np.inf, -place)


@final
@dataclass(frozen=True, slots=True)
class Softmax:
    """The cross-entropy of ``classes`` scores; targets are the classes' numbers.

    The derivative is p - e_y for probabilities p: its corners are e_k - e_y, k ≠ y, of norm √2. The
    second derivative diag(p) - pp' has trace 1 - |p|² ≤ 1 - 1/K over K - 1 eigenvalues, none above
    1/2 (Böhning 1992), and Σ ln(1 + r·v) is largest for equal ones.

    ``mass`` below 1 does to it what clipping does to a loss of one score: cross-entropy is the
    largest value over the simplex of p·(t - t_y) plus the entropy of p, and here no more than
    ``mass`` of p may be on the wrong classes. The loss is the same wherever the right class has a
    probability of 1 - mass or more, and beyond that it is ``mass`` times the logarithm of the sum
    of exponentials of the wrong scores, less t_y: all corners are ``mass`` times as long.

    >>> Softmax(4).log_volume(2.0) == 3 * math.log(1.5), Softmax(4, mass=0.5).slope
    (True, 0.7071067811865476)
    """

    classes: int
    mass: float = 1.0
    curvature: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", whole("classes", self.classes, at_least=2))
        object.__setattr__(self, "mass", positive("mass", self.mass))
        if self.mass > 1.0:
            raise InvalidArgument(f"mass must be at most 1, got {self.mass!r}")

    @property
    def outputs(self) -> int:
        """One score a class."""
        return self.classes

    @property
    def slope(self) -> float:
        """√2, times the mass."""
        return self.mass * math.sqrt(2.0)

    @property
    def corners(self) -> int:
        """One per wrong class."""
        return self.classes - 1

    def log_volume(self, ratio: float) -> float:
        """K - 1 eigenvalues of 1/K each; or K - 2 of mass/(K - 1), where the mass is cut."""
        whole_mass = (self.classes - 1) * math.log1p(ratio / self.classes)
        cut = (self.classes - 2) * math.log1p(ratio * self.mass / (self.classes - 1))
        return max(whole_mass, cut)

    def values(self, scores: Array, targets: Array) -> Array:
        """The loss of each example."""
        top = scores.max(axis=1)
        logs = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top
        values = np.asarray(logs - _true_scores(scores, targets))
        # values = -ln p_y, so that the wrong classes have the mass 1 - e^-value.
        cut = -np.expm1(-values) > self.mass
        if np.any(cut):
            wrong, right = _without_true(scores[cut], targets[cut])
            top = wrong.max(axis=1)
            logs = np.log(np.exp(wrong - top[:, None]).sum(axis=1)) + top
            values[cut] = self.mass * (logs - right) + _entropy(self.mass)
        return values

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Its derivative."""
        chances = self._chances(scores, targets)[0]
        chances[np.arange(len(chances)), targets.astype(np.intp)] -= 1.0
        return chances

    def bends(self, scores: Array, targets: Array, directions: Array) -> Array:
        """Its second derivative times a direction."""
        chances, cut = self._chances(scores, targets)
        weighted = chances * directions
        centre = weighted.sum(axis=1, keepdims=True)
        if np.any(cut):  # only the wrong classes' shares of the mass still move
            place = np.flatnonzero(cut), targets[cut].astype(np.intp)
            chances[place], weighted[place] = 0.0, 0.0
            centre[cut] = weighted[cut].sum(axis=1, keepdims=True) / self.mass
        return np.asarray(weighted - chances * centre)

    def _chances(self, scores: Array, targets: Array) -> tuple[Array, NDArray[np.bool_]]:
        """p, with the wrong classes' part brought down to the mass, and where that was done."""
        chances = _softmax(scores)
        place = np.arange(len(chances)), targets.astype(np.intp)
        right = chances[place]
        cut = 1.0 - right > self.mass
        if np.any(cut):
            wrong = chances[cut]
            rows = np.arange(len(wrong)), targets[cut].astype(np.intp)
            wrong[rows] = 0.0
            wrong *= self.mass / wrong.sum(axis=1, keepdims=True)
            wrong[rows] = 1.0 - self.mass
            chances[cut] = wrong
        return chances, cut


@final
@dataclass(frozen=True, slots=True)
class SimplexHinge:
    """The hinge of several classes with its kinks rounded: ``HuberHinge`` for K classes.

    The largest value over the simplex of p·v - (h/2)·|p - e_y|², where v_k = t_k - t_y + 1 + h for
    the wrong classes and v_y = 0: the hinge of Crammer & Singer (2001), smoothed as in Nesterov
    (2005). For two classes it is ``HuberHinge`` of t_y - t_k. The derivative is p - e_y, with the
    corners of ``Softmax``; the second one is a projection over h, of rank at most K - 1.
    """

    classes: int
    width: float = 0.5
    slope: float = math.sqrt(2.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", whole("classes", self.classes, at_least=2))
        object.__setattr__(self, "width", positive("width", self.width))

    @property
    def outputs(self) -> int:
        """One score a class."""
        return self.classes

    @property
    def corners(self) -> int:
        """One per wrong class."""
        return self.classes - 1

    @property
    def curvature(self) -> float:
        """1/h."""
        return 1.0 / self.width

    def log_volume(self, ratio: float) -> float:
        """K - 1 eigenvalues of at most 1/h."""
        return (self.classes - 1) * math.log1p(self.curvature * ratio)

    def values(self, scores: Array, targets: Array) -> Array:
        """The loss of each example."""
        shortfalls, right = self._shortfalls(scores, targets)
        moved = _onto_simplex(right + shortfalls / self.width) - right
        # v is 0 at the right class, so that p·v = (p - e_y)·v.
        return np.asarray(np.sum(moved * (shortfalls - 0.5 * self.width * moved), axis=1))

    def slopes(self, scores: Array, targets: Array) -> Array:
        """Its derivative."""
        shortfalls, right = self._shortfalls(scores, targets)
        return _onto_simplex(right + shortfalls / self.width) - right

    def bends(self, scores: Array, targets: Array, directions: Array) -> Array:
        """Its second derivative times a direction: the directions centred on p's support."""
        shortfalls, right = self._shortfalls(scores, targets)
        support = _onto_simplex(right + shortfalls / self.width) > 0.0
        kept = np.where(support, directions, 0.0)
        centre = kept.sum(axis=1, keepdims=True) / support.sum(axis=1, keepdims=True)
        return self.curvature * np.where(support, kept - centre, 0.0)

    def _shortfalls(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """V and e_y."""
        right = np.zeros_like(scores)
        right[np.arange(len(scores)), targets.astype(np.intp)] = 1.0
        behind = scores - _true_scores(scores, targets)[:, None]
        return behind + (1.0 + self.width) * (1.0 - right), right


def _softmax(scores: Array) -> Array:
    found = np.exp(scores - scores.max(axis=1, keepdims=True))
    found /= found.sum(axis=1, keepdims=True)
    return np.asarray(found)


def _without_true(scores: Array, targets: Array) -> tuple[Array, Array]:
    """The scores with the right one at -∞, and the right one."""
    wrong = scores.copy()
    wrong[np.arange(len(wrong)), targets.astype(np.intp)] = -np.inf
    return wrong, _true_scores(scores, targets)


def _entropy(mass: float) -> float:
    """Of two events, one with this probability."""
    rest = 1.0 - mass
    return -mass * math.log(mass) - (rest * math.log(rest) if rest > 0.0 else 0.0)


def _true_scores(scores: Array, targets: Array) -> Array:
    return np.asarray(scores[np.arange(len(scores)), targets.astype(np.intp)])


def _onto_simplex(points: Array) -> Array:
    """The nearest point of the simplex to each row (Held, Wolfe & Crowder 1974)."""
    falling = -np.sort(-points, axis=1)
    excess = np.cumsum(falling, axis=1) - 1.0
    counts = np.arange(1, points.shape[1] + 1)
    size = np.count_nonzero(falling * counts > excess, axis=1)
    level = excess[np.arange(len(points)), size - 1] / size
    return np.asarray(np.maximum(points - level[:, None], 0.0))


# ---- the loss that clipping optimises


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
