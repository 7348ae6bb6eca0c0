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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tacit.accounting.accountants import Accountant, accountant_named
from tacit.accounting.accountants.composition import steps_of, sum_of
from tacit.accounting.events import (
    AboveThreshold,
    Composed,
    Gaussian,
    NoisyMax,
    PoissonSampled,
    PrivateSelection,
    RandomAllocation,
    RenyiCurve,
    Repeated,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedConcentrated,
    ZeroConcentrated,
    both_ways,
)
from tacit.accounting.exact.certificate import (
    enclose_delta,
    enclose_epsilon,
    largest_losses,
    lay_curve,
)
from tacit.accounting.exact.enclosure import Interval, Resolution, TooSlow
from tacit.accounting.normal_form import parts
from tacit.accounting.selection_profile import selection_profile_of
from tacit.errors import UnsupportedEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tacit.accounting.events import Adjacency, Event, Neighbours
    from tacit.accounting.exact.certificate import LaidCurve
    from tacit.accounting.normal_form import Parts
    from tacit.accounting.selection_profile import SelectionProfile

_VAIN_NOISE = 0.035
_SAMPLED_ROUNDING = 1.0 + 2.0**-49
_FEWEST = 64  # steps of an allocation that are still made fewer
_MANY = 100  # different parts, from which the other theorems would take longer than this one
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


def epsilon(event: Event, delta: float, adjacency: Neighbours) -> float:
    """The certified upper end of ε(δ)."""
    return epsilon_interval(event, delta, adjacency, UPPER_END).upper


def delta(event: Event, epsilon: float, adjacency: Neighbours) -> float:
    """The certified upper end of δ(ε)."""
    return delta_interval(event, epsilon, adjacency, UPPER_END).upper


def epsilon_interval(
    event: Event, delta: float, adjacency: Neighbours, resolution: Resolution = _BOTH_ENDS
) -> Interval:
    """Certified ends of ε(δ)."""
    if delta == 0.0:
        return _pure_interval(event, adjacency)

    def enclose(found: Parts) -> Interval:
        ends = enclose_epsilon(found, delta, adjacency, resolution)
        return _within_largest_loss(ends, event, both_ways(adjacency))

    question = _Question(
        enclose,
        by_profile=lambda profile: profile.epsilon(delta),
        ask=lambda one: one.epsilon(event, delta, both_ways(adjacency)),
        others=_LOOSER,
    )
    return _answer(question, event, both_ways(adjacency))


def _pure_interval(event: Event, neighbours: Neighbours) -> Interval:
    """Certified ends of the pure ε: the largest loss, and the sum of what single releases promise.

    Losses that actual neighbours attain add up in one of the two directions.
    """
    adjacency = both_ways(neighbours)
    found = parts(event, adjacency)
    ends = Interval(0.0, math.inf, two_sided=False)
    refusal = None
    try:
        ends = largest_losses(found, neighbours)
    except ArithmeticError:
        pass
    except UnsupportedEvent as reason:
        refusal = reason
    others = _others(lambda one: one.epsilon(event, 0.0, adjacency), ("basic",))
    if refusal is not None and not others:
        raise refusal
    # A sum errs by its last digit, what a sample makes of a loss by some of them.
    raised = _SAMPLED_ROUNDING if any(_is_sampled(part) for part, _ in found) else 1.0
    rounded = (math.nextafter(one * raised, math.inf) for one, _ in others if one > 0.0)
    upper = min([ends.upper, *rounded])
    if [count for _, count in found] == [1] and not _is_sampled(found[0][0]):
        upper = min([upper, *(one for one, _ in others)])  # no sum that could have been rounded
    claimed = not any(_is_one_of_its_class(part) for part, _ in found)
    lower = min(ends.lower, upper) if claimed else 0.0
    two_sided = lower > 0.0 or upper == 0.0
    return Interval(lower, upper, two_sided=two_sided, method="largest loss")


def _is_sampled(event: Event) -> bool:
    return isinstance(event, PoissonSampled | SampledWithoutReplacement | SampledWithReplacement)


def delta_interval(
    event: Event, epsilon: float, adjacency: Neighbours, resolution: Resolution = _BOTH_ENDS
) -> Interval:
    """Certified ends of δ(ε)."""
    question = _Question(
        enclose=lambda found: enclose_delta(found, epsilon, adjacency, resolution),
        by_profile=lambda profile: profile.delta(epsilon),
        # What underflows is not 0: no Rényi curve proves that.
        ask=lambda one: max(one.delta(event, epsilon, both_ways(adjacency)), math.ulp(0.0)),
        others=_CURVES,
    )
    return _answer(question, event, both_ways(adjacency))


@dataclass(frozen=True)
class _Question:
    """An ε or a δ of one event.

    Attributes:
        enclose: Certified ends, from the event's normal form.
        by_profile: An upper bound, from the profile of a selection.
        ask: Another accountant's answer.
        others: The accountants worth asking where certified ends are far apart.
    """

    enclose: Callable[[Parts], Interval]
    by_profile: Callable[[SelectionProfile], float]
    ask: Callable[[Accountant], float]
    others: tuple[str, ...]


def _answer(question: _Question, event: Event, adjacency: Adjacency) -> Interval:
    uncovered = without_vain_sampling(event)
    found = parts(uncovered, adjacency)
    selection = _sole_selection(event, found)
    if selection is not None:
        by_profile = question.by_profile(selection_profile_of(selection, adjacency))
        return _selected(by_profile, question.ask)
    try:
        ends = question.enclose(found)
    except UnsupportedEvent as refusal:
        for looser in fewer_steps(uncovered):
            try:
                upper = question.enclose(parts(looser, adjacency)).upper
            except UnsupportedEvent:
                continue
            return Interval(0.0, upper, two_sided=False, method="exact, of fewer steps")
        return _best_of_others(question.ask, refusal, _theorems(found))
    except ArithmeticError:  # OutOfRange, or an overflow
        reason = "its losses are beyond floating-point numbers"
        return _best_of_others(question.ask, UnsupportedEvent(event, "exact", reason), _LOOSER)
    if uncovered is not event and uncovered != event:
        method = "exact, without the sampling"
        ends = Interval(0.0, ends.upper, two_sided=False, method=method)
    elif _has_visits(event) or any(_is_one_of_its_class(part) for part, _ in found):
        ends = replace(ends, lower=0.0, two_sided=False)
    return ends if len(found) > _MANY else _least(ends, question)


def sketch(event: Event, adjacency: Neighbours, deltas: Sequence[float]) -> LaidCurve | None:
    """The whole curve of ``event`` at once, sharp about ``deltas``; None if it has no pair.

    Guarantee:
        Its answers are upper bounds as ``epsilon`` and ``delta`` are, a little looser than those.
    """
    try:
        found = parts(without_vain_sampling(event), both_ways(adjacency))
        return lay_curve(found, adjacency, deltas, _SKETCH)
    except (UnsupportedEvent, ArithmeticError, TooSlow):
        return None


def _sole_selection(event: Event, found: Parts) -> PrivateSelection | None:
    """The selection that is all of ``event``, whose normal form is ``found``."""
    if isinstance(event, PrivateSelection) and found and isinstance(found[0][0], PrivateSelection):
        return event
    match found:
        case [(PrivateSelection() as selection, 1)]:
            return selection
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
        case Repeated(inner, times):
            other = without_vain_sampling(inner)
            return event if other is inner else Repeated(other, times)
        case Composed():
            found = [without_vain_sampling(one) for one in event.events]
            same = all(one is other for one, other in zip(found, event.events, strict=True))
            return event if same else Composed(*found)
        case _:
            return event


def fewer_steps(event: Event) -> Iterator[Event]:
    """Events that give away more: allocations over ever fewer steps, and over none at last.

    The mean of fewer independent likelihood ratios is larger in convex order, and so is every
    divergence. None is yielded if there are no allocations.
    """
    before = event
    while True:
        fewer = _with_fewer_steps(before)
        if fewer == before:
            return
        yield fewer
        before = fewer


def _with_fewer_steps(event: Event) -> Event:
    match event:
        case RandomAllocation(steps, inner, epochs, visits):
            if steps >= _FEWEST * visits:
                return replace(event, steps=steps // 4)
            return Repeated(inner, visits * epochs)
        case Repeated(inner, times):
            return Repeated(_with_fewer_steps(inner), times)
        case Composed():
            return Composed(*map(_with_fewer_steps, event.events))
        case _:
            return event


def _has_visits(event: Event) -> bool:
    """Whether a record may visit several steps of an epoch: blocks bound that."""
    match event:
        case RandomAllocation():
            return event.visits > 1
        case Repeated():
            return _has_visits(event.event)
        case Composed():
            return any(map(_has_visits, event.events))
        case _:
            return False


def _is_one_of_its_class(event: Event) -> bool:
    """Whether the ends are those of the worst of a class that ``event`` may be better than.

    A sparse vector, and a noisy maximum but for Gumbel's noise, are enclosed by their pure loss.
    """
    match event:
        case AboveThreshold():
            return True
        case NoisyMax():
            return event.noise != "gumbel"
        case PoissonSampled() | SampledWithoutReplacement() | SampledWithReplacement():
            return _is_one_of_its_class(event.event)
        case Repeated():
            return _is_one_of_its_class(event.event)
        case Composed():
            return any(map(_is_one_of_its_class, event.events))
        case _:
            return False


def _least(found: Interval, question: _Question) -> Interval:
    """``found`` with the least upper end that any theorem proves, where it is not settled.

    On a grid it never is, for ``epsilon`` does not ask for the lower end there: it and ``bounds``
    must find the same upper end.
    """
    narrow = found.two_sided and found.is_narrow and not found.on_grid
    if found.lower == math.inf or narrow:
        return found
    upper, name = min([*_others(question.ask, question.others), (found.upper, "")])
    if not upper < found.upper:
        return found
    method = f"{name} instead of {found.method}"
    return replace(found, upper=max(upper, found.lower), method=method)


def _within_largest_loss(found: Interval, event: Event, adjacency: Adjacency) -> Interval:
    """Takes off what rounding a bound up has put above the sum of pure losses."""
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


def _theorems(found: Parts) -> tuple[str, ...]:
    """The other accountants worth asking: one Rényi curve by itself is nothing but converted."""
    match found:
        case [(RenyiCurve() | ZeroConcentrated() | TruncatedConcentrated(), 1)]:
            return _CURVES
    return _LOOSER


def _best_of_others(
    ask: Callable[[Accountant], float], refusal: UnsupportedEvent, names: tuple[str, ...]
) -> Interval:
    others = _others(ask, names)
    if not others:
        raise refusal
    upper, name = min(others)
    return Interval(0.0, upper, two_sided=False, method=name)


def _others(ask: Callable[[Accountant], float], names: tuple[str, ...]) -> list[tuple[float, str]]:
    """What other accountants answer, and their names; those that refuse are left out."""
    found = []
    for name in names:
        try:
            found.append((float(ask(accountant_named(name))), name))
        except (UnsupportedEvent, ArithmeticError):
            continue
    return found


EXACT = Accountant(epsilon, delta)
