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
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import erfc, ndtr

from tacit.accounting.exact.contour import log_chernoff_constant
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, Interval, TooSlow, invert
from tacit.accounting.exact.mixture import MixturePair, MixtureSide

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.exact.transforms import Complexes, Composition, Floats

    AnyFloats = Complexes | Floats

Part = Literal["ordinary", "jumps", "reverse"]
"""Bᵀ, Mᵀ - Bᵀ, and the whole of the reverse direction, in which there are no jumps up."""

_ANGLE, _TURN = 1.27, 0.26  # α and d: the displaced hyperbolas have the angles α ± d
_STRIP = 0.35  # by how much the curves in y are displaced to bound the rule's error
_LIFT, _SLANT = 1.05, 0.85  # how far the curves in y rise, and how steeply beyond ln 1/q
_DIGITS = 32.0  # -ln of the relative error that steps are chosen for
_RISE = 2.5  # ln of what the integrand may gain between a saddle and the displaced hyperbolas
_UNIT = 2.0**-53
_LOW = 8.0  # standard deviations of y below its mean at which curves begin
_BAND = 0.7  # in ln Im z: nodes this near to each other share a curve
_AHEAD = 0.7  # how much later than for bounds the curves rise on which sums are taken
_RETRY = 1e-9  # an error past which other curves are tried
_LEAST_RATE, _MOST_RATE, _LEAST_SIGMA = 1e-9, 0.3, 0.3
_NOTHING = 1e-12  # of δ: what may be charged instead of integrated


# ---- one step, split


@dataclass(frozen=True)
class Step:
    """A Gaussian of noise ``sigma`` on a Poisson sample of ``rate``, ``count`` times."""

    rate: float
    sigma: float
    count: int

    @property
    def variance(self) -> float:
        """σ²."""
        return self.sigma**2

    @property
    def odds(self) -> float:
        """q/(1-q)."""
        return self.rate / (1.0 - self.rate)

    @property
    def knee(self) -> float:
        """The y beyond which the loss grows like y."""
        return -math.log(self.odds)

    def log_density(self, y: Complexes) -> Complexes:
        """Ln of the density of y for a step that leaves the record out."""
        constant = 0.5 * math.log(self.variance / (2.0 * math.pi))
        return constant - 0.5 * self.variance * (y + 0.5 / self.variance) ** 2


@dataclass(frozen=True)
class Cut:
    """Where losses are split: χ(λ) = erfc(√(m/2)·η)/2 with η²/2 = e^Δ - 1 - Δ, Δ = ln(λ/loss).

    χ falls from 1 to 0 within about 1/√m, beyond it like exp(-m·λ/loss), faster than e^{zλ} grows
    for z < m/loss; 1 - χ falls like λᵐ below. (It is the main term of the incomplete gamma function.)
    """

    loss: float
    sharpness: float

    def shares(self, distance: AnyFloats) -> tuple[AnyFloats, AnyFloats]:
        """χ and 1 - χ at Δ, each accurate in relative terms."""
        above, below = distance.real > self.fade, distance.real < -1.0 - 110.0 / self.sharpness
        between = ~(above | below)
        chi, rest = below.astype(distance.dtype), above.astype(distance.dtype)
        inner = distance[between]
        small = np.abs(inner) < 0.4
        near = np.where(small, inner, 0.1)
        series = np.zeros_like(near)
        for k in range(15, 1, -1):
            series = series * near + 1.0 / math.factorial(k)
        full = np.where(small, 1.0, inner)
        half = np.where(small, series, (np.expm1(full) - full) / full**2)
        place = math.sqrt(self.sharpness) * inner * np.sqrt(half)
        chi[between], rest[between] = 0.5 * erfc(place), 0.5 * erfc(-place)
        return chi, rest

    @cached_property
    def fade(self) -> float:
        """The Δ beyond which χ·e^{zλ} is nothing, for z ≤ sharpness/2·loss."""
        distance = 0.1
        while self.sharpness * (0.5 * math.expm1(distance) - distance) < 90.0:
            distance += 0.05
        return distance


# ---- a look along the real line, approximate: where to split, and through which tilts to go


class Saddle(NamedTuple):
    """The two ends between which a contour crosses the real line, and ln of its height."""

    left: float
    right: float
    log_height: float


class Scout:
    """ln B and ln J at real tilts for a ladder of cuts."""

    def __init__(self, step: Step) -> None:
        self.step = step
        variance, sigma = step.variance, step.sigma
        spacing = min(0.12, 0.25 / sigma)
        low, high = 0.5 / variance - _LOW / sigma, 2.0 * max(step.knee, 1.0) + 9.0 / sigma
        self._y = np.arange(low, high, spacing)
        self._log_mass = step.log_density(self._y).real + math.log(spacing)
        self._mass = np.exp(self._log_mass)
        self._loss = np.log1p(step.odds * np.exp(self._y))
        places = 0.5 / variance + np.linspace(0.5, 15.0, 28) / sigma
        self.cuts = tuple(
            Cut(
                math.log1p(step.odds * math.exp(place)),
                max(24.0, (variance * place + 0.5) ** 2 / 8.0),
            )
            for place in places
        )
        log_loss = np.log(self._loss)
        shares = [cut.shares(log_loss - math.log(cut.loss)) for cut in self.cuts]
        self._below = np.stack([one for one, _ in shares], axis=1)
        self._above = np.stack([one for _, one in shares], axis=1)
        self.jump_mass = step.count * (
            (self._mass * np.exp(self._loss))[None, :] @ self._above
        ).ravel() * (1.0 - step.rate)
        self._most = np.array([0.5 * cut.sharpness / cut.loss for cut in self.cuts])
        most = 300.0 / step.odds
        self.ladder = np.geomspace(0.02, most, 12 * math.ceil(math.log10(most / 0.02)))
        self._ordinary, self._jumps = self._heights(self.ladder, slice(None))

    def _heights(self, tilts: Floats, which: slice | int) -> tuple[Floats, Floats]:
        """Ln |Bᵀ| and ln |Mᵀ - Bᵀ|, less ln z(z+1); infinite where they are out of range."""
        count = self.step.count
        exponent = np.multiply.outer(tilts + 1.0, self._loss)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            grown = np.where(
                exponent < 1.0,
                self._mass * np.expm1(np.minimum(exponent, 1.0)),
                np.exp(exponent + self._log_mass) - self._mass,
            )
            below = self._below[:, which].reshape(len(self._y), -1)
            above = self._above[:, which].reshape(len(self._y), -1)
            jumps = (grown + self._mass) @ above
            ordinary = np.where(grown > 1e250, 1e250, grown) @ below - self._mass @ above
            ordinary = np.where(ordinary > 1e100, np.inf, ordinary)
            scale = ((tilts + 1.0) * math.log1p(-self.step.rate))[:, None]
            kernel = np.log(tilts * (tilts + 1.0))[:, None]
            log_ordinary = np.log1p(ordinary)
            first = count * (scale + log_ordinary) - kernel
            share = count * np.log1p(jumps / (1.0 + ordinary))
            second = first + np.where(share > 30.0, share, np.log(np.expm1(np.minimum(share, 30.0))))
        first = np.where(tilts[:, None] <= self._most[which], first, np.inf)
        return (
            np.where(np.isfinite(first), first, np.inf),
            np.where(np.isfinite(second), second, np.inf),
        )

    def look(self, epsilon: float) -> tuple[Floats, Floats]:
        """About ln δ(ε) of the ordinary part and of the jumps, for every cut."""
        fall = (self.ladder * epsilon)[:, None]
        return (
            _saddle_value(self._ordinary - fall, self.ladder),
            _saddle_value(self._jumps - fall, self.ladder),
        )

    def best_cut(self, epsilon: float) -> tuple[int, float]:
        """The cut at which the larger part is smallest, and about ln δ(ε)."""
        ordinary, jumps = self.look(epsilon)
        jumps = np.minimum(jumps, np.log(self.jump_mass + 1e-300))
        # Bounds on powers of sums that hold many jumps are loose: cut where there are few.
        worst = np.maximum(ordinary, jumps) + np.minimum(1e3 * self.jump_mass, 30.0)
        least = float(worst.min())
        # Without jumps worth an integral there is one contour less to lay.
        alone = np.flatnonzero((jumps < least + math.log(_NOTHING)) & (ordinary < least + 3.0))
        index = int(alone[-1]) if len(alone) else int(worst.argmin())
        # About what one jump adds by itself.
        gain = np.exp(self._loss + math.log1p(-self.step.rate)) - math.exp(min(epsilon, 700.0))
        alone_mass = float((self._mass * np.maximum(gain, 0.0)) @ self._above[:, index])
        single = math.log(self.step.count * alone_mass + 1e-300)
        return index, float(np.logaddexp(ordinary[index], single))

    def epsilon(self, log_delta: float) -> float:
        """About ε at which δ is that."""
        low, high = math.log(1e-9), math.log(60.0 + 2.0 / self.step.variance)
        for _ in range(26):
            middle = 0.5 * (low + high)
            above = self.best_cut(math.exp(middle))[1] > log_delta
            low, high = (middle, high) if above else (low, middle)
        return math.exp(low)

    def saddle(self, index: int, epsilon: float, *, jumps: bool) -> Saddle:
        """Where a contour for one part may cross the real line."""

        def height(tilts: Floats) -> Floats:
            found: Floats = self._heights(tilts, index)[jumps].ravel() - tilts * epsilon
            return found

        known = (self._jumps if jumps else self._ordinary)[:, index] - self.ladder * epsilon
        return _crossing(height, self.ladder, known)

    def reverse_saddle(self, epsilon: float) -> Saddle:
        """The same for the reverse direction, whose losses are -λ and less than -T·ln(1 - q)."""
        step = self.step

        def height(tilts: Floats) -> Floats:
            below = np.expm1(np.multiply.outer(-tilts, self._loss)) @ self._mass
            power = step.count * (np.log1p(below) - tilts * math.log1p(-step.rate))
            found: Floats = power - np.log(tilts * (tilts + 1.0)) - tilts * epsilon
            return found

        return _crossing(height, self.ladder, height(self.ladder))


def _crossing(height: Callable[[Floats], Floats], tilts: Floats, known: Floats) -> Saddle:
    """Between which tilts the height, of which ``known`` is a first look, is within _RISE."""
    for _ in range(2):
        best = int(known.argmin())
        tilts = np.geomspace(tilts[max(best - 1, 0)], tilts[min(best + 1, len(tilts) - 1)], 15)
        known = height(tilts)
    best = int(known.argmin())
    low, centre = float(known[best]), float(tilts[best])
    if not math.isfinite(low):
        raise TooSlow
    left = _edge(height, centre, 0.02 * centre, low + _RISE)
    return Saddle(left, _edge(height, centre, 300.0 * centre, low + _RISE), low)


def _edge(height: Callable[[Floats], Floats], near: float, far: float, most: float) -> float:
    """The last tilt, going from the first to the second, at which the height is below."""
    for _ in range(3):
        tilts = np.geomspace(near, far, 15)
        too_high = height(tilts) > most
        if not too_high.any():
            return far
        first = int(too_high.argmax())
        if first == 0:
            return near
        near, far = float(tilts[first - 1]), float(tilts[first])
    return near


def _saddle_value(height: Floats, tilts: Floats) -> Floats:
    """The saddle-point approximation of ln of the integral, by columns."""
    best = np.clip(height.argmin(axis=0), 1, len(tilts) - 2)
    columns = np.arange(height.shape[1])
    low = height[best, columns]
    spacing = math.log(tilts[1] / tilts[0])
    with np.errstate(invalid="ignore"):
        bend = (height[best - 1, columns] + height[best + 1, columns] - 2.0 * low) / spacing**2
    bend = np.where(np.isfinite(bend), np.clip(bend, 0.3, 1e4), 1e2)
    found: Floats = low + np.log(tilts[best]) - 0.5 * np.log(2.0 * math.pi * bend)
    return found


# ---- curves in y


class Curves:
    """Curves y(s) = s + iβ(s), one per start of their rise, and the two beside each, s ± i·strip.

    β rises like e^(s - start) to about ``_LIFT``, and beyond the knee along a slant, as λ(y) does.
    """

    def __init__(
        self,
        step: Step,
        cut: Cut | None,
        rises: tuple[Floats, Floats],
        span: tuple[float, float],
        part: Part,
    ) -> None:
        variance = self._variance = step.variance
        self.strip = _STRIP if cut is None else min(_STRIP, 3.5 / math.sqrt(cut.sharpness))
        digits = _DIGITS + 0.5 * variance * self.strip**2
        self.spacing = 2.0 * math.pi * self.strip / digits
        first, last = math.floor(span[0] / self.spacing), math.ceil(span[1] / self.spacing)
        nodes = self.spacing * np.arange(first, last + 1)
        s = np.concatenate([nodes, nodes[::2] + 1j * self.strip, nodes[::2] - 1j * self.strip])
        ends = [len(nodes), len(nodes) + len(nodes[::2])]
        y, turn = _rising(s, step, *rises)
        odds = step.odds * np.exp(y)
        loss = _log1p(odds)
        for angles in np.split(loss.imag, ends, axis=1):
            angles[:] = np.unwrap(angles)
        log_weight = step.log_density(y) + math.log(self.spacing)
        log_whole = log_weight + np.log(turn)
        # Bounds on sizes that have no zeros, and on how fast ln of them changes along s.
        steep = np.abs(turn)
        chi, rest = np.ones_like(loss), np.zeros_like(loss)
        shares, rates = [np.ones(loss.shape)], [np.full(loss.shape, 2.0)]
        if cut is not None:
            distance = np.log(loss) - math.log(cut.loss)
            chi, rest = cut.shares(distance)
            side = -distance.real if part == "jumps" else distance.real
            low, high = (rest, chi) if part == "jumps" else (chi, rest)
            blunt = 1.5 * math.sqrt(cut.sharpness)
            near = np.abs(np.expm1(np.minimum(distance.real, cut.fade) + 1j * distance.imag))
            edge = 1.2 * steep * (cut.sharpness * near + blunt)
            share = np.where(side > 0.3, np.abs(low), 1.0 + np.abs(high))
            rate = 2.0 + np.where(side > 0.0, edge, blunt)
            shares, rates = ([*shares, share], [*rates, rate]) if part == "jumps" else ([share], [rate])
        pull = odds / (1.0 + odds) * turn  # λ'(s)
        log_sizes = [log_whole.real + np.log(share) for share in shares]
        # By part, kind, curve and node; beside the curves, one node stands for two.
        self._log_sizes = np.split(np.stack(log_sizes), ends, axis=2)
        bend = 0.5 * self.spacing**2 * 1.5 * steep**2
        swept = np.stack(log_sizes) + np.stack(rates) * self.spacing + math.log(2.0)
        self._swept = np.split(swept + bend * variance, ends, axis=2)
        self._fall = np.split((-(variance * y + 0.5) * turn).real, ends, axis=1)
        self._pull = np.split(pull, ends, axis=1)
        self._bend = np.split(bend * np.abs(odds / (1.0 + odds) ** 2), ends, axis=1)
        self._loss = np.split(loss, ends, axis=1)
        self._jumps = part == "jumps"
        self._log_whole = log_whole[:, : ends[0]]
        self._chi, self._rest = chi[:, : ends[0]], rest[:, : ends[0]]
        self._care = 60.0 + len(nodes) + 2.0 * np.abs(self._log_whole.real)
        self._missed_of_one = (
            sum(
                np.exp(sizes[0] + self.spacing * np.abs(fall)).sum(axis=1)
                for sizes, fall in zip(self._swept[1:], self._fall[1:], strict=True)
            )
            / self._folds
        )
        self._floor = float(ndtr((first * self.spacing + 0.5 / variance) * step.sigma))
        self._beyond = float(ndtr(-(last * self.spacing + 0.5 / variance) * step.sigma))

    @property
    def _folds(self) -> float:
        return math.expm1(2.0 * math.pi * self.strip / self.spacing)

    def sums(self, power: Complexes, index: int) -> Sums:
        """Of e^{power·λ}: B, or M and J, along one curve, with bounds on errors."""
        loss, log_whole = self._loss[0][index], self._log_whole[index]
        exponent = np.multiply.outer(power, loss)
        full = np.exp(exponent + log_whole)
        small = np.abs(exponent) < 1.0
        grown = np.where(small, np.expm1(np.where(small, exponent, 0.0)), 0.0) * np.exp(log_whole)
        grown = np.where(small, grown, full - np.exp(log_whole))
        care = self._care[index] + 4.0 * np.abs(exponent)
        missed, before = self._missed(power, index), self._before(power, index)
        if not self._jumps:
            grown *= self._chi[index]
        sizes = np.abs(grown)
        error = _UNIT * (sizes * care).sum(axis=1) + missed[0] + self._missed_of_one[index]
        # What lies beyond the last node, and before the first one.
        ends = np.exp(exponent.real[:, -2:] + self._log_sizes[0][:, index, None, -2:])
        error += _after(ends[0]) + np.minimum(_after(sizes[:, 1::-1]), self._floor + before)
        deviation = grown.sum(axis=1)
        if not self._jumps:
            deviation -= (np.exp(log_whole) * self._rest[index]).sum()
            nothing = np.zeros(len(power))
            return Sums(deviation, error + self._beyond, nothing, nothing)
        jumps = full * self._rest[index]
        jumps_error = _UNIT * (np.abs(jumps) * care).sum(axis=1) + missed[1] + _after(ends[1])
        jumps_error += (1.0 + before / self._floor) * np.exp(self._log_sizes[0][1, index, 0])
        return Sums(deviation, error, jumps.sum(axis=1), jumps_error)

    def _before(self, power: Complexes, index: int) -> Floats:
        """A bound on the integral before the first node, where next to no mass lies.

        There |e^{(z+1)λ}| is at most its value at the node or, where the curve has begun to rise,
        e^{σ²}: it rises before |zλ| comes to σ².
        """
        loss = self._loss[0][index, 0]
        if abs(loss.imag) < 1e-3 * abs(loss.real):
            return self._floor * np.exp(np.abs(power) * abs(loss))
        exponent = np.maximum(power.real * loss.real - power.imag * loss.imag, 0.0)
        found: Floats = self._floor * np.exp(exponent + self._variance)
        return found

    def _missed(self, power: Complexes, index: int) -> list[Floats]:
        """What the nodes of a curve may miss between them, at each z: of |B|, or of |M| and |J|."""
        total: list[Floats] = [np.zeros(len(power)) for _ in self._swept[0]]
        for side in (1, 2):
            loss = self._loss[side][index]
            exponent = np.multiply.outer(power.real, loss.real)
            exponent -= np.multiply.outer(power.imag, loss.imag)
            pull = self._pull[side][index]
            slope = np.multiply.outer(power.real, pull.real)
            slope -= np.multiply.outer(power.imag, pull.imag)
            slope += self._fall[side][index]
            exponent += self.spacing * np.abs(slope)
            exponent += np.multiply.outer(np.abs(power), self._bend[side][index])
            for kind, found in enumerate(total):
                found += np.exp(exponent + self._swept[side][kind, index]).sum(axis=1)
        return [found / self._folds for found in total]

    def least_angle(self) -> float:
        """The least angle of a loss along the curve that has risen everywhere."""
        return float(np.angle(self._loss[0][0]).min())

    def log_sizes(self, power: Complexes, index: int) -> tuple[Floats, Floats]:
        """Ln of bounds on |B|, or on |M| + |J| and |J|, over the least loss's, along one curve."""
        loss = self._loss[0][index]
        exponent = np.multiply.outer(power.real, loss.real)
        exponent -= np.multiply.outer(power.imag, loss.imag)
        before = self._before(power, index)
        found = []
        for kind, missed in enumerate(self._missed(power, index)):
            terms = np.exp(exponent + self._log_sizes[0][kind, index])
            found.append(terms.sum(axis=1) * (1.0 + 1e-12) + missed + _after(terms))
        whole = found[0] + before
        if not self._jumps:
            return np.log(whole), np.zeros(len(power))
        above = found[1] + before * np.exp(self._log_sizes[0][1, index, 0])
        return np.log(whole + above), np.log(above)


def _rising(
    s: Complexes, step: Step, starts: Floats, tops: Floats
) -> tuple[Complexes, Complexes]:
    """y(s) and y'(s) for every curve: they rise from about ``starts`` by ``tops``·_LIFT."""
    # Far beyond the knee the best height is Im z/σ².
    height = np.exp(np.clip(step.knee - starts, -60.0, 60.0))[:, None]
    most = np.minimum(tops[:, None], height)
    slant = _SLANT * np.minimum(1.0, 0.1 * _LIFT * height)
    begun = 1.0 / (1.0 + np.exp(np.minimum(starts + np.log(tops), step.knee)[:, None] - s))
    beyond = s - step.knee
    past = beyond.real > 0.0
    swing = np.exp(np.where(past, -beyond, beyond))
    slope = np.where(past, 1.0, swing) / (1.0 + swing)
    lift = _LIFT + slant * (np.where(past, beyond, 0.0) + np.log1p(swing))
    turn = 1.0 + 1j * most * begun * (lift * (1.0 - begun) + slant * slope)
    return s + 1j * most * lift * begun, turn


def _after(terms: Floats) -> Floats:
    """A bound on what follows the last of terms that fall ever faster."""
    ratio = terms[:, -1] / np.maximum(terms[:, -2], 1e-300)
    found: Floats = np.where(ratio < 0.95, terms[:, -1] / np.maximum(1.0 - ratio, 0.05), np.inf)
    return found


class Sums(NamedTuple):
    """M or B, less 1, and J, with bounds on their errors."""

    deviation: Complexes
    error: Floats
    jumps: Complexes | Floats
    jumps_error: Floats


# ---- one contour


class Contour:
    """One part of δ(ε), as a sum along a hyperbola, for ε near one."""

    def __init__(self, step: Step, cut: Cut | None, saddle: Saddle, epsilon: float, part: Part) -> None:
        self._step, self._part, self._jumps = step, part, part == "jumps"
        self._scale = (saddle.right - saddle.left) / (2.0 * math.sin(_ANGLE) * math.sin(_TURN))
        self._centre = saddle.right - self._scale * math.cos(_ANGLE - _TURN)
        self._spacing = 2.0 * math.pi * _TURN / _DIGITS
        with np.errstate(all="ignore"):
            self._prepare(cut, saddle, epsilon)

    def _prepare(self, cut: Cut | None, saddle: Saddle, epsilon: float) -> None:
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

    def _power(self, z: Complexes) -> Complexes:
        """What λ is multiplied by: in the reverse direction by -z, here mirrored at the real line."""
        return -z.conj() if self._part == "reverse" else z + 1.0

    def _lay_curves(self, middles: Complexes, cut: Cut | None, saddle: Saddle) -> Curves:
        """Curves for every size of Im z; the first one has risen everywhere."""
        starts = self._starts(middles)
        count = math.ceil((starts.max() + _AHEAD - starts.min()) / _BAND) + 1
        self._bands = starts.min() + _BAND * np.arange(count)
        index = np.clip(np.round((starts - self._bands[0]) / _BAND).astype(int), 0, count - 1)
        tops = np.ones(count)
        steepest = 1.2 * middles.imag / middles.real
        if self._part == "reverse":
            steepest = np.ones(len(middles))
        elif cut is not None and not self._jumps:
            # Across the cut the best height is loss·Im z/sharpness.
            steepest = np.minimum(steepest, 1.5 * middles.imag * cut.loss / cut.sharpness)
        np.minimum.at(tops, index, np.maximum(steepest, 0.02))
        np.minimum.at(tops, np.minimum(index + 1, count - 1), tops[index])
        rises = np.concatenate([[-60.0], self._bands]), np.concatenate([[1.0], tops])
        return Curves(self._step, cut, rises, _span(self._step, cut, saddle, self._part), self._part)

    def _curve_of(self, starts: Floats) -> NDArray[np.int64]:
        index = np.round((starts - self._bands[0]) / _BAND).astype(np.int64)
        found: NDArray[np.int64] = 1 + np.clip(index, 0, len(self._bands) - 1)
        return found

    def _bounds(self, corners: Complexes, middles: Complexes, epsilon: float) -> Floats:
        """Ln of bounds on the integrand but for e^{-zε}/(z(z+1)) at corners, by their best curve."""
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
        power = self._power(corners.ravel())
        whole, above = _by_curve(self._curves.log_sizes, power, np.repeat(index, 3))
        return _log_power(self._step, power, whole, above, jumps=self._jumps).reshape(-1, 3)

    def _sums(self, z: Complexes) -> Sums:
        index = self._curve_of(self._starts(z) + _AHEAD)
        power = self._power(z)
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

    def _rise(self, cut: Cut | None, saddle: Saddle) -> float:
        """Ln of the bound on the integrand along the curve that has risen everywhere."""
        rises = np.array([-60.0]), np.array([1.0])
        span = _span(self._step, cut, saddle, self._part)
        risen = Curves(self._step, cut, rises, span, self._part)
        whole, _ = risen.log_sizes(np.array([0.0j]), 0)
        return self._step.count * max(float(whole[0]), 0.0)

    def _edges(self, epsilon: float, rise: float) -> Floats:
        """The ends of arcs, up to where the curve that has risen everywhere bounds the rest."""
        span = epsilon * self._scale * math.cos(_ANGLE - _TURN)
        near = math.acosh(1.5 + (_DIGITS + 12.0) / span)
        if not math.isfinite(rise):
            raise TooSlow
        far = math.acosh(2.0 + (rise + 80.0) / (span * math.cos(_ANGLE + _TURN)))
        near = min(near, far)
        fine, coarse = np.arange(0.0, 1.5, 0.25), np.arange(1.5, near, 0.4)
        return np.concatenate([fine, coarse, np.arange(max(near, 1.5), far + 1.0, 1.0)])

    def _last_edge(self, epsilon: float) -> int:
        """The first edge beyond which the integrand adds nothing."""
        line, bound = self._lines[0]
        height = (bound - epsilon * line.corners.real).max(axis=1)
        rest = np.cumsum((line.share * np.exp(height - height[0]))[::-1])[::-1]
        small = np.flatnonzero(rest < math.exp(-_DIGITS - 6.0))
        return int(small[0]) if len(small) else len(line.share)

    def _rest(self, epsilon: float, line: Cells) -> float:
        """A bound on ∫|f dz| beyond the last arc of a line."""
        z = line.corners[-1:, 1]
        angle = min(float(np.angle(z + 1.0)[0]), line.angle) - 1e-9
        if self._part != "reverse" and self._curves.least_angle() + angle < 0.5 * math.pi:
            return math.inf
        whole, above = self._curves.log_sizes(np.array([0.0j]), 0)
        height = _log_power(self._step, self._power(z), whole, above, jumps=self._jumps) - epsilon * z.real
        length = 1.0 / (epsilon * math.cos(line.angle)) / abs(z[0]) ** 2
        return float(np.exp(height[0])) * length

    def _hyperbola(self, t: Floats, angle: float) -> tuple[Complexes, Complexes]:
        place = t + 1j * angle
        return self._centre + self._scale * np.cosh(place), self._scale * np.sinh(place)

    def _starts(self, z: Complexes) -> Floats:
        step = self._step
        with np.errstate(divide="ignore"):
            start = math.log(_LIFT * step.variance / step.odds) - np.log(z.imag)
        return np.clip(start + 1.0, -60.0, step.knee + 8.0)

    def _cells(self, edges: Floats, angle: float) -> Cells:
        first, last = edges[:-1], edges[1:]
        middle, half = 0.5 * (first + last), 0.5 * (last - first)
        meet = (
            math.cos(angle) * np.cosh(middle) / np.cosh(half)
            + 1j * math.sin(angle) * np.sinh(middle) / np.cosh(half)
        )
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
        """ln of the integrand but for e^{-zε}, and ln of the error of each term."""
        step, count = self._step, self._step.count
        least = math.log1p(-step.rate)
        one = 1.0 + found.deviation
        log_power = count * (self._power(z) * least + _log1p(found.deviation))
        if self._part == "reverse":
            log_power = log_power.conj()
        weight = turn * self._spacing / (1j * math.pi * z * (z + 1.0))
        weight[0] *= 0.5
        size = np.abs(one)
        base = count * self._power(z).real * least + np.log(np.abs(weight))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self._jumps:
                share = -np.expm1(count * _log1p(-found.jumps / one))
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


def _span(step: Step, cut: Cut | None, saddle: Saddle, part: Part) -> tuple[float, float]:
    """Where curves begin and end."""
    low = -0.5 / step.variance - _LOW / step.sigma
    if part == "reverse":
        return low, 10.0 / step.sigma
    if part == "ordinary" and cut is not None:
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


def _log1p(x: Complexes) -> Complexes:
    """Ln(1 + x), accurate in relative terms where x is small, which NumPy's is not."""
    square = 2.0 * x.real + x.real**2 + x.imag**2
    found: Complexes = 0.5 * np.log1p(square) + 1j * np.arctan2(x.imag, 1.0 + x.real)
    return found


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
    """The profile about (ε, δ)."""
    index, _ = scout.best_cut(epsilon)
    step, cut = scout.step, scout.cuts[index]
    parts: list[Contour | Negligible] = []
    nothing = math.log(_NOTHING * delta)
    kinds: tuple[Part, ...] = ("ordinary", "jumps")
    for part in kinds:
        if part == "jumps" and scout.jump_mass[index] < _NOTHING * delta:
            parts.append(_negligible(step, cut, 0.0, part))
            continue
        saddle = scout.saddle(index, epsilon, jumps=part == "jumps")
        if saddle.log_height + math.log(saddle.right) < nothing:
            parts.append(_negligible(step, cut, math.sqrt(saddle.left * saddle.right), part))
        else:
            parts.append(Contour(step, cut, saddle, epsilon, part))
    return JumpProfile(tuple(parts))


def sampled_step(composition: Composition) -> Step | None:
    """The composition as repetitions of one sampled Gaussian against plain noise, if it is that."""
    if len(composition) != 1:
        return None
    pair, count = composition[0]
    if not isinstance(pair, MixturePair) or pair.denominator != MixtureSide():
        return None
    weights, shifts = pair.numerator.weights, pair.numerator.shifts
    if len(weights) != 2 or shifts != (0.0, 1.0) or not _LEAST_RATE <= weights[1] <= _MOST_RATE:
        return None
    return Step(weights[1], pair.sigma, count) if pair.sigma >= _LEAST_SIGMA else None


def epsilon_with_jumps(step: Step, delta: float) -> Interval:
    """Certified ends of ε(δ); 0 and infinity where there is no contour."""
    scout = Scout(step)
    guess = scout.epsilon(math.log(delta))
    found = Interval(0.0, math.inf, method="jumps")
    for _ in range(5):
        try:
            profile = lay_jumps(scout, guess, delta)
        except TooSlow:
            break
        at = profile.enclose(guess)
        if not (at.estimate > 2.0 * at.errors.above and at.slope < 0.0):
            break
        excess = math.log(at.estimate / delta)
        nearer = guess - excess * at.estimate / at.slope
        if abs(excess) < 1.0:
            ends = invert(profile, delta, nearer)
            lower, upper = max(found.lower, ends.lower), min(found.upper, ends.upper)
            found = replace(found, lower=lower, upper=upper)
            if found.width <= 2e-9 * max(1.0, found.upper) or abs(excess) < 0.05:
                break
        guess = min(max(nearer, guess / 3.0), 3.0 * guess)
    return found


def delta_with_jumps(step: Step, epsilon: float) -> Enclosure | None:
    """δ(ε) with its errors, if a contour is found."""
    scout = Scout(step)
    try:
        return lay_jumps(scout, epsilon, math.exp(scout.best_cut(epsilon)[1])).enclose(epsilon)
    except TooSlow:
        return None


def reverse_delta(step: Step, epsilon: float) -> Enclosure | None:
    """δ(ε) of the reverse direction, with its errors, if a contour is found."""
    try:
        saddle = Scout(step).reverse_saddle(epsilon)
    except TooSlow:
        return None
    return Contour(step, None, saddle, epsilon, "reverse").enclose(epsilon)
