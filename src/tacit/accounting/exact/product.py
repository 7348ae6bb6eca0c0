"""Composition on the contour: the product of the transforms' powers, and of their errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.enclosure import ErrorTerms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tacit.accounting.exact.transforms import Floats, Transform

    Transforms = Sequence[tuple[Transform, int]]


_CAUSES = ("truncation", "quadrature", "rounding")
_SMALL = 1e-3  # ln of an error below which errors just add up
_HOPELESS = 500.0  # ln of an error beyond which nothing is said
_FLOOR = 1e-15  # |M(z)/M(z₀)| below this is raised to it, and charged


@dataclass
class Product:
    """Φ = Π (M_j(z)/M_j(z₀))^count_j at the frequencies, by logarithms, with its errors."""

    log_modulus: Floats
    angle: Floats
    work: Floats
    causes: Mapping[str, Floats]

    def errors(self, weights: Floats) -> ErrorTerms:
        """Bounds on Σ weights·|error of Φ|, by cause.

        What the causes do together beyond the sum of what each does alone goes to the largest.
        """
        total = self.causes["truncation"] + self.causes["quadrature"] + self.causes["rounding"]
        largest = float(total.max())
        if not largest < _HOPELESS:
            return ErrorTerms(truncation=math.inf, quadrature=math.inf, rounding=math.inf)
        if largest < _SMALL:
            # exp(x) - 1 ≤ x·(1 + x) for 0 ≤ x ≤ 1, and so for the sum of the causes.
            sizes = (1.0 + largest) * weights * np.exp(self.log_modulus)
            return ErrorTerms(*(float((sizes * self.causes[name]).sum()) for name in _CAUSES))
        parts = np.stack([self.causes[name] for name in _CAUSES])
        alone = self._changes(parts)
        together = self._changes(total) - alone.sum(axis=0)
        alone[parts.argmax(axis=0), np.arange(len(total))] += np.maximum(together, 0.0)
        return ErrorTerms(*(alone * weights).sum(axis=1).tolist())

    def _changes(self, exponents: Floats) -> Floats:
        """|Φ|·(exp(exponents) - 1), however small |Φ| and however large the exponents."""
        small = np.exp(self.log_modulus) * np.expm1(np.minimum(exponents, 1.0))
        found: Floats = np.where(exponents < 1.0, small, np.exp(self.log_modulus + exponents))
        return found


def product_of(transforms: Transforms, frequencies: Floats) -> Product:
    """Multiplies the transforms' powers at the frequencies."""
    size = len(frequencies)
    causes = {name: np.zeros(size) for name in _CAUSES}
    product = Product(np.zeros(size), np.zeros(size), np.zeros(size), causes)
    for transform, count in transforms:
        real, imaginary = transform.ratio(frequencies)
        log_modulus, rounding = _log_modulus(real, imaginary)
        angle = np.arctan2(imaginary, 1.0 + real)
        product.log_modulus += count * log_modulus
        product.angle += count * angle
        product.work += count * (np.abs(log_modulus) + np.abs(angle))
        enlarge = np.exp(-log_modulus)
        # M(z)/M(z₀) - 1 inherits the relative error of M(z₀).
        distance = np.hypot(real, imaginary)
        found, known = transform.ratio_error(frequencies), transform.log_mgf_error
        truncation = found.truncation + distance * known.truncation
        quadrature = found.quadrature + distance * known.quadrature
        rounding = rounding + found.rounding + distance * known.rounding
        causes["truncation"] += count * np.log1p(truncation * enlarge)
        causes["quadrature"] += count * np.log1p(quadrature * enlarge)
        causes["rounding"] += count * np.log1p(rounding * enlarge)
    return product


def scale_errors_of(transforms: Transforms) -> ErrorTerms:
    """Bounds on the relative error of Π M_j(z₀)^count_j, by cause."""
    known = [(transform.log_mgf_error, count) for transform, count in transforms]
    return ErrorTerms(
        truncation=_expm1(math.fsum(count * error.truncation for error, count in known)),
        quadrature=_expm1(math.fsum(count * error.quadrature for error, count in known)),
        rounding=_expm1(math.fsum(count * error.rounding for error, count in known)),
    )


def _expm1(exponent: float) -> float:
    """Exp - 1, three-fold so that the parts of a product's error may be added up."""
    return math.expm1(min(3.0 * exponent, 700.0)) / 3.0


def _log_modulus(real: Floats, imaginary: Floats) -> tuple[Floats, Floats]:
    """Ln |1 + ratio|, and a bound on the error (of the modulus) that this step itself makes."""
    square = 2.0 * real + real * real + imaginary * imaginary
    small = square < -0.5
    if not small.any():
        return 0.5 * np.log1p(square), np.zeros(len(real))
    modulus = np.hypot(1.0 + real, imaginary)
    log_modulus = 0.5 * np.log1p(np.where(small, 0.0, square))
    log_modulus = np.where(small, np.log(np.maximum(modulus, _FLOOR)), log_modulus)
    return log_modulus, np.where(small, _FLOOR, 0.0)
