"""Bugs in what is charged: another event than what happened, too late, or not at all."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import tacit.training.plan as planning
from tacit.accounting import epsilon as epsilon_of
from tacit.auditing.replay.part_checks import refusals
from tacit.errors import InvalidArgument
from tacit.statement import claim as statements
from tacit.training import claim
from tacit.training.charging import StepCharges
from tacit.training.styles import AdaptiveQuantile

from . import settings
from .mutant import Mutant, together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.accounting import Event
    from tacit.training.plan import Plan

_BEGIN, _TAKE, _CLOSE = StepCharges.begin, StepCharges.take, StepCharges.close  # as they should be


def _unproved() -> Any:
    """Statements, which derive the event a second time and would refuse another, do not."""
    return patch.object(statements, "check_plan", lambda _: None)


def _distance_of_one() -> Any:
    """Replacing a record moves the sum by two clips; here by one, as adding one does."""
    wrong = partial(planning.Gaussian, replace_distance=1.0)
    return together(_unproved(), patch.object(planning, "Gaussian", wrong))


def _half_the_rate() -> Any:
    def sampled(rate: float, event: Event, **given: Any) -> Event:
        return planned(rate / 2.0, event, **given)

    planned = planning.PoissonSampled
    return together(_unproved(), patch.object(planning, "PoissonSampled", sampled))


def _every_other_step() -> Any:
    def take(self: Any) -> bool:
        self._free = not getattr(self, "_free", True)
        if not self._free:
            return _TAKE(self)
        self._taken += 1
        return True

    return patch.object(StepCharges, "take", take)


def _at_the_root_of_delta() -> Any:
    def epsilon(plan: Plan, steps: int, delta: float) -> float:
        return epsilon_of(plan.event_after(steps), delta**0.5, adjacency=plan.adjacency)

    return together(
        patch.object(claim, "epsilon", epsilon),
        patch.object(statements, "check_claim", lambda _: None),  # it would refuse to say so
    )


@contextmanager
def _at_the_end() -> Iterator[None]:
    """Nothing is written before the run is over; then all of it is."""

    def begin(self: Any, *given: Any) -> None:
        self._due, self._steps = given, 0

    def take(self: Any) -> bool:
        self._steps += 1
        return True

    def close(self: Any) -> None:
        due, self._due = getattr(self, "_due", None), None
        if due is not None:
            _BEGIN(self, *due)
            for _ in range(self._steps):
                _TAKE(self)
        _CLOSE(self)

    with patch.multiple(StepCharges, begin=begin, take=take, close=close):
        yield


@contextmanager
def _one_step_late() -> Iterator[None]:
    """A step is granted when the next one begins, or at the end."""

    def take(self: Any) -> bool:
        due, self._due = getattr(self, "_due", False), True
        return _TAKE(self) if due else True

    def close(self: Any) -> None:
        if getattr(self, "_due", False):
            self._due = False
            _TAKE(self)
        _CLOSE(self)

    with patch.multiple(StepCharges, take=take, close=close):
        yield


def _quarter_of_a_record() -> Any:
    """A record adds ±½ to the count; charged as if it were a quarter."""
    wrong = property(lambda self: 4.0 * self.count_noise)
    return together(_unproved(), patch.object(AdaptiveQuantile, "count_multiplier", wrong))


def _unchecked() -> Any:
    """A statement that no accountant can make sense of is read as no statement at all."""
    read = statements.Statement.from_json

    def from_json(text: str) -> Any:
        try:
            return read(text)
        except InvalidArgument as error:
            if "cannot be checked" in str(error):
                return None
            raise

    return patch.object(statements.Statement, "from_json", from_json)


MUTANTS = (
    Mutant(
        name="factor 2 of replace-one",
        says="replacing a record is charged as moving the sum by one clip instead of two",
        components=("charging",),
        setting=settings.replace_one,
        patch=_distance_of_one,
    ),
    Mutant(
        name="charged rate",
        says="steps are charged at half the rate at which they sample",
        components=("charging", "sampling"),
        setting=settings.linear,
        patch=_half_the_rate,
    ),
    Mutant(
        name="skipped charge",
        says="every other step is not written to the ledger",
        components=("charging",),
        setting=settings.step_by_step,
        patch=_every_other_step,
    ),
    Mutant(
        name="wrong delta",
        says="ε is read off the curve at the root of δ",
        components=("charging",),
        setting=settings.linear,
        patch=_at_the_root_of_delta,
    ),
    Mutant(
        name="charge after release",
        says="the ledger is written when the run is over",
        components=("charging", "control flow"),
        setting=settings.linear,
        patch=_at_the_end,
    ),
    Mutant(
        name="charge one step late",
        says="a step is written to the ledger after it was released",
        components=("charging", "control flow"),
        setting=settings.step_by_step,
        patch=_one_step_late,
    ),
    Mutant(
        name="half the count's sensitivity",
        says="the adaptive clip's count is charged with half of what a record adds to it",
        components=("charging",),
        setting=settings.adaptive,
        patch=_quarter_of_a_record,
    ),
    Mutant(
        name="statement that cannot be checked",
        says="a statement whose event makes no sense is not refused",
        components=("control flow",),
        setting=settings.linear,
        patch=_unchecked,
        part=refusals.forbidden_statements,
    ),
)
