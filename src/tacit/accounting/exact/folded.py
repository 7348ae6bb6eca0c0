"""Fixed-size sampling where a record is replaced or zeroed out: a loss folded at 0.

In units of the noise let P have the density φ(t)·A(t) and Q the density φ(t)·B(t), with

    A = 1 - q + q·exp(s₁t - s₁²/2) ,  B = 1 - q + q·exp(s₂t - s₂²/2) ,  s₁ > s₂ ≥ 0 ,

whose loss L = ln A - ln B rises from 0 at t₀ = (s₁ + s₂)/2. The pair that dominates both directions
(``sampled_pairs``) has the losses above 0 of P against Q, those below 0 of Q against P, and the
rest of its mass at 0, so that

    M(z) = 1 + ∫ φ·[A·(e^{zL} - 1) + B·(e^{-zL} - 1)] dt  from t₀ on.

**Quadrature.** Gauss's rule of n nodes on panels of half-width h. For f analytic within the ellipse
about a panel whose half-axes are h(ρ ± 1/ρ)/2 it is off by at most 64/15·h·max|f|/(ρ²ⁿ(1 - ρ⁻²)):
it is exact up to degree 2n - 1, and Chebyshev's coefficients fall like ρ⁻ᵏ (Trefethen 2013, 19.3).
With t = a + ib and s₁|b| < π/2 there, |φ(t)| = φ(a)·e^{b²/2}, |A| lies between
1 - q + q·e^y·cos(s₁b) and 1 - q + q·e^y, and arg A between 0 and that of its largest a; likewise B.

**Decay.** For u > 0 the path of A·e^{zL} goes up from t₀ by ib and on from there, that of B·e^{-zL}
down: on either |e^{iuL}| = exp(-u·|Im L|), with 0 ≤ arg B ≤ arg A above the real line. |A|, |B| and
both angles rise with a, and φ falls: cells along the path bound the integrals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr, ndtr

from tacit.accounting.exact.enclosure import TooSlow
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.transforms import Floats

_NODES, _RHO = 26, 3.0  # of a panel, and of the ellipse about it
_ALONG, _ACROSS = 0.5 * (_RHO + 1.0 / _RHO), 0.5 * (_RHO - 1.0 / _RHO)  # its half-axes, over h
_MOST_PANELS = 1000
_WIDEST, _HALVINGS = 0.5, 7  # the half-width of a panel, and how often it may be halved
_TURN = 1.4  # s₁·b, at most
_CELLS, _STEPS = 400, 24  # along a path of decay: on, and up
_SHARES = (0.06, 0.12, 0.25, 0.5, 0.8)  # of the largest b, that are tried there
_FARTHEST, _MOST_STEPS, _STEADY = 6.0, 300, 0.15  # times a frequency; steps; of what is gone
_FEW_DIGITS = 18.0  # that a decay needs
_LARGE = 100.0  # an exponent beyond which 1 does not count
_UNIT = 2.0**-53
_NEGLIGIBLE = 1e-22


@dataclass(frozen=True)
class FoldedLoss:
    """The loss at ``rate`` q, with the shifts ``far`` s₁ and ``near`` s₂."""

    rate: float
    far: float
    near: float = 0.0

    @property
    def largest(self) -> float:
        """The supremum of the loss."""
        return math.inf

    @property
    def start(self) -> float:
        """t₀."""
        return 0.5 * (self.far + self.near)

    @cached_property
    def rest(self) -> float:
        """A bound on the mass at 0."""
        q, start = self.rate, self.start
        beyond = 2.0 * (1.0 - q) * float(ndtr(-start))
        beyond += q * float(ndtr(self.far - start) + ndtr(self.near - start))
        return max(0.0, 1.0 - beyond * (1.0 - 1e-13)) + 1e-15

    @cached_property
    def rough_variance(self) -> float:
        """About the variance of the loss."""
        return self.real_line(0.0, 12.0).moments(0.0)[2]

    def real_line(self, reach: float, digits: float) -> FoldedLine:
        """Ln M for real tilts up to ``reach``, to about exp(-digits)."""
        return FoldedLine(_Nodes(self, reach, 0.0, digits))

    def tilted(
        self,
        tilt: float,
        frequency: float,
        digits: float,
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedFolded:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""
        return TiltedFolded(_Nodes(self, tilt, frequency, digits), tilt, frequency)

    def weight(self, t: Floats, shift: float) -> Floats:
        """A or B, less 1."""
        found: Floats = self.rate * np.expm1(np.minimum(shift * t - 0.5 * shift**2, 700.0))
        return found

    def polar(self, a: Floats, b: Floats | float, shift: float) -> tuple[Floats, Floats]:
        """Ln |A| or ln |B| at t = a + ib, and the argument."""
        grown = self.rate * np.exp(np.minimum(shift * a - 0.5 * shift**2, 700.0))
        across, along = grown * np.sin(shift * b), 1.0 - self.rate + grown * np.cos(shift * b)
        return np.log(np.hypot(across, along)), np.arctan2(across, along)

    def log_truncation(self, tilt: float, last: float) -> float:
        """Ln of a bound on what lies beyond ``last``: A/e^y falls there, and B ≥ 1 - q."""
        s, power = self.far, tilt + 1.0
        y = s * last - 0.5 * s**2
        least = math.log(self.rate + (1.0 - self.rate) * math.exp(-min(max(y, -700.0), 700.0)))
        grown = power * least - tilt * math.log1p(-self.rate) + 0.5 * power * (power - 1.0) * s**2
        grown += float(log_ndtr(power * s - last))
        others = math.log(3.0) + max(least, 0.0) + float(log_ndtr(s - last))
        return float(np.logaddexp(grown, others)) + 1e-9


class _Nodes:
    """Nodes for tilts up to one, and bounds on what the rule leaves out, not over M."""

    def __init__(self, loss: FoldedLoss, tilt: float, frequency: float, digits: float) -> None:
        self.loss, self.tilt = loss, tilt
        width = math.sqrt(2.0 * digits)
        last = max(loss.start, loss.far) + width
        while loss.log_truncation(tilt, last) > -digits:
            last += 0.5
            if last > 400.0:
                raise TooSlow
        self.last = last
        half = min(_WIDEST, _TURN / (_ACROSS * loss.far))
        # M(tilt) ≥ 1, and more than what the exponent's top has.
        top = self._top(np.linspace(loss.start, last, _CELLS))
        for _ in range(_HALVINGS):
            middles, half = self._panels(last, half)
            self._middles, self._half = middles, half
            if self.log_missed(tilt, frequency) <= max(top, 0.0) - digits:
                break
            half *= 0.5
        else:
            raise TooSlow
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        self.t = (middles[:, None] + half * nodes).ravel()
        self.log_mass = np.log(np.tile(half * weights, len(middles)))
        self.log_mass -= 0.5 * self.t**2 + 0.5 * math.log(2.0 * math.pi)
        above, below = loss.weight(self.t, loss.far), loss.weight(self.t, loss.near)
        self.log_above, self.log_below = np.log1p(above), np.log1p(below)
        self.lost = self.log_above - self.log_below
        # y is off by roundings of s·t, and ln A by so much times q·e^y/A.
        y = 4.0 * loss.far * self.t + 4.0 * loss.far**2
        self.lost_error = 4.0 * _UNIT * (self.log_above + np.abs(self.log_below))
        self.lost_error += _UNIT * y * (above + loss.rate) / (1.0 + above) * 2.0

    def _panels(self, last: float, half: float) -> tuple[Floats, float]:
        start = self.loss.start
        count = math.ceil((last - start) / (2.0 * half))
        if count > _MOST_PANELS:
            raise TooSlow
        half = (last - start) / (2.0 * count)
        return start + half * (2.0 * np.arange(count) + 1.0), half

    def _top(self, t: Floats) -> float:
        """About ln M(tilt), from below."""
        above = np.log1p(self.loss.weight(t, self.loss.far))
        below = np.log1p(self.loss.weight(t, self.loss.near))
        exponent = (self.tilt + 1.0) * above - self.tilt * below - 0.5 * t * t
        return float(exponent.max()) + math.log(t[1] - t[0]) - 1.0

    def log_missed(self, tilt: float, frequency: float) -> float:
        """Ln of a bound on the rule's error, for tilts and frequencies up to these."""
        loss, half, up = self.loss, self._half, _ACROSS * self._half
        high = self._middles + _ALONG * half
        far, near = loss.far, loss.near
        turned = loss.polar(high, up, far)[1] + loss.polar(high, up, near)[1]
        first = self._highest(tilt, (far, near), up) + frequency * turned
        second = self._highest(tilt, (near, far), up) + frequency * turned
        others = np.logaddexp(
            self._highest(0.0, (far, near), up), self._highest(0.0, (near, far), up)
        )
        most = np.logaddexp(np.logaddexp(first, second), others)
        total = float(np.logaddexp.reduce(most)) + math.log(64.0 / 15.0 * half)
        return total - 2 * _NODES * math.log(_RHO) - math.log1p(-(_RHO**-2)) + 1e-9

    def _highest(self, tilt: float, shifts: tuple[float, float], up: float) -> Floats:
        """Bounds on ln |φ·A^{x+1}·B^{-x}| in the ellipses, but for what turns; or A and B swapped.

        By g = -a²/2 + (x+1)·ln A's bound - x·ln B's: its second derivative is at most
        (x+1)·s²/4 - 1, for ln(1 - q + c·e^{sa}) is convex with at most s²/4.
        """
        q, middles, reach = self.loss.rate, self._middles, _ALONG * self._half
        (top, bottom), grown = shifts, []
        for shift, turn in ((top, 1.0), (bottom, math.cos(bottom * up))):
            grown.append(turn * q * np.exp(np.minimum(shift * middles - 0.5 * shift**2, 700.0)))
        above, below = 1.0 - q + grown[0], 1.0 - q + grown[1]
        height = (tilt + 1.0) * np.log(above) - tilt * np.log(below) - 0.5 * middles**2
        slope = (tilt + 1.0) * top * grown[0] / above - tilt * bottom * grown[1] / below - middles
        bend = max(0.0, 0.25 * (tilt + 1.0) * top**2 - 1.0)
        found: Floats = height + np.abs(slope) * reach + 0.5 * bend * reach**2
        return found + 0.5 * up**2 - 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class FoldedLine:
    """Ln M at real tilts."""

    nodes: _Nodes

    def parts(self, tilt: float) -> tuple[Floats, Floats]:
        """Masses of the losses above 0, and of those below, tilted but not over M."""
        nodes = self.nodes
        rise = tilt * nodes.lost
        return np.exp(nodes.log_mass + nodes.log_above + rise), np.exp(
            nodes.log_mass + nodes.log_below - rise
        )

    def excess(self, tilt: float) -> float:
        """M - 1, by the nodes."""
        nodes, rise = self.nodes, tilt * self.nodes.lost
        above = np.exp(nodes.log_mass + nodes.log_above) * np.expm1(np.minimum(rise, _LARGE))
        far = rise > _LARGE
        above[far] = np.exp((nodes.log_mass + nodes.log_above + rise)[far])
        below = np.exp(nodes.log_mass + nodes.log_below) * np.expm1(-rise)
        return float(above.sum() + below.sum())

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M and its first two derivatives, without their error."""
        nodes = self.nodes
        lost, rise = nodes.lost, tilt * nodes.lost
        exponent = nodes.log_mass + nodes.log_above + rise
        top = float(exponent.max())
        if top > _LARGE:  # all the rest is nothing beside it
            above = np.exp(exponent - top)
            below, total = 0.0 * above, float(above.sum())
            log_mgf = top + math.log(total)
        else:
            above, below = np.exp(exponent), np.exp(nodes.log_mass + nodes.log_below - rise)
            total = 1.0 + self.excess(tilt)
            log_mgf = math.log(total)
        mean = float(((above - below) * lost).sum()) / total
        square = float(((above + below) * lost * lost).sum()) / total
        return log_mgf, mean, max(square - mean * mean, 0.0)

    def log_mgf_bound(self, tilt: float) -> float:
        """A certain upper bound on ln M."""
        nodes = self.nodes
        exponent = nodes.log_mass + nodes.log_above + tilt * nodes.lost
        top = max(0.0, float(exponent.max()))
        masses = np.exp(exponent - top) + np.exp(
            nodes.log_mass + nodes.log_below - tilt * nodes.lost - top
        )
        off = float((_roundings(nodes, tilt) * masses).sum())
        off += math.exp(nodes.log_missed(tilt, 0.0) - top)
        off += math.exp(nodes.loss.log_truncation(tilt, nodes.last) - top)
        if top > _LARGE:
            return top + math.log(float(masses.sum()) + math.exp(-top) + off) + 1e-13 * top
        found = math.log1p(self.excess(tilt))
        return found + math.log1p(off * math.exp(top - found)) + 1e-14 * (1.0 + abs(found))


def _roundings(nodes: _Nodes, tilt: float) -> Floats:
    """Relative errors of the nodes' masses: of exponents by their size, sums by their terms."""
    size = np.abs(nodes.log_mass) + nodes.t**2 + nodes.log_above + np.abs(nodes.log_below)
    care = 64.0 + math.log2(len(nodes.t)) + 4.0 * (size + tilt * nodes.lost)
    found: Floats = _UNIT * care + (tilt + 1.0) * nodes.lost_error
    return found


class TiltedFolded:
    """M on the line Re z = tilt: the nodes' losses, above 0 and below, and the rest at 0."""

    def __init__(self, nodes: _Nodes, tilt: float, frequency: float) -> None:
        self._nodes, self._tilt, self._frequency = nodes, tilt, frequency
        line = FoldedLine(nodes)
        if line.moments(tilt)[0] > _LARGE:
            raise TooSlow
        above, below = line.parts(tilt)
        self.log_mgf = math.log1p(line.excess(tilt))
        scale = math.exp(-self.log_mgf)
        mass = scale * np.concatenate([above, below])
        lost = np.concatenate([nodes.lost, -nodes.lost])
        self.centre = float((mass * lost).sum())
        errors = np.tile(_roundings(nodes, tilt), 2)
        self._off = math.exp(nodes.log_missed(tilt, frequency) - self.log_mgf)
        self._cut = scale * math.exp(nodes.loss.log_truncation(tilt, nodes.last))
        self.log_mgf_error = NodeErrors(
            self._cut, self._off, float((errors * mass).sum()) + 4.0 * _UNIT * (1.0 + self.log_mgf)
        ).as_log()
        spread = lost - self.centre
        # What is at 0 turns, too.
        rest = max(0.0, 1.0 - float(mass.sum()))
        away = abs(self.centre)
        self._slope = float((errors * mass * np.abs(spread)).sum())
        self._slope += float((mass * np.tile(nodes.lost_error, 2)).sum())
        self._slope += 64.0 * _UNIT * (float((mass * np.abs(spread)).sum()) + away)
        self._slope += away * float((errors * mass).sum())  # of the rest, which is what is left
        keep = mass > _NEGLIGIBLE
        self._left = float(mass[~keep].sum())
        self._mass = np.append(mass[keep], rest)
        self._spread = np.append(spread[keep], -self.centre)

    @property
    def size(self) -> int:
        """How many numbers one frequency costs."""
        return len(self._mass)

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        real, imaginary = np.empty(len(frequencies)), np.empty(len(frequencies))
        for start in range(0, len(frequencies), _STEPS):
            some = slice(start, start + _STEPS)
            # e^{ix} - 1 by t = tan(x/2): -2t²/(1 + t²) and 2t/(1 + t²).
            tangent = np.tan(np.multiply.outer(0.5 * frequencies[some], self._spread))
            sine = 2.0 * tangent / (1.0 + tangent * tangent)
            real[some] = -(tangent * sine) @ self._mass
            imaginary[some] = sine @ self._mass
        return real, imaginary

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        terms = 8.0 * _UNIT * len(self._mass)
        spread = float((self._mass * np.abs(self._spread)).sum())
        return NodeErrors(
            truncation=np.full(len(frequencies), 2.0 * (self._cut + self._left)),
            quadrature=np.full(len(frequencies), 2.0 * self._off),
            rounding=frequencies * (self._slope + terms * spread),
        )

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency.

        Paths alone say little where not much has decayed yet; up to where they do, ``_decay``.
        """
        start = 2.0 ** math.floor(math.log2(frequency))
        steps, largest, beyond = _decay(self._nodes.loss, self._tilt, start)
        found = largest[min(int((frequency - start) / steps), len(largest) - 1)]
        return min(self.by_paths(frequency), max(float(found), beyond))

    @cached_property
    def steepest(self) -> float:
        """A bound on √E[L²] of the tilted law: no second difference of M is below M''."""
        line, h = FoldedLine(self._nodes), min(0.25, 0.5 * self._tilt)
        ends = [line.log_mgf_bound(self._tilt + one) - self.log_mgf for one in (h, -h)]
        off = math.expm1(sum(map(float, _values(self.log_mgf_error))))
        return math.sqrt(math.expm1(ends[0]) + math.expm1(ends[1]) + 2.0 * off) / h

    def by_paths(self, frequency: float) -> float:
        """A bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency, by the best of some."""
        limit = _TURN / self._nodes.loss.far
        found = min(self._log_decay(frequency, share * limit) for share in _SHARES)
        return min(0.0, found - self.log_mgf + 1e-12)

    def _log_decay(self, frequency: float, up: float) -> float:
        """Ln of a bound on |M| by the paths that go up, and down, by so much."""
        loss, x, nodes = self._nodes.loss, self._tilt, self._nodes
        edges = np.linspace(loss.start, nodes.last, _CELLS + 1)
        total = loss.rest
        log_a, turned_a = loss.polar(edges, up, loss.far)
        log_b, turned_b = loss.polar(edges, up, loss.near)
        fall = -frequency * np.maximum(turned_a[:-1] - turned_b[1:], 0.0)
        noise = 0.5 * (up**2 - edges[:-1] ** 2) - 0.5 * math.log(2.0 * math.pi) + fall
        noise += math.log(edges[1] - edges[0])
        first = (x + 1.0) * log_a[1:] - x * log_b[:-1]
        second = (x + 1.0) * log_b[1:] - x * log_a[:-1]
        total += float(np.exp(np.minimum(np.logaddexp(first, second) + noise, 700.0)).sum())
        # Up from t₀, where A = B: |A| falls and the angles rise.
        rise = np.linspace(0.0, up, _STEPS + 1)
        here = np.full(_STEPS + 1, loss.start)
        log_a, turned_a = loss.polar(here, rise, loss.far)
        log_b, turned_b = loss.polar(here, rise, loss.near)
        fall = -frequency * np.maximum(turned_a[:-1] - turned_b[1:], 0.0)
        first = (x + 1.0) * log_a[:-1] - x * log_b[1:]
        second = (x + 1.0) * log_b[:-1] - x * log_a[1:]
        noise = 0.5 * (up**2 - loss.start**2) - 0.5 * math.log(2.0 * math.pi) + fall
        noise += math.log(rise[1])
        total += float(np.exp(np.minimum(np.logaddexp(first, second) + noise, 700.0)).sum())
        # Beyond the last node |B| ≤ |A|'s bound and both are no less than 1 - q, on either path.
        total += 2.0 * math.exp(min(0.5 * up**2 + loss.log_truncation(x, nodes.last), 700.0))
        return math.log(total * (1.0 + 1e-10))


@lru_cache(maxsize=32)
def _decay(loss: FoldedLoss, tilt: float, start: float) -> tuple[float, Floats, float]:
    """Bounds on ln |M(tilt + iu)/M(tilt)| for every u ≥ start + k·step, and every one far beyond.

    Step by step, for it changes by no more than ``steepest`` per u, up to where paths bound it.
    """
    reach = _FARTHEST * start
    try:
        line = TiltedFolded(_Nodes(loss, tilt, reach, _FEW_DIGITS), tilt, reach)
    except TooSlow:
        return start, np.zeros(1), 0.0
    real, imaginary = line.ratio(np.array([start]))
    gone = 1.0 - math.hypot(1.0 + float(real[0]), float(imaginary[0]))
    step = max(_STEADY * gone / line.steepest, (reach - start) / _MOST_STEPS)
    u = np.arange(start, reach + step, step)
    real, imaginary = line.ratio(u)
    size = np.hypot(1.0 + real, imaginary)
    off = math.expm1(sum(map(float, _values(line.log_mgf_error))))
    size += sum(_values(line.ratio_error(u))) + off * (1.0 + size) + step * line.steepest
    largest = np.maximum.accumulate(size[::-1])[::-1]
    return step, np.log(np.minimum(largest, 1.0)), line.by_paths(reach)


def _values(errors: NodeErrors) -> tuple[float | Floats, ...]:
    return errors.truncation, errors.quadrature, errors.rounding
