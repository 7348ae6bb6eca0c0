"""How many units go into a physical batch: what fits, in few different shapes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import torch

from tacit.training.sampling import FullBatch

if TYPE_CHECKING:
    from typing import Literal

    from tacit.training.plan import Plan

_FIRST_ROWS = 32  # what an unknown model is first tried with on a GPU
_CPU_ROWS = 1024
_SHARE = 0.8  # of the free memory that a batch may be expected to take
_GROWTH = 32  # at most, from one batch to the next


@final
class BatchSizer:
    """The sizes of physical batches.

    With ``"auto"`` on a GPU the first batches are small; the memory they took says how large the
    next may be. After running out of memory the limit is halved for good.
    """

    def __init__(
        self, plan: Plan, batch: int | Literal["auto"], device: torch.device, *, padded: bool
    ) -> None:
        self._plan = plan
        self._padded = padded
        self._device = device
        self._measuring = batch == "auto" and device.type == "cuda"
        default = _FIRST_ROWS if self._measuring else _CPU_ROWS
        self._rows = default if batch == "auto" else batch
        self._settled = not self._measuring

    def units(self, per_unit: int) -> int:
        """The most units of the next batch."""
        most = max(1, self._rows // per_unit)
        if not self._settled:
            return most
        return min(most, self._even_share(most))

    def padded_to(self, units: int, per_unit: int) -> int:
        """How many units a batch of ``units`` real ones is filled up to."""
        return max(units, self.units(per_unit)) if self._padded and self._settled else units

    def before(self) -> None:
        """Starts to measure a batch."""
        if self._measuring and not self._settled:
            torch.cuda.reset_peak_memory_stats(self._device)
            self._base = torch.cuda.memory_allocated(self._device)

    def after(self, rows: int) -> None:
        """A batch of so many rows went well: the next may be larger, by what it took."""
        if not self._measuring or self._settled:
            return
        taken = torch.cuda.max_memory_allocated(self._device) - self._base
        free, _ = torch.cuda.mem_get_info(self._device)
        reserved = torch.cuda.memory_reserved(self._device)
        free += reserved - torch.cuda.memory_allocated(self._device)
        fitting = int(_SHARE * free * rows / max(1, taken))
        self._settled = rows >= self._rows and fitting <= self._rows * _GROWTH
        self._rows = max(1, min(fitting, self._rows * _GROWTH))
        self._settled = self._settled or self._rows >= self._largest_lot() * 4

    def shrink(self, units: int, per_unit: int) -> bool:
        """Memory ran out at so many units: halves the limit; False if there is one unit alone."""
        self._settled = True
        self._rows = max(1, units // 2) * per_unit
        return units > 1

    def _largest_lot(self) -> int:
        """A size that few lots exceed: four standard deviations above the mean."""
        plan = self._plan
        if isinstance(plan.sampling, FullBatch):
            return plan.examples
        return min(plan.examples, math.ceil(plan.lot_size + 4 * math.sqrt(plan.lot_size)))

    def _even_share(self, most: int) -> int:
        """Lots of nearly equal size are cut into equal batches, so that one shape serves all."""
        lot = self._largest_lot()
        share = math.ceil(lot / math.ceil(lot / most))
        rounded = -(-share // 8) * 8
        full = isinstance(self._plan.sampling, FullBatch)
        return share if full or rounded > most else rounded
