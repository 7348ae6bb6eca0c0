"""Random allocation of Gaussian steps: each record in exactly one of t lots, chosen at random.

An epoch's dominating pair is P = 1/t·Σ_i N(e_i, σ²I) against Q = N(0, σ²I), e_i the unit vectors,
also when steps are chosen adaptively (Chua et al. 2025, "Balls-and-Bins Sampling"; Feldman &
Shenfeld 2025). With X = exp(Z/σ - 1/2σ²), Z ~ N(0, 1), the likelihood ratio dP/dQ is under Q the
mean S of t independent X. Hence, with L = ln S if the record is removed and -ln S if it is added,

    M(z) = E_P[S^z] = E_Q[S^(1+z)]   and   M(z) = E_Q[S^-z] :

moments of S, at complex orders. They follow from its Laplace transform on a ray: for Re ζ > 0

    E[S^(n-ζ)] = 1/Γ(ζ) · ∫ s^ζ·F_n(s) dy ,  s = e^(y-iθ) ,  F_n(s) = E[S^n·exp(-sS)] ,

and F_n is a Taylor coefficient: (t^n/n!)·F_n(s) is that of x^n in E[exp((x - s/t)·X)]^t, whose
inner coefficients T_k = E[X^k·exp(-sX/t)]/k! are integrals over z. On a line Im z = a > 0 they do
not oscillate. Removed, n is about the tilt and the ray the imaginary axis, θ = π/2; added, n = 0
and the ray runs at η = π/2 - θ from it, where s^ζ·exp(-s) is largest.

Every error is bounded:

- ln S = G/(σ√t) + something independent, G ~ N(0, 1) the standardised sum of the Z. Hence
  |E[S^(w+iu)]| ≤ E[S^w]·exp(-u²/2σ²t), which bounds the tail of the contour, and, by Poisson
  summation, the error of the trapezoid rule in y: the same integral at the frequencies u + 2πk/h.
- Below the first node in y, F_n is its Taylor polynomial, whose terms are whole moments of S; they
  are known, and so is what the polynomial leaves out.
- Beyond the last, |F_n(s)| ≤ exp(t·a²/2)·E[S^n·exp(-|s|·sin(a/σ + η)·S)], by moving each Z to
  Im z = a.
- The trapezoid rule in z, and rounding, as for mixtures.

Whole moments of S also bound ln M between them, since it is convex; S is no less than the
geometric mean of the X, which bounds E[S^-z].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln, loggamma

from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.exact.contour import Aim, Point, SaddleSearch
    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.transforms import Complexes, Composition, Floats

_UNIT = 4.0 * 2.0**-53  # a rounding, with a safety factor
_DIGITS = 37.0  # the most that are asked for
_LINE = 1.2  # the largest Im z: the weights there are exp(a²/2) times as large
_FAR = 9.2  # standard deviations; Φ(-9.2) is 2e-20
_FARTHER, _BEYOND = 25.0, 4e-138  # the same where tails are bounded; Φ(-25)
_MOST_ORDER = 16  # n: powers of S that the Taylor coefficients count
_GROWTH = 0.3  # of ln of the error of F_n, and of the work, as n grows by 1
_MOST_SHIFT = 20.0  # n/σ: X^n moves Z by that much
_MOST_MOMENTS = 200
_MOST_LOG = 300.0  # of a moment of X
_CANCELLED = 3.0  # ln of what an integral along a ray may cancel
_MOST_TERMS = 13  # of a Taylor polynomial, its remainder included
_MOST_NODES = 150_000  # in y
_ROOM = 500_000  # nodes in y times those in z, at a time, to spare memory
_STEP_DIGITS = 2.0**30  # so that a step in y times the number of any node is exact
_LITTLE = 1.2  # σ from which X varies little
_BLOCK = 64  # terms of one inner product over y: rounding grows with their number
_SHORT = 16  # the same over z
_FREQUENCIES = 256  # at a time, to spare memory
LEAST_SIGMA = 0.15
"""Noise so small that allocation hides next to nothing."""
MOST_SPREAD = 1000.0
"""The largest σ√t: nodes in y grow with it."""


@dataclass(frozen=True)
class AllocationLoss:
    """The loss of one epoch of ``steps`` Gaussian steps, its record removed or added."""

    sigma: float
    steps: int
    removed: bool
    largest: float = math.inf

    @property
    def spread(self) -> float:
        """The standard deviation of the Gaussian part of ln S."""
        return 1.0 / (self.sigma * math.sqrt(self.steps))

    @property
    def rough_variance(self) -> float:
        """About the variance of the loss: ln E[S²]."""
        return math.log1p(min(math.expm1(min(self.sigma**-2, 50.0)) / self.steps, 1e6))

    @property
    def is_skewed(self) -> bool:
        """Whether one step may outweigh the others, so that the loss is far from normal."""
        return self.sigma < _LITTLE

    @property
    def tilts(self) -> tuple[float, ...]:
        """Tilts at which the transform keeps its digits if the record is removed."""
        return tuple(n - 1.35 for n in range(2, _order_of(self.sigma) + 1))

    def lost_digits(self, tilt: float) -> float:
        """Removed, ln of E[S^n] over the moment that is found from it; n as in the transform."""
        known = log_moments(self.sigma, self.steps)
        order = min(_order_for(tilt), len(known) - 1)
        return float(known[order]) - self.moments(tilt)[0]

    def real_line(self, reach: float, digits: float) -> AllocationLoss:  # noqa: ARG002
        """Itself: moments serve every tilt."""
        return self

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """About ln M and its first two derivatives: a parabola through whole moments."""
        if not self.removed:
            return _around(_real_line(self.sigma, self.steps).log_mgf, tilt)
        known = log_moments(self.sigma, self.steps)
        middle = min(max(round(1.0 + tilt), 1), len(known) - 2)
        below, here, above = known[middle - 1 : middle + 2].tolist()
        slope, bend = 0.5 * (above - below), max(above - 2.0 * here + below, 1e-12)
        off = 1.0 + tilt - middle
        return here + off * (slope + 0.5 * bend * off), slope + bend * off, bend

    def log_mgf_bound(self, tilt: float) -> float:
        """A bound on ln M: chords between whole moments; added, chords of E[exp(-sS)]."""
        precision = self.sigma**-2
        if not self.removed:
            return _real_line(self.sigma, self.steps).log_mgf(tilt)
        known, order = log_moments(self.sigma, self.steps), 1.0 + tilt
        below = math.floor(order)
        if below + 1 >= len(known):
            # The mean of convex powers: E[S^m] ≤ E[X^m].
            return 0.5 * order * tilt * precision * (1.0 + _UNIT)
        first, second = known[below : below + 2].tolist()
        return float(first + (order - below) * (second - first)) + _moment_error(self.steps)

    def tilted(
        self,
        tilt: float,
        frequency: float,
        digits: float,
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedAllocation:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""
        # Removed, the tilt is not the best one, and the sum far larger than what it tells.
        return TiltedAllocation(self, tilt, frequency, _DIGITS if self.removed else digits)


def within_reach(composition: Composition, search: SaddleSearch, aim: Aim) -> Aim:
    """The same aim, through a tilt at which the transforms of allocations are known best.

    Where the best tilt is large it would take many powers of S, and where losses are small it gains
    little; any tilt is valid.
    """
    found = [loss for loss, _ in composition if isinstance(loss, AllocationLoss)]
    losses = [loss for loss in found if loss.removed]
    if not losses:
        return aim
    most = min(loss.tilts[-1] for loss in losses)
    tilts = [tilt for loss in losses for tilt in loss.tilts if tilt < min(aim.tilt, most)]
    points = [search.at(tilt, tilt) for tilt in (*tilts, min(aim.tilt, most))]

    def error(point: Point) -> float:
        # The smaller the tilt, the more nodes the contour needs. F_n errs in units of E[S^n].
        cost = _GROWTH * point.tilt - math.log(point.tilt)
        lost = max(loss.lost_digits(point.tilt) for loss in losses)
        return cost + lost + point.log_mgf - point.tilt * aim.epsilon

    return replace(aim, point=min(points, key=error))


def _order_of(sigma: float) -> int:
    """The largest n."""
    return max(3, min(_MOST_ORDER, math.floor(_MOST_SHIFT * sigma)))


def _order_for(tilt: float) -> int:
    """The order for one tilt, such that ¼ ≤ Re ζ < 1¼."""
    return math.ceil(1.25 + tilt)


def _around(log_mgf: Callable[[float], float], tilt: float) -> tuple[float, float, float]:
    """About ln M and its first two derivatives, by differences."""
    step = 0.05 * tilt
    below, here, above = (log_mgf(tilt + k * step) for k in (-1, 0, 1))
    bend = (above - 2.0 * here + below) / step**2
    return here, 0.5 * (above - below) / step, max(bend, 1e-12)


# ---- real moments


@dataclass(frozen=True, eq=False)
class _RealLine:
    """Bounds on ln E[S^-z], z > 0, from φ(s) = E[exp(-sS)] at s = e^y.

    Γ(z)·E[S^-z] is the integral of s^(z-1)·φ(s). Both φ(s) and φ(s)·e^s = E[exp(-s(S-1))] are
    convex: their chords are above them, and integrate to powers and to incomplete gamma functions.
    Chords of the second are the better ones, as far as its weight exp(-s) is a number. Beyond the
    last node φ(s) ≤ (m/es)^m·E[S^-m], the largest x^m·exp(-sx) times a negative moment, which the
    geometric mean bounds.
    """

    loss: AllocationLoss
    y: Floats
    logs: Floats

    def log_mgf(self, tilt: float) -> float:
        """No smaller than ln E[S^-tilt]."""
        s = np.exp(self.y)
        place = int(np.searchsorted(s, tilt + 10.0 * math.sqrt(tilt) + 40.0))
        near = self._weighted(tilt, s[: place + 1], self.logs[: place + 1])
        far = self._plain(tilt, self.y[place:], self.logs[place:]) - float(gammaln(tilt))
        m = 2.0 * tilt + 4.0
        beyond = m * math.log(m / math.e) + self.geometric(m) - (m - tilt) * float(self.y[-1])
        beyond -= math.log(m - tilt) + float(gammaln(tilt))
        found = float(np.logaddexp.reduce([near, far, beyond]))
        return min(found + 1e-9, self.geometric(tilt))

    def _weighted(self, z: float, s: Floats, logs: Floats) -> float:
        """Ln of the integral over Γ(z) from 0 to the last s, by chords of φ(s)·e^s."""
        s, grown = np.append(0.0, s), np.append(0.0, logs + s)
        flat = np.where(s[:-1] < z, np.diff(gammainc(z, s)), -np.diff(gammaincc(z, s)))
        sloped = np.diff(gammainc(z + 1.0, s)), -np.diff(gammaincc(z + 1.0, s))
        moment = z * np.where(s[:-1] < z, *sloped)
        return _chords(grown, s[1:] * flat - moment, moment - s[:-1] * flat, np.diff(s))

    def _plain(self, z: float, y: Floats, logs: Floats) -> float:
        """Ln of the integral from the first to the last s = e^y, by chords of φ(s)."""
        width = np.diff(y)
        growth = np.exp(np.minimum(z * width, 300.0))
        flat, moment = (growth - 1.0) / z, (growth * np.exp(width) - 1.0) / (z + 1.0)
        weights = np.exp(width) * flat - moment, moment - flat
        return _chords(logs, *weights, np.expm1(width), z * y[:-1])

    def geometric(self, tilt: float) -> float:
        """The same, for S is no less than the geometric mean of the X."""
        return 0.5 * self.loss.sigma**-2 * tilt * (1.0 + tilt / self.loss.steps) * (1.0 + _UNIT)


def _chords(
    logs: Floats, first: Floats, last: Floats, widths: Floats, log_units: Floats | float = 0.0
) -> float:
    """Ln of a sum over cells of what their first and last values weigh."""
    with np.errstate(divide="ignore"):
        ends = [np.log(np.maximum(end / widths, 0.0)) + log_units for end in (first, last)]
    parts = np.concatenate([ends[0] + logs[:-1], ends[1] + logs[1:]])
    return float(np.logaddexp.reduce(parts, initial=-math.inf))


@lru_cache(maxsize=64)
def _real_line(sigma: float, steps: int) -> _RealLine:
    loss = AllocationLoss(sigma, steps, removed=False)
    near = math.log(steps) + 4.0
    y = np.concatenate([np.arange(-6.0, near, 0.1), np.arange(near, 42.0, 0.5)])
    return _RealLine(loss, y, _log_damped(loss, 0, y))


# ---- whole moments


@lru_cache(maxsize=64)
def log_moments(sigma: float, steps: int) -> Floats:
    """Ln E[S^m] for m = 0, 1, …: Taylor coefficients of E[exp(xX/t)]^t, all positive.

    E[X^k] = exp(k(k-1)/2σ²).
    """
    most = math.floor(0.5 + math.sqrt(0.25 + 2.0 * _MOST_LOG * sigma**2))
    k = np.arange(min(max(most, 4), _MOST_MOMENTS) + 1)
    unit = math.log(max(1.0, k[-1] / math.e))  # of x, in which no coefficient vanishes
    series = np.exp(0.5 * k * (k - 1) / sigma**2 - gammaln(k + 1) + k * (unit - math.log(steps)))
    found, square = np.eye(1, len(k))[0], series
    left = steps
    while left:
        if left & 1:
            found = np.convolve(found, square)[: len(k)]
        square = np.convolve(square, square)[: len(k)]
        left >>= 1
    logs: Floats = np.log(found) + gammaln(k + 1) - k * unit
    return logs


def _moment_error(steps: int, order: int = _MOST_MOMENTS) -> float:
    """Of ln E[S^m], m up to ``order``: each of 2·log₂ t products adds up m + 1 positive terms."""
    return _UNIT * (2.0 * math.log2(2.0 * steps) * (order + 4.0) + 300.0)


# ---- the characteristic function, and the Taylor coefficients


@dataclass(frozen=True, eq=False)
class _Line:
    """The trapezoid rule over Im z = a: ``weights`` at values of X, which are ``ratio``-fold.

    ln |X| is ``unit``·j - 1/2σ² at node j, the first being ``first``; arg X is ``turn``.
    """

    first: int
    unit: float
    turn: float
    weights: NDArray[np.complex128]
    log_x: NDArray[np.complex128]

    @cached_property
    def sizes(self) -> Floats:
        """The weights' sizes."""
        return np.abs(self.weights)

    @property
    def rounding(self) -> float:
        """Of one sum over the nodes, relative to the sum of its terms' sizes."""
        return _UNIT * (_SHORT + len(self.weights) / _SHORT + 8.0)

    def sums(self, values: Complexes, weights: Complexes) -> Complexes:
        """Sums over the nodes, a column of weights each, in short inner products."""
        total = np.zeros((len(values), weights.shape[1]), complex)
        for k in range(0, len(weights), _SHORT):
            total += np.ascontiguousarray(values[:, k : k + _SHORT]) @ weights[k : k + _SHORT]
        return total


def _spacing(sigma: float, order: int, eta: float) -> tuple[float, float]:
    """Im z = a, and the distance of nodes at which the rule's error is below exp(-42).

    That is relative to E[X^k] for k ≤ ``order``. Both edges of its strip, Im z = 0 and 2a, are
    lines on which Re sX ≥ 0.
    """
    shift = min(0.5 * (math.pi - eta) * sigma, _LINE, math.sqrt(2.0 / max(order, 1)))
    return shift, 2.0 * math.pi * shift / (42.0 + 2.0 * shift * shift)


@lru_cache(maxsize=16)
def _line(sigma: float, order: int, eta: float, unit: float) -> _Line:
    """Nodes that are ``unit`` apart in ln X. They reach far enough for E[X²] too: see `_on_ray`."""
    shift, widest = _spacing(sigma, order, eta)
    step = sigma * unit
    assert step <= widest * (1.0 + 1e-9)
    first = math.floor(-_FAR / step)
    z = step * np.arange(first, math.ceil((_FAR + max(order, 2) / sigma) / step) + 1)
    exponents = np.asarray(-0.5 * z * z + 0.5 * shift * shift - 1j * (shift * z), np.complex128)
    weights: NDArray[np.complex128] = np.exp(exponents)
    weights *= step / math.sqrt(2.0 * math.pi)
    log_x = np.asarray((z + 1j * shift) / sigma - 0.5 / sigma**2, np.complex128)
    return _Line(first, unit, shift / sigma, weights, log_x)


def _power(series: NDArray[Any], exponent: int) -> NDArray[Any]:
    """The last Taylor coefficient of (1 + Σ_k series[k-1]·x^k)^exponent.

    From f' = exponent·f·g'/g with g the series (Knuth, TAOCP 2, 4.7), or, where that would
    subtract, by multiplying: of positive series all terms are positive.
    """
    base = [np.ones_like(series[0]), *series]
    found, orders = base[:1], range(1, len(base))
    if exponent < len(series):
        found = base
        for _ in range(exponent - 1):
            found = [
                np.sum([found[j] * base[k - j] for j in range(k + 1)], axis=0)
                for k in range(len(base))
            ]
        orders = range(0)
    for k in orders:
        total = np.zeros_like(series[0])
        for j in range(1, k + 1):
            total += (exponent * j - (k - j)) / k * base[j] * found[k - j]
        found.append(total)
    last: NDArray[Any] = found[-1]
    return last


@dataclass(frozen=True, eq=False)
class _Row:
    """Nodes in y, ``first`` to ``last`` times ``step``, a whole part of a line's unit.

    Then |s|·X/t at node i of y and node j of the line depends on i + ``ratio``·j alone: what is
    computed of it is computed once for all nodes with the same sum.
    """

    line: _Line
    step: float
    ratio: int
    first: int
    last: int

    @property
    def y(self) -> Floats:
        """The nodes."""
        return self.step * np.arange(self.first, self.last + 1)

    def sizes(self, log_factor: float) -> Floats:
        """|s|·|X| times a factor, in the order of i + ratio·j."""
        start = self.first + self.ratio * self.line.first
        stop = self.last + self.ratio * (self.line.first + len(self.line.weights) - 1)
        found: Floats = np.exp(self.step * np.arange(start, stop + 1) + log_factor)
        return found

    def table(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values in that order as a table over the nodes of y and of the line."""
        shape = (self.last - self.first + 1, len(self.line.weights))
        (stride,) = values.strides
        return np.lib.stride_tricks.as_strided(values, shape, (stride, self.ratio * stride))


def _remainder(u: Complexes, degree: int) -> Complexes:
    """exp(-u) less its Taylor polynomial of a ``degree`` up to 2, with all its digits; Re u ≥ 0."""
    half = np.sin(0.5 * u.imag)
    less = np.expm1(-u.real)
    found = np.asarray(less * np.cos(u.imag) - 2.0 * half * half + 0j, complex)
    found -= 1j * np.sin(u.imag) * (1.0 + less)
    if degree == 0:
        return found
    found += u if degree == 1 else u - 0.5 * u * u
    near = np.abs(u) < 1.0
    series: Complexes = np.zeros(int(near.sum()), complex)
    for k in range(21, degree, -1):
        series = (series + (-1.0) ** k / math.factorial(k)) * u[near]
    found[near] = series * u[near] ** degree
    return found


def _log1p_less(q: Complexes) -> tuple[Complexes, Floats]:
    """ln(1 + q) - q, and what its error is relative to: itself where q is small, else q.

    The digits of 1 + q would not do.
    """
    x, y, size = q.real, q.imag, np.abs(q)
    log_modulus = np.where(
        size < 0.5,
        0.5 * np.log1p(np.maximum(2.0 * x + x * x + y * y, -0.75)),
        np.log(np.maximum(np.hypot(1.0 + x, y), 1e-300)),
    )
    found: Complexes = log_modulus + 1j * np.arctan2(y, 1.0 + x) - q
    near = size < 0.1
    series: Complexes = np.zeros(int(near.sum()), complex)
    for k in range(18, 1, -1):
        series = (series - (-1.0) ** k / k) * q[near]
    found[near] = series * q[near]
    return found, np.where(near, np.abs(found), size + np.abs(log_modulus))


def _on_ray(
    loss: AllocationLoss, order: int, eta: float, row: _Row, log_factor: Complexes
) -> tuple[Complexes, Floats]:
    """exp(log_factor)·F_n(s)·exp(s), n the ``order``, at s = radius·e^{-iθ}; a bound on its error.

    Either all |s| ≤ t or none is. Where they are, T_0 = 1 - w + (w²·E[X²]/2 +) g for w = s/t, where
    g is the integral of what exp(-wX) has beyond the Taylor polynomial of degree 1 (or, where X
    varies little, 2); for E[X] = 1, and E[X²] is known. Then ln T_0 + w is a sum of terms of the
    size of w², and keeps the digits that a large t asks of it. Beyond, T_0 = 1 + E[exp(-wX) - 1].
    """
    steps, line, radii = loss.steps, row.line, np.exp(row.y)
    near = row.step * row.last <= math.log(steps)
    degree = (2 if loss.sigma >= _LITTLE else 1) if near else 0
    ray = complex(math.sin(eta), -math.cos(eta))
    w = radii * (ray / steps)
    sizes = row.sizes(-math.log(steps) - 0.5 / loss.sigma**2)
    u = sizes * (ray * complex(math.cos(line.turn), math.sin(line.turn)))
    rest = _remainder(u, degree)
    g = line.sums(row.table(rest), line.weights[:, None])[:, 0]
    known = 0.5 * math.exp(loss.sigma**-2) * w * w if degree == 2 else np.zeros_like(w)
    q = g + known - (w if degree else 0.0)
    bent, bending = _log1p_less(q)
    modulus = np.abs(1.0 + q)
    log_power = steps * (bent + known + g + (0.0 if degree else w)) + log_factor
    size = np.ascontiguousarray(row.table(np.abs(rest))) @ line.sizes
    flat = line.rounding * steps * size / modulus
    flat += _UNIT * steps * (bending + np.abs(known) + np.abs(g) / modulus)
    flat += _UNIT * (4.0 + radii)
    if order == 0:
        value = np.exp(log_power)
        return value, np.abs(value) * np.expm1(np.minimum(flat, 1.0))
    turned = rest + 1.0 if degree == 0 else _remainder(u, 0) + 1.0
    k = np.arange(1, order + 1)
    log_scale = gammaln(k + 1) + k * math.log(steps)
    powers = np.exp(np.multiply.outer(line.log_x, k) - log_scale)
    series = line.sums(row.table(turned), powers * line.weights[:, None]) / (1.0 + q)[:, None]
    sizes_of_powers = np.abs(powers) * line.sizes[:, None]
    heavy = np.ascontiguousarray(row.table(np.abs(turned))) @ sizes_of_powers
    # What the nodes leave out is measured by the coefficient at s = 0.
    heavy += 1e-2 * np.exp(0.5 * k * (k - 1) / loss.sigma**2 - log_scale)
    factor = math.factorial(order)
    value = factor * _power(series.T, steps) * np.exp(log_power)
    scale = factor * _power((heavy / modulus[:, None]).T, steps) * np.exp(log_power.real)
    sharp = order * (line.rounding + 4.0 * _UNIT * order)
    return value, sharp * scale + np.abs(value) * np.expm1(np.minimum(flat, 1.0))


def _log_damped(loss: AllocationLoss, order: int, log_damping: Floats) -> Floats:
    """Ln E[S^n·exp(-v·S)] at each damping v, in rising order; it falls as v grows. Rounded up.

    The rule's strip ends where Re X = |X|·cos(π/4): its error is below 1e-9 times the same integral
    at 0.7·v, or, if that was not computed, times that at 0.
    """
    strip = min(0.25 * math.pi * loss.sigma, 2.0)
    step = 2.0 * math.pi * strip / (22.0 + 0.5 * strip * strip)
    far = math.ceil((_FAR + order / loss.sigma) / step)
    z = step * np.arange(math.floor(-_FARTHER / step), far + 1)
    k = np.arange(order + 1)
    log_x = z / loss.sigma - 0.5 / loss.sigma**2
    log_scale = gammaln(k + 1) + k * math.log(loss.steps)
    powers = np.exp(np.multiply.outer(log_x, k) - log_scale - 0.5 * (z * z)[:, None])
    powers *= step / math.sqrt(2.0 * math.pi)
    powers[0, 0] += _BEYOND  # all that lies below the first node
    kernel = np.exp(-np.exp(np.add.outer(log_damping - math.log(loss.steps), log_x)))
    kernel[:, 0] = 1.0
    sums = kernel @ powers
    undamped = np.exp(0.5 * k * (k - 1) / loss.sigma**2 - log_scale)
    place = np.searchsorted(log_damping, log_damping + math.log(0.7), "right") - 1
    sums += 1e-9 * np.where(place[:, None] >= 0, sums[np.maximum(place, 0)], undamped)
    found: Floats = loss.steps * np.log(sums[:, 0])
    if order:
        series = sums[:, 1:] / sums[:, :1]
        found += np.log(math.factorial(order) * _power(series.T, loss.steps))
    return found


# ---- the integral along one ray


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The trapezoid rule in y: what it sums, in the ray's unit.

    Attributes:
        y: The nodes, ``step`` apart.
        values: step·|s|^(Re ζ)·F_n(s) there.
        polynomial: The coefficients of F_n's Taylor polynomial, for what lies below the nodes.
        error: A bound on the error of the sum, but for its own rounding, whatever the frequency.
    """

    y: Floats
    step: float
    values: Complexes
    polynomial: Complexes
    error: float

    def below(self, zeta: Complexes) -> Complexes:
        """The sum below the first node, by the Taylor polynomial: geometric series."""
        last = float(self.y[0]) - self.step
        total: Complexes = np.zeros(len(zeta), complex)
        for k, coefficient in enumerate(self.polynomial.tolist()):
            power = zeta + k
            total += coefficient * np.exp(power * last) / -np.expm1(-power * self.step)
        total *= self.step
        return total


@dataclass(frozen=True, eq=False)
class _Ray:
    """E[S^(n-ζ)] by the ray at η = π/2 - θ from the imaginary axis.

    Attributes:
        loss: Whose S it is.
        order: n.
        zeta: Re ζ; frequencies are -Im ζ.
        eta: η.
        reach: The largest frequency.
        log_rough: About ln of the moment at frequency 0, the unit of moments.
        digits: -ln of what each part of the integral may leave out, relative to the moment.
    """

    loss: AllocationLoss
    order: int
    zeta: float
    eta: float
    reach: float
    log_rough: float
    digits: float

    @cached_property
    def _ratio(self) -> int:
        """How many steps in y are one step of ln X."""
        beyond = max(
            math.sqrt(2.0 * self.digits + 20.0) / self.loss.spread, self.digits / 3.0 + 4.0
        )
        _, widest = _spacing(self.loss.sigma, self.order, self.eta)
        return math.ceil(widest / self.loss.sigma * (self.reach + beyond) / (2.0 * math.pi))

    @cached_property
    def step(self) -> float:
        """The distance between nodes in y: of few binary digits, so that no node is rounded."""
        _, widest = _spacing(self.loss.sigma, self.order, self.eta)
        fraction, exponent = math.frexp(widest / self.loss.sigma / self._ratio)
        return math.ldexp(math.floor(fraction * _STEP_DIGITS) / _STEP_DIGITS, exponent)

    @cached_property
    def _log_unit(self) -> float:
        """Ln of the unit of the integral: about ln of its value."""
        return self.log_rough + float(gammaln(self.zeta))

    @cached_property
    def _first(self) -> tuple[float, Floats]:
        """Where the nodes start, and the sizes of F_n's Taylor coefficients up to the remainder."""
        known = log_moments(self.loss.sigma, self.loss.steps)[self.order :]
        k = np.arange(min(_MOST_TERMS, len(known)))
        log_sizes = np.maximum(known[: len(k)] - gammaln(k + 1) - self._log_unit, -700.0)
        starts = (-self.digits - log_sizes + np.log(self.zeta + k)) / (self.zeta + k)
        # Where terms do not fall they only cancel; far below, F_n is not needed at all.
        starts[1:] = np.minimum(starts[1:], log_sizes[0] - log_sizes[1])
        best = int(np.argmax(starts))
        return float(starts[best]), log_sizes[: best + 1]

    @cached_property
    def _last(self) -> tuple[float, float]:
        """Where the nodes end, and a bound on the integral beyond."""
        loss, zeta, eta = self.loss, self.zeta, self.eta
        near = max(-1.0, math.log(zeta) - 1.0)
        y = np.concatenate(
            [np.arange(near, near + 7.0, min(0.05, 2.0 / zeta)), np.arange(near + 7.0, 40.0, 0.1)]
        )
        damped = _log_damped(loss, self.order, y)
        most = min(0.5 * math.pi - eta, 30.0 * loss.spread)
        bound = np.full(len(y), math.inf)
        for angle in (np.linspace(0.0 if eta else 0.05, 1.0, 21) * most).tolist():
            # It falls as the damping grows: the next damping below that was computed is a bound.
            place = np.searchsorted(y, y + math.log(math.sin(angle + eta)) - 1e-9, "right") - 1
            lifted = damped[np.maximum(place, 0)] + 0.5 * loss.steps * (angle * loss.sigma) ** 2
            bound = np.minimum(bound, np.where(place >= 0, lifted, math.inf))
        cells = bound[:-1] + zeta * y[1:] + np.log(np.diff(y)) - self._log_unit
        beyond = np.logaddexp.accumulate(cells[::-1])[::-1]
        (enough,) = np.nonzero(beyond <= -self.digits)
        if not len(enough):
            raise TooSlow
        return float(y[enough[0]]), math.exp(beyond[enough[0]])

    @cached_property
    def _nodes(self) -> _Nodes:
        (first, log_sizes), (last, error) = self._first, self._last
        start, stop = math.floor(first / self.step), math.ceil(last / self.step)
        if stop - start > _MOST_NODES:
            raise TooSlow
        y = self.step * np.arange(start, max(stop, start) + 1)
        ray, values = complex(math.sin(self.eta), -math.cos(self.eta)), []
        for row in self._rows(start, max(stop, start)):
            some = row.y
            log_weight = self.zeta * some + math.log(self.step) - self._log_unit
            log_factor = log_weight - ray * np.exp(some)
            found, off = _on_ray(self.loss, self.order, self.eta, row, log_factor)
            values.append(found)
            error += float(off.sum())
        terms, sizes = len(log_sizes) - 1, np.exp(log_sizes)
        turns = (-ray) ** np.arange(terms)
        nodes = _Nodes(y, self.step, np.concatenate(values), sizes[:terms] * turns, error)
        rate = self.zeta + terms
        left_out = math.exp(float(log_sizes[terms]) + rate * (float(y[0]) - self.step))
        error += self.step * left_out / -math.expm1(-rate * self.step)
        largest = replace(nodes, polynomial=sizes[:terms]).below(np.array([self.zeta + 0j]))
        own = _moment_error(self.loss.steps, self.order + terms) + 16.0 * _UNIT
        return replace(nodes, error=error + abs(largest[0]) * own)

    def _rows(self, start: int, stop: int) -> list[_Row]:
        """The nodes from one to another, some at a time; none has |s| on both sides of t."""
        line = _line(self.loss.sigma, self.order, self.eta, self._ratio * self.step)
        turning = math.floor(math.log(self.loss.steps) / self.step)
        most = max(64, _ROOM // len(line.weights))
        ends = {stop, *range(start + most - 1, stop, most)}
        ends |= {turning} if start <= turning < stop else set()
        rows, first = [], start
        for last in sorted(ends):
            rows.append(_Row(line, self.step, self._ratio, first, last))
            first = last + 1
        return rows

    def moments(self, frequencies: Floats) -> Complexes:
        """The moments at equally spaced frequencies."""
        nodes, zeta = self._nodes, self.zeta - 1j * frequencies
        total = _turned_sum(nodes.values, nodes.y, frequencies) + nodes.below(zeta)
        theta = 0.5 * math.pi - self.eta
        log_factor = -1j * theta * zeta - loggamma(zeta) + float(gammaln(self.zeta))
        found: Complexes = np.exp(log_factor) * total
        return found

    def error(self, frequencies: Floats) -> Floats:
        """A bound on the error of ``moments``, but for the trapezoid rule's."""
        nodes, sizes = self._nodes, np.abs(self._nodes.values)
        inner = _BLOCK + len(nodes.y) / _BLOCK + 8.0 + abs(self._log_unit)
        rounding = inner * float(sizes.sum()) + frequencies * float(np.abs(nodes.y) @ sizes)
        growth = np.exp(float(gammaln(self.zeta)) - self._log_gamma(frequencies))
        own = 16.0 + np.abs(loggamma(self.zeta - 1j * frequencies)) + abs(self._log_unit)
        found: Floats = growth * (nodes.error + _UNIT * rounding) + _UNIT * own
        return found

    def folded(self, frequencies: Floats) -> Floats:
        """What the rule folds in, relative to the moment at 0: the integral at u + 2πk/step.

        At u' the integral is E[S^(n-ζ+iu')]·Γ(ζ-iu')·exp(iθ(ζ-iu')), with ζ real here.
        """
        here = self._log_gamma(frequencies)
        total = np.zeros(len(frequencies))
        for k in (-2, -1, 1, 2):
            other = frequencies + 2.0 * math.pi * k / self.step
            decay = 0.5 * (other * self.loss.spread) ** 2
            total += np.exp(np.minimum(self._log_gamma(other) - decay - here, 700.0))
        return 2.0 * total  # those farther off are less by far

    def _log_gamma(self, frequencies: Floats) -> Floats:
        """Ln |Γ(ζ-iu)·exp(iθ(ζ-iu))|."""
        theta = 0.5 * math.pi - self.eta
        found: Floats = loggamma(self.zeta - 1j * frequencies).real + theta * frequencies
        return found


def _turned_sum(values: Complexes, y: Floats, frequencies: Floats) -> Complexes:
    """Σ_j values_j·exp(-iu·y_j) at equally spaced y, in short inner products.

    Within a block y has the same distances from the block's first node.
    """
    blocks = math.ceil(len(y) / _BLOCK)
    padded = np.zeros(blocks * _BLOCK, complex)
    padded[: len(y)] = values
    table, starts = padded.reshape(blocks, _BLOCK), y[::_BLOCK]
    within = (y[1] - y[0] if len(y) > 1 else 0.0) * np.arange(_BLOCK)
    found: Complexes = np.empty(len(frequencies), complex)
    for at in range(0, len(frequencies), _FREQUENCIES):
        some = frequencies[at : at + _FREQUENCIES]
        inner = table @ np.exp(-1j * np.multiply.outer(within, some))
        inner *= np.exp(-1j * np.multiply.outer(starts, some))
        found[at : at + _FREQUENCIES] = inner.sum(axis=0)
    return found


# ---- the transform along one vertical line


@dataclass(frozen=True, eq=False)
class TiltedAllocation:
    """M of an allocation's loss on one vertical line, for frequencies up to ``reach``."""

    loss: AllocationLoss
    tilt: float
    reach: float
    digits: float = _DIGITS

    @property
    def size(self) -> int:
        """How many numbers one frequency costs, about."""
        return math.ceil(10.0 * (self.reach + 9.0 / self.loss.spread) / (2.0 * math.pi))

    @cached_property
    def _log_rough(self) -> float:
        """About ln M(tilt)."""
        return self.loss.moments(self.tilt)[0]

    @cached_property
    def _rays(self) -> tuple[tuple[float, _Ray], ...]:
        """Up to which frequency each ray serves. Removed, n is such that ¼ ≤ Re ζ < 1¼."""
        order = _order_for(self.tilt) if self.loss.removed else 0
        zeta = order - 1.0 - self.tilt if self.loss.removed else self.tilt
        found, end = [], 0.0
        while end < self.reach:
            middle, end = _band(zeta, end, self.reach)
            eta = 0.0 if self.loss.removed else math.atan2(zeta, middle)
            digits = min(_DIGITS, self.digits + 3.0)
            ray = _Ray(self.loss, order, zeta, eta, min(end, self.reach), self._log_rough, digits)
            if self.loss.removed:
                return ((math.inf, replace(ray, reach=self.reach)),)
            found.append((end, ray))
        return (*found[:-1], (math.inf, found[-1][1]))

    def _of_rays(self, frequencies: Floats, ask: Callable[[_Ray, Floats], NDArray[Any]]) -> Any:
        """What each ray answers for the frequencies that it serves."""
        parts, start = [], 0
        for end, ray in self._rays:
            stop = int(np.searchsorted(frequencies, end, "right"))
            if stop > start:
                parts.append(ask(ray, frequencies[start:stop]))
            start = max(start, stop)
        return np.concatenate(parts)

    @cached_property
    def _at_rest(self) -> tuple[float, float]:
        """M(tilt) in units of the rough one, and a bound on its relative error."""
        value = float(self._of_rays(np.zeros(1), _Ray.moments)[0].real)
        error = float(self._of_rays(np.zeros(1), _Ray.error)[0])
        if not value > 2.0 * error:
            raise TooSlow
        return value, error / (value - error)

    @property
    def log_mgf(self) -> float:
        """Ln M(tilt)."""
        return self._log_rough + math.log(self._at_rest[0])

    @property
    def log_mgf_error(self) -> NodeErrors:
        """Bounds on the error of ``log_mgf``."""
        folded = float(self._of_rays(np.zeros(1), _Ray.folded)[0])
        return NodeErrors(quadrature=folded, rounding=self._at_rest[1]).as_log()

    @cached_property
    def centre(self) -> float:
        """About the mean of the tilted loss."""
        return self.loss.moments(self.tilt)[1]

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        moments = self._of_rays(frequencies, _Ray.moments)
        if not self.loss.removed:  # the order of S falls as u grows: conjugate orders and moments
            moments = moments.conj()
        turns = np.exp(-1j * self.centre * frequencies)
        found = moments * turns / self._at_rest[0] - 1.0
        return found.real, found.imag

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        turned = _UNIT * (4.0 + abs(self.centre) * frequencies)
        error = self._of_rays(frequencies, _Ray.error) / self._at_rest[0]
        folded = self._of_rays(frequencies, _Ray.folded)
        return NodeErrors(quadrature=folded, rounding=error + self._at_rest[1] + turned)

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency: the Gaussian part's."""
        return -0.5 * (frequency * self.loss.spread) ** 2 * (1.0 - _UNIT)


def _band(zeta: float, start: float, reach: float) -> tuple[float, float]:
    """The frequency that a ray from ``start`` on suits best, and the last one that it serves.

    The ray's integrand is larger than the integral by about exp((u - middle)²·ζ/2(ζ² + middle²)).
    """
    middle = start
    while middle < reach:
        farther = 1.1 * middle + 0.1 * math.sqrt(zeta)
        if farther - start > _width(zeta, farther):
            break
        middle = farther
    return middle, middle + _width(zeta, middle)


def _width(zeta: float, middle: float) -> float:
    return math.sqrt(2.0 * _CANCELLED * (zeta + middle * middle / zeta))
