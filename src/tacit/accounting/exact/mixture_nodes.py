"""Two mixtures of shifted Gaussians, and the trapezoid rule for their moment-generating function.

Poisson-sampled Gaussians, their group and replace-one versions are all of the form P = φ·w₊ and
Q = φ·w₋, with φ the density of N(0, σ²) and w(x) = Σ_j a_j·exp((2·m_j·x - m_j²)/2σ²), the
likelihood ratio of a mixture with weights a_j at shifts m_j. The loss is L = ln w₊ - ln w₋ and

    M(z) = E_P[exp(z·L)] = ∫ φ(x)·w₊(x)^(z+1)·w₋(x)^(-z) dx .

The integrand is analytic in a strip about the real line, so the trapezoid rule converges
geometrically (Trefethen & Weideman 2014, Theorem 5.1), and every error is bounded in closed form.
With k₊ and k₋ the largest |m_j| of w₊ and w₋, at distance a = σ²θ from the real line:

- |φ(x ± ia)| = φ(x)·exp(a²/2σ²);
- |w₊(x ± ia)| ≤ w₊(x) by the triangle inequality;
- |w₋(x ± ia)| ≥ w₋(x)·cos(k₋θ/2), since all its terms lie in a sector of that half-angle;
- |arg w₊| ≤ k₊θ and |arg w₋| ≤ k₋θ, for the same reason.

Hence |integrand(x ± ia)| ≤ integrand(x)·exp(a²/2σ² + u(k₊+k₋)θ)·cos(k₋θ/2)^(-z₀) at z = z₀ + iu,
and the rule's error is at most 2·M(z₀) times that factor over exp(2πa/step) - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.enclosure import TooSlow

if TYPE_CHECKING:
    from tacit.accounting.exact.resolution import Resolution
    from tacit.accounting.exact.transforms import Complexes, Floats


@dataclass(frozen=True)
class Side:
    """One mixture of N(0, σ²) shifted by ``shifts`` with ``weights`` (which add up to 1)."""

    weights: tuple[float, ...] = (1.0,)
    shifts: tuple[float, ...] = (0.0,)

    @cached_property
    def reach(self) -> float:
        """The largest |shift|."""
        return max(map(abs, self.shifts))

    @cached_property
    def _moving(self) -> tuple[tuple[float, float], ...]:
        pairs = zip(self.weights, self.shifts, strict=True)
        return tuple((weight, shift) for weight, shift in pairs if weight > 0.0 and shift != 0.0)

    def chi_square(self, variance: float) -> float:
        """E_φ[(w - 1)²] = Σ_ij a_i·a_j·(exp(m_i·m_j/σ²) - 1), or the largest loss squared."""
        total = math.fsum(
            a * b * math.expm1(min(m * n / variance, 50.0))
            for a, m in self._moving
            for b, n in self._moving
        )
        return min(total, (self.reach**2 / variance) * (1.0 + self.reach**2 / variance))

    def log_ratio(self, x: Floats, variance: float) -> Floats:
        """Ln w(x), accurate in relative terms where it is small."""
        if not self._moving:
            return np.zeros_like(x)
        if self._largest_exponent(x, variance) > 80.0 or self._moving[0][0] == 1.0:
            # Of one shift with all the weight, 1 + expm1(y) would leave nothing at y < -37.
            return self._log_ratio_of_logs(x, variance)
        total = np.zeros_like(x)
        for a, m in self._moving:
            total += a * np.expm1((m * x - 0.5 * m * m) / variance)
        return np.log1p(total)

    def _largest_exponent(self, x: Floats, variance: float) -> float:
        ends = (float(x[0]), float(x[-1]))
        return max((m * end - 0.5 * m * m) / variance for _, m in self._moving for end in ends)

    def _log_ratio_of_logs(self, x: Floats, variance: float) -> Floats:
        still = 1.0 - math.fsum(a for a, _ in self._moving)
        total = np.full_like(x, math.log(still) if still > 0.0 else -np.inf)
        for a, m in self._moving:
            total = np.logaddexp(total, math.log(a) + (m * x - 0.5 * m * m) / variance)
        return total

    def conditioning(self, x: Floats, variance: float, log_ratio: Floats) -> Floats:
        """How much ln w(x) moves, in absolute terms, per relative error of one operation."""
        total = np.abs(log_ratio)
        for a, m in self._moving:
            y = (m * x - 0.5 * m * m) / variance
            share = np.exp(np.minimum(y + math.log(a) - log_ratio, 0.0))
            total = total + share * (1.0 + np.abs(y) - math.log(a))
        return total

    def log_ratio_off_axis(self, x: Floats, variance: float, angle: float) -> Complexes:
        """Ln w(x + iσ²·angle), on the branch that is real at angle 0 (for reach·angle < π/2)."""
        top = max(0.0, self._largest_exponent(x, variance)) if self._moving else 0.0
        still = 1.0 - math.fsum(a for a, _ in self._moving)
        total = np.full(len(x), still * math.exp(-top), complex)
        for a, m in self._moving:
            size = a * np.exp((m * x - 0.5 * m * m) / variance - top)
            total += size * complex(math.cos(m * angle), math.sin(m * angle))
        found: Complexes = np.log(total) + top
        return found


@dataclass(frozen=True)
class MixturePair:
    """P and Q, both mixtures of shifts of one Gaussian noise; P is the true distribution."""

    sigma: float
    numerator: Side
    denominator: Side

    @cached_property
    def reach(self) -> float:
        """The largest |shift| of both."""
        return max(self.numerator.reach, self.denominator.reach)

    @cached_property
    def largest(self) -> float:
        """The supremum of the loss."""
        bottom = self.denominator
        still = math.fsum(w for w, m in zip(bottom.weights, bottom.shifts, strict=True) if m == 0.0)
        bounded = self.numerator.reach == 0.0 and still > 0.0
        return -math.log(still) if bounded else math.inf

    @property
    def rough_variance(self) -> float:
        """About the variance of the loss: that of the likelihood ratios, capped."""
        return self.numerator.chi_square(self.sigma**2) + self.denominator.chi_square(self.sigma**2)

    def nodes(self, tilt: float, frequency: float, digits: float, resolution: Resolution) -> Nodes:
        """Trapezoid nodes that serve every z with 0 ≤ Re z ≤ tilt and |Im z| ≤ frequency.

        Quadrature and truncation errors, relative to M(Re z), are then about exp(-digits).

        Raises:
            TooSlow: if that takes more nodes than the resolution allows.
        """
        step = self.step(tilt, frequency, digits) / resolution.output_density
        # A step with a short mantissa makes every node index·step exact.
        scale = 2.0 ** (math.floor(math.log2(step)) - 9)
        step = math.floor(step / scale) * scale
        width = resolution.output_reach * math.sqrt(2.0 * digits) * self.sigma
        first = math.floor((-self.drift(tilt, up=False) - width) / step)
        last = math.ceil((self.drift(tilt, up=True) + width) / step)
        if last - first > resolution.most_outputs:
            raise TooSlow
        x = (step * np.arange(first, last + 1)).astype(resolution.dtype)
        variance = self.sigma**2
        log_top = self.numerator.log_ratio(x, variance)
        log_bottom = self.denominator.log_ratio(x, variance)
        constant = math.log(step / self.sigma) - 0.5 * math.log(2.0 * math.pi)
        log_noise = x * x * (-0.5 / variance) + constant
        strips = self._strips(step, tilt, frequency)
        return Nodes(self, step, strips, x, log_top, log_bottom, log_noise)

    def step(self, tilt: float, frequency: float, digits: float) -> float:
        """The distance between nodes at which the rule's error is about exp(-digits)."""
        distance = math.sqrt(2.0 * digits / self._stiffness(tilt))
        distance, growth = self._growth(distance, tilt, frequency)
        return 2.0 * math.pi * distance / (digits + growth)

    def _strips(
        self, step: float, tilt: float, frequency: float
    ) -> tuple[tuple[float, float], ...]:
        """Error bounds by strips of several widths: (bound at frequency 0, growth of its ln)."""
        pull = (self.numerator.reach + self.denominator.reach) / self.sigma**2
        found = []
        for share in (0.0, 0.5, 1.0) if frequency > 0.0 else (0.0,):
            best = (2.0 * math.pi / step - share * frequency * pull) / self._stiffness(tilt)
            distance, growth = self._growth(max(best, 0.01 * step), tilt, 0.0)
            found.append((alias_error(growth, distance, step), pull * distance))
        return tuple(found)

    def drift(self, tilt: float, *, up: bool) -> float:
        """How far tilting can move the integrand's mass up (or down) from 0.

        The logarithm of the integrand has slope at most (drift - x)/σ², whence its tail bound.
        """
        top, bottom = self.numerator.shifts, self.denominator.shifts
        rise = max(0.0, max(top) if up else -min(top))
        fall = max(0.0, -min(bottom) if up else max(bottom))
        return (tilt + 1.0) * rise + tilt * fall

    def _stiffness(self, tilt: float) -> float:
        """Twice the growth per squared distance from the real line, near it."""
        variance = self.sigma**2
        return 1.0 / variance + tilt * (0.5 * self.denominator.reach / variance) ** 2

    def _growth(self, distance: float, tilt: float, frequency: float) -> tuple[float, float]:
        """A distance within the strip, and ln of the integrand's growth out there.

        Any distance gives a valid error bound; the caller's is about the best.
        """
        variance, bottom = self.sigma**2, self.denominator.reach
        distance = min(distance, 0.9 * math.pi * variance / self.reach)
        angle = distance / variance
        growth = 0.5 * distance * angle + frequency * (self.numerator.reach + bottom) * angle
        return distance, growth - tilt * math.log(math.cos(0.5 * bottom * angle))


@dataclass(frozen=True)
class Nodes:
    """The trapezoid rule for one pair: P puts ``exp(log_mass)`` at ``loss``.

    Attributes:
        pair: The pair whose moment-generating function it integrates.
        step: The distance between nodes.
        strips: Bounds on the rule's error, relative to M: at frequency 0, and how fast ln of it
            grows with the frequency.
        x: The nodes.
        log_top: ln w₊ there.
        log_bottom: ln w₋ there.
        log_noise: ln(step·φ) there.
    """

    pair: MixturePair
    step: float
    strips: tuple[tuple[float, float], ...]
    x: Floats
    log_top: Floats
    log_bottom: Floats
    log_noise: Floats

    @cached_property
    def loss(self) -> Floats:
        """L at the nodes."""
        return self.log_top - self.log_bottom

    @cached_property
    def log_mass(self) -> Floats:
        """Ln of step·P's density at the nodes."""
        return self.log_noise + self.log_top

    @cached_property
    def _mass(self) -> float:
        return float(np.exp(self.log_mass).sum())

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M and its first two derivatives at a real tilt, without their error.

        Dividing by the sum of the masses takes out most of the error of few nodes.
        """
        exponent = self.log_mass + tilt * self.loss
        top = float(exponent.max())
        weights = np.exp(exponent - top)
        total = float(weights.sum())
        mean = float(weights @ self.loss) / total
        spread = self.loss - mean
        variance = float(weights @ (spread * spread)) / total
        return top + math.log(total / self._mass), mean, variance

    def log_mgf_bound(self, tilt: float) -> float:
        """An upper bound on ln M at a real tilt that the nodes serve."""
        exponent = self.log_mass + tilt * self.loss
        top = float(exponent.max())
        log_sum = top + math.log(float(np.exp(exponent - top).sum()))
        truncation = self.truncation_error(tilt) * math.exp(min(-log_sum, 700.0))
        # The last term covers rounding: some hundred nodes of exponents below a thousand.
        return log_sum + math.log1p(truncation) - math.log1p(-self.quadrature_error) + 1e-11

    @cached_property
    def quadrature_error(self) -> float:
        """Bound on the rule's error relative to M, at every real tilt that the nodes serve."""
        return min(error for error, _ in self.strips)

    def quadrature_errors(self, frequencies: Floats) -> Floats:
        """The same off the real line."""
        bounds = [
            error * np.exp(np.minimum(rate * frequencies, 690.0)) for error, rate in self.strips
        ]
        least: Floats = np.minimum.reduce(bounds)
        return least

    def truncation_error(self, tilt: float) -> float:
        """Bound on what the nodes beyond both ends would add, at this tilt (not relative).

        Beyond an end e, ln integrand falls at least as fast as -(x - drift)²/2σ² does, so that the
        rest is at most integrand(e)·σ²/|e - drift|, by the bound on Mills' ratio.
        """
        total = 0.0
        for end, drift in (
            (-1, self.pair.drift(tilt, up=True)),
            (0, -self.pair.drift(tilt, up=False)),
        ):
            log_end = float(self.log_mass[end]) + tilt * float(self.loss[end])
            gap = abs(float(self.x[end]) - drift)
            total += math.exp(min(log_end, 700.0)) * self.pair.sigma**2 / (gap * self.step)
        return total

    def thinned(self, factor: int) -> Nodes:
        """Every so manieth node, for ``off_axis`` and its errors only."""
        return replace(
            self,
            step=factor * self.step,
            x=self.x[::factor],
            log_top=self.log_top[::factor],
            log_bottom=self.log_bottom[::factor],
            log_noise=self.log_noise[::factor] + math.log(factor),
        )

    def off_axis(self, tilt: float, angle: float) -> tuple[Floats, Floats]:
        """Ln |integrand| and |Im L| on the line Im x = σ²·angle, in float64."""
        variance = self.pair.sigma**2
        x = self.x.astype(np.float64)
        top = self.pair.numerator.log_ratio_off_axis(x, variance, angle)
        bottom = self.pair.denominator.log_ratio_off_axis(x, variance, angle)
        modulus = self.log_noise + (tilt + 1.0) * top.real - tilt * bottom.real
        return modulus + 0.5 * variance * angle * angle, np.abs(top.imag - bottom.imag)

    def off_axis_error(self, tilt: float, angle: float, truncation: float) -> float:
        """Bound, relative to M(tilt), on the error of summing ``off_axis``, however damped by Im L.

        ``truncation`` is that of the real line, relative to M(tilt).

        The integrand extends to |Im x| ≤ a as products of w(x ± ib); its damping exp(-u·|Im L|)
        stays ≤ 1 there while (a + b)·k/σ² ≤ π/2, as |Im L| then grows with the distance. What the
        integrand is at most there, relative to the one on the real line, follows as above.
        """
        variance, bottom = self.pair.sigma**2, self.pair.denominator.reach
        strip = min(2.0 * math.pi / self.step, 0.95 * (0.5 * math.pi / self.pair.reach - angle))
        lift = 0.5 * variance * angle**2
        growth = lift + 0.5 * variance * strip**2
        growth -= tilt * math.log(math.cos(0.5 * bottom * (strip + angle)))
        alias = alias_error(growth, strip * variance, self.step)
        beyond = lift - tilt * math.log(math.cos(0.5 * bottom * angle))
        return alias + math.exp(min(beyond, 700.0)) * truncation


def alias_error(log_growth: float, distance: float, step: float) -> float:
    """2·exp(log_growth)/(exp(2π·distance/step) - 1), the trapezoid rule's error bound."""
    periods = 2.0 * math.pi * distance / step
    return 2.0 * math.exp(min(log_growth - periods, 700.0)) / -math.expm1(-periods)
