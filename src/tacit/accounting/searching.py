"""Where a guarantee is just met, along a family that is monotone in one parameter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tacit.errors import Uncalibratable

if TYPE_CHECKING:
    from collections.abc import Callable

    Measure = Callable[[float], "Point"]

_LEAST_STEP = 1e-11
_MOST_ROUNDS, _FEW_ROUNDS = 100, 5


class Point(NamedTuple):
    """What an accountant says of one parameter x.

    Attributes:
        place: ln x.
        excess: The logarithm of its ε over the one that is asked for.
        tolerance: How near to 0 that should be, or how near to each other two places.
        dear: Whether to ask again only a few times.
    """

    place: float
    excess: float
    tolerance: float
    dear: bool = False


def least_private(measure: Measure, start: float, rough: Measure | None = None) -> float:
    """The place, near the last one that meets the guarantee, at which ``measure`` says it is met.

    ``rough``, no less sure than ``measure`` but quicker, only saves time.

    Raises:
        Uncalibratable: if no place between ln 1e-12 and ln 1e12 meets it, or all do.
    """
    straddle = _straddle(measure, start) if rough is None else _nearby(measure, rough, start)
    return _narrow(measure, *straddle)[0].place


def _nearby(measure: Measure, rough: Measure, start: float) -> tuple[Point, Point]:
    """A straddle whose private side a quicker accountant, no less sure, has found to be close."""
    try:
        private, leaky = _straddle(rough, start)
        private, leaky = _narrow(rough, private, leaky)
    except Uncalibratable:  # as it may seem where rough answers differ by more than they fall
        return _straddle(measure, start)
    private = measure(private.place)
    if private.excess > 0.0:
        return _straddle(measure, private.place)
    return private, leaky


def _straddle(measure: Measure, start: float) -> tuple[Point, Point]:
    """Two points, one that meets the guarantee and one that does not."""
    here, there = measure(start), measure(start + 0.02)
    rising = there.excess > here.excess
    if there.excess == here.excess:
        rising = measure(start + 5.0).excess > measure(start - 5.0).excess
    try:
        return _walk(measure, here, there, rising=rising)
    except Uncalibratable:
        # So near to each other, two upper bounds may lie the wrong way round.
        return _walk(measure, here, there, rising=not rising)


def _walk(measure: Measure, here: Point, there: Point, *, rising: bool) -> tuple[Point, Point]:
    """Goes up or down in growing strides until the guarantee is met, or is not any more."""
    stride, end = 0.02, math.log(1e12)
    while (here.excess <= 0.0) == (there.excess <= 0.0):
        stride *= 4.0
        toward_more = (there.excess <= 0.0) == rising
        outer = max(here, there) if toward_more else min(here, there)
        place = outer.place + (stride if toward_more else -stride)
        if abs(place) > end:
            raise Uncalibratable(
                "epsilon cannot be met exactly: the guarantee stays on one side of it for every "
                f"parameter between 1e-12 and 1e12 (last tried {math.exp(outer.place):.3g})"
            )
        here, there = outer, measure(place)
    return (here, there) if here.excess <= 0.0 else (there, here)


def _narrow(measure: Measure, private: Point, leaky: Point) -> tuple[Point, Point]:
    """A straddle whose private side is within its tolerance, or as near to the other as may be."""
    older, newer = leaky, private
    for tried in range(_MOST_ROUNDS):
        near = (
            private.excess >= -private.tolerance
            or abs(private.place - leaky.place) <= private.tolerance
        )
        # Dear answers come from a lattice, and are too uneven for a secant to close in on.
        if near or (tried >= _FEW_ROUNDS and private.dear):
            return private, leaky
        place = _secant(older, newer, -0.5 * private.tolerance)
        if not min(private, leaky).place < place < max(private, leaky).place:
            place = 0.5 * (private.place + leaky.place)
        if abs(place - newer.place) <= _LEAST_STEP:
            break
        older, newer = newer, measure(place)
        private, leaky = (newer, leaky) if newer.excess <= 0.0 else (private, newer)
    shift = math.copysign(_LEAST_STEP, private.place - leaky.place)
    while (place + shift - private.place) * shift < 0.0:
        found = measure(place + shift)
        if found.excess <= 0.0:
            return found, leaky
        shift *= 4.0
    return private, leaky


def _secant(older: Point, newer: Point, goal: float) -> float:
    """Where the line through both points meets ``goal``."""
    if older.excess == newer.excess or math.isinf(older.excess) or math.isinf(newer.excess):
        return math.nan
    return newer.place - (newer.excess - goal) * (newer.place - older.place) / (
        newer.excess - older.excess
    )
