"""Searches by the profile of jumps: ε at a δ, δ at an ε, and about which σ a run is private at.

They go by sums without bounds, which are quick and certify nothing, and end with a certificate.
See ``jumps``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tacit.accounting.exact.enclosure import Interval, TooSlow, invert
from tacit.accounting.exact.jump_curves import Step
from tacit.accounting.exact.jump_scout import Scout
from tacit.accounting.exact.jump_sketch import ALL, FEW, Sketch
from tacit.accounting.exact.jumps import LEAST, TIGHT, lay_jumps

if TYPE_CHECKING:
    from tacit.accounting.exact.enclosure import Enclosure
    from tacit.accounting.exact.jumps import JumpProfile

_LEAST, _MOST = 0.3, 10.0  # that σ is searched between
_LIKELY, _LARGE = 1e-6, 5.0  # a δ and an ε above which the look along the real line is far off
_NEAR = 1e-9  # of ln σ
_CLOSE = 1.0  # of ln δ, where the look along the real line, with leaps, has done its part
_FAR = 0.05  # of ln σ, beyond which a sketch has fewer digits
_MOST_SKETCHES, _MOST_SECANTS = 5, 12
_FAR_OFF = 3.0  # of ln δ, from where another sketch is needed
_FALL = 10.0  # of ln δ by ln σ, at first
_SHORT, _LONGEST, _LEAP = 0.01, 0.5, 0.01  # of ln σ: the first step, any, and one for a leap


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


def _near_epsilon(scout: Scout, guess: float, goal: float) -> float:
    """About the ε at which ln δ is ``goal``, or the guess if nothing better is found."""
    epsilon = guess
    try:
        for _ in range(2):
            sketch = Sketch(scout, epsilon, FEW)
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


class Near(NamedTuple):
    """About the σ at which a run is private, and how fast ln ε falls with ln σ there."""

    sigma: float
    steepness: float


def near_sigma(rate: float, count: int, epsilon: float, delta: float, guess: float) -> Near | None:
    """About the σ at which a run is (ε, δ)-private, to 1e-7 or so; None if it is not moderate.

    ``guess`` is where to begin: what is enough for the many small losses and for one jump.
    """
    goal = _Goal(rate, count, epsilon, math.log(delta))
    scout = _rough(goal, math.log(guess))
    if scout is None:
        return None
    try:
        for _ in range(_MOST_SKETCHES):
            laid = math.log(scout.step.sigma)
            place, steepness = _by_secants(Sketch(scout, epsilon, ALL), goal, laid)
            if abs(place - laid) <= _FAR:
                return Near(math.exp(place), steepness)
            scout = Scout(Step(rate, math.exp(place), count))
    except (TooSlow, ValueError, ZeroDivisionError, OverflowError):
        pass
    return None


def _by_secants(sketch: Sketch, goal: _Goal, start: float) -> tuple[float, float]:
    """About the ln σ at which a sketch meets the goal, and how fast ln ε falls there.

    It goes no farther from the start than a sketch may be trusted.
    """
    before, was = start, sketch.log_delta(goal.epsilon, math.exp(start))[0] - goal.log_delta
    place = start + math.copysign(_SHORT, was)
    for _ in range(_MOST_SECANTS):
        log_delta, by_epsilon = sketch.log_delta(goal.epsilon, math.exp(place))
        excess = log_delta - goal.log_delta
        slope = (excess - was) / (place - before)
        step = min(max(-excess / slope, -_LONGEST), _LONGEST)
        if not slope < 0.0:
            break
        if abs(step) <= _NEAR or abs(place + step - start) > 2.0 * _FAR:
            return place + step, slope / (by_epsilon * goal.epsilon)
        before, was, place = place, excess, place + step
    raise TooSlow


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


def _rough(goal: _Goal, start: float) -> Scout | None:
    """About where the guarantee is met: by secants, and by halves where what was seen leaps."""
    least, most = math.log(_LEAST), math.log(_MOST)
    low, high = least, most
    place, slope = min(max(start, least), most), -_FALL
    scout, excess = goal.look(place)
    for _ in range(12):
        if abs(excess) < _CLOSE or high - low < _LEAP:
            return scout
        low, high = (place, high) if excess > 0.0 else (low, place)
        before, was = place, excess
        place = min(max(place + min(max(-excess / slope, -_LONGEST), _LONGEST), least), most)
        if place == before:
            return None  # beyond the ends
        if not low < place < high:
            place = 0.5 * (low + high)
        scout, excess = goal.look(place)
        slope = min((excess - was) / (place - before), -1.0)
    return None
