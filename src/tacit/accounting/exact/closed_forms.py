"""What has a closed form: the transforms of Gaussian and Laplace losses, and some whole profiles.

Compositions of Gaussians, and a single Laplace or mixture release, need no integral at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from tacit.accounting import gaussian_profile
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.mixture import MixturePair, MixtureSide
    from tacit.accounting.exact.transforms import Floats


_ROUNDING = 16.0 * 2.0**-53  # a dozen operations of float64
_UNIT = 2.0**-53
_LEAST = 1e-300  # above all that may have been too small for a floating-point number
_LAST_DIGITS = 1e-320  # the rounding of numbers that have fewer digits, and of those too small
_PROFILE_ERROR = 1e-12  # a hundred times what gaussian_profile is tested to


@dataclass(frozen=True)
class GaussianLoss:
    """N(μ²/2, μ²), the loss between two normal laws μ standard deviations apart."""

    mu: float
    largest: float = math.inf

    @property
    def rough_variance(self) -> float:
        """The variance of the loss."""
        return self.mu**2

    def real_line(self, reach: float, digits: float) -> GaussianLoss:  # noqa: ARG002
        """Itself: the formula serves every tilt."""
        return self

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M = μ²z(z+1)/2 and its first two derivatives."""
        square = self.mu**2
        return 0.5 * square * tilt * (tilt + 1.0), square * (tilt + 0.5), square

    def log_mgf_bound(self, tilt: float) -> float:
        """Ln M, rounded up."""
        return self.moments(tilt)[0] * (1.0 + _ROUNDING)

    def tilted(
        self,
        tilt: float,
        frequency: float,  # noqa: ARG002
        digits: float,  # noqa: ARG002
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedGaussian:
        """The transform on Re z = tilt."""
        return TiltedGaussian(self, tilt)


@dataclass(frozen=True)
class TiltedGaussian:
    """M(tilt + iu)·exp(-iu·centre)/M(tilt) = exp(-μ²u²/2), exactly."""

    loss: GaussianLoss
    tilt: float
    size: int = 1

    @property
    def log_mgf(self) -> float:
        """Ln M(tilt)."""
        return self.loss.moments(self.tilt)[0]

    @property
    def log_mgf_error(self) -> NodeErrors:
        """Bounds on the error of ``log_mgf``."""
        return NodeErrors(rounding=_ROUNDING * self.log_mgf)

    @property
    def centre(self) -> float:
        """The mean of the tilted loss."""
        return self.loss.moments(self.tilt)[1]

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        return np.expm1(-0.5 * (self.loss.mu * frequencies) ** 2), np.zeros(len(frequencies))

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``; the centre's rounding turns the phase."""
        square = (self.loss.mu * frequencies) ** 2
        turned = abs(self.centre) * frequencies
        return NodeErrors(rounding=_ROUNDING * (np.minimum(square, 2.0) + turned))

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Ln |M(tilt + iu)/M(tilt)| at ``frequency``, from where it only falls."""
        return -0.5 * (self.loss.mu * frequency) ** 2 * (1.0 - _ROUNDING)


@dataclass(frozen=True)
class LaplaceLoss:
    """The loss between two Laplace laws ``distance`` scales apart.

    With probability ½ it is +distance, with ½·exp(-distance) it is -distance, and in between it has
    the density exp(-(distance - l)/2)/4. Hence M(z) = (1 + r)/2·e^{zd} + (1 - r)/(2(2z+1))·e^{zd},
    with d the distance and r = exp(-(2z+1)d) (Mironov 2017, Table II).
    """

    distance: float

    @property
    def largest(self) -> float:
        """The supremum of the loss."""
        return self.distance

    @property
    def rough_variance(self) -> float:
        """About the variance of the loss."""
        return self.distance**2

    def ends(self) -> tuple[Floats, Floats]:
        """The two atoms: losses and ln of P's probabilities."""
        log_half = math.log(0.5)
        return (
            np.array([-self.distance, self.distance]),
            np.array([log_half - self.distance, log_half]),
        )

    def real_line(self, reach: float, digits: float) -> LaplaceLoss:  # noqa: ARG002
        """Itself: the formula serves every tilt."""
        return self

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M and its first two derivatives."""
        d, span = self.distance, 2.0 * tilt + 1.0
        r = math.exp(-span * d)
        even, odd = 0.5 * (1.0 + r), -0.5 * math.expm1(-span * d)
        value = even + odd / span
        first = (d * odd + d * even / span - 2.0 * odd / span**2) / value
        third = 8.0 * odd / span**3
        second = (d * d * (even + odd / span) - 4.0 * d * even / span**2 + third) / value
        return self._log_mgf(tilt), first, max(second - first**2, 0.0)

    def _log_mgf(self, tilt: float) -> float:
        span = 2.0 * tilt + 1.0
        return tilt * self.distance + math.log1p(math.expm1(-span * self.distance) * (tilt / span))

    def log_mgf_bound(self, tilt: float) -> float:
        """Ln M, rounded up."""
        return self._log_mgf(tilt) + _ROUNDING * (1.0 + tilt * self.distance)

    def tilted(
        self,
        tilt: float,
        frequency: float,  # noqa: ARG002
        digits: float,  # noqa: ARG002
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedLaplace:
        """The transform on Re z = tilt."""
        return TiltedLaplace(self, tilt)


@dataclass(frozen=True)
class TiltedLaplace:
    """M of the Laplace loss on one vertical line."""

    loss: LaplaceLoss
    tilt: float
    size: int = 1

    @property
    def log_mgf(self) -> float:
        """Ln M(tilt)."""
        return self.loss.moments(self.tilt)[0]

    @property
    def log_mgf_error(self) -> NodeErrors:
        """Bounds on the error of ``log_mgf``."""
        return NodeErrors(rounding=_ROUNDING * self.tilt * self.loss.distance)

    @property
    def centre(self) -> float:
        """The mean of the tilted loss."""
        return self.loss.moments(self.tilt)[1]

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        d = self.loss.distance
        z = self.tilt + 1j * frequencies
        span = 2.0 * z + 1.0
        inner = 1.0 + np.expm1(-span * d) * (z / span)
        size = math.exp(self.tilt * d - self.log_mgf)
        ratio = size * inner * np.exp(1j * frequencies * (d - self.centre)) - 1.0
        return ratio.real, ratio.imag

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        turned = (self.loss.distance + abs(self.centre)) * frequencies
        return NodeErrors(
            rounding=_ROUNDING * (2.0 + self.tilt * self.loss.distance + 2.0 * turned)
        )

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency.

        The atoms at ±distance never fade; the density's part is at most theirs over |2z+1|.
        """
        span = 2.0 * self.tilt + 1.0
        faded = math.hypot(span, 2.0 * frequency)
        atoms = 0.5 * (1.0 + math.exp(-span * self.loss.distance))
        log_atoms = math.log(atoms) + self.tilt * self.loss.distance - self.log_mgf
        return min(0.0, log_atoms + math.log1p(1.0 / faded) + _ROUNDING)


# ---- whole profiles


@dataclass(frozen=True)
class GaussianProfile:
    """δ(ε) of N(0, 1) against N(μ, 1); Gaussians compose to one whose μ² is the sum."""

    mu: float

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        value = gaussian_profile.delta(self.mu, epsilon)
        slope = -math.exp(epsilon + float(log_ndtr(-epsilon / self.mu - 0.5 * self.mu)))
        rounding = _PROFILE_ERROR * value + _LAST_DIGITS
        return Enclosure(value, ErrorTerms(rounding=rounding), slope)

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

        A cut x whose loss is below ε by no more than η leaves out of δ at most η times what P has
        beyond it: where P and e^ε·Q differ the wrong way, their logarithms do so by η at most.
        """
        if self.pair.largest * (1.0 + 1e-12) < epsilon:
            return Enclosure(0.0, ErrorTerms(), 0.0)
        place = self._cut(epsilon)
        if place is None:  # all that P has beyond where it is looked for
            return Enclosure(0.0, ErrorTerms(truncation=_LEAST), 0.0)
        place, beside = self._lower(place, epsilon)
        p, q = self._balance(place, epsilon)
        # A tail's relative error grows with the square of its distance.
        reach = (abs(place) + self.pair.reach) / self.pair.sigma
        tails = _UNIT * (64.0 + 16.0 * epsilon + 16.0 * reach * (1.0 + reach)) * (p + q)
        rounding = beside * p + tails + _LEAST
        return Enclosure(max(0.0, p - q), ErrorTerms(rounding=rounding), -q)

    def guess(self, delta: float) -> float:
        """About ε(δ): to go by the cut spares a search for it at every ε."""
        start, end = self._cut(0.0), self._ends[1]
        goal = math.log(max(delta, _LEAST))

        def excess(place: float) -> float:
            p, q = self._balance(place, max(self._loss(place), 0.0))
            return math.log(max(p - q, _LEAST)) - goal

        if start is None or excess(start) <= 0.0:
            return 0.0
        if excess(end) > 0.0:
            return max(self._loss(end), 0.0)
        place = float(brentq(excess, start, end, xtol=1e-7 * self.pair.sigma))
        return max(self._loss(place), 0.0)

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """Where to look for a cut; the loss is larger at the second.

        They are compared here, and nowhere nearer: below its shifts a loss is flat, rounded.
        """
        far = self.pair.reach + 38.0 * self.pair.sigma
        return (-far, far) if self._loss(far) > self._loss(-far) else (far, -far)

    def _loss(self, x: float) -> float:
        variance = self.pair.sigma**2
        top, bottom = self.pair.numerator, self.pair.denominator
        return top.log_ratio_at(x, variance) - bottom.log_ratio_at(x, variance)

    def _balance(self, place: float, epsilon: float) -> tuple[float, float]:
        """What P and e^ε·Q have beyond a cut."""
        p = _beyond(self.pair.numerator, self.pair.sigma, place, upward=self._upward)
        q = _beyond(self.pair.denominator, self.pair.sigma, place, epsilon, upward=self._upward)
        return p, q

    @property
    def _upward(self) -> bool:
        return self._ends[1] > 0.0

    def _lower(self, place: float, epsilon: float) -> tuple[float, float]:
        """A cut next to another whose loss is certainly no more than ε, and by how much it may be.

        A loss is rounded by its own size and by that of the exponents in it.
        """
        end, step = self._ends[0], 1e-13 + 1e-15 * abs(place)
        while True:
            reach = self.pair.reach
            exponent = reach * (abs(place) + reach) / self.pair.sigma**2
            off = _UNIT * 16.0 * (1.0 + epsilon + exponent)
            loss = self._loss(place)
            if loss <= epsilon - off or place == end:
                return place, 1.01 * (epsilon - loss + off)
            place = max(place - step, end) if self._upward else min(place + step, end)
            step *= 2.0

    def _cut(self, epsilon: float) -> float | None:
        """Where the loss equals ε; None if it never does (it is then always below)."""
        low, high = self._ends
        if self._loss(high) <= epsilon:
            return None
        if self._loss(low) >= epsilon:
            return low
        return float(brentq(lambda x: self._loss(x) - epsilon, low, high, xtol=1e-13, rtol=1e-14))


def _beyond(
    side: MixtureSide, sigma: float, place: float, epsilon: float = 0.0, *, upward: bool
) -> float:
    """What a side has beyond a place, times e^ε, which by itself may be too large for a number."""
    sign = -1.0 if upward else 1.0
    return math.fsum(
        weight * math.exp(min(epsilon + float(log_ndtr(sign * (place - shift) / sigma)), 700.0))
        for weight, shift in zip(side.weights, side.shifts, strict=True)
    )
