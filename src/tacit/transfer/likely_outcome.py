"""What a Gaussian release costs at most when one of its outcomes is likely: the exact worst case.

GNMax tells a function of counts with Gaussian noise, which one record moves by √2: its laws P and Q
on neighbours are post-processed from N(0, 1) and N(-μ, 1) with μ = √2/σ. Say that one outcome has
P-probability 1 - q or more. Papernot et al. 2018, Theorem 6, bound the Rényi divergence of P from Q
by way of two other divergences. Here is the largest that it can be, often two to five times less.

Let Y = dQ/dP under P, and ψ(y) = y^{1-α}, so that E ψ(Y) is the moment e^{(α-1)·D_α}. By
Blackwell's theorem Y is a mean-preserving contraction of the Gaussians' own ratio Y_0, a falling
function of x ~ N(0, 1), and ψ is convex. The likely outcome is an atom of Y, of mass 1 - q at
least: a part ν of the law of Y_0 of that mass is drawn together into its mean, and contracting the
rest only lowers E ψ(Y). Of all ν with one mean the one that is an interval has the least ∫ψ dν
(where ψ is below a chord is an interval), so that drawing it together loses least. With an interval
u < x < v of mass 1 - q the moment is

    e^{α(α-1)μ²/2}·[Φc(v - (α-1)μ) + Φ(u - (α-1)μ)] + (1-q)^α/[Φ(v+μ) - Φ(u+μ)]^{α-1},

and the bound is its largest value M(a) over the mass a = Φ(u) below the interval, from 0 to q. With
y the mean of the interval, Q over P,

    M'(a) = ψ(Y_0(u)) - ψ(Y_0(v)) + (α-1)·y^{-α}·(Y_0(u) - Y_0(v)).

On a grid M is bounded from above between each two values of a in two ways, of which the better one
counts: by terms, of which the one with v is largest at the smaller a and the other two at the
larger; and by its value at the smaller a and its slope, whose factors all are monotone, too.

A larger q leaves more to choose from, so that the bound never falls with q, and any upper bound on
q gives a valid one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from tacit._validation import positive
from tacit.transfer.two_outcomes import ROUND_UP, SMALLEST, checked_logs, checked_orders

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

# Shares of q that lie below the interval. The best one is tiny where the data-dependent cost is.
_ENDS = np.geomspace(1e-9, 1e-2, 18)
_SHARES = np.concatenate([[0.0], _ENDS, np.linspace(0.0, 1.0, 65)[1:-1], 1.0 - _ENDS[::-1], [1.0]])
_LEAST = -690.0  # of log q; less is taken for this
_LARGEST_EXPONENT = 690.0  # beyond, the cost is not looked at: the data-independent one is taken
_ROWS = 256
_SLACK = 1e-14  # of what is left after subtracting numbers of the size α·q


def data_dependent_rdp(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> Array:
    """The Rényi divergence of each query (rows) at each order (columns). Private.

    Guarantee:
        If an answer of GNMax with ``sigma`` has an outcome of probability 1 - q or more, its
        divergence from that on any neighbour is at most this; and no more than α/σ².

    >>> data_dependent_rdp([-5.65994597848, -2.2], 40.0, [2.0, 16.0]).round(6).tolist()
    [[4.5e-05, 0.000581], [0.000587, 0.005325]]
    """
    logs, at = np.maximum(checked_logs(log_q), _LEAST), checked_orders(orders)
    mu = math.sqrt(2.0) / positive("sigma", sigma)
    result = np.empty((logs.size, at.size))
    for start in range(0, logs.size, _ROWS):
        some = slice(start, start + _ROWS)
        for column, order in enumerate(at):
            result[some, column] = _worst(logs[some], mu, float(order))
    return result


def _worst(log_q: Array, mu: float, order: float) -> Array:
    kappa, q = order - 1.0, np.exp(log_q)[:, np.newaxis]
    most = 0.5 * order * mu**2
    if most * kappa > _LARGEST_EXPONENT:
        return np.full(log_q.size, most)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore", under="ignore"):
        u = ndtri_exp(log_q[:, np.newaxis] + np.log(_SHARES))
        v = -ndtri_exp(log_q[:, np.newaxis] + np.log1p(-_SHARES))
        grown = math.exp(most * kappa)
        upper = grown * np.exp(log_ndtr(kappa * mu - v))
        lower = grown * np.exp(log_ndtr(u - kappa * mu))
        outside = np.minimum(np.exp(log_ndtr(-v - mu)) + np.exp(log_ndtr(u + mu)), 1.0)
        log_inside = np.log1p(-outside)
        drawn = np.expm1(order * np.log1p(-q) - kappa * log_inside)  # the interval's term, less 1
        log_y = log_inside - np.log1p(-q)
        at_u, at_v = -mu * u - 0.5 * mu**2, -mu * v - 0.5 * mu**2  # ln Y_0
        slope = (
            np.exp(-kappa * at_u[:, 1:])
            - np.exp(-kappa * at_v[:, :-1])
            + kappa * np.exp(-order * log_y[:, 1:]) * (np.exp(at_u[:, :-1]) - np.exp(at_v[:, 1:]))
        )
        by_slope = (upper + lower + drawn)[:, :-1] + q * np.diff(_SHARES) * np.maximum(slope, 0.0)
        by_terms = upper[:, :-1] + (lower + drawn)[:, 1:]
    excess = np.fmin(by_slope, by_terms).max(axis=1) + _SLACK * order * q[:, 0]
    found = np.log1p(np.maximum(excess, 0.0)) / kappa * ROUND_UP
    result: Array = np.clip(found, SMALLEST, most)
    return result
