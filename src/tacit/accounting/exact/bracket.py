"""A certified pair of ends, with the name of the argument that gave them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bracket:
    """The truth lies between ``lower`` and ``upper``, by ``method``."""

    lower: float
    upper: float
    method: str

    def within(self, other: Bracket) -> Bracket:
        """What both allow."""
        return Bracket(max(self.lower, other.lower), min(self.upper, other.upper), other.method)
