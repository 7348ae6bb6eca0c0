"""What an audit found: a lower bound on ε, how it was reached, and what that took for granted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tacit._validation import open_probability, probability

NOTHING = "nothing: it holds for every mechanism and every score, if the trials are independent"
GAUSSIAN_CURVE = (
    "the mechanism's trade-off curve is that of a Gaussian; that it is not mu-GDP for a smaller mu "
    "takes nothing for granted"
)


@dataclass(frozen=True)
class LowerBound:
    """The mechanism's ε at ``delta`` is at least ``epsilon``, with probability ``confidence``.

    Attributes:
        epsilon: The bound; 0 says nothing.
        delta: The δ that it is meant for.
        confidence: In a fraction of at most 1 - confidence of all audits the bound is too high.
        method: What was computed, in a few words.
        assumption: What must be true for the bound to hold, in words.
        numbers: What it was computed from, and what was found on the way, by name.

    Guarantee:
        If the assumption holds, P(ε of the mechanism < ``epsilon``) ≤ 1 - ``confidence``. It is
        a statement about this one bound: the largest of several such bounds is no bound at the
        same confidence (``judge`` corrects for that).
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    assumption: str
    numbers: tuple[tuple[str, float], ...] = ()

    def number(self, name: str) -> float:
        """The number of that name.

        >>> LowerBound(1.0, 1e-5, 0.95, "by hand", "nothing", (("mu", 0.3),)).number("mu")
        0.3
        """
        return dict(self.numbers)[name]

    def to_plain(self) -> dict[str, Any]:
        """The bound in JSON's types."""
        return {**asdict(self), "numbers": dict(self.numbers)}

    def describe(self) -> str:
        """One line for people.

        >>> print(LowerBound(0.613, 1e-5, 0.95, "every threshold", "nothing").describe())
        epsilon >= 0.613 at delta = 1e-05, 95% confidence (every threshold; it assumes nothing)
        """
        return (
            f"epsilon >= {self.epsilon:.4g} at delta = {self.delta:g}, {100 * self.confidence:g}% "
            f"confidence ({self.method}; it assumes {self.assumption})"
        )


def failure_rate(confidence: float) -> float:
    """How often a bound of this confidence may be wrong.

    >>> round(failure_rate(0.95), 12)
    0.05
    """
    return 1.0 - open_probability("confidence", confidence)


def delta_of(delta: float) -> float:
    """A δ for which a bound is asked: 0 is one.

    >>> delta_of(0)
    0.0
    """
    return probability("delta", delta)
