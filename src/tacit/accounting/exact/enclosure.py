"""Certified values: how finely they are computed, how far off they may be, and ε(δ) out of δ(ε)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Interval:
    """A certified enclosure: the true value lies between ``lower`` and ``upper``.

    ``two_sided`` is false where no lower end was computed, or none of at least half the upper one;
    ``lower`` is then 0, which says nothing. Of two ends, ``attained`` is false where the upper one
    is that of a pair which no two data sets are known to have: the lower one is that of some
    neighbours, and however finely one computes, the two stay apart. Truncated samples and those of
    a fixed size are of that kind.
    ``method`` names the argument that certifies the upper end, and ``on_grid`` says whether it was
    computed on a grid of losses, which leaves fewer digits and takes longer.
    """

    lower: float
    upper: float
    two_sided: bool = True
    method: str = "exact"
    on_grid: bool = field(default=False, repr=False)
    attained: bool = field(default=True, repr=False)

    @property
    def width(self) -> float:
        """How far the two ends lie apart."""
        return self.upper - self.lower

    @property
    def is_narrow(self) -> bool:
        """Whether the ends agree to a percent: a looser argument can then say hardly less."""
        return math.isfinite(self.upper) and self.width <= 0.01 * self.upper

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


class TooSlow(Exception):
    """A sum would need more nodes than the resolution allows."""


class OutOfRange(ArithmeticError):
    """Every loss of a pair is infinite as far as floating point can tell: noise far too small."""


_BEYOND = 1.01
UNIT_ROUNDOFF = {np.float64: 2.0**-53, np.float32: 2.0**-24}


@dataclass(frozen=True)
class Resolution:
    """How finely to compute. Coarser settings widen bounds; none voids them.

    The defaults serve everyone; tests coarsen each to prove its error term.

    Two integrals are computed by the trapezoid rule: the moment-generating function, over the
    mechanism's output x, and the privacy profile, over the imaginary part u of the tilt.
    """

    relative_error: float = 1e-13
    """What each error term of δ may be, relative to δ, before rounding."""
    output_density: float = 1.0
    """Nodes in x, relative to what the error bound asks for (quadrature error)."""
    output_reach: float = 1.0
    """Range of x, relative to what the error bound asks for (truncation error)."""
    contour_density: float = 1.0
    """Nodes in u, relative to what the error bound asks for (aliasing error)."""
    contour_reach: float = 1.0
    """Range of u, relative to what the error bound asks for (tail error)."""
    dtype: type[np.floating[Any]] = np.float64
    """Arithmetic in which the nodes are computed (rounding error)."""
    most_outputs: int = 40_000
    """Nodes in x past which the contour gives up."""
    most_nodes: int = 4_000_000
    """Nodes in u past which a sum gives up."""
    most_work: float = 3e7
    """Nodes in x times nodes in u past which the contour gives up."""
    lattice_nodes: int = 2**16
    """Points, about, of the lattice onto which cells are moved: more narrow the bracket."""
    other_tilts: bool = True
    """Whether to try other tilts where the best takes too many nodes."""
    lower_end: bool = True
    """Whether the lower end is asked for too, where it takes a sum of its own."""
    expected: float | None = None
    """About the ε that is asked for, where it is known: it saves a search, and decides nothing."""

    @property
    def digits(self) -> float:
        """-ln(relative_error)."""
        return -math.log(self.relative_error)

    @property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next number of ``dtype``."""
        return UNIT_ROUNDOFF[self.dtype]


@dataclass(frozen=True)
class ErrorTerms:
    """Bounds on what separates the computed δ from the true one, by cause."""

    truncation: float = 0.0
    """Outputs x beyond the nodes of the moment-generating function."""
    quadrature: float = 0.0
    """The step between those nodes."""
    rounding: float = 0.0
    """Floating-point arithmetic."""
    tail: float = 0.0
    """Frequencies u beyond the contour's last node."""
    aliasing: float = 0.0
    """The step between the contour's nodes. It only ever adds to the computed δ."""
    phases: float = 0.0
    """Not an error but a sensitivity: Σ|terms|·u, by which rounded phases count."""

    @property
    def above(self) -> float:
        """By how much the true δ may exceed the computed one."""
        return self.truncation + self.quadrature + self.rounding + self.tail

    @property
    def below(self) -> float:
        """By how much the true δ may fall short of the computed one."""
        return self.above + self.aliasing


@dataclass(frozen=True)
class Enclosure:
    """δ at one ε: the computed value, its errors, and the slope dδ/dε."""

    estimate: float
    errors: ErrorTerms
    slope: float

    @property
    def upper(self) -> float:
        """No smaller than the true δ."""
        return min(1.0, self.estimate + self.errors.above)

    @property
    def lower(self) -> float:
        """No larger than the true δ."""
        return max(0.0, self.estimate - self.errors.below)


class Profile(Protocol):
    """A certified privacy profile, precise near the ε it was prepared for."""

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""


def invert(profile: Profile, delta: float, guess: float, method: str = "exact") -> Interval:
    """Finds ε such that δ(ε) is certainly ≤ ``delta``, and one such that it certainly is not.

    Only evaluations of ``profile`` count: the search may fail, and then widens the bracket.
    """
    middle = _newton(profile, delta, guess)
    found = profile.enclose(middle)
    if middle == 0.0 and found.upper <= delta:
        return Interval(0.0, 0.0, method=method)
    slope = max(-found.slope, 1e-300)
    least = 4e-16 * max(1.0, middle)
    upper = lower = middle
    # A little more than the error, which is not the same there.
    gap = max(_BEYOND * (found.upper - delta) / slope, least)
    for _ in range(60):
        upper = middle + gap
        if profile.enclose(upper).upper <= delta:
            break
        gap *= 1.5
    else:
        upper = math.inf
    gap = max(_BEYOND * (delta - found.lower) / slope, least)
    for _ in range(60):
        lower = max(0.0, middle - gap)
        if lower == 0.0 or profile.enclose(lower).lower >= delta:
            break
        gap *= 1.5
    else:
        lower = 0.0
    return Interval(lower, upper, method=method)


def solve_convex(profile: Profile, delta: float, start: float) -> float:
    """About ε(δ) by Newton's method in e^ε, in which every δ is convex, however it bends.

    From either side its second point lies below the root, and it rises from there.
    """
    epsilon = start
    for _ in range(200):
        found = profile.enclose(epsilon)
        if not found.slope < 0.0:
            epsilon *= 0.5
            continue
        gap = (found.estimate - delta) / -found.slope
        before, epsilon = epsilon, max(0.0, epsilon + math.log1p(gap)) if gap > -1.0 else 0.0
        if abs(epsilon - before) <= 1e-10 * max(1.0, epsilon):
            break
    return epsilon


def _newton(profile: Profile, delta: float, guess: float) -> float:
    """Solves ln δ(ε) = ln δ from a guess; the answer is only a starting point.

    Far above the ε that a profile was prepared for its errors drown it: back off from there.
    """
    epsilon, sound = guess, 0.0
    for _ in range(60):
        found = profile.enclose(epsilon)
        if not (found.estimate > 2.0 * found.errors.above and found.slope < 0.0):
            if epsilon - sound <= 1e-9 * epsilon:
                break
            epsilon = 0.5 * (epsilon + sound)
            continue
        sound = epsilon
        step = (math.log(found.estimate) - math.log(delta)) * found.estimate / -found.slope
        before, epsilon = epsilon, max(0.0, epsilon + step)
        # Newton's error is about the square of its last step, of a small ε too.
        if abs(step) <= min(1e-7 * max(1.0, epsilon), 1e-4 * epsilon) or before == epsilon == 0.0:
            break
    return epsilon
