"""The privacy loss of Poisson-sampled Gaussians and their kin, for the contour integral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.accounting.exact.resolution import Resolution
from tacit.accounting.exact.tilted_mixture import TiltedMixture, tilt_mixture

if TYPE_CHECKING:
    from tacit.accounting.exact.mixture_nodes import MixturePair, Nodes


@dataclass(frozen=True)
class MixtureLoss:
    """ln P/Q under P, for P and Q mixtures of shifts of one Gaussian noise."""

    pair: MixturePair

    @property
    def largest(self) -> float:
        """The supremum of the loss."""
        return self.pair.largest

    @property
    def rough_variance(self) -> float:
        """About the variance of the loss."""
        return self.pair.rough_variance

    def real_line(self, reach: float, digits: float) -> Nodes:
        """Ln M for real tilts up to ``reach``, to about exp(-digits)."""
        return self.pair.nodes(reach, 0.0, digits, Resolution())

    def tilted(
        self, tilt: float, frequency: float, digits: float, resolution: Resolution
    ) -> TiltedMixture:
        """The transform on Re z = tilt, good for frequencies up to ``frequency``."""
        return tilt_mixture(self.pair, tilt, frequency, digits, resolution)
