"""p-values of what should be random: exact laws where there are any, corrected for their number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Of every statistical check by itself. A report has some twenty of them.
LEVEL = 1e-7


def variance_p_value(values: NDArray[np.float64]) -> float:
    """How likely standard normal numbers have so unusual a sum of squares, on either side."""
    return chi_square_p_value(float(np.square(values).sum()), values.size)


def chi_square_p_value(total: float, degrees: float) -> float:
    """How likely a χ² number of so many degrees of freedom is so unusual, on either side."""
    return _two_sided(stats.chi2.cdf(total, degrees), stats.chi2.sf(total, degrees))


def variances_p_value(columns: NDArray[np.float64]) -> float:
    """The same for the most unusual of many columns."""
    totals, count = np.square(columns).sum(0), len(columns)
    ends = float(stats.chi2.cdf(totals.min(), count)), float(stats.chi2.sf(totals.max(), count))
    return min(1.0, 2.0 * min(ends) * int(totals.size))


def mean_p_value(values: NDArray[np.float64]) -> float:
    """How likely standard normal numbers have so unusual a mean."""
    return float(2.0 * stats.norm.sf(abs(float(values.sum())) / math.sqrt(values.size)))


def shape_p_value(values: NDArray[np.float64]) -> float:
    """How likely standard normal numbers are so far from the bell curve, middle or tails."""
    body = float(stats.kstest(values.ravel(), "norm").pvalue)
    tails = []
    for cut in (2.5, 3.0, 3.5):
        beyond, chance = int((np.abs(values) > cut).sum()), 2.0 * float(stats.norm.sf(cut))
        tails.append(counts_p_value(beyond, values.size, chance))
    return corrected([body, *tails])


def counts_p_value(found: int, trials: int, chance: float) -> float:
    """How likely so unusual a number of successes is, on either side."""
    return _two_sided(
        float(stats.binom.cdf(found, trials, chance)),
        float(stats.binom.sf(found - 1, trials, chance)),
    )


def cosines_p_value(left: NDArray[np.float64], right: NDArray[np.float64] | None = None) -> float:
    """How likely the largest cosine between rows of independent standard normal numbers is.

    Rows of ``left`` are compared with each other, or with those of ``right``. The square of the
    cosine of two independent directions in d dimensions is Beta(½, (d-1)/2).
    """
    one, dimensions = _directions(left), left.shape[1]
    other = one if right is None else _directions(right)
    squares = np.square(one @ other.T)
    if right is None:
        squares = squares[np.triu_indices(len(one), 1)]
    if squares.size == 0 or dimensions < 2:
        return 1.0
    # The complement of the regularised incomplete beta function, without cancellation.
    largest = min(1.0, float(squares.max()))
    single = float(special.betainc((dimensions - 1) / 2.0, 0.5, 1.0 - largest))
    return min(1.0, single * squares.size)


def normal_p_value(scores: NDArray[np.float64]) -> float:
    """How likely the largest of so many standard normal scores is, in absolute value."""
    if scores.size == 0:
        return 1.0
    return min(1.0, 2.0 * float(stats.norm.sf(np.abs(scores).max())) * scores.size)


def corrected(p_values: list[float]) -> float:
    """The smallest of some p-values, times their number."""
    return min(1.0, min(p_values, default=1.0) * len(p_values))


def _directions(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    out: NDArray[np.float64] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return out


def _two_sided(below: float, above: float) -> float:
    return min(1.0, 2.0 * min(float(below), float(above)))
