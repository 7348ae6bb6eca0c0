"""A certified pair of ends, with the name of the argument that gave them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Bracket:
    """The truth lies between ``lower`` and ``upper``, by ``method``."""

    lower: float
    upper: float
    method: str
    tilt: float = 2.0
    """Where a search on the same scale may start."""

    @property
    def is_tight(self) -> bool:
        """Whether a second computation could hardly narrow it."""
        return self.upper - self.lower <= 8e-9 * max(1.0, self.upper)

    @property
    def is_usable(self) -> bool:
        """Whether the ends agree to a percent: the general fallback is then not worth its time."""
        return math.isfinite(self.upper) and self.upper - self.lower <= 0.01 * self.upper

    def within(self, other: Bracket) -> Bracket:
        """What both allow."""
        lower = max(self.lower, other.lower)
        nearer = other if other.upper <= self.upper else self
        return Bracket(lower, nearer.upper, nearer.method, nearer.tilt)
