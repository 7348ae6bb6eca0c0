"""The questions one asks of an event: its ε at a δ, its δ at an ε, certified ends, a comparison."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tacit._validation import non_negative
from tacit.accounting.accountants import NAMES, Approximation, accountant_named
from tacit.accounting.accountants.exact import UPPER_END, delta_interval, epsilon_interval
from tacit.accounting.events import (
    Adjacency,
    Event,
    Neighbours,
    both_ways,
    check_delta,
    check_event,
    check_neighbours,
)
from tacit.accounting.exact.enclosure import Interval
from tacit.errors import UnsupportedEvent


def epsilon(
    event: Event, delta: float, accountant: str = "exact", adjacency: Neighbours = "add-remove"
) -> float:
    """The smallest ε that the accountant proves for ``event`` at this total δ.

    Args:
        event: What was released.
        delta: The total δ, from 0 to 1. At 0 the answer is the pure ε, or infinite; at 1 it is 0.
        accountant: ``"exact"`` (certified, and the least that is known), ``"rdp"``,
            ``"moments"``, ``"zcdp"``, ``"gdp"``, ``"advanced"`` or ``"basic"``; ``"gdp-clt"`` is no
            bound.
        adjacency: ``"add-remove"``, ``"replace-one"`` or ``"zero-out"``; of the first also
            ``"add-only"`` or ``"remove-only"``, one of its directions, which the exact accountant
            tells apart and the others bound by both.

    Guarantee:
        The event is (ε, δ)-differentially private under ``adjacency``, except for ``"gdp-clt"``,
        whose answer is an ``Approximation``.

    >>> from tacit.accounting import Gaussian, PoissonSampled, Repeated
    >>> run = Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000)
    >>> round(epsilon(run, delta=1e-5), 7), round(epsilon(run, 1e-5, accountant="moments"), 4)
    (0.9468668, 1.2586)
    """
    check_event(event)
    asked = accountant_named(accountant)
    total, neighbours = check_delta(delta), check_neighbours(adjacency)
    if total == 1.0:
        return 0.0
    try:
        if accountant == "exact":
            return epsilon_interval(event, total, neighbours, UPPER_END).upper
        return asked.epsilon(event, total, both_ways(neighbours))
    except ArithmeticError:
        raise out_of_range(event, accountant) from None


def delta(
    event: Event, epsilon: float, accountant: str = "exact", adjacency: Neighbours = "add-remove"
) -> float:
    """The smallest δ that the accountant proves for ``event`` at this ε.

    Guarantee:
        As for ``epsilon``.

    >>> from tacit.accounting import Gaussian
    >>> round(delta(Gaussian(1.0), epsilon=1.0), 6)
    0.126937
    """
    check_event(event)
    asked = accountant_named(accountant)
    loss, neighbours = non_negative("epsilon", epsilon), check_neighbours(adjacency)
    try:
        if accountant == "exact":
            return delta_interval(event, loss, neighbours, UPPER_END).upper
        return asked.delta(event, loss, both_ways(neighbours))
    except ArithmeticError:
        raise out_of_range(event, accountant) from None


def out_of_range(event: Event, accountant: str) -> UnsupportedEvent:
    """An overflow, or a division by a variance that was rounded to 0."""
    reason = "its losses are beyond floating-point numbers; its noise must be larger"
    return UnsupportedEvent(event, accountant, reason)


def bounds(event: Event, delta: float, adjacency: Neighbours = "add-remove") -> Interval:
    """Certified ends of the tight ε at this total δ: lower ≤ truth ≤ upper.

    Guarantee:
        Truncation, aliasing, quadrature, tail and rounding errors are each bounded and added. Where
        no lower end worth the name could be computed (at least half of the upper one),
        ``two_sided`` is false and ``lower`` is 0. How near the ends are depends on the event:
        within 1e-8 for sampled Gaussians, farther apart for some others.

    >>> from tacit.accounting import Gaussian, PoissonSampled, Repeated
    >>> found = bounds(Repeated(PoissonSampled(0.01, Gaussian(4.0)), 10_000), delta=1e-5)
    >>> 0.9468668007644 in found, found.width < 1e-10, found.method
    (True, True, 'contour')
    """
    check_event(event)
    total, neighbours = check_delta(delta), check_neighbours(adjacency)
    if total == 1.0:
        return Interval(0.0, 0.0, method="closed form")
    return epsilon_interval(event, total, neighbours)


@dataclass(frozen=True)
class Row:
    """One accountant's answer.

    Attributes:
        accountant: Its name.
        epsilon: Its ε, or None if it refused the event.
        seconds: How long it took.
        is_bound: False if the answer is an approximation.
        note: Why it refused, or "".
    """

    accountant: str
    epsilon: float | None
    seconds: float
    is_bound: bool
    note: str


def compare(event: Event, delta: float, adjacency: Adjacency = "add-remove") -> tuple[Row, ...]:
    """Asks every accountant for its ε at this total δ.

    >>> from tacit.accounting import Gaussian, Repeated
    >>> rows = compare(Repeated(Gaussian(20.0), 1000), delta=1e-6)
    >>> [(row.accountant, round(row.epsilon, 3)) for row in rows[:2]]
    [('exact', 8.306), ('rdp', 8.846)]
    """
    return tuple(_ask(name, event, delta, adjacency) for name in NAMES)


def _ask(name: str, event: Event, delta: float, adjacency: Adjacency) -> Row:
    start = time.perf_counter()
    try:
        found = epsilon(event, delta, name, adjacency)
    except UnsupportedEvent as refusal:
        return Row(name, None, time.perf_counter() - start, is_bound=False, note=refusal.reason)
    seconds = time.perf_counter() - start
    return Row(name, float(found), seconds, not isinstance(found, Approximation), "")
