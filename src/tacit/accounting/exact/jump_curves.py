"""The curves along which a step's moment-generating function is integrated, and its two parts.

See ``jumps``, which this serves. Along a curve y(s) that rises where e^{pλ} turns fast (p = z + 1),
the integrand g is analytic in a strip. Everything that separates ∫g from its sum over the nodes is
bounded here; no constant is taken on trust.

**Between the nodes.** Around n nodes of step h lies the rectangle a ≤ Re s ≤ b, |Im s| ≤ d, whose
sides a and b pass half a step before the first and after the last. The residues of
g(s)/(1 - e^{-2πis/h}) say that h·Σg - ∫ₐᵇg is at most

    ∫ (|g(s + id)| + |g(s - id)|)/(e^{2πd/h} - 1) ds
        + ∫_{|v| ≤ d} (|g(a + iv)| + |g(b + iv)|)/(1 + e^{2π|v|/h}) dv

(Trefethen & Weideman 2014, Theorem 5.1, has the first term, for a line without ends).

**Along the sides** |g| is bounded cell by cell. In a cell of half-width H about s₀, |y''| ≤ C gives
|y - y₀ - y₀'·(s - s₀)| ≤ C·H²/2 and |y - y₀| ≤ ρ = H·(|y₀'| + C·H). There |w| ≤ |w₀|·e^ρ and
|1 + w| ≥ |1 + w₀| - |w₀|·(e^ρ - 1) for w = q/(1-q)·e^y, which bounds λ' = w/(1+w) and
λ'' = w/(1+w)². Taylor's remainder does the rest; ln of the Gaussian density is a square.

**Beyond the rectangle** the path may be chosen: to the left it goes on level, to the right along a
ray, of y or of λ, on which ln|g| is bounded by a line. Between path and real axis e^λ - 1 has no
zeros and the Gaussian falls, since no path is steeper than 1 in the end.

All these bounds are sums of exponentials of convex functions of p, or rise with such.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import erfc, ndtr

from tacit.accounting.exact.enclosure import TooSlow

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import NDArray

    from tacit.accounting.exact.transforms import Complexes, Floats

    AnyFloats = NDArray[np.inexact[Any]]
    Indices = NDArray[np.int64]

Part = Literal["ordinary", "jumps"]
"""Bᵀ, and Mᵀ - Bᵀ."""

DIGITS = 31.0
"""-ln of the relative error that steps between nodes of a curve are chosen for."""
LIFT = 1.05
"""How far curves rise."""
_SLANT = 0.85  # how steeply they go on beyond ln 1/q
_STRIP = 0.35  # half the width of the strips
_CURVATURE = 0.8
"""C, no less than |y''| in the strips.

For |Im x| ≤ 0.35 the logistic function f has, with c = cosh Re x and k = cos Im x ≥ 0.939,
|f'| = 1/2(c + k) ≤ 0.258 and |f''| = √(c - k)/2(c + k)^(3/2) ≤ 0.0963/k; |f| rises with Re x, and
|f·f'| ≤ 0.155. With b = f(s - a), l = LIFT + slant·ln(1 + e^(s - knee)), a ≤ knee and most ≤ 1,

    |y''| = most·|l''·b + 2l'·b' + l·b''| ≤ 0.85·0.258 + 2·0.85·0.155 + 0.28 < 0.77 ,

for |ln(1 + e^x)| ≤ ln(1 + e^Re x) + 0.35, so that |l·b''| is largest, 0.278, near Re s = a + 1.6.
"""
_NODES = 3  # that a cell stands for
_MOST = 500_000  # nodes of all curves together
_FADED = 75.0  # -ln |exp(-mη²/2)| from which χ is 0 or 1
_FLAT = 0.7  # an angle at which Gaussians still fall
_UNIT = 2.0**-53
_ERFC_ERROR = 2e-13  # of SciPy's complex erfc(x), over |exp(-x²)|: Faddeeva says 1e-13
_ROUND_UP = 1.0 + 1e-6  # covers the rounding of sums of positive terms
_ROUND_UP_SUM = 1.0 + 1e-12  # the same of thousands at most, where it must not count


@dataclass(frozen=True)
class Step:
    """A Gaussian of noise ``sigma`` on a Poisson sample of ``rate``, ``count`` times.

    Beside them stands a Gaussian without sampling, whose two laws are ``beside`` standard
    deviations apart, or none: its loss adds the factor exp(μ²·z(z+1)/2) to the integrand.
    """

    rate: float
    sigma: float
    count: int
    beside: float = 0.0

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

    def place(self, loss: float) -> float:
        """The y of a loss, above the least one."""
        return self.knee + (math.log(math.expm1(loss)) if loss < 30.0 else loss)

    def log_beside(self, z: AnyFloats) -> AnyFloats:
        """Ln of the factor of the Gaussian beside the steps."""
        found: AnyFloats = 0.5 * self.beside**2 * z * (z + 1.0)
        return found

    def log_beside_bound(self, z: Complexes) -> Floats:
        """Convex in z, no less than Re ln of that factor, and a bound in the hull of each row.

        Re z(z+1) = x² + x - y², and -y² is nowhere above any of its tangents.
        """
        middle = 0.5 * (z.imag.min(axis=-1) + z.imag.max(axis=-1))[..., None]
        level = z.real * (z.real + 1.0) + middle * (middle - 2.0 * z.imag)
        found: Floats = 0.5 * self.beside**2 * level
        return found

    def log_density(self, y: AnyFloats) -> AnyFloats:
        """Ln of the density of y for a step that leaves the record out."""
        constant = 0.5 * math.log(self.variance / (2.0 * math.pi))
        return constant - 0.5 * self.variance * (y + 0.5 / self.variance) ** 2


@dataclass(frozen=True)
class Cut:
    """Where losses are split: χ(λ) = erfc(√(m/2)·η)/2 with η²/2 = e^Δ - 1 - Δ, Δ = ln(λ/loss).

    χ falls from 1 to 0 within about 1/√m, beyond it like exp(-m·λ/loss), faster than e^{zλ} grows
    for z < m/loss; 1 - χ falls like λᵐ below. (The incomplete gamma function's main term.)

    For |Im Δ| < π it is analytic: (e^Δ - 1 - Δ)/Δ² = ∫(1 - t)·e^{tΔ} dt over (0, 1) has the sign of
    Im Δ in its imaginary part, so that its root is one function. Re η ≥ 0 exactly where
    Re Δ ≥ ln(v/sin v), v = |Im Δ|: on the line between, η² is real and negative. There |χ| is at
    most |exp(-mη²/2)|/2, and on the other side |1 - χ| is (|erfc(x)| ≤ |exp(-x²)| for Re x ≥ 0).
    """

    loss: float
    sharpness: float

    def shares(self, loss: AnyFloats) -> tuple[AnyFloats, AnyFloats, Floats]:
        """χ and 1 - χ, and a bound on the error of either.

        ln λ is taken to be off by 2⁻⁵³ of 80, at most. What is next to 0 or to 1 is set to it.
        """
        ratio = loss / self.loss
        distance = _log(ratio)
        excess = -self.sharpness * (ratio.real - 1.0 - distance.real)
        above = distance.real > _bent(np.abs(distance.imag))
        chi, rest = (~above).astype(loss.dtype), above.astype(loss.dtype)
        error = 0.5 * np.exp(np.minimum(excess, 600.0))
        between = excess > -_FADED
        inner = distance[between]
        near = np.abs(inner) < 0.4
        series = _exponential_series(np.where(near, inner, 0.1), 2, 15)
        full = np.where(near, 1.0, inner)
        slope = np.expm1(inner)
        root = np.sqrt(np.where(near, series, (slope - full) / full**2))
        place = math.sqrt(self.sharpness) * inner * root
        # dχ = √(m/2π)·e^{-mη²/2}·η'·dΔ, and η·η' = e^Δ - 1.
        moved = np.abs(slope) / np.maximum(np.abs(inner * root), 1e-9)
        care = 16.0 + 4.0 * np.abs(place) ** 2 + 160.0 * math.sqrt(self.sharpness) * moved
        error[between] *= 2.0 * (_ERFC_ERROR + _UNIT * care)
        right = place.real >= 0.0
        small = 0.5 * erfc(np.where(right, place, -place))
        chi[between] = np.where(right, small, 1.0 - small)
        rest[between] = np.where(right, 1.0 - small, small)
        return chi, rest, error

    def log_excess(self, loss: AnyFloats) -> Floats:
        """Ln |exp(-mη²/2)|."""
        ratio = loss / self.loss
        found: Floats = -self.sharpness * (ratio.real - 1.0 - np.log(np.abs(ratio)))
        return found

    def bounds(self, loss: AnyFloats, pull: AnyFloats, bend: Floats) -> tuple[Floats, Floats]:
        """Bounds on |χ| and |1 - χ| in cells where λ moves by ± ``pull``, and ``bend`` off that."""
        moved = np.abs(pull) + bend
        part = np.minimum(moved / np.abs(loss), 1.0)
        turned = -np.log1p(-part)
        distance = _log(loss / self.loss)
        steep = 1.0 / self.loss - 1.0 / loss
        high = np.abs((steep * pull).real) + np.abs(steep) * bend + 0.5 * (part / (1.0 - part)) ** 2
        tail = 0.5 * np.exp(self.log_excess(loss) + self.sharpness * high)
        tail = np.where(part < 1.0, tail, np.inf)
        angle = np.abs(distance.imag)
        above = distance.real - turned >= _bent(angle + turned)
        below = distance.real + turned <= _bent(np.maximum(angle - turned, 0.0))
        return np.where(above, tail, 1.0 + tail), np.where(below, tail, 1.0 + tail)

    @cached_property
    def fade(self) -> float:
        """The Δ beyond which χ·e^{zλ} is nothing, for z ≤ sharpness/2·loss and any curve."""
        distance = 0.1
        while self.sharpness * (0.25 * math.expm1(distance) - distance - 1.0) < 45.0:
            distance += 0.05
        return distance


def _bent(angle: AnyFloats) -> Floats:
    """ln(v/sin v), infinite from π on."""
    inside = np.clip(angle.real, 1e-6, 3.14)
    tangent = np.tan(0.5 * inside)
    found: Floats = np.log(0.5 * inside * (1.0 + tangent * tangent) / tangent)
    found[angle.real >= 3.14] = np.inf
    return found


class Places(NamedTuple):
    """Points of all curves: y, dy/ds, w = q/(1-q)·e^y and λ = ln(1 + w)."""

    y: Complexes
    turn: Complexes
    odds: Complexes
    loss: Complexes


class Curves:
    """Curves y(s) = s + iβ(s), one per start of their rise, with all that bounds need.

    β rises like e^(s - start) to about ``LIFT``, and beyond the knee along a slant, as λ(y) does.
    ``digits`` is ``DIGITS`` unless it is given.

    Raises:
        TooSlow: if that takes too many nodes.
    """

    def __init__(
        self,
        step: Step,
        cut: Cut,
        rises: tuple[Floats, Floats],
        span: tuple[float, float],
        part: Part,
        digits: float | None = None,
    ) -> None:
        self._step, self._cut, self._rises, self._jumps = step, cut, rises, part == "jumps"
        self.strip = min(_STRIP, 3.5 / math.sqrt(cut.sharpness))
        growth = 0.5 * step.variance * self.strip**2
        self.spacing = 2.0 * math.pi * self.strip / ((digits or DIGITS) + growth)
        if not (span[1] - span[0]) * len(rises[0]) < _MOST * self.spacing:
            raise TooSlow
        count = _NODES * math.ceil((span[1] - span[0]) / (_NODES * self.spacing))
        nodes = span[0] + self.spacing * np.arange(count)
        self._nodes, self._is_bounded = nodes, False
        self._lay_nodes(nodes)

    def _lay_bounds(self) -> None:
        """Whatever bounds need beside the nodes."""
        if self._is_bounded:
            return
        nodes, self._is_bounded = self._nodes, True
        self._lay_errors()
        self._lay_cells(nodes)
        ends = np.array([nodes[0], nodes[-1]]) + 0.5 * self.spacing * np.array([-1.0, 1.0])
        places = self._places(ends)
        self._lay_left(float(ends[0]), places)
        self._lay_right(float(ends[1]), places)

    def _places(self, s: AnyFloats) -> Places:
        y, turn = _rising(s, self._step, *self._rises)
        odds = _exp(y)
        odds *= self._step.odds
        small = np.abs(odds) < 1.0
        over = 1.0 / odds
        np.copyto(over, odds, where=small)
        loss = log1p(over)
        np.add(loss, y - self._step.knee, out=loss, where=~small)
        return Places(y, turn, odds, loss)

    # ---- on the nodes

    def _lay_nodes(self, nodes: Floats) -> None:
        y, turn, _, loss = self._places(nodes)
        self.y, self._loss = y, loss
        self._log_whole = self._step.log_density(y) + _log(turn) + math.log(self.spacing)
        self.whole = _exp(self._log_whole)
        self.chi, self.rest, self._blur = self._cut.shares(loss)

    def _lay_errors(self) -> None:
        """Bounds on the rounding of terms: of their sum and exponents.

        y is off by 2⁻⁵³ of itself, and e^y by as much.
        """
        loss, blur, size = self._loss, self._blur, np.abs(self.y)
        mass = np.abs(self.whole)
        care = _UNIT * (96.0 + 4.0 * np.abs(self._log_whole) + 8.0 * size)
        shift = _UNIT * np.abs(loss) * (8.0 + 2.0 * size)
        share = np.ones(mass.shape) if self._jumps else np.abs(self.chi)
        self._mass, self._jump_share = mass, np.abs(self.rest)
        self._care, self._shift = share * care, share * shift
        self._jump_care, self._jump_shift = self._jump_share * care + blur, self._jump_share * shift
        if not self._jumps:
            self._care += blur
        self._rest_error = (mass * self._jump_care).sum(axis=1)
        # Above their own rounding: of exponents by their size.
        self._node_lines = np.empty((len(loss), 4, loss.shape[1]))
        self._node_lines[:, 0], self._node_lines[:, 1] = loss.real, -loss.imag
        self._node_lines[:, 2] = 1e-15 * np.abs(loss)
        log_sizes = np.log(mass * (share if self._jumps else share + blur))
        self._node_lines[:, 3] = log_sizes + 1e-15 * np.abs(self._log_whole)
        self._node_kinds = np.ones((*loss.shape, 2))
        self._node_kinds[..., 1] = self._jump_share + blur

    def sums(self, power: Complexes, index: int) -> Sums:
        """Of e^{pλ}: B, or M and J, along one curve, with bounds on the rounding."""
        self._lay_bounds()
        start, late, grown = self.terms(power, index)
        whole = self.whole[index]
        sizes, far = np.abs(grown), np.abs(power)
        beyond = self._mass[index, start:]
        error = sizes @ self._care[index]
        error += far * ((sizes[:, start:] + beyond) @ self._shift[index, start:])
        error += float(beyond @ self._care[index, start:])
        if not self._jumps:
            error += float(self._rest_error[index])
            nothing = np.zeros(len(power))
            return Sums(self._ordinary(grown, index), error, nothing, nothing)
        deviation = grown.sum(axis=1)
        grown[:, start:] = late
        grown[:, :start] += whole[:start]
        sizes = np.abs(grown)
        jumps_error = sizes @ self._jump_care[index] + far * (sizes @ self._jump_shift[index])
        return Sums(deviation, error, (grown * self.rest[index]).sum(axis=1), jumps_error)

    def terms(self, power: Complexes, index: int) -> tuple[int, Complexes, Complexes]:
        """Where |pλ| comes to 1; from there on e^{pλ} times the density; everywhere e^{pλ} - 1."""
        loss, whole = self._loss[index], self.whole[index]
        most = float(np.abs(power).max())
        # Where |pλ| < 1 digits would cancel.
        large = np.abs(loss) * most >= 1.0
        start = int(large.argmax()) if large.any() else len(loss)
        exponent = np.multiply.outer(power, loss)
        grown = np.empty_like(exponent)
        early = exponent[:, :start]
        np.multiply(_expm1(early), whole[:start], out=grown[:, :start])
        late = _exp(exponent[:, start:] + self._log_whole[index, start:])
        grown[:, start:] = late - whole[start:]
        return start, late, grown

    def _ordinary(self, grown: Complexes, index: int) -> Complexes:
        found: Complexes = (grown * self.chi[index]).sum(axis=1)
        found -= (self.whole[index] * self.rest[index]).sum()
        return found

    # ---- between the nodes

    def _lay_cells(self, nodes: Floats) -> None:
        """Cells along the sides of the rectangle: many on the long ones, 4 on each short one."""
        h, d = self.spacing, self.strip
        middles = nodes[::_NODES] + 0.5 * (_NODES - 1) * h
        up = 0.25j * d * np.array([-3.0, -1.0, 1.0, 3.0])
        ends = [nodes[0] - 0.5 * h + up, nodes[-1] + 0.5 * h + up]
        s = np.concatenate([middles + 1j * d, middles - 1j * d, *ends])
        sizes = [2 * len(middles), 8]
        halves = np.repeat([0.5 * _NODES * h, 0.25 * d], sizes)
        ways = np.repeat([1.0 + 0.0j, 1.0j], sizes)
        folds = math.expm1(2.0 * math.pi * d / h)
        # ∫ 1/(1 + e^{2πv/h}) dv from 0 on, and from d/2 on.
        near, far = h * math.log(2.0) / (2.0 * math.pi), h * math.exp(-math.pi * d / h) / math.tau
        short = np.tile([far, near, near, far], 2)
        weights = np.concatenate([np.full(sizes[0], _NODES * h / folds), short])
        y, turn, odds, loss = self._places(s)
        variance, steep = self._step.variance, np.abs(turn)
        reach = halves * (steep + halves * _CURVATURE)
        grown = np.abs(odds) * np.exp(reach)
        gap = np.maximum(np.abs(1.0 + odds) - np.abs(odds) * np.expm1(reach), 0.0)
        curl = 0.5 * halves**2 * _CURVATURE
        rate, down = odds / (1.0 + odds), variance * y + 0.5
        pull, bend = (
            halves * rate * turn * ways,
            np.abs(rate) * curl + 0.5 * reach**2 * grown / gap**2,
        )
        chi, rest = self._cut.bounds(loss, pull, bend)
        fall = -(halves * down * turn * ways).real
        level = self._step.log_density(y).real + np.abs(down) * curl + 0.5 * variance * reach**2
        level += np.log((steep + halves * _CURVATURE) * weights)
        self._cell_one = np.exp(level + np.abs(fall))
        moved = np.abs(pull) + bend
        self._cell_most = np.abs(loss) + moved
        of_small = math.e * self._cell_one * self._cell_most
        self._cell_small = of_small if self._jumps else of_small * chi
        # What is linear in p, and beside it what may be added or taken off.
        size = len(s)
        self._cell_lines = np.zeros((len(loss), 4, 2 * size))
        self._cell_lines[:, 0, :size], self._cell_lines[:, 0, size:] = loss.real, pull.real
        self._cell_lines[:, 1, :size], self._cell_lines[:, 1, size:] = -loss.imag, -pull.imag
        self._cell_lines[:, 2, :size] = bend
        self._cell_lines[:, 3, :size] = level if self._jumps else level + np.log(chi)
        self._cell_lines[:, 3, size:] = fall
        self._cell_kinds = np.ones((*loss.shape, 3))
        self._cell_kinds[..., 2] = rest
        # Im ln(1 + x) is Im x but for |x|²/2(1 - |x|).
        part, across = (moved / np.abs(loss))[0], np.abs((pull[0] / loss[0]).imag)
        turned = across + (bend / np.abs(loss))[0] + 0.5 * part**2 / np.maximum(1.0 - part, 0.0)
        angles = np.append(np.angle(loss[0]) - turned, np.angle(self._loss[0]))
        self._least_angle = float(angles.min())

    def _missed(self, lines: Floats, most: Floats, index: int) -> tuple[Floats, Floats]:
        """What the nodes of a curve may miss between them, at each p of some triangles.

        Of e^{pλ}; of it where |pλ| is not small; of J; and of the rest of e^{pλ} - 1: where |pλ| is
        below 1 for all p it is no more than e·|pλ|.
        """
        one, kinds = self._cell_one[index], self._cell_kinds[index]
        terms = lines @ self._cell_lines[index]
        above = terms[:, len(one) :]
        terms = terms[:, : len(one)]
        terms += np.abs(above, out=above)
        np.exp(terms, out=terms)
        small = self._cell_most[index] * float(most.max()) < 1.0
        kinds[:, 1] = ~small
        fixed = float(one[~small].sum()) + most * float(self._cell_small[index][small].sum())
        if not self._jumps:
            fixed += float((one * kinds[:, 2])[small].sum())
        return terms @ kinds, fixed

    # ---- beyond the nodes

    def _lay_left(self, first: float, places: Places) -> None:
        """On the level path to the left |λ| ≤ |w|/(1 - |w|), and arg λ ≥ arg w - arg(1 + w)."""
        step, cut = self._step, self._cut
        height, w = places.y[:, 0].imag, np.abs(places.odds[:, 0])
        self._left_loss = w / (1.0 - np.minimum(w, 1.0))
        self._left_angle = np.maximum(height - np.arcsin(np.minimum(w, 1.0)), 0.0)
        grown = np.exp(0.5 * step.variance * height**2) * _ROUND_UP
        self._left_mass = float(ndtr((first + 0.5 / step.variance) * step.sigma)) * grown
        # ∫|w| times the density: e^y moves the mean by 1/σ².
        moved = float(ndtr((first - 0.5 / step.variance) * step.sigma))
        self._left_mean = moved * step.odds * grown / (1.0 - np.minimum(w, 1.0))
        ratio = self._left_loss / cut.loss
        log_rest = cut.sharpness * (np.log(ratio) + 1.0 + ratio)
        self._left_rest = np.where(ratio < 1.0, 0.5 * np.exp(log_rest), np.inf)
        self._least_angle = min(self._least_angle, float(self._left_angle[0]))

    def _left(self, power: Complexes, curves: Indices) -> Floats:
        """A bound on ∫|e^{pλ}| times the density, on the left."""
        turned = (power * np.exp(1j * self._left_angle[curves])).real
        found: Floats = self._left_mass[curves] * np.exp(
            self._left_loss[curves] * np.maximum(turned, 0.0)
        )
        return found

    def _lay_right(self, last: float, places: Places) -> None:
        """The ray to the right: its start and direction, and how fast the integrand falls there."""
        step = self._step
        y, _, odds, loss = (one[:, 1] for one in places)
        # ∫ of the density alone: down to the real axis, and along it.
        tail = float(ndtr(-(last + 0.5 / step.variance) * step.sigma))
        density = np.exp(step.log_density(y).real)
        self._beyond = (np.abs(y.imag) * density + tail) * _ROUND_UP
        self._right_loss, self._right_way = loss, np.minimum(np.angle(loss), _FLAT)
        if self._jumps:
            self._lay_right_of_jumps(y, odds, loss)
        else:
            self._lay_right_of_chi(loss)
        slack = math.asin(min(float(self._right_slack[0]), 1.0))
        self._least_angle = min(self._least_angle, float(self._right_way[0]) - slack)

    def _lay_right_of_jumps(self, y: Complexes, odds: Complexes, loss: Complexes) -> None:
        """y(τ) = y + τe^{iν}: λ' is 1 but for r = 1/(|w| - 1), and the bound on |χ| falls."""
        step, cut, way, size = self._step, self._cut, self._right_way, np.abs(loss)
        r = np.where(np.abs(odds) > 1.5, 1.0 / np.maximum(np.abs(odds) - 1.0, 0.5), np.inf)
        shifted = (y + 0.5 / step.variance) * np.exp(1j * way)
        self._right_origin, self._right_slack = 0.0, r
        self._right_fall = step.variance * shifted.real
        self._right_level = step.log_density(y).real
        falls = np.cos(way) - r >= (1.0 + r) * cut.loss / size
        turned = np.angle(loss) + np.arcsin(np.minimum(r, 1.0))
        falls &= np.log(size / cut.loss) >= _bent(turned)
        share = 1.0 + 0.5 * np.exp(cut.log_excess(loss))
        self._right_share = np.where(falls, share, np.inf)

    def _lay_right_of_chi(self, loss: Complexes) -> None:
        """λ(τ) = λ + τe^{iν}: |χ·e^{pλ}| ≤ |λ/l|^m·|exp(m + (p - m/l)λ)|/2, and |dy/dλ| falls.

        Im y ≤ Im λ + π/2, and Re y ≥ ln(e^{Re λ} - 1) + knee, which grows no slower than Re λ.
        """
        step, cut, way, size = self._step, self._cut, self._right_way, np.abs(loss)
        up = loss.imag + 0.5 * math.pi
        right = step.knee + np.log(np.expm1(loss.real)) + 0.5 / step.variance
        self._right_origin, self._right_slack = cut.sharpness / cut.loss, np.zeros(len(loss))
        fall = step.variance * (right * np.cos(way) - up * np.sin(way))
        self._right_fall = fall - cut.sharpness / size
        level = 0.5 * math.log(step.variance / (8.0 * math.pi)) - np.log(-np.expm1(-loss.real))
        level += cut.sharpness * (1.0 + np.log(size / cut.loss))
        level += 0.5 * step.variance * (up**2 - right**2)
        fine = (loss.real > 0.0) & (right >= 0.0)
        fine &= np.log(size / cut.loss) >= _bent(np.angle(loss))
        self._right_level = np.where(fine, level, np.inf)

    def _right(self, power: Complexes, curves: Indices) -> Floats:
        """A bound on ∫|χe^{pλ}|, or ∫|e^{pλ}|, times the density, on the right."""
        shifted = power - self._right_origin
        slope = (shifted * np.exp(1j * self._right_way[curves])).real - self._right_fall[curves]
        slope += np.abs(shifted) * self._right_slack[curves]
        level = (shifted * self._right_loss[curves]).real + self._right_level[curves]
        found: Floats = np.where(slope < 0.0, np.exp(level) / -slope, np.inf)
        return found

    # ---- all together

    def least_angle(self) -> float:
        """The least angle of a loss wherever the bounds of the first curve were taken."""
        self._lay_bounds()
        return self._least_angle

    def log_sizes(self, power: Complexes, curves: Indices) -> Sizes:
        """Ln of bounds on |B|, or on |M| + |J| and |J|, at each of the triangles' corners p.

        With them, what sums along a triangle's curve leave out, at most, anywhere in it.
        """
        self._lay_bounds()
        nodes, cells, fixed = by_curve(self._along, power, curves)
        nodes, cells = nodes * _ROUND_UP_SUM, cells * _ROUND_UP
        each = curves[:, None]
        left, right = self._left(power, each), self._right(power, each)
        rest = self._left_rest[curves]
        whole = nodes[..., 0] + cells[..., 0] + left * (1.0 + rest)[:, None] + right
        # |e^x - 1| ≤ |x|·exp(Re x), if that is above 0.
        off = np.abs(power).max(axis=1) * self._left_mean[curves] / self._left_mass[curves]
        off = off * left.max(axis=1) * (1.0 + rest) + (cells[..., 1] + right).max(axis=1)
        off += fixed * _ROUND_UP + self._beyond[curves]
        if not self._jumps:
            off += self._left_mass[curves] * rest
            nothing = np.zeros(power.shape)
            return Sizes(np.log(whole), nothing, off, nothing[:, 0])
        off_jumps = cells[..., 2] + right * self._right_share[each] + left * rest[:, None]
        above = nodes[..., 1] + off_jumps
        return Sizes(np.log(whole + above), np.log(above), off, off_jumps.max(axis=1))

    def _along(self, power: Complexes, index: int) -> tuple[Floats, Floats, Floats]:
        """Of one curve: sums of sizes over its nodes, over its cells, and a part that is fixed."""
        size = np.abs(power)
        lines = np.ones((power.size, 4))
        lines[:, 0], lines[:, 1] = power.real.ravel(), power.imag.ravel()
        lines[:, 2] = size.ravel()
        terms = lines @ self._node_lines[index]
        np.exp(terms, out=terms)
        nodes = terms @ self._node_kinds[index]
        cells, fixed = self._missed(lines, size.max(axis=1), index)
        return nodes.reshape(*power.shape, 2), cells.reshape(*power.shape, 3), fixed


def by_curve(
    evaluate: Callable[[Complexes, int], tuple[AnyFloats, ...]], z: Complexes, index: Indices
) -> tuple[AnyFloats, ...]:
    """Evaluates every z, or row of them, along its own curve, curve by curve."""
    order = np.argsort(index, kind="stable")
    edges = np.flatnonzero(np.diff(index[order])) + 1
    found = [evaluate(z[which], int(index[which[0]])) for which in np.split(order, edges)]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return tuple(np.concatenate(columns)[back] for columns in zip(*found, strict=True))


class Sizes(NamedTuple):
    """Ln of bounds on a part and on J by corners, and by triangles on what sums leave out."""

    log_whole: Floats
    log_jumps: Floats
    missed: Floats
    jumps_missed: Floats


def _rising(s: AnyFloats, step: Step, starts: Floats, tops: Floats) -> tuple[Complexes, Complexes]:
    """y(s) and y'(s) for every curve: they rise from about ``starts`` by ``tops``·LIFT."""
    # Far beyond the knee the best height is Im z/σ².
    height = np.exp(np.clip(step.knee - starts, -60.0, 60.0))[:, None]
    most = np.minimum(tops[:, None], height)
    slant = _SLANT * np.minimum(1.0, 0.1 * LIFT * height)
    early = np.minimum(starts + np.log(tops), step.knee)[:, None] - s
    begun: AnyFloats = _exp(early) if np.iscomplexobj(s) else np.exp(early)
    begun += 1.0
    np.reciprocal(begun, out=begun)
    beyond = s - step.knee
    past = beyond.real > 0.0
    swing = np.exp(np.where(past, -beyond, beyond))
    slope = np.where(past, 1.0, swing) / (1.0 + swing)
    lift = slant * (np.where(past, beyond, 0.0) + np.log1p(swing))
    lift += LIFT
    turn = lift * (1.0 - begun)
    turn += slant * slope
    begun *= most
    turn *= begun
    lift *= begun
    return s + 1j * lift, 1.0 + 1j * turn


class Sums(NamedTuple):
    """M or B, less 1, and J, with bounds on the errors of rounding."""

    deviation: AnyFloats
    error: AnyFloats
    jumps: AnyFloats
    jumps_error: AnyFloats


def _exponential_series(x: Complexes, first: int, last: int) -> Complexes:
    """Σ xᵏ⁻ᶠ/k! for k from f = ``first`` to ``last``, for |x| ≤ 1: all digits of a few terms."""
    total = np.full_like(x, 1.0 / math.factorial(last))
    for k in range(last - 1, first - 1, -1):
        total *= x
        total += 1.0 / math.factorial(k)
    return total


def _exp(x: AnyFloats) -> Complexes:
    """e^x, to 4 roundings of itself, in a third of NumPy's time.

    With t = tan(b/2), cos b = (1 - t²)/(1 + t²) and sin b = 2t/(1 + t²): what t is off by turns it
    by no more.
    """
    tangent = 0.5 * x.imag
    np.tan(tangent, out=tangent)
    square = tangent * tangent
    size = x.real.copy()
    np.exp(size, out=size)
    size /= 1.0 + square
    found: Complexes = np.empty(x.shape, np.complex128)
    tangent *= 2.0 * size
    found.imag = tangent
    square *= size
    size -= square
    found.real = size
    return found


def _expm1(x: Complexes) -> Complexes:
    """e^x - 1, to 8 roundings of |x|, for |x| ≤ 1: Re = ((e^a - 1)(1 - t²) - 2t²)/(1 + t²)."""
    tangent = 0.5 * x.imag
    np.tan(tangent, out=tangent)
    square = tangent * tangent
    less = x.real.copy()
    np.expm1(less, out=less)
    over = 1.0 / (1.0 + square)
    found: Complexes = np.empty(x.shape, np.complex128)
    tangent *= 2.0 * over
    tangent *= less + 1.0
    found.imag = tangent
    less *= 1.0 - square
    square *= 2.0
    less -= square
    less *= over
    found.real = less
    return found


def _log(x: AnyFloats) -> Complexes:
    """Ln x, to a rounding of itself or of 1, in a tenth of NumPy's time."""
    found: Complexes = np.empty(x.shape, np.complex128)
    found.real = np.log(np.abs(x))
    found.imag = np.arctan2(x.imag, x.real)
    return found


def log1p(x: AnyFloats) -> Complexes:
    """Ln(1 + x), accurate in relative terms where x is small, which NumPy's is not."""
    square = 2.0 * x.real + x.real**2 + x.imag**2
    found: Complexes = np.empty(x.shape, np.complex128)
    found.real = 0.5 * np.log1p(square)
    found.imag = np.arctan2(x.imag, 1.0 + x.real)
    return found
