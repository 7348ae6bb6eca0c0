"""Rare sampling: the profile of many or few steps whose loss now and then jumps.

A step that takes the record with probability q has the loss λ(y) = ln(1 - q + q·eʸ), y ~ N(±1/2σ²,
1/σ²): next to nothing, but for jumps that are as rare as they are large. ln M then explodes at a
tilt far below 1/ε, and no one contour is good for both the many small losses and the jumps. Hence
the law of a step is split at a loss near ε, smoothly, into M = B + J, and

    δ(ε) = 1/(2πi) ∫ B(z)ᵀ·e^{-zε}/(z(z+1)) dz + 1/(2πi) ∫ (M(z)ᵀ - B(z)ᵀ)·e^{-zε}/(z(z+1)) dz ,

each through a saddle point of its own. Neither has more than a few digits to cancel.

Both run along a hyperbola z(t) = κ + r·cosh(t + iα), which bends to the right: the losses have
densities that continue analytically, so that the integrand keeps falling there, and some hundred
nodes serve losses of every size (Weideman & Trefethen 2007, for contours that bend to the left).
Likewise the integrals over y run along curves y(s) = s + iβ(s) that rise where e^{zλ} turns fast.

Errors: for g analytic in |Im t| ≤ d the trapezoid rule of step h is off by at most
(N₊ + N₋)/(e^{2πd/h} - 1), with N± = ∫|g(t ± id)|dt (Trefethen & Weideman 2014, Theorem 5.1). Along
a fixed curve, ln ∫|w(s)|·e^{Re((z+1)λ(s))}ds is a convex function of (Re z, Im z), and so is ln of
the bound on the integrand that follows from it: on a triangle it is largest at a corner. N± is
bounded by such triangles around arcs of the hyperbola.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.accounting.exact.contour import log_chernoff_constant
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, Interval, TooSlow, invert
from tacit.accounting.exact.jump_curves import LIFT, Curves, Sums, log1p
from tacit.accounting.exact.jump_scout import NOTHING, Saddle, Scout

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.exact.jump_curves import AnyFloats, Cut, Part, Step
    from tacit.accounting.exact.transforms import Complexes, Floats

DIGITS = 32.0
"""-ln of the relative error that the step between nodes of a hyperbola is chosen for."""
_ANGLE, _TURN = 1.27, 0.26  # α and d: the displaced hyperbolas have the angles α ± d
_LOW = 8.0  # standard deviations of y below its mean at which curves begin
_BAND = 0.7  # in ln Im z: nodes this near to each other share a curve
_AHEAD = 0.7  # how much later than for bounds the curves rise on which sums are taken
_TIGHT = 1e-9  # a width of ε, over max(1, ε), that is narrow enough
_MANY = 1_000_000  # steps
_RETRY = 1e-9  # an error past which other curves are tried
_UNIT = 2.0**-53


class Contour:
    """One part of δ(ε), as a sum along a hyperbola, for ε near one."""

    def __init__(self, step: Step, cut: Cut, saddle: Saddle, epsilon: float, part: Part) -> None:
        self._step, self._part, self._jumps = step, part, part == "jumps"
        self._scale = (saddle.right - saddle.left) / (2.0 * math.sin(_ANGLE) * math.sin(_TURN))
        self._centre = saddle.right - self._scale * math.cos(_ANGLE - _TURN)
        self._spacing = 2.0 * math.pi * _TURN / DIGITS
        with np.errstate(all="ignore"):
            self._prepare(cut, saddle, epsilon)

    def _prepare(self, cut: Cut, saddle: Saddle, epsilon: float) -> None:
        edges = self._edges(epsilon, self._rise(cut, saddle))
        lines = [self._cells(edges, _ANGLE + turn) for turn in (0.0, _TURN, -_TURN)]
        middles = np.concatenate([line.middles for line in lines])
        self._curves = self._lay_curves(middles, cut, saddle)
        bounds = self._bounds(np.concatenate([line.corners for line in lines]), middles, epsilon)
        self._lines = list(zip(lines, np.split(bounds, len(lines)), strict=True))
        self._last = self._last_edge(epsilon)
        t = np.arange(0.0, edges[self._last], self._spacing)
        z, turn = self._hyperbola(t, _ANGLE)
        self._z = z
        self._lay(z, turn, self._sums(z))

    def _lay_curves(self, middles: Complexes, cut: Cut, saddle: Saddle) -> Curves:
        """Curves for every size of Im z; the first one has risen everywhere."""
        starts = self._starts(middles)
        count = math.ceil((starts.max() + _AHEAD - starts.min()) / _BAND) + 1
        self._bands = starts.min() + _BAND * np.arange(count)
        index = np.clip(np.round((starts - self._bands[0]) / _BAND).astype(int), 0, count - 1)
        tops = np.ones(count)
        steepest = 1.2 * middles.imag / middles.real
        if not self._jumps:
            # Across the cut the best height is loss·Im z/sharpness.
            steepest = np.minimum(steepest, 1.5 * middles.imag * cut.loss / cut.sharpness)
        np.minimum.at(tops, index, np.maximum(steepest, 0.02))
        np.minimum.at(tops, np.minimum(index + 1, count - 1), tops[index])
        rises = np.concatenate([[-60.0], self._bands]), np.concatenate([[1.0], tops])
        return Curves(
            self._step, cut, rises, _span(self._step, cut, saddle, self._part), self._part
        )

    def _curve_of(self, starts: Floats) -> NDArray[np.int64]:
        index = np.round((starts - self._bands[0]) / _BAND).astype(np.int64)
        found: NDArray[np.int64] = 1 + np.clip(index, 0, len(self._bands) - 1)
        return found

    def _bounds(self, corners: Complexes, middles: Complexes, epsilon: float) -> Floats:
        """Ln of bounds on the integrand but for e^{-zε}/(z(z+1)), by the best curve of each."""
        index = self._curve_of(self._starts(middles))
        best = self._log_bounds(corners, index)
        for shift in (1, -1, 2, -2, 3):
            height = (best - epsilon * corners.real).max(axis=1)
            bad = np.flatnonzero(~(height <= height[0] + 4.0))
            other = index[bad] + shift
            bad, other = bad[other < len(self._bands) + 1], other[other < len(self._bands) + 1]
            bad, other = bad[other > 0], other[other > 0]
            if len(bad):
                found = self._log_bounds(corners[bad], other)
                better = (found - epsilon * corners[bad].real).max(axis=1) < height[bad]
                best[bad[better]] = found[better]
        return best

    def _log_bounds(self, corners: Complexes, index: NDArray[np.int64]) -> Floats:
        power = corners.ravel() + 1.0
        whole, above = _by_curve(self._curves.log_sizes, power, np.repeat(index, 3))
        return _log_power(self._step, power, whole, above, jumps=self._jumps).reshape(-1, 3)

    def _sums(self, z: Complexes) -> Sums:
        index = self._curve_of(self._starts(z) + _AHEAD)
        power = z + 1.0
        best = [*_by_curve(self._curves.sums, power, index)]
        for shift in (1, -1, 2, -2, 3):
            scale = self._step.count * best[1]
            bad = np.flatnonzero(~(scale <= _RETRY))
            other = index[bad] + shift
            bad = bad[(other > 0) & (other <= len(self._bands))]
            if len(bad):
                found = _by_curve(self._curves.sums, power[bad], index[bad] + shift)
                better = found[1] + found[3] < best[1][bad] + best[3][bad]
                for old, new in zip(best, found, strict=True):
                    old[bad[better]] = new[better]
        return Sums(*best)

    def _rise(self, cut: Cut, saddle: Saddle) -> float:
        """Ln of the bound on the integrand along the curve that has risen everywhere."""
        rises = np.array([-60.0]), np.array([1.0])
        span = _span(self._step, cut, saddle, self._part)
        risen = Curves(self._step, cut, rises, span, self._part)
        whole, _ = risen.log_sizes(np.array([0.0j]), 0)
        return self._step.count * max(float(whole[0]), 0.0)

    def _edges(self, epsilon: float, rise: float) -> Floats:
        """The ends of arcs, up to where the curve that has risen everywhere bounds the rest."""
        span = epsilon * self._scale * math.cos(_ANGLE - _TURN)
        near = math.acosh(1.5 + (DIGITS + 12.0) / span)
        if not math.isfinite(rise):
            raise TooSlow
        far = math.acosh(2.0 + (rise + 80.0) / (span * math.cos(_ANGLE + _TURN)))
        near = min(near, far)
        fine, coarse = np.arange(0.0, 1.5, 0.25), np.arange(1.5, near, 0.4)
        return np.concatenate([fine, coarse, np.arange(max(near, 1.5), far + 0.5, 0.5)])

    def _last_edge(self, epsilon: float) -> int:
        """The first edge beyond which the integrand adds nothing."""
        line, bound = self._lines[0]
        height = (bound - epsilon * line.corners.real).max(axis=1)
        rest = np.cumsum((line.share * np.exp(height - height[0]))[::-1])[::-1]
        small = np.flatnonzero(rest < math.exp(-DIGITS - 6.0))
        return int(small[0]) if len(small) else len(line.share)

    def _rest(self, epsilon: float, line: Cells) -> float:
        """A bound on ∫|f dz| beyond the last arc of a line."""
        z = line.corners[-1:, 1]
        angle = min(float(np.angle(z + 1.0)[0]), line.angle) - 1e-9
        if self._curves.least_angle() + angle < 0.5 * math.pi:
            return math.inf
        whole, above = self._curves.log_sizes(np.array([0.0j]), 0)
        height = _log_power(self._step, z + 1.0, whole, above, jumps=self._jumps) - epsilon * z.real
        length = 1.0 / (epsilon * math.cos(line.angle)) / float(abs(z[0])) ** 2
        return float(np.exp(height[0])) * length

    def _hyperbola(self, t: Floats, angle: float) -> tuple[Complexes, Complexes]:
        place = t + 1j * angle
        return self._centre + self._scale * np.cosh(place), self._scale * np.sinh(place)

    def _starts(self, z: Complexes) -> Floats:
        step = self._step
        with np.errstate(divide="ignore"):
            start = math.log(LIFT * step.variance / step.odds) - np.log(z.imag)
        return np.clip(start + 1.0, -60.0, step.knee + 8.0)

    def _cells(self, edges: Floats, angle: float) -> Cells:
        first, last = edges[:-1], edges[1:]
        middle, half = 0.5 * (first + last), 0.5 * (last - first)
        meet = math.cos(angle) * np.cosh(middle) / np.cosh(half) + 1j * math.sin(angle) * np.sinh(
            middle
        ) / np.cosh(half)
        corners = np.stack(
            [
                self._hyperbola(first, angle)[0],
                self._hyperbola(last, angle)[0],
                self._centre + self._scale * meet,
            ],
            axis=1,
        )
        least = corners.real.min(axis=1) + 1j * corners.imag.min(axis=1)
        speed = np.abs(self._hyperbola(last, angle)[1])
        share = 2.0 * half * speed / np.abs(least * (least + 1.0))
        return Cells(angle, corners, self._hyperbola(middle, angle)[0], share)

    def _lay(self, z: Complexes, turn: Complexes, found: Sums) -> None:
        """Ln of the integrand but for e^{-zε}, and ln of the error of each term."""
        step, count = self._step, self._step.count
        least = math.log1p(-step.rate)
        one = 1.0 + found.deviation
        log_power = count * ((z + 1.0) * least + log1p(found.deviation))
        weight = turn * self._spacing / (1j * math.pi * z * (z + 1.0))
        weight[0] *= 0.5
        size = np.abs(one)
        base = count * (z.real + 1.0) * least + np.log(np.abs(weight))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self._jumps:
                share = -np.expm1(count * log1p(-found.jumps / one))
                log_term = log_power + np.log(share)
                jump = np.abs(found.jumps)
                most = size + jump + found.error + found.jumps_error
                powers = np.exp(base + (count - 1) * np.log(most))
                error = powers * count * found.jumps_error
                error += powers / most * count**2 * (jump + found.jumps_error) * found.error
            else:
                log_term = log_power
                error = np.exp(base + count * np.log(size)) * np.expm1(
                    count * np.log1p(found.error / size)
                )
        self._log_terms = log_term + np.log(weight)
        work = np.abs(self._log_terms)
        error += 8.0 * _UNIT * (work + len(z)) * np.exp(self._log_terms.real)
        self._errors = np.where(np.isnan(error), np.inf, error)

    def enclose(self, epsilon: float) -> Enclosure:
        """This part of δ(ε), with its errors: infinite ones where floating-point numbers end."""
        with np.errstate(all="ignore"):
            found = self._enclose(epsilon) if epsilon > 0.0 else _UNKNOWN
        return found if math.isfinite(found.errors.above + found.estimate) else _UNKNOWN

    def _enclose(self, epsilon: float) -> Enclosure:
        z = self._z
        terms = np.exp(self._log_terms - z * epsilon)
        value, slope = float(terms.real.sum()), -float((z * terms).real.sum())
        fall = np.exp(-z.real * epsilon)
        rounding = float((self._errors * fall).sum())
        rounding += 8.0 * _UNIT * epsilon * float((np.abs(z) * np.abs(terms)).sum())
        swept = []
        for line, bound in self._lines:
            height = (bound - epsilon * line.corners.real).max(axis=1)
            arcs = line.share * np.exp(height)
            begin = self._last if line is self._lines[0][0] else 0
            swept.append(float(arcs[begin:].sum()) + self._rest(epsilon, line))
        folds = math.expm1(2.0 * math.pi * _TURN / self._spacing)
        errors = ErrorTerms(
            rounding=rounding,
            quadrature=(swept[1] + swept[2]) / (math.pi * folds),
            tail=2.0 * swept[0] / math.pi,  # an arc is longer than the step between nodes
        )
        return Enclosure(value, errors, slope)


def _span(step: Step, cut: Cut, saddle: Saddle, part: Part) -> tuple[float, float]:
    """Where curves begin and end."""
    low = -0.5 / step.variance - _LOW / step.sigma
    if part == "ordinary":
        last = cut.loss * math.exp(cut.fade)
        return low, step.knee + (math.log(math.expm1(last)) if last < 30.0 else last)
    far = (saddle.right + 0.5) / step.variance
    return low, max(far, 0.5 / step.variance) + 10.0 / step.sigma


def _log_power(
    step: Step, power: Complexes, whole: AnyFloats, above: AnyFloats, *, jumps: bool
) -> Floats:
    """Ln of a bound on |Bᵀ|, or on |Mᵀ - Bᵀ| ≤ T·|J|·max(|M|, |B|)ᵀ⁻¹."""
    found: Floats = step.count * (power.real * math.log1p(-step.rate) + whole.real)
    if jumps:
        found = found + math.log(step.count) + above.real - whole.real
    return np.where(np.isnan(found), np.inf, found)


def _by_curve(
    evaluate: Callable[[Complexes, int], tuple[AnyFloats, ...]],
    z: Complexes,
    index: NDArray[np.int64],
) -> tuple[AnyFloats, ...]:
    """Evaluates every z along its own curve, curve by curve."""
    order = np.argsort(index, kind="stable")
    edges = np.flatnonzero(np.diff(index[order])) + 1
    found = [evaluate(z[which], int(index[which[0]])) for which in np.split(order, edges)]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return tuple(np.concatenate(columns)[back] for columns in zip(*found, strict=True))


class Cells(NamedTuple):
    """Arcs of a displaced hyperbola, the triangles around them, and ∫|dz/(z(z+1))|, at most."""

    angle: float
    corners: Complexes
    middles: Complexes
    share: Floats


_UNKNOWN = Enclosure(0.0, ErrorTerms(tail=math.inf), 0.0)


@dataclass(frozen=True, eq=False)
class JumpProfile:
    """δ(ε), sharp near one ε: the sum of its parts."""

    parts: tuple[Contour | Negligible, ...]

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        found = [part.enclose(epsilon) for part in self.parts]
        errors = ErrorTerms(
            quadrature=math.fsum(one.errors.quadrature for one in found),
            rounding=math.fsum(one.errors.rounding for one in found),
            tail=math.fsum(one.errors.tail for one in found),
            truncation=math.fsum(one.errors.truncation for one in found),
        )
        value = math.fsum(one.estimate for one in found)
        return Enclosure(value, errors, math.fsum(one.slope for one in found))


@dataclass(frozen=True)
class Negligible:
    """A part that is next to nothing: at most exp(log_most - tilt·ε), by Chernoff's bound."""

    tilt: float
    log_most: float

    def enclose(self, epsilon: float) -> Enclosure:
        """Between 0 and the bound."""
        most = math.exp(min(self.log_most - self.tilt * epsilon, 700.0))
        return Enclosure(0.0, ErrorTerms(truncation=most), 0.0)


def _negligible(step: Step, cut: Cut, tilt: float, part: Part) -> Negligible:
    """The bound at ``tilt`` ≥ 0; at 0 it is the probability that there is a jump."""
    rises = np.array([60.0]), np.array([0.02])
    place = Saddle(tilt, tilt, 0.0)
    with np.errstate(all="ignore"):
        curves = Curves(step, cut, rises, _span(step, cut, place, part), part)
        power = np.array([tilt + 1.0 + 0.0j])
        sizes = curves.log_sizes(power, 0)
        log_most = float(_log_power(step, power, *sizes, jumps=part == "jumps")[0])
    constant = log_chernoff_constant(tilt) if tilt > 0.0 else 0.0
    return Negligible(tilt, (log_most + constant) * (1.0 + 1e-12) + 1e-9)


def lay_jumps(scout: Scout, epsilon: float, delta: float) -> JumpProfile:
    """The profile, sharp about (ε, δ), by the first cut that gives all digits, or the best of all.

    Raises:
        TooSlow: if none gives any.
    """
    best, least = None, math.inf
    for index in dict.fromkeys(scout.best_cuts(epsilon)[0]):
        if best is not None and scout.step.count > _MANY:
            break  # rounding is what leaves digits out
        try:
            profile = _split(scout, index, epsilon, delta)
        except TooSlow:
            continue
        found = profile.enclose(epsilon)
        if found.errors.above < min(least, 0.1 * found.estimate):
            best, least = profile, found.errors.above
        if least <= _TIGHT * max(1.0, epsilon) * abs(found.slope):
            break
    if best is None:
        raise TooSlow
    return best


def _split(scout: Scout, index: int, epsilon: float, delta: float) -> JumpProfile:
    step, cut = scout.step, scout.cuts[index]
    parts: list[Contour | Negligible] = []
    nothing = math.log(NOTHING * delta)
    kinds: tuple[Part, ...] = ("ordinary", "jumps")
    for part in kinds:
        if part == "jumps" and scout.jump_mass[index] < NOTHING * delta:
            parts.append(_negligible(step, cut, 0.0, part))
            continue
        saddle = scout.saddle(index, epsilon, jumps=part == "jumps")
        if saddle.log_height + math.log(saddle.right) < nothing:
            parts.append(_negligible(step, cut, math.sqrt(saddle.left * saddle.right), part))
        else:
            parts.append(Contour(step, cut, saddle, epsilon, part))
        at = parts[-1].enclose(epsilon)
        if at.errors.above > max(at.estimate, delta):
            raise TooSlow
    return JumpProfile(tuple(parts))


def profile_with_jumps(step: Step, delta: float) -> tuple[JumpProfile, Interval] | None:
    """The profile about δ and certified ends of ε(δ), if there is a contour."""
    scout = Scout(step)
    guess = scout.epsilon(math.log(delta))
    found: tuple[JumpProfile, Interval] | None = None
    for _ in range(5):
        try:
            profile = lay_jumps(scout, guess, delta)
        except TooSlow:
            break
        at = profile.enclose(guess)
        if not at.slope < 0.0:
            break
        excess = math.log(at.estimate / delta)
        nearer = guess - excess * at.estimate / at.slope
        if abs(excess) < 1.0:
            ends = replace(invert(profile, delta, max(0.0, nearer)), method="jumps")
            if found is None or ends.width < found[1].width:
                found = profile, ends
            if ends.width <= 2.0 * _TIGHT * max(1.0, ends.upper) or abs(excess) < 0.05:
                break
        guess = min(max(nearer, guess / 3.0), 3.0 * guess)
    return found


def delta_with_jumps(step: Step, epsilon: float) -> Enclosure | None:
    """δ(ε) with its errors, if there is a contour."""
    scout = Scout(step)
    try:
        return lay_jumps(scout, epsilon, math.exp(scout.best_cuts(epsilon)[1])).enclose(epsilon)
    except TooSlow:
        return None
