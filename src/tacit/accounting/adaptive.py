"""Filters and odometers: fully adaptive composition, where events may depend on past outputs.

Ordinary composition theorems fix all events in advance. Here the next event, and whether there is
one, may be chosen after seeing what was released. Two facts carry everything below.

**One order.** Fix α and B. If a run stops before the sum of its events' order-α divergences would
exceed B, its transcript has Rényi divergence of order α at most B, hence is (ε, δ)-private by the
usual conversion (Feldman & Zrnic 2021; Lécuyer 2021). The reason: with L_n
the privacy loss and R_n the sum after n events, exp((α-1)(L_n - R_n)) is a supermartingale, because
each event's divergence bound is known before its output is drawn.

**Many orders, many thresholds.** Let the pairs (α_j, B_j) be fixed in advance, pair j converting
to (ε_j, δ_j). Assign every transcript to one pair whose threshold its sum respects: the set C_j.
Sums only grow, so a run with transcript in C_j never exceeded B_j on the way: the run that stops
before exceeding B_j produces the transcripts of C_j with the same probabilities, and it is (ε_j,
δ_j)-private. So for neighbours P, Q and every set S of transcripts P(S ∩ C_j) ≤ e^{ε_j}·Q(S ∩ C_j)
+ δ_j, and summing,

    P(S) ≤ ∫_S e^{ε(transcript)} dQ + Σ_j δ_j,        ε(transcript) = ε_j on C_j.

Nothing is claimed for the rule that *some* order's sum be within the threshold which that order
would have at the full δ: which order that is may depend on the outputs. So δ is shared.

**Failures.** An event that fails with probability m_n (``ApproxDp``) adds at most Σm_n to δ if
that sum is bounded in advance, here by ``failure_delta``, which is set apart from δ: without
failures the transcript's laws are multiplied by the same Π(1-m_n) ≤ 1 for both neighbours, which
cannot raise a hockey-stick divergence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tacit._validation import non_negative, open_probability, positive
from tacit.accounting.events import Adjacency, check_adjacency
from tacit.accounting.failures import Failures
from tacit.accounting.questions import out_of_range
from tacit.accounting.renyi.profile import renyi_profile
from tacit.errors import BudgetExceeded, InvalidArgument

if TYPE_CHECKING:
    from tacit.accounting.events import Event

_ODOMETER_ORDERS = (1.25, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0, 129.0)
_RATIO = math.sqrt(2.0)  # of an odometer's consecutive thresholds


@dataclass(frozen=True)
class RenyiSpending:
    """What a run has spent: the sum of divergences at each order, and of failures."""

    divergences: tuple[float, ...]
    failures: float = 0.0
    truncation: float = 0.0

    def plus(
        self, event: Event, orders: tuple[float, ...], adjacency: Adjacency, name: str
    ) -> RenyiSpending:
        """The spending after ``event`` as well."""
        try:
            profile = renyi_profile(event, adjacency, name)
        except ArithmeticError:
            raise out_of_range(event, name) from None
        more = profile.curve(np.asarray(orders))
        return RenyiSpending(
            tuple((np.asarray(self.divergences) + more).tolist()),
            self.failures + profile.mass,
            self.truncation + profile.truncation,
        )


@dataclass(frozen=True)
class RenyiFilter:
    """A budget (ε, δ) for events that are chosen as the run goes.

    ``after(event)`` is the filter once ``event`` is charged; it raises ``BudgetExceeded`` if the
    budget would not hold it. Charge before releasing, and release nothing that was refused.

    Guarantee: all that is released between the first and the last charge is (ε, δ)-differentially
    private together, however events, their parameters and the end of the run were chosen from
    earlier outputs. Of the δ, ``failure_delta`` pays for failures and the rest is shared evenly
    among the orders; an event is afforded as long as some order's sum stays within the threshold
    that its share converts to. The argument is in this module's docstring, with ε_j = ε for all j.

    A truncated Poisson sample, cut with probability τ, counts as a failure of (1 + e^ε)·τ.

    >>> from tacit.accounting.events import Gaussian, PureDp
    >>> budget = RenyiFilter(epsilon=2.0, delta=1e-5)
    >>> budget = budget.after(Gaussian(10.0)).after(PureDp(0.1))
    >>> budget.affords(Gaussian(1.0))
    False

    Args:
        epsilon: The ε of the budget.
        delta: The δ of the budget, all of it.
        adjacency: Which data sets are neighbours.
        orders: The Rényi orders to watch, all above 1. The more there are the smaller is each one's
            share of δ. By default five near and above the one that serves Gaussians best.
        failure_delta: The part of δ kept for events that may fail.
        spending: What was charged already.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "add-remove"
    orders: tuple[float, ...] = ()
    failure_delta: float = 0.0
    spending: RenyiSpending | None = None

    def __post_init__(self) -> None:
        epsilon = positive("epsilon", self.epsilon)
        set_field = object.__setattr__
        set_field(self, "epsilon", epsilon)
        set_field(self, "delta", open_probability("delta", self.delta))
        set_field(self, "failure_delta", _failure_share(self.failure_delta, self.delta))
        set_field(self, "adjacency", check_adjacency(self.adjacency))
        default = self.orders or _filter_orders(epsilon, self.delta - self.failure_delta)
        set_field(self, "orders", _checked_orders(default))
        if self.spending is None:
            set_field(self, "spending", RenyiSpending((0.0,) * len(self.orders)))
        if max(self.thresholds) <= 0.0:
            raise InvalidArgument(
                f"orders must contain one that epsilon={epsilon!r} leaves room for, "
                f"got {self.orders!r}"
            )

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The divergence at each order that converts to (ε, its share of δ); may be negative."""
        share = (self.delta - self.failure_delta) / len(self.orders)
        return tuple(self.epsilon - _overhead(order, share) for order in self.orders)

    @property
    def remaining(self) -> tuple[float, ...]:
        """The divergence left at each order, 0 where none is. One positive value suffices."""
        spent = _spent(self.spending).divergences
        pairs = zip(self.thresholds, spent, strict=True)
        return tuple(max(0.0, threshold - one) for threshold, one in pairs)

    def affords(self, event: Event) -> bool:
        """Whether ``after(event)`` would be granted."""
        return self._holds(self._spending_after(event))

    def after(self, event: Event) -> RenyiFilter:
        """The filter after charging ``event``; raises ``BudgetExceeded`` if that is too much."""
        spending = self._spending_after(event)
        if not self._holds(spending):
            raise BudgetExceeded(
                f"the budget epsilon={self.epsilon!r}, delta={self.delta!r} does not hold "
                f"{event!r} on top of what was charged; charge less, or open a larger budget"
            )
        return replace(self, spending=spending)

    def _spending_after(self, event: Event) -> RenyiSpending:
        return _spent(self.spending).plus(event, self.orders, self.adjacency, "renyi-filter")

    def _holds(self, spending: RenyiSpending) -> bool:
        cut = Failures(truncation=spending.truncation)
        if spending.failures + cut.charge(self.epsilon) > self.failure_delta:
            return False
        pairs = zip(spending.divergences, self.thresholds, strict=True)
        return any(one <= threshold for one, threshold in pairs)


@dataclass(frozen=True)
class RenyiOdometer:
    """A running upper bound on ε at a fixed δ, without a budget set in advance.

    ``after(event)`` is the odometer once ``event`` is charged, ``reading`` its current ε.

    Guarantee: stop the run whenever you like, for reasons that may depend on its outputs, and call
    the odometer's last reading ε(transcript). Then for neighbours P and Q and every set S of
    transcripts P(S) ≤ ∫_S e^{ε(transcript)} dQ + δ. In particular a run that stops before its
    reading would exceed some fixed ε is (ε, δ)-differentially private.

    The pairs of the module's argument are the orders times thresholds B_k that grow by √2, with the
    shares of δ falling as 6/(π²(k+1)²) so that they add up; a reading is the smallest ε_j among the
    pairs that the sums respect. So it moves in steps, and lies above what a filter of that size
    would need (Rogers et al. 2016 show that some such gap cannot be avoided).

    >>> from tacit.accounting.events import Gaussian
    >>> meter = RenyiOdometer(delta=1e-5)
    >>> meter.reading < meter.after(Gaussian(5.0)).reading
    True

    Args:
        delta: The δ, all of it.
        adjacency: Which data sets are neighbours.
        orders: The Rényi orders to watch, all above 1.
        failure_delta: The part of δ kept for events that may fail.
        spending: What was charged already.
    """

    delta: float
    adjacency: Adjacency = "add-remove"
    orders: tuple[float, ...] = _ODOMETER_ORDERS
    failure_delta: float = 0.0
    spending: RenyiSpending | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "delta", open_probability("delta", self.delta))
        set_field(self, "failure_delta", _failure_share(self.failure_delta, self.delta))
        set_field(self, "adjacency", check_adjacency(self.adjacency))
        set_field(self, "orders", _checked_orders(self.orders))
        if self.spending is None:
            set_field(self, "spending", RenyiSpending((0.0,) * len(self.orders)))

    @property
    def reading(self) -> float:
        """The ε of what was charged so far; 0 before the first charge."""
        spent = _spent(self.spending).divergences
        if not any(spent):
            return 0.0
        pairs = zip(self.orders, spent, strict=True)
        return min(max(0.0, self._of_order(order, one)) for order, one in pairs)

    def after(self, event: Event) -> RenyiOdometer:
        """The odometer after charging ``event``."""
        spending = _spent(self.spending).plus(event, self.orders, self.adjacency, "renyi-odometer")
        if spending.failures > self.failure_delta or spending.truncation > 0.0:
            raise BudgetExceeded(
                f"failure_delta={self.failure_delta!r} does not hold the failures of {event!r}; "
                "set more of delta apart (truncated Poisson samples cannot be read at all)"
            )
        return replace(self, spending=spending)

    def _of_order(self, order: float, spent: float) -> float:
        """The ε of the first threshold at or above ``spent``."""
        if math.isinf(spent):
            return math.inf
        share = (self.delta - self.failure_delta) / len(self.orders)
        first = -math.log(share) / (order - 1.0) / 4.0
        level = max(0, math.ceil(math.log(max(spent / first, 1.0)) / math.log(_RATIO)))
        threshold = first * _RATIO**level
        if threshold < spent:  # by rounding of the logarithms
            level, threshold = level + 1, threshold * _RATIO
        own = share * 6.0 / (math.pi * (level + 1)) ** 2
        return threshold + _overhead(order, own)


def _overhead(order: float, delta: float) -> float:
    """What converting a divergence of this order to ε adds (``tacit.accounting.renyi.curves``)."""
    return math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1.0)


def _filter_orders(epsilon: float, delta: float) -> tuple[float, ...]:
    """Five orders, at and above the one whose threshold holds the most zero-concentrated privacy.

    Much lower ones hold nothing at all; the highest is there for single releases of bounded loss.
    """
    excess = np.geomspace(1e-3, 1e9, 481)
    held = [(epsilon - _overhead(1.0 + one, delta)) / (1.0 + one) for one in excess]
    best = float(excess[int(np.argmax(held))])
    return tuple(1.0 + best * factor for factor in (0.75, 1.0, 1.5, 3.0, 16.0))


def _checked_orders(orders: tuple[float, ...]) -> tuple[float, ...]:
    checked = tuple(positive("orders", order) for order in orders)
    if not checked or min(checked) <= 1.0:
        raise InvalidArgument(f"orders must all be above 1, got {orders!r}")
    return checked


def _failure_share(failure_delta: float, delta: float) -> float:
    share = non_negative("failure_delta", failure_delta)
    if share >= delta:
        raise InvalidArgument(f"failure_delta must be below delta={delta!r}, got {failure_delta!r}")
    return share


def _spent(spending: RenyiSpending | None) -> RenyiSpending:
    assert spending is not None  # set by __post_init__
    return spending
