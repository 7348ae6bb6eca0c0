"""Trade-off curves as attacks meet them: the most true positives at a false-positive rate.

A curve is given here by TPR = 1 - f(FPR), with f the trade-off function of Dong, Roth & Su (2022).
All are symmetric (f is its own inverse), as the guarantee for both directions of a pair is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting import PrivacyCurve

_LAST = 700.0  # e^ε overflows beyond; such an ε forbids nothing that can be seen
_LINES = 65


class TradeOff(Protocol):
    """What an attack may achieve under some guarantee."""

    @property
    def kink(self) -> float:
        """The false-positive rate at which the curve meets its mirror image: TPR = 1 - FPR."""

    def tpr(self, fpr: NDArray[np.float64]) -> NDArray[np.float64]:
        """The most true positives at these false-positive rates, or an upper bound on it."""

    def fpr(self, tpr: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fewest false positives at these true-positive rates, or a lower bound on it."""


@dataclass(frozen=True)
class GaussianTradeOff:
    """The curve of μ-GDP: TPR = Φ(Φ⁻¹(FPR) + μ).

    >>> float(GaussianTradeOff(1.0).tpr(np.array(0.1)).round(4))
    0.3891
    """

    mu: float

    @property
    def kink(self) -> float:
        """Where the curve meets its mirror image."""
        return float(ndtr(-0.5 * self.mu))

    def tpr(self, fpr: NDArray[np.float64]) -> NDArray[np.float64]:
        """The most true positives at these false-positive rates."""
        return np.asarray(ndtr(ndtri(fpr) + self.mu))

    def fpr(self, tpr: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fewest false positives at these true-positive rates."""
        return np.asarray(ndtr(ndtri(tpr) - self.mu))


@dataclass(frozen=True, eq=False)
class PairsTradeOff:
    """The curve of pairs (ε_i, δ_i) that all hold: TPR ≤ δ + e^ε·FPR and its mirror image.

    >>> pair = PairsTradeOff.of_pair(1.0, 0.0)
    >>> float(pair.tpr(np.array(0.1)).round(4)), float(pair.fpr(np.array(0.9)).round(4))
    (0.2718, 0.7282)
    """

    epsilons: NDArray[np.float64]
    deltas: NDArray[np.float64]

    @classmethod
    def of_pair(cls, epsilon: float, delta: float) -> PairsTradeOff:
        """The curve of one pair: what (ε, δ)-differential privacy says, and no more."""
        return cls(np.array([min(epsilon, _LAST)]), np.array([delta]))

    @classmethod
    def of_curve(cls, curve: PrivacyCurve) -> PairsTradeOff:
        """The curve of an event, from pairs that lie close together.

        Every pair holds, so that the curve is never more private than what was proved.
        """
        ends = (curve.epsilon(delta) for delta in (1e-12, 1e-9, 1e-6, 1e-3))
        last = next((end for end in ends if end < _LAST), _LAST)
        epsilons = last * np.linspace(0.0, 1.0, _LINES) ** 2
        return cls(epsilons, np.array([curve.delta(float(epsilon)) for epsilon in epsilons]))

    @property
    def kink(self) -> float:
        """Where the curve meets its mirror image: TPR = 1 - FPR."""
        return float(np.max((1.0 - self.deltas) / (1.0 + np.exp(self.epsilons))))

    def tpr(self, fpr: NDArray[np.float64]) -> NDArray[np.float64]:
        """The most true positives at these false-positive rates."""
        rate, growth = np.asarray(fpr)[..., None], np.exp(self.epsilons)
        steep = np.min(self.deltas + growth * rate, axis=-1)
        flat = np.max((1.0 - self.deltas - rate) / growth, axis=-1)
        return np.asarray(np.clip(np.minimum(steep, 1.0 - flat), 0.0, 1.0))

    def fpr(self, tpr: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fewest false positives at these true-positive rates."""
        rate, growth = np.asarray(tpr)[..., None], np.exp(self.epsilons)
        steep = np.max((rate - self.deltas) / growth, axis=-1)
        flat = np.max(1.0 - self.deltas - growth * (1.0 - rate), axis=-1)
        return np.asarray(np.clip(np.maximum(steep, flat), 0.0, 1.0))
