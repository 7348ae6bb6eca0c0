"""Profiles in closed form: compositions of Gaussians, and a single Laplace or mixture release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from tacit.accounting import gaussian_profile
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms

if TYPE_CHECKING:
    from tacit.accounting.exact.mixture_nodes import MixturePair, Side

_PROFILE_ERROR = 1e-12  # a hundred times what gaussian_profile is tested to


@dataclass(frozen=True)
class GaussianProfile:
    """δ(ε) of N(0, 1) against N(μ, 1); Gaussians compose to one whose μ² is the sum."""

    mu: float

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        value = gaussian_profile.delta(self.mu, epsilon)
        slope = -math.exp(epsilon + float(log_ndtr(-epsilon / self.mu - 0.5 * self.mu)))
        return Enclosure(value, ErrorTerms(rounding=_PROFILE_ERROR * value), slope)

    def guess(self, delta: float) -> float:
        """About ε(δ)."""
        return gaussian_profile.epsilon(self.mu, delta)


@dataclass(frozen=True)
class LaplaceProfile:
    """δ(ε) = 1 - exp((ε - d)/2) of two Laplace laws d scales apart (Balle et al. 2018, Thm 3)."""

    distance: float

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        half = min(0.5 * (epsilon - self.distance), 0.0)
        value = max(0.0, -math.expm1(half))
        slope = -0.5 * math.exp(half) if half < 0.0 else 0.0
        rounding = 8.0 * 2.0**-53 * (value + abs(epsilon) + self.distance)
        return Enclosure(value, ErrorTerms(rounding=rounding if value else 0.0), slope)

    def guess(self, delta: float) -> float:
        """About ε(δ)."""
        return max(0.0, self.distance + 2.0 * math.log1p(-delta))


@dataclass(frozen=True)
class MixtureProfile:
    """δ(ε) = P(L > ε) - e^ε·Q(L > ε) of one release, whose loss L is monotone in the output x."""

    pair: MixturePair

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors.

        A cut x off the right one by t changes δ only by O(t²): there the two densities balance.
        """
        place = self._cut(epsilon)
        if place is None:
            return Enclosure(0.0, ErrorTerms(), 0.0)
        upward = self._loss(1.0) > self._loss(-1.0)
        p = _beyond(self.pair.numerator, self.pair.sigma, place, upward=upward)
        q = _beyond(self.pair.denominator, self.pair.sigma, place, upward=upward)
        q *= math.exp(min(epsilon, 700.0))
        return Enclosure(max(0.0, p - q), ErrorTerms(rounding=1e-14 * (p + q)), -q)

    def guess(self, delta: float) -> float:
        """About ε(δ), by bisection."""
        low, high = 0.0, 1.0
        while self.enclose(high).estimate > delta:
            low, high = high, 2.0 * high
        for _ in range(20):
            middle = 0.5 * (low + high)
            above = self.enclose(middle).estimate > delta
            low, high = (middle, high) if above else (low, middle)
        return low

    def _loss(self, x: float) -> float:
        at = np.array([x])
        variance = self.pair.sigma**2
        ratio = self.pair.numerator.log_ratio(at, variance)
        return float((ratio - self.pair.denominator.log_ratio(at, variance))[0])

    def _cut(self, epsilon: float) -> float | None:
        """Where the loss equals ε; None if it never does (it is then always below)."""
        ends = [side * (self.pair.reach + 38.0 * self.pair.sigma) for side in (-1.0, 1.0)]
        losses = [self._loss(end) for end in ends]
        if max(losses) <= epsilon:
            return None
        if min(losses) >= epsilon:
            return ends[int(np.argmin(losses))]
        return float(brentq(lambda x: self._loss(x) - epsilon, *ends, xtol=1e-13, rtol=1e-14))


def _beyond(side: Side, sigma: float, place: float, *, upward: bool) -> float:
    sign = -1.0 if upward else 1.0
    return math.fsum(
        weight * float(ndtr(sign * (place - shift) / sigma))
        for weight, shift in zip(side.weights, side.shifts, strict=True)
    )
