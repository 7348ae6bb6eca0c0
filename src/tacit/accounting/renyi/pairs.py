"""Dominating pairs of sampled mechanisms as nodes, from which every Rényi divergence follows.

A sampled release mixes, with probability ``rate``, the law that one record shifts with the law of
the samples that miss it: P = (1 - rate)·A + rate·B against Q = (1 - rate)·A + rate·C. A lies at 0,
B at ``to`` > 0 and C at ``origin`` ≤ 0. Why collinear positions are the worst is in
``sampling.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tacit.accounting.renyi.excess import Nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.renyi.excess import Reading

    Array = NDArray[np.float64]

_LIMIT = 1 << 14  # nodes; beyond, the caller falls back on a looser bound in closed form
_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(24)


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
