"""Certified values of δ(ε), and their inversion into certified values of ε(δ)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class TooSlow(Exception):
    """A sum would need more nodes than the resolution allows."""


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


@dataclass(frozen=True)
class EpsilonBracket:
    """Certified ends of ε(δ); ``upper`` is infinite where nothing could be certified."""

    lower: float
    upper: float


def invert(profile: Profile, delta: float, guess: float) -> EpsilonBracket:
    """Finds ε such that δ(ε) is certainly ≤ ``delta``, and one such that it certainly is not.

    Only evaluations of ``profile`` count: the search may fail, and then widens the bracket.
    """
    middle = _newton(profile, delta, guess)
    upper = _certain(profile, delta, middle, upward=True)
    lower = _certain(profile, delta, middle, upward=False)
    return EpsilonBracket(lower, upper)


def _newton(profile: Profile, delta: float, guess: float) -> float:
    """Solves ln δ(ε) = ln δ from a guess; the answer is only a starting point."""
    epsilon = guess
    for _ in range(40):
        found = profile.enclose(epsilon)
        if not (found.estimate > 0.0 and found.slope < 0.0):
            return epsilon
        step = (math.log(found.estimate) - math.log(delta)) * found.estimate / -found.slope
        epsilon = max(0.0, epsilon + step)
        if abs(step) <= 1e-14 * max(1.0, epsilon):
            break
    return epsilon


def _certain(profile: Profile, delta: float, middle: float, *, upward: bool) -> float:
    """Steps away from ``middle`` until the profile certifies the side of ``delta`` it is on."""
    found = profile.enclose(middle)
    if upward and middle == 0.0 and found.upper <= delta:
        return 0.0
    margin = found.errors.above if upward else found.errors.below
    reach = max(2.0 * margin / max(-found.slope, 1e-300), 4e-16 * max(1.0, middle))
    for _ in range(60):
        candidate = middle + reach if upward else max(0.0, middle - reach)
        at = profile.enclose(candidate)
        if at.upper <= delta if upward else at.lower >= delta:
            return candidate
        if not upward and candidate == 0.0:
            return 0.0
        reach *= 2.0
    return math.inf if upward else 0.0
