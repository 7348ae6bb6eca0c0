"""What a mechanism gives back: the value, and the event that says what releasing it cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, final

from tacit._validation import open_probability, positive, unit_of_privacy
from tacit.accounting.events import DiscreteLaplace, Gaussian, Laplace, check_adjacency, distance
from tacit.errors import InvalidArgument
from tacit.randomness import KeyedStream, SharedStream, UnsafeSeededStream, fresh_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.randomness import Stream


Value = TypeVar("Value")

_REPEATABLE = (UnsafeSeededStream, KeyedStream, SharedStream)  # whoever made one can make it again


@final
@dataclass(frozen=True, slots=True, eq=False)
class Released(Generic[Value]):
    """A released value with its event; ``tacit.ledger`` can charge it as it is.

    Args:
        value: What was released; of the kind that came in.
        event: How it was randomised, for ``tacit.accounting``.
        adjacency: Which data sets are neighbours.
        unit: Whom the guarantee protects.
        entry: The number of the ledger's entry that charged it; None without a budget.

    Guarantee:
        Of data sets that are neighbours, ``value`` tells no more than ``event`` says.
    """

    value: Value
    event: Event
    adjacency: Adjacency
    unit: str
    entry: int | None = None

    def epsilon(self, delta: float) -> float:
        """The ε of this release at ``delta``, which is above 0; ``event`` tells a pure ε.

        >>> from tacit.accounting import Gaussian
        >>> round(Released(3.0, Gaussian(4.0), "add-remove", "example").epsilon(1e-5), 4)
        0.9263
        """
        from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy only when it is asked

        return epsilon(self.event, delta, adjacency=self.adjacency)


# ---- the terms: how much is asked, whose neighbours count, where it is charged


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
class ReleaseTerms:
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
) -> ReleaseTerms:
    """The terms, checked; adjacency and unit are the budget's unless said otherwise."""
    _check_budget(budget)
    if budget is not None and isinstance(stream, _REPEATABLE):
        raise InvalidArgument(
            "stream must be left out with a budget: noise from a seed or a key can be drawn again "
            "and taken off, so nothing can be charged for it"
        )
    neighbours = check_adjacency(adjacency or (budget.adjacency if budget else "add-remove"))
    protected = unit_of_privacy(unit or (budget.unit if budget else "example"))
    if budget is not None:
        budget.check_protects(protected, neighbours)
    return ReleaseTerms(
        neighbours, protected, budget, label or f"tacit.mechanisms, {mechanism}", stream
    )


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


# ---- events of added noise that meet what was asked


UP = 1.0 + 2.0**-50
"""Makes up for the roundings of a few float64 operations."""


def apart(adjacency: Adjacency) -> float:
    """The ``replace_distance`` of an event whose unit is the sensitivity under ``adjacency``.

    Removing one record and adding another moves an answer by twice what one does.
    """
    return 1.0 if adjacency == "replace-one" else 2.0


def laplace_event(epsilon: float, replace_distance: float, adjacency: Adjacency) -> Laplace:
    """The least noise that is ``epsilon``-private.

    >>> laplace_event(0.5, 2.0, "replace-one").scale
    4.0
    """
    scale = ratio_for(distance(replace_distance, adjacency), epsilon)
    return Laplace(scale, replace_distance)


def discrete_laplace_event(
    epsilon: float, sensitivity: int, adjacency: Adjacency
) -> DiscreteLaplace:
    """The same on whole numbers, whose unit is the integer."""
    return DiscreteLaplace(ratio_for(float(sensitivity), epsilon), sensitivity, apart(adjacency))


def ratio_for(moved: float, epsilon: float) -> float:
    """The smallest float64 scale with moved/scale ≤ ε, in float64 arithmetic and in truth."""
    scale = moved / epsilon
    if not math.isfinite(scale):
        raise InvalidArgument(f"epsilon (or rho) must be larger, got an epsilon of {epsilon!r}")
    while moved / scale > epsilon or _below(moved, scale, epsilon):
        scale = math.nextafter(scale, math.inf)
    return scale


def _below(moved: float, scale: float, epsilon: float) -> bool:
    """Whether scale·ε < moved, exactly."""
    (a, b), (c, d), (e, f) = (one.as_integer_ratio() for one in (moved, scale, epsilon))
    return c * e * b < a * d * f


def calibrated(
    event: Callable[[float], Event],
    asked: Amount,
    adjacency: Adjacency,
    guess: float = 1.0,
    private: float = -1.0,
) -> float:
    """The parameter at which ``event`` meets (ε, δ), also in the last digit of the answer.

    So that a budget of just (ε, δ) holds it. ``private`` is the sign of the way to more privacy.
    """
    from tacit.accounting import calibrate, epsilon  # noqa: PLC0415 - SciPy

    assert asked.epsilon is not None
    assert asked.delta is not None
    found = calibrate(event, asked.epsilon, asked.delta, adjacency=adjacency, guess=guess)
    while epsilon(event(found), asked.delta, adjacency=adjacency) > asked.epsilon:
        found *= 1.0 + private * 1e-12
    return found


def gaussian_event(asked: Amount, replace_distance: float, adjacency: Adjacency) -> Gaussian:
    """The least noise that meets (ε, δ) by the analytic calibration, or ρ-zCDP; or σ as asked."""
    if asked.noise_multiplier is not None:
        return Gaussian(asked.noise_multiplier, replace_distance)
    moved = distance(replace_distance, adjacency)
    if asked.rho is not None:
        return Gaussian(moved / math.sqrt(2.0 * asked.rho) * UP, replace_distance)
    from tacit.accounting import analytic_gaussian_sigma, epsilon  # noqa: PLC0415 - SciPy

    assert asked.epsilon is not None
    assert asked.delta is not None
    sigma = moved * analytic_gaussian_sigma(asked.epsilon, asked.delta) * UP
    event = Gaussian(sigma, replace_distance)
    # So that a budget of just (ε, δ) holds it: the accountant's answer may end an ulp higher.
    while epsilon(event, asked.delta, adjacency=adjacency) > asked.epsilon:
        sigma *= 1.0 + 1e-12
        event = Gaussian(sigma, replace_distance)
    return event
