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
    found = profile.enclose(middle)
    if middle == 0.0 and found.upper <= delta:
        return EpsilonBracket(0.0, 0.0)
    slope = max(-found.slope, 1e-300)
    least = 4e-16 * max(1.0, middle)
    upper = lower = middle
    gap = max((found.upper - delta) / slope, least)
    for _ in range(60):
        upper = middle + gap
        if profile.enclose(upper).upper <= delta:
            break
        gap *= 1.5
    else:
        upper = math.inf
    gap = max((delta - found.lower) / slope, least)
    for _ in range(60):
        lower = max(0.0, middle - gap)
        if lower == 0.0 or profile.enclose(lower).lower >= delta:
            break
        gap *= 1.5
    else:
        lower = 0.0
    return EpsilonBracket(lower, upper)


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
        epsilon = max(0.0, epsilon + step)
        # Newton's error is about the square of its last step.
        if abs(step) <= 1e-7 * max(1.0, epsilon):
            break
    return epsilon
