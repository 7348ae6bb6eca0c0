"""About which σ a run of rare samples is (ε, δ)-private at: quickly, and certifying nothing.

Searches start here and end with a certificate. See ``jumps``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.jump_curves import Step
from tacit.accounting.exact.jump_scout import NOTHING, Scout
from tacit.accounting.exact.jumps import Contour

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.exact.jump_curves import Part

_LEAST, _MOST = 0.3, 10.0  # that σ is searched between
_NEAR = 1e-7  # of ln σ
_DOUBT, _BEND = 0.05, 0.7  # how far off a slope may be, and by how much per ln σ a secant's is


def near_sigma(rate: float, count: int, epsilon: float, delta: float) -> float | None:
    """About the σ at which a run is (ε, δ)-private, to 1e-7 or so; None if it is not moderate."""
    goal = math.log(delta)

    def look(place: float) -> float:
        return Scout(Step(rate, math.exp(place), count)).best_cuts(epsilon)[1] - goal

    rough = _rough(look)
    if rough is None:
        return None
    place, slope = rough
    try:
        excess = _log_delta(Step(rate, math.exp(place), count), epsilon) - goal
        doubt = _DOUBT
        for _ in range(4):
            before, place = place, place - excess / slope
            if doubt * abs(place - before) <= _NEAR:
                break
            was, excess = excess, _log_delta(Step(rate, math.exp(place), count), epsilon) - goal
            # ln δ is about in proportion to σ² here, and bends with it.
            slope = (excess - was) / (place - before) * (1.0 + place - before)
            doubt = _BEND * abs(place - before)
    except (TooSlow, ValueError, ZeroDivisionError):  # as where a part comes out below 0
        return None
    return math.exp(place)


def _rough(look: Callable[[float], float]) -> tuple[float, float] | None:
    """About where ``look``, which falls, is 0, and how fast it falls there: by secants."""
    low, high = math.log(_LEAST), math.log(_MOST)
    above, below = look(low), look(high)
    if not above > 0.0 > below:
        return None
    last = 0
    weights = [1.0, 1.0]
    for _ in range(20):
        middle = 0.5 * (low + high)
        # ln δ bends too much for a secant between ends that are far apart.
        if high - low < 1.0:
            one, other = above * weights[0], below * weights[1]
            middle = (high * one - low * other) / (one - other)
        found = look(middle)
        if abs(found) < 0.05:
            break
        if found > 0.0:
            low, above, weights = middle, found, [1.0, 0.5 * weights[1] if last > 0 else 1.0]
        else:
            high, below, weights = middle, found, [0.5 * weights[0] if last < 0 else 1.0, 1.0]
        last = 1 if found > 0.0 else -1
    step = 0.003
    return middle, (look(middle + step) - found) / step


def _log_delta(step: Step, epsilon: float) -> float:
    """About ln δ(ε)."""
    scout = Scout(step)
    cuts, log_delta = scout.best_cuts(epsilon)
    index, total = cuts[0], 0.0
    kinds: tuple[Part, ...] = ("ordinary", "jumps")
    for part in kinds:
        nothing = NOTHING * math.exp(log_delta)
        if part == "jumps" and scout.jump_mass[index] < nothing:
            continue
        saddle = scout.saddle(index, epsilon, jumps=part == "jumps")
        if saddle.log_height + math.log(saddle.right) >= math.log(nothing):
            contour = Contour(step, scout.cuts[index], saddle, epsilon, part, certain=False)
            total += contour.value(epsilon)
    return math.log(total)
