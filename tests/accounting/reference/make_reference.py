"""Makes the reference values that the accountant is tested against.  It imports nothing of tacit.

    python make_reference.py make      # writes or resumes the two JSON files beside this script
    python make_reference.py retry     # computes again what "make" filed as failed
    python make_reference.py check     # recomputes delta at the stored epsilon by unrelated methods
    python make_reference.py show      # counts

Needs python-flint, mpmath, gmpy2 and NumPy.

The mathematics.  One step compares two densities on the line, written relative to phi, the standard
normal density of y = x / sigma:

    add-remove    A(y) = 1 - q + q exp(y/sigma - 1/(2 sigma^2)),   B(y) = 1
    replace-one   A as above,                                      B(y) = A(-y)

and G(w) = integral of phi A^w B^(1-w) dy, an entire function with G(0) = G(1) = 1.  After T steps

    delta(eps) = 1/(2 pi i)  integral of  G(w)^T exp(-z eps) / (z (z+1)) dz   over  Re z = z0 > 0,

with w = z + 1 for the loss log A/B under A ("remove") and w = -z for the loss log B/A under B ("add").

How it is evaluated.  Both integrals are trapezoid sums of analytic integrands, which converge
geometrically.  The z-contour is a hyperbola, z0 + i u +- kappa (sqrt(rho^2 + u^2) - rho) with
u = c sinh t, through the saddle: sinh spacing sees every scale of u at once, and the bend (towards
Re w > 0, where no pole is met) makes exp(-z eps) decay where G alone would not.  The bend needs G at large complex w; there the
real y-axis would cancel catastrophically, so y follows a path that is lifted into the upper half
plane and climbs to the right of A's zeros.  NumPy in double precision only *chooses* step, range and
path; every summand is computed in Arb ball arithmetic, so that rounding is certified, and the
discretisation is checked by solving everything twice with other saddles, contours, paths, steps and
ranges.  A value is stored only if the two agree to AGREEMENT digits.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import mpmath
import numpy as np
from flint import acb, arb, ctx

HERE = Path(__file__).parent
SEED = 20261115
AGREEMENT = 25  # significant digits that the two computations must share
DIGITS = 25  # significant digits stored
BITS = 384  # working precision of the balls

Direction = Literal["remove", "add"]
Adjacency = Literal["add-remove", "replace-one"]
Phase = tuple[float, float, int]  # q, sigma, steps


@dataclass(frozen=True)
class Variant:
    """One way to discretise; two different ones must give the same epsilon."""

    tolerance: float  # natural logarithm of 1 / (truncation and aliasing error)
    saddle: float  # z0 as a multiple of the saddle point
    width: float  # c as a multiple of the saddle's width
    bend: float  # kappa
    corner: float  # rho as a multiple of z0
    lifts: tuple[float, ...]  # imaginary parts of the y-paths, as fractions of pi * sigma
    slopes: tuple[float, ...]  # how steeply the paths climb to the right
    offset: float  # of the y-grid, in steps


FIRST = Variant(
    66.0, 0.95, 1.0, 0.40, 1.0, (0.0, 0.15, 0.30, 0.50, 0.75), (0.0, 0.35, 0.6, 0.8), 0.0
)
SECOND = Variant(
    78.0, 0.82, 1.3, 0.25, 1.5, (0.0, 0.10, 0.22, 0.40, 0.65), (0.0, 0.25, 0.5, 0.7), 0.5
)


# --------------------------------------------------------------------------------------------------
# One step: the moment function G(w)
# --------------------------------------------------------------------------------------------------


def softplus(v: acb) -> acb:
    """log(1 + e^v), continued analytically past |Im v| = pi in the right half plane."""
    return v + (1 + (-v).exp()).log() if float(v.real.mid()) > 0 else (1 + v.exp()).log()


def softplus_np(v: np.ndarray) -> np.ndarray:
    """The same in double precision."""
    right = v.real > 0
    e = np.exp(np.where(right, -v, v))
    # log1p of a small complex number: real part by log1p of |1+e|^2 - 1
    real = 0.5 * np.log1p(2 * e.real + e.real**2 + e.imag**2)
    value: np.ndarray = np.where(right, v, 0) + real + 1j * np.arctan2(e.imag, 1 + e.real)
    return value


@dataclass(frozen=True)
class YPath:
    """t -> t + i (lift + slope * s * log(1 + exp((t - corner) / s)))"""

    lift: float
    slope: float
    corner: float
    scale: float

    def points(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """y and dy/dt in double precision, for complex t."""
        if self.slope == 0:
            return t + 1j * self.lift, np.ones_like(t)
        v = (t - self.corner) / self.scale
        sigmoid = np.exp(v - softplus_np(v))
        return t + 1j * (
            self.lift + self.slope * self.scale * softplus_np(v)
        ), 1 + 1j * self.slope * sigmoid

    def point(self, t: arb) -> tuple[acb, acb]:
        """y and dy/dt as balls."""
        lift, slope, scale = arb(self.lift), arb(self.slope), arb(self.scale)
        if self.slope == 0:
            return acb(t, lift), acb(1)
        v = acb((t - arb(self.corner)) / scale)
        climb = (1 + v.exp()).log()
        return acb(t, lift + slope * scale * climb.real), acb(1, slope * (v - climb).exp().real)


class Rows:
    """The logarithm of the integrand's size along several lines, as a function of w."""

    def __init__(self, rows: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.real = np.array([loss.real for loss, _ in rows])
        self.imag = np.array([loss.imag for loss, _ in rows])
        self.base = np.array([base.real for _, base in rows])

    def heights(self, w: complex) -> np.ndarray:
        heights: np.ndarray = w.real * self.real - w.imag * self.imag + self.base
        return heights


class Step:
    """G(w) of one Poisson-sampled Gaussian step, for complex w."""

    # The integral is cut to this range of y.  That is the exact answer for steps cut there, and the
    # true delta differs by at most T * P(y outside) < 1e-340 (the mean is at most 1/sigma < 3.4).
    GRID = np.arange(-40.0, 70.0, 0.1)
    SHIFTS = (
        0.02,
        0.05,
        0.1,
        0.2,
        0.3,
        0.45,
        0.6,
        0.8,
        1.0,
        1.4,
        2.0,
        3.0,
        4.5,
        6.0,
        8.0,
        11.0,
        14.0,
    )

    def __init__(self, q: float, sigma: float, adjacency: Adjacency, variant: Variant) -> None:
        self.q, self.sigma, self.replace, self.variant = (
            q,
            sigma,
            adjacency == "replace-one",
            variant,
        )
        self.a = 1 / arb(sigma)
        self.mu = self.a * (2 if self.replace else 1)  # distance of the means when q = 1
        if q == 1:
            return
        self.log_q, self.log_keep = arb(q).log(), (1 - arb(q)).log()
        corner = sigma * (math.log1p(-q) - math.log(q)) + 0.5 / sigma
        self.paths = [
            YPath(lift * math.pi * sigma, slope, corner, min(sigma, 1.0))
            for lift in variant.lifts
            for slope in variant.slopes
        ]
        self._shift_cache: dict[int, tuple[list[float], Rows]] = {}
        self._tables: dict[tuple[int, float], dict[int, tuple[acb, acb]]] = {}
        rows = [self._rows_np(path, 0.0) for path in self.paths]
        self._usable = np.array([row is not None for row in rows])
        blank = (np.zeros_like(self.GRID, dtype=complex),) * 2
        self._rows = Rows([row or blank for row in rows])

    # log A - log B, and log(phi * B * dy/dt), on a path shifted by i * shift

    def _mixture_np(self, y: np.ndarray, sign: int) -> np.ndarray | None:
        """log A(sign * y), or None where the path crosses the branch cut above A's zero."""
        logit = math.log(self.q) - math.log1p(-self.q)
        v = sign * y / self.sigma - 0.5 / self.sigma**2 + logit
        crossing = np.nonzero(np.diff(np.sign(v.real)))[0]
        if (
            len(crossing)
            and max(abs(v.imag[crossing]).max(), abs(v.imag[crossing + 1]).max()) > 0.97 * math.pi
        ):
            return None
        return math.log1p(-self.q) + softplus_np(v)

    def _rows_np(self, path: YPath, shift: float) -> tuple[np.ndarray, np.ndarray] | None:
        if path.slope and abs(shift) > 0.9 * math.pi * path.scale:
            return None
        y, dy = path.points(self.GRID + 1j * shift)
        log_a = self._mixture_np(y, 1)
        log_b = self._mixture_np(y, -1) if self.replace else np.zeros_like(y)
        if log_a is None or log_b is None:
            return None
        return log_a - log_b, log_b - y**2 / 2 + np.log(dy)

    def _mixture(self, y: acb, sign: int) -> acb:
        v = sign * y * self.a - self.a**2 / 2 + (self.log_q - self.log_keep)
        return self.log_keep + softplus(v)

    def _entry(self, path: YPath, t: arb) -> tuple[acb, acb]:
        y, dy = path.point(t)
        log_a = self._mixture(y, 1)
        log_b = self._mixture(y, -1) if self.replace else acb(0)
        return log_a - log_b, log_b - y * y / 2 + (dy / (2 * arb.pi()).sqrt()).log()

    # choice of path and step

    def _shifts(self, index: int) -> tuple[list[float], Rows]:
        """The path's integrand on lines parallel to it: what bounds the trapezoid's aliasing error."""
        if index not in self._shift_cache:
            shifts, rows = [], []
            for sign in (1, -1):
                for d in self.SHIFTS:
                    row = self._rows_np(self.paths[index], sign * d)
                    if row is None:
                        break
                    shifts.append(sign * d)
                    rows.append(row)
            self._shift_cache[index] = shifts, Rows(rows)
        return self._shift_cache[index]

    def _choose(self, w: complex, need: float) -> tuple[int, float, tuple[float, float], float]:
        """The path, step and range with the fewest nodes, among paths that cancel little."""
        heights = self._rows.heights(w)
        peaks = heights.max(axis=1)
        edge = np.maximum(heights[:, 0], heights[:, -1])
        peaks[~self._usable | (edge > peaks - need - 5)] = np.inf
        if not math.isfinite(peaks.min() if w.imag else peaks[0]):
            raise ArithmeticError(f"no path for w={w}, q={self.q}, sigma={self.sigma}")
        best: tuple[float, int, float, tuple[float, float], float] | None = None
        # at real w the real axis, which is path 0, goes through the saddle
        for index in np.nonzero(peaks < peaks.min() + 15)[0] if w.imag else [0]:
            peak = float(peaks[index])
            h = self._choose_step(int(index), w, need, peak)
            if h == 0:
                continue
            inside = np.nonzero(heights[index] > peak - need - 3)[0]
            span = (self.GRID[inside[0]] - 0.2, self.GRID[inside[-1]] + 0.2)
            size = (span[1] - span[0]) / h
            if best is None or size < best[0]:
                best = (size, int(index), h, span, peak)
            if size < 350 / min(1.0, self.sigma):
                break
        if best is None:
            raise ArithmeticError(f"no step for w={w}, q={self.q}, sigma={self.sigma}")
        return best[1:]

    def _choose_step(self, index: int, w: complex, need: float, peak: float) -> float:
        """The widest step whose aliasing, bounded on parallel lines at distance d, is negligible."""
        shifts, rows = self._shifts(index)
        if not shifts:
            return 0.0
        peaks = rows.heights(w).max(axis=1)
        widest = {1: 0.0, -1: 0.0}
        for d, p in zip(shifts, peaks, strict=True):
            side = 1 if d > 0 else -1
            widest[side] = max(widest[side], 2 * math.pi * abs(d) / (need + 3 + max(0.0, p - peak)))
        h = min(widest.values())
        if h == 0:  # the path touches a branch point
            return 0.0
        power = 2.0 ** math.floor(math.log2(h))
        return 1.5 * power if h >= 1.5 * power else power  # dyadic: exact, and tables are shared

    def _terms(self, w: acb, need: float) -> tuple[list[tuple[acb, acb]], float, float]:
        """The (loss, base) table that integrates at w, its step, and the largest exponent in it."""
        index, h, (low, high), peak = self._choose(
            complex(float(w.real.mid()), float(w.imag.mid())), need
        )
        table = self._tables.setdefault((index, h), {})
        terms = []
        for k in range(math.floor(low / h), math.ceil(high / h) + 1):
            if k not in table:
                table[k] = self._entry(self.paths[index], arb(h) * (k + arb(self.variant.offset)))
            terms.append(table[k])
        return terms, h, peak

    def moment(self, w: acb, tolerance: float) -> acb:
        """G(w), with relative error exp(-tolerance)."""
        if self.q == 1:
            return (w * (w - 1) * self.mu**2 / 2).exp()
        need = tolerance + 8
        while True:
            terms, h, peak = self._terms(w, need)
            total = acb(0)
            for loss, base in terms:
                total += (w * loss + base).exp()
            total *= arb(h)
            size = abs(total).mid()
            cancelled = peak - float(size.log().mid()) if size > 0 else need + 100.0
            if need >= tolerance + cancelled:
                return total
            if cancelled > 2000:
                raise ArithmeticError(f"G cancels too much at w={w}")
            need = tolerance + cancelled + 5

    def cumulants(self, w: arb, tolerance: float) -> tuple[arb, arb, arb]:
        """log G and its first two derivatives at real w."""
        if self.q == 1:
            return w * (w - 1) * self.mu**2 / 2, (2 * w - 1) * self.mu**2 / 2, self.mu**2
        terms, h, _ = self._terms(acb(w), tolerance)
        m0 = m1 = m2 = arb(0)
        for loss, base in terms:
            term, x = (w * loss.real + base.real).exp(), loss.real
            m0, m1, m2 = m0 + term, m1 + term * x, m2 + term * x * x
        return (m0 * arb(h)).log(), m1 / m0, m2 / m0 - (m1 / m0) ** 2


# --------------------------------------------------------------------------------------------------
# Many steps: delta(epsilon) by the contour, and its inverse
# --------------------------------------------------------------------------------------------------


class Composition:
    """A list of (step, count) seen in one direction under one variant."""

    def __init__(
        self, steps: list[tuple[Step, int]], direction: Direction, variant: Variant
    ) -> None:
        self.steps, self.remove, self.variant = steps, direction == "remove", variant
        self.tail = variant.tolerance  # what the z-sum may neglect, below its largest term
        self.margin = math.log(sum(count for _, count in steps)) + 2  # G is raised to the power T

    @property
    def tolerance(self) -> float:
        return self.tail + self.margin

    def exponent(self, z: arb) -> tuple[arb, arb, arb]:
        """T K(z) and two derivatives at real z."""
        w, sign = (z + 1, 1) if self.remove else (-z, -1)
        k0 = k1 = k2 = arb(0)
        for step, count in self.steps:
            c0, c1, c2 = step.cumulants(w, self.tolerance)
            k0, k1, k2 = k0 + count * c0, k1 + sign * count * c1, k2 + count * c2
        return k0, k1, k2

    def saddle(self, z: float) -> tuple[float, float, float]:
        """The epsilon whose saddle is z, the saddle-point value of log delta there, and the width."""
        x = arb(z)
        k0, k1, k2 = self.exponent(x)
        eps = k1 - 1 / x - 1 / (1 + x)
        curvature = k2 + 1 / x**2 + 1 / (1 + x) ** 2
        log_delta = k0 - x * eps - (x * (1 + x)).log() - (2 * arb.pi() * curvature).log() / 2
        return float(eps.mid()), float(log_delta.mid()), float(curvature.mid()) ** -0.5

    def find_saddle(self, *, epsilon: float | None = None, log_delta: float | None = None) -> float:
        """z with the given epsilon, or the given saddle-point log delta (a starting guess only)."""

        def too_small(z: float) -> bool:
            try:
                eps, value, _ = self.saddle(z)
            except ArithmeticError:  # the tilted step would leave the y-grid: stay to the left
                return False
            return eps < epsilon if epsilon is not None else value > log_delta  # type: ignore[operator]

        low = high = 1.0
        if too_small(1.0):
            while too_small(high):
                low, high = high, high * 4
        else:
            while not too_small(low):
                low, high = low / 4, low
        while high / low > (1.01 if epsilon is not None else 1 + 1e-9):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if too_small(middle) else (low, middle)
        return low

    def log_moment(self, z: acb) -> acb:
        """T K(z) at complex z (any branch of the logarithm: T is an integer)."""
        w = z + 1 if self.remove else (-z).conjugate()  # upper half plane, where the y-paths help
        total = acb(0)
        for step, count in self.steps:
            total += count * step.moment(w, self.tolerance).log()
        return total if self.remove else total.conjugate()


class NotConverged(ArithmeticError):
    """The sum over a contour did not settle."""


class Contour:
    """delta(epsilon) as a finite sum over nodes, refined by halving until it stands still."""

    def __init__(self, run: Composition, epsilon: float) -> None:
        v = run.variant
        self.run = run
        z0 = run.find_saddle(epsilon=epsilon) * v.saddle
        self.z0, self.c = arb(z0), arb(min(run.saddle(z0)[2] * v.width, 0.9 * z0))
        self.kappa = arb(v.bend) * (1 if run.remove else -1)
        self.rho = arb(z0 * v.corner)
        self.h, self.end = 0.125, math.inf
        self.nodes: list[tuple[acb, acb]] = []  # (z, log of weight without exp(-z eps))
        self._extend(epsilon)

    def _node(self, t: float) -> tuple[acb, acb]:
        u, du = self.c * arb(t).sinh(), self.c * arb(t).cosh()
        root = (self.rho**2 + u**2).sqrt()
        z = acb(self.z0 + self.kappa * (root - self.rho), u)
        dz_over_i = acb(du, -self.kappa * u / root * du)
        weight = dz_over_i / (z * (z + 1) * arb.pi())
        return z, self.run.log_moment(z) + weight.log()

    def _height(self, node: tuple[acb, acb], epsilon: float) -> float:
        return float((node[1] - node[0] * arb(epsilon)).real.mid())

    def _extend(self, epsilon: float) -> None:
        """The first nodes, outwards until a whole unit of t is negligible."""
        self.top, quiet, k = -math.inf, 0, 0
        while quiet < 8:
            z, weight = self._node(k * self.h)
            node = (z, weight - arb(2).log()) if k == 0 else (z, weight)  # half weight on the axis
            height = self._height(node, epsilon)
            self.top = max(self.top, height)
            quiet = quiet + 1 if height < self.top - self.run.tail else 0
            self.nodes.append(node)
            k += 1
        self.end = (k - 8) * self.h
        self.reach = max(abs(z.real.mid()) for z, _ in self.nodes)

    def refine(self) -> None:
        """Halves the step by adding the midpoints."""
        k = 0
        while (t := (k + 0.5) * self.h) <= self.end:
            self.nodes.append(self._node(t))
            k += 1
        self.h /= 2

    def delta(self, epsilon: arb) -> tuple[arb, arb]:
        """delta and its derivative."""
        total, slope = arb(0), arb(0)
        for z, weight in self.nodes:
            term = (weight - z * epsilon).exp()
            total += term.real
            slope -= (z * term).real
        return total * arb(self.h), slope * arb(self.h)

    def converge(self, epsilon: arb, accuracy: float) -> tuple[arb, arb]:
        """delta and its derivative, refined until delta moves by less than the given fraction.

        Convergence is geometric: halving the step squares the error, so that the value returned is
        good to about accuracy**2.
        """
        before = self.delta(epsilon)[0]
        for _ in range(9):
            self.refine()
            after, slope = self.delta(epsilon)
            if after > 0 and slope < 0 and abs((after - before) / after) < accuracy:
                return after, slope
            before = after
        raise NotConverged

    def solve(self, epsilon: arb, delta: arb) -> arb:
        """The root of delta(eps) = delta near epsilon, by Newton's method on log delta."""
        for _ in range(60):
            value, slope = self.delta(epsilon)
            move = (value / delta).log() * value / slope
            if abs(move.mid()) <= abs(epsilon) * arb("1e-34"):
                return epsilon - move  # its radius is the rounding error of delta over the slope
            epsilon = (epsilon - move).mid()
        raise ArithmeticError("Newton's method did not converge")


def loss_by_contour(run: Composition, delta: float, guess: arb | None = None) -> arb:
    """The smallest eps >= 0 with delta(eps) <= delta, in one direction.

    Safeguarded Newton steps, each on a contour made for the current epsilon; then the last contour
    is refined to full accuracy.  The first guess (a saddle-point approximation unless given) does
    not matter to the result: delta decreases in eps, so that the root is unique.

    Where one rare large loss decides (small q, few steps) every contour is far above delta, because
    the moment function grows before the tilt is strong enough; the tolerance then grows with it.
    """
    target, low, high, positive = arb(delta), arb(0), arb("inf"), False
    if guess is None:
        guess = arb(max(0.0, run.saddle(run.find_saddle(log_delta=math.log(delta)))[0]))
    epsilon = arb(float(guess.mid()))
    for _ in range(60):
        contour = Contour(run, float(epsilon.mid()))
        lost = contour.top - math.log(delta) - 3  # nats by which the terms exceed their sum
        if run.tail < run.variant.tolerance + lost:
            run.tail = run.variant.tolerance + lost + 5
            continue
        try:
            value, slope = contour.converge(epsilon, 1e-4)
        except NotConverged:
            run.tail += 25
            continue
        low, high = (epsilon, high) if value > target else (low, epsilon)
        move = -((value / target).log() * value / slope).mid()
        # exp(-z eps) must keep its size on every node, or the truncation was for another epsilon
        if abs(move) * contour.reach < 1 and epsilon + move > 0:
            contour.converge(epsilon, 1e-26)
            root = contour.solve(epsilon, target)
            if root > 0:
                return root
        if not positive and not epsilon + move > 0:  # perhaps trivial: decide at zero
            if Contour(run, 0.0).converge(arb(0), 1e-26)[0] <= target:
                return arb(0)
            positive = True
        epsilon = (epsilon + move).mid()
        if not low < epsilon < high:
            epsilon = ((low + high) / 2).mid() if high < arb("inf") else 2 * low
    raise ArithmeticError("the root was not bracketed")


# --------------------------------------------------------------------------------------------------
# Closed forms: q = 1, and T = 1
# --------------------------------------------------------------------------------------------------


def gaussian_delta(mu: mpmath.mpf, eps: mpmath.mpf) -> mpmath.mpf:
    """Two unit Gaussians at distance mu."""
    return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)


def one_step_delta(
    q: mpmath.mpf, mu: mpmath.mpf, eps: mpmath.mpf, direction: Direction
) -> mpmath.mpf:
    """One Poisson-sampled Gaussian under add-remove, for any real eps."""
    e = mpmath.exp(eps)
    if direction == "remove":
        return 1 - e if e <= 1 - q else q * gaussian_delta(mu, mpmath.log1p((e - 1) / q))
    rest = 1 - e * (1 - q)
    return mpmath.mpf(0) if rest <= 0 else rest * gaussian_delta(mu, mpmath.log(e * q / rest))


def one_step_delta_replace(q: mpmath.mpf, mu: mpmath.mpf, eps: mpmath.mpf) -> mpmath.mpf:
    """One Poisson-sampled Gaussian under replace-one: the loss crosses eps once, at y."""
    e, c = mpmath.exp(eps), q * mpmath.exp(-mu * mu / 2)
    b = (1 - q) * (1 - e)  # c X^2 + b X - c e = 0 for X = exp(mu y)
    y = mpmath.log((-b + mpmath.sqrt(b * b + 4 * c * c * e)) / (2 * c)) / mu
    p = (1 - q) * mpmath.ncdf(-y) + q * mpmath.ncdf(mu - y)
    return p - e * ((1 - q) * mpmath.ncdf(-y) + q * mpmath.ncdf(-mu - y))


def loss_by_closed_form(
    phase: Phase, delta: float, direction: Direction, adjacency: Adjacency
) -> arb:
    """Bisection on the closed form, at 110 digits because it cancels."""
    q, sigma, steps = phase
    with mpmath.workdps(110):
        mu = mpmath.sqrt(steps) / mpmath.mpf(sigma)

        def excess(eps: mpmath.mpf) -> mpmath.mpf:
            if q == 1:
                value = gaussian_delta(mu if adjacency == "add-remove" else 2 * mu, eps)
            elif adjacency == "add-remove":
                value = one_step_delta(mpmath.mpf(q), mu, eps, direction)
            else:
                value = one_step_delta_replace(mpmath.mpf(q), mu, eps)
            return value - mpmath.mpf(delta)

        if excess(mpmath.mpf(0)) <= 0:
            return arb(0)
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while excess(high) > 0:
            low, high = high, 2 * high
        while high - low > high * mpmath.mpf(10) ** -40:
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return arb(mpmath.nstr(high, 50))


# --------------------------------------------------------------------------------------------------
# One setting, computed twice
# --------------------------------------------------------------------------------------------------


def agreement(x: arb, y: arb) -> float:
    """Significant digits that two values share, rounding errors included."""
    if x == 0 and y == 0:
        return 99.0
    gap = float((abs(x - y) / max(abs(x).mid(), abs(y).mid())).upper())
    return 99.0 if gap == 0 else -math.log10(gap)


def two_ways(
    phases: list[Phase], delta: float, direction: Direction, adjacency: Adjacency
) -> tuple[arb, float, str]:
    """epsilon in one direction, the digits on which two computations agree, and their names.

    A step in u aliases delta(eps + k S) exp(k S z0), S = 2 pi / du.  A rare large loss near a power of
    two times S survives every halving, so that one computation can settle on a wrong value.  The two
    have different S and then disagree; both start again with finer steps.
    """
    closed = len(phases) == 1 and (phases[0][0] == 1 or phases[0][2] == 1)
    for narrow in (1.0, 0.37, 0.13):
        values = [loss_by_closed_form(phases[0], delta, direction, adjacency)] if closed else []
        for variant in (FIRST,) if closed else (FIRST, SECOND):
            steps = [(Step(q, sigma, adjacency, variant), count) for q, sigma, count in phases]
            run = Composition(steps, direction, replace(variant, width=variant.width * narrow))
            values.append(loss_by_contour(run, delta, values[0] if values else None))
        if agreement(*values) >= AGREEMENT:
            break
    return values[0], agreement(*values), "closed form = contour" if closed else "contour = contour"


def reference(
    phases: list[Phase], delta: float, adjacency: Adjacency = "add-remove"
) -> dict[str, Any]:
    """The stored answer for one setting; raises unless the two computations agree."""
    began = time.time()
    directions: tuple[Direction, ...] = (
        ("remove", "add") if adjacency == "add-remove" else ("remove",)
    )
    results = {d: two_ways(phases, delta, d, adjacency) for d in directions}
    shared = min(r[1] for r in results.values())
    if shared < AGREEMENT:
        raise ArithmeticError(f"only {shared:.1f} digits agree: {results}")

    def text(x: arb) -> str:
        return "0" if x == 0 else x.mid().str(DIGITS, radius=False)

    answer = {"epsilon": text(max((r[0] for r in results.values()), key=float))}
    if adjacency == "add-remove":
        answer |= {f"epsilon_{d}": text(r[0]) for d, r in results.items()}
    return {
        **answer,
        "method": results["remove"][2],
        "agreement": round(shared, 1),
        "seconds": round(time.time() - began, 1),
    }


# --------------------------------------------------------------------------------------------------
# The settings
# --------------------------------------------------------------------------------------------------

FILES: tuple[tuple[str, Adjacency], ...] = (
    ("poisson_gaussian.json", "add-remove"),
    ("replace_one.json", "replace-one"),
)

RANDOM, TRIVIAL = 332, 26  # random settings kept, and how many of them may have epsilon = 0

PEERS: dict[str, tuple[list[Phase], float, float]] = {  # phases, delta, epsilon as published
    "a": ([(0.01, 4.0, 10_000)], 1e-5, 0.9468668008),
    "b": ([(0.01, 5.0, 1_000)], 1e-6, 0.2490260117),
    "c": ([(256 / 60_000, 1.1, 14_062)], 1e-5, 2.381596921),
    "d": ([(4096 / 50_000, 3.0, 2_468)], 1e-5, 6.529280107),
    "e": ([(1.0, 20.0, 1_000)], 1e-6, 8.306225050),
    "f": ([(1e-4, 0.8, 1_000_000)], 1e-8, 1.001769440),
    "g": ([(0.005 + 0.0002 * i, 2 + 0.03 * i, 50 + i) for i in range(100)], 1e-5, 1.745016924),
    "k1": ([(0.01, 1.0, 1_000)], 1e-12, 3.914298156),
    "k2": ([(0.1, 0.7, 1_000)], 1e-5, 54.02418463),
    "k3": ([(1.0, 0.5, 10)], 1e-12, 63.81873029),
    "wrong saddle": (
        [(6.900683433610549e-4, 1.7250326125424384, 7_186)],
        2.5905990956732315e-6,
        0.1303246,
    ),
    "dp-accounting low": (
        [(0.024964736991532867, 2.9403165619281673, 12_160)],
        3.738880638687588e-12,
        6.838052,
    ),
}


@dataclass(frozen=True)
class Setting:
    group: str
    index: int
    phases: list[Phase]
    delta: float


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return min(high, max(low, math.exp(rng.uniform(math.log(low), math.log(high)))))


def draw(group: str, index: int) -> Setting:
    """The index-th setting of a group; depends on nothing but SEED."""
    rng = np.random.default_rng([SEED, sum(map(ord, group)), index])
    q, sigma = log_uniform(rng, 1e-5, 1), log_uniform(rng, 0.3, 50)
    steps, delta = round(log_uniform(rng, 1, 1e6)), log_uniform(rng, 1e-14, 1e-3)
    if group == "random":
        if index % 8 == 3:
            steps = (1, 2, 3, 5, 10)[index // 8 % 5]
        if index % 25 == 7:
            q = 1.0
    elif group == "deep":
        delta = log_uniform(rng, 1e-30, 1e-2)
        if index % 2:
            q, sigma, steps = (
                log_uniform(rng, 5e-3, 2e-2),
                log_uniform(rng, 1, 4),
                round(log_uniform(rng, 1e3, 1e4)),
            )
        else:
            q, sigma, steps = (
                log_uniform(rng, 1e-3, 1),
                log_uniform(rng, 0.5, 10),
                round(log_uniform(rng, 10, 1e5)),
            )
    elif group == "large":
        q, sigma, steps = (
            log_uniform(rng, 0.05, 1),
            log_uniform(rng, 0.3, 1),
            round(log_uniform(rng, 100, 3000)),
        )
    elif group == "replace":
        q, sigma, steps = (
            log_uniform(rng, 1e-4, 1),
            log_uniform(rng, 0.5, 20),
            round(log_uniform(rng, 1, 1e5)),
        )
        steps = {3: 1, 9: 2, 15: 3}.get(index, steps)
        q = 1.0 if index % 20 == 6 else q
        delta = log_uniform(rng, 1e-12, 1e-3)
    return Setting(group, index, [(q, sigma, steps)], delta)


def queue() -> Iterator[Setting]:
    """Every setting of poisson_gaussian.json in the order of computation."""
    for number, (phases, delta, _) in enumerate(PEERS.values()):
        yield Setting("peers", number, phases, delta)
    for index in range(1000):  # the stream is random already; the other groups are strewn into it
        yield draw("random", index)
        if index % 10 == 4 and index // 10 < 22:
            yield draw("deep", index // 10)
        if index % 10 == 9 and index // 10 < 10:
            yield draw("large", index // 10)


# --------------------------------------------------------------------------------------------------
# The files
# --------------------------------------------------------------------------------------------------


class Store:
    """A JSON file with one row per line, rewritten after every row so that a run may be resumed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: dict[str, list[dict[str, Any]]] = {
            "settings": [],
            "heterogeneous": [],
            "skipped": [],
            "failed": [],
        }
        if path.exists():
            self.data = json.loads(path.read_text())

    def done(self) -> set[tuple[str, int]]:
        return {(row["group"], row["index"]) for rows in self.data.values() for row in rows}

    def add(self, section: str, row: dict[str, Any]) -> None:
        self.data[section].append(row)
        sections = []
        for name, rows in self.data.items():
            body = ",\n".join("  " + json.dumps(row) for row in rows)
            sections.append(f'"{name}": [\n{body}\n]' if rows else f'"{name}": []')
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text("{\n" + ",\n".join(sections) + "\n}\n")
        os.replace(temporary, self.path)


def out_of_time(*_: object) -> None:
    raise ArithmeticError("took too long")


def compute(store: Store, setting: Setting, adjacency: Adjacency, keep_trivial: bool) -> None:
    """Computes one setting and files it; a failure is recorded, never dropped silently."""
    row: dict[str, Any] = {"group": setting.group, "index": setting.index}
    if len(setting.phases) == 1:
        row |= dict(zip(("q", "sigma", "steps"), setting.phases[0], strict=True))
    else:
        row["phases"] = [{"q": q, "sigma": s, "steps": t} for q, s, t in setting.phases]
    row["delta"] = setting.delta
    signal.setitimer(signal.ITIMER_VIRTUAL, 600)
    try:
        answer = reference(setting.phases, setting.delta, adjacency)
    except (ArithmeticError, ValueError) as error:
        store.add("failed", row | {"error": str(error)[:300]})
        print("FAILED", row, error, flush=True)
        return
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    if answer["epsilon"] == "0" and not keep_trivial:
        store.add("skipped", row | {"epsilon": "0"})
    else:
        store.add("settings" if len(setting.phases) == 1 else "heterogeneous", row | answer)
        print(
            setting.group,
            setting.index,
            setting.phases[0],
            f"{setting.delta:.3g}",
            answer,
            flush=True,
        )


def make() -> None:
    make_poisson(Store(HERE / "poisson_gaussian.json"))
    store, index = Store(HERE / "replace_one.json"), 0
    while len(store.data["settings"]) < 22:
        known = Setting("replace", 0, [(0.01, 4.0, 10_000)], 1e-5)
        if ("replace", index) not in store.done():
            compute(
                store, draw("replace", index) if index else known, "replace-one", keep_trivial=False
            )
        index += 1


def make_poisson(store: Store) -> None:
    for setting in queue():
        kept = [row for row in store.data["settings"] if row["group"] == "random"]
        trivial = sum(row["epsilon"] == "0" for row in kept)
        if (setting.group, setting.index) in store.done() or (
            setting.group == "random" and len(kept) >= RANDOM
        ):
            continue
        compute(
            store,
            setting,
            "add-remove",
            keep_trivial=setting.group == "random" and trivial < TRIVIAL,
        )


def retry() -> None:
    """Computes the recorded failures again."""
    for name, adjacency in FILES:
        store = Store(HERE / name)
        for row in list(store.data["failed"]):
            store.data["failed"].remove(row)
            setting = Setting(
                row["group"], row["index"], [(row["q"], row["sigma"], row["steps"])], row["delta"]
            )
            compute(store, setting, adjacency, keep_trivial=False)


# --------------------------------------------------------------------------------------------------
# Checks by unrelated means: mpmath, no bend, no lifted paths, no Arb
# --------------------------------------------------------------------------------------------------


class TooSlow(Exception):
    """The plain method would need too many nodes here."""


class Plain:
    """delta(eps) in mpmath on the straight line Re z = z0 with uniform steps, y on the real axis."""

    BUDGET = 200_000  # exponentials

    def __init__(
        self, q: float, sigma: float, steps: int, direction: Direction, adjacency: Adjacency
    ) -> None:
        self.q, self.sigma, self.steps = mpmath.mpf(q), mpmath.mpf(sigma), steps
        self.remove, self.replace = direction == "remove", adjacency == "replace-one"

    def log_ratio(self, x: mpmath.mpf) -> mpmath.mpf:
        def mixture(s: int) -> mpmath.mpf:
            return mpmath.log(
                1 - self.q + self.q * mpmath.exp((2 * s * x - 1) / (2 * self.sigma**2))
            )

        loss = mixture(1) - (mixture(-1) if self.replace else 0)
        return loss if self.remove else -loss

    def tabulate(self, step: float, reach: float) -> None:
        """x-grid over [-reach, reach + 1] sigma; the weight is the density that the loss is taken under."""
        self.table = []
        for k in range(-int(reach / step), int((reach + 1 / self.sigma) / step) + 1):
            x = k * mpmath.mpf(step) * self.sigma
            density = mpmath.npdf(x / self.sigma) * mpmath.mpf(step)
            if self.remove:  # under A
                density = (1 - self.q) * density + self.q * mpmath.npdf(
                    (x - 1) / self.sigma
                ) * mpmath.mpf(step)
            self.table.append((self.log_ratio(x), density))

    def log_moment(self, z: Any) -> Any:
        return self.steps * mpmath.log(
            mpmath.fsum(p * mpmath.exp(z * loss) for loss, p in self.table)
        )

    def delta(self, eps: mpmath.mpf, delta: float) -> mpmath.mpf:
        strip = min(math.pi * float(self.sigma), 8.0)
        self.tabulate(2 * math.pi * strip / (75 + strip**2 / 2) * 0.6, 17.0)
        z0 = self.minimum(eps)

        def height(z: float) -> float:
            return float(self.log_moment(mpmath.mpf(z)) - z * eps)

        goal = math.log(delta) - 52  # everything below exp(goal) is negligible
        # aliases: delta(eps + kS) exp(kS z0), the ones to the left by delta <= 1, to the right by Chernoff
        left = -goal / z0
        right = min(
            (top_r - goal) / (z0 * (r - 1))
            for r in (1.2, 1.5, 2.0)
            if (top_r := height(r * z0)) > goal
        )
        du = mpmath.mpf(2 * math.pi / max(left, right, 1e-30))
        total, k, quiet = mpmath.mpf(0), 0, 0
        while quiet < 12:
            if k * len(self.table) > self.BUDGET:
                raise TooSlow
            z = mpmath.mpc(z0, k * du)
            term = mpmath.exp(self.log_moment(z) - z * eps) / (z * (z + 1))
            total += term.real / (2 if k == 0 else 1)
            quiet = (
                quiet + 1 if mpmath.log(abs(term) * k * du + mpmath.mpf(10) ** -400) < goal else 0
            )
            k += 1
        return total * du / mpmath.pi

    def minimum(self, eps: mpmath.mpf) -> float:
        """Near the saddle, a little to its left: golden section on a coarse log scale."""

        def value(s: float) -> float:
            return float(
                self.log_moment(mpmath.exp(s))
                - mpmath.exp(s) * eps
                - s
                - mpmath.log1p(mpmath.exp(s))
            )

        low, high = -9.0, 12.0
        for _ in range(14):
            a, b = low + 0.382 * (high - low), low + 0.618 * (high - low)
            low, high = (low, b) if value(a) < value(b) else (a, high)
        return 0.9 * math.exp((low + high) / 2)


def nested_delta(
    phase: Phase, eps: mpmath.mpf, direction: Direction, adjacency: Adjacency
) -> mpmath.mpf:
    """Two steps: the closed form of one step, averaged over the other step's loss by quadrature."""
    q, sigma, steps = phase
    assert steps == 2
    plain = Plain(q, sigma, 1, direction, adjacency)
    q, sigma, mu = plain.q, plain.sigma, 1 / plain.sigma

    def integrand(y: mpmath.mpf) -> mpmath.mpf:
        density = mpmath.npdf(y)
        if direction == "remove":
            density = (1 - q) * density + q * mpmath.npdf(y - mu)
        rest = eps - plain.log_ratio(y * sigma)
        one = (
            one_step_delta(q, mu, rest, direction)
            if adjacency == "add-remove"
            else one_step_delta_replace(q, mu, rest)
        )
        return density * one

    # pieces end where the other step's closed form changes its branch (it is smooth there, not analytic)
    pieces = mpmath.linspace(-16, 16 + mu, 33)
    if adjacency == "add-remove":
        level = mpmath.exp(eps if direction == "remove" else -eps) / (1 - q) - (1 - q)
        if level > 0:
            pieces = sorted([*pieces, sigma * mpmath.log(level / q) + mu / 2])
    return mpmath.quad(integrand, pieces, maxdegree=8)


def unrelated_delta(
    phase: Phase, eps: mpmath.mpf, delta: float, direction: Direction, adjacency: Adjacency
) -> tuple[str, mpmath.mpf]:
    """The method's name and delta(eps)."""
    if phase[2] == 2:
        return "nested", nested_delta(phase, eps, direction, adjacency)
    return "plain", Plain(*phase, direction, adjacency).delta(eps, delta)


def check() -> None:
    """Compares delta(stored epsilon) with the stored delta where an unrelated method is affordable."""
    mpmath.mp.dps = 50
    for name, adjacency in FILES:
        directions: tuple[Direction, ...] = ("remove", "add")
        counts = {"nested": 0, "plain": 0, "too slow": 0, "closed form": 0}
        worst = 0.0
        for row in Store(HERE / name).data["settings"]:
            phase, delta = (row["q"], row["sigma"], row["steps"]), row["delta"]
            for direction in directions if adjacency == "add-remove" else directions[:1]:
                if phase[0] == 1 or phase[2] == 1:
                    counts["closed form"] += 1
                    continue
                eps = mpmath.mpf(row.get(f"epsilon_{direction}", row["epsilon"]))
                try:
                    method, value = unrelated_delta(phase, eps, delta, direction, adjacency)
                except TooSlow:
                    counts["too slow"] += 1
                    continue
                error = float(value / mpmath.mpf(delta) - 1)
                error = max(error, 0.0) if eps == 0 else abs(error)
                counts[method] += 1
                worst = max(worst, error)
                mark = "WRONG" if error > 1e-18 else "ok"
                print(f"{mark} {method} {direction} {phase} {delta:.3g} {error:.1e}", flush=True)
        print(name, counts, f"largest relative error of delta {worst:.1e}", flush=True)


def show() -> None:
    for name in ("poisson_gaussian.json", "replace_one.json"):
        data = Store(HERE / name).data
        rows = data["settings"] + data["heterogeneous"]
        eps = [float(row["epsilon"]) for row in rows]
        print(name, {key: len(value) for key, value in data.items()})
        print(
            "  eps = 0:",
            eps.count(0.0),
            " eps > 100:",
            sum(e > 100 for e in eps),
            " largest:",
            max(eps),
        )
        print(
            "  agreement: least",
            min(row["agreement"] for row in rows),
            "digits; seconds",
            sum(row["seconds"] for row in rows),
        )
        if "epsilon_add" in rows[0]:
            print(
                "  add larger:",
                [row for row in rows if float(row["epsilon_add"]) > float(row["epsilon_remove"])],
            )
        for row in rows:
            if row["group"] == "peers":
                label, (_, _, published) = list(PEERS.items())[row["index"]]
                print(f"  {label}: {row['epsilon']} published {published}")


if __name__ == "__main__":
    ctx.prec = BITS
    signal.signal(signal.SIGVTALRM, out_of_time)
    {"make": make, "retry": retry, "check": check, "show": show}[
        sys.argv[1] if len(sys.argv) > 1 else "make"
    ]()
