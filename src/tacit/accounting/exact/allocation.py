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
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln, loggamma

from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.mean_ratio import (
    LITTLE,
    UNIT,
    Row,
    calm,
    line_of,
    log_damped,
    log_moment_bound,
    log_moments,
    moment_error,
    on_ray,
    real_line,
    spacing,
    turning,
)
from tacit.accounting.exact.narrow_law import NarrowTransform, is_narrow, lost_digits, most_tilt
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.exact.contour import Aim, Point, SaddleSearch
    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.transforms import Complexes, Composition, Floats

_DIGITS = 37.0  # the most that are asked for
_SMALL = 14.0  # -ln of what a sum may tell, in units of its terms
_MOST_ORDER = 10  # n: powers of S that the Taylor coefficients count
_GROWTH = 0.4  # of ln of the error of F_n, and of the work, as n grows by 1
_MOST_SHIFT = 20.0  # n/σ: X^n moves Z by that much
_CANCELLED = 3.0  # ln of what an integral along a ray may cancel
_MOST_TERMS = 13  # of a Taylor polynomial, its remainder included
_MOST_NODES = 150_000  # in y
_ROOM = 500_000  # nodes in y times those in z, at a time, to spare memory
_STEP_DIGITS = 2.0**30  # so that a step in y times the number of any node is exact
_BLOCK = 32  # terms of one inner product over y: rounding grows with their number
_FREQUENCIES = 256  # at a time, to spare memory
LEAST_SIGMA = 0.15
"""Noise so small that allocation hides next to nothing."""
MOST_SPREAD = 1000.0
"""The largest σ√t: nodes in y grow with it."""
MOST_NARROW = 1e5
"""The same where the law of S takes their place."""


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
        return self.sigma < LITTLE

    @cached_property
    def is_narrow(self) -> bool:
        """Whether the transform is found from the law of S."""
        return is_narrow(self.sigma, self.steps, removed=self.removed)

    @property
    def tilts(self) -> tuple[float, ...]:
        """Tilts at which the transform keeps its digits if the record is removed."""
        if self.is_narrow:
            most = most_tilt(self.sigma, self.steps, removed=self.removed)
            return tuple(most * 2.0**k for k in range(-5, 1))
        return tuple(n - 1.35 for n in range(2, _order_of(self.sigma) + 1))

    @property
    def most_tilt(self) -> float:
        """The largest tilt at which the transform keeps its digits."""
        return self.tilts[-1] if self.removed or self.is_narrow else math.inf

    def lost_digits(self, tilt: float) -> float:
        """About ln of what the error of the transform at one tilt is, and of the work.

        Removed, F_n errs in units of E[S^n], and the moment is found from it.
        """
        if self.is_narrow:
            return lost_digits(self.sigma, self.steps, 1.0 + tilt if self.removed else -tilt)
        if not self.removed:
            return 0.0
        known = log_moments(self.sigma, self.steps)
        order = min(_order_for(tilt), len(known) - 1)
        return float(known[order]) - self.moments(tilt)[0] + _GROWTH * tilt

    def real_line(self, reach: float, digits: float) -> AllocationLoss:  # noqa: ARG002
        """Itself: moments serve every tilt."""
        return self

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """About ln M and its first two derivatives: a parabola through moments."""
        if self.is_narrow and not self.removed:
            bend = self.rough_variance
            return 0.5 * bend * tilt * (tilt + 1.0), bend * (tilt + 0.5), bend
        if not self.removed:
            return _around(real_line(self.sigma, self.steps).log_mgf, tilt)
        known = log_moments(self.sigma, self.steps)
        middle = min(max(round(1.0 + tilt), 1), len(known) - 2)
        below, here, above = known[middle - 1 : middle + 2].tolist()
        slope, bend = 0.5 * (above - below), max(above - 2.0 * here + below, 1e-12)
        off = 1.0 + tilt - middle
        return here + off * (slope + 0.5 * bend * off), slope + bend * off, bend

    def log_mgf_bound(self, tilt: float) -> float:
        """A bound on ln M."""
        order = 1.0 + tilt if self.removed else -tilt
        return log_moment_bound(self.sigma, self.steps, order)

    def tilted(
        self,
        tilt: float,
        frequency: float,
        digits: float,
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedAllocation | NarrowTransform:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""
        if self.is_narrow:
            order, sign = (1.0 + tilt, 1.0) if self.removed else (-tilt, -1.0)
            return NarrowTransform(self.sigma, self.steps, order, sign, frequency, digits)
        # Removed, the tilt is not the best one, and the sum far larger than what it tells.
        more = _SMALL if self.removed else 0.0
        return TiltedAllocation(self, tilt, frequency, min(_DIGITS, digits + more))


def within_reach(composition: Composition, search: SaddleSearch, aim: Aim) -> Aim:
    """The same aim, through a tilt at which the transforms of allocations are known best.

    Where the best tilt is large it would take many powers of S, and where losses are small it gains
    little; any tilt is valid.
    """
    losses = [loss for loss, _ in composition if isinstance(loss, AllocationLoss)]
    most = min(aim.tilt, *(loss.most_tilt for loss in losses))
    limited = [loss for loss in losses if math.isfinite(loss.most_tilt)]
    tilts = [tilt for loss in limited for tilt in loss.tilts if tilt < most]
    points = [search.at(tilt, tilt) for tilt in (*tilts, most)]

    def error(point: Point) -> float:
        # The smaller the tilt, the more nodes the contour needs.
        lost = max(loss.lost_digits(point.tilt) for loss in losses)
        return lost + point.log_mgf - point.tilt * aim.epsilon - math.log(point.tilt)

    return replace(aim, point=min(points, key=error))


def _order_of(sigma: float) -> int:
    """The largest n."""
    return max(3, min(_MOST_ORDER, math.floor(_MOST_SHIFT * sigma)))


def _order_for(tilt: float) -> int:
    """The n of one tilt, such that ¼ ≤ Re ζ < 1¼."""
    return math.ceil(1.25 + tilt)


def _around(log_mgf: Callable[[float], float], tilt: float) -> tuple[float, float, float]:
    """About ln M and its first two derivatives, by differences."""
    step = 0.05 * tilt
    below, here, above = (log_mgf(tilt + k * step) for k in (-1, 0, 1))
    bend = (above - 2.0 * here + below) / step**2
    return here, 0.5 * (above - below) / step, max(bend, 1e-12)


# ---- the integral along one ray


@dataclass(frozen=True, eq=False)
class _Nodes:
    """The trapezoid rule in y: what it sums, in the ray's unit.

    Attributes:
        y: The nodes, ``step`` apart.
        values: step·|s|^(Re ζ)·F_n(s) there.
        polynomial: The coefficients of F_n's Taylor polynomial, for what lies below the nodes.
        error: A bound on the error of the sum, but for its own rounding, whatever the frequency.
        phases: Σ|terms|·|y|, by which rounded phases count.
    """

    y: Floats
    step: float
    values: Complexes
    polynomial: Complexes
    error: float
    phases: float

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
        _, widest = spacing(self.loss.sigma, self.order, self.eta)
        return math.ceil(widest / self.loss.sigma * (self.reach + beyond) / (2.0 * math.pi))

    @cached_property
    def step(self) -> float:
        """The distance between nodes in y: of few binary digits, so that no node is rounded."""
        _, widest = spacing(self.loss.sigma, self.order, self.eta)
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
            [np.arange(near, near + 7.0, min(0.05, 2.0 / zeta)), np.arange(near + 7.0, 40.0, 0.25)]
        )
        damped = log_damped(loss.sigma, loss.steps, self.order, y)
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
            found, off = on_ray(
                self.loss.sigma, self.loss.steps, self.order, self.eta, row, log_factor
            )
            values.append(found)
            error += float(off.sum())
        terms, sizes = len(log_sizes) - 1, np.exp(log_sizes)
        turned = sizes[:terms] * (-ray) ** np.arange(terms)
        below, rates = float(y[0]) - self.step, self.zeta + np.arange(terms + 1)
        # The polynomial's terms at frequency 0, and its remainder.
        parts = self.step * sizes * np.exp(rates * below) / -np.expm1(-rates * self.step)
        orders = range(self.order, self.order + terms)
        own = np.array([moment_error(self.loss.sigma, self.loss.steps, one) for one in orders])
        own += UNIT * (16.0 + abs(self._log_unit) + rates[:terms] * abs(below))
        error += float(parts[:terms] @ own) + float(parts[terms])
        total = np.concatenate(values)
        phases = float(np.abs(y) @ np.abs(total)) + float(parts @ (abs(below) + 1.0 / rates))
        return _Nodes(y, self.step, total, turned, error, phases)

    def _rows(self, start: int, stop: int) -> list[Row]:
        """The nodes from one to another, some at a time; none has |s| on both sides of t."""
        line = line_of(self.loss.sigma, self.order, self.eta, self._ratio * self.step)
        most = max(_ROOM // len(line.weights), self._ratio * len(line.weights))
        ends = {stop, *range(start + most - 1, stop, most)}
        sigma, steps = self.loss.sigma, self.loss.steps
        turns = turning(steps, self.step), calm(sigma, steps, self.step)
        ends |= {end for end in turns if start <= end < stop}
        rows, first = [], start
        for last in sorted(ends):
            rows.append(Row(line, self.step, self._ratio, first, last))
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
        """A bound on the error of ``moments``, but for the trapezoid rule's and the factor's."""
        nodes, sizes = self._nodes, np.abs(self._nodes.values)
        inner = _BLOCK + math.log2(len(nodes.y)) + 8.0 + abs(self._log_unit)
        rounding = inner * float(sizes.sum()) + (frequencies + self.zeta) * nodes.phases
        growth = np.exp(float(gammaln(self.zeta)) - self._log_gamma(frequencies))
        found: Floats = growth * (nodes.error + UNIT * rounding)
        return found

    def factor_error(self, frequencies: Floats) -> Floats:
        """A bound on the relative error of the factor of the integral, 1/Γ(ζ) and its like."""
        found: Floats = np.abs(loggamma(self.zeta - 1j * frequencies))
        return UNIT * (16.0 + found + abs(self._log_unit))

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
    """Σ_j values_j·exp(-iu·y_j) at equally spaced y and u, in short inner products.

    Within a block y has the same distances from the block's first node, and so have frequencies,
    some at a time, from the first of them. The blocks are added by halves.
    """
    blocks = math.ceil(len(y) / _BLOCK)
    padded = np.zeros(blocks * _BLOCK, complex)
    padded[: len(y)] = values
    table, starts = padded.reshape(blocks, _BLOCK), y[::_BLOCK]
    within = (y[1] - y[0] if len(y) > 1 else 0.0) * np.arange(_BLOCK)
    beyond = frequencies[:_FREQUENCIES] - frequencies[0]
    turns = np.exp(-1j * np.multiply.outer(within, beyond))
    turns_of_starts = np.exp(-1j * np.multiply.outer(starts, beyond))
    found: Complexes = np.empty(len(frequencies), complex)
    for at in range(0, len(frequencies), _FREQUENCIES):
        first, count = float(frequencies[at]), min(_FREQUENCIES, len(frequencies) - at)
        inner = (table * np.exp(-1j * first * within)) @ turns[:, :count]
        inner *= turns_of_starts[:, :count]
        inner *= np.exp(-1j * first * starts)[:, None]
        while len(inner) > 1:
            half = (len(inner) + 1) // 2
            inner[: len(inner) - half] += inner[half:]
            inner = inner[:half]
        found[at : at + count] = inner[0]
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
        error += value * float(self._of_rays(np.zeros(1), _Ray.factor_error)[0])
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
        """Bounds on the error of ``ratio``: the moments' own, for all are divided by one number."""
        turned = UNIT * (4.0 + abs(self.centre) * frequencies)
        turned += self._of_rays(frequencies, _Ray.factor_error)
        error = self._of_rays(frequencies, _Ray.error) / self._at_rest[0]
        folded = self._of_rays(frequencies, _Ray.folded) * (1.0 + self._at_rest[1])
        return NodeErrors(quadrature=folded, rounding=error + turned, complete=True)

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency: the Gaussian part's."""
        return -0.5 * (frequency * self.loss.spread) ** 2 * (1.0 - UNIT)


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
