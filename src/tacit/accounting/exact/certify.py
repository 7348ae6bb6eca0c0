"""Certified ends of ε(δ) and δ(ε) for a whole event: every direction, every caveat."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tacit.accounting.exact.decomposition import decompose
from tacit.accounting.exact.resolution import Resolution
from tacit.accounting.exact.solve import (
    Laid,
    certainly_at_most,
    delta_bracket,
    epsilon_bracket,
    lay,
)
from tacit.accounting.results import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.exact.bracket import Bracket
    from tacit.accounting.exact.pairs import Decomposition, Direction

_DEFAULT = Resolution()
_QUICK = Resolution(relative_error=1e-5, lower_end=False)
# The largest loss of a lattice is a product and a sum: its own rounding must not lower a bound.
_ROUND_UP = 1.0 + 2.0**-50


def enclose_epsilon(
    event: Event, delta: float, adjacency: Adjacency, resolution: Resolution = _DEFAULT
) -> Interval:
    """Certified ends of the smallest ε at which ``event`` is (ε, ``delta``)-private.

    Raises:
        UnsupportedEvent: if the event has no dominating pair that tacit knows.
    """
    decomposition = decompose(event, adjacency)
    if not decomposition.parts:
        return Interval(0.0, 0.0, method="closed form")
    if decomposition.coupling > 0.0:
        return _coupled_epsilon(decomposition, delta, resolution)
    return _epsilon(decomposition, delta, resolution)


def _epsilon(decomposition: Decomposition, delta: float, resolution: Resolution) -> Interval:
    first, *others = decomposition.directions()
    found = epsilon_bracket(first, delta, resolution)
    for other in others:
        if _is_smaller(other, found, delta):
            continue
        rival = epsilon_bracket(other, delta, resolution)
        method = rival.method if rival.upper > found.upper else found.method
        found = replace(
            found,
            lower=max(found.lower, rival.lower),
            upper=max(found.upper, rival.upper),
            method=method,
        )
    lower = found.lower if decomposition.tight else 0.0
    return _interval(lower, found.upper * _ROUND_UP, found.method)


def _interval(lower: float, upper: float, method: str) -> Interval:
    """Both ends, if the lower one is one: 0 says nothing, except of something that is 0."""
    return Interval(lower, upper, lower > 0.0 or upper == 0.0, method)


def _is_smaller(direction: Direction, found: Bracket, delta: float) -> bool:
    """Whether a quick look certifies that this direction has δ(ε) ≤ ``delta`` already."""
    if math.isinf(found.upper):
        return False
    return certainly_at_most(direction, found.upper, delta, _QUICK, found.tilt)


def _coupled_epsilon(
    decomposition: Decomposition, delta: float, resolution: Resolution
) -> Interval:
    """The smallest ε found with δ(ε) + (1 + e^ε)·coupling ≤ ``delta``.

    Each round leaves out of δ what the coupling costs at the last ε; ε only rises, and the answer
    is kept only if the inequality holds there.
    """
    coupling, epsilon = decomposition.coupling, 0.0
    for _ in range(60):
        room = delta - (1.0 + math.exp(min(epsilon, 700.0))) * coupling
        if room <= 0.0:
            break
        found = _epsilon(decomposition, room, resolution)
        if found.upper <= epsilon * (1.0 + 1e-12):
            return Interval(0.0, epsilon, two_sided=False, method=f"{found.method}, coupled")
        # A step beyond the last answer, so that the rounds end.
        epsilon = found.upper * (1.0 + 1e-13)
    return Interval(0.0, math.inf, two_sided=False, method="coupled")


def enclose_delta(
    event: Event, epsilon: float, adjacency: Adjacency, resolution: Resolution = _DEFAULT
) -> Interval:
    """Certified ends of the smallest δ at which ``event`` is (``epsilon``, δ)-private.

    Raises:
        UnsupportedEvent: if the event has no dominating pair that tacit knows.
    """
    decomposition = decompose(event, adjacency)
    if not decomposition.parts:
        return Interval(0.0, 0.0, method="closed form")
    first, *others = decomposition.directions()
    brackets = [delta_bracket(first, epsilon, resolution)]
    for other in others:
        if not certainly_at_most(other, epsilon, brackets[0].upper, _QUICK, brackets[0].tilt):
            brackets.append(delta_bracket(other, epsilon, resolution))
    largest = max(brackets, key=lambda bracket: bracket.upper)
    coupled = (1.0 + math.exp(min(epsilon, 700.0))) * decomposition.coupling
    upper = min(1.0, largest.upper + coupled)
    lower = max(bracket.lower for bracket in brackets) if decomposition.tight else 0.0
    return _interval(lower, upper, largest.method)


@dataclass(frozen=True, eq=False)
class LaidCurve:
    """δ(ε) of an event at many ε for little more than the price of one: upper ends only."""

    directions: tuple[Laid, ...]
    coupling: float

    def delta(self, epsilon: float) -> float:
        """No smaller than δ(``epsilon``)."""
        largest = max((one.delta(epsilon) for one in self.directions), default=0.0)
        return min(1.0, largest + (1.0 + math.exp(min(epsilon, 700.0))) * self.coupling)

    def epsilon(self, delta: float) -> float:
        """No smaller than ε(``delta``), for a δ it was laid about; infinite where none is known."""
        found = max((one.epsilon(delta) for one in self.directions), default=0.0) * _ROUND_UP
        return found if self.coupling == 0.0 else self._coupled(delta)

    def _coupled(self, delta: float) -> float:
        """By halves, for the coupling adds to δ what grows with ε."""
        low, high = 0.0, max(place.epsilon for one in self.directions for place in one.places)
        if not (math.isfinite(high) and self.delta(high) <= delta):
            return math.inf
        while high - low > 1e-9 * max(1.0, high):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


def lay_curve(
    event: Event, adjacency: Adjacency, deltas: Sequence[float], resolution: Resolution
) -> LaidCurve:
    """Lays the curve of ``event``, to be sharp about each of ``deltas``.

    Guarantee:
        Whatever it is asked, its answers are upper bounds; far from ``deltas`` they may be loose.

    Raises:
        UnsupportedEvent: if the event has no dominating pair that tacit knows.
    """
    decomposition = decompose(event, adjacency)
    if not decomposition.parts:
        return LaidCurve((), 0.0)
    laid = tuple(lay(one, deltas, resolution) for one in decomposition.directions())
    return LaidCurve(laid, decomposition.coupling)
