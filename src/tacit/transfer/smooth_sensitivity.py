"""How far one record can move the data-dependent cost of GNMax, and what releasing that cost costs.

The cost Σ f(votes) at one Rényi order is private. It may be released with noise scaled to its
smooth sensitivity (GNSS; Papernot et al. 2018, Appendix B; Nissim, Raskhodnikova & Smith 2007),
which is large where the votes are near a place at which f changes fast. Or a smooth upper bound on
the cost itself is released, by its logarithm: that is what ``data_dependent_claim`` does.

Papernot et al. assume that f grows with q (their condition C5) and that its steps do, too (C6), and
check both numerically. Here both hold by construction. Write q = (m-1)·Φc(z). Any upper bound on q
gives a valid cost, so f takes the best bound over a public grid of such z at or below the votes' z:
a staircase that never rises with z (C5), whose largest step over a range is found by looking at
all steps in it (so C6 is not needed).

Why the steps suffice. One vote that moves changes each gap, in order of size, by at most 2, also
where the first class changes. p ↦ Φc(Φc⁻¹(p) - w) is concave, so that by Jensen z moves by at most
w = √2/σ (their B_U and B_L). Within d votes q is at most what moving d votes from the first class
to the second makes of it (Φc is convex), and at least Σ Φc((Δ_j + 2d)/(√2·σ)). The first is the
largest q of all votes within d, and those lie within d + 1 of each neighbour: what is computed at d
from it is never more than at d + 1 from a neighbour's votes, as a smooth bound needs.

Ties on the grid of the noise count as lost: each lead is one ``vote_noise.STEP`` less then, which
moves z by 40 steps in units of a cell. Rounding z down by more than that covers it.

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
from tacit.transfer import confident_votes
from tacit.transfer.aggregators import ConfidentGNMax, GNMax
from tacit.transfer.gaussian_votes import data_dependent_rdp
from tacit.transfer.rdp_cost import likely_outcome_rdp

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from tacit.transfer.votes import Votes

    Array = NDArray[np.float64]
    Cells = NDArray[np.int64]
    Gaps = NDArray[np.int64]
    Places = NDArray[np.int64]


_FINE = 80  # cells of the grid in the way that one record can move z
_REACH = _FINE + 1  # one more for rounding
_DOWN = 1e-5  # of a cell: more than _FINE/2 steps of the noise's grid, and than float64's rounding
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
        cell = np.floor(z * _FINE * self.sigma / math.sqrt(2.0) - _DOWN)
        result: Cells = np.clip(cell, 0, len(self.costs) - 1).astype(np.int64)
        return result


def staircase(
    *,
    sigma: float,
    order: float,
    teachers: int,
    classes: int,
    rdp: Callable[[Array, float, list[float]], Array] = data_dependent_rdp,
) -> Staircase:
    """The cost of GNMax at one order, for every possible vote.

    Args:
        sigma: Of GNMax.
        order: The Rényi order.
        teachers: How many vote.
        classes: How many there are to choose from.
        rdp: The data-dependent theorem: that of ``gaussian_votes``, or ``likely_outcome_rdp``.

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
    costs = rdp(log_q, scale, [order])[:, 0]
    costs[0] = order / scale**2  # the first cell serves every larger q
    costs = np.minimum.accumulate(costs)
    up = np.concatenate([np.full(_REACH, costs[0]), costs])[: len(costs)]
    down = np.concatenate([costs, np.full(_REACH, costs[-1])])[_REACH:]
    steps = np.maximum(up - costs, costs - down)
    return Staircase(scale, float(order), many, width, costs, steps)


def data_dependent_costs(votes: Votes, stairs: Staircase) -> Array:
    """The cost f of each query; its sum over answered ones may be released with noise. Private."""
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
    table = _range_maxima(stairs.steps)

    def largest(gaps: Gaps) -> Array:
        return _largest_between(table, _first_cells(gaps, stairs), _last_cells(gaps, stairs))

    return _summed(votes, stairs, answered, largest)


def largest_costs(votes: Votes, stairs: Staircase, weights: ArrayLike | None = None) -> Array:
    """The largest sum of f over any votes within d = 0, 1, …, n records. Private.

    An upper bound, over the queries that are marked by ``weights`` (all, if not given; numbers
    weight them), and no more than the next one of a neighbour.
    """
    return _summed(votes, stairs, weights, lambda gaps: stairs.costs[_first_cells(gaps, stairs)])


def _summed(
    votes: Votes,
    stairs: Staircase,
    weights: ArrayLike | None,
    worst: Callable[[Gaps], Array],
) -> Array:
    """The sum over queries of what is ``worst`` at each distance (columns), given their gaps."""
    _check(votes, stairs)
    weight = np.ones(votes.queries, bool) if weights is None else np.asarray(weights)
    if weight.dtype.kind not in "bf" or weight.shape != (votes.queries,):
        raise InvalidArgument(
            f"answered must be {votes.queries} truth values (or weights), one for each query"
        )
    used = weight > 0
    gaps, place = np.unique(votes.gaps()[used], axis=0, return_inverse=True)
    times = np.bincount(place.ravel(), weights=weight[used].astype(np.float64))
    total = np.zeros(stairs.teachers + 1)
    for start in range(0, len(gaps), _ROWS):
        some = slice(start, start + _ROWS)
        total += times[some] @ worst(gaps[some])
    return total


def smooth_sensitivity(local: ArrayLike, smoothness: float) -> float:
    """max_d e^{-βd}·(local sensitivity at distance d), or of ``largest_costs``. Private.

    Its logarithm moves by at most β = ``smoothness`` when one record changes. A scale of noise that
    is made from it is therefore private, too.
    """
    values = np.asarray(local, dtype=np.float64)
    decay = np.exp(-positive("smoothness", smoothness) * np.arange(len(values)))
    return float(np.max(values * decay))


def release_rdp(*, noise_multiplier: float, smoothness: float, order: float) -> float:
    """The Rényi divergence of f + S·N(0, σ²), S its β-smooth sensitivity; infinite if none.

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


def _first_cells(gaps: Gaps, stairs: Staircase) -> Cells:
    """The first cell that votes within each distance (columns) can lie in."""
    far = np.arange(stairs.teachers + 1)
    nearer = (gaps[:, np.newaxis, :] - far[:, np.newaxis]).astype(np.float64)
    nearer[:, :, 0] -= far
    overtaken = nearer[:, :, 0] <= 0.0
    apart = np.maximum(nearer, 0.0) / (math.sqrt(2.0) * stairs.sigma)
    return np.where(overtaken, 0, stairs.cells(logsumexp(log_ndtr(-apart), axis=2)))


def _last_cells(gaps: Gaps, stairs: Staircase) -> Cells:
    """The last cell that votes within each distance (columns) can lie in."""
    far = np.arange(stairs.teachers + 1)
    apart = (gaps[:, np.newaxis, :] + 2.0 * far[:, np.newaxis]) / (math.sqrt(2.0) * stairs.sigma)
    return stairs.cells(logsumexp(log_ndtr(-apart), axis=2))


# ---- the largest value of any range, from a table of ranges of 1, 2, 4, … values


def _range_maxima(values: Array) -> Array:
    """Row k holds the largest of the 2^k values that begin at each place."""
    rows = [values]
    while 2 ** len(rows) <= len(values):
        half = 2 ** (len(rows) - 1)
        moved = np.concatenate([rows[-1][half:], np.full(half, -np.inf)])
        rows.append(np.maximum(rows[-1], moved))
    return np.stack(rows)


def _largest_between(table: Array, first: Places, last: Places) -> Array:
    """The largest value from ``first`` to ``last``: of two overlapping powers of two."""
    level = np.log2(last - first + 1).astype(np.int64)
    result: Array = np.maximum(table[level, first], table[level, last + 1 - 2**level])
    return result


# ---- the cost of GNMax at one Rényi order, for every possible vote

_COARSE = 4  # cells of the staircase that share a cost: it rises by less than 1 %


def tight_staircase(votes: Votes, aggregator: GNMax | ConfidentGNMax, order: float) -> Staircase:
    """The cost of an answer at ``order``, for every possible vote of as many teachers. Public."""
    if not isinstance(aggregator, GNMax | ConfidentGNMax):
        raise InvalidArgument(
            "aggregator must be GNMax or ConfidentGNMax to have its cost released, "
            f"got {aggregator!r}"
        )
    return staircase(
        sigma=aggregator.analysed_sigma,
        order=order,
        teachers=votes.teachers,
        classes=votes.classes,
        rdp=_coarse_rdp,
    )


def _coarse_rdp(log_q: Array, sigma: float, orders: list[float]) -> Array:
    """``likely_outcome_rdp`` at every fourth of falling q, which is one for the next three."""
    found = likely_outcome_rdp(log_q[::_COARSE], sigma, orders)
    result: Array = np.repeat(found, _COARSE, axis=0)[: len(log_q)]
    return result


def screening_cost(aggregator: GNMax | ConfidentGNMax, order: float, teachers: int) -> float:
    """What one screening costs at ``order``, whatever the votes."""
    if isinstance(aggregator, GNMax):
        return 0.0
    return float(confident_votes.worst_rdp(aggregator, [order], teachers)[0])
