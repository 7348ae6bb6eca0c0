"""Random allocation over many steps: the law of S, where S is close to 1.

With f the density of S (``mean_ratio``) and nodes x_j that are h apart, N of them,

    E[S^w] ≈ Σ_j x_j^w·p_j ,  p_j = 1/N·Σ_k φ(s_k)·exp(is_k(x_j - 1)) ,  s_k = 2πk/Nh ,

where φ(s) = E[exp(-is(S-1))]: p_j is h·f(x_j), by a Fourier transform. Powers of S oscillate slowly
where S is close to 1, so that nothing cancels.

Every error is bounded. G, the standardised sum of the Z, is independent of S·exp(-G/σ√t). To move G
to Im G = a√t multiplies S by exp(ia/σ), and the density of G by no more than exp(ta²/2). Hence, for
λ ≥ 0, real ω and 0 < a/σ < π/2,

    |E[S^(r+iu)·exp(-(λ+iω)S)]|
        ≤ exp(ta²/2 + a|u|/σ)·E[S^r·exp(-(λ·cos(a/σ) + |ω|·sin(a/σ))·S)] .                    (*)

- Frequencies beyond the last, s: with v = s·sin(a/σ), λ = 0 and r = 0 the sum of (*) over them is
  at most its integral, 1/Δs·exp(ta²/2)·E[exp(-vS)/S]/sin(a/σ), on either side.
- Nodes are h apart: by Poisson summation Σ_j h·f(x_j)·x_j^w over all j adds E[S^w·exp(2πimS/h)] to
  the moment, for every m ≠ 0. With v = 2π/h·sin(a/σ) they come, by (*), to no more than
  2·exp(ta²/2 + a|u|/σ)·E[S^r·exp(-vS)·(1 + 1/vS)], since Σ_m exp(-my) ≤ exp(-y)·(1 + 1/y).
- Nodes outside [x_0, x_N): those left out of the sum, and their copies, which the Fourier transform
  folds onto the nodes inside. On the left, Laplace's inversion of S^r·f on Re = λ, bounded by (*)
  at a = 1/√t, is x^r·f(x) ≤ C·exp(λx)·E[S^(r-1)·exp(-λ·cos(a/σ)·S)], with C =
  exp(½)/(π·sin(a/σ)). On the right, where exp(λS) has no mean, see `_Right`.
- E[S^r·exp(-vS)]² ≤ E[S^2r]·E[exp(-2vS)], and both of these are bounded by ``mean_ratio``.
- Rounding: that of φ, see `_characteristic`; of the Fourier transform, which is small in the
  square mean (``fourier``); of powers, and of their sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.fourier import ROUNDINGS, fourier_sums, length_from
from tacit.accounting.exact.mean_ratio import (
    LITTLE,
    UNIT,
    error_of_exp,
    line_of,
    log1p_less,
    log_damped,
    log_moment_bound,
    log_moments,
    remainder,
    sensitivity,
    spacing,
)
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from tacit.accounting.exact.transforms import Complexes, Floats

_MOST_DEVIATION = 0.02  # of S
_LEAST_SIGMA = 0.95  # if no power of S is taken but negative ones
_RATHER_LITTLE = 1.4  # σ, if positive ones are: with less the rays have more digits
_LEAST_RECIPROCAL = 60.0  # of the spread: with less the rays are as fast
_MANY = 300.0  # the same: from here on they are slow
_DIGITS = 40.0  # the most that are asked for
_STEP_DIGITS = 2.0**30  # so that a step in x times the number of any node is exact
_MOST_TILT = 2.0  # in standard deviations
_ROOM = 20.0  # standard deviations, about, to the farthest node
_FAR = 13.0  # the same on the left
_CELL = 0.02  # of Z
_MOST_NODES = 4096
_BEYOND = 1e-19  # 2·exp(a²/2)·Φ(-9.2) and more: what lies beyond the nodes in z on one side
_NEGLIGIBLE = 1e-19
_BLOCK = 64
_ANGLES = np.linspace(0.3, 1.5, 13)
_SHARE = 0.3


def deviation(sigma: float, steps: int) -> float:
    """The standard deviation of S."""
    return math.sqrt(math.expm1(sigma**-2) / steps)


def is_narrow(sigma: float, steps: int, *, removed: bool) -> bool:
    """Whether S is so close to 1, and so smooth, that its law takes few nodes.

    The larger its powers, the more its large values weigh.
    """
    reciprocal = sigma * math.sqrt(steps)
    loud = _RATHER_LITTLE if reciprocal < _MANY else LITTLE
    return (
        sigma >= (loud if removed else _LEAST_SIGMA)
        and reciprocal >= _LEAST_RECIPROCAL
        and deviation(sigma, steps) <= _MOST_DEVIATION
    )


def most_tilt(sigma: float, steps: int, *, removed: bool) -> float:
    """The largest tilt at which moments are bounded."""
    most = _MOST_TILT / deviation(sigma, steps)
    return min(most, 0.5 * len(log_moments(sigma, steps)) - 2.0) if removed else most


def lost_digits(sigma: float, steps: int, order: float) -> float:
    """About ln of what the errors of far nodes weigh in the moment of S of one order."""
    if order < 0.0:
        return -order * _FAR * deviation(sigma, steps)
    digits = _DIGITS + order * _ROOM * deviation(sigma, steps)
    return order * math.log(right_of(sigma, steps, order, digits).end)


@dataclass(frozen=True)
class _Window:
    """Nodes 1 + h·j from ``first`` on, ``size`` of them; frequencies up to ``last``·Δs.

    The Fourier transform gives ``period`` nodes, N. Those beyond the window are as good, but where
    powers of S are large they would weigh more than they tell.
    """

    step: float
    first: int
    size: int
    last: int

    @cached_property
    def period(self) -> int:
        """N."""
        return length_from(self.size)

    @property
    def frequency_step(self) -> float:
        """Δs."""
        return 2.0 * math.pi / (self.period * self.step)

    @property
    def offsets(self) -> Floats:
        """The nodes less 1: exact."""
        return self.step * np.arange(self.first, self.first + self.size)


@dataclass(frozen=True, eq=False)
class _Law:
    """p_j at the nodes of a window.

    Attributes:
        masses: p_j.
        rounding: A bound on the root of the sum of their squared errors from rounding.
        cut: A bound on each, times N, of what lies beyond the last frequency.
    """

    masses: Floats
    rounding: float
    cut: float


@lru_cache(maxsize=16)
def law_of(sigma: float, steps: int, window: _Window) -> _Law:
    """The law of S at the nodes of a window."""
    size = window.period
    frequencies = window.frequency_step * np.arange(window.last + 1)
    values, errors = _characteristic(sigma, steps, frequencies)
    bins: Complexes = np.zeros(size, complex)
    np.add.at(bins, np.arange(window.last + 1) % size, values)
    np.add.at(bins, -np.arange(1, window.last + 1) % size, values[1:].conj())
    masses = np.roll(fourier_sums(bins).real / size, -window.first)[: window.size]
    # Frequencies that meet in a bin add up, and so may their errors.
    folds = math.ceil((2 * window.last + 1) / size)
    # The last rounding is that of the division by N.
    transform = 2.0**-53 * (ROUNDINGS * math.log2(size) + 1.0) * float(np.linalg.norm(bins))
    own = math.sqrt(2.0 * folds) * float(np.linalg.norm(errors + UNIT * folds * np.abs(values)))
    rounding = (transform + own) / math.sqrt(size) * (1.0 + 1e-9)
    return _Law(masses, rounding, _beyond(sigma, steps, window))


def _characteristic(sigma: float, steps: int, frequencies: Floats) -> tuple[Complexes, Floats]:
    """φ at the frequencies, the first of which is 0, and bounds on its errors.

    E[exp(-w(X-1))] = 1 + w²·Var X/2 + g, g the integral of what the exponential has beyond its
    Taylor polynomial of degree 2. Nothing in that is larger than what it tells.
    """
    _, widest = spacing(sigma, 0, 0.0)
    line = line_of(sigma, 0, 0.0, widest / sigma)
    w = -1j * frequencies / steps  # with it Re wX ≥ 0 where Im z > 0; φ is the conjugate
    u = np.multiply.outer(w, np.expm1(line.log_x))
    rest = remainder(u, 2)
    g = line.sums(rest, line.weights[:, None])[:, 0]
    known = 0.5 * math.expm1(sigma**-2) * w * w
    bent, bending = log1p_less(known + g)
    logs = steps * (bent + known + g)
    # u is off by less than _SHARE of what a node counts by: X by what z is, and w by 5 roundings.
    error = (np.abs(rest) + _SHARE * sensitivity(u, rest, 2)) @ line.errors
    error += 5.0 * UNIT * np.abs(known)
    # Beyond the nodes on the right what is left out is below |w|²·X², on the left below |w|³.
    size = np.abs(w)
    error += _BEYOND * size * size * (math.exp(sigma**-2) + size)
    error = np.log1p(error / np.abs(1.0 + known + g))
    error += UNIT * (2.0 * bending + np.abs(known) + np.abs(g))
    return np.exp(logs).conj(), error_of_exp(logs.real, steps * error + 4.0 * UNIT)


def _log_laplace(sigma: float, steps: int, dampings: Floats) -> Floats:
    """No smaller than ln E[exp(-vS)] at each damping v, in any order."""
    order = np.argsort(dampings)
    found = np.empty(len(dampings))
    found[order] = log_damped(sigma, steps, 0, np.log(dampings[order]))
    return found


def _beyond(sigma: float, steps: int, window: _Window) -> float:
    """Σ |φ(s_k)| over the frequencies beyond the last, on both sides."""
    last = window.last * window.frequency_step
    angles = _ANGLES * last / (sigma * steps)  # a; the best is about this times 1
    sines = np.sin(np.minimum(angles / sigma, 1.5))
    logs = 0.5 * steps * (sigma * np.minimum(angles / sigma, 1.5)) ** 2 - np.log(sines)
    logs += 0.5 * _log_laplace(sigma, steps, 2.0 * last * sines)
    logs += 0.5 * log_moment_bound(sigma, steps, -2.0)
    return 2.0 * math.exp(min(float(logs.min()), 700.0)) / window.frequency_step


# ---- nodes on the right


@dataclass(frozen=True)
class _Right:
    """Bounds Σ h·f(x_j)·x_j^r over nodes x_j on the right, r ≥ 0.

    With τ = 1/σ√t, S = R·exp(τG), R and G independent: f(x) = E[φ_τ(ln x/R)]/x, φ_τ the density of
    τG. Let y be less than the first of those nodes, x. If R ≤ y, the sum given R is one over values
    that fall, of x_j^(r-1)·φ_τ(ln x_j/y) at most: no more than its first term and its integral. If
    R > y, the sum over all nodes is no more than the integral and the largest value, together no
    more than 2·R^r·exp((r²+1)τ²/2) if h ≤ τ; and E[R^r; R > y] ≤ 2·E[S^r; S > y], for G > 0 half of
    the time.

    E[S^r; S > y] ≤ E[exp(r(S-1)); S > y, all X ≤ c] + E[S^r; some X > c]. Chernoff's bound on the
    first, at any rate λ ≥ r/t of t(S-1), is exp(-(λt - r)(y-1))·(1 + H)^t with H = E[g(λ(X-1));
    X ≤ c], g(v) = exp(v) - 1 - v, for E[X - 1; X ≤ c] ≤ 0. Hölder's inequality bounds the second by
    E[S^kr]^(1/k)·(t·P(X > c))^(1-1/k).

    Attributes:
        sigma: σ.
        steps: t.
        order: r.
        level: y.
        log_large: ln of a bound on E[S^r; S > y].
        end: A first node at which the rest is about as small.
    """

    sigma: float
    steps: int
    order: float
    level: float
    log_large: float
    end: float

    def bound(self, first: float, step: float) -> float:
        """The sum over nodes from ``first`` on, that are ``step`` apart."""
        spread, r = 1.0 / (self.sigma * math.sqrt(self.steps)), self.order
        away = math.log(first / self.level) / spread
        if step > spread or away < r * spread:
            return math.inf
        peak = step * math.exp(-0.5 * away**2) / (spread * math.sqrt(2.0 * math.pi))
        grown = 0.5 * (r * spread) ** 2
        tail = math.exp(r * math.log(self.level) + grown + float(log_ndtr(r * spread - away)))
        beyond = 4.0 * math.exp(min(grown + 0.5 * spread**2 + self.log_large, 700.0))
        return math.exp((r - 1.0) * math.log(first)) * peak + tail + beyond


@lru_cache(maxsize=64)
def right_of(sigma: float, steps: int, order: float, digits: float) -> _Right:
    """A level beyond which little is left: about exp(-digits)."""
    far, log_jump = _farthest(sigma, steps, order, digits)
    # Cells of Z: the last ends at c, the first is all that lies below; P(cell) from the near side.
    z = np.append(np.arange(-9.0, far, _CELL), far)
    logs = np.append(-math.inf, log_ndtr(z)), np.append(0.0, log_ndtr(-z))
    masses = np.where(z < 0.0, np.diff(np.exp(logs[0])), -np.diff(np.exp(logs[1])))
    x = np.append(0.0, np.exp(z / sigma - 0.5 / sigma**2))
    usual = math.sqrt(2.0 * digits) / (deviation(sigma, steps) * steps)
    rates = usual * np.geomspace(0.05, 1.2, 12) + 2.0 * order / steps
    exponents = np.multiply.outer(rates, x - 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        grown = np.expm1(exponents) - exponents
        most = np.maximum(grown[:, 1:], grown[:, :-1]) @ masses
        growth = steps * np.log1p(np.where(np.isnan(most), np.inf, most) * (1.0 + 1e-9))
    level = float((1.0 + (digits + growth) / (rates * steps - order)).min())
    spread = 1.0 / (sigma * math.sqrt(steps))
    end = level * math.exp((math.sqrt(2.0 * digits) + 2.0 * order * spread) * spread)
    return _Right(sigma, steps, order, level, float(np.logaddexp(-digits, log_jump)), end)


def _farthest(sigma: float, steps: int, order: float, digits: float) -> tuple[float, float]:
    """The largest Z that is not called a jump, and ln of a bound on what jumps add."""
    if order == 0.0:
        far = -float(ndtri_exp(-digits - math.log(steps)))
        return far, math.log(steps) + float(log_ndtr(-far))
    best = math.inf, 0.0
    for k in (2.0, 3.0, 4.0, 6.0, 8.0):
        moment = log_moment_bound(sigma, steps, k * order) / k
        far = -float(ndtri_exp(-(digits + moment) / (1.0 - 1.0 / k) - math.log(steps)))
        log_jump = moment + (1.0 - 1.0 / k) * (math.log(steps) + float(log_ndtr(-far)))
        best = min(best, (far, log_jump))
    return best


# ---- the transform


@dataclass(frozen=True, eq=False)
class NarrowTransform:
    """M of an allocation's loss on one vertical line, for frequencies up to ``reach``.

    ``order`` is the real power of S, and ``sign`` that of the loss, ±ln S.
    """

    sigma: float
    steps: int
    order: float
    sign: float
    reach: float
    digits: float

    @property
    def _spread(self) -> float:
        return 1.0 / (self.sigma * math.sqrt(self.steps))

    @property
    def _digits(self) -> float:
        """-ln of what each part may leave out, times the largest weight of a node."""
        weighed = abs(self.order) * _ROOM * deviation(self.sigma, self.steps)
        return min(self.digits, _DIGITS) + weighed

    @cached_property
    def _window(self) -> _Window:
        deviates = math.sqrt(2.0 * (self._digits + 6.0))
        farthest = deviates / self._spread
        reach = 0.25 * farthest * math.ceil(4.0 * self.reach / farthest)  # so that laws are shared
        fraction, exponent = math.frexp(2.0 * math.pi / (reach + 1.15 * farthest))
        step = math.ldexp(math.floor(fraction * _STEP_DIGITS) / _STEP_DIGITS, exponent)
        left = (1.5 * deviates + max(-self.order, 0.0) * deviation(self.sigma, self.steps)) * (
            deviation(self.sigma, self.steps)
        )
        first = -math.ceil(min(left, 0.9) / step)
        needed = (self._right.end - 1.0) / step - first + 2.0
        if not needed < _MOST_NODES:
            raise TooSlow
        size = math.ceil(needed)
        last = math.ceil(1.1 * farthest * length_from(size) * step / (2.0 * math.pi))
        return _Window(step, first, size, last)

    @cached_property
    def _right(self) -> _Right:
        return right_of(self.sigma, self.steps, max(self.order, 0.0), self._digits)

    @cached_property
    def _outside(self) -> float:
        """Σ h·f(x_j)·x_j^order over nodes outside the window, and Σ h·f(x_j) if that is larger."""
        window, sigma, steps = self._window, self.sigma, self.steps
        angle = self._spread  # a/σ at a = 1/√t
        constant = math.exp(0.5) / (math.pi * math.sin(angle))
        end = 1.0 + window.step * (window.first + window.size)
        right = self._right.bound(end, window.step)
        start, order = 1.0 + window.step * window.first, min(self.order, 0.0)
        best = (1.0 - start) / deviation(sigma, steps) ** 2
        rates = best * np.linspace(0.2, 1.5, 14)
        found = rates * start + np.log(1.0 / rates + window.step)
        found += 0.5 * _log_laplace(sigma, steps, 2.0 * math.cos(angle) * rates)
        found += 0.5 * log_moment_bound(sigma, steps, 2.0 * order - 2.0)
        return right + constant * math.exp(min(float(found.min()), 700.0))

    def _folded(self, frequency: float) -> float:
        """What the nodes' distance adds to the moment at any frequency up to this one."""
        sigma, steps, top = self.sigma, self.steps, 2.0 * math.pi / self._window.step
        turns = np.minimum(_ANGLES * max(top - frequency, 0.1 * top) / (sigma**2 * steps), 1.5)
        dampings = top * np.sin(turns)  # a/σ are the turns
        logs = 0.5 * steps * (sigma * turns) ** 2 + turns * frequency
        logs += 0.5 * _log_laplace(sigma, steps, 2.0 * dampings)
        first = 0.5 * log_moment_bound(sigma, steps, 2.0 * self.order)
        second = 0.5 * log_moment_bound(sigma, steps, 2.0 * self.order - 2.0)
        logs += np.logaddexp(first, second - np.log(dampings))
        return 2.0 * math.exp(min(float(logs.min()), 700.0))

    @cached_property
    def _nodes(self) -> tuple[Floats, Floats, float, float]:
        """Losses and tilted masses at the nodes that carry any, and M(tilt), less what is common.

        The last is a bound on the error of every moment but for folding and rounded phases.
        """
        window = self._window
        law = law_of(self.sigma, self.steps, window)
        logs = np.log1p(window.offsets)
        weights = np.exp(self.order * logs)
        masses = law.masses * weights
        moment = math.fsum(masses.tolist())
        sizes = np.abs(masses)
        if not moment > 0.0:
            raise TooSlow
        kept = np.nonzero(sizes > _NEGLIGIBLE * moment)[0]
        carrying = slice(int(kept[0]), int(kept[-1]) + 1)
        error = float(sizes[: carrying.start].sum() + sizes[carrying.stop :].sum())
        error += float(weights.max()) * (law.cut + self._outside) + self._outside
        error += law.rounding * float(np.linalg.norm(weights))
        error += UNIT * float(sizes @ (2.0 + abs(self.order) * np.abs(logs)))
        return self.sign * logs[carrying], masses[carrying] / moment, moment, error

    @property
    def size(self) -> int:
        """How many numbers one frequency costs, about."""
        return 20

    @property
    def log_mgf(self) -> float:
        """Ln M(tilt)."""
        return math.log(self._nodes[2])

    @cached_property
    def _relative_error(self) -> float:
        _, _, moment, error = self._nodes
        return error / (moment - error) if moment > 2.0 * error else math.inf

    @property
    def log_mgf_error(self) -> NodeErrors:
        """Bounds on the error of ``log_mgf``."""
        folded = self._folded(0.0) / self._nodes[2]
        return NodeErrors(quadrature=folded, rounding=self._relative_error).as_log()

    @cached_property
    def centre(self) -> float:
        """The mean of the tilted loss."""
        losses, masses, _, _ = self._nodes
        return float(losses @ masses)

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        losses, masses, _, _ = self._nodes
        away = losses - self.centre
        step = float(frequencies[1]) if len(frequencies) > 1 else 0.0
        within = _turned(np.multiply.outer(away, step * np.arange(_BLOCK)))
        starts = masses * _turned(np.multiply.outer(frequencies[::_BLOCK], away))
        # exp(i(b + w)) - 1, for frequencies b at which blocks start and w within them
        found = starts @ (1.0 + within) + masses @ within
        found = found.ravel()[: len(frequencies)]
        return found.real, found.imag

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        losses, masses, moment, error = self._nodes
        sizes = np.abs(masses)
        away = float(sizes @ (np.abs(losses - self.centre) + np.abs(losses) + abs(self.centre)))
        # No term is larger than 2, nor than its phase, whose rounding is that of its own size.
        grown = np.minimum(4.0 * float(sizes.sum()), 2.0 * away * frequencies)
        rounding = error / moment + UNIT * (0.5 * (len(losses) + 8.0) * grown + away * frequencies)
        folded = self._folded(float(frequencies[-1])) / moment
        quadrature = np.full(len(frequencies), folded)
        return NodeErrors(quadrature=quadrature, rounding=rounding, complete=True)

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency: the Gaussian part's."""
        return -0.5 * (frequency * self._spread) ** 2 * (1.0 - UNIT)


def _turned(phases: Floats) -> Complexes:
    """exp(iθ) - 1, with all its digits."""
    half = np.sin(0.5 * phases)
    found: Complexes = -2.0 * half * half + 1j * np.sin(phases)
    return found
