"""A certified pair of ends, with the name of the argument that gave them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bracket:
    """The truth lies between ``lower`` and ``upper``, by ``method``."""

    lower: float
    upper: float
    method: str
    tilt: float = 2.0
    """Where a search on the same scale may start."""

    def within(self, other: Bracket) -> Bracket:
        """What both allow."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        return Bracket(lower, upper, other.method, other.tilt)
