"""The clipped sum of a lot, added up batch by batch in buffers of its own."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torch import Tensor

    from tacit.training.clipping.clipped import ClippedBatch
    from tacit.training.clipping.engine import Engine
    from tacit.training.lot import Batch


@final
class Accumulator:
    """Clips batches and adds them up. The sums are private: nothing has been added to them yet."""

    def __init__(self, engine: Engine, *, same_weights: bool) -> None:
        self._engine = engine
        self._same_weights = same_weights  # batches of one size have one set of row weights
        self._masks: dict[Hashable, tuple[Tensor, Tensor]] = {}
        self.sums: dict[str, Tensor] = {}

    def clear(self) -> None:
        """Starts a new lot."""
        self.sums = {}

    def clipped(self, losses: Tensor, batch: Batch, bounds: Tensor) -> ClippedBatch:
        """The batch's clipped sum. Autocast is for the forward pass: it would round the sums."""
        weights, real = self._on_device(batch, losses)
        kind = losses.device.type
        casting = torch.is_autocast_enabled(kind)
        with torch.autocast(kind, enabled=False) if casting else nullcontext():
            return self._engine.finish(losses, weights, bounds, real)

    def add(self, result: ClippedBatch, *, last: bool) -> None:
        """Adds a batch to the sums of its lot, all of it or nothing; ``last``: no other follows."""
        copied = result.borrowed and not last
        new = {name: value for name, value in result.sums.items() if name not in self.sums}
        if copied:  # here memory may run out, so nothing is added before
            new = {name: value.clone() for name, value in new.items()}
        for name, total in self.sums.items():
            if name in result.sums:
                total.add_(result.sums[name])
        self.sums.update(new)

    def _on_device(self, batch: Batch, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Row weights and the mask of real units, made without waiting for the device."""
        key = (len(batch.units), batch.padded_units, batch.per_unit, losses.dtype)
        same_weights = self._same_weights and batch.only is None
        if same_weights and key in self._masks:
            return self._masks[key]
        weights = torch.from_numpy(batch.weights)
        if losses.is_cuda:
            weights = weights.pin_memory()
        weights = weights.to(losses.device, losses.dtype, non_blocking=True)
        real = torch.arange(batch.padded_units, device=losses.device) < len(batch.units)
        if same_weights:
            self._masks[key] = (weights, real)
        return weights, real
