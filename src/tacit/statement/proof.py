"""What can be proved of a statement from itself: that its ε covers its event, and that its plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tacit._numbers import rounded_up
from tacit._validation import UNITS, clip_in_reach, open_probability, positive, shown
from tacit.accounting.events import (
    Composed,
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    Repeated,
    check_adjacency,
)
from tacit.accounting.factorization import (
    FixedEpochs,
    buffered_coefficients,
    inverse_coefficients,
    inverse_sensitivity,
    normalised_sensitivity,
)
from tacit.errors import InvalidArgument
from tacit.statement.fields import count
from tacit.statement.figures import bracket, check_work
from tacit.statement.preprocessing import without_preprocessing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.accounting.events import Adjacency, Event
    from tacit.statement.claim import Statement


_SLACK: Final = 1e-9  # relative: what two builds of one accountant may differ by


def proved(event: Mapping[str, Any], delta: float, accountant: str, adjacency: Adjacency) -> float:
    """The ε that ``accountant`` proves at ``delta``; one that proves nothing is refused."""
    from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    if accountant == "gdp-clt":
        raise InvalidArgument("accountant must prove a bound, got 'gdp-clt'; use 'exact'")
    if accountant == "exact":
        return bracket(event, delta, adjacency).upper
    given = from_dict(event)
    check_work(given)
    return epsilon(given, delta, accountant=accountant, adjacency=adjacency)


def check_claim(statement: Statement) -> None:
    """Refuses a claim of less than is proved."""
    event, delta, adjacency = statement.event, statement.delta, statement.adjacency
    least = proved(event, delta, statement.accountant, adjacency)
    if statement.epsilon < least and statement.accountant == "exact":
        # ``epsilon`` needs no lower end, without which it may ask more theorems than ``bounds``.
        # What it proves is certified too, and a claim made with it must not be refused.
        least = min(least, _least(event, delta, adjacency))
    if not statement.epsilon >= least * (1.0 - _SLACK):
        raise InvalidArgument(
            f"epsilon must be at least the {rounded_up(least)} that {statement.accountant!r} "
            f"proves for the event, got {statement.epsilon!r}"
        )


def _least(event: Mapping[str, Any], delta: float, adjacency: Adjacency) -> float:
    """The ε that ``tacit.accounting.epsilon`` proves."""
    from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    return epsilon(from_dict(event), delta, adjacency=adjacency)


def check_plan(statement: Statement) -> None:
    """Refuses a plan that is not that of the statement, and an event that does not cover its steps.

    Guarantee:
        With a plan, the event (beside what preprocessing was charged) is made of steps that are
        the plan's, at least as many of them as were taken and lost together.
    """
    if statement.plan is None:
        if statement.steps_planned is not None:
            raise InvalidArgument(
                "plan must be given with steps_planned and steps_taken: without it nobody can "
                "check that the event covers them"
            )
        return
    planned = planned_event(statement.plan)
    for name, planned_value, claimed in (
        ("adjacency", planned.adjacency, statement.adjacency),
        ("unit", planned.unit, statement.unit),
        ("steps", planned.steps, statement.steps_planned),
    ):
        if planned_value != claimed:
            raise InvalidArgument(
                f"{name} must be as in the plan, {planned_value!r}, got {shown(claimed)}"
            )
    assert statement.steps_taken is not None  # with the plan's steps_planned
    spent, covered = statement.steps_taken + statement.steps_lost, steps_covered(statement)
    if covered < spent:
        raise InvalidArgument(
            f"event must cover the {spent} steps of its plan that were taken or lost, got one that "
            f"covers {covered}; make the statement again"
        )


def steps_covered(statement: Statement) -> int:
    """How many of its plan's steps the event covers, beside preprocessing; 0 without a plan."""
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415 - only where one is

    if statement.plan is None:
        return 0
    training = without_preprocessing(statement.event, statement.preprocessing)
    return planned_event(statement.plan).covered(from_dict(training))


# ---- the plan, read a second time
#
# ``tacit.training.plan`` derives a plan's event when a run is planned. Here it is derived again
# from the plan's JSON alone, so that a reader need not trust the program that wrote the
# statement; a test holds the two against each other.


_FIELDS: Final = frozenset(
    {
        "examples", "lot_size", "steps", "noise_multiplier", "clip", "adjacency", "unit",
        "examples_per_user", "views", "clipping", "sampling", "noise",
    }
)  # fmt: skip
_NOISE: Final = ("fast", "secure", "exact")
_CLIPPING: Final[Mapping[str, frozenset[str]]] = {
    "Flat": frozenset(),
    "PerLayer": frozenset(),
    "PerGroup": frozenset({"bounds"}),
    "Automatic": frozenset({"stability"}),
    "AdaptiveQuantile": frozenset({"quantile", "learning_rate", "count_noise"}),
}
_SAMPLING: Final[Mapping[str, frozenset[str]]] = {
    "Poisson": frozenset(),
    "FullBatch": frozenset(),
    "TruncatedPoisson": frozenset({"largest"}),
    "Allocation": frozenset(),
    "Cyclic": frozenset(),
}
_WORKLOAD: Final = frozenset({"momentum", "schedule"})
_CORRELATION: Final[Mapping[str, frozenset[str]]] = {
    "Banded": _WORKLOAD | {"bands", "coefficients"},
    "InverseBanded": _WORKLOAD | {"bands", "coefficients"},
    "Buffered": _WORKLOAD | {"buffers", "scales", "decays"},
    "Anticorrelated": _WORKLOAD | {"share"},
}
_LONGEST_RUN: Final = 1_000_000  # steps of correlated noise that anyone can follow


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """What a plan says of privacy: ``step`` is what each ``each`` of its ``steps`` release.

    With independent noise, each one; under allocation, each epoch. With correlated noise it is a
    turn of all groups, or all of the run together (``at_once``), of which an event with less noise
    covers as much.
    """

    steps: int
    adjacency: str
    unit: str
    step: Event
    each: int = 1
    at_once: bool = False

    def covered(self, event: Event) -> int:
        """How many of the plan's steps ``event`` covers, alone or beside other releases.

        A composition releases at least what any of its parts does, and repeated ones add up.
        """
        if event == self.step and not isinstance(event, RandomAllocation):
            return self.each
        match event, self.step:
            case Gaussian(sigma, moved), Gaussian(least, same) if self.at_once and moved == same:
                return self.each if sigma <= least * (1.0 + _SLACK) else 0
        match event:
            case RandomAllocation(steps, inner, epochs):
                return epochs * steps if RandomAllocation(steps, inner) == self.step else 0
            case Repeated(inner, times):
                return times * self.covered(inner)
            case Composed(parts):
                return sum(map(self.covered, parts))
            case _:
                return 0


def planned_event(plain: Mapping[str, Any]) -> PlannedEvent:
    """The event of a plan as ``Plan.as_dict`` writes it; what cannot be a plan is refused.

    >>> planned_event({
    ...     "examples": 9, "lot_size": 9, "steps": 5, "noise_multiplier": 2.0, "clip": 1.0,
    ...     "adjacency": "add-remove", "unit": "example", "examples_per_user": None, "views": 1,
    ...     "clipping": {"kind": "Flat"}, "sampling": {"kind": "FullBatch"}, "noise": "fast",
    ... }).step
    Gaussian(sigma=2.0, replace_distance=2.0)
    """
    if set(plain) - {"correlation"} != _FIELDS:
        raise InvalidArgument(
            f"plan must have exactly the fields {sorted(_FIELDS)}, got {shown(sorted(plain))}"
        )
    _check_clip(plain)
    _check_unit(plain)
    count("plan's views", plain["views"], at_least=1)
    if plain["noise"] not in _NOISE:
        raise InvalidArgument(
            f"plan's noise must be one of {', '.join(_NOISE)}, got {shown(plain['noise'])}"
        )
    steps = count("plan's steps", plain["steps"], at_least=1)
    at_once = False
    if plain.get("correlation") is None:
        each, step = 1, _sampled(plain, _released(plain))
    else:
        each, step = _correlated(plain, steps)
        at_once = isinstance(step, Gaussian)
    return PlannedEvent(
        steps=steps,
        adjacency=check_adjacency(plain["adjacency"]),
        unit=plain["unit"],
        step=step,
        each=each,
        at_once=at_once,
    )


def _kind(name: str, value: object, kinds: Mapping[str, frozenset[str]]) -> str:
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in kinds or set(value) != kinds[kind] | {"kind"}:  # type: ignore[call-overload]
        raise InvalidArgument(f"plan's {name} must be as Plan writes it, got {shown(value)}")
    return kind


def _check_unit(plain: Mapping[str, Any]) -> None:
    unit, most = plain["unit"], plain["examples_per_user"]
    if unit not in UNITS or (most is None) != (unit == "example"):
        raise InvalidArgument(
            f"plan's unit must be one of {', '.join(UNITS)}, with examples_per_user for users, got "
            f"{shown(unit)} and {shown(most)}"
        )
    if most is not None:
        count("plan's examples_per_user", most, at_least=1)


def _check_clip(plain: Mapping[str, Any]) -> None:
    clip, style = clip_in_reach("plan's clip", plain["clip"]), plain["clipping"]
    kind = _kind("clipping", style, _CLIPPING)
    if kind == "Automatic":
        positive("plan's stability", style["stability"])
    if kind != "PerGroup":
        return
    bounds = style["bounds"]
    if not isinstance(bounds, list) or not all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in bounds
    ):
        raise InvalidArgument(f"plan's bounds must be pairs, got {shown(bounds)}")
    whole = math.hypot(*(positive("plan's bounds", one) for _, one in bounds))
    if not math.isclose(whole, clip, rel_tol=1e-9):
        raise InvalidArgument(f"plan's clip must be the {whole:.6g} of its bounds, got {clip!r}")


def _released(plain: Mapping[str, Any]) -> Event:
    """What a step releases of its lot: the noisy sum, and under AdaptiveQuantile a noisy count."""
    total = Gaussian(positive("plan's noise_multiplier", plain["noise_multiplier"]))
    style = plain["clipping"]
    if style["kind"] != "AdaptiveQuantile":
        return total
    open_probability("plan's quantile", style["quantile"])
    positive("plan's learning_rate", style["learning_rate"])
    # One record moves the centred count by ½ (Andrew et al. 2021, section 3).
    return Composed(total, Gaussian(2.0 * positive("plan's count_noise", style["count_noise"])))


def _lots(examples: int, lot: float) -> int:
    """How many lots an epoch of allocation has: examples/lot, rounded up."""
    exact = examples / lot
    nearest = round(exact)
    return nearest if math.isclose(exact, nearest, rel_tol=1e-12) else math.ceil(exact)


def _sampled(plain: Mapping[str, Any], released: Event) -> Event:
    examples = count("plan's examples", plain["examples"], at_least=1)
    lot = positive("plan's lot_size", plain["lot_size"])
    kind = _kind("sampling", plain["sampling"], _SAMPLING)
    if kind == "Cyclic":
        raise InvalidArgument("plan's sampling must not be Cyclic without correlated noise")
    if lot > examples or (kind == "FullBatch" and lot != examples):
        raise InvalidArgument(
            f"plan's lot_size must be at most examples = {examples}, and equal to it for a full "
            f"batch, got {lot!r}"
        )
    rate = lot / examples
    if kind == "FullBatch":
        return released
    if kind == "Poisson":
        return PoissonSampled(rate, released)
    if kind == "Allocation":
        return RandomAllocation(_lots(examples, lot), released)
    largest = count("plan's largest", plain["sampling"]["largest"], at_least=1)
    if largest <= lot:
        raise InvalidArgument(f"plan's largest must be above lot_size = {lot!r}, got {largest!r}")
    # Under add-remove the neighbouring data set may have one record more.
    population = examples + (1 if plain["adjacency"] == "add-remove" else 0)
    return PoissonSampled(rate, released, cap=largest, population=population)


# ---- correlated noise


def _correlated(plain: Mapping[str, Any], steps: int) -> tuple[int, Event]:
    """How many steps belong together, and what they release of one record's participation.

    With Poisson lots a banded strategy's groups, one for each band, take turns (2306.08153, Theorem
    4); else a record takes part in every turn of its group, and the run is one release.
    """
    own, sampling = plain["correlation"], _kind("sampling", plain["sampling"], _SAMPLING)
    kind = _kind("correlation", own, _CORRELATION)
    sigma = positive("plan's noise_multiplier", plain["noise_multiplier"])
    examples = count("plan's examples", plain["examples"], at_least=1)
    lot = positive("plan's lot_size", plain["lot_size"])
    fixed = plain["clipping"]["kind"] != "AdaptiveQuantile"
    if not fixed or sampling == "TruncatedPoisson" or (sampling == "Poisson" and kind != "Banded"):
        raise InvalidArgument(
            "plan's correlation must go with a fixed clip and lots as Plan allows, got "
            f"{shown(own)}"
        )
    if sampling == "Poisson":
        bands = count("plan's bands", own["bands"], at_least=2)
        if lot * bands > examples or len(_numbers(own, "coefficients")) != bands:
            raise InvalidArgument(f"plan's bands must be as Plan allows, got {bands}")
        return bands, PoissonSampled(min(1.0, lot / examples * bands), Gaussian(sigma))
    whole_batch = sampling == "FullBatch" and lot == examples
    if steps > _LONGEST_RUN or lot > examples or (sampling == "FullBatch") != whole_batch:
        raise InvalidArgument(f"plan's lots and steps must be as Plan allows, got {lot}, {steps}")
    groups = 1 if whole_batch else max(1, round(examples / lot))
    return steps, Gaussian(sigma / _participations(kind, own, steps, FixedEpochs(groups)))


def _participations(kind: str, own: Mapping[str, Any], steps: int, apart: FixedEpochs) -> float:
    """The sensitivity of all of a record's participations, in units of one."""
    if kind == "Banded":
        return normalised_sensitivity(_numbers(own, "coefficients"), steps, apart).value
    if kind == "Buffered":
        scales, decays = _numbers(own, "scales"), _numbers(own, "decays")
        if len(scales) != len(decays) or max(scales) > 0.0 or min(decays) <= 0.0:
            raise InvalidArgument(f"plan's correlation must be as Plan writes it, got {shown(own)}")
        strategy, terms = buffered_coefficients(scales, decays, steps), 2 * len(scales)
    else:
        share = own.get("share", 0.0)
        inverse = _numbers(own, "coefficients") if kind == "InverseBanded" else [1.0, -share]
        if inverse[0] != 1.0 or max(inverse[1:]) > 0.0:
            raise InvalidArgument(f"plan's correlation must be as Plan writes it, got {shown(own)}")
        strategy, terms = inverse_coefficients(inverse, steps), len(inverse)
    return inverse_sensitivity(strategy, apart, terms=terms).sensitivity


def _numbers(own: Mapping[str, Any], name: str) -> list[float]:
    """A list of finite numbers, not too long."""
    given = own[name]
    right = isinstance(given, list | tuple) and 0 < len(given) <= 1024
    if not right or not all(type(one) in {int, float} and math.isfinite(one) for one in given):
        raise InvalidArgument(f"plan's {name} must be finite numbers, got {shown(given)}")
    return [float(one) for one in given]
