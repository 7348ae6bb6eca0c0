"""The curves along which a step's moment-generating function is integrated, and its two parts.

See ``jumps``, which this serves. Along a curve y(s) that rises where e^{zλ} turns fast, the
integrand is analytic in a strip, so that the trapezoid rule converges geometrically; what it misses
is bounded by ∫|integrand| along the strip's two sides (Trefethen & Weideman 2014, Theorem 5.1), for
which each node stands for the cell around it, with a bound on how the integrand changes in there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import erfc, ndtr

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from tacit.accounting.exact.transforms import Complexes, Floats

    AnyFloats = NDArray[np.inexact[Any]]

Part = Literal["ordinary", "jumps"]
"""Bᵀ, and Mᵀ - Bᵀ."""

DIGITS = 37.0
"""-ln of the relative error that steps between nodes of a curve are chosen for."""
LIFT = 1.05
"""How far curves rise."""
_SLANT = 0.85  # how steeply they go on beyond ln 1/q
_STRIP = 0.35  # half the width of the strips
_UNIT = 2.0**-53
_SHARE_ERROR = 2e-13  # relative, of SciPy's complex erfc, twice over


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

    def log_density(self, y: AnyFloats) -> AnyFloats:
        """Ln of the density of y for a step that leaves the record out."""
        constant = 0.5 * math.log(self.variance / (2.0 * math.pi))
        return constant - 0.5 * self.variance * (y + 0.5 / self.variance) ** 2


@dataclass(frozen=True)
class Cut:
    """Where losses are split: χ(λ) = erfc(√(m/2)·η)/2 with η²/2 = e^Δ - 1 - Δ, Δ = ln(λ/loss).

    χ falls from 1 to 0 within about 1/√m, beyond it like exp(-m·λ/loss), faster than e^{zλ} grows
    for z < m/loss; 1 - χ falls like λᵐ below. (The incomplete gamma function's main term.)
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


class Curves:
    """Curves y(s) = s + iβ(s), one per start of their rise, and the two beside each, s ± i·strip.

    β rises like e^(s - start) to about ``LIFT``, and beyond the knee along a slant, as λ(y) does.
    """

    def __init__(
        self,
        step: Step,
        cut: Cut,
        rises: tuple[Floats, Floats],
        span: tuple[float, float],
        part: Part,
    ) -> None:
        variance = self._variance = step.variance
        self.strip = min(_STRIP, 3.5 / math.sqrt(cut.sharpness))
        digits = DIGITS + 0.5 * variance * self.strip**2
        self.spacing = 2.0 * math.pi * self.strip / digits
        first, last = math.floor(span[0] / self.spacing), math.ceil(span[1] / self.spacing)
        nodes = self.spacing * np.arange(first, last + 1)
        s = np.concatenate([nodes, nodes[::2] + 1j * self.strip, nodes[::2] - 1j * self.strip])
        ends = [len(nodes), len(nodes) + len(nodes[::2])]
        y, turn = _rising(s, step, *rises)
        odds = step.odds * np.exp(y)
        loss = log1p(odds)
        for angles in np.split(loss.imag, ends, axis=1):
            angles[:] = np.unwrap(angles)
        log_weight = step.log_density(y) + math.log(self.spacing)
        log_whole = log_weight + np.log(turn)
        # Bounds on sizes that have no zeros, and on how fast ln of them changes along s.
        steep = np.abs(turn)
        distance = np.log(loss) - math.log(cut.loss)
        chi, rest = cut.shares(distance)
        blunt = 1.5 * math.sqrt(cut.sharpness)
        near = np.abs(np.expm1(np.minimum(distance.real, cut.fade) + 1j * distance.imag))
        edge = 1.2 * steep * (cut.sharpness * near + blunt)
        side = -distance.real if part == "jumps" else distance.real
        low, high = (rest, chi) if part == "jumps" else (chi, rest)
        shares = [np.where(side > 0.3, np.abs(low), 1.0 + np.abs(high))]
        rates = [2.0 + np.where(side > 0.0, edge, blunt)]
        if part == "jumps":
            shares.insert(0, np.ones(loss.shape))
            rates.insert(0, np.full(loss.shape, 2.0))
        pull = odds / (1.0 + odds) * turn  # λ'(s)
        log_sizes = [log_whole.real + np.log(share) for share in shares]
        # By part, kind, curve and node; beside the curves, one node stands for two, and a factor
        # of 2 covers what the bounds on changes leave out (how y itself bends).
        self._log_sizes = np.split(np.stack(log_sizes), ends, axis=2)
        bend = 0.5 * self.spacing**2 * 1.5 * steep**2
        swept = np.stack(log_sizes) + np.stack(rates) * self.spacing + math.log(4.0)
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
        error = (sizes * (_UNIT * care + _SHARE_ERROR)).sum(axis=1)
        error += missed[0] + self._missed_of_one[index]
        # What lies beyond the last node, and before the first one.
        ends = np.exp(exponent.real[:, -2:] + self._log_sizes[0][:, index, None, -2:])
        error += _after(ends[0]) + np.minimum(_after(sizes[:, 1::-1]), self._floor + before)
        deviation = grown.sum(axis=1)
        if not self._jumps:
            deviation -= (np.exp(log_whole) * self._rest[index]).sum()
            nothing = np.zeros(len(power))
            return Sums(deviation, error + self._beyond, nothing, nothing)
        jumps = full * self._rest[index]
        jumps_error = (np.abs(jumps) * (_UNIT * care + _SHARE_ERROR)).sum(axis=1)
        jumps_error += missed[1] + _after(ends[1])
        jumps_error += (1.0 + before / self._floor) * np.exp(self._log_sizes[0][1, index, 0])
        return Sums(deviation, error, jumps.sum(axis=1), jumps_error)

    def _before(self, power: Complexes, index: int) -> Floats:
        """A bound on the integral before the first node, where next to no mass lies.

        There |e^{(z+1)λ}| is at most its value at the node or, where the curve has begun to rise,
        e^{σ²}: it rises before |zλ| comes to σ².
        """
        loss = self._loss[0][index, 0]
        if abs(loss.imag) < 1e-3 * abs(loss.real):
            exponent = np.abs(power) * abs(loss)
        else:
            exponent = np.maximum(power.real * loss.real - power.imag * loss.imag, 0.0)
            exponent = exponent + self._variance
        found: Floats = self._floor * np.exp(exponent)
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
            for kind in range(len(total)):
                total[kind] += np.exp(exponent + self._swept[side][kind, index]).sum(axis=1)
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


def _rising(s: Complexes, step: Step, starts: Floats, tops: Floats) -> tuple[Complexes, Complexes]:
    """y(s) and y'(s) for every curve: they rise from about ``starts`` by ``tops``·LIFT."""
    # Far beyond the knee the best height is Im z/σ².
    height = np.exp(np.clip(step.knee - starts, -60.0, 60.0))[:, None]
    most = np.minimum(tops[:, None], height)
    slant = _SLANT * np.minimum(1.0, 0.1 * LIFT * height)
    begun = 1.0 / (1.0 + np.exp(np.minimum(starts + np.log(tops), step.knee)[:, None] - s))
    beyond = s - step.knee
    past = beyond.real > 0.0
    swing = np.exp(np.where(past, -beyond, beyond))
    slope = np.where(past, 1.0, swing) / (1.0 + swing)
    lift = LIFT + slant * (np.where(past, beyond, 0.0) + np.log1p(swing))
    turn = 1.0 + 1j * most * begun * (lift * (1.0 - begun) + slant * slope)
    return s + 1j * most * lift * begun, turn


def _after(terms: Floats) -> Floats:
    """A bound on what follows the last of terms that fall ever faster."""
    ratio = terms[:, -1] / np.maximum(terms[:, -2], 1e-300)
    found: Floats = np.where(ratio < 0.95, terms[:, -1] / np.maximum(1.0 - ratio, 0.05), np.inf)
    return found


class Sums(NamedTuple):
    """M or B, less 1, and J, with bounds on their errors."""

    deviation: AnyFloats
    error: AnyFloats
    jumps: AnyFloats
    jumps_error: AnyFloats


def log1p(x: AnyFloats) -> Complexes:
    """Ln(1 + x), accurate in relative terms where x is small, which NumPy's is not."""
    square = 2.0 * x.real + x.real**2 + x.imag**2
    found: Complexes = 0.5 * np.log1p(square) + 1j * np.arctan2(x.imag, 1.0 + x.real)
    return found
