"""Gradients that are written out: biases, norm layers' weights, whatever has no compact form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit.training.clipping.forms.form import accumulator, kept, squared_sum

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class Dense:
    """``values[i]`` is unit i's gradient."""

    values: Tensor

    @property
    def units(self) -> int:
        """How many units there are."""
        return len(self.values)

    @property
    def way(self) -> str:
        """How the norms are found."""
        return "written out"

    @property
    def temporary(self) -> int:
        """The gradients themselves."""
        return self.values.numel()

    def squared_norms(self) -> Tensor:
        """See ``Form``."""
        return squared_sum(self.values)

    def weighted_sum(self, scales: Tensor) -> Tensor:
        """See ``Form``."""
        rows = kept(self.values, scales).unsqueeze(-1).flatten(1)
        total = scales.to(accumulator(rows.dtype)) @ rows.to(accumulator(rows.dtype))
        return total.view(self.values.shape[1:])

    def dense(self) -> Tensor:
        """See ``Form``."""
        return self.values

    def part(self, start: int, stop: int) -> Dense:
        """See ``Form``."""
        return Dense(self.values[start:stop])
