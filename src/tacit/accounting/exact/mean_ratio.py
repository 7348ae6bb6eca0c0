"""S, the mean of t independent X = exp(Z/σ - 1/2σ²), Z ~ N(0, 1): its moments and its transforms.

It is the likelihood ratio of an epoch of random allocation: see ``allocation``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.exact.transforms import Complexes, Floats

UNIT = 4.0 * 2.0**-53
"""A rounding, with a safety factor."""
LITTLE = 1.2
"""The σ from which X varies little."""
_LINE = 1.2  # the largest Im z: the weights there are exp(a²/2) times as large
_FAR = 9.2  # standard deviations; Φ(-9.2) is 2e-20
_FARTHER, _FARTHEST = 25.0, 150.0  # the same where tails are bounded
_RULE = 1e-9  # the error of the trapezoid rule where they are
_MOST_MOMENTS = 200
_MOST_LOG = 300.0  # of a moment of X
_SHORT = 16  # terms of one inner product over z: rounding grows with their number


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


def log_moment_bound(sigma: float, steps: int, order: float) -> float:
    """No smaller than ln E[S^order], whatever the order.

    Chords between whole moments, for it is convex in the order; or E[S^m] ≤ E[X^m], the mean of
    convex powers; of negative orders see ``RealLine``.
    """
    if order <= 0.0:
        return real_line(sigma, steps).log_mgf(-order) if order else 0.0
    known, below = log_moments(sigma, steps), math.floor(order)
    if below + 1 >= len(known):
        return 0.5 * order * (order - 1.0) * sigma**-2 * (1.0 + UNIT)
    first, second = known[below : below + 2].tolist()
    return float(first + (order - below) * (second - first)) + moment_error(steps)


def moment_error(steps: int, order: int = _MOST_MOMENTS) -> float:
    """Of ln E[S^m], m up to ``order``: each of 2·log₂ t products adds up m + 1 positive terms."""
    return UNIT * (2.0 * math.log2(2.0 * steps) * (order + 4.0) + 300.0)


# ---- real moments


@dataclass(frozen=True, eq=False)
class RealLine:
    """Bounds on ln E[S^-z], z > 0, from φ(s) = E[exp(-sS)] at s = e^y.

    Γ(z)·E[S^-z] is the integral of s^(z-1)·φ(s). Both φ(s) and φ(s)·e^s = E[exp(-s(S-1))] are
    convex: their chords are above them, and integrate to powers and to incomplete gamma functions.
    Chords of the second are the better ones, as far as its weight exp(-s) is a number. Beyond the
    last node φ(s) ≤ (m/es)^m·E[S^-m], the largest x^m·exp(-sx) times a negative moment, which the
    geometric mean bounds.
    """

    sigma: float
    steps: int
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
        width = np.diff(y)  # in units of the last s of each cell, which no power of it exceeds
        flat, moment = -np.expm1(-z * width) / z, -np.expm1(-(z + 1.0) * width) / (z + 1.0)
        weights = flat - moment, moment - np.exp(-width) * flat
        return _chords(logs, *weights, -np.expm1(-width), z * y[1:])

    def geometric(self, tilt: float) -> float:
        """The same, for S is no less than the geometric mean of the X."""
        return 0.5 * self.sigma**-2 * tilt * (1.0 + tilt / self.steps) * (1.0 + UNIT)


def _chords(
    logs: Floats, first: Floats, last: Floats, widths: Floats, log_units: Floats | float = 0.0
) -> float:
    """Ln of a sum over cells of what their first and last values weigh."""
    with np.errstate(divide="ignore"):
        ends = [np.log(np.maximum(end / widths, 0.0)) + log_units for end in (first, last)]
    parts = np.concatenate([ends[0] + logs[:-1], ends[1] + logs[1:]])
    return float(np.logaddexp.reduce(parts, initial=-math.inf))


@lru_cache(maxsize=64)
def real_line(sigma: float, steps: int) -> RealLine:
    """Negative moments of S."""
    near = math.log(steps) + 4.0
    y = np.concatenate([np.arange(-6.0, near, 0.1), np.arange(near, 42.0, 0.5)])
    return RealLine(sigma, steps, y, log_damped(sigma, steps, 0, y))


# ---- the characteristic function, and the Taylor coefficients


@dataclass(frozen=True, eq=False)
class Line:
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
        return UNIT * (_SHORT + len(self.weights) / _SHORT + 8.0)

    def sums(self, values: Complexes, weights: Complexes) -> Complexes:
        """Sums over the nodes, a column of weights each, in short inner products."""
        total = np.zeros((len(values), weights.shape[1]), complex)
        for k in range(0, len(weights), _SHORT):
            total += np.ascontiguousarray(values[:, k : k + _SHORT]) @ weights[k : k + _SHORT]
        return total


def spacing(sigma: float, order: int, eta: float) -> tuple[float, float]:
    """Im z = a, and the distance of nodes at which the rule's error is below exp(-42).

    That is relative to E[X^k] for k ≤ ``order``. Both edges of its strip, Im z = 0 and 2a, are
    lines on which Re sX ≥ 0.
    """
    shift = min(0.5 * (math.pi - eta) * sigma, _LINE, math.sqrt(2.0 / max(order, 1)))
    return shift, 2.0 * math.pi * shift / (42.0 + 2.0 * shift * shift)


@lru_cache(maxsize=16)
def line_of(sigma: float, order: int, eta: float, unit: float) -> Line:
    """Nodes that are ``unit`` apart in ln X. They reach far enough for E[X²] too: see `_on_ray`."""
    shift, widest = spacing(sigma, order, eta)
    step = sigma * unit
    assert step <= widest * (1.0 + 1e-9)
    first = math.floor(-_FAR / step)
    z = step * np.arange(first, math.ceil((_FAR + max(order, 2) / sigma) / step) + 1)
    exponents = np.asarray(-0.5 * z * z + 0.5 * shift * shift - 1j * (shift * z), np.complex128)
    weights: NDArray[np.complex128] = np.exp(exponents)
    weights *= step / math.sqrt(2.0 * math.pi)
    log_x = np.asarray((z + 1j * shift) / sigma - 0.5 / sigma**2, np.complex128)
    return Line(first, unit, shift / sigma, weights, log_x)


def power(series: NDArray[Any], exponent: int) -> NDArray[Any]:
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


def remainder(u: Complexes, degree: int) -> Complexes:
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


def log1p_less(q: Complexes) -> tuple[Complexes, Floats]:
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


def log_damped(sigma: float, steps: int, order: int, log_damping: Floats) -> Floats:
    """Ln E[S^n·exp(-v·S)] at each damping v, in rising order: rounded up.

    The rule's strip ends where Re X = c·|X|: its error in T = E[X^k·exp(-vX/t)] is below η = 1e-9
    times the same at c·v, which is at most T^c·U^(1-c) with U = E[X^k], by Hölder's inequality.
    Hence r = T/U is at most ρ + η·r^c, ρ being the rule's own, and so no more than the larger one
    of 2ρ and (2η)^(1/(1-c)): beyond both, η·r^c < r/2 and ρ < r/2. Where it is the second, the
    bound at a smaller damping, no more than c·v, serves in place of T^c·U^(1-c).
    """
    strip = min(0.25 * math.pi * sigma, 2.0)
    step = 2.0 * math.pi * strip / (22.0 + 0.5 * strip * strip)
    bend = 2.0 * math.sin(0.5 * strip / sigma) ** 2  # 1 - c
    log_damping = log_damping - math.log(steps)
    first = -_lowest(sigma, float(log_damping.max())) if order == 0 else -_FARTHER
    z = step * np.arange(math.floor(first / step), math.ceil((_FAR + order / sigma) / step) + 1)
    k = np.arange(order + 1)
    log_x = z / sigma - 0.5 / sigma**2
    log_scale = gammaln(k + 1) + k * math.log(steps)
    weights = math.log(step / math.sqrt(2.0 * math.pi)) - 0.5 * z * z
    weights[0] += math.log(2.0)  # for all that lies below the first node, too
    damped = -np.exp(np.minimum(np.add.outer(log_damping, log_x), 700.0))
    damped[:, 0] = 0.0
    if order:
        powers = np.exp(np.multiply.outer(log_x, k) - log_scale + weights[:, None])
        sums = np.log(np.exp(damped) @ powers)
    else:
        damped += weights
        top = damped.max(axis=1, keepdims=True)
        sums = top + np.log(np.exp(damped - top).sum(axis=1, keepdims=True))
    undamped = 0.5 * k * (k - 1) / sigma**2 - log_scale
    twice, least = sums - undamped + math.log(2.0), math.log(2.0 * _RULE) / bend
    most = undamped + (1.0 - bend) * np.maximum(twice, least)
    logs = np.logaddexp(sums, math.log(_RULE) + most)
    places = np.searchsorted(log_damping, log_damping + math.log1p(-bend), "right") - 1
    for at in np.flatnonzero((twice < least).any(axis=1) & (places >= 0)).tolist():
        smaller = np.minimum(most[at], logs[places[at]])
        logs[at] = np.logaddexp(sums[at], math.log(_RULE) + smaller)
    found: Floats = steps * logs[:, 0]
    if order:
        series = np.exp(logs[:, 1:] - logs[:, :1])
        found += np.log(math.factorial(order) * power(series.T, steps))
    return found


def _lowest(sigma: float, log_damping: float) -> float:
    """How far below 0, in standard deviations, next to nothing is left of a damped mean."""
    z = np.linspace(0.0, _FARTHEST, 301)
    exponents = np.minimum(log_damping - z / sigma - 0.5 / sigma**2, 700.0)
    deep = float((np.exp(exponents) + 0.5 * z * z).min())
    return min(max(_FARTHER, math.sqrt(2.0 * deep) + 7.0), _FARTHEST)
