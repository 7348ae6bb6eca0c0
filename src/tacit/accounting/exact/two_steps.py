"""Two steps of a Poisson-sampled Gaussian: a closed form but for one integral over the first.

With y ~ N(±1/2σ², 1/σ²) and w = q/(1-q)·e^y a step's loss is ln(1 - q) + ln(1 + w), so that two
lose more than ε where (1 + w)(1 + w') > 1 + C, C = e^ε/(1-q)² - 1. The line y = y' meets the edge
of that region where both are d = √(1 + C) - 1. What a law with density f has in it is

    A = G(y_d)² + 2·∫ f(y)·G(y'(y)) dy over y < y_d,   w'(w) = (C - w)/(1 + w) ,

with G(y) what the law has above y, and δ(ε) = A_P - e^ε·A_Q. The other way round the losses have
the other sign: -ε stands for ε, the region is the one below, G is what the law has below y, and the
square is taken off. Neither has digits to cancel that matter: e^ε·A_Q is -dδ/dε.

Errors: n nodes of Gauss and Legendre on a panel are off by at most 64/15·m·ρ²⁻²ⁿ/(1 - ρ⁻²) times
half its width, if |integrand| ≤ m in the ellipse whose half-axes add up to ρ such halves
(Trefethen 2008, Theorem 4.5). At x + iv, |v| ≤ V ≤ π/2, a Gaussian density is at most e^{σ²V²/2}
times its value at x, and so is an integral of it. C - |w| ≤ |C - w| ≤ C + |w|, and |1 + w| is
between 1 and 1 + |w|. Hence |G(y')| ≤ e^{σ²b²/2}·G(x'), where w(x') is (C - |w|)/(1 + |w|) if G is
what lies above, C + |w| if it is what lies below, and

    b = |Im y'| ≤ |arg(C - w)| + |arg(1 + w)| ≤ arctan(|w|·sin V/(C - |w|)) + min(V, |w|·sin V) .
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from tacit.accounting.exact.closed_forms import MixtureProfile
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms
from tacit.accounting.exact.mixture import MixturePair, MixtureSide

if TYPE_CHECKING:
    from tacit.accounting.exact.transforms import Floats

_NODES, _RHO = 24, 3.0
_FAR = 9.0  # standard deviations below the least mean, where the integral begins
_HALF, _FINE = 0.75, 1.2  # half a panel: that much, or that many standard deviations
_X, _WEIGHTS = np.polynomial.legendre.leggauss(_NODES)
_SHAPE = 64.0 / 15.0 * _RHO ** (2 - 2 * _NODES) / (1.0 - _RHO**-2)
_UNIT = 2.0**-53
_MOST_EPSILON = 600.0  # δ falls from there on, and has long been too small
_LEAST = 1e-290  # above all that may have been too small for a floating-point number


@dataclass(frozen=True)
class TwoStepProfile:
    """δ(ε) of two steps of ``rate`` and noise ``sigma`` against plain noise, or the other way."""

    rate: float
    sigma: float
    reverse: bool = False

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        if self.reverse and epsilon > -2.0 * math.log1p(-self.rate) * (1.0 + 1e-12):
            return Enclosure(0.0, ErrorTerms(), 0.0)  # no loss is so large
        if self.reverse and self.start(epsilon) <= 0.0:
            return Enclosure(0.0, ErrorTerms(truncation=_LEAST), 0.0)  # as far as rounding tells
        if epsilon > _MOST_EPSILON:
            least = self.enclose(_MOST_EPSILON).upper
            return Enclosure(0.0, ErrorTerms(truncation=least), 0.0)
        region = _Region(self, epsilon)
        p, p_errors = region.mass(0.0 if self.reverse else self.rate)
        q, q_errors = region.mass(self.rate if self.reverse else 0.0)
        grown = math.exp(epsilon)
        terms = (one + grown * other for one, other in zip(p_errors, q_errors, strict=True))
        quadrature, truncation, rounding = terms
        rounding += 4.0 * _UNIT * (1.0 + epsilon) * (p + grown * q) + _LEAST
        errors = ErrorTerms(truncation, quadrature, rounding)
        return Enclosure(max(0.0, p - grown * q), errors, -grown * q)

    def guess(self, delta: float) -> float:
        """About ε(δ): most often only one of the two steps matters."""
        sides = MixtureSide((1.0 - self.rate, self.rate), (0.0, 1.0)), MixtureSide()
        pair = MixturePair(self.sigma, *(sides[::-1] if self.reverse else sides))
        return MixtureProfile(pair).guess(0.5 * delta)

    def start(self, epsilon: float) -> float:
        """Half of ln(1 + C)."""
        return (-0.5 if self.reverse else 0.5) * epsilon - math.log1p(-self.rate)

    @cached_property
    def odds(self) -> float:
        """q/(1-q)."""
        return self.rate / (1.0 - self.rate)

    def scaled(self, y: Floats) -> tuple[Floats, Floats]:
        """How many standard deviations y lies above its two means, the lower one first."""
        middle, half = self.sigma * y, 0.5 / self.sigma
        return middle + half, middle - half

    def tail(self, rate: float, y: Floats) -> Floats:
        """G of the law of this rate."""
        low, high = self.scaled(y)
        side = 1.0 if self.reverse else -1.0
        found: Floats = (1.0 - rate) * ndtr(side * low) + rate * ndtr(side * high)
        return found


class _Region:
    """Where two steps lose more than ε, with panels of nodes along its edge."""

    def __init__(self, profile: TwoStepProfile, epsilon: float) -> None:
        self._profile, sigma = profile, profile.sigma
        start = profile.start(epsilon)
        self._meet, self._most = math.expm1(start), math.expm1(2.0 * start)
        self._last = math.log(self._meet / profile.odds)
        self._first = min(-0.5 / sigma**2 - _FAR / sigma, self._last - _HALF)
        count = math.ceil((self._last - self._first) / (2.0 * min(_HALF, _FINE / sigma)))
        self._half = 0.5 * (self._last - self._first) / count
        self._middles = self._first + self._half * (2.0 * np.arange(count) + 1.0)
        self._y = (self._middles[:, None] + self._half * _X).ravel()
        self._weights = np.tile(2.0 * self._half * _WEIGHTS, count)
        self._other = self._beside(self._y)
        # How far off y and y' may be, in units: by some of themselves and of 1, and of what
        # cancels in the beginning.
        cancelled = (0.5 * epsilon - math.log1p(-profile.rate)) / start
        self._off = 4.0 + abs(self._last) + abs(math.log(profile.odds)) + 2.0 * cancelled

    def _beside(self, y: Floats) -> Floats:
        """y'(y)."""
        w = self._profile.odds * np.exp(y)
        found: Floats = np.log((self._most - w) / ((1.0 + w) * self._profile.odds))
        return found

    def mass(self, rate: float) -> tuple[float, tuple[float, float, float]]:
        """What the law of this rate has in the region: quadrature, truncation and rounding."""
        profile, sigma = self._profile, self._profile.sigma
        low, high = profile.scaled(self._y)
        density = (1.0 - rate) * np.exp(-0.5 * low**2) + rate * np.exp(-0.5 * high**2)
        tail = profile.tail(rate, self._other)
        terms = sigma / math.sqrt(2.0 * math.pi) * self._weights * density * tail
        corner = float(profile.tail(rate, np.array([self._last]))[0]) ** 2
        value = float(terms.sum())
        # The relative errors of exponents and of tails grow with the squares of their arguments.
        steep = sigma * np.maximum(np.abs(self._y), np.abs(self._other)) + 0.5 / sigma
        care = 64.0 + 8.0 * steep**2 + 8.0 * sigma * steep * (np.abs(self._y) + self._off)
        rounding = _UNIT * (float(terms @ care) + corner * float(care.max()))
        value += -corner if profile.reverse else corner
        first = np.array([self._first])
        below = replace(profile, reverse=True).tail(rate, first)
        # The tail is largest at one end of what is left out: at its last y, or, below, at no w.
        most = math.log(self._most / profile.odds)
        nearest = np.array([most]) if profile.reverse else self._beside(first)
        truncation = 2.0 * float((below * profile.tail(rate, nearest))[0])
        return value, (self._quadrature(rate), truncation, rounding)

    def _quadrature(self, rate: float) -> float:
        """What the nodes may miss: the bounds of the ellipses."""
        profile, sigma = self._profile, self._profile.sigma
        reach = 0.5 * self._half * (_RHO + 1.0 / _RHO)
        tall = 0.5 * self._half * (_RHO - 1.0 / _RHO)
        left, right = self._middles - reach, self._middles + reach
        w = profile.odds * np.exp(right)
        turned = np.arctan(w * math.sin(tall) / (self._most - w))
        turned += np.minimum(tall, w * math.sin(tall))
        grown = np.exp(0.5 * sigma**2 * (tall**2 + turned**2))
        farthest = np.log((self._most + w) / profile.odds)
        tail = profile.tail(rate, farthest if profile.reverse else self._beside(right))
        pairs = zip(profile.scaled(left), profile.scaled(right), strict=True)
        nearest = [np.maximum(np.maximum(a, -b), 0.0) for a, b in pairs]
        low, high = (np.exp(-0.5 * place**2) for place in nearest)
        most = sigma / math.sqrt(2.0 * math.pi) * ((1.0 - rate) * low + rate * high) * tail
        # 1e-9 is far above the rounding of what is bounded here.
        return 2.0 * self._half * _SHAPE * float(most @ grown) * (1.0 + 1e-9)
