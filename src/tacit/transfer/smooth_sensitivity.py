"""How far one record can move the data-dependent cost of GNMax, and what telling that cost costs.

The cost Σ f(votes) at one Rényi order is private. It may be told with noise scaled to its smooth
sensitivity (GNSS; Papernot et al. 2018, Appendix B; Nissim, Raskhodnikova & Smith 2007), which is
large where the votes are near a place at which f changes fast.

Papernot et al. assume that f grows with q (their condition C5) and that its steps do, too (C6), and
check both numerically. Here both hold by construction. Write q = (m-1)·Φc(z). Any upper bound on q
gives a valid cost, so f takes the best bound over a public grid of such z at or below the votes' z:
a staircase that never rises with z (C5), whose largest step over a range is found by looking at
all steps in it (so C6 is not needed).

Why the steps suffice. One vote that moves changes each gap, in order of size, by at most 2, also
where the first class changes. p ↦ Φc(Φc⁻¹(p) - w) is concave, so that by Jensen z moves by at most
w = √2/σ (their B_U and B_L). Within d votes q is at most what moving d votes from the first class
to the second makes of it (Φc is convex), and at least Σ Φc((Δ_j + 2d)/(√2·σ)).

Everything here but ``release_rdp`` is computed from the votes and is itself private.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument
from tacit.transfer.gaussian_votes import data_dependent_rdp

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tacit.transfer.votes import Votes

    Array = NDArray[np.float64]
    Cells = NDArray[np.int64]

_FINE = 128  # cells of the grid in the way that one record can move z
_REACH = _FINE + 1  # one more for rounding
_ROWS = 32  # of queries at a time


@final
@dataclass(frozen=True, eq=False, slots=True)
class Staircase:
    """GNMax's cost f at one order as a step function of z, for every possible vote. Public.

    Args:
        sigma: Of GNMax.
        order: The Rényi order α.
        teachers: How many vote.
        classes: How many there are to choose from.
        costs: f in each cell of the grid, never rising.
        steps: The most that one record can change f from a vote in each cell.
    """

    sigma: float
    order: float
    teachers: int
    classes: int
    costs: Array
    steps: Array

    def cells(self, log_q: Array) -> Cells:
        """In which cell each q lies; rounding is towards larger q, so larger cost."""
        z = -ndtri_exp(np.minimum(log_q - math.log(self.classes - 1), math.log(0.5)))
        cell = np.floor(z * _FINE * self.sigma / math.sqrt(2.0) - 1e-6)
        result: Cells = np.clip(cell, 0, len(self.costs) - 1).astype(np.int64)
        return result


def staircase(*, sigma: float, order: float, teachers: int, classes: int) -> Staircase:
    """The cost of GNMax at one order, for every possible vote.

    Guarantee:
        Each cost is an upper bound on the Rényi divergence of an answer to votes in its cell: the
        data-dependent theorem holds for each upper bound on q.

    >>> stairs = staircase(sigma=40.0, order=16.0, teachers=250, classes=10)
    >>> stairs.costs[[0, -1]].round(6).tolist()
    [0.01, 3.7e-05]
    """
    scale, many = positive("sigma", sigma), whole("teachers", teachers)
    width = whole("classes", classes, at_least=2)
    z = np.arange(many * _FINE // 2 + 2) * (math.sqrt(2.0) / scale / _FINE)
    log_q = np.minimum(math.log(width - 1) + log_ndtr(-z), math.log1p(-1.0 / width))
    costs = data_dependent_rdp(log_q, scale, [order])[:, 0]
    costs[0] = order / scale**2  # the first cell serves every larger q
    costs = np.minimum.accumulate(costs)
    up = np.concatenate([np.full(_REACH, costs[0]), costs])[: len(costs)]
    down = np.concatenate([costs, np.full(_REACH, costs[-1])])[_REACH:]
    steps = np.maximum(up - costs, costs - down)
    return Staircase(scale, float(order), many, width, costs, steps)


def data_dependent_costs(votes: Votes, stairs: Staircase) -> Array:
    """The cost f of each query; its sum over answered ones is what may be told noisily. Private."""
    _check(votes, stairs)
    gaps = votes.gaps() / (math.sqrt(2.0) * stairs.sigma)
    result: Array = stairs.costs[stairs.cells(logsumexp(log_ndtr(-gaps), axis=1))]
    return result


def local_sensitivities(
    votes: Votes, stairs: Staircase, answered: ArrayLike | None = None
) -> Array:
    """How far one record can move the sum of f from any votes within d = 0, 1, …, n. Private.

    Each entry is an upper bound, summed over the ``answered`` queries (all, if not given), and no
    more than the next one of a neighbour, as a smooth bound needs.
    """
    _check(votes, stairs)
    marked = np.ones(votes.queries, bool) if answered is None else np.asarray(answered)
    if marked.dtype != np.bool_ or marked.shape != (votes.queries,):
        raise InvalidArgument(f"answered must be {votes.queries} truth values, one for each query")
    gaps, times = np.unique(votes.gaps()[marked], axis=0, return_counts=True)
    table = _range_maxima(stairs.steps)
    total = np.zeros(stairs.teachers + 1)
    for start in range(0, len(gaps), _ROWS):
        some = slice(start, start + _ROWS)
        first, last = _reachable(gaps[some], stairs)
        total += times[some] @ _largest_between(table, first, last)
    return total


def smooth_sensitivity(local: ArrayLike, smoothness: float) -> float:
    """max_d e^{-βd}·(local sensitivity at distance d). Private.

    Its logarithm moves by at most β = ``smoothness`` when one record changes. The scale of the
    noise is therefore private, too; who must tell it tells ln S with noise of sensitivity β.
    """
    values = np.asarray(local, dtype=np.float64)
    decay = np.exp(-positive("smoothness", smoothness) * np.arange(len(values)))
    return float(np.max(values * decay))


def release_rdp(*, noise_multiplier: float, smoothness: float, order: float) -> float:
    """The Rényi divergence of telling f + S·N(0, σ²), S its β-smooth sensitivity; infinite if none.

    Two such laws differ by at most the smaller S in the mean and by e^β in scale. The divergence of
    two Gaussians (van Erven & Harremoës 2014, equation 10) is then largest where the second is the
    narrower one by e^β: with v = α·e^{-2β} + 1 - α > 0 it is

        α·e^{-2β}/(2σ²·v) - (α·β + ½·ln v)/(α-1).

    This is exact. Theorem 23 of Papernot et al. 2018 has α·e^{2β}/σ² for the first term, which is
    less than that where β is above about 1/(4α) and σ is small; their script tries β from 0.3/α on.

    >>> round(release_rdp(noise_multiplier=10.0, smoothness=0.01, order=16.0), 6)
    0.116814
    """
    sigma, beta = positive("noise_multiplier", noise_multiplier), positive("smoothness", smoothness)
    kappa = positive("order", order) - 1.0
    if kappa <= 0.0:
        raise InvalidArgument(f"order must be above 1, got {order!r}")
    lost = order * -math.expm1(-2.0 * beta)  # 1 - v
    if lost >= 1.0:
        return math.inf
    mean = order * math.exp(-2.0 * beta) / (2.0 * sigma**2 * (1.0 - lost))
    return mean - (order * beta + 0.5 * math.log1p(-lost)) / kappa


def _check(votes: Votes, stairs: Staircase) -> None:
    if (votes.teachers, votes.classes) != (stairs.teachers, stairs.classes):
        raise InvalidArgument(
            f"votes must be those of {stairs.teachers} teachers on {stairs.classes} classes, as "
            f"the staircase is, got {votes!r}"
        )


def _reachable(gaps: NDArray[np.int64], stairs: Staircase) -> tuple[Cells, Cells]:
    """The first and last cell that votes within each distance (columns) can lie in."""
    far = np.arange(stairs.teachers + 1)
    unit = math.sqrt(2.0) * stairs.sigma
    nearer = (gaps[:, np.newaxis, :] - far[:, np.newaxis]).astype(np.float64)
    nearer[:, :, 0] -= far
    overtaken = nearer[:, :, 0] < 0.0
    larger = logsumexp(log_ndtr(-np.maximum(nearer, 0.0) / unit), axis=2)
    apart = gaps[:, np.newaxis, :] + 2.0 * far[:, np.newaxis]
    smaller = logsumexp(log_ndtr(-apart / unit), axis=2)
    return np.where(overtaken, 0, stairs.cells(larger)), stairs.cells(smaller)


def _range_maxima(values: Array) -> Array:
    """Row k holds the largest of the 2^k values that begin at each place."""
    rows = [values]
    while 2 ** len(rows) <= len(values):
        half = 2 ** (len(rows) - 1)
        moved = np.concatenate([rows[-1][half:], np.full(half, -np.inf)])
        rows.append(np.maximum(rows[-1], moved))
    return np.stack(rows)


def _largest_between(table: Array, first: Cells, last: Cells) -> Array:
    """The largest value from ``first`` to ``last``: of two overlapping powers of two."""
    level = np.log2(last - first + 1).astype(np.int64)
    result: Array = np.maximum(table[level, first], table[level, last + 1 - 2**level])
    return result
