"""LNMax (Papernot et al. 2017): tells argmax_j n_j + Lap(1/γ).

Replacing, adding or removing one record changes the vote of one teacher, which moves from one class
to another: two counts change by 1. A query is therefore 2γ-differentially private.

What depends on the votes (``log_q`` and the functions called ``data_dependent``) is itself private:
a planning figure, not a bound to publish and nothing to stop by.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from tacit._validation import positive, whole
from tacit.accounting.events import Laplace, Repeated
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


def charge(gamma: float, queries: int = 1) -> Repeated:
    """What is charged for ``queries`` answers, whatever the votes.

    Guarantee:
        Two counts move by 1, each under its own noise, so that two one-dimensional releases of
        Lap(1/γ) at distance 1 dominate an answer: 2γ-private, and tighter than that in a
        composition. It holds for each adjacency, since a record only ever moves one teacher's vote.

    >>> charge(0.05, queries=100)
    Repeated(event=Laplace(scale=20.0, replace_distance=1.0), times=200)
    """
    scale = 1.0 / positive("gamma", gamma)
    return Repeated(Laplace(scale, replace_distance=1.0), 2 * whole("queries", queries))


def log_q(votes: Votes, gamma: float) -> Array:
    """The logarithm of (a bound on) the probability that the first class loses. Private.

    q = Σ_{j≠j*} (2 + γΔ_j)/(4·e^{γΔ_j}), at most 1 - 1/m (Papernot et al. 2017, Lemma 4).
    """
    lead = positive("gamma", gamma) * votes.gaps()
    total = logsumexp(np.log(2.0 + lead) - math.log(4.0) - lead, axis=1)
    result: Array = np.minimum(total, math.log1p(-1.0 / votes.classes))
    return result


def data_dependent_log_moments(log_q: ArrayLike, gamma: float, moments: ArrayLike) -> Array:
    """The log-moments of each query (rows) at each of ``moments`` l > 0 (columns). Private.

    min{2γ²l(l+1), 2γl, ln[(1-q)·((1-q)/(1-e^{2γ}q))^l + q·e^{2γl}]}, the last where
    q ≤ 1/(e^{2γ}+1) only (Papernot et al. 2017, Theorems 2 and 3).

    >>> from tacit.transfer.votes import Votes
    >>> q = log_q(Votes(np.array([[140, 110] + [0] * 8])), 0.1)
    >>> data_dependent_log_moments(q, 0.1, [1, 8]).round(9).tolist()
    [[0.027396197, 0.310466866]]
    """
    logs, loss = checked_logs(log_q)[:, np.newaxis], 2.0 * positive("gamma", gamma)
    at = np.atleast_1d(np.asarray(moments, dtype=np.float64))
    if at.ndim != 1 or not (np.isfinite(at) & (at > 0.0)).all():
        raise InvalidArgument(f"moments must be positive finite numbers, got {moments!r}")
    result = np.minimum(0.5 * loss**2 * at * (at + 1.0), loss * at)
    result = np.repeat(result[np.newaxis, :], len(logs), axis=0)
    known = logs[:, 0] <= -np.logaddexp(loss, 0.0)
    q = np.exp(logs[known])
    log_a = np.log1p(math.expm1(loss) * q / -np.expm1(loss + logs[known]))
    found = log_moments(logs[known], log_a, np.full_like(log_a, loss), at) * ROUND_UP
    result[known] = np.clip(found, SMALLEST, result[known])
    return result


def data_dependent_rdp(log_q: ArrayLike, gamma: float, orders: ArrayLike) -> Array:
    """The Rényi divergence of each query (rows) at each order (columns). Private.

    The log-moment of l = α - 1, over l.
    """
    kappa = checked_orders(orders) - 1.0
    return data_dependent_log_moments(log_q, gamma, kappa) / kappa
