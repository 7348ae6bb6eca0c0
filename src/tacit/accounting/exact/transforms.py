"""What the contour integral asks of a privacy loss: its transform on one vertical line.

M(z) = E_P[exp(z·L)]. A transform is prepared for one real part, the tilt, and knows M(tilt),
M(tilt + iu)/M(tilt) for the frequencies u of the contour, how fast that falls beyond them, and a
bound on each of its own errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.accounting.exact.resolution import Resolution

    Floats = NDArray[np.floating]
    Complexes = NDArray[np.complexfloating]


@dataclass(frozen=True)
class NodeErrors:
    """Bounds on relative errors of M by their cause; numbers, or arrays over the frequencies."""

    truncation: float | Floats = 0.0
    quadrature: float | Floats = 0.0
    rounding: float | Floats = 0.0

    def as_log(self) -> NodeErrors:
        """The same as errors of ln M."""
        return NodeErrors(
            *(_log_error(e) for e in (self.truncation, self.quadrature, self.rounding))
        )


_HOPELESS = 1e9  # an error of ln M past which nothing is said, yet no arithmetic overflows


def _log_error(relative: float | Floats) -> float:
    return -math.log1p(-float(relative)) if relative < 1.0 else _HOPELESS


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


class Loss(RealLoss, Protocol):
    """A privacy loss whose moment-generating function is known off the real line too."""

    @property
    def largest(self) -> float:
        """The supremum of the loss."""

    def tilted(
        self, tilt: float, frequency: float, digits: float, resolution: Resolution
    ) -> Transform:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""


Composition = tuple[tuple[Loss, int], ...]
"""Independent losses and how often each occurs; the composition's loss is their sum."""
