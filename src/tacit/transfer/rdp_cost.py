"""What one release of a vote costs at each Rényi order.

**A vote whose outcome is nearly certain** (``log_moments``). Both data-dependent theorems of PATE
(Papernot et al. 2017, Theorem 3; 2018, Theorem 6) bound the moment of order κ = α - 1 of a privacy
loss by (1 - q)·A^κ + q·B^κ, where q is the probability of any outcome but the likeliest one. They
differ in A and B.

**A Gaussian release with a likely outcome** (``likely_outcome_rdp``): the exact worst case. GNMax
releases a function of counts with Gaussian noise, which one record moves by √2: its laws P and Q on
neighbours are post-processed from N(0, 1) and N(-μ, 1) with μ = √2/σ. Say that one outcome has
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

**A screening** (``screening_rdp``; Zhu et al. 2020, Theorem 7). A query passes if
max_j n_j + N(0, σ²) ≥ T, so that one bit is released: Bern(p_m) with
p_m = Φ((m - T)/σ), where m is the largest count. Of k neighbours it lies between 0 and k (all of
a sample vote that has fewer than k records), and a record moves it by 1 at most. The worst case
over data sets is hence

    max over 0 ≤ m < k, both directions, of D_α(Bern(p_m) ‖ Bern(p_{m+1})),

a maximum over 2k numbers. It is not where m is near T for large α: autodp 0.2.3.1 looks there
only (it means to look at m = k/10 too, and takes the last of the values it has found in place of
the largest), and reports 21% less than the truth at α = 128 for k = 300, T = 210 and σ = 85.

For α near 1 it is 2/π of what the Gaussian that underlies it tells, α/(2σ²); for large α it nears
that. ``PrivateKnn`` charges the Gaussian: it has an exact accountant, also under sampling, and that
gains more than the bit does.

The coin is the one that is thrown: noise is rounded to a grid (``tacit.transfer.vote_noise``), so
that T is the middle between two of its steps, half a step at most from the one that is given.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from tacit._validation import non_negative, positive, whole
from tacit.errors import InvalidArgument
from tacit.transfer import vote_noise

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


_FAR = 500.0  # exponents beyond are added as logarithms

# A bound that a double cannot hold is not zero; the accountants take zero for "tells nothing".
SMALLEST = float(np.finfo(np.float64).tiny)

# Covers the rounding of the logarithms and sums.
ROUND_UP = 1.0 + 1e-12


def log_moments(log_q: Array, log_a: Array, log_b: Array, kappa: Array) -> Array:
    """The logarithm of (1 - q)·A^κ + q·B^κ; log A and log B are zero or above.

    Since (1 - q) + q = 1 it is ln(1 + (1 - q)·(A^κ - 1) + q·B^κ·(1 - B^-κ)), whose terms are all
    positive: no digits cancel, however small q is.

    >>> one = np.ones(1)
    >>> log_moments(-40.0 * one, 0.0 * one, 3.0 * one, 2.0 * one).round(19).tolist()
    [1.7097e-15]
    """
    first, second = kappa * log_a, kappa * log_b
    peak = log_q + second
    far = (first > _FAR) | (peak > _FAR)
    rest = -np.expm1(log_q)
    with np.errstate(over="ignore", under="ignore"):
        result: Array = np.log1p(rest * np.expm1(first) - np.exp(peak) * np.expm1(-second))
    if far.any():
        result[far] = np.logaddexp(np.log(rest) + first, peak)[far]
    return result


def checked_orders(orders: ArrayLike) -> Array:
    """``orders`` as a vector of numbers above 1."""
    found = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if found.ndim != 1 or not (np.isfinite(found) & (found > 1.0)).all():
        raise InvalidArgument(f"orders must be finite numbers above 1, got {orders!r}")
    return found


def checked_logs(log_q: ArrayLike) -> Array:
    """``log_q`` as a vector of logarithms of probabilities below 1."""
    found = np.atleast_1d(np.asarray(log_q, dtype=np.float64))
    if found.ndim != 1 or not (np.isfinite(found) & (found < 0.0)).all():
        raise InvalidArgument("log_q must be one negative finite number for each query")
    return found


# Shares of q that lie below the interval. The best one is tiny where the data-dependent cost is.
_ENDS = np.geomspace(1e-9, 1e-2, 18)
_SHARES = np.concatenate([[0.0], _ENDS, np.linspace(0.0, 1.0, 65)[1:-1], 1.0 - _ENDS[::-1], [1.0]])
_LEAST = -690.0  # of log q; less is taken for this
_LARGEST_EXPONENT = 690.0  # beyond, the cost is not looked at: the data-independent one is taken
_ROWS = 256
_SLACK = 1e-14  # of what is left after subtracting numbers of the size α·q


def likely_outcome_rdp(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> Array:
    """The Rényi divergence of each query (rows) at each order (columns). Private.

    Guarantee:
        If an answer of GNMax with ``sigma`` has an outcome of probability 1 - q or more, its
        divergence from that on any neighbour is at most this; and no more than α/σ².

    >>> likely_outcome_rdp([-5.65994597848, -2.2], 40.0, [2.0, 16.0]).round(6).tolist()
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


_ULPS = 32.0 * float(np.finfo(np.float64).eps)  # of the logarithms that errors are made of
_ORDERS = 16  # at a time, so that the working arrays stay small


def screening_rdp(k: int, threshold: float, sigma: float, orders: ArrayLike) -> Array:
    """The Rényi divergence of one screening at each order, whatever the data; no sampling.

    Guarantee:
        A bound for every pair of data sets whose largest counts differ by 1 at most, which are all
        neighbours for each adjacency (``SampledVotes``), rounded up by 32 units in the last place
        of the logarithms that it is made of.
        As ``RenyiCurve(orders, values)`` it is an event that the Rényi accountants take.

    Args:
        k: The number of neighbours that vote.
        threshold: T, in votes.
        sigma: σ of the noise added to the largest count.
        orders: α, each above 1.

    >>> screening_rdp(300, 210.0, 85.0, [2.0, 128.0]).round(9).tolist()
    [8.8113e-05, 0.005882462]
    """
    return coin_rdp(np.arange(whole("k", k) + 1), threshold, sigma, orders)


def coin_rdp(counts: NDArray[np.int64], threshold: float, sigma: float, orders: ArrayLike) -> Array:
    """``screening_rdp`` for largest counts in this range, given in increasing order."""
    at = checked_orders(orders)
    given = Fraction(non_negative("threshold", threshold))
    middle = float((math.ceil(given * 2**vote_noise.BITS) - Fraction(1, 2)) / 2**vote_noise.BITS)
    far = (counts - middle) / positive("sigma", sigma)
    passes, fails = log_ndtr(far), log_ndtr(-far)
    found = np.concatenate(
        [
            np.maximum(
                _largest(passes[1:], fails[1:], passes[:-1], fails[:-1], some),
                _largest(passes[:-1], fails[:-1], passes[1:], fails[1:], some),
            )
            for some in np.split(at, range(_ORDERS, at.size, _ORDERS))
        ]
    )
    result: Array = np.minimum(found, at / (2.0 * sigma**2))  # the bit is made from the noisy count
    return result


def _largest(log_p: Array, log_p_not: Array, log_q: Array, log_q_not: Array, at: Array) -> Array:
    """The largest D_α(Bern(p) ‖ Bern(q)) over the pairs, at each order.

    ln Σ p·(p/q)^κ = ln(1 + p·(e^{κa} - 1) + (1-p)·(e^{κb} - 1)) with κ = α - 1, a = ln p/q and
    b = ln (1-p)/(1-q): the two terms differ in sign and are small, where the powers are not.
    """
    kappa = at - 1.0
    yes = np.multiply.outer(log_p - log_q, kappa)
    no = np.multiply.outer(log_p_not - log_q_not, kappa)
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.log1p(
            np.exp(log_p)[:, np.newaxis] * np.expm1(yes)
            + np.exp(log_p_not)[:, np.newaxis] * np.expm1(no)
        )
    beyond = np.logaddexp(log_p[:, np.newaxis] + yes, log_p_not[:, np.newaxis] + no)
    logs = np.where(np.maximum(yes, no) > _FAR, beyond, near)
    rounding = _ULPS * (1.0 + np.maximum(-log_p - log_q, -log_p_not - log_q_not))
    result: Array = (logs / kappa + rounding[:, np.newaxis]).max(axis=0)
    return result
