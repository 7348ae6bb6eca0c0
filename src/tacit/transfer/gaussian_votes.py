"""GNMax (Papernot et al. 2018): tells argmax_j n_j + N(0, σ²).

Replacing, adding or removing one record changes the vote of one teacher, which moves from one class
to another: two counts change by 1, a distance of √2.

What depends on the votes (``log_q`` and the functions called ``data_dependent``) is itself private:
a planning figure, not a bound to publish and nothing to stop by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, logsumexp

from tacit._validation import positive, whole
from tacit.accounting.events import Gaussian, Repeated
from tacit.errors import InvalidArgument
from tacit.transfer.rdp_cost import (
    ROUND_UP,
    SMALLEST,
    checked_logs,
    checked_orders,
    log_moments,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tacit.transfer.votes import Votes

    Array = NDArray[np.float64]

_ROWS = 128  # of queries at a time, so that the working arrays stay in the cache


def charge(sigma: float, queries: int = 1) -> Repeated:
    """What is charged for ``queries`` answers, whatever the votes: μ-GDP with μ² = 2·queries/σ².

    Guarantee:
        The unit of the event is √2, how far a record moves the counts. That is so for each
        adjacency: a teacher whose data gained or lost a record still votes, perhaps for another
        class. (Were the voters themselves the records, one that is added would move the counts by
        1 and one that is replaced by √2: ``Gaussian(sigma, replace_distance=2**0.5)``.)

    >>> from tacit.accounting import epsilon
    >>> answers = charge(40.0, 286)
    >>> [round(epsilon(answers, 1e-5, adjacency=a), 4) for a in ("add-remove", "replace-one")]
    [2.4354, 2.4354]
    """
    unit = positive("sigma", sigma) / math.sqrt(2.0)
    return Repeated(Gaussian(unit, replace_distance=1.0), whole("queries", queries))


def data_independent_rdp(sigma: float, orders: ArrayLike) -> Array:
    """The Rényi divergence of one answer, whatever the votes: α/σ²."""
    return checked_orders(orders) / positive("sigma", sigma) ** 2


def log_q(votes: Votes, sigma: float) -> Array:
    """The logarithm of (a bound on) the probability that the first class loses. Private.

    q = Σ_{j≠j*} Φc(Δ_j/(√2·σ)), at most 1 - 1/m (Papernot et al. 2018, Proposition 7).

    >>> from tacit.transfer.votes import Votes
    >>> log_q(Votes(np.array([[200, 30, 20] + [0] * 7])), 40.0).round(9).tolist()
    [-5.659945978]
    """
    far = votes.gaps() / (math.sqrt(2.0) * positive("sigma", sigma))
    total = logsumexp(log_ndtr(-far), axis=1)
    result: Array = np.minimum(total, math.log1p(-1.0 / votes.classes))
    return result


def data_dependent_rdp(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> Array:
    """The Rényi divergence of each query (rows) at each order (columns). Private.

    With μ2 = σ·√(-ln q), μ1 = μ2 + 1, ε1 = μ1/σ² and ε2 = μ2/σ² (Papernot et al. 2018, Theorem 6
    and Proposition 10) it is the smaller of α/σ² and ln[(1-q)·A^{α-1} + q·B^{α-1}]/(α-1), where

        A = (1-q)/(1 - (q·e^{ε2})^{1-1/μ2}),    B = e^{ε1}/q^{1/(μ1-1)}.

    The second is known for α < μ1, μ2 > 1, -ln q > ε2 and
    ln q ≤ (μ2-1)·ε2 - μ2·ln[μ1/(μ1-1) · μ2/(μ2-1)] only. q may be any upper bound.

    >>> data_dependent_rdp([-5.65994597848, -2.2], 40.0, [2.0]).round(9).tolist()
    [[0.000879658], [0.00125]]
    """
    logs, at = checked_logs(log_q), checked_orders(orders)
    result = np.empty((logs.size, at.size))
    for start in range(0, logs.size, _ROWS):
        some = slice(start, start + _ROWS)
        result[some] = _rows(logs[some], positive("sigma", sigma), at)
    return result


def data_dependent_total(
    log_q: ArrayLike, sigma: float, orders: ArrayLike, weights: ArrayLike | None = None
) -> Array:
    """The sum of ``data_dependent_rdp`` over the queries, each times its weight. Private.

    It needs no table of all queries at all orders. As a function of ``orders`` it is a curve that
    ``tacit.accounting.renyi.curves.epsilon_of_curve`` converts.
    """
    logs, at = checked_logs(log_q), checked_orders(orders)
    scale = np.ones(logs.size) if weights is None else np.asarray(weights, dtype=np.float64)
    if scale.shape != logs.shape or not (scale >= 0.0).all():
        raise InvalidArgument(f"weights must be {logs.size} numbers, zero or above, as log_q is")
    total = np.zeros(at.size)
    for start in range(0, logs.size, _ROWS):
        some = slice(start, start + _ROWS)
        total += scale[some] @ _rows(logs[some], positive("sigma", sigma), at)
    return total


def _rows(log_q: Array, sigma: float, orders: Array) -> Array:
    result = np.repeat((orders / sigma**2)[np.newaxis, :], log_q.size, axis=0)
    known = _increasing_in_q(log_q, sigma)
    if not known.any():
        return result
    logs = log_q[known, np.newaxis]
    mu2 = sigma * np.sqrt(-logs)
    inner = (logs + mu2 / sigma**2) * (1.0 - 1.0 / mu2)  # of q·e^{ε2}, to its power
    # ln A = ln(1 + (r - q)/(1 - r)) with r = e^inner ≥ q
    log_a = np.log1p(-np.exp(inner) * np.expm1(logs - inner) / -np.expm1(inner))
    log_b = (mu2 + 1.0) / sigma**2 - logs / mu2
    kappa = orders - 1.0
    found = log_moments(logs, log_a, log_b, kappa) / kappa * ROUND_UP
    found = np.where(kappa < mu2, found, np.inf)  # α < μ1
    result[known] = np.clip(found, SMALLEST, result[known])
    return result


def _increasing_in_q(log_q: Array, sigma: float) -> NDArray[np.bool_]:
    """Where the bound is known and grows with q: the conditions that do not name the order."""
    mu2 = sigma * np.sqrt(-log_q)
    epsilon2 = mu2 / sigma**2
    known = (mu2 > 1.0) & (-log_q > epsilon2)
    above = np.where(known, mu2, 2.0)
    # μ1/(μ1-1) · μ2/(μ2-1) = (1 + 1/μ2)·(1 + 1/(μ2-1))
    spread = np.log1p(1.0 / above) + np.log1p(1.0 / (above - 1.0))
    result: NDArray[np.bool_] = known & (log_q <= (mu2 - 1.0) * epsilon2 - mu2 * spread)
    return result
