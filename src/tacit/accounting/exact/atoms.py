"""Losses with atoms that lie on no lattice: samples of discrete noise.

Their transforms are sums over all atoms; ``smoothing`` makes a profile of them.

**Many atoms at many frequencies** are summed by B-splines of order p on a grid of spacing h and one
Fourier transform. The transform of the spline at x is sinc^p(uh/2)·e^{iux}, and that of its values
on the grid is the sum of all its copies; sin(θ + πn) = ±sin θ, so that with θ = uh/2 the copies are
exactly |θ/(θ + πn)|^p of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.fft import next_fast_len, rfft

from tacit.accounting.exact.discrete import log_normaliser
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, solve_convex
from tacit.accounting.exact.lattice import moments_of
from tacit.accounting.exact.mixture import turned_sums, turns
from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.lattice import LatticeLoss
    from tacit.accounting.exact.transforms import Complexes, Floats, PrivacyLoss

_UNIT = 2.0**-53
_UNDERFLOW = 1e-322  # above what is no number any more
_NEGLIGIBLE = 1e-22  # tilted mass that is left out of the sums over u, and charged
_FEW, _BLOCK = 2_000_000, 4096  # atoms times frequencies summed as they are; atoms at a time
_LITTLE, _TABLE = 300_000, 200_000  # the same for a bound on the modulus; numbers in a table
_MANY = 2_000  # atoms, more of which are grouped where a bound will do
_ORDER = 12  # of the splines
_FINE = 0.25 * math.pi  # uh/2 at the last frequency
_FAR, _NEAR, _WIDE = 37.0, 16.0, 30.0  # standard deviations that are kept, of wide ones fewer


@dataclass(frozen=True, eq=False)
class AtomLoss:
    """P puts ``masses[j]`` on ``losses[j]``.

    Attributes:
        losses: The values of the loss.
        masses: Their probabilities under P, which add up to 1 less what is lost and removed.
        mass_errors: Bounds on their relative errors.
        loss_errors: Bounds on the absolute errors of the losses.
        largest: The supremum of the loss, of what is lost too.
        lost: The probability of what lies beyond them, which is charged to δ.
        quadrature: A bound on the relative error of M where the atoms stand for an integral.
        removed: The probability of atoms that are accounted for elsewhere (see ``leaps``).
        removed_error: A bound on its error.
    """

    losses: Floats
    masses: Floats
    mass_errors: Floats
    loss_errors: Floats
    largest: float
    lost: float = 0.0
    quadrature: float = 0.0
    removed: float = 0.0
    removed_error: float = 0.0

    @property
    def rough_variance(self) -> float:
        """The variance of the loss."""
        return self.moments(0.0)[2]

    def real_line(self, reach: float, digits: float) -> AtomLoss:  # noqa: ARG002
        """Itself: the sum serves every tilt; of many atoms, fewer that have no smaller sums."""
        return self if len(self.losses) <= _MANY else self._grouped

    @cached_property
    def _grouped(self) -> AtomLoss:
        """Neighbours' masses at the ends of their groups, with their means: M can only rise."""
        losses, masses = self.losses, self.masses
        if not (np.diff(losses) >= 0.0).all():
            order = np.argsort(losses)
            losses, masses = losses[order], masses[order]
        first = np.arange(0, len(losses), math.ceil(2 * len(losses) / _MANY))
        last = np.append(first[1:], len(losses)) - 1
        low, high = losses[first], losses[last]
        mass = np.add.reduceat(masses, first)
        mean = np.add.reduceat(masses * losses, first) / mass
        span = np.maximum(high - low, 1e-300)
        share = np.clip((mean - low) / span + 1e-12, 0.0, 1.0)
        kept = np.concatenate([mass * (1.0 - share), mass * share])
        here = kept > 0.0
        return replace(
            self,
            losses=np.concatenate([low, high])[here],
            masses=kept[here],
            mass_errors=np.full(int(here.sum()), float(self.mass_errors.max())),
            loss_errors=np.full(int(here.sum()), float(self.loss_errors.max())),
        )

    @cached_property
    def log_masses(self) -> Floats:
        """Ln of the masses."""
        found: Floats = np.log(self.masses)
        return found

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M and its first two derivatives at a real tilt."""
        return moments_of(self.log_masses, self.losses, tilt)

    def log_mgfs(self, tilts: Floats) -> Floats:
        """Ln M at real tilts."""
        exponents = np.multiply.outer(tilts, self.losses) + self.log_masses
        top = exponents.max(axis=1)
        found: Floats = top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))
        return found

    def log_mgf_bounds(self, tilts: Floats) -> Floats:
        """Ln M of the atoms, rounded up, at tilts of either sign."""
        sizes = np.abs(tilts)
        exponents = float(np.abs(self.log_masses).max()) + sizes * float(np.abs(self.losses).max())
        rounding = float(self.mass_errors.max()) + sizes * float(self.loss_errors.max())
        rounding += 8.0 * _UNIT * (len(self.losses) + exponents)
        found: Floats = self.log_mgfs(tilts) + rounding - math.log1p(-min(self.quadrature, 0.5))
        return found

    def log_mgf_bound(self, tilt: float) -> float:
        """Ln M of the atoms, rounded up."""
        return float(self.log_mgf_bounds(np.array([tilt]))[0])

    def trimmed(self, probability: float) -> AtomLoss:
        """Without the least likely atoms, which have that probability together at most."""
        keep = self.masses > probability / len(self.masses)
        if keep.all() or not keep.any():
            return self
        gone = float(self.masses[~keep].sum()) * (1.0 + 1e-9)
        return replace(self._some(keep), lost=self.lost + gone)

    def _some(self, keep: NDArray[np.bool_]) -> AtomLoss:
        """Some of the atoms, and nothing said of the others."""
        return replace(
            self,
            losses=self.losses[keep],
            masses=self.masses[keep],
            mass_errors=self.mass_errors[keep],
            loss_errors=self.loss_errors[keep],
        )

    def below(self, cut: float) -> AtomLoss:
        """The atoms below a loss; the others are accounted for elsewhere."""
        kept = self.losses < cut
        gone = self.masses[~kept]
        some = self._some(kept)
        return replace(
            some,
            largest=float((some.losses + some.loss_errors).max()),
            removed=self.removed + float(gone.sum()),
            removed_error=self.removed_error
            + float((gone * (self.mass_errors[~kept] + 2.0 * _UNIT * len(gone))).sum()),
        )

    def tilted(
        self,
        tilt: float,
        frequency: float,  # noqa: ARG002
        digits: float,  # noqa: ARG002
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedAtoms:
        """The transform on Re z = tilt."""
        return tilt_atoms(self, tilt)


@dataclass(frozen=True, eq=False)
class AtomProfile:
    """δ(ε) = Σ p·(1 - e^{ε-l})₊ of one release."""

    loss: AtomLoss

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        loss = self.loss
        if epsilon > loss.largest * (1.0 + 1e-12):
            return Enclosure(0.0, ErrorTerms(), 0.0)
        excess = loss.losses - epsilon
        off = loss.loss_errors + 2.0 * _UNIT * (np.abs(loss.losses) + abs(epsilon))
        seen = excess > -off  # a loss that rounding puts on the wrong side adds next to nothing
        p, off, excess = loss.masses[seen], off[seen], np.maximum(excess[seen], 0.0)
        terms = p * -np.expm1(-excess)
        value = float(terms.sum())
        depth = 32.0 + math.log2(len(p) + 1.0)
        rounding = float((terms * (loss.mass_errors[seen] + depth * _UNIT) + 1.01 * p * off).sum())
        errors = ErrorTerms(truncation=loss.lost, rounding=rounding)
        return Enclosure(value, errors, value - float(p[excess > 0.0].sum()))

    def guess(self, delta: float) -> float:
        """About ε(δ): between two losses δ is linear in e^ε."""
        order = np.argsort(-self.loss.losses)
        losses, p = self.loss.losses[order], self.loss.masses[order]
        grown = np.cumsum(p) - np.exp(losses) * np.cumsum(p * np.exp(-losses))
        last = int(np.searchsorted(np.maximum.accumulate(grown), delta))
        start = float(losses[min(last, len(losses) - 1)])
        return solve_convex(self, delta, max(0.0, start))


def lost_of(composition: Sequence[tuple[PrivacyLoss, int]]) -> float:
    """The probability of all that atoms leave out, which is charged to δ."""
    return math.fsum(count * loss.lost for loss, count in composition if isinstance(loss, AtomLoss))


@dataclass(frozen=True, eq=False)
class TiltedAtoms:
    """M of atoms on one vertical line.

    Attributes:
        tilt: Its real part.
        log_mgf: ln M(tilt).
        log_mgf_error: Bounds on its error.
        centre: The mean of the tilted loss.
        spread: The losses less the centre.
        mass: The tilted masses.
        mass_errors: Bounds on their relative errors.
        spread_errors: Bounds on the absolute errors of ``spread``.
        missing: A bound on the tilted mass that is left out.
        quadrature: The loss's.
        deviation: A bound on the standard deviation of the tilted loss.
    """

    tilt: float
    log_mgf: float
    log_mgf_error: NodeErrors
    centre: float
    spread: Floats
    mass: Floats
    mass_errors: Floats
    spread_errors: Floats
    missing: float
    quadrature: float
    deviation: float

    @property
    def size(self) -> int:
        """How many numbers one frequency costs, at most as many as the splines do."""
        return min(len(self.mass), 8 * _ORDER)

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        few = self._few(frequencies)
        if few == len(frequencies):
            return turned_sums(frequencies, self.spread, self.mass)
        found = self._by_splines(frequencies)
        real, imaginary = found.real, found.imag
        real[:few], imaginary[:few] = turned_sums(frequencies[:few], self.spread, self.mass)
        return real, imaginary

    def ratio_at(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """``ratio`` at frequencies that need not be equally spaced."""
        some = max(1, _TABLE // len(self.mass))
        found = np.empty(len(frequencies), dtype=np.complex128)
        for k in range(0, len(frequencies), some):
            found[k : k + some] = turns(frequencies[k : k + some], self.spread) @ self.mass
        return found.real, found.imag

    def modulus_bound(self, frequencies: Floats, *, evenly: bool) -> Floats:
        """No less than |M(tilt + iu)/M(tilt)|; quicker at ``evenly`` spaced frequencies from 0."""
        if not evenly:
            real, imaginary = self.ratio_at(frequencies)
            error = self.error_at(frequencies)
        elif len(self.mass) * len(frequencies) <= _LITTLE:
            real, imaginary = turned_sums(frequencies, self.spread, self.mass)
            error = self.error_at(frequencies)
        else:
            found = self._by_splines(frequencies)
            real, imaginary = found.real, found.imag
            error = self.error_at(frequencies)
            spline = self._spline_errors(frequencies, float(frequencies[-1]))
            error = replace(error, rounding=error.rounding + spline)
        total = error.truncation + error.quadrature + error.rounding
        found_size: Floats = np.hypot(1.0 + real, imaginary) + total + 4.0 * _UNIT
        return found_size

    def _few(self, frequencies: Floats) -> int:
        """How many of the first frequencies are summed as they are."""
        return min(len(frequencies), max(4, _FEW // len(self.mass)))

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        found, few = self.error_at(frequencies), self._few(frequencies)
        if few < len(frequencies):
            rounding = np.array(found.rounding)
            rounding[few:] += self._spline_errors(frequencies[few:], float(frequencies[-1]))
            return replace(found, rounding=rounding)
        return found

    def error_at(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio_at``."""
        sums = len(self.mass) + 4.0 + 2.0 * math.log2(len(frequencies) + 1.0)
        relative = self.mass * (self.mass_errors + 8.0 * _UNIT * sums)
        far = np.abs(self.spread)
        flat, slope = float(relative.sum()), float((relative * far).sum())
        phase = float((self.mass * (self.spread_errors + 8.0 * _UNIT * far)).sum())
        rounding = np.minimum(2.0 * flat, slope * frequencies) + phase * frequencies
        return NodeErrors(2.0 * self.missing, 2.0 * self.quadrature, rounding)

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Nothing is known: atoms do not fade."""
        return 0.0

    def _grid(self, step: float, last: float) -> tuple[int, float]:
        """Points and spacing of the grid whose transform has its nodes at multiples of ``step``."""
        period = 2.0 * math.pi / step
        points = next_fast_len(math.ceil(period * last / (2.0 * _FINE)), real=True)
        return points, period / points

    def _by_splines(self, frequencies: Floats) -> Complexes:
        points, spacing = self._grid(float(frequencies[1]), float(frequencies[-1]))
        place = self.spread / spacing - 0.5 * _ORDER
        first = np.ceil(place)
        offset, index = first - place, first.astype(np.int64)
        values = np.empty((_ORDER, len(place)))
        for k in range(0, len(place), _BLOCK):  # few enough for the processor's own memory
            values[:, k : k + _BLOCK] = _spline_values(offset[k : k + _BLOCK])
        values *= self.mass
        where = (index + np.arange(_ORDER)[:, None]) % points
        table = np.bincount(where.ravel(), values.ravel(), minlength=points)
        half = 0.5 * spacing * frequencies
        half[0] = 1.0  # a 0th node needs no correction
        sinc = np.sin(half) / half
        sinc[0] = 1.0
        found: Complexes = np.conj(rfft(table)[: len(frequencies)]) / sinc**_ORDER - 1.0
        return found

    def _spline_errors(self, frequencies: Floats, last: float) -> Floats:
        step = float(frequencies[1] - frequencies[0]) if len(frequencies) > 1 else last
        points, spacing = self._grid(step, last)
        theta = 0.5 * spacing * frequencies
        # Σ over n ≠ 0 of (θ/|θ + πn|)^p: twice the nearest, and what lies beyond is far less.
        copies = 2.2 * (theta / (math.pi - theta)) ** _ORDER
        depth = 8.0 * (math.log2(points) + 2.0) + 8.0 * _ORDER
        size = math.sqrt(points * float((self.mass * self.mass).sum())) + 2.0
        grown = 1.5 ** (0.5 * _ORDER * (theta / _FINE) ** 2)  # 1/sinc^p is less than that
        found: Floats = copies + _UNIT * depth * size * grown
        return found


def _spline_values(offset: Floats) -> list[Floats]:
    """The B-spline of order p at offset, offset + 1, …, p in all, for offsets in [0, 1).

    By the recurrence of Cox and de Boor, all of whose terms are positive.
    """
    values = [np.ones_like(offset)]
    for order in range(2, _ORDER + 1):
        before, values = values, []
        scale = 1.0 / (order - 1.0)
        for j in range(order):
            x = scale * (offset + j)
            if j == 0:
                values.append(x * before[j])
            elif j == order - 1:
                values.append((scale * order - x) * before[j - 1])
            else:
                values.append(x * before[j] + (scale * order - x) * before[j - 1])
    return values


def tilt_atoms(loss: AtomLoss, tilt: float) -> TiltedAtoms:
    """Tilts the masses and bounds what is wrong with them."""
    scaled = tilt * loss.losses
    exponent = loss.log_masses + scaled
    small = np.clip(scaled, -1.0, 1.0)
    grown = np.exp(np.minimum(exponent, 700.0))
    # All masses, with what is removed, add up to 1: M - 1 keeps the digits that a small loss has.
    excess = np.where(small == scaled, loss.masses * np.expm1(small), grown - loss.masses)
    rough = loss.moments(tilt)[0]
    near = abs(rough) < 0.5 or 0.0 < rough < 500.0
    log_mgf = math.log1p(float(excess.sum()) - loss.removed) if near else rough
    mass = np.exp(exponent - log_mgf)
    sizes = 8.0 + 4.0 * (np.abs(loss.log_masses) + np.abs(scaled) + abs(log_mgf))
    mass_errors = loss.mass_errors + tilt * loss.loss_errors + _UNIT * sizes
    scale = math.exp(min(-log_mgf, 700.0))
    moved = np.abs(excess) * scale if near else mass
    rounding = float((moved * (loss.mass_errors + _UNIT * (8.0 + sizes + len(mass)))).sum())
    rounding += float((mass * tilt * (loss.loss_errors + _UNIT * np.abs(loss.losses))).sum())
    rounding += (loss.removed_error + 2.0 * _UNIT * loss.removed) * max(scale, 1.0)
    # What is lost belongs to the 1 that masses add up to.
    error = NodeErrors(loss.lost * max(scale, 1.0), 2.0 * loss.quadrature, rounding)
    keep = mass > _NEGLIGIBLE
    centre = float((mass * loss.losses).sum()) / float(mass.sum())
    away = loss.losses - centre
    spread = away[keep]
    variance = float((mass * away * away).sum()) / float(mass.sum())
    return TiltedAtoms(
        tilt=tilt,
        log_mgf=log_mgf,
        log_mgf_error=error.as_log(),
        centre=centre,
        spread=spread,
        mass=mass[keep],
        mass_errors=mass_errors[keep],
        spread_errors=loss.loss_errors[keep] + _UNIT * (np.abs(spread) + abs(centre)),
        missing=float(mass[~keep].sum()) * (1.0 + 1e-9),
        quadrature=loss.quadrature,
        deviation=math.sqrt(variance) * (1.0 + 1e-6) + float(loss.loss_errors.max()),
    )


# ---- samples of discrete noise


def sampled_loss(loss: Floats, rate: float) -> Floats:
    """ln(1 - rate + rate·exp(loss))."""
    if rate == 1.0:
        return loss
    found: Floats = np.log1p(rate * np.expm1(np.minimum(loss, 30.0)))
    large = loss >= 30.0
    if large.any():
        found[large] = np.logaddexp(math.log1p(-rate), math.log(rate) + loss[large])
    return found


def as_atoms(loss: LatticeLoss) -> AtomLoss:
    """A lattice's losses as atoms: at frequencies that are not its own the lattice has no use."""
    errors = np.minimum(loss.mass_error, 8.0 * _UNIT * (4.0 + np.abs(loss.log_masses)))
    moved = 4.0 * _UNIT * (np.abs(loss.losses) + abs(loss.offset))
    masses = loss.masses[loss.support]
    return AtomLoss(loss.losses, masses, errors, moved, loss.largest, loss.truncation(0.0))


def sampled_atoms(base: LatticeLoss, rate: float, *, reverse: bool) -> AtomLoss | None:
    """The loss of a Poisson sample of ``base``: (1-q)·Q + q·P against Q, or the reverse.

    None if the base has losses without end that are not a discrete Gaussian's.
    """
    if base.gaussian is not None:
        loss, log_p, log_q, lost = _gaussian_outputs(*base.gaussian)
        largest = -math.log1p(-rate) if reverse else math.inf
    elif base.log_tail is None:
        loss, log_p, lost = base.losses, base.log_masses, 0.0
        log_q, largest = log_p - loss, None
    else:
        return None
    sampled = sampled_loss(loss, rate)
    share = np.exp(np.minimum(math.log(rate) + loss - sampled, 0.0))
    masses = np.exp(log_q) if reverse else (1.0 - rate) * np.exp(log_q) + rate * np.exp(log_p)
    kept = masses > 0.0
    sizes = 4.0 + np.maximum(np.abs(log_p), np.abs(log_q)) + np.abs(loss)
    errors = _UNIT * (8.0 * np.abs(sampled) + 4.0 * share * np.abs(loss))
    losses = (-sampled if reverse else sampled)[kept]
    return AtomLoss(
        losses,
        masses[kept],
        (8.0 * _UNIT * sizes)[kept],
        errors[kept],
        float((losses + errors[kept]).max()) if largest is None else largest,
        lost + _UNDERFLOW * int((~kept).sum()),
    )


def _gaussian_outputs(sigma: float, shift: int) -> tuple[Floats, Floats, Floats, float]:
    """Losses, ln of P's and of Q's masses, over the outputs that matter, and what lies beyond."""
    variance = sigma * sigma
    radius = math.ceil((_NEAR if sigma > _WIDE else _FAR) * sigma) + 10
    x = np.arange(-radius, radius + shift + 1, dtype=np.float64)
    log_all = log_normaliser(sigma)
    log_q = -0.5 * x * x / variance - log_all
    log_p = -0.5 * (x - shift) * (x - shift) / variance - log_all
    first = radius + 1.0
    log_first = -0.5 * first * first / variance - log_all
    # Beyond either end, of either law, masses fall at least geometrically.
    lost = 4.0 * math.exp(max(log_first, -740.0)) / -math.expm1(-(first + 0.5) / variance)
    return shift * (x - 0.5 * shift) / variance, log_p, log_q, lost
