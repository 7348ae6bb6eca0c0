"""A second accountant, which shares nothing with the first: a lower bound on ε by binning.

What a step releases is cut into bins, which only makes it less telling; losses are rounded down,
which does so too; and the sum of T losses is found by the fast Fourier transform. A claim below
this bound is wrong.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from tacit.training.sampling import FullBatch, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
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
    if isinstance(plan.sampling, TruncatedPoisson):
        return None
    rate = 1.0 if isinstance(plan.sampling, FullBatch) else plan.sample_rate
    sigma = _joint_sigma(plan)
    edges = np.linspace(-1.0 - _REACH * sigma, 1.0 + _REACH * sigma, _BINS)
    absent = np.diff(stats.norm.cdf(edges, 0.0, sigma))
    with_it = (1.0 - rate) * absent + rate * np.diff(stats.norm.cdf(edges, 1.0, sigma))
    without = absent
    if plan.adjacency == "replace-one":
        without = (1.0 - rate) * absent + rate * np.diff(stats.norm.cdf(edges, -1.0, sigma))
    both = _epsilon(with_it, without, steps, delta), _epsilon(without, with_it, steps, delta)
    return max(both)


def _joint_sigma(plan: Plan) -> float:
    """The σ of one Gaussian that tells as much as the gradients and the clip's count together."""
    precision = plan.noise_multiplier**-2
    if isinstance(plan.clipping, AdaptiveQuantile):
        precision += (2.0 * plan.clipping.count_noise) ** -2  # one unit adds ±½ to the count
    return float(precision**-0.5)


def _epsilon(
    likely: NDArray[np.float64], other: NDArray[np.float64], steps: int, delta: float
) -> float:
    """The ε at which δ(ε) = E[(1 - e^(ε - L))₊] of the sum L of losses falls to ``delta``."""
    kept = (likely > 1e-200) & (other > 1e-200)
    chances, losses = likely[kept], np.log(likely[kept] / other[kept])
    mean = float(chances @ losses)
    spread = math.sqrt(max(float(chances @ np.square(losses - mean)), 1e-300) * steps)
    # The window holds the sum of losses and, from one step to the next, every single one.
    half = 14.0 * spread + float(np.abs(losses - mean).max())
    width = 2.0 * half / _POINTS
    cells = np.floor((losses - mean) / width).astype(np.int64)
    single = np.bincount(cells % _POINTS, weights=chances, minlength=_POINTS)
    total = np.fft.irfft(np.fft.rfft(single) ** steps, _POINTS).clip(0.0)
    places = np.arange(_POINTS)
    places[places >= _POINTS // 2] -= _POINTS
    order = np.argsort(places)
    sums: NDArray[np.float64] = (places[order] * width + steps * mean).astype(np.float64)
    return _crossing(sums, total[order], delta)


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
