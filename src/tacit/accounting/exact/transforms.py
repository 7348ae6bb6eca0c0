"""What the contour integral asks of a privacy loss: its transform on one vertical line.

M(z) = E_P[exp(z·L)]. A transform is prepared for one real part, the tilt, and knows M(tilt),
M(tilt + iu)/M(tilt) for the frequencies u of the contour, how fast that falls beyond them, and a
bound on each of its own errors.
Composition multiplies transforms: a spectrum is their product at the frequencies, with its errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tacit.accounting.exact.enclosure import Enclosure, ErrorTerms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.exact.enclosure import Resolution

    Floats = NDArray[np.floating]
    Complexes = NDArray[np.complexfloating]

_HOPELESS_LOG = 1e9  # an error of ln M past which nothing is said, yet no arithmetic overflows
_SMALL = 1e-3  # ln of an error below which errors just add up
_HOPELESS = 500.0  # ln of an error beyond which nothing is said
_MOST = 1e290  # an error that leaves nothing, yet no arithmetic overflows
_FLOOR = 1e-15  # |M(z)/M(z₀)| below this is raised to it, and charged
_DOUBLE = 4.0 * 2.0**-53  # a rounding of float64, with a safety factor


@dataclass(frozen=True)
class NodeErrors:
    """Bounds on relative errors of M by their cause; numbers, or arrays over the frequencies.

    Those of a ``ratio`` are ``complete`` if it is M(z) over the computed M(z₀): the error of that
    one is then none of its own, for the product of both is M(z).
    """

    truncation: float | Floats = 0.0
    quadrature: float | Floats = 0.0
    rounding: float | Floats = 0.0
    complete: bool = False

    def as_log(self) -> NodeErrors:
        """The same as errors of ln M."""
        return NodeErrors(
            _log_error(self.truncation), _log_error(self.quadrature), _log_error(self.rounding)
        )


def _log_error(relative: float | Floats) -> float:
    return -math.log1p(-float(relative)) if relative < 1.0 else _HOPELESS_LOG


class Transform(Protocol):
    """M on the line Re z = tilt."""

    @property
    def log_mgf(self) -> float:
        """Ln M(tilt)."""

    @property
    def log_mgf_error(self) -> NodeErrors:
        """Bounds on the error of ``log_mgf``."""

    @property
    def centre(self) -> float:
        """A reference for phases, close to the mean of the tilted loss."""

    @property
    def size(self) -> int:
        """How many numbers one frequency costs."""

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``."""

    def log_decay(self, frequency: float, thorough: bool) -> float:
        """A bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency; tighter if thorough."""


class RealLine(Protocol):
    """ln M at real tilts, good enough to choose a contour by."""

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M and its first two derivatives, without their error."""

    def log_mgf_bound(self, tilt: float) -> float:
        """A certain upper bound on ln M."""


class RealLoss(Protocol):
    """A privacy loss whose moment-generating function is known on the real line."""

    @property
    def rough_variance(self) -> float:
        """About the variance of the loss: a first guess at the scale of things."""

    def real_line(self, reach: float, digits: float) -> RealLine:
        """Ln M for real tilts up to ``reach``, to about exp(-digits)."""


class PrivacyLoss(RealLoss, Protocol):
    """A privacy loss whose moment-generating function is known off the real line too."""

    @property
    def largest(self) -> float:
        """The supremum of the loss."""

    def tilted(
        self, tilt: float, frequency: float, digits: float, resolution: Resolution
    ) -> Transform:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""


Composition = tuple[tuple[PrivacyLoss, int], ...]
"""Independent losses and how often each occurs; the composition's loss is their sum."""


Transforms = Sequence[tuple[Transform, int]]


# ---- the product of the transforms' powers, and of their errors


@dataclass(eq=False)
class Product:
    """Φ = Π (M_j(z)/M_j(z₀))^count_j at the frequencies, by logarithms, with its errors.

    Attributes:
        log_modulus: ln |Φ|.
        angle: Its angle.
        work: What went into both: Σ counts·(|ln modulus| + |angle|).
        causes: Bounds on the error of ln Φ: a row for truncation, for quadrature and for rounding.
    """

    log_modulus: Floats
    angle: Floats
    work: Floats
    causes: Floats

    @cached_property
    def modulus(self) -> Floats:
        """|Φ|."""
        return np.exp(self.log_modulus)

    def errors(self, weights: Floats) -> ErrorTerms:
        """Bounds on Σ weights·|error of Φ|, by cause.

        What the causes do together beyond the sum of what each does alone goes to the largest.
        """
        causes = self.causes
        total = causes[0] + causes[1] + causes[2]
        largest = float(total.max())
        if not float((self.log_modulus + total).max()) < _HOPELESS:
            return ErrorTerms(truncation=math.inf, quadrature=math.inf, rounding=math.inf)
        if largest < _SMALL:
            # exp(x) - 1 ≤ x·(1 + x) for 0 ≤ x ≤ 1, and so for the sum of the causes.
            sizes = (1.0 + largest) * weights * self.modulus
            return ErrorTerms(*causes.dot(sizes).tolist())
        alone = self._changes(causes)
        together = self._changes(total) - alone.sum(axis=0)
        alone[causes.argmax(axis=0), np.arange(len(total))] += np.maximum(together, 0.0)
        return ErrorTerms(*(alone * weights).sum(axis=1).tolist())

    def _changes(self, exponents: Floats) -> Floats:
        """|Φ|·(exp(exponents) - 1), however small |Φ| and however large the exponents."""
        small = self.modulus * np.expm1(np.minimum(exponents, 1.0))
        found: Floats = np.where(exponents < 1.0, small, np.exp(self.log_modulus + exponents))
        return found


def product_of(transforms: Transforms, frequencies: Floats) -> Product:
    """Multiplies the transforms' powers at the frequencies."""
    first, *others = [_power(transform, count, frequencies) for transform, count in transforms]
    for other in others:
        first.log_modulus += other.log_modulus
        first.angle += other.angle
        first.work += other.work
        first.causes += other.causes
    return first


def _power(transform: Transform, count: int, frequencies: Floats) -> Product:
    """One factor."""
    ratio = transform.ratio(frequencies)
    real, imaginary = np.asarray(ratio[0], np.float64), np.asarray(ratio[1], np.float64)
    log_modulus, floor = _log_modulus(real, imaginary)
    # M(z)/M(z₀) - 1 inherits the relative error of M(z₀).
    found, known = transform.ratio_error(frequencies), transform.log_mgf_error
    distance = 0.0 if found.complete else np.hypot(real, imaginary)
    causes = np.empty((3, len(frequencies)))
    causes[0] = found.truncation + distance * known.truncation
    causes[1] = found.quadrature + distance * known.quadrature
    causes[2] = found.rounding + (floor + distance * known.rounding)
    # What is beyond all numbers is no bound, and said so.
    relative = np.minimum(causes, _MOST) * np.exp(-log_modulus)
    log_modulus, angle = count * log_modulus, count * np.arctan2(imaginary, 1.0 + real)
    work = np.abs(log_modulus) + np.abs(angle)
    return Product(log_modulus, angle, work, count * np.log1p(relative))


def scale_errors_of(transforms: Transforms) -> ErrorTerms:
    """Bounds on the relative error of Π M_j(z₀)^count_j, by cause."""
    known = [(transform.log_mgf_error, count) for transform, count in transforms]
    return ErrorTerms(
        truncation=_expm1(math.fsum([count * error.truncation for error, count in known])),
        quadrature=_expm1(math.fsum([count * error.quadrature for error, count in known])),
        rounding=_expm1(math.fsum([count * error.rounding for error, count in known])),
    )


def _expm1(exponent: float) -> float:
    """Exp - 1, three-fold so that the parts of a product's error may be added up."""
    return math.expm1(min(3.0 * exponent, 700.0)) / 3.0


def _log_modulus(real: Floats, imaginary: Floats) -> tuple[Floats, float | Floats]:
    """Ln |1 + ratio|, and a bound on the error (of the modulus) that this step itself makes."""
    square = 2.0 * real + real * real + imaginary * imaginary
    small = square < -0.5
    if not small.any():
        return 0.5 * np.log1p(square), 0.0
    modulus = np.hypot(1.0 + real, imaginary)
    log_modulus = 0.5 * np.log1p(np.where(small, 0.0, square))
    log_modulus = np.where(small, np.log(np.maximum(modulus, _FLOOR)), log_modulus)
    return log_modulus, np.where(small, _FLOOR, 0.0)


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

    def errors_against(self, kernel: Floats, tail: float, terms: int) -> ErrorTerms:
        """Bounds on the error of Σ kernel·values·phases, in units of exp(log_scale - tilt·ε).

        No number is added to more than ``terms`` others. The phases exp(iu(centre - ε)) are exact
        here; ``enclose`` accounts for their rounding.
        """
        # The sum's errors are multiplied by the scale, and so by what the scale may be off.
        off = 1.0 + min(self.scale_errors.above, 1e100)
        errors = self.product.errors(kernel * off)
        sizes = kernel * self.product.modulus
        sum_and_powers = self.product.work + (terms + 8.0)
        rounding = 4.0 * self.unit_roundoff * float(sizes.dot(sum_and_powers))
        rounding += errors.rounding
        return ErrorTerms(
            truncation=errors.truncation,
            quadrature=errors.quadrature,
            rounding=rounding,
            tail=tail * off,
            phases=float(sizes.dot(self.frequencies)),
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
