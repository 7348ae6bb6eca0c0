"""What one screening of Private-kNN tells, exactly (Zhu et al. 2020, Theorem 7).

A query passes if max_j n_j + N(0, σ²) ≥ T, so that one bit is told: Bern(p_m) with
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

The coin is the one that is thrown: noise is rounded to a grid (``tacit.transfer.noise``), so that
T is the middle between two of its steps, half a step at most from the one that is given.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr

from tacit._validation import non_negative, positive, whole
from tacit.transfer import noise
from tacit.transfer.two_outcomes import checked_orders

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

_FAR = 500.0  # exponents beyond are added as logarithms
_ULPS = 32.0 * float(np.finfo(np.float64).eps)  # of the logarithms that errors are made of
_ORDERS = 16  # at a time, so that the working arrays stay small


def screening_rdp(k: int, threshold: float, sigma: float, orders: ArrayLike) -> Array:
    """The Rényi divergence of one screening at each order, whatever the data; no sampling.

    Guarantee:
        A bound for every pair of data sets whose largest counts differ by 1 at most, which are all
        neighbours for each adjacency (``sampled_votes``), rounded up by 32 units in the last place
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
    at = checked_orders(orders)
    given = Fraction(non_negative("threshold", threshold))
    middle = float((math.ceil(given * 2**noise.BITS) - Fraction(1, 2)) / 2**noise.BITS)
    far = (np.arange(whole("k", k) + 1) - middle) / positive("sigma", sigma)
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
