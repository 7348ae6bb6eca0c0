"""Certified ends of ε(δ) and δ(ε) for a whole event: every direction, every caveat."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.black_boxes import concrete, is_direct
from tacit.accounting.events import (
    BlackBox,
    Gaussian,
    GaussianMixture,
    LossDistribution,
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    both_ways,
)
from tacit.accounting.exact.directions import (
    Laid,
    certainly_at_most,
    largest_loss,
    lay,
    schedule_at_most,
    solve_delta,
    solve_epsilon,
    solve_schedule,
)
from tacit.accounting.exact.enclosure import Interval, Resolution
from tacit.accounting.exact.folded import FoldedLoss
from tacit.accounting.exact.mixture import MixturePair, MixtureSide
from tacit.accounting.exact.pairs import (
    DominatingPair,
    base_pair,
    distance_of,
    tabulated_loss,
)
from tacit.accounting.exact.sampled_pairs import (
    allocation_part,
    attained_part,
    mixture_part,
    poisson_part,
    with_replacement_part,
    without_replacement_part,
)
from tacit.accounting.exact.schedule import FEWEST, FEWEST_IN_ALL, MOST_RATE, Schedule
from tacit.accounting.failures import Failures, least_rate
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.events import Adjacency, Event, Neighbours
    from tacit.accounting.exact.directions import Solved
    from tacit.accounting.exact.pairs import Direction
    from tacit.accounting.normal_form import Parts

_DEFAULT = Resolution()
_QUICK = Resolution(relative_error=1e-5, lower_end=False)
_FEWER_NODES = 2**13  # of a lattice
_WORTH = 0.5  # the share of the upper end from which on a lower one says something
# The largest loss of a lattice is a product and a sum: its own rounding must not lower a bound.
_ROUND_UP = 1.0 + 2.0**-50


@dataclass(frozen=True, eq=False)
class Decomposition:
    """An event as independent dominating pairs."""

    parts: tuple[tuple[DominatingPair, int], ...]
    way: Neighbours | None = None

    @property
    def tight(self) -> bool:
        """Whether the composition of the pairs is attained."""
        return all(part.tight for part, _ in self.parts)

    @property
    def failures(self) -> Failures:
        """The total variation distance to the real composition, which is charged to δ."""
        return Failures(truncation=math.fsum(count * part.coupling for part, count in self.parts))

    def directions(self) -> list[Direction]:
        """The compositions whose larger δ(ε) counts."""
        forward = tuple((part.forward, count) for part, count in self.parts)
        if all(part.backward is None for part, _ in self.parts):
            return [forward]
        backward = tuple((part.backward or part.forward, count) for part, count in self.parts)
        if self.way is not None:
            return [forward if self.way == "remove-only" else backward]
        return [forward, backward]


def decompose(parts: Parts, neighbours: Neighbours, *, shown: bool = False) -> Decomposition:
    """The dominating pairs of an event in its normal form; ``shown`` is as for ``poisson_part``.

    Raises:
        UnsupportedEvent: if a part of it has none that tacit knows.
    """
    adjacency = both_ways(neighbours)
    found = [(_part(part, adjacency, shown=shown), count) for part, count in parts]
    way = None if neighbours == adjacency else neighbours
    return Decomposition(tuple((part, count) for part, count in found if part is not None), way)


def _part(given: Event, adjacency: Adjacency, *, shown: bool) -> DominatingPair | None:
    """The pair of one part; None if it gives nothing away."""
    event = concrete(given, adjacency)
    # Two steps of another adjacency are a bound that no mechanism need attain.
    tight = not isinstance(given, BlackBox) or is_direct(given, adjacency)
    match event:
        case PoissonSampled():
            return poisson_part(event, adjacency, shown=shown)
        case SampledWithoutReplacement():
            return without_replacement_part(event, adjacency)
        case SampledWithReplacement():
            return with_replacement_part(event, adjacency)
        case RandomAllocation():
            return allocation_part(event, adjacency)
        case GaussianMixture(sigma, weights, shifts):
            if not event.describes(adjacency):
                raise UnsupportedEvent(event, "exact", "a mixture is known under add-remove only")
            return mixture_part(sigma, MixtureSide(weights, shifts))
        case LossDistribution():
            other = None if event.reverse is None else tabulated_loss(event.reverse)
            return DominatingPair(tabulated_loss(event), other, tight=tight)
        case _:
            pair = base_pair(event, distance_of(event, adjacency))
            return None if pair is None else DominatingPair(pair, tight=tight)


def enclose_epsilon(
    parts: Parts, delta: float, adjacency: Neighbours, resolution: Resolution = _DEFAULT
) -> Interval:
    """Certified ends of the smallest ε at which the parts together are (ε, ``delta``)-private.

    Raises:
        UnsupportedEvent: if a part has no dominating pair that tacit knows.
    """
    together = _epsilon_together(parts, delta, adjacency, resolution)
    if together is not None:
        return together
    decomposition = decompose(parts, adjacency)
    if not decomposition.parts:
        return Interval(0.0, 0.0, method="closed form")
    if decomposition.tight:
        return _epsilon(decomposition, delta, resolution)
    above = _upper_end(resolution, decomposition)
    if decomposition.failures.truncation == 0.0:
        found = _epsilon(decomposition, delta, above)
    else:
        found = _coupled_epsilon(decomposition, delta, above)
        shown = decompose(parts, adjacency, shown=True)
        if _matters(decomposition.failures.charge(found.upper), delta, shown):
            found = min(found, _epsilon(shown, delta, above), key=lambda one: one.upper)
    found = replace(found, attained=False)
    if not resolution.lower_end:
        return found
    actual = _attained(parts, adjacency)
    lower = _epsilon(actual, delta, _lower_end(resolution)).lower if actual.parts else 0.0
    return _either_way(min(lower, found.upper), found.upper, found)


def _upper_end(resolution: Resolution, decomposition: Decomposition) -> Resolution:
    """For a pair that no neighbours need attain: its own lower end is none of the event's.

    A folded loss is not attained by far more than what a coarser lattice adds, where a few steps
    leave nothing but that.
    """
    nodes = resolution.lattice_nodes
    if any(isinstance(part.forward.loss, FoldedLoss) for part, _ in decomposition.parts):
        nodes = min(nodes, 2 * _FEWER_NODES)
    return replace(resolution, lower_end=False, lattice_nodes=nodes)


def _lower_end(resolution: Resolution) -> Resolution:
    """For neighbours that need not be the worst: the last digits of a lattice are worth no time."""
    return replace(resolution, lattice_nodes=min(resolution.lattice_nodes, _FEWER_NODES))


def _attained(parts: Parts, neighbours: Neighbours) -> Decomposition:
    """Pairs of two actual neighbours, as far as they are known: without the others, less is told.

    The same two data sets serve all parts, in the same direction.
    """
    adjacency = both_ways(neighbours)
    found = []
    for part, count in _seldom(parts):
        pair = _part(part, adjacency, shown=False)
        if pair is not None and not pair.tight:
            pair = attained_part(part, adjacency)
        if pair is not None:
            found.append((pair, count))
    return Decomposition(tuple(found), None if neighbours == adjacency else neighbours)


def _epsilon_together(
    parts: Parts, delta: float, neighbours: Neighbours, resolution: Resolution
) -> Interval | None:
    """Certified ends if all parts are different sampled Gaussian steps, and many; None otherwise.

    Thousands of pairs take longer to make, and to let go of, than the sum over all of them.
    """
    if neighbours == "replace-one" or len(parts) < FEWEST:
        return None
    steps = [part for part, _ in parts if isinstance(part, PoissonSampled) and part.cap is None]
    sigmas = [step.event.sigma for step in steps if isinstance(step.event, Gaussian)]
    counts = np.array([float(count) for _, count in parts])
    rates = np.array([step.rate for step in steps])
    drawn = (rates > 0.0) & (rates < MOST_RATE)
    if len(sigmas) < len(parts) or counts.sum() < FEWEST_IN_ALL or not drawn.all():
        return None
    shifts = 1.0 / np.array(sigmas)
    ways = {"remove-only": (False,), "add-only": (True,)}.get(neighbours, (False, True))
    first, *others = [Schedule(rates, shifts, counts, reverse) for reverse in ways]
    found = solve_schedule(first, delta, resolution)
    if found is None:
        return None
    ends = found.ends
    for other in others:
        if not schedule_at_most(other, found.ends.upper, delta, _QUICK, found):
            rival = solve_schedule(other, delta, resolution)
            if rival is None:
                return None
            ends = _larger(ends, rival.ends)
    return _rounded_up(ends, ends.lower)


def _larger(one: Interval, other: Interval) -> Interval:
    """Ends of the larger of two."""
    larger = other if other.upper > one.upper else one
    return replace(larger, lower=max(one.lower, other.lower))


def _seldom(parts: Parts) -> Parts:
    """Untruncated samples in which a record takes part as often as in truncated ones, at least.

    Where all others add nothing these have the truncated samples' own outputs: a lower bound.
    """
    return tuple(
        (replace(part, rate=least_rate(part), cap=None, population=None), count)
        if isinstance(part, PoissonSampled) and part.cap is not None
        else (part, count)
        for part, count in parts
    )


def _matters(charge: float, delta: float, shown: Decomposition) -> bool:
    """Whether truncated samples cost so much δ that the other bound is worth its time."""
    if shown.failures.truncation > 0.0:  # of some part none is known
        return False
    quick = all(pair.loss is not None for way in shown.directions() for pair, _ in way)
    return not charge <= (1e-8 if quick else 0.1) * delta


def _coupled_epsilon(
    decomposition: Decomposition, delta: float, resolution: Resolution
) -> Interval:
    tried: list[Interval] = []

    def solve(room: float) -> float:
        tried.append(_epsilon(decomposition, room, resolution))
        return tried[-1].upper

    upper = decomposition.failures.epsilon(solve, delta)
    if not tried:
        return Interval(0.0, upper, two_sided=False, method="coupled")
    method = f"{tried[-1].method}, coupled"
    return replace(tried[-1], lower=0.0, upper=upper, two_sided=False, method=method)


def _epsilon(decomposition: Decomposition, delta: float, resolution: Resolution) -> Interval:
    first, *others = decomposition.directions()
    found = solve_epsilon(first, delta, resolution)
    ends = found.ends
    for other in others:
        if ends.upper == 0.0 and _mirrored(first, other):
            continue  # δ(0) is the total variation distance, which is the same both ways
        if _is_smaller(other, found, delta):
            continue
        ends = _larger(ends, solve_epsilon(other, delta, resolution).ends)
    lower = ends.lower if decomposition.tight else 0.0
    return _rounded_up(ends, lower)


def _rounded_up(ends: Interval, lower: float) -> Interval:
    upper = ends.upper * _ROUND_UP
    return _either_way(lower, upper, ends)


def _either_way(lower: float, upper: float, found: Interval) -> Interval:
    """Both ends, if the lower one is worth the name: half of the upper one, or more.

    Of a pair that nobody attains it is as far off as it is. 0 says nothing, except of what is 0.
    """
    least = _WORTH * upper if found.attained else min(upper, math.ulp(0.0))
    if lower >= least:
        return replace(found, lower=lower, upper=upper, two_sided=True)
    return replace(found, lower=0.0, upper=upper, two_sided=False)


def _mirrored(one: Direction, other: Direction) -> bool:
    """Whether both are the same Gaussian mixtures, the other way round."""
    return all(
        isinstance(a.loss, MixturePair)
        and isinstance(b.loss, MixturePair)
        and a.loss.sigma == b.loss.sigma
        and (a.loss.numerator, a.loss.denominator) == (b.loss.denominator, b.loss.numerator)
        for (a, _), (b, _) in zip(one, other, strict=True)
    )


def _is_smaller(direction: Direction, found: Solved, delta: float) -> bool:
    """Whether a quick look certifies that this direction has δ(ε) ≤ ``delta`` already."""
    if math.isinf(found.ends.upper):
        return False
    return certainly_at_most(direction, found.ends.upper, delta, _QUICK, found)


def enclose_delta(
    parts: Parts, epsilon: float, adjacency: Neighbours, resolution: Resolution = _DEFAULT
) -> Interval:
    """Certified ends of the smallest δ at which the parts together are (``epsilon``, δ)-private.

    Raises:
        UnsupportedEvent: if a part has no dominating pair that tacit knows.
    """
    decomposition = decompose(parts, adjacency)
    if not decomposition.parts:
        return Interval(0.0, 0.0, method="closed form")
    if decomposition.tight:
        return _delta(decomposition, epsilon, resolution)
    above = _upper_end(resolution, decomposition)
    found = _delta(decomposition, epsilon, above)
    if decomposition.failures.truncation > 0.0:
        shown = decompose(parts, adjacency, shown=True)
        if _matters(decomposition.failures.charge(epsilon), found.upper, shown):
            found = min(found, _delta(shown, epsilon, above), key=lambda one: one.upper)
    found = replace(found, attained=False)
    if not resolution.lower_end:
        return found
    actual = _attained(parts, adjacency)
    lower = _delta(actual, epsilon, _lower_end(resolution)).lower if actual.parts else 0.0
    return _either_way(min(lower, found.upper), found.upper, found)


def _delta(decomposition: Decomposition, epsilon: float, resolution: Resolution) -> Interval:
    first, *others = decomposition.directions()
    found = solve_delta(first, epsilon, resolution)
    ends = [found.ends]
    for other in others:
        if epsilon == 0.0 and _mirrored(first, other):
            continue  # the total variation distance, again
        if not certainly_at_most(other, epsilon, found.ends.upper, _QUICK, found):
            ends.append(solve_delta(other, epsilon, resolution).ends)
    largest = max(ends, key=lambda one: one.upper)
    upper = min(1.0, largest.upper + decomposition.failures.charge(epsilon))
    lower = max(one.lower for one in ends) if decomposition.tight else 0.0
    return _either_way(lower, upper, largest)


def largest_losses(parts: Parts, adjacency: Neighbours) -> Interval:
    """Certified ends of the largest loss of all parts together; the lower one if it is attained.

    Raises:
        UnsupportedEvent: if a part has no dominating pair that tacit knows.
    """
    decomposition = decompose(parts, adjacency)
    if decomposition.failures.truncation > 0.0:
        decomposition = decompose(parts, adjacency, shown=True)
    if decomposition.failures.truncation > 0.0:
        return Interval(0.0, math.inf, two_sided=False)
    found = [largest_loss(one) for one in decomposition.directions()]
    lower = max((low for low, _ in found), default=0.0) if decomposition.tight else 0.0
    return Interval(lower * (1.0 - 1e-12), max((high for _, high in found), default=0.0))


@dataclass(frozen=True, eq=False)
class LaidCurve:
    """δ(ε) of an event at many ε for little more than the price of one: upper ends only.

    If the directions are ``mirrored``, δ(0) is the same in both: the total variation distance.
    """

    directions: tuple[Laid, ...]
    failures: Failures
    mirrored: bool = False

    def delta(self, epsilon: float) -> float:
        """No smaller than δ(``epsilon``)."""
        found = [one.delta(epsilon) for one in self.directions]
        either = min if self.mirrored and epsilon == 0.0 else max
        largest = either(found, default=0.0)
        return min(1.0, largest + self.failures.charge(epsilon))

    def epsilon(self, delta: float) -> float:
        """No smaller than ε(``delta``), for a δ it was laid about; infinite where none is known."""
        found = max((one.epsilon(delta) for one in self.directions), default=0.0) * _ROUND_UP
        return found if self.failures.truncation == 0.0 else self._coupled(delta)

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
    parts: Parts, adjacency: Neighbours, deltas: Sequence[float], resolution: Resolution
) -> LaidCurve:
    """Lays the curve of the parts together, to be sharp about each of ``deltas``.

    Guarantee:
        Whatever it is asked, its answers are upper bounds; far from ``deltas`` they may be loose.

    Raises:
        UnsupportedEvent: if a part has no dominating pair that tacit knows.
    """
    decomposition = decompose(parts, adjacency)
    if not decomposition.parts:
        return LaidCurve((), Failures())
    shown = decompose(parts, adjacency, shown=True) if decomposition.failures.truncation else None
    if shown and _matters(decomposition.failures.charge(1.0), min(deltas), shown):
        decomposition = shown
    directions = decomposition.directions()
    laid = tuple(lay(one, deltas, resolution) for one in directions)
    mirrored = len(directions) > 1 and _mirrored(*directions)
    return LaidCurve(laid, decomposition.failures, mirrored)
