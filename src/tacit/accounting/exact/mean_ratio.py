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
SHORT = 16
"""Terms of one inner product over z: rounding grows with their number."""
_FEW_BLOCKS = 32  # of nodes in y, which are multiplied at once
_GROWN = 1e6  # by which errors are multiplied to see what they do


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
    chord = float(first + (order - below) * (second - first))
    return chord + moment_error(sigma, steps, below + 1)


def moment_error(sigma: float, steps: int, order: int) -> float:
    """Of ln E[S^m], m = ``order``, as ``log_moments`` finds it.

    All terms are positive, and those of x^0 exact. Let the coefficient of x^k in a factor be off by
    no more than e_k, relative to itself, with e_i + e_k ≤ e_(i+k): then that of x^m in a product is
    off by e_m, whatever the number of factors. Of the 2·log₂ 2t products each adds up k + 1 terms,
    which is 2k roundings; and the exponents of the first factor are k(k-1)/2σ², ln k! and k times
    the units, each rounded some times.
    """
    powers = 1.5 * order * math.log2(2.0 * steps)
    units = order * (math.log(_MOST_MOMENTS) + math.log(steps) + 1.0)
    exponents = 0.75 * order * (order - 1.0) / sigma**2 + 2.5 * math.lgamma(order + 1.0)
    return UNIT * (powers + units + exponents + 4.0)


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
    exponents: Floats

    @cached_property
    def sizes(self) -> Floats:
        """The weights' sizes."""
        return np.abs(self.weights)

    @cached_property
    def errors(self) -> Floats:
        """Of one sum over the nodes: what each value counts by, if it is off by 10 ``UNIT``s.

        An inner product of 16 complex terms adds up 32 real ones, twice: √2·32u, in whatever order;
        for each 16 nodes one is added, and one more. ``exponents`` are those of the weights, z²/2
        and az, in which z is rounded twice at most, its square and the sum once more.
        """
        sums = 0.75 * SHORT + 0.25 * (len(self.weights) / SHORT + 1.0)
        found: Floats = UNIT * self.sizes * (sums + 10.0 + 3.0 + 1.25 * self.exponents)
        return found

    def sums(self, values: Complexes, weights: Complexes) -> Complexes:
        """Sums over the nodes, a column of weights each, in short inner products."""
        total = np.zeros((len(values), weights.shape[1]), complex)
        for k in range(0, len(weights), SHORT):
            total += np.ascontiguousarray(values[:, k : k + SHORT]) @ weights[k : k + SHORT]
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
    losses = unit * np.arange(first, math.ceil((_FAR + max(order, 2) / sigma) / step) + 1)
    z = sigma * losses
    exponents = np.asarray(-0.5 * z * z + 0.5 * shift * shift - 1j * (shift * z), np.complex128)
    weights: NDArray[np.complex128] = np.exp(exponents)
    weights *= step / math.sqrt(2.0 * math.pi)
    log_x = np.asarray(losses - 0.5 / sigma**2 + 1j * (shift / sigma), np.complex128)
    return Line(first, unit, shift / sigma, weights, log_x, 0.5 * z * z + shift * np.abs(z))


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
    """exp(-u), Re u ≥ 0, less its Taylor polynomial of ``degree`` 0, 1, 2; within 10 ``UNIT``s."""
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


def sensitivity(u: Complexes, rest: Complexes, degree: int) -> Floats:
    """By how much the ``remainder`` of a degree moves if u does, relative to u: |u·d rest/du|."""
    found: Floats = np.abs(u * (rest + (-u) ** degree / math.factorial(degree)))
    return found


def error_of_exp(logs: Floats, errors: Floats) -> Floats:
    """Bounds the errors of numbers of which ln is off by up to ``errors``; ``logs`` are ln |…|."""
    small = np.exp(logs) * np.expm1(np.minimum(errors, 1.0))
    found: Floats = np.where(errors < 1.0, small, np.exp(np.minimum(logs + errors, 700.0)))
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


# ---- the transform E[S^n·exp(-sS)] at the nodes of a ray


@dataclass(frozen=True, eq=False)
class Row:
    """Nodes in y, ``first`` to ``last`` times ``step``, a whole part of a line's unit.

    Then |s|·X/t at node i of y and node j of the line depends on i + ``ratio``·j alone: what is
    computed of it is computed once for all nodes with the same sum.
    """

    line: Line
    step: float
    ratio: int
    first: int
    last: int

    @property
    def y(self) -> Floats:
        """The nodes."""
        return self.step * np.arange(self.first, self.last + 1)

    @property
    def sizes(self) -> Floats:
        """|s|·|X|·exp(1/2σ²), in the order of i + ratio·j: of exponents that are not rounded."""
        start = self.first + self.ratio * self.line.first
        stop = self.last + self.ratio * (self.line.first + len(self.line.weights) - 1)
        found: Floats = np.exp(self.step * np.arange(start, stop + 1))
        return found

    def sums(self, values: NDArray[Any], weights: NDArray[Any], short: int = 0) -> NDArray[Any]:
        """Σ_j values·weights_j over the line, for each column of weights, at the nodes of y.

        With i = ratio·a + b the place of a value is ratio·(a + j) + b: the values, ``ratio`` of
        them in a row, are multiplied by a matrix with weights_j at (a, a + j). ``short`` is the
        number of terms of one inner product, if not all.
        """
        (terms, columns), nodes = weights.shape, self.last - self.first + 1
        blocks = -(-nodes // self.ratio)
        some = min(blocks, max(_FEW_BLOCKS, terms // 8))
        if columns * (some + terms) > self.ratio * terms:  # a table of values is the smaller one
            (stride,) = values.strides
            strides = (self.ratio * stride, stride)
            table = np.lib.stride_tricks.as_strided(values, (terms, nodes), strides)
            return _product(np.ascontiguousarray(weights.T), table, short or terms)
        rows = some + terms - 1
        table = np.zeros(((blocks + rows) * self.ratio), values.dtype)
        table[: len(values)] = values
        table, band = table.reshape(-1, self.ratio), _banded(weights, some)
        found = np.empty((columns, blocks, self.ratio), np.result_type(values, weights))
        for at in range(0, blocks, some):
            part = _product(band, table[at : at + rows], short or rows)
            part = part.reshape(columns, some, self.ratio)
            found[:, at : at + some] = part[:, : blocks - at]
        return found.reshape(columns, -1)[:, :nodes]


def _banded(weights: NDArray[Any], size: int) -> NDArray[Any]:
    """A matrix of that many rows for each column, one below the other: weights_j at (a, a + j)."""
    terms, columns = weights.shape
    band = np.zeros((columns, size, size + terms), weights.dtype)
    band[:, :, :terms] = weights.T[:, None, :]
    rows = size + terms - 1
    return band.reshape(columns, -1)[:, : size * rows].reshape(-1, rows)


def _product(one: NDArray[Any], other: NDArray[Any], short: int) -> NDArray[Any]:
    """The product of matrices in inner products of ``short`` terms."""
    total: NDArray[Any] = one[:, :short] @ np.ascontiguousarray(other[:short])
    for k in range(short, len(other), short):
        total += one[:, k : k + short] @ np.ascontiguousarray(other[k : k + short])
    return total


@dataclass(frozen=True, eq=False)
class _Base:
    """T_0 at the nodes of a row, on which all of F_n is built.

    Attributes:
        u: w·X, w = s/t, in the order of a row's sizes.
        values: T_0.
        log_power: t·(ln T_0 + w).
        error: A bound on its error.
    """

    u: Complexes
    values: Complexes
    log_power: Complexes
    error: Floats


def _base(sigma: float, steps: int, eta: float, row: Row) -> _Base:
    """T_0 at s = radius·e^{-iθ}, η = π/2 - θ; either all |s| ≤ t or none is.

    Where |w| ≤ 1, T_0 = 1 - w + (w²·E[X²]/2 +) g, and g is the integral of what exp(-wX) has beyond
    its Taylor polynomial of degree 1 (or, where even X² varies little, 2); for E[X] = 1, and E[X²]
    is known. Then ln T_0 + w is a sum of terms of the size of w², and keeps the digits that a large
    t asks of it. Beyond, T_0 = E[exp(-wX)] as it is, and keeps its own.

    Errors are those of the integral, see ``Line.errors``, where u is off by the rounding of
    exp(1/2σ²), of an exponential and of four products; of w²·E[X²]/2; and of w, which moves
    ln T_0 + w by its square, and if |w| > 1 is counted with s. Where T_0 is off by a share x of
    itself its power is by (1 + x)^t - 1, however large x.
    """
    line, variance = row.line, sigma**-2
    ray = complex(math.sin(eta), -math.cos(eta))
    w = np.exp(row.y) * (ray / steps)
    turn = ray * complex(math.cos(line.turn), math.sin(line.turn))
    u = row.sizes * (turn * (math.exp(-0.5 * variance) / steps))
    if row.last > turning(steps, row.step):
        turned = np.exp(-u)
        (values,) = row.sums(turned, line.weights[:, None], SHORT)
        (error,) = row.sums(_moved(turned, u, variance), line.errors[:, None])
        values = np.where(values == 0.0, 1e-300, values)
        logs = np.log(values)
        error = np.log1p((error + 0.01 * UNIT) / np.abs(values)) + UNIT * np.abs(logs)
        return _Base(u, values, steps * (logs + w), steps * error)
    degree = 2 if row.last <= calm(sigma, steps, row.step) else 1
    rest = remainder(u, degree)
    (g,) = row.sums(rest, line.weights[:, None], SHORT)
    known = 0.5 * math.exp(variance) * w * w if degree == 2 else np.zeros_like(w)
    q = g + known - w
    bent, bending = log1p_less(q)
    off = np.abs(rest) + _share(variance) * sensitivity(u, rest, degree)
    (error,) = row.sums(off, line.errors[:, None])
    error += UNIT * ((5.0 + variance) * np.abs(known) + 2.0 * np.abs(w * q))
    error = np.log1p(error / np.abs(1.0 + q))
    error += UNIT * (2.0 * bending + np.abs(known) + np.abs(g))
    return _Base(u, 1.0 + q, steps * (bent + known + g), steps * error)


def turning(steps: int, step: float) -> int:
    """The last node with |s| ≤ t."""
    return math.floor(math.log(steps) / step)


def calm(sigma: float, steps: int, step: float) -> int:
    """The last node at which |w|·E[X³]/3 is no more than E[X²], about."""
    return math.floor((math.log(steps) + min(0.0, 1.4 - 2.0 * sigma**-2)) / step)


def _share(variance: float) -> float:
    """Of what a node counts by, 25 ``UNIT``s and more, the part that u is off by; 1/σ² is given."""
    return (3.5 + 0.5 * variance) / 25.0


def _moved(turned: Complexes, u: Complexes, variance: float) -> Floats:
    """What exp(-u) counts by in a sum over the nodes."""
    found: Floats = np.abs(turned) * (1.0 + _share(variance) * np.abs(u))
    return found


def on_ray(
    sigma: float, steps: int, order: int, eta: float, row: Row, log_factor: Complexes
) -> tuple[Complexes, Floats]:
    """exp(log_factor)·F_n(s)·exp(s), n the ``order``, at s = radius·e^{-iθ}; a bound on its error.

    If T_k/T_0 is off by e_k, F_n is by no more than the same coefficient of (1 + Σ(|T_k/T_0| +
    e_k)·x^k)^t less that without the e_k, which is convex in a common factor of theirs: a factor of
    ``_GROWN`` leaves its digits. The power itself is rounded n/2 + 5 times at each of n levels.
    """
    base, factor = _base(sigma, steps, eta, row), math.factorial(order)
    log_power = base.log_power + log_factor
    # The phase |s| = exp(y), along a ray that is no axis, or as t·w, of which ln T_0 is the rest.
    phases = 3.5 if row.last > turning(steps, row.step) else 1.0 if eta == 0.0 else 2.0
    flat = base.error + UNIT * (4.0 + phases * np.exp(row.y))
    size, flattened = np.exp(log_power.real), error_of_exp(log_power.real, flat)
    if order == 0:
        return np.exp(log_power), flattened
    taylor, off = _taylor(sigma, steps, order, row, base)
    series, sizes = taylor / base.values, np.abs(base.values)
    most = np.abs(series)
    off = off / sizes + most * (base.error / steps + 2.0 * UNIT * (1.0 + 1.0 / sizes))
    last = factor * power(series, steps)
    scale, grown = power(np.stack([most, most + _GROWN * off], axis=1), steps)
    error = (grown - scale) / _GROWN + UNIT * order * (0.25 * order + 2.0) * scale
    return last * np.exp(log_power), factor * size * error + np.abs(last) * flattened


def _taylor(
    sigma: float, steps: int, order: int, row: Row, base: _Base
) -> tuple[Complexes, Floats]:
    """T_k·t^-k, k = 1 to n, in rows, and bounds on their errors.

    T_k = E[X^k]/k! + E[X^k·(exp(-wX) - 1)]/k!, for the k that are ``small`` enough that the second
    is the smaller one, else E[X^k·exp(-wX)]/k!. What the nodes leave out is below 4·exp(-42) and
    Φ(-9) of E[X^k]. A power X^k is off by k times what ln X is, of which 1/2σ² is rounded first.
    """
    line, variance = row.line, sigma**-2
    k = np.arange(1, order + 1)
    scales = np.array([math.factorial(one) * float(steps) ** one for one in k.tolist()])
    moments = np.exp(0.5 * variance * k * (k - 1)) / scales
    powers = np.exp(np.multiply.outer(line.log_x, k)) / scales
    logs = 0.5 * np.abs(line.log_x) + 0.5 * variance + line.turn
    heavy = np.abs(powers) * (line.errors[:, None] + UNIT * np.outer(line.sizes * logs, k))
    weights, last = powers * line.weights[:, None], row.step * row.last - math.log(steps)
    small = int(np.sum(last + (k + 0.5) * variance <= 0.0))
    turned = np.exp(-base.u)
    sizes = _moved(turned, base.u, variance)
    found, off = np.empty((order, len(base.values)), complex), np.empty((order, len(base.values)))
    if small:
        less = remainder(base.u, 0)
        found[:small] = row.sums(less, weights[:, :small], SHORT)
        sizes_of_less = np.abs(less) + sizes - np.abs(turned)
        off[:small] = row.sums(sizes_of_less, heavy[:, :small])
    if small < order:
        found[small:] = row.sums(turned, weights[:, small:], SHORT)
        off[small:] = row.sums(sizes, heavy[:, small:])
    found[:small] += moments[:small, None]
    off += 0.01 * UNIT * moments[:, None]
    off[:small] += UNIT * (moments * (1.0 + variance * k * (k - 1)))[:small, None]
    return found, off
