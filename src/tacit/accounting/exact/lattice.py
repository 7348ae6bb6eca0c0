"""The privacy profile of losses on one lattice: a finite Fourier sum, with every error bounded.

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

from tacit.accounting.exact.aliasing import Aliases, bound_aliases
from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms, TooSlow
from tacit.accounting.exact.spectrum import Spectrum, compose

if TYPE_CHECKING:
    from tacit.accounting.exact.lattice_loss import LatticeLoss
    from tacit.accounting.exact.resolution import Resolution
    from tacit.accounting.exact.saddle import Aim, Search
    from tacit.accounting.exact.transforms import Complexes, Floats

LatticeComposition = tuple[tuple["LatticeLoss", int], ...]


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
    composition: LatticeComposition, search: Search, aim: Aim, resolution: Resolution
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
        errors=spectrum.errors_against(kernel, tail=0.0),
        aliases=aliases,
    )
