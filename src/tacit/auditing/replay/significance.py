"""p-values of what should be random: exact laws where there are any, corrected for their number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special, stats

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Of every statistical check by itself. A report has some thirty of them.
LEVEL = 1e-7


def variance_p_value(values: NDArray[np.float64]) -> float:
    """How likely standard normal numbers have so unusual a sum of squares, on either side."""
    return chi_square_p_value(float(np.square(values).sum()), values.size)


def chi_square_p_value(total: float, degrees: float) -> float:
    """How likely a χ² number of ``degrees`` degrees of freedom is so unusual, on either side."""
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
    for cut in (2.5, 3.0, 3.5, 4.0):
        beyond, chance = int((np.abs(values) > cut).sum()), 2.0 * float(stats.norm.sf(cut))
        tails.append(counts_p_value(beyond, values.size, chance))
    return corrected([body, *tails, normal_p_value(values)])


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


def lag_p_value(values: NDArray[np.float64], lag: int) -> float:
    """How likely rows of standard normal numbers are so like those ``lag`` rows later, all pooled.

    No row is in two of the pairs, so that the two sides are independent directions.
    """
    first = np.arange(max(len(values) - lag, 0))
    first = first[first // lag % 2 == 0]
    one, other = values[first].reshape(1, -1), values[first + lag].reshape(1, -1)
    return cosines_p_value(one, other)


def magnitudes(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of standard normal numbers, the size of each as a standard normal number of its own.

    On a grid some numbers are exactly 0, which is no sign of anything: no size is taken for smaller
    than one in 100,000 is.
    """
    below = np.maximum(2.0 * special.ndtr(np.abs(values)) - 1.0, 1e-5)
    return _scores(below, 2.0 * special.ndtr(-np.abs(values)))


def length_scores(squares: NDArray[np.float64], degrees: int) -> NDArray[np.float64]:
    """χ² numbers of ``degrees`` degrees of freedom as standard normal numbers."""
    return _scores(special.chdtr(degrees, squares), special.chdtrc(degrees, squares))


def count_scores(counts: NDArray[np.int64], trials: int, chance: float) -> NDArray[np.float64]:
    """Binomial numbers as standard normal ones: each is spread at random over its own step.

    The law of the scores is exact; the random numbers that it takes are always the same.
    """
    draw = np.random.default_rng(0).uniform(size=counts.shape)
    own = stats.binom.pmf(counts, trials, chance)
    below = stats.binom.cdf(counts - 1, trials, chance) + draw * own
    above = stats.binom.sf(counts, trials, chance) + (1.0 - draw) * own
    return _scores(below, above)


def spread_p_value(scores: NDArray[np.float64]) -> float:
    """How likely standard normal numbers spread so much, or so little, around their mean."""
    if scores.size < 2:
        return 1.0
    return chi_square_p_value(float(np.square(scores - scores.mean()).sum()), scores.size - 1)


def normal_p_value(scores: NDArray[np.float64]) -> float:
    """How likely the largest of these standard normal scores is, in absolute value."""
    if scores.size == 0:
        return 1.0
    return min(1.0, 2.0 * float(stats.norm.sf(np.abs(scores).max())) * scores.size)


def same_rows_p_value(one: NDArray[np.bool_], other: NDArray[np.bool_], chance: float) -> float:
    """How likely lots of one run come again in another, one after the other, at whatever place.

    Two independent lots of n units agree with probability (q² + (1-q)²)ⁿ; k in a row with its k-th
    power, and there are no more places for that than pairs of lots.
    """
    if not (one.size and other.size) or not 0.0 < chance < 1.0:
        return 1.0
    same = (one[:, None, :] == other[None, :, :]).all(2)
    longest = max(_longest(np.diagonal(same, at)) for at in range(1 - len(one), len(other)))
    agree = (chance * chance + (1.0 - chance) * (1.0 - chance)) ** one.shape[1]
    return min(1.0, same.size * float(agree) ** longest) if longest else 1.0


def corrected(p_values: list[float]) -> float:
    """The smallest of some p-values, times their number."""
    return min(1.0, min(p_values, default=1.0) * len(p_values))


def _longest(found: NDArray[np.bool_]) -> int:
    """The most that are true in a row."""
    longest = now = 0
    for one in found.tolist():
        now = now + 1 if one else 0
        longest = max(longest, now)
    return longest


def _directions(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    out: NDArray[np.float64] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return out


def _scores(below: NDArray[np.float64], above: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard normal numbers with these tails, from the smaller of the two."""
    smaller = np.clip(np.minimum(below, above), 1e-300, 0.5)
    out: NDArray[np.float64] = np.where(below <= above, 1.0, -1.0) * special.ndtri(smaller)
    return out


def _two_sided(below: float, above: float) -> float:
    return min(1.0, 2.0 * min(float(below), float(above)))
