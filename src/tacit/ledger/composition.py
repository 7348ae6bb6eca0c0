"""How charges add up: the three rules, each a pure function of where a budget stands.

All three hold for releases that are chosen after seeing earlier ones, and for plans that run side
by side: Rogers, Roth, Ullman & Vadhan 2016 and Feldman & Zrnic 2021 for the adaptive choice of what
is charged, Haney et al. 2023 ("Concurrent composition for interactive differential privacy with
adaptive privacy-loss parameters") for interleaving.

- ``"basic"``: every event is charged whole at a pair (ε_i, δ_i) of its own, and Σε_i ≤ ε, Σδ_i ≤ δ.
- ``"renyi"``: ``tacit.accounting.RenyiFilter``; a tenth of δ is kept for events that may fail. An
  event which the filter does not hold but which meets (ε, δ) by itself may have a fresh budget as
  its sole occupant: nothing else is charged then, so nothing composes.
- ``"declared"``: events that were fixed together before the first release are composed exactly.

A reservation that ended without one step granted released nothing, and is charged nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, final

from tacit.accounting.events import LEAST_DELTA, Composed, Repeated
from tacit.errors import InvalidArgument, UnsupportedEvent
from tacit.ledger.replay import COMPOSITIONS, BudgetState, ReservationCost, Totals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tacit.accounting.adaptive import RenyiFilter
    from tacit.accounting.events import Adjacency, Event

_FAILURE_SHARE = 0.1  # of a Rényi budget's δ
_UNBOUNDED = 1e300  # stands for a divergence that has no finite bound: no threshold reaches it


@final
@dataclass(frozen=True, slots=True)
class Spending:
    """What is spent or left of a budget; ``meaning`` says which figures ε and δ are.

    ``share`` is the part of the budget, from 0 to 1, by the measure that its rule runs out of.
    """

    epsilon: float
    delta: float
    share: float
    meaning: str


def charge_for(
    state: BudgetState, event: Event, delta: float | None = None
) -> ReservationCost | None:
    """What ``event`` would be charged on top of what the budget holds; None if it does not fit.

    ``delta`` fixes the δ_i of a ``"basic"`` budget.

    Guarantee:
        All events that were granted a charge by this rule, each before its first release, are
        (ε, δ)-differentially private together, for the ε and δ of the budget.
    """
    if state.composition == "renyi":
        return _renyi_charge(state, event)
    if state.composition == "declared":
        found = composed_charges(state, [event])
        return found[0] if found else None
    left, left_delta = _left(state)
    for charge in _basic_options(event, state.adjacency, left_delta, delta):
        if charge.epsilon <= left and charge.delta <= left_delta:
            return charge
    return None


def hold_all(state: BudgetState, events: Sequence[Event]) -> bool:
    """Whether all of ``events``, charged one after the other, would fit into what is left."""
    if state.composition == "declared":
        return composed_charges(state, events) is not None
    for event in events:
        charge = charge_for(state, event)
        if charge is None:
            return False
        state = replace(state, totals=state.totals.plus(charge))
    return True


def composed_charges(state: BudgetState, events: Sequence[Event]) -> list[ReservationCost] | None:
    """The charges of ``events`` declared beside those of a ``"declared"`` budget, or None."""
    together = (*_declared(state), *events)
    if not _epsilon(_composed(together), state.delta, state.adjacency) <= state.epsilon:
        return None
    return [
        ReservationCost(_epsilon_or_inf(one, state.delta, state.adjacency), state.delta)
        for one in events
    ]


def spent(state: BudgetState) -> Spending:
    """What all charges of the budget amount to, each figure rounded up."""
    match state.composition:
        case "renyi":
            return _renyi_spent(state)
        case "declared":
            together = _declared(state)
            found = _epsilon(_composed(together), state.delta, state.adjacency) if together else 0.0
            return Spending(
                found,
                state.delta if together else 0.0,
                min(1.0, found / state.epsilon),
                "the exact ε, at the budget's δ, of all that was declared",
            )
        case _:
            total = _ceil(state.totals.epsilon)
            return Spending(
                total,
                _ceil(state.totals.delta),
                min(1.0, total / state.epsilon),
                "the sums of ε and δ over all that was reserved",
            )


def remaining(state: BudgetState) -> Spending:
    """What is left of the budget, each figure rounded down."""
    used = spent(state)
    share = max(0.0, 1.0 - used.share)
    match state.composition:
        case "renyi":
            meaning = "how far the filter's ε may still rise at the budget's δ; no release's own ε"
            return Spending(max(0.0, state.epsilon - used.epsilon), state.delta, share, meaning)
        case "declared":
            meaning = "room for plans declared before the first release, at the budget's δ"
            if state.begun:
                meaning = "unused for good: nothing can be declared after the first release"
            return Spending(max(0.0, state.epsilon - used.epsilon), state.delta, share, meaning)
        case _:
            left, left_delta = _left(state)
            meaning = "what the ε and δ of further reservations may add up to"
            return Spending(max(0.0, _floor(left)), max(0.0, _floor(left_delta)), share, meaning)


def within_limits(state: BudgetState) -> bool:
    """Whether what is charged lies within the budget's limits."""
    match state.composition:
        case "renyi":
            alone = state.totals.charges == 1 and state.totals.unbounded == 0
            sole = alone and min(_left(state)) >= 0
            return state.totals.charges == 0 or sole or _filter(state).affords(Composed())
        case "declared":
            return spent(state).epsilon <= state.epsilon
        case _:
            return min(_left(state)) >= 0


def covers(charge: ReservationCost, event: Event, adjacency: Adjacency, slack: float) -> bool:
    """Whether ``charge`` is a guarantee of ``event``, up to ``slack`` of its ε."""
    fixed = _fixed_pair(event, adjacency)
    enough = charge.epsilon * (1.0 + slack)
    if fixed is not None and fixed.epsilon <= enough and fixed.delta <= charge.delta:
        return True
    if charge.delta == 0.0:
        return False
    return _epsilon_or_inf(event, charge.delta, adjacency) <= enough


def with_limits(state: BudgetState, epsilon: float, delta: float) -> BudgetState:
    """The same budget with other limits."""
    return replace(state, epsilon=epsilon, delta=delta)


def filter_orders(epsilon: float, delta: float, adjacency: Adjacency) -> tuple[float, ...]:
    """The orders that a Rényi budget of these limits watches, fixed when it is opened."""
    from tacit.accounting.adaptive import RenyiFilter  # noqa: PLC0415 - NumPy only when asked

    share = _FAILURE_SHARE * delta
    return RenyiFilter(epsilon, delta, adjacency, failure_delta=share).orders


def check_composition(composition: str, delta: float) -> str:
    """Returns ``composition`` if it is one of the rules, and has a use for this δ."""
    if composition not in COMPOSITIONS:
        raise InvalidArgument(
            f"composition must be one of {', '.join(COMPOSITIONS)}, got {composition!r}"
        )
    if delta == 0.0 and composition != "basic":
        raise InvalidArgument(f"delta must be above 0 with composition={composition!r}, got 0.0")
    if delta < LEAST_DELTA and composition == "renyi":
        raise InvalidArgument(
            f"delta must be at least {LEAST_DELTA:g} with composition='renyi', got {delta!r}; "
            "give a larger one, such as 1e-9"
        )
    return composition


def _left(state: BudgetState) -> tuple[Fraction, Fraction]:
    totals = state.totals
    return Fraction(state.epsilon) - totals.epsilon, Fraction(state.delta) - totals.delta


def _basic_options(
    event: Event, adjacency: Adjacency, left_delta: Fraction, delta: float | None
) -> Iterator[ReservationCost]:
    """The pairs (ε_i, δ_i) to charge ``event`` at, the first that fits to be taken.

    An event whose pair is its own (a pure one has δ_i = 0) is charged that, and one that trades ε
    for δ half of what is left of δ, so that it never quite runs out, or all that is left. Many
    releases of fixed pairs together are such a trade too; their sum is taken where little is lost.
    """
    fixed = _fixed_pair(event, adjacency)
    if delta is not None:
        if delta > 0.0:
            yield ReservationCost(_epsilon(event, delta, adjacency), delta)
        elif fixed is not None and fixed.delta == 0.0:
            yield fixed
        return
    if fixed is not None and not isinstance(event, Repeated | Composed):
        yield fixed
    half, everything = _floor(left_delta / 2), _floor(left_delta)
    for own in (half, everything):
        if own > 0.0:
            traded = ReservationCost(_epsilon(event, own, adjacency), own)
            if fixed is not None and fixed.epsilon <= 1.1 * traded.epsilon:
                yield fixed
            yield traded
    if fixed is not None:
        yield fixed


@lru_cache(maxsize=256)
def _fixed_pair(event: Event, adjacency: Adjacency) -> ReservationCost | None:
    """Σε and Σδ of an event whose releases have one pair each, or None if it has others."""
    from tacit.accounting.accountants.composition import (  # noqa: PLC0415 - SciPy only when asked
        steps_of,
        sum_of,
    )

    try:
        steps = steps_of(event, adjacency, "basic")
    except UnsupportedEvent:
        return None
    if steps.free or steps.truncation > 0.0:
        return None
    least = steps.least
    total = sum_of(steps, least)
    if len(steps.steps) == 1 and steps.steps[0].count == 1:
        return ReservationCost(total, least)
    return ReservationCost(_up(total), _up(least))


@lru_cache(maxsize=256)
def _epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked

    return epsilon(event, delta, adjacency=adjacency)


def _epsilon_or_inf(event: Event, delta: float, adjacency: Adjacency) -> float:
    try:
        return _epsilon(event, delta, adjacency)
    except UnsupportedEvent:
        return math.inf


def _declared(state: BudgetState) -> tuple[Event, ...]:
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    return tuple(from_dict(one) for one in state.declared.values())


def _composed(events: tuple[Event, ...]) -> Event:
    return events[0] if len(events) == 1 else Composed(*events)


def _filter(state: BudgetState) -> RenyiFilter:
    from tacit.accounting.adaptive import RenyiFilter, RenyiSpending  # noqa: PLC0415

    totals = state.totals
    sums = totals.divergences or (Fraction(0),) * len(state.orders)
    return RenyiFilter(
        state.epsilon,
        state.delta,
        state.adjacency,
        state.orders,
        _FAILURE_SHARE * state.delta,
        RenyiSpending(tuple(map(_ceil, sums)), _ceil(totals.failures), _ceil(totals.truncation)),
    )


def _renyi_charge(state: BudgetState, event: Event) -> ReservationCost | None:
    alone = _epsilon_or_inf(event, state.delta, state.adjacency)
    cost = renyi_cost(event, state.orders, state.adjacency)
    try:
        held = _filter(state).affords(event)
    except UnsupportedEvent:
        held = False
    fresh = state.totals.charges == 0
    if held or (fresh and alone <= state.epsilon):
        return ReservationCost(alone, state.delta, cost.divergences, cost.failures, cost.truncation)
    return None


def renyi_cost(event: Event, orders: tuple[float, ...], adjacency: Adjacency) -> ReservationCost:
    """What ``event`` adds to the sums of a Rényi budget."""
    from tacit.accounting.adaptive import RenyiSpending  # noqa: PLC0415

    nothing = RenyiSpending((0.0,) * len(orders))
    try:
        more = nothing.plus(event, orders, adjacency, "renyi-filter")
    except UnsupportedEvent:
        return ReservationCost(0.0, 0.0, (_UNBOUNDED,) * len(orders))
    divergences = tuple(min(one, _UNBOUNDED) for one in more.divergences)
    return ReservationCost(0.0, 0.0, divergences, more.failures, more.truncation)


def _renyi_spent(state: BudgetState) -> Spending:
    meaning = "the ε of the smallest Rényi filter, at the budget's δ, that holds all charges"
    totals = state.totals
    if totals == Totals() or totals.charges == 0:
        return Spending(0.0, 0.0, 0.0, meaning)
    kept = _filter(state)
    if not kept.affords(Composed()):
        meaning = "the exact ε, at the budget's δ, of the one plan that has the budget to itself"
        return Spending(_ceil(totals.epsilon), state.delta, 1.0, meaning)
    sums = tuple(map(_ceil, totals.divergences))
    pairs = list(zip(sums, kept.thresholds, strict=True))
    reading = min(one + (state.epsilon - threshold) for one, threshold in pairs)
    share = min(one / threshold for one, threshold in pairs if threshold > 0.0)
    return Spending(max(0.0, reading), state.delta, min(1.0, share), meaning)


def _floor(value: Fraction) -> float:
    """The largest float that is no larger."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def _ceil(value: Fraction) -> float:
    """The smallest float that is no smaller."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _up(value: float) -> float:
    """Above the rounding of a product and a sum."""
    return value if value == 0.0 else math.nextafter(math.nextafter(value, math.inf), math.inf)
