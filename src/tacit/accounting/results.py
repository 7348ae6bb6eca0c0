"""What an accountant answers: a bound, an interval, or a number that says it is neither."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A certified enclosure: the true value lies between ``lower`` and ``upper``.

    ``two_sided`` is false where no lower end was computed; ``lower`` is then 0, which says nothing.
    ``method`` names the argument that certifies the upper end.
    """

    lower: float
    upper: float
    two_sided: bool = True
    method: str = "exact"

    @property
    def width(self) -> float:
        """How far the two ends lie apart."""
        return self.upper - self.lower

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


class Approximation(float):
    """A number that is not a bound: the truth may lie on either side of it.

    >>> Approximation(0.5)
    Approximation(0.5, not a bound)
    """

    def __repr__(self) -> str:
        return f"Approximation({float(self)!r}, not a bound)"
