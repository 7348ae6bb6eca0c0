"""Rényi curves of sparse vector and of private selection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from tacit.accounting.choices import moves
from tacit.accounting.conversion import least_over_orders
from tacit.accounting.renyi.curves import laplace
from tacit.accounting.runs import PoissonRuns

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, SparseVector
    from tacit.accounting.renyi.curves import Curve
    from tacit.accounting.runs import Runs, TruncatedNegativeBinomial

    Array = NDArray[np.float64]

_ROUND_UP = 1.0 + 1e-12


def sparse_vector(event: SparseVector, adjacency: Adjacency) -> Curve:
    """The curve of sparse vector beside its pure loss (Zhu & Wang 2020).

    Move the threshold's noise by d, so that every query below it stays below, and the noise of each
    query above it by at most h, so that it stays above (h is 2d, or d for monotone queries). Given
    the threshold's noise, the moment of order α of the answers is then at most

        Σ_a w_a · e^{(α-1)·D} · P(ν + (α-1)·shift ∈ A_a),

    over the possible sequences of answers a, where w_a ≤ 1 is the probability of its answers
    "below", and A_a what the noise ν of its answers "above" must hit. Laplace noise is bounded, so
    that it adds c·h/b₂ to the threshold's curve whatever the queries (their pure case).

    Gaussian noise: D = α·c·h²/2σ₂² and the shift has length √c·h. By Neyman and Pearson a set of
    probability p has at most g(p) = Φ(Φ⁻¹(p) + (α-1)·√c·h/σ₂) under the shifted law. g is concave,
    g(0) = 0 and Σ_a w_a·P(ν ∈ A_a) = 1, so that the sum is at most N·g(1/N), with N = Σ_{j≤c}
    C(length, j) sequences. (The length-capped theorem of the paper has N in its place.)
    """
    one, against = moves(event, adjacency)
    if event.noise == "laplace":
        threshold = laplace(one / event.threshold_scale)
        added = event.cutoff * against / event.query_scale
        return lambda orders: (threshold(orders) + added) * _ROUND_UP
    assert event.length is not None  # checked by the event
    rho = 0.5 * (one / event.threshold_scale) ** 2
    rho += 0.5 * event.cutoff * (against / event.query_scale) ** 2
    shift = math.sqrt(event.cutoff) * against / event.query_scale
    log_count = _log_sequences(event.length, event.cutoff)

    def curve(orders: Array) -> Array:
        kappa = orders - 1.0
        place = float(ndtri_exp(-log_count))
        logs = np.minimum(0.0, log_ndtr(place + kappa * shift))
        spread = np.maximum(0.0, log_count + logs + 1e-12 * (1.0 + log_count))
        result: Array = (rho * orders + spread / kappa) * _ROUND_UP
        return result

    return curve


def _log_sequences(length: int, cutoff: int) -> float:
    """The logarithm of Σ_{j ≤ cutoff} C(length, j), the number of possible answers."""
    most = min(length, cutoff)
    logs = [
        math.lgamma(length + 1) - math.lgamma(j + 1) - math.lgamma(length - j + 1)
        for j in range(most + 1)
    ]
    return float(np.logaddexp.reduce(logs)) * (1.0 + 1e-12) + 1e-12


def selection(runs: Runs, base: Curve, base_delta: Callable[[float], float]) -> Curve:
    """The curve of a private selection whose base has the curve ``base`` and the δ(ε) given.

    Guarantee:
        Papernot & Steinke 2022, Theorem 2 for truncated negative binomial runs and Theorem 6 for
        Poisson ones; any upper bounds on the base's curve and δ serve.
    """
    if isinstance(runs, PoissonRuns):
        return _poisson(runs.mean, base, base_delta)
    return _negative_binomial(runs, base)


def _negative_binomial(runs: TruncatedNegativeBinomial, base: Curve) -> Curve:
    """D(α) + (1+η)·min_λ {(1 - 1/λ)·D(λ) + ln(1/γ)/λ} + ln E[K]/(α-1)."""
    depth = -math.log(runs.gamma)

    def second(orders: Array) -> Array:
        return (1.0 - 1.0 / orders) * base(orders) + depth / orders

    constant = (1.0 + runs.eta) * min(depth, least_over_orders(second))  # depth: at λ = 1
    log_mean = math.log(runs.mean)

    def curve(orders: Array) -> Array:
        return (base(orders) + constant + log_mean / (orders - 1.0)) * _ROUND_UP

    return curve


def _poisson(mean: float, base: Curve, base_delta: Callable[[float], float]) -> Curve:
    """ln(e^-μ + μ·e^{(α-1)(D(α) + μ·δ(ln(α/(α-1))))})/(α-1).

    The moment of the outcomes with a run is at most the second term by the proof of Theorem 6; the
    first is the outcome without one, whose probability is the same for all data sets.
    """

    def curve(orders: Array) -> Array:
        kappa = orders - 1.0
        deltas = np.asarray([base_delta(math.log1p(1.0 / one)) for one in kappa.tolist()])
        inner = kappa * (base(orders) + mean * deltas)
        return np.logaddexp(-mean, math.log(mean) + inner) / kappa * _ROUND_UP

    return curve
