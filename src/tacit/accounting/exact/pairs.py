"""Dominating pairs: the losses whose sum bounds what an event gives away.

A pair (P, Q) dominates a mechanism if its δ(ε) is nowhere below that of any two neighbouring data
sets; pairs compose (Zhu, Dong & Wang 2022, Theorem 10). Where P and Q are the outputs on two actual
neighbours, the pair is tight and the answer two-sided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.exact.cells import Cells
    from tacit.accounting.exact.closed_form import GaussianLoss, LaplaceLoss
    from tacit.accounting.exact.lattice_loss import LatticeLoss
    from tacit.accounting.exact.mixture import MixtureLoss


@dataclass(frozen=True, eq=False)
class PairLoss:
    """One direction of a dominating pair.

    Attributes:
        cells: Cuts the pair into cells over which the loss changes by at most the given step.
        loss: The loss with its transform, if it has one.
        infinite: The probability of an infinite loss, which ``loss`` leaves out.
    """

    cells: Callable[[float], Cells]
    loss: GaussianLoss | LaplaceLoss | MixtureLoss | LatticeLoss | None = None
    infinite: float = 0.0


Direction = tuple[tuple[PairLoss, int], ...]
"""One direction of a composition: its pairs and how often each occurs."""


@dataclass(frozen=True, eq=False)
class Part:
    """Both directions of a dominating pair (``backward`` is None where they are alike).

    Attributes:
        forward: The loss of P against Q under P.
        backward: The loss of Q against P under Q, or None.
        tight: Whether actual neighbours attain the pair.
        coupling: Total variation distance to the real mechanism, which the pair leaves out.
    """

    forward: PairLoss
    backward: PairLoss | None = None
    tight: bool = True
    coupling: float = 0.0


@dataclass(frozen=True, eq=False)
class Decomposition:
    """An event as independent dominating pairs."""

    parts: tuple[tuple[Part, int], ...]

    @property
    def tight(self) -> bool:
        """Whether the composition of the pairs is attained."""
        return all(part.tight for part, _ in self.parts)

    @property
    def coupling(self) -> float:
        """Total variation distance to the real composition."""
        return math.fsum(count * part.coupling for part, count in self.parts)

    def directions(self) -> list[Direction]:
        """The compositions whose larger δ(ε) counts."""
        forward = tuple((part.forward, count) for part, count in self.parts)
        if all(part.backward is None for part, _ in self.parts):
            return [forward]
        backward = tuple((part.backward or part.forward, count) for part, count in self.parts)
        return [forward, backward]
