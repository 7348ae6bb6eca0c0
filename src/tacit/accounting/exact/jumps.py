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
(N₊ + N₋)/(e^{2πd/h} - 1), with N± = ∫|g(t ± id)|dt (Trefethen & Weideman 2014, Theorem 5.1). |B|
and |J| are bounded by sums of exponentials of convex functions of (Re z, Im z) (see
``jump_curves``), so that ln of the bound on the integrand is convex, and largest at a corner of any
triangle. An arc of a hyperbola lies in the triangle of its chord and its two tangents, which bounds
N±; the same triangles bound what the sums for B and J leave out at the nodes. |Mᵀ - Bᵀ| is at most
T·|J|·max(|M|, |B|)ᵀ⁻¹. To the right of the last arc the integrand falls like e^{-zε}.

A Gaussian release without sampling multiplies both integrands by exp(μ²·z(z+1)/2), which falls
between the directions π/4 and 3π/4 and so on every one of the hyperbolas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.accounting.exact.contour import log_chernoff_constant
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, TooSlow
from tacit.accounting.exact.jump_curves import LIFT, Curves, Step, Sums, by_curve, log1p
from tacit.accounting.exact.jump_scout import LOOSE, NOTHING, Saddle, Scout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.accounting.exact.jump_curves import AnyFloats, Cut, Part
    from tacit.accounting.exact.transforms import Complexes, Floats

DIGITS = 28.0
"""-ln of the relative error that the step between nodes of a hyperbola is chosen for."""
ANGLE, _TURN = 1.27, 0.26
"""α, and d: the displaced hyperbolas have the angles α ± d."""
_LOW, _HIGH = 8.0, 8.5  # standard deviations of y from where its mass is, at which curves end
_BAND = 1.0  # in ln Im z: nodes this near to each other share a curve,
_WIDE, _STEEP = 2.0, 6.0  # nearer ones where σ is above the one, or ε above the other,
_FINE = 0.6  # for which this is near enough
TIGHT = 4e-9
"""A width of ε, over max(1, ε), that is narrow enough."""
_MANY = 1_000_000  # steps
_ENOUGH = 1e-12  # what sums may leave out
LEAST = 1e-15
"""Of ε: hyperbolas need one above 0."""
_SHIFTS = (1, -1, 2, -2, 3)  # to other curves, where one leaves much out
_SHORT = 0.7  # an arc, in t, along which a Gaussian beside the steps falls by every bound
_FALL = 0.2  # how fast, over (μ·Im z)², at the least, far out
_UNIT = 2.0**-53


@dataclass(frozen=True)
class Hyperbola:
    """z(t) = κ + r·cosh(t + iα): its centre κ, its scale r, and the step between nodes."""

    centre: float
    scale: float
    spacing: float

    def at(self, t: Floats, angle: float = ANGLE) -> tuple[Complexes, Complexes]:
        """Nodes z and dz/dt, of the hyperbola itself or of one displaced to another angle."""
        place = t + 1j * angle
        return self.centre + self.scale * np.cosh(place), self.scale * np.sinh(place)


def hyperbola_through(saddle: Saddle, digits: float) -> Hyperbola:
    """The one whose displaced ones cross the real line at the saddle's ends."""
    scale = (saddle.right - saddle.left) / (2.0 * math.sin(ANGLE) * math.sin(_TURN))
    centre = saddle.right - scale * math.cos(ANGLE - _TURN)
    return Hyperbola(centre, scale, 2.0 * math.pi * _TURN / digits)


class Bands:
    """The curves of an integral over y, one for every size of Im z within a ``width`` of ln Im z.

    The first one has risen everywhere.
    """

    def __init__(
        self, step: Step, cut: Cut, saddle: Saddle, part: Part, middles: Complexes, width: float
    ) -> None:
        self._step, self._width = step, width
        starts = self._starts_of(middles)
        self.count = math.ceil((starts.max() - starts.min()) / width) + 1
        self._starts = starts.min() + width * np.arange(self.count)
        index = self.of(middles) - 1
        tops = np.ones(self.count)
        steepest = 1.2 * middles.imag / middles.real
        if part == "ordinary":
            # Across the cut the best height is loss·Im z/sharpness.
            steepest = np.minimum(steepest, 1.5 * middles.imag * cut.loss / cut.sharpness)
        np.minimum.at(tops, index, np.maximum(steepest, 0.02))
        np.minimum.at(tops, np.minimum(index + 1, self.count - 1), tops[index])
        self.rises = np.concatenate([[-60.0], self._starts]), np.concatenate([[1.0], tops])
        self.span = _span(step, cut, saddle, part)

    def of(self, z: Complexes) -> NDArray[np.int64]:
        """The number of the curve for each z."""
        index = np.round((self._starts_of(z) - self._starts[0]) / self._width).astype(np.int64)
        found: NDArray[np.int64] = 1 + np.clip(index, 0, self.count - 1)
        return found

    def _starts_of(self, z: Complexes) -> Floats:
        with np.errstate(divide="ignore"):
            start = math.log(LIFT * self._step.variance / self._step.odds) - np.log(z.imag)
        return np.clip(start + 1.0, -60.0, self._step.knee + 8.0)


def band_width(step: Step, epsilon: float) -> float:
    """How near to each other, in ln Im z, nodes share a curve."""
    return _BAND * min(1.0, _WIDE / step.sigma, max(_FINE, _STEEP / epsilon))


class Contour:
    """One part of δ(ε), as a sum along a hyperbola, for ε near one."""

    def __init__(self, step: Step, cut: Cut, saddle: Saddle, epsilon: float, part: Part) -> None:
        self._step, self._jumps = step, part == "jumps"
        self._path = hyperbola_through(saddle, DIGITS)
        with np.errstate(all="ignore"):
            edges = self._edges(epsilon)
            lines = [self._cells(edges, ANGLE + turn) for turn in (0.0, _TURN, -_TURN)]
            middles = np.concatenate([line.middles for line in lines])
            self._bands = Bands(step, cut, saddle, part, middles, band_width(step, epsilon))
            self._curves = Curves(step, cut, self._bands.rises, self._bands.span, part)
            self._prepare(edges, lines, middles, epsilon)
        del self._curves  # megabytes, and of no further use

    def _prepare(
        self, edges: Floats, lines: Sequence[Cells], middles: Complexes, epsilon: float
    ) -> None:
        corners = np.concatenate([line.corners for line in lines])
        found = self._bounds(corners, self._bands.of(middles), epsilon)
        self._lines = list(zip(lines, np.split(found.heights, len(lines)), strict=True))
        self._log_rests = self._find_log_rests(lines)
        self._last = self._last_edge(epsilon)
        t = np.arange(0.0, edges[self._last], self._path.spacing)
        cell = np.searchsorted(edges, t, side="right") - 1
        z, turn = self._path.at(t)
        self._z = z
        near = self._near(found.first(self._last), lines[0].corners)
        sums = Sums(*by_curve(self._curves.sums, z + 1.0, near.curves[cell]))
        error = sums.error + near.missed[cell]
        jumps_error = sums.jumps_error + near.jumps_missed[cell]
        self._lay(z, turn, sums._replace(error=error, jumps_error=jumps_error))

    def _bounds(self, corners: Complexes, curves: NDArray[np.int64], epsilon: float) -> Bounds:
        """Of the integrand but for e^{-zε}/(z(z+1)), by the best curve for each triangle."""
        best = self._bounds_along(corners, curves)
        for shift in _SHIFTS:
            height = (best.heights - epsilon * corners.real).max(axis=1)
            other = curves + shift
            there = (other > 0) & (other <= self._bands.count)
            bad = np.flatnonzero(~(height <= height[0] + 4.0) & there)
            if len(bad):
                found = self._bounds_along(corners[bad], other[bad])
                better = (found.heights - epsilon * corners[bad].real).max(axis=1) < height[bad]
                for old, new in zip(best, found, strict=True):
                    old[bad[better]] = new[better]
        return best

    def _near(self, found: Bounds, corners: Complexes) -> Bounds:
        """Bounds along the curves on which sums leave least out, for the arcs that have nodes."""
        off = found.jumps_missed / found.jumps_sizes if self._jumps else found.missed
        bad = np.flatnonzero(~(off <= (_ENOUGH if self._jumps else _ENOUGH / self._step.count)))
        which = np.repeat(bad, len(_SHIFTS))
        other = (found.curves[bad][:, None] + np.array(_SHIFTS)).ravel()
        there = (other > 0) & (other <= self._bands.count)
        which, other = which[there], other[there]
        if len(which):
            tried = self._bounds_along(corners[which], other)
            missed = tried.jumps_missed if self._jumps else tried.missed
            known = found.jumps_missed if self._jumps else found.missed
            order = np.lexsort((missed, which))
            best = order[np.unique(which[order], return_index=True)[1]]  # of each arc the least
            best = best[missed[best] < known[which[best]]]
            for old, new in zip(found, tried, strict=True):
                old[which[best]] = new[best]
        return found

    def _bounds_along(self, corners: Complexes, curves: NDArray[np.int64]) -> Bounds:
        power = corners + 1.0
        whole, above, missed, jumps_missed = self._curves.log_sizes(power, curves)
        heights = _log_power(self._step, power, whole, above, jumps=self._jumps)
        sizes = np.exp(above.max(axis=1))
        return Bounds(heights, curves.copy(), missed, jumps_missed, sizes)

    def _edges(self, epsilon: float) -> Floats:
        """The ends of arcs, up to where the curve that has risen everywhere bounds the rest."""
        rise = self._step.count * (0.5 * self._step.variance * LIFT**2 + 0.1)
        span = epsilon * self._path.scale * math.cos(ANGLE - _TURN)
        near = math.acosh(1.5 + (DIGITS + 12.0) / span)
        far = math.acosh(2.0 + (rise + 80.0) / (span * math.cos(ANGLE + _TURN)))
        last = 1.0
        if self._step.beside > 0.0:
            # The tangents to -y² that bound a Gaussian fall only along short arcs, but it fades.
            high = math.sqrt((rise + 80.0) / _FALL) / self._step.beside + 4.0 * self._path.centre
            far = min(far, math.asinh(high / (self._path.scale * math.sin(ANGLE - _TURN))))
            last = _SHORT
        near = min(near, far)
        edges, lengths = [0.0], ((1.5, 0.35), (near, 0.55), (near + 2.0, _SHORT), (math.inf, last))
        while edges[-1] < far:
            edges.append(edges[-1] + next(length for end, length in lengths if edges[-1] < end))
        return np.array(edges)

    def _last_edge(self, epsilon: float) -> int:
        """The first edge beyond which the integrand adds nothing."""
        line, bound = self._lines[0]
        height = (bound - epsilon * line.corners.real).max(axis=1)
        rest = np.cumsum((line.share * np.exp(height - height[0]))[::-1])[::-1]
        small = np.flatnonzero(rest < math.exp(-DIGITS - 6.0))
        return int(small[0]) if len(small) else len(line.share)

    def _find_log_rests(self, lines: Sequence[Cells]) -> list[float]:
        """Ln of a bound on ∫|f dz| beyond the last arc of each line, but for e^{-zε}/ε.

        From there on z goes in directions of no less than the line's angle, so that e^{pλ} falls if
        λ has the complement of that angle, which the curve that has risen everywhere sees to.
        """
        z = np.array([line.corners[-1, 1:2] for line in lines])
        found = self._bounds_along(z, np.zeros(len(lines), dtype=np.int64))
        rests = []
        for line, end, height in zip(lines, z[:, 0], found.heights[:, 0], strict=True):
            # |dz|/dRe z = √(1 + (sin α/sinh t)²)/cos α, and sinh t = Im z/(r·sin α).
            steep = math.hypot(1.0, self._path.scale * math.sin(line.angle) ** 2 / float(end.imag))
            size = float(abs(end)) ** 2 * math.cos(line.angle)
            falls = self._curves.least_angle() + line.angle >= 0.5 * math.pi + 1e-9
            falls = falls and self._fades(end, line.angle)
            rests.append(float(height) + math.log(steep / size) if falls else math.inf)
        return rests

    def _fades(self, end: complex, angle: float) -> bool:
        """Whether the factor of a Gaussian beside the steps falls from here on.

        On the hyperbola the derivative of Re z(z+1) by t is r·sinh t times what is below, in which
        cosh t grows and cos 2α < 0. Here cosh t ≥ sinh t = Im z/(r·sin α).
        """
        growth = (2.0 * self._path.centre + 1.0) * math.cos(angle)
        least = 2.0 * abs(end.imag) / math.sin(angle) * -math.cos(2.0 * angle)
        return self._step.beside == 0.0 or growth <= least

    def _cells(self, edges: Floats, angle: float) -> Cells:
        first, last = edges[:-1], edges[1:]
        middle, half = 0.5 * (first + last), 0.5 * (last - first)
        meet = math.cos(angle) * np.cosh(middle) / np.cosh(half) + 1j * math.sin(angle) * np.sinh(
            middle
        ) / np.cosh(half)
        corners = np.stack(
            [
                self._path.at(first, angle)[0],
                self._path.at(last, angle)[0],
                self._path.centre + self._path.scale * meet,
            ],
            axis=1,
        )
        least = corners.real.min(axis=1) + 1j * corners.imag.min(axis=1)
        speed = np.abs(self._path.at(last, angle)[1])
        share = 2.0 * half * speed / np.abs(least * (least + 1.0))
        return Cells(angle, corners, self._path.at(middle, angle)[0], share)

    def _lay(self, z: Complexes, turn: Complexes, found: Sums) -> None:
        """Ln of the integrand but for e^{-zε}, and ln of the error of each term."""
        step, count = self._step, self._step.count
        least = math.log1p(-step.rate)
        one = 1.0 + found.deviation
        beside = step.log_beside(z)
        log_power = count * ((z + 1.0) * least + log1p(found.deviation)) + beside
        weight = turn * self._path.spacing / (1j * math.pi * z * (z + 1.0))
        weight[0] *= 0.5
        size = np.abs(one)
        base = count * (z.real + 1.0) * least + beside.real + np.log(np.abs(weight))
        # Of ln(1 - q) and of ln(1 + x), which loses what 1 + 2·Re x + |x|² does.
        off = np.abs(found.deviation)
        care = np.abs(z + 1.0) * abs(least) + (2.0 * off + off**2) / size**2
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self._jumps:
                share = -np.expm1(count * log1p(-found.jumps / one))
                log_term = log_power + np.log(share)
                jump = np.abs(found.jumps)
                care += jump / size
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
        work = np.abs(self._log_terms) + np.abs(beside)
        error += 8.0 * _UNIT * (work + len(z) + count * care) * np.exp(self._log_terms.real)
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
        for (line, bound), log_rest in zip(self._lines, self._log_rests, strict=True):
            height = (bound - epsilon * line.corners.real).max(axis=1)
            arcs = line.share * np.exp(height)
            begin = self._last if line is self._lines[0][0] else 0
            rest = math.exp(min(log_rest - epsilon * line.corners[-1, 1].real, 700.0)) / epsilon
            swept.append(float(arcs[begin:].sum()) + rest)
        folds = math.expm1(2.0 * math.pi * _TURN / self._path.spacing)
        errors = ErrorTerms(
            rounding=rounding,
            quadrature=(swept[1] + swept[2]) / (math.pi * folds),
            tail=2.0 * swept[0] / math.pi,  # an arc is longer than the step between nodes
        )
        return Enclosure(value, errors, slope)


def _span(step: Step, cut: Cut, saddle: Saddle, part: Part) -> tuple[float, float]:
    """Where curves begin and end: where the Gaussian has faded, or χ, but beyond the cut."""
    low = 0.5 / step.variance - _LOW / step.sigma
    far = max((saddle.right + 0.5) / step.variance, 0.5 / step.variance) + _HIGH / step.sigma
    far = max(far, step.place(2.0 * cut.loss))
    if part == "ordinary":
        return low, min(far, step.place(cut.loss * math.exp(cut.fade)))
    return low, max(far, step.knee + 3.0)


def _log_power(
    step: Step, power: Complexes, whole: AnyFloats, above: AnyFloats, *, jumps: bool
) -> Floats:
    """Ln of a bound on |Bᵀ|, or on |Mᵀ - Bᵀ| ≤ T·|J|·max(|M|, |B|)ᵀ⁻¹, and of what is beside."""
    found: Floats = step.count * (power.real * math.log1p(-step.rate) + whole.real)
    if step.beside > 0.0:
        found = found + step.log_beside_bound(power - 1.0)
    if jumps:
        found = found + math.log(step.count) + above.real - whole.real
    return np.where(np.isnan(found), np.inf, found)


class Bounds(NamedTuple):
    """By triangles: ln of bounds at the corners, their curves, and what sums there leave out."""

    heights: Floats
    curves: NDArray[np.int64]
    missed: Floats
    jumps_missed: Floats
    jumps_sizes: Floats

    def first(self, count: int) -> Bounds:
        """Those of the first triangles, as copies."""
        return Bounds(
            self.heights[:count].copy(),
            self.curves[:count].copy(),
            self.missed[:count].copy(),
            self.jumps_missed[:count].copy(),
            self.jumps_sizes[:count].copy(),
        )


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
        """δ(ε) with its errors; below the least ε by that one, for δ falls no faster than -e^ε."""
        near = max(epsilon, LEAST)
        beyond = math.expm1(near) - math.expm1(epsilon) if epsilon < near else 0.0
        found = [part.enclose(near) for part in self.parts]
        errors = ErrorTerms(
            quadrature=math.fsum(one.errors.quadrature for one in found),
            rounding=math.fsum(one.errors.rounding for one in found),
            tail=math.fsum(one.errors.tail for one in found),
            truncation=math.fsum((beyond, *(one.errors.truncation for one in found))),
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
        sizes = curves.log_sizes(power[:, None], np.zeros(1, dtype=np.int64))
        whole, above = sizes.log_whole[0], sizes.log_jumps[0]
        log_most = float(_log_power(step, power, whole, above, jumps=part == "jumps")[0])
    constant = log_chernoff_constant(tilt) if tilt > 0.0 else 0.0
    return Negligible(tilt, log_most + constant + 1e-9 * (1.0 + abs(log_most)))


def lay_jumps(
    scout: Scout,
    epsilon: float,
    delta: float,
    before: int | None = None,
    enough: float = TIGHT,
) -> Laid:
    """The profile, sharp about (ε, δ), by the first cut that gives all digits, or the best of all.

    ``before`` is the cut that did so for another ε, ``enough`` a width of ε, over max(1, ε).

    Raises:
        TooSlow: if none gives any.
    """
    best, least = None, math.inf
    first = [] if before is None else [before]
    for index in dict.fromkeys([*first, *scout.best_cuts(epsilon)[0]]):
        if best is not None and scout.step.count > _MANY:
            break  # rounding is what leaves digits out
        try:
            profile = _split(scout, index, epsilon, delta)
        except TooSlow:
            continue
        found = profile.enclose(epsilon)
        if found.errors.above < min(least, 0.1 * found.estimate):
            best, least = Laid(profile, index), found.errors.above
        # Far from δ it only says which way to go.
        if best is not None and not 0.5 < found.estimate / delta < 2.0:
            break
        if least <= enough * max(1.0, epsilon) * abs(found.slope):
            break
    if best is None:
        raise TooSlow
    return best


class Laid(NamedTuple):
    """A profile, and the number of its cut."""

    profile: JumpProfile
    cut: int


def _split(scout: Scout, index: int, epsilon: float, delta: float) -> JumpProfile:
    step, cut = scout.step, scout.cuts[index]
    parts: list[Contour | Negligible] = []
    kinds: tuple[Part, ...] = ("ordinary", "jumps")
    for part in kinds:
        if part == "jumps" and scout.jump_mass[index] < NOTHING * delta:
            parts.append(_negligible(step, cut, 0.0, part))
            continue
        saddle = scout.saddle(index, epsilon, jumps=part == "jumps")
        small = _small(step, cut, saddle, epsilon, part, delta)
        parts.append(small or Contour(step, cut, saddle, epsilon, part))
        at = parts[-1].enclose(epsilon)
        if at.errors.above > max(at.estimate, delta):
            raise TooSlow
    return JumpProfile(tuple(parts))


def _small(
    step: Step, cut: Cut, saddle: Saddle, epsilon: float, part: Part, delta: float
) -> Negligible | None:
    """A part that need not be integrated, if it is one."""
    height = saddle.log_height + math.log(saddle.right) - math.log(NOTHING * delta)
    if height > LOOSE:
        return None
    found = _negligible(step, cut, math.sqrt(saddle.left * saddle.right), part)
    enough = height < 0.0 or found.enclose(epsilon).errors.truncation < 3.0 * NOTHING * delta
    return found if enough else None
