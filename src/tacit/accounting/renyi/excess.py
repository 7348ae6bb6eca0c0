"""Rényi divergences of a pair of distributions from its likelihood ratio, without cancellation.

For a pair (P, Q) with likelihood ratio t = dP/dQ the moment E_Q[t^α] is close to 1 when the pair is
nearly indistinguishable, and a privacy guarantee is about how close. Because E_Q[t] = 1,

    E_Q[t^α] - 1 = E_Q[f_α(t)],     f_α(t) = t^α - 1 - α(t - 1) ≥ 0,

and the right side loses no digit. The reversed divergence needs no second formula:
E_P[(1/t)^α] - 1 = E_Q[f_{1-α}(t)] with f_{1-α}(t) = t·f_α(1/t).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Reading = Literal["forward", "either", "folded"]
"""How a pair bounds the divergence between neighbours.

``forward``: by D(P‖Q), where that is known to be the larger one. ``either``: by the larger of
D(P‖Q) and D(Q‖P). ``folded``: by the part t > 1 of both, where the pair bounds every hockey-stick
divergence of level at least 1 in both directions but none below (see ``log_moments``).
"""


class Nodes(NamedTuple):
    """A pair as a discrete measure: the logarithms of dP/dQ and of Q's weight at each node.

    If the pair differs from order to order, both have a row for each, with like signs in a column.
    """

    log_ratio: Array
    log_weight: Array


def log_moments(nodes: Nodes, orders: Array, reading: Reading) -> Array:
    """The logarithm of an upper bound on E[t^α] between neighbours, at every order α > 1.

    The folded reading rests on writing the moment of neighbours (M, M') by hockey-stick divergences
    H_c (Sason & Verdú 2016): E[t^α] - 1 = ∫_1^∞ f''(c)·H_c(M‖M') dc +
    ∫_1^∞ c^{-3}·f''(1/c)·H_c(M'‖M) dc. If H_c(P‖Q) bounds both for all c ≥ 1, then the sum of the
    two integrals for (P, Q) is E_Q[(f_α + f_{1-α})(t); t > 1].
    """
    ell, weight = np.atleast_2d(nodes.log_ratio), np.atleast_2d(nodes.log_weight)
    excess = orders[:, np.newaxis] - 1.0
    if reading == "folded":
        keep = ell[0] > 0.0
        ell, weight = ell[:, keep], weight[:, keep]
    forward = _log_mean(_log_excess(excess, ell) + weight)
    if reading == "forward":
        return np.logaddexp(0.0, forward)
    backward = _log_mean(_log_excess(excess, -ell) + ell + weight)
    joined = np.logaddexp if reading == "folded" else np.maximum
    return np.logaddexp(0.0, joined(forward, backward))


def _log_mean(logs: Array) -> Array:
    """The logarithm of the sum of exponentials over the last axis; -inf where all are."""
    if logs.shape[-1] == 0:
        return np.full(logs.shape[:-1], -np.inf)
    top = np.maximum(logs.max(axis=-1, keepdims=True), -1e300)
    with np.errstate(divide="ignore"):
        total: Array = top[..., 0] + np.log(np.exp(logs - top).sum(axis=-1))
    return total


def _log_excess(kappa: Array, ell: Array) -> Array:
    """The logarithm of f_{1+κ}(e^ell) for a column of κ and a row of ell, or one row for each κ.

    f is t·(t^κ - 1) - κ(t - 1). For ell > 0 the factor e^{(1+κ)·ell} is taken out, so that nothing
    overflows; where ell and κ·ell are both small, the difference is a power series.
    """
    size = np.abs(ell)
    shrink = np.expm1(-kappa * size)
    step = np.expm1(-size)
    up = ell[0] > 0.0
    taken_out = (1.0 + kappa) * np.maximum(ell, 0.0)
    scaled = (1.0 + step) * shrink - kappa * step
    scaled[:, up] = kappa * (1.0 + shrink[:, up]) * step[:, up] - shrink[:, up]
    rows, columns = np.nonzero((1.0 + kappa) * size < 0.03)
    near = _series(kappa[rows, 0], np.broadcast_to(ell, scaled.shape)[rows, columns])
    scaled[rows, columns] = near * np.exp(-taken_out[rows, columns])
    with np.errstate(divide="ignore"):
        result: Array = np.log(np.maximum(scaled, 0.0)) + taken_out
    return result


def _series(kappa: Array, ell: Array) -> Array:
    """f_β(e^ell) = β(β - 1)·ell²·Σ_{k≥2} (1 + β + … + β^{k-2})·ell^{k-2}/k! with β = 1 + κ."""
    beta = 1.0 + kappa
    geometric = np.ones_like(ell)
    power = np.full_like(ell, 0.5)
    total = power.copy()
    for k in range(3, 9):
        geometric = 1.0 + beta * geometric
        power = power * ell / k
        total += geometric * power
    return beta * kappa * ell * ell * total
