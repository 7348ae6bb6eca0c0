"""Brings an event into the form that accountants read: different parts, each with its count.

Nested repetition and composition become one flat multiset, because the guarantee of a composition
does not depend on order or grouping. Samplings that change nothing, or that have an equal simpler
form, are replaced by it. Nothing here approximates.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from tacit.accounting.events import (
    Adjacency,
    Composed,
    Event,
    Gaussian,
    PoissonSampled,
    PrivateSelection,
    RandomAllocation,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedNegativeBinomial,
)
from tacit.errors import InvalidArgument

Parts = tuple[tuple[Event, int], ...]
"""Pairs of a part (never ``Repeated`` or ``Composed`` at its top) and how often it occurs."""

MOST_DIFFERENT = 10_000
"""Different parts of one event, beside Gaussian noise, beyond which no accountant is asked."""


def parts(event: Event, adjacency: Adjacency = "add-remove") -> Parts:
    """Flattens ``event`` into its different parts and their counts.

    >>> parts(Repeated(Composed(Gaussian(1), Gaussian(1)), 3), "add-remove")
    ((Gaussian(sigma=1.0, replace_distance=2.0), 6),)

    Raises:
        InvalidArgument: if more than ``MOST_DIFFERENT`` of them differ.
    """
    counts: Counter[Event] = Counter()
    _collect(simplify(event, adjacency), 1, counts)
    if len(counts) > MOST_DIFFERENT:
        _check_number(counts)
    return tuple(counts.items())


def _check_number(counts: Counter[Event]) -> None:
    found = sum(not isinstance(part, Gaussian) for part in counts)
    if found > MOST_DIFFERENT:
        raise InvalidArgument(
            f"event must have at most {MOST_DIFFERENT:,} different parts beside Gaussian noise, "
            f"got {found:,}; write releases that are alike as one Repeated event"
        )


def _collect(event: Event, times: int, counts: Counter[Event]) -> None:
    match event:
        case Repeated(inner, repeats):
            _collect(inner, times * repeats, counts)
        case Composed():
            for inner in event.events:
                _collect(inner, times, counts)
        case _:
            counts[event] += times


def simplify(event: Event, adjacency: Adjacency = "add-remove") -> Event:
    """Replaces samplings by an equal simpler event where there is one, under ``adjacency``.

    A sample of everybody is no sample where both data sets have as many records. Where one record
    is added it is: of n + 1 records, n are taken.

    >>> simplify(PoissonSampled(0.5, PoissonSampled(0.5, Repeated(Gaussian(2), 4)))).event
    Gaussian(sigma=1.0, replace_distance=2.0)
    """
    match event:
        case Repeated(inner, times):
            simple = simplify(inner, adjacency)
            return event if simple is inner else Repeated(simple, times)
        case Composed():
            return Composed(*(simplify(one, adjacency) for one in event.events))
        case PoissonSampled():
            return _simplify_poisson(event, adjacency)
        case SampledWithoutReplacement(population, size, inner):
            inner = _merged(simplify(inner, adjacency))
            if size == population and adjacency != "add-remove":
                return inner
            return SampledWithoutReplacement(population, size, inner)
        case SampledWithReplacement(population, size, inner):
            return SampledWithReplacement(population, size, _merged(simplify(inner, adjacency)))
        case RandomAllocation():
            return _simplify_allocation(event, adjacency)
        case PrivateSelection(base, runs):
            simple = simplify(base, adjacency)
            if isinstance(runs, TruncatedNegativeBinomial) and runs.gamma == 1.0:
                return simple
            return event if simple is base else PrivateSelection(simple, runs)
        case _:
            return event


def _simplify_poisson(event: PoissonSampled, adjacency: Adjacency) -> Event:
    inner = _merged(simplify(event.event, adjacency))
    if inner is not event.event:
        event = replace(event, event=inner)
    if event.cap is not None and event.population is not None and event.cap < event.population:
        return event
    if event.rate == 0.0:
        return Composed()
    if event.rate == 1.0:
        return event.event
    if isinstance(event.event, PoissonSampled) and event.event.cap is None:
        return PoissonSampled(event.rate * event.event.rate, event.event.event)
    return event if event.cap is None else PoissonSampled(event.rate, event.event)


def _simplify_allocation(event: RandomAllocation, adjacency: Adjacency) -> Event:
    """Epochs one by one; a record that takes part in every step is in no random one.

    Of k visits each is put into a block of ⌊t/k⌋ or ⌈t/k⌉ steps of its own. That is a bound, and
    nothing less if records do visit so: k different steps, whichever, are one of each block once
    the steps are shuffled, divergences are jointly convex, and to know the order tells more.
    """
    inner = _merged(simplify(event.event, adjacency))
    size, longer = divmod(event.steps, event.visits)
    blocks = [(size, event.visits - longer), (size + 1, longer)]
    found = [
        Repeated(inner if steps == 1 else RandomAllocation(steps, inner), times * event.epochs)
        for steps, times in blocks
        if times
    ]
    return found[0] if len(found) == 1 else Composed(*found)


def _merged(event: Event) -> Event:
    """One event equal to ``event`` for a sampler to act on, so that it reads as a single release.

    Gaussians of one replace distance compose exactly to a Gaussian: their precisions add.
    """
    if not isinstance(event, Repeated | Composed):
        return event
    found = parts_of_simple(event)
    gaussians = [(part, count) for part, count in found if isinstance(part, Gaussian)]
    distances = {part.replace_distance for part, _ in gaussians}
    if len(gaussians) < len(found) or len(distances) != 1:
        return found[0][0] if len(found) == 1 and found[0][1] == 1 else event
    if len(gaussians) == 1 and gaussians[0][1] == 1:
        return gaussians[0][0]
    if min(part.sigma for part, _ in gaussians) ** 2 == 0.0:  # it has no precision
        return event
    precision = math.fsum(count / part.sigma**2 for part, count in gaussians)
    return Gaussian(1.0 / math.sqrt(precision), distances.pop())


def parts_of_simple(event: Event) -> Parts:
    """``parts`` for an event that is already simple."""
    counts: Counter[Event] = Counter()
    _collect(event, 1, counts)
    return tuple(counts.items())
