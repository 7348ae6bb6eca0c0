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
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.enclosure import Resolution, TooSlow
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from tacit.accounting.exact.transforms import Complexes, Floats

_SAFETY = 4.0  # what the first-order rounding model below is multiplied by
_DECAY_DIGITS = 80.0  # -ln of the error of a modulus off the real line: a step may fall that far
_FEW, _FEW_NODES = 4000, 200  # exponentials, and nodes, of which fewer would save no time
_NO_ERROR = 1e-30  # of a transform, far below its rounding: the same bound does for all frequencies
_NOTHING: Floats = np.zeros(1)
_NEGLIGIBLE = 1e-20  # tilted mass that is left out of the sums over u, and charged as truncation


@dataclass(frozen=True)
class MixtureSide:
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

    @cached_property
    def still(self) -> float:
        """The weight that is not shifted: with its own digits, which 1 less the others has not."""
        pairs = zip(self.weights, self.shifts, strict=True)
        return math.fsum(weight for weight, shift in pairs if shift == 0.0)

    @cached_property
    def log_still(self) -> float:
        """Ln of it: next to 1, the digits are in what is shifted."""
        if self.still < 0.5:
            return math.log(self.still) if self.still > 0.0 else -math.inf
        return math.log1p(-math.fsum(weight for weight, _ in self._moving))

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
            return np.zeros(len(x), x.dtype)
        if self._largest_exponent(x, variance) > 80.0 or self.still < 0.5:
            # Where w(x) is far below 1, 1 + expm1(y) would leave nothing of it.
            return self._log_ratio_of_logs(x, variance)
        terms = [a * np.expm1((m * x - 0.5 * m * m) / variance) for a, m in self._moving]
        found: Floats = np.log1p(terms[0] if len(terms) == 1 else np.sum(terms, axis=0))
        return found

    def log_ratio_at(self, x: float, variance: float) -> float:
        """The same of one x."""
        if not self._moving:
            return 0.0
        terms = [(a, (m * x - 0.5 * m * m) / variance) for a, m in self._moving]
        top = max(exponent for _, exponent in terms)
        if top <= 80.0:
            total = sum(a * math.expm1(exponent) for a, exponent in terms)
            if total > -0.5:
                return math.log1p(total)
        top = max(top, 0.0) if self.still > 0.0 else top
        moved = sum(a * math.exp(exponent - top) for a, exponent in terms)
        return top + math.log(self.still * math.exp(-top) + moved)

    def _largest_exponent(self, x: Floats, variance: float) -> float:
        ends = (float(x[0]), float(x[-1]))
        return max((m * end - 0.5 * m * m) / variance for _, m in self._moving for end in ends)

    def _log_ratio_of_logs(self, x: Floats, variance: float) -> Floats:
        logs = [(m, math.log(a)) for a, m in self._moving]
        top = np.full_like(x, self.log_still)
        for m, log_weight in logs:
            np.maximum(top, log_weight + (m * x - 0.5 * m * m) / variance, out=top)
        total = np.exp(self.log_still - top)
        for m, log_weight in logs:
            total += np.exp(log_weight + (m * x - 0.5 * m * m) / variance - top)
        found: Floats = top + np.log(total)
        return found

    def conditioning(self, x: Floats, variance: float, log_ratio: Floats) -> Floats:
        """How much ln w(x) moves, in absolute terms, per relative error of one operation."""
        total = np.abs(log_ratio) if self._moving else log_ratio
        for a, m in self._moving:
            y, log_weight = (m * x - 0.5 * m * m) / variance, math.log(a)
            share = np.exp(np.minimum(y + log_weight - log_ratio, 0.0))
            total = total + share * (np.abs(y) + (1.0 - log_weight))
        return total

    def terms(self, x: Floats, variance: float) -> tuple[Floats, Floats]:
        """Ln of the largest term of w(x) for every x, and all terms relative to it, a row each.

        One scale for all x would leave nothing of small ones. Plain noise has no such terms.
        """
        sizes = np.empty((1 + len(self._moving), len(x)))
        sizes[0] = self.log_still
        for row, (a, m) in zip(sizes[1:], self._moving, strict=True):
            np.add((m * x - 0.5 * m * m) / variance, math.log(a), out=row)
        top = sizes.max(axis=0)
        return top, np.exp(sizes - top, out=sizes)

    def turned(self, terms: tuple[Floats, Floats], angle: float) -> tuple[Floats, Floats]:
        """Real and imaginary part of ln w(x + iσ²·angle), from the terms of w(x).

        It is on the branch that is real at angle 0, for reach·angle < π/2.
        """
        top, sizes = terms
        angles = [m * angle for _, m in self._moving]
        along = np.array([1.0, *map(math.cos, angles)]).dot(sizes)
        across = np.array([0.0, *map(math.sin, angles)]).dot(sizes)
        return top + 0.5 * np.log(along * along + across * across), np.arctan2(across, along)


@dataclass(frozen=True)
class MixturePair:
    """P and Q, both mixtures of shifts of one Gaussian noise; P is the true distribution."""

    sigma: float
    numerator: MixtureSide
    denominator: MixtureSide

    @cached_property
    def reach(self) -> float:
        """The largest |shift| of both."""
        return max(self.numerator.reach, self.denominator.reach)

    @cached_property
    def largest(self) -> float:
        """The supremum of the loss."""
        return -self.denominator.log_still if self.numerator.reach == 0.0 else math.inf

    @cached_property
    def rough_variance(self) -> float:
        """About the variance of the loss: that of the likelihood ratios, capped."""
        return self.numerator.chi_square(self.sigma**2) + self.denominator.chi_square(self.sigma**2)

    def real_line(self, reach: float, digits: float) -> MixtureNodes:
        """Ln M for real tilts up to ``reach``, to about exp(-digits)."""
        return self.nodes(reach, 0.0, digits, Resolution())

    def tilted(
        self, tilt: float, frequency: float, digits: float, resolution: Resolution
    ) -> TiltedMixture:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""
        return tilt_mixture(self, tilt, frequency, digits, resolution)

    def nodes(
        self, tilt: float, frequency: float, digits: float, resolution: Resolution
    ) -> MixtureNodes:
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
        down, up = self.drifts(tilt)
        first, last = math.floor((-down - width) / step), math.ceil((up + width) / step)
        if last - first > resolution.most_outputs:
            raise TooSlow
        x = (step * np.arange(first, last + 1)).astype(resolution.dtype, copy=False)
        variance = self.sigma**2
        log_top = self.numerator.log_ratio(x, variance)
        log_bottom = self.denominator.log_ratio(x, variance)
        constant = math.log(step / self.sigma) - 0.5 * math.log(2.0 * math.pi)
        log_noise = x * x * (-0.5 / variance) + constant
        strips = self._strips(step, tilt, frequency)
        log_mass, loss = log_noise + log_top, log_top - log_bottom
        return MixtureNodes(self, step, strips, x, log_top, log_bottom, log_noise, log_mass, loss)

    def step(self, tilt: float, frequency: float, digits: float) -> float:
        """The distance between nodes at which the rule's error is about exp(-digits)."""
        steps = []
        for stiffness, most in self._choices(tilt):
            best = min(math.sqrt(2.0 * digits / stiffness), most)
            distance, growth = self._growth(best, tilt, frequency)
            steps.append(2.0 * math.pi * distance / (digits + growth))
        if self._is_reverse:
            distance = self._still_distance(tilt, frequency, digits)
            steps.append(2.0 * math.pi * distance / (digits + self._still_growth(distance, tilt)))
        return max(steps)

    @cached_property
    def _is_reverse(self) -> bool:
        """Whether P is plain noise, and Q a mixture of it and of one shift of it."""
        return math.isfinite(self.largest) and len(self.denominator._moving) == 1

    def _still_distance(self, tilt: float, frequency: float, digits: float) -> float:
        """About the best distance at which |w₋^(-z)| is at most still^(-tilt), up to the frequency.

        With w₋ = still·(1 + Q·e^(ikθ)), Q > 0, the derivative of Re(-z·ln w₋) by Q has the sign of
        u·sin kθ - z₀·(cos kθ + Q): it falls from Q = 0 on while tan kθ ≤ z₀/u.
        """
        most = math.atan2(tilt, frequency) / self.denominator.reach
        return self.sigma**2 * min(math.sqrt(2.0 * digits) / self.sigma, 0.999 * most)

    def _still_growth(self, distance: float, tilt: float) -> float:
        """Ln of the integrand's growth at such a distance, relative to M ≥ 1."""
        return 0.5 * (distance / self.sigma) ** 2 + tilt * self.largest

    def _strips(
        self, step: float, tilt: float, frequency: float
    ) -> tuple[tuple[float, float], ...]:
        """Error bounds by strips of several widths: (bound at frequency 0, growth of its ln)."""
        pull = (self.numerator.reach + self.denominator.reach) / self.sigma**2
        found = []
        choices = self._choices(tilt)
        for share in (0.0, 0.5, 1.0) if frequency > 0.0 else (0.0,):
            for stiffness, most in choices:
                best = min((2.0 * math.pi / step - share * frequency * pull) / stiffness, most)
                distance, growth = self._growth(max(best, 0.01 * step), tilt, 0.0)
                found.append((alias_error(growth, distance, step), pull * distance))
        if self._is_reverse:
            digits = 0.5 * (2.0 * math.pi * self.sigma / step) ** 2
            distance = self._still_distance(tilt, frequency, digits)
            found.append((alias_error(self._still_growth(distance, tilt), distance, step), 0.0))
        return tuple(found)

    def drifts(self, tilt: float) -> tuple[float, float]:
        """How far tilting can move the integrand's mass down and up from 0.

        The logarithm of the integrand has slope at most (up - x)/σ², whence its tail bound.
        """
        (up, pulled_up), (down, pulled_down) = self._drifts
        return (tilt + 1.0) * down + tilt * pulled_down, (tilt + 1.0) * up + tilt * pulled_up

    @cached_property
    def _drifts(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Up and down: by how much w₊ moves it for each z + 1, and w₋ for each z."""
        top, bottom, pull = self.numerator.shifts, self.denominator.shifts, self._pull
        up = max(0.0, *top), max(0.0, -min(bottom)) * pull
        return up, (max(0.0, -min(top)), max(0.0, *bottom) * pull)

    @cached_property
    def _pull(self) -> float:
        """How much of w₋ moves, at most, where its shifts pull towards: beyond 0.

        There (ln w₋)' is the mean of the shifts over σ², each by its share of w₋; the shares of
        those other than 0 are largest at 0.
        """
        if not math.isfinite(self.largest):
            return 1.0
        still = math.exp(-self.largest)
        moved = math.fsum(
            a * math.exp(-0.5 * (m / self.sigma) ** 2) for a, m in self.denominator._moving
        )
        return moved / (still + moved)

    def _choices(self, tilt: float) -> list[tuple[float, float]]:
        """Stiffnesses to choose a distance by, and the largest distance that each is good for."""
        choices = [(self._stiffness(tilt), math.inf)]
        if math.isfinite(self.largest):
            right_angle = 0.499 * math.pi * self.sigma**2 / self.denominator.reach
            choices.append((self._stiffness(0.0), right_angle))
        return choices

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
        return distance, growth + self.bottom_growth(tilt, angle)

    def bottom_growth(self, tilt: float, angle: float) -> float:
        """Ln of what |w₋|^(-tilt) grows by at most, relative to M(tilt), at the angle θ.

        Up to a right angle |w₋| is at least the weight of its shift 0, if it has one, and M ≥ 1.
        """
        bottom = self.denominator.reach
        if bottom == 0.0:
            return 0.0
        growth = -tilt * math.log(math.cos(0.5 * bottom * angle))
        return min(growth, tilt * self.largest) if bottom * angle <= 0.5 * math.pi else growth


@dataclass(frozen=True)
class MixtureNodes:
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
        log_mass: ln of step·P's density there.
        loss: L there.
    """

    pair: MixturePair
    step: float
    strips: tuple[tuple[float, float], ...]
    x: Floats
    log_top: Floats
    log_bottom: Floats
    log_noise: Floats
    log_mass: Floats
    loss: Floats

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
        mean = float(weights.dot(self.loss)) / total
        spread = self.loss - mean
        variance = float(weights.dot(spread * spread)) / total
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
        return min(self.strips)[0]

    def quadrature_errors(self, frequencies: Floats) -> float | Floats:
        """The same off the real line: growing with the frequency, the last of which is highest."""
        highest = float(frequencies[-1])
        most = min(error * math.exp(min(rate * highest, 690.0)) for error, rate in self.strips)
        if most < _NO_ERROR:
            return most
        errors, rates = np.array(self.strips).T
        grown = np.exp(np.minimum(np.multiply.outer(rates, frequencies), 690.0))
        least: Floats = (errors[:, None] * grown).min(axis=0)
        return least

    def truncation_error(self, tilt: float) -> float:
        """Bound on what the nodes beyond both ends would add, at this tilt (not relative).

        Beyond an end e, ln integrand falls at least as fast as -(x - drift)²/2σ² does, so that the
        rest is at most integrand(e)·σ²/|e - drift|, by the bound on Mills' ratio.
        """
        down, up = self.pair.drifts(tilt)
        (first, log_first, first_loss), (last, log_last, last_loss) = self._ends
        below = math.exp(min(log_first + tilt * first_loss, 700.0)) / abs(first + down)
        above = math.exp(min(log_last + tilt * last_loss, 700.0)) / abs(last - up)
        return (below + above) * self.pair.sigma**2 / self.step

    @cached_property
    def _ends(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """The first node and the last one, with ln of P's mass and the loss there."""
        x, log_mass, loss = self.x, self.log_mass, self.loss
        first = float(x[0]), float(log_mass[0]), float(loss[0])
        return first, (float(x[-1]), float(log_mass[-1]), float(loss[-1]))

    def thinned(self, factor: int) -> MixtureNodes:
        """Every ``factor``-th node, for ``off_axis`` and its errors only."""
        return MixtureNodes(
            self.pair,
            factor * self.step,
            self.strips,
            self.x[::factor],
            self.log_top[::factor],
            self.log_bottom[::factor],
            self.log_noise[::factor] + math.log(factor),
            self.log_mass[::factor] + math.log(factor),
            self.loss[::factor],
        )

    def off_axis(self, tilt: float, angle: float) -> tuple[Floats, Floats]:
        """Ln |integrand| and |Im L| on the line Im x = σ²·angle, in float64."""
        variance, (top, bottom) = self.pair.sigma**2, self._terms
        modulus, turned = self.log_noise + 0.5 * variance * angle * angle, _NOTHING
        if top is not None:
            log_size, turned = self.pair.numerator.turned(top, angle)
            modulus = modulus + (tilt + 1.0) * log_size
        if bottom is not None:
            log_size, other = self.pair.denominator.turned(bottom, angle)
            modulus, turned = modulus - tilt * log_size, turned - other
        return modulus, np.abs(turned)

    @cached_property
    def _terms(self) -> tuple[tuple[Floats, Floats] | None, tuple[Floats, Floats] | None]:
        """The terms of w₊ and of w₋, which every angle turns; None of plain noise, which is 1."""
        x, variance = self.x.astype(np.float64, copy=False), self.pair.sigma**2
        top, bottom = self.pair.numerator, self.pair.denominator
        return (
            top.terms(x, variance) if top.reach > 0.0 else None,
            bottom.terms(x, variance) if bottom.reach > 0.0 else None,
        )

    def off_axis_error(self, tilt: float, angle: float, truncation: float) -> float:
        """Bound, relative to M(tilt), on the error of summing ``off_axis``, however damped by Im L.

        ``truncation`` is that of the real line, relative to M(tilt).

        The integrand extends to |Im x| ≤ a as products of w(x ± ib); its damping exp(-u·|Im L|)
        stays ≤ 1 there while (a + b)·k/σ² ≤ π/2, as |Im L| then grows with the distance. What the
        integrand is at most there, relative to the one on the real line, follows as above.
        """
        variance = self.pair.sigma**2
        strip = min(2.0 * math.pi / self.step, 0.95 * (0.5 * math.pi / self.pair.reach - angle))
        lift = 0.5 * variance * angle**2
        growth = lift + 0.5 * variance * strip**2
        growth += self.pair.bottom_growth(tilt, strip + angle)
        alias = alias_error(growth, strip * variance, self.step)
        beyond = lift - tilt * math.log(math.cos(0.5 * self.pair.denominator.reach * angle))
        missed = math.exp(min(beyond, 700.0)) * truncation
        if math.isfinite(self.pair.largest):
            # As in ``bottom_growth``: |w₋| is at least the weight of its shift 0, and M ≥ 1.
            level = min(lift + tilt * self.pair.largest, 700.0)
            missed = min(missed, math.exp(level) * self._noise_beyond)
        return alias + missed

    @cached_property
    def _noise_beyond(self) -> float:
        """What N(0, σ²) has beyond the nodes, rounded up."""
        unit = math.sqrt(2.0) * self.pair.sigma
        first, last = float(self.x[0]) / unit, float(self.x[-1]) / unit
        return 0.505 * (math.erfc(-first) + math.erfc(last)) + 1e-300


def alias_error(log_growth: float, distance: float, step: float) -> float:
    """2·exp(log_growth)/(exp(2π·distance/step) - 1), the trapezoid rule's error bound."""
    periods = 2.0 * math.pi * distance / step
    return 2.0 * math.exp(min(log_growth - periods, 700.0)) / -math.expm1(-periods)


# ---- the transform along one vertical line of the complex plane, errors included


@dataclass(frozen=True)
class TiltedMixture:
    """M(z)/M(tilt) for Re z = tilt, from the nodes that carry the tilted mass.

    Attributes:
        log_mgf: ln M(tilt).
        log_mgf_error: Bounds on its error.
        centre: The mean of L under P tilted by exp(tilt·L); phases are taken relative to it.
        spread: The losses at the nodes, less the centre.
        mass: The tilted mass at the nodes.
        truncation: A bound on the tilted mass beyond the nodes.
        left_out: The tilted mass of nodes that are left out of the sums over u.
        rounding: See ``_rounding``: of the ratio.
    """

    nodes: MixtureNodes
    tilt: float
    log_mgf: float
    log_mgf_error: NodeErrors
    centre: float
    spread: Floats
    mass: Floats
    truncation: float
    left_out: float
    rounding: tuple[float, float, float]

    @property
    def size(self) -> int:
        """How many numbers one frequency costs."""
        return len(self.mass)

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        return turned_sums(frequencies, self.spread, self.mass)

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        flat, slope, phase = self.rounding
        rounding = np.minimum(2.0 * flat, slope * frequencies) + phase * frequencies
        # Neither the true ratio nor the computed one is larger than about 1 in size.
        off = self.nodes.quadrature_errors(frequencies)
        quadrature = self.nodes.quadrature_error + np.minimum(off, 2.1)
        return NodeErrors(2.0 * (self.truncation + self.left_out), quadrature, rounding)

    def log_decay(self, frequency: float, thorough: bool) -> float:
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency.

        The line of integration moves to Im x = σ²·angle, where exp(iuL) shrinks like
        exp(-u·|Im L|): the more, the larger u. Any angle gives a bound.
        """
        widest = 0.8 * 0.5 * math.pi / self.nodes.pair.reach
        slope, sigma = self._mean_slope, self.nodes.pair.sigma
        best = frequency * slope / (1.0 + (frequency * slope * sigma) ** 2)
        angles = [min(best, widest)]
        if thorough:
            # Few steps: each must fall far, and does at the angle of a Gaussian loss of that slope.
            angles += [min(3.0 * best, widest), 0.6 * widest, min(frequency * slope, widest)]
        return min(0.0, *(self._log_decay_at(frequency, angle) for angle in angles))

    def _log_decay_at(self, frequency: float, angle: float) -> float:
        nodes, truncation = self._off_axis
        log_modulus, damping = nodes.off_axis(self.tilt, angle)
        exponent = log_modulus - self.log_mgf - frequency * damping
        total = float(np.exp(np.minimum(exponent, 600.0)).sum())
        error = nodes.off_axis_error(self.tilt, angle, truncation)
        return math.log(total * (1.0 + 1e-10) + error)

    @cached_property
    def _off_axis(self) -> tuple[MixtureNodes, float]:
        """Nodes for a modulus, which turns no phases and needs fewer, and the mass beyond them."""
        pair, nodes = self.nodes.pair, self.nodes
        if len(nodes.x) <= _FEW_NODES:
            return nodes, self.truncation
        few = nodes.thinned(max(1, int(pair.step(self.tilt, 0.0, _DECAY_DIGITS) / nodes.step)))
        return few, few.truncation_error(self.tilt) * math.exp(min(-self.log_mgf, 700.0))

    @cached_property
    def _mean_slope(self) -> float:
        """About E|dL/dx| under the tilted mass (a guide to the angle, no bound)."""
        climbs = np.abs(self.spread[1:] - self.spread[:-1])
        return float(self.mass[1:].dot(climbs)) / self.nodes.step


def turned_sums(frequencies: Floats, spread: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Real and imaginary part of Σ mass·(exp(iuy) - 1) over the spread y, at equally spaced u.

    exp(i(a+b)y) - 1 = AB + A + B for A = exp(iay) - 1 and B = exp(iby) - 1: a matrix product of
    some √n rows each does for n rows of exponentials, and keeps their digits where y is small. Of
    few they are not worth it.
    """
    count = len(frequencies)
    if count * len(mass) < _FEW:
        square, tangent = _half_turns(frequencies, spread)
        return -2.0 * square.dot(mass), 2.0 * tangent.dot(mass)
    fine = math.ceil(math.sqrt(count))
    low = turns(frequencies[:fine], spread)
    high = turns(frequencies[::fine], spread)
    weighted = low * mass
    table = high @ weighted.T
    table += (high @ mass)[:, None] + weighted.sum(axis=1)
    ratio = table.ravel()[:count]
    return ratio.real, ratio.imag


def turns(frequencies: Floats, spread: Floats) -> Complexes:
    """exp(iuy) - 1 for every frequency u and spread y."""
    square, tangent = _half_turns(frequencies, spread)
    turns = np.empty(square.shape, np.result_type(square.dtype, np.complex64))
    np.multiply(square, -2.0, out=turns.real)
    np.multiply(tangent, 2.0, out=turns.imag)
    return turns


def _half_turns(frequencies: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """sin² and sin·cos of uy/2, of which exp(iuy) - 1 = -2·sin² + 2i·sin·cos.

    With t = tan(uy/2) they are t²/(1 + t²) and t/(1 + t²), as exact as t is in relative terms: one
    tangent takes a fraction of a sine's time where the processor computes many at once.
    """
    tangent = np.tan(np.multiply.outer(0.5 * frequencies.astype(spread.dtype, copy=False), spread))
    square = tangent * tangent
    whole = square + 1.0
    square /= whole
    tangent /= whole
    return square, tangent


def tilt_mixture(
    pair: MixturePair, tilt: float, frequency: float, digits: float, resolution: Resolution
) -> TiltedMixture:
    """Lays nodes for Re z = tilt and |Im z| ≤ frequency and bounds what they get wrong."""
    nodes = pair.nodes(tilt, frequency, digits, resolution)
    plain = np.exp(nodes.log_mass)
    scaled = tilt * nodes.loss
    exponent = nodes.log_mass + scaled
    highest = float(exponent.max())
    if highest > 500.0:
        total = float(np.exp(exponent - highest).sum())
        log_mgf = highest + math.log(total)
        deviation = np.exp(exponent - log_mgf)
    else:
        small = np.minimum(np.maximum(scaled, -1.0), 1.0)
        excess = np.where(small == scaled, plain * np.expm1(small), np.exp(exponent) - plain)
        log_mgf = math.log1p(float(excess.sum()))
        deviation = np.abs(excess) * math.exp(-log_mgf)
    tilted = np.exp(exponent - log_mgf)
    centre = float(tilted.dot(nodes.loss)) / float(tilted.sum())
    spread = nodes.loss - centre
    of_sum, *of_ratio = _rounding(nodes, tilt, log_mgf, deviation, tilted, np.abs(spread))
    unit = _SAFETY * resolution.unit_roundoff
    truncation = nodes.truncation_error(tilt) * math.exp(-log_mgf)
    error = NodeErrors(
        truncation + nodes.truncation_error(0.0), 2.0 * nodes.quadrature_error, unit * of_sum
    )
    keep = _carrying(tilted)
    left_out = float(tilted[: keep.start].sum() + tilted[keep.stop :].sum())
    return TiltedMixture(
        nodes,
        tilt,
        log_mgf,
        error.as_log(),
        float(nodes.loss.dtype.type(centre)),
        spread[keep],
        tilted[keep],
        truncation,
        left_out,
        (unit * of_ratio[0], unit * of_ratio[1], unit * of_ratio[2]),
    )


def _carrying(mass: Floats) -> slice:
    """The smallest run of nodes outside which no node carries mass that matters."""
    (where,) = np.nonzero(mass > _NEGLIGIBLE)
    return slice(int(where[0]), int(where[-1]) + 1)


def _rounding(
    nodes: MixtureNodes,
    tilt: float,
    log_mgf: float,
    deviation: Floats,
    tilted: Floats,
    distance: Floats,
) -> tuple[float, float, float, float]:
    """First-order rounding errors, in units of the arithmetic's roundoff.

    The first is that of the sum that gives M(tilt), relative to M(tilt). That of
    M(tilt+iu)/M(tilt) - 1 is at most min(2·second, u·third) + u·fourth.
    """
    pair, x = nodes.pair, nodes.x
    variance = pair.sigma**2
    of_top = pair.numerator.conditioning(x, variance, nodes.log_top)
    of_loss = of_top + pair.denominator.conditioning(x, variance, nodes.log_bottom)
    of_noise = np.abs(nodes.log_noise) + x * x / variance
    of_mass = of_noise + np.abs(nodes.log_mass) + of_top
    per_term = of_mass + (1.0 + len(x) + abs(log_mgf))
    of_scaled = tilt * (np.abs(nodes.loss) + of_loss)
    of_sum = float(deviation.dot(per_term) + tilted.dot(of_scaled))
    weighted = tilted * (per_term + of_scaled)
    flat, slope = float(weighted.sum()), float(weighted.dot(distance))
    return of_sum, flat, slope, float(tilted.dot(of_loss + distance))
