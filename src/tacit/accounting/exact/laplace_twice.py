"""Two Poisson samples of Laplace noise: closed forms but for one integral.

With w(l) = 1 - q + q·e^l between w₋ = w(-d) and w₊ = w(d), the loss of a sample is ln w, and given
the first one's the second's profile has a closed form (see ``sampled_laplace``). With G = e^ε,
δ(ε) = E_Q[D(w)], where

    D(w) = 0 for w ≤ G/w₊ ,   q·w - R(w) between ,   w - G for w ≥ G/w₋ ,
    R(w) = √(e^{-d}·q·w·(G - (1-q)·w)) .

The other way round G = e^{-ε}, δ(ε) = E_Q[D(w)]/G, and D is G - w, then G - (1-q)·w - R(w), then 0.

Errors: n nodes of Gauss and Legendre on a panel in l are off by at most 64/15·m·ρ²⁻²ⁿ/(1 - ρ⁻²)
times half its width, if |integrand| ≤ m in the ellipse whose half-axes add up to ρ such halves
(Trefethen 2008, Theorem 4.5). R is analytic where |Im l| < π/2 and (1-q)·w(Re l) < G, for both
factors under the root then lie to the right of 0; panels are the shorter the nearer that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, solve_convex
from tacit.accounting.exact.sampled_laplace import SampledLaplaceProfile

if TYPE_CHECKING:
    from tacit.accounting.exact.sampled_laplace import SampledLaplaceLoss
    from tacit.accounting.exact.transforms import Floats

MOST_DISTANCE = 6.0
"""In scales, beyond which the edges between the three cases have too few digits."""
_UNIT = 2.0**-53
_NODES, _RHO = 16, 4.0
_X, _WEIGHTS = np.polynomial.legendre.leggauss(_NODES)
_SHAPE = 64.0 / 15.0 * _RHO ** (2 - 2 * _NODES) / (1.0 - _RHO**-2)
_REACH = 0.5 * (_RHO + 1.0 / _RHO)  # the ellipse's longer half-axis, in halves of a panel
_LONGEST, _NEAREST = (
    0.4,
    0.75,
)  # half a panel: so long, or that share of the way to where G = (1-q)w


@dataclass(frozen=True)
class LaplaceTwiceProfile:
    """δ(ε) of two Poisson samples of Laplace noise."""

    loss: SampledLaplaceLoss

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        loss = self.loss
        if epsilon > 2.0 * loss.largest * (1.0 + 1e-13):
            return Enclosure(0.0, ErrorTerms(), 0.0)
        place = _Place(loss.rate, loss.distance, math.expm1(-epsilon if loss.reverse else epsilon))
        low, high, last = place.edges()
        d = loss.distance
        start, end = (min(max(one, -d), d) for one in (low, high))
        outer = _panels(-d, start) if loss.reverse else _panels(end, d)
        edges = np.concatenate([_panels(start, end, last), outer])
        half, middle = 0.5 * (edges[:, 1] - edges[:, 0]), 0.5 * (edges[:, 1] + edges[:, 0])
        inner = (middle[:, None] + half[:, None] * _X).ravel()
        inner_sizes = np.multiply.outer(half, _WEIGHTS).ravel() * 0.25 * np.exp(-0.5 * (d + inner))
        base = np.concatenate([[-d, d], inner])
        weights = np.concatenate([[0.5, 0.5 * math.exp(-d)], inner_sizes])
        found, slopes, errors = place.values(base, low, high, reverse=loss.reverse)
        scale = math.exp(epsilon) if loss.reverse else 1.0
        value = scale * float((weights * found).sum())
        grown = float((weights * slopes).sum())
        slope = value - grown if loss.reverse else -grown
        rounding = float((weights * errors).sum()) + 2.0 * _UNIT * (32.0 + epsilon) * float(
            (weights * np.abs(found)).sum()
        )
        quadrature = place.most(middle + _REACH * half, middle - _REACH * half)
        # An edge that is off by η leaves η²/2·|dD/dl| out.
        rounding += place.vagueness() ** 2 * loss.rate * (2.0 + math.exp(d))
        off = ErrorTerms(
            quadrature=scale * _SHAPE * float((half * quadrature).sum()),
            rounding=scale * rounding,
        )
        return Enclosure(max(0.0, value), off, min(slope, 0.0))

    def guess(self, delta: float) -> float:
        """About ε(δ)."""
        return solve_convex(self, delta, SampledLaplaceProfile(self.loss).guess(delta))


@dataclass(frozen=True)
class _Place:
    """What D is at one G, by G - 1, so that no digit of a small loss cancels."""

    rate: float
    distance: float
    excess: float

    def gap(self, base: Floats) -> Floats:
        """G - (1-q)·w."""
        q = self.rate
        found: Floats = self.excess + q * (2.0 - q) - (1.0 - q) * q * np.exp(base)
        return found

    def edges(self) -> tuple[float, float, float]:
        """Where w is G/w₊, G/w₋ and G/(1-q)."""
        q, d = self.rate, self.distance
        ends = np.array([d, -d])
        odds = self.gap(ends) / (q * (1.0 + q * np.expm1(ends)))
        room = (self.excess + q * (2.0 - q)) / ((1.0 - q) * q)
        low, high, last = (
            math.log(one) if one > 0.0 else -math.inf for one in (*odds.tolist(), room)
        )
        return low, high, last

    def values(
        self, base: Floats, low: float, high: float, *, reverse: bool
    ) -> tuple[Floats, Floats, Floats]:
        """D, its derivative by ε but for the sign, and bounds on the errors of D."""
        q, grown = self.rate, 1.0 + self.excess
        over = q * np.expm1(base)  # w - 1
        w, gap = 1.0 + over, np.maximum(self.gap(base), 1e-300)
        factor = math.exp(-0.5 * self.distance) * np.sqrt(q * w)
        root = factor * np.sqrt(gap)
        steep = 0.5 * factor * grown / np.sqrt(gap)
        between, beyond = (base > low) & (base < high), (base <= low) if reverse else (base >= high)
        zero = np.zeros(len(base))
        if reverse:
            inner, outer = gap - root, self.excess - over
            slopes = np.where(between, grown - steep, np.where(beyond, grown, zero)) / grown
        else:
            inner, outer = q * w - root, over - self.excess
            slopes = np.where(between, steep, np.where(beyond, grown, zero))
        found = np.where(between, inner, np.where(beyond, outer, zero))
        sizes = abs(self.excess) + 2.0 * q + q * np.exp(base)
        off = np.where(between, 8.0 * (root + q * w) + 4.0 * sizes * (1.0 + steep / grown), sizes)
        # What rounding may have put on the wrong side of an edge: there |dD/dl| ≤ 2·sizes.
        vague = self.vagueness()
        near = (np.abs(base - low) <= vague) | (np.abs(base - high) <= vague)
        return found, slopes, 4.0 * _UNIT * off + np.where(near, 2.0 * vague * sizes, 0.0)

    def vagueness(self) -> float:
        """A bound on the errors of the edges within [-d, d], where G - (1-q)·w ≥ q·w₋·e^{-d}."""
        q, d = self.rate, self.distance
        terms = abs(self.excess) + 2.0 * q + q * math.exp(d)
        return 8.0 * _UNIT * (1.0 + d + terms / (q * (1.0 - q) * math.exp(-d)))

    def most(self, right: Floats, left: Floats) -> Floats:
        """A bound on |¼·e^{-(d+l)/2}·D| in ellipses that reach from ``left`` to ``right``."""
        q, grown = self.rate, 1.0 + self.excess
        w = 1.0 + q * np.expm1(right)
        sizes = grown + w + np.sqrt(q * w * (grown + w))
        found: Floats = 0.25 * np.exp(-0.5 * (self.distance + left)) * sizes
        return found


def _panels(low: float, high: float, last: float = math.inf) -> Floats:
    """Panels over [low, high], none of whose ellipses reaches ``last``."""
    edges = []
    while high > low:
        half = min(_LONGEST, _NEAREST * (last - high))
        start = max(low, high - 2.0 * half)
        edges.append((start, high))
        high = start
    return np.array(edges).reshape(-1, 2)
