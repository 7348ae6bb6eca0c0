"""A second accountant, which shares nothing with the first: a lower bound on ε by binning.

What a step releases is cut into bins, which only makes it less telling; losses are rounded down,
which does so too; and the sum of T losses is found by the fast Fourier transform. A claim below
this bound is wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from tacit.training.sampling import Allocation, Cyclic, FullBatch, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.training.plan import Plan

_BINS = 20_000
_REACH = 9.0  # standard deviations of the noise that the bins cover
_POINTS = 1 << 19  # of the grid of losses
_FFT_ERROR = 1e-9  # far above what the transform's rounding and the wrap-around come to


def least_epsilon(plan: Plan, steps: int, delta: float) -> float | None:
    """An ε that ``steps`` steps of the plan cannot be below, at ``delta``; None if not known.

    Guarantee:
        There are neighbouring data sets on which the plan's mechanism is not (ε, δ)-private for
        any smaller ε: one unit's gradient has the norm of the clip (and the opposite direction
        under replace-one), all others' are 0.

    >>> from tacit.training.plan import Plan
    >>> plan = Plan(examples=100, lot_size=10, steps=20, noise_multiplier=1.0, clip=1.0)
    >>> from tacit.accounting import bounds
    >>> certified = bounds(plan.event, delta=1e-5)
    >>> 0.99 * certified.lower < least_epsilon(plan, 20, 1e-5) <= certified.upper
    True
    """
    return least_together(((plan, steps),), delta)


def is_noisy(plan: Plan) -> bool:
    """Whether steps of the plan have an ε that bounds anything: not with next to no noise."""
    return _joint_sigma(plan) > 0.1


def least_together(parts: Sequence[tuple[Plan, int]], delta: float) -> float | None:
    """The same for steps of several plans on the same data; those of one adjacency.

    >>> from dataclasses import replace
    >>> from tacit.training.plan import Plan
    >>> plan = Plan(examples=100, lot_size=10, steps=20, noise_multiplier=1.0, clip=1.0)
    >>> one, both = (least_together(((plan, n), (plan, 20 - n)), 1e-5) for n in (20, 13))
    >>> abs(one - both) < 1e-6
    True
    """
    if any(isinstance(plan.sampling, TruncatedPoisson | Allocation | Cyclic) for plan, _ in parts):
        return None
    if any(plan.correlation is not None and plan.groups == 1 for plan, _ in parts):
        return None
    taken: Counter[_Law] = Counter()
    for plan, steps in parts:
        taken[_law(plan)] += steps
    return _least(tuple((law, steps) for law, steps in taken.items() if steps), delta)


class _Law(NamedTuple):
    """All of a plan that decides what one of its steps can tell, or a turn of its groups."""

    rate: float
    sigma: float
    replaces: bool
    groups: int


def _law(plan: Plan) -> _Law:
    rate = 1.0 if isinstance(plan.sampling, FullBatch) else plan.group_rate
    return _Law(rate, _joint_sigma(plan), plan.adjacency == "replace-one", plan.groups)


@lru_cache(maxsize=256)
def _least(parts: tuple[tuple[_Law, int], ...], delta: float) -> float:
    # Of so many steps some group has at least its share of turns.
    pairs = [(*_in_bins(law), -(-steps // law.groups)) for law, steps in parts]
    if not pairs:
        return 0.0
    turned = [(without, with_it, steps) for with_it, without, steps in pairs]
    return max(_epsilon(pairs, delta), _epsilon(turned, delta))


def _in_bins(law: _Law) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What one step releases with a unit and without it, in bins."""
    rate, sigma, replaces, _ = law
    edges = np.linspace(-1.0 - _REACH * sigma, 1.0 + _REACH * sigma, _BINS)
    absent = np.diff(stats.norm.cdf(edges, 0.0, sigma))
    with_it = (1.0 - rate) * absent + rate * np.diff(stats.norm.cdf(edges, 1.0, sigma))
    without = absent
    if replaces:
        without = (1.0 - rate) * absent + rate * np.diff(stats.norm.cdf(edges, -1.0, sigma))
    return with_it, without


def _joint_sigma(plan: Plan) -> float:
    """The σ of one Gaussian that tells as much as the gradients and the clip's count together."""
    precision = plan.noise_multiplier**-2
    if isinstance(plan.clipping, AdaptiveQuantile):
        precision += (2.0 * plan.clipping.count_noise) ** -2  # one unit adds ±½ to the count
    return float(precision**-0.5)


def _epsilon(
    pairs: Sequence[tuple[NDArray[np.float64], NDArray[np.float64], int]], delta: float
) -> float:
    """The ε at which δ(ε) = E[(1 - e^(ε - L))₊] of the sum L of losses falls to ``delta``."""
    steps = [count for _, _, count in pairs]
    parts = [_losses(likely, other) for likely, other, _ in pairs]
    variance = sum(n * float(p @ np.square(x)) for n, (p, x, _) in zip(steps, parts, strict=True))
    # The window holds the sum of losses and, from one step to the next, every single one.
    reach = max(float(np.abs(losses).max()) for _, losses, _ in parts)
    half = 14.0 * math.sqrt(max(variance, 1e-300)) + reach
    width = 2.0 * half / _POINTS
    product: NDArray[np.complex128] = np.ones(_POINTS // 2 + 1, dtype=np.complex128)
    for count, (chances, losses, _) in zip(steps, parts, strict=True):
        cells = np.floor(losses / width).astype(np.int64)
        single = np.bincount(cells % _POINTS, weights=chances, minlength=_POINTS)
        product *= np.fft.rfft(single) ** count
    total = np.fft.irfft(product, _POINTS).clip(0.0)
    places = np.arange(-(_POINTS // 2), _POINTS - _POINTS // 2)
    mean = sum(count * one for count, (_, _, one) in zip(steps, parts, strict=True))
    sums = (places * width + mean).astype(np.float64)
    return _crossing(sums, np.roll(total, _POINTS // 2), delta)


def _losses(
    likely: NDArray[np.float64], other: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """The chances of a step's losses, the losses less their mean, and the mean."""
    kept = (likely > 1e-200) & (other > 1e-200)
    chances, losses = likely[kept], np.log(likely[kept] / other[kept])
    mean = float(chances @ losses)
    return chances, losses - mean, mean


def _crossing(losses: NDArray[np.float64], chances: NDArray[np.float64], delta: float) -> float:
    """The largest ε ≥ 0 with δ(ε) ≥ ``delta``, found by bisection; ``losses`` are increasing."""
    positive = losses > 0.0
    losses, chances = losses[positive], chances[positive]
    # δ(ε) = P(L > ε) - e^ε·E[e^(-L); L > ε], from the sums over all losses above.
    above = np.cumsum(chances[::-1])[::-1]
    weighed = np.cumsum((chances * np.exp(-losses))[::-1])[::-1]

    def excess(epsilon: float) -> float:
        at = int(np.searchsorted(losses, epsilon, side="right"))
        if at == len(losses):
            return -_FFT_ERROR
        return float(above[at] - math.exp(epsilon) * weighed[at]) - _FFT_ERROR

    low, high = 0.0, float(losses[-1]) if len(losses) else 0.0
    if excess(low) < delta:
        return 0.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if excess(middle) >= delta else (low, middle)
    return low
