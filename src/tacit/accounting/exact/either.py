"""One of several pairs, and it is shown which: the transform is the mean of theirs.

A truncated Poisson sample is such a loss, once it is known whether the others fill it
(``sampled_pairs``): M(z) = Σ w_i·M_i(z), each with its own errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.exact.transforms import NodeErrors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.accounting.exact.enclosure import Resolution
    from tacit.accounting.exact.mixture import MixturePair
    from tacit.accounting.exact.transforms import Floats, RealLine, Transform

_UNIT = 2.0**-53


@dataclass(frozen=True)
class EitherLoss:
    """With probability ``weights[i]`` the loss of ``pairs[i]``."""

    weights: tuple[float, ...]
    pairs: tuple[MixturePair, ...]

    @property
    def largest(self) -> float:
        """The supremum of the loss."""
        return max(pair.largest for pair in self.pairs)

    @property
    def rough_variance(self) -> float:
        """About the variance of the loss."""
        variances = (pair.rough_variance for pair in self.pairs)
        return math.fsum(w * one for w, one in zip(self.weights, variances, strict=True))

    def real_line(self, reach: float, digits: float) -> EitherLine:
        """Ln M for real tilts up to ``reach``, to about exp(-digits)."""
        return EitherLine(self.weights, [pair.real_line(reach, digits) for pair in self.pairs])

    def tilted(
        self, tilt: float, frequency: float, digits: float, resolution: Resolution
    ) -> TiltedEither:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""
        parts = [pair.tilted(tilt, frequency, digits, resolution) for pair in self.pairs]
        return TiltedEither(self.weights, parts)


@dataclass(frozen=True)
class EitherLine:
    """Ln M at real tilts."""

    weights: tuple[float, ...]
    lines: Sequence[RealLine]

    def moments(self, tilt: float) -> tuple[float, float, float]:
        """Ln M and its first two derivatives, without their error."""
        found = [line.moments(tilt) for line in self.lines]
        log_mgf, shares = _mean(self.weights, [one[0] for one in found])
        mean = math.fsum(v * one[1] for v, one in zip(shares, found, strict=True))
        second = (v * (one[2] + (one[1] - mean) ** 2) for v, one in zip(shares, found, strict=True))
        return log_mgf, mean, math.fsum(second)

    def log_mgf_bound(self, tilt: float) -> float:
        """A certain upper bound on ln M."""
        most = _mean(self.weights, [line.log_mgf_bound(tilt) for line in self.lines])[0]
        return most + 16.0 * _UNIT * (1.0 + abs(most))


@dataclass(frozen=True, eq=False)
class TiltedEither:
    """M(z)/M(tilt) for Re z = tilt."""

    weights: tuple[float, ...]
    parts: Sequence[Transform]

    @cached_property
    def _both(self) -> tuple[float, list[float]]:
        return _mean(self.weights, [part.log_mgf for part in self.parts])

    @property
    def log_mgf(self) -> float:
        """Ln M(tilt)."""
        return self._both[0]

    @property
    def size(self) -> int:
        """How many numbers one frequency costs."""
        return sum(part.size for part in self.parts)

    @property
    def log_mgf_error(self) -> NodeErrors:
        """Bounds on the error of ``log_mgf``: a mean's logarithm errs by no more than any does."""
        known = [part.log_mgf_error for part in self.parts]
        rounding = max(float(one.rounding) for one in known)
        return NodeErrors(
            max(float(one.truncation) for one in known),
            max(float(one.quadrature) for one in known),
            rounding + 16.0 * _UNIT * (1.0 + max(abs(part.log_mgf) for part in self.parts)),
        )

    @property
    def centre(self) -> float:
        """The mean of the tilted loss."""
        shares = self._both[1]
        return math.fsum(v * part.centre for v, part in zip(shares, self.parts, strict=True))

    def _deviations(self, frequencies: Floats) -> list[tuple[Floats, Floats]]:
        """Each part's M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1, from the common centre."""
        found = []
        for part in self.parts:
            real, imaginary = part.ratio(frequencies)
            half = (0.5 * (part.centre - self.centre)) * frequencies
            sine = np.sin(half)
            # exp(2i·half) - 1, with the digits of a small angle.
            turn, turned = -2.0 * sine * sine, 2.0 * sine * np.cos(half)
            found.append(
                (
                    real + turn + real * turn - imaginary * turned,
                    imaginary + turned + real * turned + imaginary * turn,
                )
            )
        return found

    def ratio(self, frequencies: Floats) -> tuple[Floats, Floats]:
        """Real and imaginary part of M(tilt + iu)·exp(-iu·centre)/M(tilt) - 1."""
        real, imaginary = np.zeros(len(frequencies)), np.zeros(len(frequencies))
        for v, one in zip(self._both[1], self._deviations(frequencies), strict=True):
            real += v * one[0]
            imaginary += v * one[1]
        return real, imaginary

    def ratio_error(self, frequencies: Floats) -> NodeErrors:
        """Bounds on the error of ``ratio``: the parts', and that of their shares."""
        own, deviations = self.log_mgf_error, self._deviations(frequencies)
        truncation, quadrature, rounding = (np.zeros(len(frequencies)) for _ in range(3))
        for v, part, (real, imaginary) in zip(self._both[1], self.parts, deviations, strict=True):
            found, known = part.ratio_error(frequencies), part.log_mgf_error
            away = np.hypot(real, imaginary)
            shares = 2.0 * v * away
            truncation += v * found.truncation + shares * (known.truncation + own.truncation)
            quadrature += v * found.quadrature + shares * (known.quadrature + own.quadrature)
            rounding += v * found.rounding + shares * (known.rounding + own.rounding)
            apart = abs(part.centre) + abs(self.centre)
            rounding += v * 16.0 * _UNIT * (away + apart * frequencies)
        return NodeErrors(truncation, quadrature, rounding)

    def log_decay(self, frequency: float, thorough: bool) -> float:
        """Bound on ln |M(tilt + iu)/M(tilt)| for every u ≥ frequency."""
        decays = [math.exp(part.log_decay(frequency, thorough)) for part in self.parts]
        total = math.fsum(v * one for v, one in zip(self._both[1], decays, strict=True))
        return min(0.0, math.log(total) + 1e-12)


def _mean(weights: Sequence[float], logs: Sequence[float]) -> tuple[float, list[float]]:
    """Ln Σ w_i·exp(l_i), and each one's share in it."""
    top = max(logs)
    sizes = [w * math.exp(one - top) for w, one in zip(weights, logs, strict=True)]
    total = math.fsum(sizes)
    return top + math.log(total), [one / total for one in sizes]
