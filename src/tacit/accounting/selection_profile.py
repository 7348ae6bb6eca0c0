"""The privacy profile of a private selection, from the profile of its base.

A run's result y is released if it is the best of K runs. With f'(x) = E[K·x^{K-1}] and q the chance
that a run's result is no better, its probability is that of one run times f'(q), for a q between
"worse than y" and "no better than y". If s bounds ln f'(q)/f'(q') between neighbours, then summing
over the outcomes (Koskela, Redberg & Wang 2024)

    δ(ε) ≤ E[K]·δ_Q(ε - s).

The base bounds 1 - q' by e^{ε₁}·(1 - q) + δ_Q(ε₁) for every ε₁ ≥ 0. For truncated negative
binomial runs f'(x) ∝ (1 - (1-γ)·x)^{-(η+1)}, so that s = (η+1)·ln(e^{ε₁} + ((1-γ)/γ)·δ_Q(ε₁)). For
Poisson runs ln f' is linear, and s = μ·(q - q') is at most μ·δ_Q(0), the best ε₁ being 0. The least
s is the same for every ε. Without a run nothing is released, for both neighbours alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.optimize import minimize_scalar

from tacit.accounting.accountants import accountant_named
from tacit.accounting.black_boxes import concrete, promise_of
from tacit.accounting.events import PoissonRuns

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import (
        Adjacency,
        PrivateSelection,
        Runs,
        TruncatedNegativeBinomial,
    )

_ROUND_UP = 1.0 + 1e-12
_LARGEST_LOSS = 500.0  # beyond, a minimum is not looked for


@dataclass(frozen=True)
class SelectionProfile:
    """δ(ε) = ``mean``·δ_Q(ε - ``shift``), where δ_Q is an upper bound on the base's.

    Guarantee:
        Upper bounds on ε and δ for every selection whose runs are no worse than the base.
    """

    mean: float
    shift: float
    base_epsilon: Callable[[float], float]
    base_delta: Callable[[float], float]

    def epsilon(self, delta: float) -> float:
        """The smallest ε at this δ."""
        share = delta / self.mean / _ROUND_UP
        if share >= 1.0:  # of a Poisson law with fewer than one run
            return self.shift
        return (self.base_epsilon(share) + self.shift) * _ROUND_UP

    def delta(self, epsilon: float) -> float:
        """The smallest δ at this ε; 1 where nothing is proved."""
        left = epsilon / _ROUND_UP - self.shift
        if left < 0.0:
            return 1.0
        return min(1.0, self.mean * self.base_delta(left) * _ROUND_UP)


def selection_profile_of(event: PrivateSelection, adjacency: Adjacency) -> SelectionProfile:
    """The privacy profile of a selection, from the exact accountant's answers about its base."""
    promise = promise_of(concrete(event.base, adjacency))
    if promise is not None:
        # In closed form: the general way loses digits where δ is all but used up by failures.
        return selection_profile(
            event.runs,
            lambda share: black_box_epsilon(*promise, share),
            lambda at: black_box_delta(*promise, at),
            tried=(promise.epsilon,),
        )
    exact = accountant_named("exact")
    return selection_profile(
        event.runs,
        lambda share: exact.epsilon(event.base, share, adjacency),
        lambda at: exact.delta(event.base, at, adjacency),
    )


def selection_profile(
    runs: Runs,
    base_epsilon: Callable[[float], float],
    base_delta: Callable[[float], float],
    tried: tuple[float, ...] = (),
) -> SelectionProfile:
    """The profile of a selection with these runs; ``tried`` are values of ε₁ worth a look.

    >>> from tacit.accounting import gaussian_profile as gaussian
    >>> from tacit.accounting.events import TruncatedNegativeBinomial
    >>> runs = TruncatedNegativeBinomial(eta=1.0, gamma=0.1)
    >>> base = lambda d: gaussian.epsilon(0.25, d), lambda e: gaussian.delta(0.25, e)
    >>> round(selection_profile(runs, *base).epsilon(1e-6), 3)
    1.983
    """
    if isinstance(runs, PoissonRuns):
        shift = runs.mean * base_delta(0.0)
    else:
        shift = _least_shift(runs, base_epsilon, base_delta, tried)
    return SelectionProfile(runs.mean, shift, base_epsilon, base_delta)


def _least_shift(
    runs: TruncatedNegativeBinomial,
    base_epsilon: Callable[[float], float],
    base_delta: Callable[[float], float],
    tried: tuple[float, ...],
) -> float:
    """The least (η+1)·ln(e^{ε₁} + ((1-γ)/γ)·δ_Q(ε₁)) found.

    δ_Q is convex in e^{ε₁}, so there is one minimum. It lies where the second term still matters:
    before its δ is a millionth of γ, or else at the last ε at which the base has a δ at all.
    """
    odds = (1.0 - runs.gamma) / runs.gamma

    def shift(first: float) -> float:
        cost = odds * base_delta(first)
        # ln(e^first + cost), without overflow.
        return (1.0 + runs.eta) * (first + math.log1p(cost * math.exp(-first)))

    ends = [base_epsilon(share * runs.gamma) for share in (1e-6, 1e-3, 0.5)]
    known = [end for end in ends if end < _LARGEST_LOSS]
    values = [shift(end) for end in (0.0, *tried, *ends) if math.isfinite(end)]
    if known and max(known) > 0.0:
        found = minimize_scalar(
            shift, bounds=(0.0, max(known)), method="bounded", options={"xatol": 1e-7}
        )
        values.append(float(found.fun))
    return min(values) * _ROUND_UP


def black_box_delta(loss: float, failure: float, epsilon: float) -> float:
    """δ at ``epsilon`` of whatever is (loss, failure)-private (Kairouz, Oh & Viswanath 2015).

    >>> round(black_box_delta(1.0, 1e-6, 0.0), 6)  # (e - 1)/(e + 1)
    0.462118
    """
    open_part = max(0.0, -math.expm1(epsilon - loss)) / (1.0 + math.exp(-loss))
    return min(1.0, (failure + (1.0 - failure) * open_part) * _ROUND_UP)


def black_box_epsilon(loss: float, failure: float, delta: float) -> float:
    """The inverse of ``black_box_delta``: infinite if ``delta`` is below ``failure``.

    >>> black_box_epsilon(1.0, 1e-6, 1e-6)
    1.0
    """
    if delta < failure:
        return math.inf
    share = (delta - failure) / (1.0 - failure) * (1.0 + math.exp(-loss)) if failure < 1.0 else 1.0
    return max(0.0, loss + math.log1p(-share)) if share < 1.0 else 0.0
