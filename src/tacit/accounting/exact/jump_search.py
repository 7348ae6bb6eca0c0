"""Searches by the profile of jumps: ε at a δ, δ at an ε, and about which σ a run is private at.

They go by sums without bounds, which are quick and certify nothing, and end with a certificate.
See ``jumps``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tacit.accounting.exact.enclosure import Interval, TooSlow, invert
from tacit.accounting.exact.jump_curves import Step
from tacit.accounting.exact.jump_scout import NOTHING, Scout
from tacit.accounting.exact.jumps import LEAST, TIGHT, Contour, lay_jumps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.exact.enclosure import Enclosure
    from tacit.accounting.exact.jump_curves import Cut, Part
    from tacit.accounting.exact.jump_scout import Saddle
    from tacit.accounting.exact.jumps import JumpProfile

    Place = tuple[Part, Cut, Saddle]

_LEAST, _MOST = 0.3, 10.0  # that σ is searched between
_LIKELY, _LARGE = 1e-6, 5.0  # a δ and an ε above which the look along the real line is far off
_NEAR = 2.5e-7  # of ln σ
_CLOSE = 0.25  # of ln δ, where the look along the real line, with leaps, has done its part
_FAR = 0.1  # of ln σ, beyond which another cut may be better
_DOUBT, _BEND = 0.05, 0.7  # how far off a slope may be, and by how much per ln σ a secant's is
_FAR_OFF = 3.0  # of ln δ, from where another sketch is needed
_STRIDE, _LONGEST, _LEAP = 0.05, 0.5, 0.01  # of ln σ: the first step, any, and one for a leap


# ---- with a certificate


def profile_with_jumps(
    step: Step, delta: float, expected: float | None = None, enough: float = TIGHT
) -> tuple[JumpProfile, Interval] | None:
    """The profile about δ and certified ends of ε(δ), if there is a contour.

    ``expected`` is about ε, if it is known; ends about ``enough``·max(1, ε) apart will do.
    """
    scout = Scout(step)
    goal = math.log(delta)
    guess = scout.epsilon(goal) if expected is None else expected
    if expected is None and (delta > _LIKELY or guess > _LARGE):
        guess = _near_epsilon(scout, guess, goal)
    found: tuple[JumpProfile, Interval] | None = None
    cut, low, high = None, 0.0, math.inf
    for _ in range(8):
        try:
            profile, cut = lay_jumps(scout, guess, delta, cut, enough)
        except TooSlow:
            break
        at = profile.enclose(guess)
        if at.upper + math.expm1(guess) <= delta:  # δ(ε) falls no faster than -e^ε
            return profile, Interval(0.0, 0.0, method="jumps")
        if not at.slope < 0.0:
            break
        excess = math.log(at.estimate / delta)
        nearer = guess - excess * at.estimate / at.slope
        if abs(excess) < 1.0 and nearer > 0.0:
            ends = invert(profile, delta, nearer, "jumps")
            if found is None or ends.width < found[1].width:
                found = profile, ends
            if ends.width <= 2.0 * enough * max(1.0, ends.upper) or abs(excess) < 0.05:
                break
        low, high = (guess, high) if excess > 0.0 else (low, guess)
        if abs(excess) >= 1.0:
            # The look along the real line is off by a factor that varies slowly.
            off = scout.best_cuts(guess)[1] - math.log(at.estimate)
            nearer = _near_epsilon(scout, scout.epsilon(goal + off), goal)
        inside = low < nearer < high
        guess = nearer if inside else _between(low, high, delta)
    return found


def _between(low: float, high: float, delta: float) -> float:
    """An ε to try next, if nothing better is known."""
    if math.isinf(high):
        return 3.0 * low
    return math.sqrt(low * high) if low > 0.0 else max(0.25 * high, 1e-3 * delta)


def delta_with_jumps(step: Step, epsilon: float) -> Enclosure | None:
    """δ(ε) with its errors, if there is a contour."""
    scout, near = Scout(step), max(epsilon, LEAST)
    delta = math.exp(scout.best_cuts(near)[1])
    found = None
    for _ in range(2):
        try:
            found = lay_jumps(scout, near, delta).profile.enclose(epsilon)
        except TooSlow:
            break
        if 0.1 < found.estimate / delta < 10.0:
            break
        delta = found.estimate  # about which to be sharp
    return found


# ---- without one


@dataclass(frozen=True)
class Sketch:
    """About δ(ε), near one ε."""

    parts: tuple[Contour, ...]

    def log_delta(self, epsilon: float) -> tuple[float, float]:
        """About ln δ(ε), and its slope.

        Raises:
            ValueError: if δ comes out below 0.
        """
        found = [part.look(epsilon) for part in self.parts]
        value = math.fsum(one for one, _ in found)
        return math.log(value), math.fsum(slope for _, slope in found) / value


def _sketch(step: Step, places: Sequence[Place], epsilon: float) -> Sketch:
    return Sketch(
        tuple(
            Contour(step, cut, saddle, epsilon, part, certain=False) for part, cut, saddle in places
        )
    )


def _places(scout: Scout, epsilon: float) -> Sequence[Place]:
    """What δ(ε) is the sum of, as far as it matters, and where to integrate it."""
    cuts, log_delta = scout.best_cuts(epsilon)
    index, nothing = cuts[0], 10.0 * NOTHING * math.exp(log_delta)
    kinds: tuple[Part, ...] = ("ordinary", "jumps")
    found = []
    for part in kinds:
        if part == "jumps" and scout.jump_mass[index] < nothing:
            continue
        saddle = scout.saddle(index, epsilon, jumps=part == "jumps")
        if saddle.log_height + math.log(saddle.right) >= math.log(nothing):
            found.append((part, scout.cuts[index], saddle))
    return found


def _near_epsilon(scout: Scout, guess: float, goal: float) -> float:
    """About the ε at which ln δ is ``goal``, or the guess if nothing better is found."""
    epsilon = guess
    try:
        for _ in range(2):
            sketch = _sketch(scout.step, _places(scout, epsilon), epsilon)
            first = sketch.log_delta(epsilon)[0] - goal
            for _ in range(3):
                log_delta, slope = sketch.log_delta(epsilon)
                step = (goal - log_delta) / slope
                if not math.isfinite(step):
                    return guess
                epsilon = min(max(epsilon + step, 0.3 * epsilon), 3.0 * epsilon)
            if epsilon < 0.03 * guess:
                return guess  # there may be none: a certificate says so as well from there
            if abs(first) < _FAR_OFF:
                break
    except (TooSlow, ValueError, ZeroDivisionError):  # as where a part comes out below 0
        return guess
    return epsilon


def near_sigma(rate: float, count: int, epsilon: float, delta: float, guess: float) -> float | None:
    """About the σ at which a run is (ε, δ)-private, to 3e-7 or so; None if it is not moderate.

    ``guess`` is where to begin: what is enough for the many small losses and for one jump.
    """
    goal = math.log(delta)
    rough = _rough(_Goal(rate, count, epsilon, goal), math.log(guess))
    if rough is None:
        return None
    scout, slope = rough
    place = math.log(scout.step.sigma)
    try:
        places = _places(scout, epsilon)
        excess = _sketch(scout.step, places, epsilon).log_delta(epsilon)[0] - goal
        points = [(place, excess)]
        for _ in range(5):
            place, doubt = _nearer(points, slope)
            if doubt <= _NEAR:
                break
            step = Step(rate, math.exp(place), count)
            if abs(place - points[-1][0]) > _FAR:
                places = _places(Scout(step), epsilon)
            excess = _sketch(step, places, epsilon).log_delta(epsilon)[0] - goal
            points.append((place, excess))
    except (TooSlow, ValueError, ZeroDivisionError):
        return None
    return math.exp(place)


def _nearer(points: Sequence[tuple[float, float]], slope: float) -> tuple[float, float]:
    """About where an excess is 0, and how far off that may be: from what is known at some places.

    By the slope if there is one, by a secant between two, by a parabola through three.
    """
    place, excess = points[-1]
    if len(points) == 1:
        return place - excess / slope, _DOUBT * abs(excess / slope)
    before, was = points[-2]
    # ln δ is about in proportion to σ² here, and bends with it.
    step = -excess * (place - before) / ((excess - was) * (1.0 + place - before))
    if len(points) == 2:
        return place + step, _BEND * abs(place - before) * abs(step)
    first, at_first = points[-3]
    bent = first * was * excess / ((at_first - was) * (at_first - excess))
    bent += before * at_first * excess / ((was - at_first) * (was - excess))
    bent += place * at_first * was / ((excess - at_first) * (excess - was))
    return bent, _DOUBT * abs(bent - place - step)


def enough_for_one(rate: float, epsilon: float, delta: float) -> float:
    """About the σ at which one step is (ε, δ)-private, of those that are searched between."""
    gain = math.expm1(min(epsilon, 600.0))

    def excess(sigma: float) -> float:
        cut = sigma**2 * math.log1p(gain / rate) + 0.5
        far = 0.5 * math.erfc(cut / sigma / math.sqrt(2.0))
        drawn = 0.5 * math.erfc((cut - 1.0) / sigma / math.sqrt(2.0))
        return rate * drawn - (gain + rate) * far - delta

    low, high = _LEAST, _MOST
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0.0 else (low, middle)
    return low


class _Goal(NamedTuple):
    """What σ is searched for."""

    rate: float
    steps: int
    epsilon: float
    log_delta: float

    def look(self, place: float) -> tuple[Scout, float]:
        """Along the real line, at ln σ: about ln of δ over the one that is asked for."""
        scout = Scout(Step(self.rate, math.exp(place), self.steps))
        return scout, scout.best_cuts(self.epsilon)[1] - self.log_delta


def _rough(goal: _Goal, start: float) -> tuple[Scout, float] | None:
    """About where the guarantee is met, and how fast ln δ falls there.

    By secants, and by halves where what was seen leaps.
    """
    least, most = math.log(_LEAST), math.log(_MOST)
    low, high = (least, math.inf), (most, -math.inf)  # with their excesses
    place = min(max(start, least), most)
    scout, excess = goal.look(place)
    step, slope = math.copysign(_STRIDE, excess), 0.0
    for _ in range(12):
        low, high = ((place, excess), high) if excess > 0.0 else (low, (place, excess))
        before, was = place, excess
        place = min(max(place + step, least), most)
        if not low[0] < place < high[0]:
            if not math.isfinite(high[1] - low[1]):
                return None  # beyond the ends
            place = 0.5 * (low[0] + high[0])
        scout, excess = goal.look(place)
        slope = (excess - was) / (place - before)
        if math.isfinite(high[1] - low[1]) and not slope < 0.0:
            slope = (high[1] - low[1]) / (high[0] - low[0])
        if not slope < 0.0:
            return None
        if abs(excess) < _CLOSE or abs(place - before) < _LEAP:
            return scout, slope
        step = min(max(-excess / slope, -_LONGEST), _LONGEST)
    return None
