"""Pairs of Gaussian mixtures, continuous or on the whole numbers, as nodes.

With φ the density of N(0, 1), P = φ·p and Q = φ·q, where p(z) = Σ_j w_j·exp(s_j·z - s_j²/2) has
shifts s_j ≥ 0 and q has shifts ≤ 0 (most often q = 1). The moment of order α = 1 + κ is
∫ φ·p^α·q^{-κ} dz, or ∫ φ·q^α·p^{-κ} dz for the reversed pair.

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
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from tacit.accounting.renyi.excess import Nodes
from tacit.accounting.renyi.pairs import gauss_panels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.renyi.excess import Reading

    Array = NDArray[np.float64]

_LIMIT = 1 << 14
_DIGITS = 70.0
_REACH = 12.0


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
