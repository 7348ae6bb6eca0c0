"""Losses that take values on a lattice, and the profile of their sums, with every error bounded.

Randomised response and discrete noise have such losses, and so has any pair moved onto a grid.
A sum of lattice losses has a transform of period 2π/s along the contour (s the spacing), so that
the integral of ``contour`` becomes one over that period. With r ≥ 0 the way from ε up to the next
lattice point,

    δ(ε) = Σ_k p_k·(1 - exp(ε - l_k))₊
         = s/2π ∫ M(z)·exp(-zε)·[e^{-zr}/(1 - e^{-zs}) - e^{-(z+1)r}/(1 - e^{-(z+1)s})] du ,

and N nodes give, exactly, Σ_k δ(ε + kS)·exp(kSz₀) with S = N·s. The tilt z₀ keeps the digits that
a plain Fourier transform of probabilities loses below 1e-16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.fft import next_fast_len

from tacit.accounting.exact.contour import Aliases, bound_aliases
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, TooSlow
from tacit.accounting.exact.transforms import NodeErrors, Spectrum, compose

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.exact.contour import Aim, SaddleSearch
    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.transforms import Complexes, Floats

MOST_LOSS = 690.0  # e^-690 has all its digits, and room for a probability beside it
_SAFETY = 8.0 * 2.0**-53
_MANY = 30_000  # masses times frequencies, from which the Fourier transform is faster
_TABLE = 1_000_000  # numbers in a table of rows


def moments_of(log_masses: Floats, losses: Floats, tilt: float) -> tuple[float, float, float]:
    """Ln Σ mass·exp(tilt·loss) and its first two derivatives.

    Raises:
        OverflowError: if losses are beyond floating-point numbers.
    """
    if math.isinf(tilt * max(-float(losses.min()), float(losses.max()))):
        raise OverflowError("losses beyond floating-point numbers")
    exponent = log_masses + tilt * losses
    top = float(exponent.max())
    weights = np.exp(exponent - top)
    total = float(weights.sum())
    # Sums, not dot products: those are handed out to threads, and wait where cores are busy.
    mean = float((weights * losses).sum()) / total
    spread = losses - mean
    return top + math.log(total), mean, float((weights * (spread * spread)).sum()) / total


@dataclass(frozen=True, eq=False)
class LatticeLoss:
    """P puts ``masses[j]`` on the loss offset + spacing·(first + j).

    Attributes:
        offset: Where index 0 lies.
        spacing: The distance between neighbours.
        first: The index of ``masses[0]``.
        masses: P's probabilities; they add up to 1 less what an unbounded support leaves out.
        log_tail: (ln of mass left out at the top, its ln decay per index, the same at the bottom):
            the masses left out fall at least geometrically at that rate, tilted ones included
            while the tilt times the spacing is below it. None if nothing is left out.
        mass_error: A bound on the relative rounding error of the masses.
        gaussian: (σ, distance) if the loss is that of discrete Gaussian noise.
    """

    offset: float
    spacing: float
    first: int
    masses: Floats
    log_tail: tuple[float, float, float, float] | None = None
    mass_error: float = _SAFETY
    gaussian: tuple[float, int] | None = None

    @cached_property
    def support(self) -> NDArray[np.intp]:
        """Where ``masses`` is not 0: a gridded discrete loss is mostly holes."""
        return np.flatnonzero(self.masses)

    @cached_property
    def losses(self) -> Floats:
        """The losses that have mass."""
        return self.offset + self.spacing * (self.first + self.support)

    @property
    def largest(self) -> float:
        """The supremum of the loss."""
        return float(self.losses[-1]) if self.log_tail is None else math.inf

    @property
    def is_out_of_range(self) -> bool:
        """Whether so low a loss is possible that P's mass there is no number, and Q's is not told.

        To a sampler Q's masses matter as P's do. Gaussian ones are known beyond (``log_tail``).
        """
        return self.log_tail is None and self.offset + self.spacing * self.first < -MOST_LOSS

    @property
    def rough_variance(self) -> float:
        """The variance of the loss."""
        return self.moments(0.0)[2]

    @cached_property
    def log_masses(self) -> Floats:
        """Ln of the masses there."""
        found: Floats = np.log(self.masses[self.support])
        return found

    def real_line(self, reach: float, digits: float) -> LatticeLoss:  # noqa: ARG002
        """Itself: the sum serves every tilt."""
        return self

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M and its first two derivatives at a real tilt."""
        return moments_of(self.log_masses, self.losses, tilt)

    def log_mgf_bound(self, tilt: float) -> float:
        """Ln M, rounded up."""
        log_mgf = self.moments(tilt)[0]
        beyond = self.truncation(tilt) * math.exp(min(-log_mgf, 700.0))
        reach = tilt * float(np.abs(self.losses).max())
        return (
            log_mgf + math.log1p(beyond) + self.mass_error + _SAFETY * (len(self.support) + reach)
        )

    def truncation(self, tilt: float) -> float:
        """Bound on E[exp(tilt·L)] over the losses left out (not relative to M)."""
        if self.log_tail is None:
            return 0.0
        log_top, rate_top, log_bottom, rate_bottom = self.log_tail
        total = 0.0
        for log_mass, rate, loss, sign in (
            (log_top, rate_top, float(self.losses[-1]), 1.0),
            (log_bottom, rate_bottom, float(self.losses[0]), -1.0),
        ):
            slack = rate - sign * tilt * self.spacing
            if slack <= 0.0:
                return math.inf
            total += math.exp(min(log_mass + tilt * loss, 700.0)) / -math.expm1(-slack)
        return total

    def tilted(
        self,
        tilt: float,
        frequency: float,  # noqa: ARG002
        digits: float,  # noqa: ARG002
        resolution: Resolution,  # noqa: ARG002
    ) -> TiltedLattice:
        """The transform on Re z = tilt."""
        return TiltedLattice(self, tilt)


@dataclass(frozen=True, eq=False)
class TiltedLattice:
    """M of a lattice loss on one vertical line."""

    loss: LatticeLoss
    tilt: float

    @cached_property
    def _moments(self) -> tuple[float, float, float]:
        return self.loss.moments(self.tilt)

    @property
    def size(self) -> int:
        """How many numbers one frequency costs."""
        return len(self.loss.support)

    @property
    def log_mgf(self) -> float:
        """Ln M(tilt)."""
        return self._moments[0]

    @property
    def centre(self) -> float:
        """The mean of the tilted loss."""
        return self._moments[1]

    @cached_property
    def mass(self) -> Floats:
        """The tilted masses."""
        return np.exp(self.loss.log_masses + self.tilt * self.loss.losses - self.log_mgf)

    @cached_property
    def _truncation(self) -> float:
        return self.loss.truncation(self.tilt) * math.exp(min(-self.log_mgf, 700.0))

    @cached_property
    def _conditioning(self) -> float:
        """Σ of the tilted masses' relative rounding errors."""
        sizes = 1.0 + np.abs(self.tilt * self.loss.losses) + abs(self.log_mgf)
        return self.loss.mass_error + _SAFETY * float((self.mass * sizes).sum())

    @property
    def log_mgf_error(self) -> NodeErrors:
        """Bounds on the error of ``log_mgf``."""
        depth = math.log2(len(self.loss.support) + 1.0)
        return NodeErrors(
            truncation=self._truncation, rounding=self._conditioning + _SAFETY * (4.0 + depth)
        )

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        whole_period = abs(float(frequencies[-1]) * self.loss.spacing - math.pi) < 1e-9
        if whole_period and len(self.mass) * len(frequencies) > _MANY:
            ratio = self._by_fourier(frequencies)
        else:
            ratio = self._by_rows(frequencies)
        return ratio.real - 1.0, ratio.imag

    def _by_rows(self, frequencies: Floats) -> Complexes:
        """Frequency by frequency, some at a time to spare memory."""
        spread = self.loss.losses - self.centre
        some = max(1, _TABLE // len(spread))
        rows = [
            np.exp(1j * np.multiply.outer(frequencies[k : k + some], spread)) @ self.mass
            for k in range(0, len(frequencies), some)
        ]
        return np.concatenate(rows)

    def _by_fourier(self, frequencies: Floats) -> Complexes:
        """All frequencies 2πm/(N·spacing), m = 0…N/2, at once."""
        size = 2 * (len(frequencies) - 1)
        wrapped = np.bincount(self.loss.support % size, self.mass, minlength=size)
        found = np.conj(np.fft.rfft(wrapped))
        turned: Complexes = found * np.exp(
            1j
            * frequencies
            * (self.loss.offset + self.loss.spacing * self.loss.first - self.centre)
        )
        return turned

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""
        reach = float((self.mass * np.abs(self.loss.losses)).sum()) + abs(self.centre)
        sums = 2.0 * math.log2(len(self.mass) + len(frequencies) + 2.0) + len(self.mass)
        rounding = self._conditioning + _SAFETY * (4.0 + sums + reach * frequencies)
        return NodeErrors(truncation=2.0 * self._truncation, rounding=rounding)

    def log_decay(self, frequency: float, thorough: bool) -> float:  # noqa: ARG002
        """Nothing is known: a lattice's transform is periodic."""
        return 0.0


LatticeComposition = tuple[tuple[LatticeLoss, int], ...]


@dataclass(frozen=True, eq=False)
class LatticeSum:
    """δ(ε) of a composition on the lattice offset + spacing·ℤ, near one ε."""

    spectrum: Spectrum
    weights: Floats
    offset: float
    spacing: float
    errors: ErrorTerms
    aliases: Aliases

    @cached_property
    def _kernels(self) -> tuple[Complexes, Complexes]:
        """The weighted values over 1 - e^{-zs}, and over 1 - e^{-(z+1)s}."""
        z, weighted = self.spectrum.tilts, self.weights * self.spectrum.values
        return (
            weighted / -np.expm1(-z * self.spacing),
            weighted / -np.expm1(-(z + 1.0) * self.spacing),
        )

    def enclose(self, epsilon: float) -> Enclosure:
        """δ(ε) with its errors."""
        spectrum, z = self.spectrum, self.spectrum.tilts
        # A lattice point that rounding puts on the wrong side of ε adds or omits next to nothing:
        # its term (1 - exp(ε - l)) is 0 there.
        rest = (self.offset - epsilon) % self.spacing
        first, second = self._kernels
        with np.errstate(all="ignore"):  # at an ε beyond all range, where the bracket is open
            turn = np.exp(-z * rest + 1j * ((spectrum.centre - epsilon) * spectrum.frequencies))
        # Sums, not dot products: those are handed out to threads, and wait where cores are busy.
        lower = float((turn * first).real.sum())
        higher = math.exp(-rest) * float((turn * second).real.sum())
        value, slope = lower - higher, -higher
        period = len(self.weights) * 2 * self.spacing  # half of the nodes are kept
        aliasing = self.aliases.bound(epsilon, period - 2 * self.spacing)
        return spectrum.enclose(epsilon, value, slope, self.errors, aliasing)


def lay_lattice(
    composition: LatticeComposition, search: SaddleSearch, aim: Aim, resolution: Resolution
) -> LatticeSum:
    """Places N nodes on the period for ε near ``aim.epsilon``.

    Raises:
        TooSlow: if that takes more nodes than the resolution allows.
    """
    spacing = composition[0][0].spacing
    aliases = bound_aliases(search, aim, resolution.digits)
    period = aliases.period(aim, resolution.digits) * resolution.contour_density
    if period / spacing > resolution.most_nodes:
        raise TooSlow
    half = next_fast_len(max(8, math.ceil(0.5 * period / spacing)))
    frequencies = (math.pi / (half * spacing)) * np.arange(half + 1)
    transforms = [(loss.tilted(aim.tilt, 0.0, 0.0, resolution), n) for loss, n in composition]
    spectrum = compose(transforms, aim.tilt, frequencies, resolution.unit_roundoff)
    weights = np.full(half + 1, 1.0 / half)
    weights[0] = weights[-1] = 0.5 / half
    z = spectrum.tilts
    kernel = weights / np.abs(np.expm1(-z * spacing)) + weights / np.abs(
        np.expm1(-(z + 1.0) * spacing)
    )
    return LatticeSum(
        spectrum=spectrum,
        weights=weights,
        offset=math.fsum(count * loss.offset for loss, count in composition),
        spacing=spacing,
        errors=spectrum.errors_against(kernel, tail=0.0, terms=len(kernel)),
        aliases=aliases,
    )
