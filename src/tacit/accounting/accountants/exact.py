"""The tight ε(δ), certified: what ``bounds`` encloses and ``epsilon`` returns by default.

Guarantee:
    The upper end is no smaller than the truth: every error of the computation is bounded and added.
    Where the ends do not agree to a percent, or only an upper one is known, the other theorems are
    asked as well and the least upper end counts: so it does where the event has no dominating pair
    that tacit knows (Rényi curves, concentrated events, adaptively chosen exponential mechanisms).
    The interval says whether its lower end was computed. A private selection is bounded by its
    base's profile and by its Rényi curve, and the smaller one counts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.accounting.accountants import Accountant, accountant_named
from tacit.accounting.black_boxes import loss_of
from tacit.accounting.choices import concrete
from tacit.accounting.events import (
    Composed,
    Gaussian,
    PoissonSampled,
    PrivateSelection,
    RenyiCurve,
    Repeated,
    TruncatedConcentrated,
    ZeroConcentrated,
)
from tacit.accounting.exact.certify import enclose_delta, enclose_epsilon, lay_curve
from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.resolution import Resolution
from tacit.accounting.normal_form import parts
from tacit.accounting.results import Interval
from tacit.accounting.selection_profile import (
    black_box_delta,
    black_box_epsilon,
    selection_profile,
)
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.exact.certify import LaidCurve
    from tacit.accounting.runs import Runs
    from tacit.accounting.selection_profile import SelectionProfile

_VAIN_NOISE = 0.035
_MANY = 100  # different parts, from which the other theorems would take longer than this one
_AGREE = 0.01  # relative: how near two ends are if other theorems can say hardly less
_BOTH_ENDS = Resolution()
UPPER_END = Resolution(lower_end=False)
ROUGH = Resolution(relative_error=1e-5, most_work=1e6, lattice_nodes=2**13, lower_end=False)
"""Upper ends that are bounds too, but a little loose and sooner found: to search with."""
_SKETCH = Resolution(
    relative_error=1e-8,
    most_work=1e6,
    most_nodes=50_000,
    lattice_nodes=2**13,
    lower_end=False,
)
_CURVES = ("rdp", "zcdp")  # to ask these for a δ is no search
_LOOSER = (*_CURVES, "advanced", "basic")


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The certified upper end of ε(δ)."""
    return epsilon_interval(event, delta, adjacency, UPPER_END).upper


def delta(event: Event, epsilon: float, adjacency: Adjacency) -> float:
    """The certified upper end of δ(ε)."""
    return delta_interval(event, epsilon, adjacency, UPPER_END).upper


def epsilon_interval(
    event: Event, delta: float, adjacency: Adjacency, resolution: Resolution = _BOTH_ENDS
) -> Interval:
    """Certified ends of ε(δ)."""
    selection = _sole_selection(event)
    if selection is not None:
        by_profile = selection_profile_of(selection, adjacency).epsilon(delta)
        return _selected(by_profile, lambda one: one.epsilon(selection, delta, adjacency))
    uncovered = without_vain_sampling(event)
    try:
        found = enclose_epsilon(uncovered, delta, adjacency, resolution)
    except UnsupportedEvent as refusal:
        return _best_of_others(
            lambda one: one.epsilon(event, delta, adjacency), refusal, _theorems(event)
        )
    except ArithmeticError:  # OutOfRange, or an overflow
        return _best_of_others(lambda one: one.epsilon(event, delta, adjacency), _too_loud(event))
    if uncovered != event:
        found = _upper_end(found)
    else:
        found = _within_largest_loss(found, event, adjacency)
    return _least(found, event, lambda one: one.epsilon(event, delta, adjacency), _LOOSER)


def delta_interval(
    event: Event, epsilon: float, adjacency: Adjacency, resolution: Resolution = _BOTH_ENDS
) -> Interval:
    """Certified ends of δ(ε)."""
    selection = _sole_selection(event)
    if selection is not None:
        by_profile = selection_profile_of(selection, adjacency).delta(epsilon)
        return _selected(by_profile, lambda one: one.delta(selection, epsilon, adjacency))
    uncovered = without_vain_sampling(event)
    try:
        found = enclose_delta(uncovered, epsilon, adjacency, resolution)
    except UnsupportedEvent as refusal:
        return _best_of_others(
            lambda one: one.delta(event, epsilon, adjacency), refusal, _theorems(event)
        )
    except ArithmeticError:  # OutOfRange, or an overflow
        return _best_of_others(lambda one: one.delta(event, epsilon, adjacency), _too_loud(event))
    if uncovered != event:
        found = _upper_end(found)
    return _least(found, event, lambda one: one.delta(event, epsilon, adjacency), _CURVES)


def sketch(event: Event, adjacency: Adjacency, deltas: Sequence[float]) -> LaidCurve | None:
    """The whole curve of ``event`` at once, sharp about ``deltas``; None if it has no pair.

    Guarantee:
        Its answers are upper bounds as ``epsilon`` and ``delta`` are, a little looser than those.
    """
    try:
        return lay_curve(without_vain_sampling(event), adjacency, deltas, _SKETCH)
    except (UnsupportedEvent, ArithmeticError, TooSlow):
        return None


def selection_profile_of(event: PrivateSelection, adjacency: Adjacency) -> SelectionProfile:
    """The privacy profile of a selection, from the certified one of its base."""
    promise = loss_of(concrete(event.base, adjacency))
    if promise is not None:
        return _selection_of_black_box(event.runs, *promise)
    return selection_profile(
        event.runs,
        lambda share: epsilon(event.base, share, adjacency),
        lambda at: delta(event.base, at, adjacency),
    )


def _selection_of_black_box(runs: Runs, loss: float, failure: float) -> SelectionProfile:
    """In closed form: the general way loses digits where δ is all but used up by failures."""
    return selection_profile(
        runs,
        lambda share: black_box_epsilon(loss, failure, share),
        lambda at: black_box_delta(loss, failure, at),
        tried=(loss,),
    )


def _sole_selection(event: Event) -> PrivateSelection | None:
    match event:
        case PrivateSelection():
            return event
        case Repeated() | Composed():
            found = parts(event)
            if len(found) == 1 and found[0][1] == 1 and isinstance(found[0][0], PrivateSelection):
                return found[0][0]
    return None


def _selected(by_profile: float, ask: Callable[[Accountant], float]) -> Interval:
    """The smaller of a selection's two bounds."""
    upper, name = min([(by_profile, "selection profile"), *_others(ask, ("rdp",))])
    return Interval(0.0, upper, two_sided=False, method=name)


def without_vain_sampling(event: Event) -> Event:
    """``event`` with Poisson sampling left out where its Gaussian noise hides next to nothing.

    Whoever is sampled is then seen, at a loss of 1/2σ² a step, more than can be computed with.
    Sampling can only lower what is released: the answer without it is an upper bound.
    """
    match event:
        case PoissonSampled(cap=None, event=Gaussian(sigma=sigma)) if sigma < _VAIN_NOISE:
            return event.event
        case Repeated():
            return Repeated(without_vain_sampling(event.event), event.times)
        case Composed():
            return Composed(*(without_vain_sampling(one) for one in event.events))
        case _:
            return event


def _upper_end(found: Interval) -> Interval:
    return Interval(0.0, found.upper, two_sided=False, method="exact, without the sampling")


def _least(
    found: Interval, event: Event, ask: Callable[[Accountant], float], names: tuple[str, ...]
) -> Interval:
    """``found`` with the least upper end that any theorem proves, where it is not settled."""
    narrow = math.isfinite(found.upper) and found.width <= _AGREE * found.upper
    if found.lower == math.inf or (found.two_sided and narrow) or len(parts(event)) > _MANY:
        return found
    upper, name = min([*_others(ask, names), (found.upper, "")])
    if not upper < found.upper:
        return found
    method = f"{name} instead of {found.method}"
    return replace(found, upper=max(upper, found.lower), method=method)


def _within_largest_loss(found: Interval, event: Event, adjacency: Adjacency) -> Interval:
    """Takes off what rounding a bound up has put above the sum of pure losses."""
    from tacit.accounting.steps import steps_of, sum_of  # noqa: PLC0415 - it needs this module

    if found.method not in ("grid", "lattice"):
        return found
    try:
        steps = steps_of(event, adjacency, "basic")
    except UnsupportedEvent:
        return found
    if steps.free or steps.truncation > 0.0 or steps.least > 0.0:
        return found
    largest = sum_of(steps, 0.0)
    if [step.count for step in steps.steps] != [1]:
        largest = math.nextafter(largest, math.inf)  # above the rounding of products and sum
    return replace(found, upper=min(found.upper, max(largest, found.lower)))


def _too_loud(event: Event) -> UnsupportedEvent:
    return UnsupportedEvent(event, "exact", "its losses are beyond floating-point numbers")


def _theorems(event: Event) -> tuple[str, ...]:
    """The other accountants worth asking: one Rényi curve by itself is nothing but converted."""
    match parts(event):
        case [(RenyiCurve() | ZeroConcentrated() | TruncatedConcentrated(), 1)]:
            return ("rdp", "zcdp")
    return _LOOSER


def _best_of_others(
    ask: Callable[[Accountant], float],
    refusal: UnsupportedEvent,
    names: tuple[str, ...] = _LOOSER,
) -> Interval:
    others = _others(ask, names)
    if not others:
        raise refusal
    upper, name = min(others)
    return Interval(0.0, upper, two_sided=False, method=name)


def _others(
    ask: Callable[[Accountant], float], names: tuple[str, ...] = _LOOSER
) -> list[tuple[float, str]]:
    found = []
    for name in names:
        try:
            found.append((float(ask(accountant_named(name))), name))
        except (UnsupportedEvent, ArithmeticError):
            continue
    return found
