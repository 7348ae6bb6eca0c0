"""Moments of a vote whose outcome is nearly certain.

Both data-dependent theorems of PATE (Papernot et al. 2017, Theorem 3; 2018, Theorem 6) bound the
moment of order κ = α - 1 of a privacy loss by (1 - q)·A^κ + q·B^κ, where q is the probability of
any outcome but the likeliest one. They differ in A and B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.errors import InvalidArgument

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
