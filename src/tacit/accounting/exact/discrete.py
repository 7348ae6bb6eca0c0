"""Discrete noise: δ(ε) as a sum of probabilities, all of one sign, so that no digit cancels.

**One discrete Gaussian.** With X the noise and s the distance, the loss of the output x is
l(x) = (s² - 2sx)/2σ², and

    δ(ε) = Σ_{l(x) > ε} P(X = x)·(1 - exp(ε - l(x))) ,

a sum over the x below a bound, which is cut where the rest is negligible.

**Many of them.** The losses of T releases add up to (Ts² - 2s·ΣX_i)/2σ², a function of the noises'
sum alone. For σ ≥ ½ that sum has the law of a discrete Gaussian of variance Tσ², each probability
up to a factor within exp(±τ), τ = 10·Σ_{k<T} exp(-2π²σ²·k/(k+1)) (Kairouz, Liu & Steinke 2021).
Proof: complete the square for two of variances a² and b². P(X + Y = n) is proportional to
exp(-n²/2(a² + b²))·Σ_x exp(-(x - c)²/2v²), with 1/v² = 1/a² + 1/b² and a c that depends on n. By
Poisson summation that sum is v√2π·(1 ± e) whatever c, e = 2Σ_{j ≥ 1} exp(-2π²v²j²), which is at
most 2.01·exp(-2π²v²) for v² ≥ ⅛, so that two such sums differ by a factor within
exp(±5·exp(-2π²v²)). One release more than k has v² = σ²·k/(k+1), and such factors pass through a
convolution unchanged: they add up to half of τ. T releases are then one of σ√T and distance Ts: for
σ ≥ 2 to all digits.

**Little noise, any lattice of few losses.** The probabilities of a sum of T losses, tilted by
exp(tL)/M(t), come out of one discrete Fourier transform. With K(l) = e^{-t(l - ε)}·(1 - e^{ε - l})
above ε and 0 below, δ(ε) = M(t)^T·exp(-tε)·Σ r_k·K(l_k). An error of the tilted law in the sum of
its absolute values counts max K-fold, one in the root of the sum of its squares ‖K‖-fold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.fft import irfft, next_fast_len
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from tacit.accounting import gaussian_profile
from tacit.accounting.exact.closed_forms import GaussianProfile
from tacit.accounting.exact.contour import log_chernoff_constant
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, TooSlow, solve_convex

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.exact.lattice import LatticeComposition
    from tacit.accounting.exact.transforms import Complexes, Floats

_UNIT = 2.0**-53
_LEAST, _ENOUGH = 0.5, 2.0  # σ from which τ is known; from which a dual sum has two terms
_LARGE = 1e4  # σ from which there is no need to sum
_FAR = 12.0  # standard deviations: e^-72 lies beyond
_MOST_MASSES, _MOST_POINTS, _MOST_WORK = 300, 1 << 17, 6_000_000
_OUTSIDE = 40.0  # -ln of the tilted mass that is left outside of a table
_LEAST_TILT, _MOST_TILT = 1e-6, 1e4


# ---- the discrete Gaussian, in closed form


def log_normaliser(sigma: float) -> float:
    """Ln Σ_x exp(-x²/2σ²): by Poisson summation where σ is not small."""
    variance = sigma * sigma
    if sigma > _ENOUGH:
        # The dual sum's next terms are below exp(-2π²·4·4).
        tail = 2.0 * math.exp(-2.0 * math.pi**2 * variance)
        return math.log(sigma) + 0.5 * math.log(2.0 * math.pi) + math.log1p(tail)
    x = np.arange(1.0, math.ceil(40.0 * sigma) + 3.0)
    return math.log1p(2.0 * math.fsum(np.exp(-0.5 * x * x / variance).tolist()))


@dataclass(frozen=True)
class DiscreteGaussianProfile:
    """δ(ε) of discrete Gaussian noise of ``sigma`` at ``distance``, each probability to ``slack``.

    Attributes:
        sigma: σ, in integers.
        distance: s, by how many of them neighbours differ.
        slack: A bound on the relative error of each probability, beside rounding.
    """

    sigma: float
    distance: int
    slack: float = 0.0

    @cached_property
    def _variance(self) -> float:
        return self.sigma * self.sigma

    @cached_property
    def _log_normaliser(self) -> float:
        return log_normaliser(self.sigma)

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        variance, shift = self._variance, float(self.distance)
        # l(x) > ε below this; a whole number that rounding puts on the wrong side adds nothing.
        most = math.ceil(_FAR * self.sigma) + 1.0
        last = min(float(math.ceil(0.5 * shift - epsilon * variance / shift) - 1), most)
        x = last - np.arange(self._terms(last), dtype=np.float64)
        exponents = -0.5 * x * x / variance - self._log_normaliser
        excess = shift * (0.5 * shift - x) / variance - epsilon
        p = np.exp(exponents)
        terms = p * -np.expm1(-np.maximum(excess, 0.0, out=excess))
        value, total = float(terms.sum()), float(p.sum())
        # Exponents err by their size, losses by theirs.
        rounding = (16.0 + math.log2(len(x) + 1.0)) * value - 4.0 * float((terms * exponents).sum())
        rounding += 4.0 * (abs(epsilon) * total + float((p * excess).sum()))
        errors = ErrorTerms(
            truncation=self.slack * value + self._beyond(1.0 - float(x[-1])) + self._beyond(most),
            rounding=2.0 * _UNIT * rounding,
        )
        return Enclosure(value, errors, value - total)

    def guess(self, delta: float) -> float:
        """About ε(δ)."""
        start = gaussian_profile.epsilon(self.distance / self.sigma, delta)
        return solve_convex(self, delta, start)

    def _terms(self, last: float) -> int:
        """How many whole numbers from ``last`` down hold all but about e^-46 of what is below."""
        span = math.sqrt(max(0.0, -last) ** 2 + 92.0 * self._variance)
        return math.ceil(span + last) + 3

    def _beyond(self, first: float) -> float:
        """Bound on the probability of all whole numbers from ``first`` > 0 on."""
        log_p = -0.5 * first * first / self._variance - self._log_normaliser
        return math.exp(max(log_p, -745.0)) / -math.expm1(-(first + 0.5) / self._variance)


@dataclass(frozen=True)
class WideProfile:
    """The same of so large a σ that a sum over whole numbers x is next to an integral.

    δ(ε) = Σ f(x), f = g·(1 - e^{ε - l})₊ with g a normal density, for by Poisson summation the
    normaliser is that of the continuous law; and Σ f = ∫ f + Σ_{k≠0} ∫ f·e^{-2πikx} dx. Where
    l = ε, at x₀, f' jumps by a·g, a = s/σ² being the slope of l, which gives

        Σ f = ∫ f - a·g(x₀)·B₂({x₀})/2 + rest ,   B₂(θ) = θ² - θ + 1/6 = Σ_{k≥1} cos(2πkθ)/(π²k²) ,

    and the rest, once more in parts, is at most 2ζ(3)/(2π)³ < 1/100 times the variation of f''
    beside it: |2a·g' + a²·g| at x₀, and below x₀ the integral over |g⁽³⁾| + 3a·|g''| + 3a²·|g'| +
    a³·g, which is no less than that over |f⁽³⁾|.
    """

    sigma: float
    distance: int
    slack: float = 0.0

    @cached_property
    def _smooth(self) -> GaussianProfile:
        return GaussianProfile(self.distance / self.sigma)

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        found, mu, sigma = self._smooth.enclose(epsilon), self._smooth.mu, self.sigma
        steep, place = mu / sigma, 0.5 * mu - epsilon / mu  # a, and x₀ in standard deviations
        density = math.exp(max(-0.5 * place * place, -745.0)) / math.sqrt(2.0 * math.pi)
        jump, middle = steep * density / sigma, sigma * place
        theta = middle % 1.0
        value = found.estimate - 0.5 * jump * (theta * theta - theta + 1.0 / 6.0)
        # The integrals of |y|, 1 + y² and 3|y| + |y|³ times the density, for g's derivatives.
        below, far = float(ndtr(place)) + 1e-300, place > 0.0
        first = 1.0 if far else density
        second = 2.0 if far else 2.0 * below - place * density
        third = 5.0 if far else (place * place + 5.0) * density
        bent = steep * density * (2.0 * abs(place) / sigma + steep) / sigma
        bent += third / sigma**3 + 3.0 * steep * second / sigma**2
        bent += 3.0 * steep**2 * first / sigma + steep**3 * below
        moved = 8.0 * _UNIT * (abs(middle) + self.distance + 1.0)
        errors = replace(
            found.errors,
            truncation=self.slack * found.estimate,
            quadrature=0.01 * bent * (1.0 + 1e-9),
            rounding=found.errors.rounding + jump * moved,
        )
        return Enclosure(max(0.0, value), errors, found.slope)

    def guess(self, delta: float) -> float:
        """About ε(δ)."""
        return self._smooth.guess(delta)


def discrete_gaussian_profile(
    sigma: float, distance: int, count: int
) -> DiscreteGaussianProfile | WideProfile | None:
    """The profile of ``count`` releases; None where their sum is not near a discrete Gaussian."""
    if count == 1 and sigma <= _LARGE:
        return DiscreteGaussianProfile(sigma, distance)
    if sigma < _LEAST or count * distance > 2**52:
        return None
    # k/(k+1) is 1/2 for the first term and at least 2/3 for the others.
    first, others = -(math.pi**2) * sigma**2, -4.0 * math.pi**2 * sigma**2 / 3.0
    log_tau = np.logaddexp(first, others + math.log(count)) + math.log(10.0)
    slack = math.expm1(2.0 * math.exp(min(float(log_tau), 0.0)))
    if slack > 1e-10:
        return None
    total = math.sqrt(count) * sigma
    kind = WideProfile if total > _LARGE else DiscreteGaussianProfile
    return kind(total, count * distance, slack)


# ---- few losses on a lattice, by a table of all their sums


@dataclass(frozen=True, eq=False)
class LossTable:
    """δ(ε) of a sum of losses: Σ_k r_k·K(l_k), times exp(``log_scale`` - ``tilt``·ε).

    Attributes:
        tilt: t.
        log_scale: ln M(t) of all losses together.
        losses: The values l_k of the sum, rising.
        masses: Its tilted probabilities r_k.
        error_of_sum: A bound on Σ|error of r_k|, what is left outside included.
        error_of_squares: A bound on what else is wrong with r, as the root of its sum of squares.
        error_of_scale: A bound on the relative error of exp(``log_scale``).
        lost: The probability of losses that are left out, before tilting.
    """

    tilt: float
    log_scale: float
    losses: Floats
    masses: Floats
    error_of_sum: float
    error_of_squares: float
    error_of_scale: float
    lost: float = 0.0

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        start = int(np.searchsorted(self.losses, epsilon, side="right"))
        excess = self.losses[start:] - epsilon
        kept = self.masses[start:]
        falling = np.exp(-self.tilt * excess)
        kernel = falling * -np.expm1(-excess)
        value = float((kept * kernel).sum())
        slope = value - float((kept * falling).sum())
        size = float(np.abs(self.losses[[0, -1]]).max()) + abs(epsilon)
        rounding = self.error_of_squares * math.sqrt(float((kernel * kernel).sum()))
        # Rounded losses shift the excess, and the exponents by the tilt times as much.
        shifted = 4.0 * _UNIT * size * (self.tilt + 1.0) * float((np.abs(kept) * falling).sum())
        per_value = self.error_of_scale + _UNIT * (
            32.0 + 2.0 * math.log2(len(kept) + 1.0) + abs(self.log_scale) + self.tilt * size
        )
        rounding += shifted + per_value * abs(value)
        missing = self.error_of_sum * math.exp(log_chernoff_constant(self.tilt))
        scale = math.exp(min(self.log_scale - self.tilt * epsilon, 700.0))
        return Enclosure(
            max(0.0, scale * value),
            ErrorTerms(truncation=scale * missing + self.lost, rounding=scale * rounding),
            scale * slope,
        )

    def guess(self, delta: float) -> float:
        """About ε(δ): between two losses δ is linear in e^ε."""
        low, high = 0, len(self.losses) - 1  # δ is above at the one, and 0 at the other
        if not self.enclose(float(self.losses[0])).upper > delta:
            return max(0.0, float(self.losses[0]))
        while high - low > 1:
            middle = (low + high) // 2
            # Far below, δ drowns in its errors.
            above = self.enclose(float(self.losses[middle])).upper > delta
            low, high = (middle, high) if above else (low, middle)
        start = float(self.losses[low])
        found = self.enclose(start)
        gap = (found.estimate - delta) / -found.slope if found.slope < 0.0 else 0.0
        return max(0.0, min(start + math.log1p(max(gap, 0.0)), float(self.losses[high])))


def table_for_delta(composition: LatticeComposition, delta: float) -> LossTable:
    """A table that is sharp where δ(ε) is about ``delta``.

    Raises:
        TooSlow: if it would be too large.
    """
    goal = math.log(delta)

    def epsilon(tilt: float) -> float:
        return (_log_mgf(composition, tilt) + log_chernoff_constant(tilt) - goal) / tilt

    return _lay(composition, _best_tilt(composition, epsilon))


def table_for_epsilon(composition: LatticeComposition, epsilon: float) -> LossTable:
    """A table that is sharp at ``epsilon``; raises as ``table_for_delta`` does."""

    def log_delta(tilt: float) -> float:
        return _log_mgf(composition, tilt) + log_chernoff_constant(tilt) - tilt * epsilon

    return _lay(composition, _best_tilt(composition, log_delta))


def _best_tilt(composition: LatticeComposition, objective: Callable[[float], float]) -> float:
    """About the tilt at which Chernoff's bound is least: any is valid."""
    if max(len(loss.support) for loss, _ in composition) > _MOST_MASSES:
        raise TooSlow
    reach = max(float(np.abs(loss.losses).max()) for loss, _ in composition)
    most = min(_MOST_TILT, 1e5 / max(reach, 1e-3))
    if most < 10.0 * _LEAST_TILT:
        raise TooSlow
    found = minimize_scalar(
        lambda log_tilt: objective(math.exp(log_tilt)),
        bounds=(math.log(_LEAST_TILT), math.log(most)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return math.exp(float(found.x))


def _log_mgf(composition: LatticeComposition, tilt: float) -> float:
    return math.fsum(count * loss.moments(tilt)[0] for loss, count in composition)


def _lay(composition: LatticeComposition, tilt: float) -> LossTable:
    """Tilts the losses, transforms, multiplies, transforms back, and bounds every error."""
    spacing = composition[0][0].spacing
    moments = [(loss.moments(tilt), count) for loss, count in composition]
    log_scale = math.fsum(count * one[0] for one, count in moments)
    offset = math.fsum(count * loss.offset for loss, count in composition)
    low, high, outside = _window(composition, tilt, log_scale, spacing, offset)
    size = next_fast_len(high - low + 1, real=True)
    if size > _MOST_POINTS:
        raise TooSlow
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    error, of_sum, place = np.zeros(len(product)), outside, 0
    for (loss, count), (one, _) in zip(composition, moments, strict=True):
        exponents = loss.log_masses + tilt * loss.losses - one[0]
        mass = np.exp(exponents)
        sizes = 8.0 + 4.0 * (np.abs(loss.log_masses) + np.abs(tilt * loss.losses) + abs(one[0]))
        relative = np.minimum(loss.mass_error, 8.0 * _UNIT * (4.0 + np.abs(loss.log_masses)))
        beyond = loss.truncation(tilt) * math.exp(min(-one[0], 700.0))
        of_sum += count * (float((mass * (relative + _UNIT * sizes)).sum()) + beyond)
        single, off = _transform(mass, loss.support, size)
        modulus = np.abs(single)
        power = single**count
        # |a^n - b^n| ≤ n·(|a| + off)^(n-1)·off, and the rounding of the power itself.
        grown = count * np.exp((count - 1) * np.log(np.maximum(modulus + off, 1e-300))) * off
        grown += 8.0 * _UNIT * count * np.abs(power)
        error = error * (np.abs(power) + grown) + np.abs(product) * grown
        product = product * power
        place += count * loss.first
    turned = irfft(product, size)
    # ‖Δr‖ = ‖ΔG‖/√N; a transform errs by 6u·log₂N of its root of squares (Higham 2002, Thm 24.2).
    half = math.sqrt(2.0 / size)
    of_squares = half * float(np.linalg.norm(error))
    of_squares += 8.0 * _UNIT * (math.log2(size) + 1.0) * half * float(np.linalg.norm(product))
    index = np.arange(low, low + size)
    return LossTable(
        tilt=tilt,
        log_scale=log_scale,
        losses=offset + spacing * index,
        masses=np.roll(turned, -((low - place) % size)),
        error_of_sum=3.0 * of_sum if of_sum < 0.1 else math.inf,
        error_of_squares=of_squares,
        error_of_scale=math.expm1(min(3.0 * of_sum, 1.0)),
    )


def _transform(mass: Floats, support: NDArray[np.intp], size: int) -> tuple[Complexes, float]:
    """Σ_j mass_j·exp(-2πi·jk/N) for k up to N/2; roots of unity from a list, so that none errs."""
    if size * len(mass) > _MOST_WORK:
        raise TooSlow
    roots = np.exp(-2j * np.pi * np.arange(size) / size)
    turns = np.multiply.outer(np.arange(size // 2 + 1), support % size) % size
    return roots[turns] @ mass, _UNIT * (16.0 + len(mass))


def _window(
    composition: LatticeComposition, tilt: float, log_scale: float, spacing: float, offset: float
) -> tuple[int, int, float]:
    """Indices between which all but about e^-40 of the tilted sum lies, and what does not.

    By Chernoff: its probability above x is at most M(t₁)/M(t)·exp(-(t₁ - t)x) for t₁ > t, and the
    same below with t₁ < t.
    """
    first = sum(count * (loss.first + int(loss.support[0])) for loss, count in composition)
    last = sum(count * (loss.first + int(loss.support[-1])) for loss, count in composition)
    variance = math.fsum(count * loss.moments(tilt)[2] for loss, count in composition)
    step = math.sqrt(2.0 * _OUTSIDE / max(variance, 1e-300))
    low, high, outside = first, last, 0.0
    for sign in (1.0, -1.0):
        edges = []
        for factor in (1.0, 0.6, 0.3, 1.7):
            off = sign * factor * step
            if tilt + off <= -0.9:
                continue
            edges.append((_log_mgf_bound(composition, tilt + off) - log_scale + _OUTSIDE) / off)
        if not edges:
            continue
        edge = (min(edges) if sign > 0.0 else max(edges)) - offset
        if sign > 0.0 and edge < spacing * last:
            high, outside = math.ceil(edge / spacing), outside + math.exp(-_OUTSIDE)
        if sign < 0.0 and edge > spacing * first:
            low, outside = math.floor(edge / spacing), outside + math.exp(-_OUTSIDE)
    return low, max(high, low + 1), 4.0 * outside


def _log_mgf_bound(composition: LatticeComposition, tilt: float) -> float:
    """Ln M rounded up, at a tilt of either sign."""
    total = 0.0
    for loss, count in composition:
        reach = 0.0 if tilt >= 0.0 else -tilt * float(np.abs(loss.losses).max())
        total += count * (loss.log_mgf_bound(tilt) + 32.0 * _UNIT * reach)
    return total
