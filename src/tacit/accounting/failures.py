"""What is added to δ beside the main argument: failures, and samples that were cut.

A release that fails with probability m (and is then unprotected) and otherwise meets (ε, δ₀) has δ
= m + (1-m)·δ₀. If, further, each of its two laws is only within total variation distance τ of the
one that was analysed, δ grows by (1 + e^ε)·τ (Chua et al. 2024, for truncated Poisson sampling):
P'(S) ≤ P(S) + τ ≤ e^ε·Q(S) + δ + τ ≤ e^ε·(Q'(S) + τ) + δ + τ. Here τ is the chance that a sample
is larger than its cap, on either data set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc

from tacit.accounting.events import PoissonSampled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Event


def truncation_of(part: Event) -> float:
    """The chance that a truncated Poisson sample is cut: P[Binomial(population, rate) > cap].

    An event's ``population`` bounds the records of both neighbours: where one may have a record
    more, whoever made the event has counted it.

    >>> from tacit.accounting.events import Gaussian
    >>> round(truncation_of(PoissonSampled(0.5, Gaussian(1.0), cap=1, population=2)), 6)
    0.25
    """
    if not isinstance(part, PoissonSampled) or part.cap is None or part.population is None:
        return 0.0
    if part.cap >= part.population:
        return 0.0
    return min(
        1.0, float(betainc(part.cap + 1.0, part.population - part.cap, part.rate)) * (1 + 1e-9)
    )


def least_rate(part: PoissonSampled) -> float:
    """How often a record takes part in a truncated Poisson sample, at least.

    Of n records, k others sampled beside it leave it in with probability min(1, cap/(k+1)), in all
    q·P[Binomial(n-1, q) < cap] + cap/n·P[Binomial(n, q) > cap], which falls as n grows.

    >>> from tacit.accounting.events import Gaussian
    >>> round(least_rate(PoissonSampled(0.5, Gaussian(1.0), cap=1, population=2)), 6)
    0.375
    """
    if part.cap is None or part.population is None or part.cap >= part.population:
        return part.rate
    others = float(betainc(part.population - part.cap, part.cap, 1.0 - part.rate))
    more = float(betainc(part.cap + 1.0, part.population - part.cap, part.rate))
    least = part.rate * others + part.cap / part.population * more
    return min(part.rate, least * (1.0 - 1e-9))


@dataclass(frozen=True)
class Failures:
    """The probability ``mass`` of a failure, and the total variation distance ``truncation``."""

    mass: float = 0.0
    truncation: float = 0.0

    def epsilon(self, solve: Callable[[float], float], delta: float) -> float:
        """The smallest ε at a total ``delta``, where ``solve`` gives it for a δ₀ without failures.

        With truncation the charge (1 + e^ε)·τ depends on the answer: it is raised until the answer
        no longer exceeds it. The last check is what makes the answer valid.
        """
        charge = 2.0 * self.truncation
        for _ in range(200):
            if delta < self.mass + charge or self.mass == 1.0:
                break
            value = solve((delta - self.mass - charge) / (1.0 - self.mass))
            needed = self.charge(value)
            if needed <= charge:
                return value
            charge = needed * (1.0 + 1e-9)
        return math.inf

    def delta(self, solve: Callable[[float], float], epsilon: float) -> float:
        """The smallest total δ at ``epsilon``, where ``solve`` gives δ₀ without failures.

        With truncation a smaller ε may have a smaller δ; it then serves for the larger one too.
        """
        if self.truncation == 0.0:
            return min(1.0, self._total(solve, epsilon))
        candidates = np.concatenate([[epsilon], np.linspace(0.0, min(epsilon, 700.0), 65)])
        return min([1.0, *(self._total(solve, float(one)) for one in candidates)])

    def _total(self, solve: Callable[[float], float], epsilon: float) -> float:
        return self.mass + (1.0 - self.mass) * solve(epsilon) + self.charge(epsilon)

    def charge(self, epsilon: float) -> float:
        """(1 + e^ε)·τ, the cost in δ of the truncation."""
        if self.truncation == 0.0:
            return 0.0
        return (1.0 + math.exp(epsilon)) * self.truncation if epsilon < 700.0 else math.inf
