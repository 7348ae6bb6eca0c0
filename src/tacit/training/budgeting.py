"""The least noise with which a plan keeps within a budget, or what stands in the way of it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from scipy.stats import binom

from tacit.accounting import Composed, analytic_gaussian_sigma, calibrate
from tacit.accounting import epsilon as epsilon_of
from tacit.accounting.events import check_event
from tacit.errors import InvalidArgument, Uncalibratable
from tacit.training.sampling import TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile, Flat

if TYPE_CHECKING:
    from tacit.accounting import Event
    from tacit.training.plan import Plan

_DEAFENING = 1e9  # a noise multiplier that leaves nothing of the gradients


def quietest(
    plan: Plan,
    epsilon: float,
    delta: float,
    accountant: str = "exact",
    also: Event | None = None,
) -> Plan:
    """``plan`` with the smallest noise multiplier at which the accountant proves (ε, δ).

    Guarantee:
        The accountant proves (ε, δ) for ``Composed(also, found.event)``, ``found`` being the plan
        that is returned; without ``also``, for ``found.event``.
    """
    if accountant == "gdp-clt":
        raise InvalidArgument(f"accountant must prove a bound, got {accountant!r}; use 'exact'")
    mu = 1.0 / analytic_gaussian_sigma(epsilon, delta)
    # The central limit's σ (Bu et al. 2020): a starting point, not an answer.
    guess = 1.0 / math.sqrt(math.log1p((mu / plan.sample_rate) ** 2 / plan.steps))

    def event(sigma: float) -> Event:
        return _together(replace(plan, noise_multiplier=sigma), also)

    _refuse_hopeless(plan, epsilon, delta, accountant, also)
    sigma = calibrate(event, epsilon, delta, accountant, plan.adjacency, guess)
    found = replace(plan, noise_multiplier=sigma)
    # calibrate compares logarithms: an ulp off
    while _epsilon(found, delta, accountant, also) > epsilon:
        found = replace(found, noise_multiplier=found.noise_multiplier * (1.0 + 1e-14))
    return found


def _together(plan: Plan, also: Event | None) -> Event:
    return plan.event if also is None else Composed(also, plan.event)


def _epsilon(plan: Plan, delta: float, accountant: str, also: Event | None) -> float:
    return epsilon_of(_together(plan, also), delta, accountant, plan.adjacency)


def _refuse_hopeless(
    plan: Plan, epsilon: float, delta: float, accountant: str, also: Event | None
) -> None:
    """Refuses a budget that the gradients' noise does not decide, and says what does."""
    rate = plan.sample_rate
    drawn = -math.expm1(plan.steps * math.log1p(-rate)) if rate < 1.0 else 1.0
    if drawn <= delta:
        raise Uncalibratable(
            f"delta={delta:g} must be below the chance that a record is drawn at all, "
            f"{drawn:.3g}: any noise would do"
        )
    _refuse_expensive(plan, epsilon, delta, accountant, also)
    truncated = isinstance(plan.sampling, TruncatedPoisson)
    if not truncated and not isinstance(plan.clipping, AdaptiveQuantile):
        return
    loudest = replace(plan, noise_multiplier=_DEAFENING)
    if _epsilon(loudest, delta, accountant, also) <= epsilon:
        return
    budget = f"epsilon={epsilon:g} at delta={delta:g} cannot be met by noise on the gradients"
    if truncated and _epsilon(_without_count(loudest), delta, accountant, also) > epsilon:
        raise Uncalibratable(
            f"{budget}: lots are cut too often; "
            f"raise sampling.largest to {_roomy(plan, epsilon, delta)} or more"
        )
    raise Uncalibratable(
        f"{budget}: the count of the adaptive clip gives away as much by itself; "
        "raise clipping.count_noise"
    )


def _refuse_expensive(
    plan: Plan, epsilon: float, delta: float, accountant: str, also: Event | None
) -> None:
    """Refuses what leaves nothing of the budget for the plan."""
    if also is None:
        return
    alone = epsilon_of(check_event(also), delta, accountant, plan.adjacency)
    if alone >= epsilon:
        raise Uncalibratable(
            f"also must leave something of epsilon={epsilon:g} at delta={delta:g} for the plan: by "
            f"itself it has {alone:.6g}; add noise to it"
        )


def _without_count(plan: Plan) -> Plan:
    return replace(plan, clipping=Flat())


def _roomy(plan: Plan, epsilon: float, delta: float) -> int:
    """The smallest ``largest`` whose cuts cost at most a tenth of δ over the whole plan."""
    chance = 0.1 * delta / (plan.steps * (1.0 + math.exp(min(epsilon, 500.0))))
    return int(binom.isf(chance, plan.examples + 1, plan.sample_rate)) + 1
