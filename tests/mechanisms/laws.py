"""Tests of laws that reject 3 % less noise, with a false-alarm rate of 1e-6."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chi2, kstest, norm

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVEL = 1e-6
_REACH = float(norm.isf(LEVEL / 4))


def is_laplace(noise: NDArray[np.float64], scale: float) -> bool:
    """Kolmogorov and Smirnov's test, and the mean size, whose deviation is the scale itself."""
    off = (np.abs(noise).mean() / scale - 1.0) * np.sqrt(len(noise))
    return bool(abs(off) < _REACH and kstest(noise / scale, "laplace").pvalue > LEVEL / 2)


def is_gaussian(noise: NDArray[np.float64], sigma: float) -> bool:
    """The same, and the mean square."""
    off = (np.square(noise).mean() / sigma**2 - 1.0) * np.sqrt(len(noise) / 2.0)
    return bool(abs(off) < _REACH and kstest(noise / sigma, "norm").pvalue > LEVEL / 2)


def has_weights(values: NDArray[np.int64], weights: NDArray[np.float64]) -> bool:
    """Pearson's chi-square for outcomes 0, 1, 2, …; those expected under 20 times count as one."""
    expected = weights / weights.sum() * len(values)
    found = np.bincount(values, minlength=len(weights)).astype(float)
    full = expected >= 20
    pairs = [(expected[full], found[full])]
    if expected[~full].sum() >= 20:
        pairs.append((expected[~full].sum(), found[~full].sum()))
    statistic = sum(float(((got - due) ** 2 / due).sum()) for due, got in pairs)
    degrees = int(full.sum()) + len(pairs) - 2
    return bool(statistic < chi2.isf(LEVEL, degrees))


def has_integer_weights(
    values: NDArray[np.int64], scale: float, power: int, reach: float = 40.0
) -> bool:
    """Whether P(k) ∝ exp(-|k/scale|^power/power), the discrete Laplace or Gaussian law."""
    far = int(np.ceil(reach * scale)) + 3
    k = np.arange(-far, far + 1.0)
    return has_weights(
        np.clip(values, -far, far) + far, np.exp(-(np.abs(k / scale) ** power) / power)
    )
