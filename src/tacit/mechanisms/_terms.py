"""The terms of a release: how much is asked, whose neighbours count, and where it is charged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, final

from tacit._validation import open_probability, positive, unit_of_privacy
from tacit.accounting.events import check_adjacency
from tacit.errors import InvalidArgument
from tacit.mechanisms.released import Released
from tacit.randomness import UnsafeSeededStream, fresh_stream

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.randomness import Stream

Value = TypeVar("Value")


@final
@dataclass(frozen=True, slots=True)
class Grant:
    """A charged release. Noise comes from here only, and so only after the charge."""

    event: Event
    adjacency: Adjacency
    unit: str
    entry: int | None
    stream: Stream

    def release(self, value: Value) -> Released[Value]:
        """The value with its event."""
        return Released(value, self.event, self.adjacency, self.unit, self.entry)


@final
@dataclass(frozen=True, slots=True)
class Terms:
    """Whose neighbours a mechanism is about, whom it protects, and the budget that it charges."""

    adjacency: Adjacency
    unit: str
    budget: Budget | None
    label: str
    stream: Stream | None

    def charge(self, event: Event, delta: float | None = None) -> Grant:
        """Charges ``event``, at ``delta`` if one was asked for and the budget's rule has a choice.

        Guarantee:
            With a budget, the charge is written and synced when this returns, and nothing has been
            drawn before.
        """
        entry = None
        if self.budget is not None:
            chosen = delta is not None and self.budget.composition == "basic"
            budget = self.budget.at(delta) if delta is not None and chosen else self.budget
            entry = budget.charge(event, label=self.label).number
        stream = fresh_stream("mechanisms") if self.stream is None else self.stream
        return Grant(event, self.adjacency, self.unit, entry, stream)


def agreed(
    mechanism: str,
    adjacency: Adjacency | None,
    unit: str | None,
    budget: Budget | None,
    label: str,
    stream: Stream | None,
) -> Terms:
    """The terms, checked; adjacency and unit are the budget's unless said otherwise."""
    _check_budget(budget)
    if budget is not None and isinstance(stream, UnsafeSeededStream):
        raise InvalidArgument(
            "stream must be left out with a budget: noise from a seed can be taken off again, so "
            "nothing can be charged for it"
        )
    neighbours = check_adjacency(adjacency or (budget.adjacency if budget else "add-remove"))
    protected = unit_of_privacy(unit or (budget.unit if budget else "example"))
    if budget is not None:
        # Budget.charge takes an event to be about the budget's own neighbours: checked here.
        for name, ours, theirs in (
            ("adjacency", neighbours, budget.adjacency),
            ("unit", protected, budget.unit),
        ):
            if ours != theirs:
                raise InvalidArgument(
                    f"{name} must be that of the budget {budget.name!r}, {theirs!r}, got {ours!r}"
                )
    return Terms(neighbours, protected, budget, label or f"tacit.mechanisms, {mechanism}", stream)


def _check_budget(budget: object) -> None:
    if budget is None:
        return
    from tacit.ledger import Budget  # noqa: PLC0415 - only those who keep a ledger

    if not isinstance(budget, Budget):
        raise InvalidArgument(
            "budget must be a budget of a ledger, ledger.open(name, epsilon, delta), "
            f"got {budget!r}"
        )


@final
@dataclass(frozen=True, slots=True)
class Amount:
    """What was asked: ε, or ε and δ, or ρ, or σ itself; the others are None."""

    epsilon: float | None
    delta: float | None
    rho: float | None
    noise_multiplier: float | None = None

    @property
    def pure(self) -> bool:
        """Whether ε alone was asked for."""
        return self.epsilon is not None and self.delta is None

    def pure_epsilon(self, per_rho: float = 2.0) -> float:
        """The ε of a pure mechanism that is ε²/per_rho-zCDP: 2 for any, 8 for bounded range.

        Bun & Steinke 2016, Proposition 3.3; Cesar & Rogers 2021, Lemma 3.1 for bounded range.
        """
        if self.epsilon is not None:
            return self.epsilon
        assert self.rho is not None
        return math.sqrt(per_rho * self.rho) * (1.0 - 2.0**-50)


def pure_amount(epsilon: float | None, rho: float | None) -> Amount:
    """What is asked of a mechanism that needs no δ."""
    if (epsilon is None) == (rho is None):
        raise InvalidArgument(f"give either epsilon or rho, got {epsilon!r} and {rho!r}")
    return amount(epsilon, None, rho)


def smooth_amount(
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    noise_multiplier: float | None = None,
) -> Amount:
    """What is asked of a mechanism that has no pure ε."""
    if noise_multiplier is not None:
        if (epsilon, delta, rho) != (None, None, None):
            raise InvalidArgument(
                f"noise_multiplier={noise_multiplier!r} must be given alone, got "
                f"epsilon={epsilon!r}, delta={delta!r}, rho={rho!r} beside it"
            )
        return Amount(None, None, None, positive("noise_multiplier", noise_multiplier))
    asked = amount(epsilon, delta, rho)
    if asked.pure:
        raise InvalidArgument(f"delta must be given with epsilon {epsilon!r}, or rho alone")
    return asked


def amount(epsilon: float | None, delta: float | None, rho: float | None) -> Amount:
    """What is asked: ``epsilon``, ``epsilon`` and ``delta``, or ``rho``."""
    if (epsilon is None) == (rho is None) or (delta is not None and epsilon is None):
        raise InvalidArgument(
            "give epsilon, epsilon and delta, or rho alone, got "
            f"epsilon={epsilon!r}, delta={delta!r}, rho={rho!r}"
        )
    return Amount(
        None if epsilon is None else positive("epsilon", epsilon),
        None if delta is None else open_probability("delta", delta),
        None if rho is None else positive("rho", rho),
    )
