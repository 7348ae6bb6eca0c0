"""Dominating pairs of sampled mechanisms as nodes, from which every Rényi divergence follows.

A sampled release mixes, with probability ``rate``, the law that one record shifts with the law of
the samples that miss it: P = (1 - rate)·A + rate·B against Q = (1 - rate)·A + rate·C. A lies at 0,
B at ``to`` > 0 and C at ``origin`` ≤ 0. Why collinear positions are the worst is in
``sampling.py``.

**Cancellation.** For a pair (P, Q) with likelihood ratio t = dP/dQ the moment E_Q[t^α] is close to
1 when the pair is nearly indistinguishable, and a privacy guarantee is about how close. Because
E_Q[t] = 1,

    E_Q[t^α] - 1 = E_Q[f_α(t)],     f_α(t) = t^α - 1 - α(t - 1) ≥ 0,

and the right side loses no digit. The reversed divergence needs no second formula:
E_P[(1/t)^α] - 1 = E_Q[f_{1-α}(t)] with f_{1-α}(t) = t·f_α(1/t).

**Gaussian mixtures**, continuous or on the whole numbers. With φ the density of N(0, 1), P = φ·p
and Q = φ·q, where p(z) = Σ_j w_j·exp(s_j·z - s_j²/2) has shifts s_j ≥ 0 and q has shifts ≤ 0 (most
often q = 1). The moment of order α = 1 + κ is ∫ φ·p^α·q^{-κ} dz, or ∫ φ·q^α·p^{-κ} dz for the
reversed pair.

**Error.** The trapezoidal rule of step h errs by at most 2N/(e^{2πd/h} - 1), where N bounds the
integral of |integrand| over the lines Im z = ±d and the integrand is analytic between them
(Trefethen & Weideman 2014, Theorem 5.1). For s·d < π the terms of p lie in a half-plane, so that p
has no zero there and |p(x + id)| ≤ p(x); rotating by half the angle gives |p(x + id)| ≥
cos(s·d/2)·p(x); and |φ(x + id)| = e^{d²/2}·φ(x). Hence the error relative to the moment is at most
2·exp(d²/2 - κ·ln cos(s·d/2) - 2πd/h), the middle term being absent when nothing is divided by. The
step is chosen so that this is below e^-70. The logarithmic slope of p^α·q^{-κ} lies between 0 and
α·s + κ·s', so the integrand falls at least as fast as φ does left of 0 and right of that slope,
and what lies 12 further out is below e^-70 too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_LIMIT = 1 << 14  # nodes; beyond, the caller falls back on a looser bound in closed form
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(24)
_DIGITS = 70.0
_REACH = 12.0


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


class Pair(Protocol):
    """Anything that can be laid out as nodes which serve all orders up to a given one."""

    def nodes(self, order: float, reading: Reading) -> Nodes | None:
        """The nodes, or None if there would be too many of them."""


@dataclass(frozen=True)
class FinitePair:
    """A pair on finitely many outcomes: the logarithms of B/C and of C for each, and A = C."""

    log_ratio: tuple[float, ...]
    log_weight: tuple[float, ...]
    rate: float = 1.0

    def nodes(self, order: float, reading: Reading) -> Nodes | None:
        """All outcomes, whatever the order."""
        del order, reading
        ratio = sampled_log_ratio(self.rate, np.asarray(self.log_ratio))
        return Nodes(ratio, np.asarray(self.log_weight))


def two_point_pair(epsilon: float, rate: float = 1.0) -> FinitePair:
    """The pair that dominates every ε-differentially private one (Kairouz, Oh & Viswanath 2015)."""
    likely = -math.log1p(math.exp(-epsilon))
    return FinitePair((epsilon, -epsilon), (likely - epsilon, likely), rate)


@dataclass(frozen=True)
class LaplacePair:
    """Laplace noise of scale 1 around A, B and C.

    Beyond B and C the ratio is constant, and between them the integrand is analytic: 24 Gauss
    points on panels over which t^α changes by at most e^40 leave an error below 1e-20.
    """

    rate: float
    to: float
    origin: float = 0.0

    def nodes(self, order: float, reading: Reading) -> Nodes | None:
        """The two constant ends, and panels that break where A, B or C lies and where P = Q."""
        del reading
        width = min(1.0, 20.0 / order)
        breaks = sorted({self.origin, 0.0, 0.5 * (self.origin + self.to), self.to})
        if (self.to - self.origin) / width * _GAUSS_NODES.size > _LIMIT:
            return None
        x, log_measure = gauss_panels(breaks, width)
        x = np.concatenate([[self.origin], x, [self.to]])
        measure = np.concatenate([[0.0], log_measure, [0.0]])  # an end holds its whole tail
        towards_c = np.abs(x) - np.abs(x - self.origin)
        weight = measure - math.log(2.0) - np.abs(x) + sampled_log_ratio(self.rate, towards_c)
        towards_b = sampled_log_ratio(self.rate, np.abs(x) - np.abs(x - self.to))
        return Nodes(towards_b - sampled_log_ratio(self.rate, towards_c), weight)


@dataclass(frozen=True)
class DiscreteLaplacePair:
    """Two-sided geometric noise, P(X = x) ∝ e^{-|x|/scale}, around whole numbers A, B and C."""

    scale: float
    rate: float
    to: int
    origin: int = 0

    def nodes(self, order: float, reading: Reading) -> Nodes | None:
        """The whole numbers from C to B; beyond, the ratio is constant: the ends hold the tails."""
        del order, reading
        if self.to - self.origin > _LIMIT:
            return None
        x = np.arange(self.origin, self.to + 1, dtype=np.float64)
        step = 1.0 / self.scale
        inner = math.log(-math.expm1(-step)) - math.log1p(math.exp(-step))
        measure = np.full_like(x, inner)
        measure[[0, -1]] = -math.log1p(math.exp(-step))
        towards_c = sampled_log_ratio(self.rate, step * (np.abs(x) - np.abs(x - self.origin)))
        towards_b = sampled_log_ratio(self.rate, step * (np.abs(x) - np.abs(x - self.to)))
        return Nodes(towards_b - towards_c, measure - step * np.abs(x) + towards_c)


def sampled_log_ratio(rate: float, ell: Array) -> Array:
    """The logarithm of 1 - rate + rate·e^ell, accurate where small, finite where ell is large."""
    if rate == 1.0:
        return ell
    excess = rate * np.expm1(np.minimum(ell, 500.0))
    far = (ell > 500.0) | (excess < -0.5)
    if not far.any():
        return np.log1p(excess)
    apart = np.logaddexp(math.log1p(-rate), math.log(rate) + ell)
    return np.where(far, apart, np.log1p(np.where(far, 0.0, excess)))


def gauss_panels(breaks: list[float], width: float) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and log weights on panels no wider than ``width`` between ``breaks``."""
    edges = np.concatenate(
        [
            np.linspace(low, high, math.ceil((high - low) / width) + 1)[:-1]
            for low, high in pairwise(breaks)
        ]
        + [np.asarray(breaks[-1:])]
    )
    half = 0.5 * np.diff(edges)
    middle = edges[:-1] + half
    points = middle[:, np.newaxis] + half[:, np.newaxis] * _GAUSS_NODES
    weights = np.log(half[:, np.newaxis] * _GAUSS_WEIGHTS)
    return points.ravel(), weights.ravel()


@dataclass(frozen=True)
class Mixture:
    """A mixture of N(shift, 1), as its density ratio to N(0, 1)."""

    weights: tuple[float, ...]
    shifts: tuple[float, ...]

    @property
    def span(self) -> float:
        """The largest shift, by size."""
        return max(map(abs, self.shifts))

    def log_ratio(self, z: Array) -> Array:
        """The logarithm of the density ratio to N(0, 1), accurate where it is small."""
        shifts = np.asarray(self.shifts)[:, np.newaxis]
        weights = np.asarray(self.weights)
        exponents = shifts * z - 0.5 * shifts * shifts
        excess: Array = weights @ np.expm1(np.minimum(exponents, 500.0))
        far = (excess <= -0.5) | (exponents.max(axis=0) > 500.0)
        if not far.any():
            return np.log1p(excess)
        result = np.log1p(np.where(far, 0.0, excess))
        result[far] = logsumexp(exponents[:, far], axis=0, b=weights[:, np.newaxis])
        return result


STANDARD = Mixture((1.0,), (0.0,))


def two_gaussians(rate: float, shift: float) -> Mixture:
    """The mixture (1 - rate)·N(0, 1) + rate·N(shift, 1)."""
    return Mixture((1.0 - rate, rate), (0.0, shift))


@dataclass(frozen=True)
class GaussianPair:
    """Two mixtures, the first with shifts ≥ 0 and the second with shifts ≤ 0.

    ``lattice`` is the distance of the whole numbers in units of the standard deviation if the noise
    is a discrete Gaussian. Its moments are sums over the lattice, that is, trapezoidal rules of
    that step: where the step is finer than the error bound asks, any other fine step agrees.
    """

    first: Mixture
    second: Mixture = STANDARD
    lattice: float = 0.0

    def nodes(self, order: float, reading: Reading) -> Nodes | None:
        """Equidistant nodes; for the folded reading of continuous noise, panels right of P = Q."""
        kappa = order - 1.0
        up = order * self.first.span + kappa * self.second.span + _REACH
        if reading == "folded" and self.lattice == 0.0:
            return self._panels(order, up)
        down = _REACH
        if reading == "either":
            down += order * self.second.span + kappa * self.first.span
        step = self._step(kappa, reading)
        if self.lattice > (0.0 if reading == "folded" else step):
            step = self.lattice
        first, last = -math.ceil(down / step), math.ceil(up / step)
        if last - first > _LIMIT:
            return None
        z = step * np.arange(first, last + 1, dtype=np.float64)
        bell = -0.5 * z * z
        return self._nodes(z, bell - math.log(float(np.sum(np.exp(bell)))))

    def _nodes(self, z: Array, log_weight: Array) -> Nodes:
        if self.second == STANDARD:
            return Nodes(self.first.log_ratio(z), log_weight)
        first, second = self.first.log_ratio(z), self.second.log_ratio(z)
        return Nodes(first - second, log_weight + second)

    def _step(self, kappa: float, reading: Reading) -> float:
        """The widest step whose error bound is below e^-70 (see the module's docstring)."""
        s = max(self.first.span, self.second.span)
        if reading == "forward" and self.second == STANDARD:
            # max over d ≤ π/s of 2πd/h - d²/2
            if s * s * 2.0 * _DIGITS <= math.pi**2:
                return math.pi * math.sqrt(2.0 / _DIGITS)
            return 2.0 * math.pi**2 / (s * (_DIGITS + 0.5 * (math.pi / s) ** 2))
        # -ln cos(x/2) ≤ 0.135·x² for x = s·d ≤ 1; max over d ≤ 1/s of 2πd/h - bend·d²/2
        bend = 1.0 + 0.27 * kappa * s * s
        if s * s * 2.0 * _DIGITS <= bend:
            return math.pi * math.sqrt(2.0 / (_DIGITS * bend))
        return 2.0 * math.pi / (s * (_DIGITS + 0.5 * bend / (s * s)))

    def _panels(self, order: float, up: float) -> Nodes | None:
        """Gauss panels over {P > Q}: there the folded integrand is analytic, at its edge it is not.

        For mixtures of two Gaussians each, as ``two_gaussians`` makes them.

        The integrand's logarithm changes by at most 40 over a panel, and the nearest zero of p or
        q lies three panels away: 24 points leave an error below 1e-20.
        """
        slope = order * self.first.span + (order - 1.0) * self.second.span
        s = max(self.first.span, self.second.span)
        width = min(1.0, 1.0 / s, 40.0 / slope)
        # P = Q where the moved Gaussians cross: both are mixed in at the same rate.
        edge = 0.5 * (self.first.span - self.second.span)
        if (up - edge) / width * 24 > _LIMIT:
            return None
        z, log_measure = gauss_panels([edge, up], width)
        return self._nodes(z, log_measure - 0.5 * z * z - 0.5 * math.log(2.0 * math.pi))
