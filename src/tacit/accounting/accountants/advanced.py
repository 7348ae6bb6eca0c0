"""Strong composition (Dwork, Rothblum & Vadhan 2010; Dwork & Roth 2014, Theorem 3.20).

Releases of (ε_i, δ_i) compose, for every δ' > 0, to

    ε = √(2·ln(1/δ')·Σε_i²) + Σε_i·(e^{ε_i} - 1)    at    δ = Σδ_i + δ'.

The theorem is stated for equal ε_i; its proof is Azuma's inequality for losses within ±ε_i whose
means are at most ε_i(e^{ε_i} - 1), which gives the form above. The total δ is shared between δ' and
the releases' own δ_i so that ε is small. Gaussians enter by the analytic calibration and sampled
releases are amplified one by one (``tacit.accounting.steps``).

Guarantee: both answers are upper bounds for every event that is accepted. The accountant answers
with the smaller of this theorem and basic composition, since both hold; ``strong_composition`` is
the theorem alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.accounting.failures import Failures
from tacit.accounting.inversion import smallest_delta
from tacit.accounting.steps import share, spare, steps_of, sum_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.events import Adjacency, Event
    from tacit.accounting.steps import Steps


def epsilon(event: Event, delta: float, adjacency: Adjacency) -> float:
    """The smaller of strong and basic composition at a total ``delta``.

    >>> from tacit.accounting.events import PureDp, Repeated
    >>> round(epsilon(Repeated(PureDp(0.1), 100), 1e-5, "add-remove"), 9)
    5.850235093
    """
    steps = steps_of(event, adjacency, "advanced")
    return Failures(truncation=steps.truncation).epsilon(lambda left: _solve(steps, left), delta)


def delta(event: Event, epsilon: float, adjacency: Adjacency) -> float:
    """The smallest total δ at which either composition proves ``epsilon``; 1 if neither does."""
    steps = steps_of(event, adjacency, "advanced")

    def solve(at: float) -> float:
        return smallest_delta(lambda total: _solve(steps, total), at, steps.least)

    return Failures(truncation=steps.truncation).delta(solve, epsilon)


def strong_composition(epsilons: Sequence[float], counts: Sequence[int], reserve: float) -> float:
    """The theorem: the ε of ``counts[i]`` releases of ``epsilons[i]`` each, with δ' = ``reserve``.

    >>> round(strong_composition([0.1], [1000], 1e-5), 9)
    25.691363101
    """
    spread = _spread(epsilons, counts)
    if spread == 0.0:
        return 0.0
    if reserve <= 0.0:
        return math.inf
    means = [count * one * _expm1(one) for one, count in zip(epsilons, counts, strict=True)]
    return math.sqrt(-2.0 * math.log(min(reserve, 1.0))) * spread + math.fsum(means)


def _spread(epsilons: Sequence[float], counts: Sequence[int]) -> float:
    """√Σε_i²."""
    return math.sqrt(math.fsum(n * one * one for one, n in zip(epsilons, counts, strict=True)))


def _solve(steps: Steps, delta: float) -> float:
    return min(sum_of(steps, delta), _strong(steps, delta))


def _strong(steps: Steps, delta: float) -> float:
    """The theorem with δ shared between the free steps and δ', which takes the last share."""
    left = spare(steps, delta)
    if not left:
        return math.inf
    free = [step for step in steps.steps if step.free]
    fixed = [step for step in steps.steps if not step.free]
    counts = [step.count for step in (*free, *fixed)]
    known = [step.epsilon(step.least) for step in fixed]

    def appraise(shares: list[float]) -> tuple[float, list[float]]:
        found = [step.trade(own) for step, own in zip(free, shares, strict=False)]
        epsilons = [one for one, _ in found] + known
        value = strong_composition(epsilons, counts, shares[-1])
        if not 0.0 < value < math.inf or shares[-1] >= 1.0:
            return value, [0.0]
        # The derivatives of the theorem by ln δ' and by each ε_i.
        depth, spread = math.sqrt(-2.0 * math.log(shares[-1])), _spread(epsilons, counts)
        prices = [depth * one / spread + _expm1(one) + one * math.exp(one) for one, _ in found]
        worth = [price * slope for price, (_, slope) in zip(prices, found, strict=True)]
        return value, [*worth, spread / depth]

    return share(left, [*(step.count for step in free), 1], appraise)


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 700.0 else math.inf
