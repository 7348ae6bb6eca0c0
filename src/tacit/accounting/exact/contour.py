"""The privacy profile as a contour integral, by the trapezoid rule, with every error bounded.

For a loss L with moment-generating function M(z) = E_P[exp(zL)] and any tilt z₀ > 0,

    δ(ε) = E_P[(1 - exp(ε - L))₊] = 1/(2πi) ∫_{Re z = z₀} M(z)·exp(-zε)/(z(z+1)) dz ,

since (1 - exp(-y))₊ is the inverse Laplace transform of 1/(z(z+1)). Composition multiplies the M.
The trapezoid rule with step du gives, by Poisson summation, exactly Σ_k δ(ε + kS)·exp(kSz₀) with
S = 2π/du; ``Aliases`` bounds the copies. Cutting the sum at u costs at most |M(z₀+iu)|/(πu), for
which the transforms bound their own decay.

``SaddleSearch`` finds the tilt: a poor choice costs speed or width, never validity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.transforms import compose, scale_errors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, Resolution
    from tacit.accounting.exact.transforms import (
        Complexes,
        Composition,
        Floats,
        RealLine,
        RealLoss,
        Spectrum,
        Transforms,
    )

Composed_contra = TypeVar("Composed_contra", contravariant=True)
Laid_co = TypeVar("Laid_co", covariant=True)

_LEAST_TILT, _MOST_TILT = 1e-9, 1e13
_AHEAD = 3.0
_CLIFF = 1e-6  # how near to a cliff, in ln z, the search ends
_FEW_TERMS, _BLOCK = 256, 64  # of a sum that is one inner product; of a part of a longer one
_RETREATS = (1.0, 0.97, 0.9, 0.75, 0.5, 0.25)


# ---- the saddle point


@dataclass(frozen=True)
class Point:
    """A tilt z on the real line, with ln M and its first two derivatives there."""

    tilt: float
    log_mgf: float
    mean: float
    variance: float

    @property
    def saddle_epsilon(self) -> float:
        """The ε whose integrand exp(ln M(z) - zε)/(z(z+1)) has its saddle here."""
        return self.mean - 1.0 / self.tilt - 1.0 / (self.tilt + 1.0)

    @property
    def curvature(self) -> float:
        """The second derivative of the integrand's logarithm."""
        return self.variance + self.tilt**-2 + (self.tilt + 1.0) ** -2

    @property
    def log_height(self) -> float:
        """Ln δ + tilt·ε by the saddle-point approximation."""
        width = 0.5 * math.log(2.0 * math.pi * self.curvature)
        return self.log_mgf - math.log(self.tilt * (self.tilt + 1.0)) - width


@dataclass(frozen=True)
class Aim:
    """Through which tilt to integrate, and about which (ε, ln δ) the integral is to be sharp."""

    point: Point
    epsilon: float
    log_delta: float

    @property
    def tilt(self) -> float:
        """The real part of the contour."""
        return self.point.tilt


class SaddleSearch:
    """Looks along the real line: ln M of a composition at real tilts, approximately.

    Tilts up to ``most_tilt`` are tried.
    """

    def __init__(
        self, composition: Sequence[tuple[RealLoss, int]], most_tilt: float = _MOST_TILT
    ) -> None:
        self._composition = composition
        self._most_tilt = most_tilt
        self._reach = 0.0
        self._lines: list[tuple[RealLine, int]] = []

    def at(self, tilt: float, reach: float) -> Point:
        """Ln M and its derivatives at ``tilt``; new nodes, if any are laid, go up to ``reach``."""
        self._extend(tilt, reach)
        log_mgf = mean = variance = 0.0
        for line, count in self._lines:
            one = line.moments(tilt)
            log_mgf += count * one[0]
            mean += count * one[1]
            variance += count * one[2]
        return Point(tilt, log_mgf, mean, variance)

    def log_mgf_bound(self, tilt: float) -> float:
        """A certain upper bound on ln M at ``tilt``."""
        self._extend(tilt, tilt)
        return math.fsum(count * line.log_mgf_bound(tilt) for line, count in self._lines)

    def _extend(self, tilt: float, reach: float) -> None:
        if tilt > self._reach:
            self._reach = max(reach, tilt)
            self._lines = [
                (loss.real_line(self._reach, 12.0 + math.log(count)), count)
                for loss, count in self._composition
            ]

    def for_delta(self, delta: float) -> Aim:
        """Aims at ``delta``."""
        goal = math.log(delta)
        variance = math.fsum(count * loss.rough_variance for loss, count in self._composition)
        guess = math.sqrt(max(-2.0 * goal, 1.0) / max(variance, 1e-300))
        point = self._solve(lambda at: at.log_height - at.tilt * at.saddle_epsilon - goal, guess)
        return _aim_at_delta(point, goal)

    def for_epsilon(self, epsilon: float, guess: float = 2.0, care: float = 1.0) -> Aim:
        """Aims at ``epsilon``; with less ``care``, less exactly."""
        point = self._solve(lambda at: (epsilon - at.saddle_epsilon) * at.tilt, guess, care)
        return _aim_at_epsilon(point, epsilon)

    def retreat(self, aim: Aim, factor: float) -> Aim:
        """The same ε through a smaller tilt: less sharp, but farther from where ln M explodes."""
        tilt = factor * aim.tilt
        return _aim_at_epsilon(self.at(tilt, _AHEAD * tilt), aim.epsilon)

    def _solve(self, above: Callable[[Point], float], guess: float, care: float = 1.0) -> Point:
        """Safeguarded Newton iteration in ln z for a function that falls as z grows.

        Its slope is about -z²·curvature. Where rare outputs take over, ln M explodes and the
        function falls off a cliff; the iteration then ends on the near side.
        """
        low, high = math.log(_LEAST_TILT), math.log(self._most_tilt)
        place = min(max(math.log(guess), low), high)
        # Far enough for the steps to come, and for the tilt that bounds the aliases.
        point = self.at(math.exp(place), reach=_AHEAD * math.exp(place))
        near = None
        for _ in range(80):
            excess = above(point)
            low, high = (place, high) if excess > 0.0 else (low, place)
            near = point if excess > 0.0 else near
            step = min(max(excess / (point.tilt**2 * point.curvature), -2.0), 2.0)
            if care * abs(step) < 0.05 and care * abs(excess) < 0.3:
                return point
            if high - low < _CLIFF and near is not None:
                return near
            if excess < -10.0:
                # Beyond the cliff Newton's steps are too short by far.
                step = min(step, -0.25)
            place = place + step if low < place + step < high else 0.5 * (low + high)
            point = self.at(math.exp(place), reach=_AHEAD * math.exp(place))
        return point


def _aim_at_delta(point: Point, log_delta: float) -> Aim:
    return Aim(point, (point.log_height - log_delta) / point.tilt, log_delta)


def _aim_at_epsilon(point: Point, epsilon: float) -> Aim:
    return Aim(point, epsilon, min(0.0, point.log_height - point.tilt * epsilon))


# ---- the copies that the trapezoid rule folds onto δ(ε)


@dataclass(frozen=True)
class Aliases:
    """Bounds the copies for one tilt: how far apart must they lie?

    With period S and tilt z₀ the rule returns Σ_k δ(ε + kS)·exp(kSz₀). The copies below ε add at
    most Σ_{k≥1} exp(-kSz₀), since δ ≤ 1. Those above are bounded by Chernoff at a larger tilt z₁:
    δ(x) ≤ c(z₁)·exp(ln M(z₁) - z₁x), with c(z) = max_y (1 - e^{-y})·e^{-zy}.

    Attributes:
        tilt: z₀.
        above: z₁ > z₀.
        log_mgf_above: An upper bound on ln M(z₁).
    """

    tilt: float
    above: float
    log_mgf_above: float

    def bound(self, epsilon: float, period: float) -> float:
        """What all copies together add to δ(ε), at most."""
        below = _geometric_sum(self.tilt * period)
        exponent = self.log_mgf_above - self.above * epsilon + log_chernoff_constant(self.above)
        return below + math.exp(min(exponent, 700.0)) * _geometric_sum(
            (self.above - self.tilt) * period
        )

    def period(self, aim: Aim, digits: float) -> float:
        """The shortest period at which the bound is about exp(-digits)·δ."""
        return max(
            _period_below(aim, digits), _period_above(aim, self.above, self.log_mgf_above, digits)
        )


def bound_aliases(search: SaddleSearch, aim: Aim, digits: float) -> Aliases:
    """Chooses the tilt above the contour's whose Chernoff bound lets the period be shortest."""
    offset = math.sqrt(2.0 * digits / aim.point.curvature)
    best, shortest = Aliases(aim.tilt, aim.tilt + offset, math.inf), math.inf
    enough = _period_below(aim, digits)
    for _ in range(60):
        offset *= 0.65
        tilt = aim.tilt + offset
        log_mgf = search.log_mgf_bound(tilt)
        period = _period_above(aim, tilt, log_mgf, digits)
        if period > shortest:
            break
        best, shortest = Aliases(aim.tilt, tilt, log_mgf), period
        if period <= enough:
            break
    return best


def _period_below(aim: Aim, digits: float) -> float:
    """The shortest period at which the copies below ε are about exp(-digits)·δ."""
    return (digits - aim.log_delta) / aim.tilt


def _period_above(aim: Aim, tilt: float, log_mgf: float, digits: float) -> float:
    exponent = log_mgf - tilt * aim.epsilon + log_chernoff_constant(tilt)
    return (exponent + digits - aim.log_delta) / (tilt - aim.tilt)


def log_chernoff_constant(tilt: float) -> float:
    """Ln max_y (1 - e^{-y})·e^{-tilt·y}."""
    return tilt * math.log(tilt) - (tilt + 1.0) * math.log(tilt + 1.0)


def _geometric_sum(exponent: float) -> float:
    """Σ_{k≥1} exp(-k·exponent)."""
    return 1.0 / math.expm1(exponent) if exponent < 700.0 else 0.0


# ---- the integral


@dataclass(frozen=True, eq=False)
class Contour:
    """δ(ε) = exp(ln M(z₀) - z₀ε)·Re Σ_k coefficients_k·exp(iu_k(centre - ε)), near one ε.

    Attributes:
        spectrum: The transform at the nodes.
        coefficients: (du/π)·values/(z(z+1)), halved at u = 0.
        slopes: The same without the factor 1/z, for dδ/dε.
        errors: Bounds on the errors of the sum by cause, in units of exp(ln M(z₀) - z₀ε).
        aliases: Bounds on the copies that the rule folds in.
        period: S = 2π/du.
        digits: -ln of the relative error that it was laid for.
    """

    spectrum: Spectrum
    coefficients: Complexes
    slopes: Complexes
    errors: ErrorTerms
    aliases: Aliases
    period: float
    digits: float

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        spectrum = self.spectrum
        turn = np.exp(1j * ((spectrum.centre - epsilon) * spectrum.frequencies))
        value, slope = _real_sum(self.coefficients, turn), -float(self.slopes.dot(turn).real)
        aliasing = self.aliases.bound(epsilon, self.period)
        return spectrum.enclose(epsilon, value, slope, self.errors, aliasing)


def _real_sum(one: Complexes, other: Complexes) -> float:
    """Re Σ one·other, where terms are many in blocks: rounding grows with the length of a sum."""
    if len(one) <= _FEW_TERMS:
        return float(one.dot(other).real)
    blocks = np.add.reduceat((one * other).real, np.arange(0, len(one), _BLOCK))
    return float(blocks.sum())


def _terms(length: int) -> int:
    """To how many others a term of that sum is added, at most."""
    return length if length <= _FEW_TERMS else _BLOCK + math.ceil(length / _BLOCK)


def lay_contour(
    composition: Composition, search: SaddleSearch, aim: Aim, resolution: Resolution
) -> Contour:
    """Places the nodes for ε near ``aim.epsilon`` and evaluates the transforms there.

    Raises:
        TooSlow: if that takes more nodes than the resolution allows.
    """
    aliases = bound_aliases(search, aim, resolution.digits)
    period = aliases.period(aim, resolution.digits) * resolution.contour_density
    transforms, frequencies, log_tail = _reach(composition, aim, period, resolution)
    spectrum = compose(transforms, aim.tilt, frequencies, resolution.unit_roundoff)
    coefficients, slopes, errors = _terms_of(spectrum, log_tail)
    return Contour(spectrum, coefficients, slopes, errors, aliases, period, resolution.digits)


def _terms_of(spectrum: Spectrum, log_tail: float) -> tuple[Complexes, Complexes, ErrorTerms]:
    """A contour's coefficients, those of its slope, and the errors of the sum."""
    z = spectrum.tilts
    beyond, width = z + 1.0, float(spectrum.frequencies[1]) / math.pi
    slopes = width * spectrum.values / beyond
    slopes[0] *= 0.5
    kernel = width / np.abs(z * beyond)
    kernel[0] *= 0.5
    errors = spectrum.errors_against(kernel, math.exp(log_tail), _terms(len(z)))
    return slopes / z, slopes, errors


def certify_beside(
    other: Contour, composition: Composition, epsilon: float, delta: float, resolution: Resolution
) -> bool:
    """Whether a sum along ``other``'s line certifies δ(``epsilon``) ≤ ``delta`` of a composition.

    The two directions of a sampled mechanism have similar losses: a line that suits one of them
    suits the other, and no saddle needs to be looked for. Nor need the copies that the rule folds
    in be bounded, for they only ever add to δ. Chernoff's bound, for which M on the real line is
    enough, is tried first. Where the line does not suit, nothing is certified.
    """
    tilt, log_delta = other.spectrum.tilt, math.log(delta)
    coarser = math.sqrt(resolution.digits / other.digits)
    step = 2.0 * math.pi / max(coarser * other.period, (resolution.digits - log_delta) / tilt)
    nodes = math.ceil(coarser * float(other.spectrum.frequencies[-1]) / step)
    transforms = _transforms(composition, tilt, nodes * step * (1.0 + 1e-12), resolution)
    log_scale = math.fsum([count * transform.log_mgf for transform, count in transforms])
    goal = log_delta + tilt * epsilon - log_scale
    off = math.log1p(scale_errors_of(transforms).above)
    off += 1e-12 * (1.0 + tilt * epsilon + abs(log_scale))  # the rounding of ``goal``
    if log_chernoff_constant(tilt) + off <= goal:
        return True
    log_tail = _log_tail(transforms, nodes * step, goal - resolution.digits)
    work = nodes * max(transform.size for transform, _ in transforms)
    if not log_tail < goal or work > resolution.most_work:
        return False
    spectrum = compose(transforms, tilt, step * np.arange(nodes + 1), resolution.unit_roundoff)
    coefficients, _, errors = _terms_of(spectrum, log_tail)
    turn = np.exp(1j * ((spectrum.centre - epsilon) * spectrum.frequencies))
    value = _real_sum(coefficients, turn)
    return spectrum.enclose(epsilon, value, 0.0, errors, math.inf).upper <= delta


def _reach(
    composition: Composition, aim: Aim, period: float, resolution: Resolution
) -> tuple[Transforms, Floats, float]:
    """Transforms, the frequencies of the nodes, and ln of the tail beyond the last of them.

    No node lies beyond the frequency that the transforms were laid for: their bounds end there.
    """
    goal = aim.log_delta + aim.tilt * aim.epsilon - aim.point.log_mgf - resolution.digits
    highest = 1.3 * math.sqrt(2.0 * resolution.digits / aim.point.curvature)
    step = 2.0 * math.pi / period
    while True:
        farthest = max(1.25 * highest, 1.01 * step)
        transforms = _transforms(composition, aim.tilt, farthest * (1.0 + 1e-12), resolution)
        most = math.floor(farthest / step)
        for last in (highest, farthest):
            log_tail = _log_tail(transforms, last, goal)
            if log_tail <= goal and resolution.contour_reach == 1.0:
                return transforms, *_nodes_up_to(last, step, most, log_tail)
            if log_tail <= goal:
                cut = resolution.contour_reach * last
                log_tail = _log_tail(transforms, cut, -math.inf)
                return transforms, *_nodes_up_to(cut, step, most, log_tail)
        farther = 1.1 * math.sqrt((resolution.digits + 9.0) / max(1.0, -log_tail))
        highest *= min(2.0, max(1.25, farther))  # on and on, even where the goal is lower still
        largest = max(transform.size for transform, _ in transforms)
        if highest / step > min(resolution.most_nodes, resolution.most_work / largest):
            raise TooSlow


def _nodes_up_to(last: float, step: float, most: int, log_tail: float) -> tuple[Floats, float]:
    """Frequencies up to the first past ``last``, but ``most``, and ln of the tail beyond them.

    Φ is bounded from ``last`` on, and so at all nodes that are left out; Σ du/(π·u²) over these is
    at most 1/πu of the last that is not.
    """
    nodes = min(math.ceil(last / step), most)
    log_tail += max(0.0, math.log(last / (nodes * step)))
    return step * np.arange(nodes + 1), log_tail


def _transforms(
    composition: Composition, tilt: float, frequency: float, resolution: Resolution
) -> Transforms:
    digits = 3.0 + resolution.digits
    return [
        (loss.tilted(tilt, frequency, digits + math.log(count), resolution), count)
        for loss, count in composition
    ]


def _log_tail(transforms: Transforms, frequency: float, goal: float) -> float:
    """Ln of a bound on the sum beyond ``frequency``: |Φ|·Σ du/(π·u²), Φ bounded by its decay.

    Works harder at the bound only if the first one is above ``goal``.
    """
    log_sum = -math.log(math.pi * frequency)
    for thorough in (False, True):
        decays = [n * transform.log_decay(frequency, thorough) for transform, n in transforms]
        log_tail = log_sum + math.fsum(decays)
        if log_tail <= goal:
            break
    return log_tail


# ---- other tilts, where the best is out of reach


class Lay(Protocol[Composed_contra, Laid_co]):
    """Lays nodes for a composition about an aim, or raises ``TooSlow``."""

    def __call__(
        self,
        composition: Composed_contra,
        search: SaddleSearch,
        aim: Aim,
        resolution: Resolution,
        /,
    ) -> Laid_co:
        """The sum over the nodes."""


def lay_within_reach(
    lay: Lay[Composed_contra, Laid_co],
    composition: Composed_contra,
    search: SaddleSearch,
    aim: Aim,
    resolution: Resolution,
) -> Iterator[tuple[Laid_co, Aim]]:
    """Sums through ever smaller tilts, those that take few enough nodes.

    Close to the tilt at which ln M explodes the copies that the trapezoid rule folds in are far
    off, and the period long; farther from it the sum loses digits, but not validity.
    """
    for factor in _RETREATS if resolution.other_tilts else _RETREATS[:1]:
        try:
            nearer = aim if factor == 1.0 else search.retreat(aim, factor)
            laid = lay(composition, search, nearer, resolution)
        except TooSlow:
            continue
        yield laid, nearer
