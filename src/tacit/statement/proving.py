"""What can be proved of a statement from itself: that its ε covers its event, and that its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tacit._numbers import rounded_up
from tacit._validation import shown
from tacit.errors import InvalidArgument
from tacit.statement.access import without_preprocessing
from tacit.statement.figures import bracket, check_work
from tacit.statement.plan import planned_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.accounting.events import Adjacency
    from tacit.statement.claim import Statement

_SLACK: Final = 1e-9  # relative: what two builds of one accountant may differ by


def proved(event: Mapping[str, Any], delta: float, accountant: str, adjacency: Adjacency) -> float:
    """The ε that ``accountant`` proves at ``delta``; one that proves nothing is refused."""
    from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked
    from tacit.accounting.serialization import from_plain  # noqa: PLC0415

    if accountant == "gdp-clt":
        raise InvalidArgument("accountant must prove a bound, got 'gdp-clt'; use 'exact'")
    if accountant == "exact":
        return bracket(event, delta, adjacency).upper
    given = from_plain(event)
    check_work(given)
    return epsilon(given, delta, accountant=accountant, adjacency=adjacency)


def check_claim(statement: Statement) -> None:
    """Refuses a claim of less than is proved."""
    least = proved(statement.event, statement.delta, statement.accountant, statement.adjacency)
    if not statement.epsilon >= least * (1.0 - _SLACK):
        raise InvalidArgument(
            f"epsilon must be at least the {rounded_up(least)} that {statement.accountant!r} "
            f"proves for the event, got {statement.epsilon!r}"
        )


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
    for name, told, claimed in (
        ("adjacency", planned.adjacency, statement.adjacency),
        ("unit", planned.unit, statement.unit),
        ("steps", planned.steps, statement.steps_planned),
    ):
        if told != claimed:
            raise InvalidArgument(f"{name} must be as in the plan, {told!r}, got {shown(claimed)}")
    assert statement.steps_taken is not None  # with the plan's steps_planned
    spent, covered = statement.steps_taken + statement.steps_lost, steps_covered(statement)
    if covered < spent:
        raise InvalidArgument(
            f"event must cover the {spent} steps of its plan that were taken or lost, got one that "
            f"covers {covered}; make the statement again"
        )


def steps_covered(statement: Statement) -> int:
    """How many of its plan's steps the event covers, beside preprocessing; 0 without a plan."""
    from tacit.accounting.serialization import from_plain  # noqa: PLC0415 - only where one is

    if statement.plan is None:
        return 0
    training = without_preprocessing(statement.event, statement.preprocessing)
    return planned_event(statement.plan).covered(from_plain(training))
