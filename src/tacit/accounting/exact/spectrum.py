"""The composed transform at the frequencies of a contour, ready to be integrated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms
from tacit.accounting.exact.product import product_of, scale_errors_of

if TYPE_CHECKING:
    from tacit.accounting.exact.product import Product, Transforms
    from tacit.accounting.exact.transforms import Complexes, Floats

_DOUBLE = 4.0 * 2.0**-53  # a rounding of float64, with a safety factor


@dataclass(frozen=True, eq=False)
class Spectrum:
    """M(z₀ + iu) = exp(log_scale + iu·centre)·values, with values known at ``frequencies``.

    Attributes:
        tilt: z₀.
        log_scale: ln M(z₀) of the whole composition.
        centre: The reference for phases.
        frequencies: The nodes u_k ≥ 0, equally spaced from 0.
        values: M(z₀ + iu)·exp(-iu·centre)/M(z₀).
        scale_errors: Bounds on the relative error of exp(log_scale), by cause.
        unit_roundoff: Of the arithmetic that the transforms used.
    """

    tilt: float
    log_scale: float
    centre: float
    frequencies: Floats
    product: Product
    scale_errors: ErrorTerms
    unit_roundoff: float

    @property
    def tilts(self) -> Complexes:
        """The complex nodes z = z₀ + iu."""
        return self.tilt + 1j * self.frequencies

    @cached_property
    def values(self) -> Complexes:
        """M(z₀ + iu)·exp(-iu·centre)/M(z₀)."""
        return np.exp(self.product.log_modulus + 1j * self.product.angle)

    def errors_against(self, kernel: Floats, tail: float) -> ErrorTerms:
        """Bounds on the error of Σ kernel·values·phases, in units of exp(log_scale - tilt·ε).

        The phases exp(iu(centre - ε)) are exact here; ``enclose`` accounts for their rounding.
        """
        # The sum's errors are multiplied by the scale, and so by what the scale may be off.
        errors = self.product.errors(kernel * (1.0 + min(self.scale_errors.above, 1e100)))
        sizes = kernel * np.exp(self.product.log_modulus)
        sum_and_powers = len(sizes) + 8.0 + self.product.work
        rounding = 4.0 * self.unit_roundoff * float((sizes * sum_and_powers).sum())
        rounding += errors.rounding
        return replace(
            errors, rounding=rounding, tail=tail, phases=float((sizes * self.frequencies).sum())
        )

    def enclose(
        self, epsilon: float, value: float, slope: float, errors: ErrorTerms, aliasing: float
    ) -> Enclosure:
        """δ(ε) = exp(log_scale - tilt·ε)·value, with everything that may be off."""
        scale = math.exp(min(self.log_scale - self.tilt * epsilon, 700.0))
        known, size = self.scale_errors, abs(value)
        exponent = abs(self.log_scale) + self.tilt * abs(epsilon) + 2.0
        phases = _DOUBLE * (abs(self.centre) + abs(epsilon)) * errors.phases
        rounding = errors.rounding + size * (known.rounding + _DOUBLE * exponent) + phases
        scaled = ErrorTerms(
            truncation=scale * (errors.truncation + size * known.truncation),
            quadrature=scale * (errors.quadrature + size * known.quadrature),
            rounding=scale * rounding,
            tail=scale * errors.tail,
            aliasing=aliasing,
        )
        return Enclosure(scale * value, scaled, scale * slope)


def compose(
    transforms: Transforms, tilt: float, frequencies: Floats, unit_roundoff: float
) -> Spectrum:
    """Multiplies the transforms' powers at the frequencies."""
    return Spectrum(
        tilt=tilt,
        log_scale=math.fsum(count * transform.log_mgf for transform, count in transforms),
        centre=math.fsum(count * transform.centre for transform, count in transforms),
        frequencies=frequencies,
        product=product_of(transforms, frequencies),
        scale_errors=scale_errors_of(transforms),
        unit_roundoff=unit_roundoff,
    )
