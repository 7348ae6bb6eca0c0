"""The sums of a lot: what a replayed program lends is copied before it writes there again."""

from __future__ import annotations

import torch

from tacit.training.clipping.sums import BatchSums
from tacit.training.lot import Accumulator


def lent(memory: dict[str, torch.Tensor], value: float) -> BatchSums:
    """A batch whose sums lie in ``memory``, as those of a CUDA graph do."""
    for tensor in memory.values():
        tensor.fill_(value)
    none = torch.zeros(1, 1)
    return BatchSums(none, none, memory, borrowed=True)


def test_every_batch_counts_once_though_all_lie_in_the_same_memory() -> None:
    memory = {"weight": torch.zeros(3), "bias": torch.zeros(2)}
    total = Accumulator(same_weights=True)
    for value, last in ((1.0, False), (10.0, False), (100.0, True)):
        total.add(lent(memory, value), last=last)
    assert {name: value.tolist() for name, value in total.sums.items()} == {
        "weight": [111.0] * 3,
        "bias": [111.0] * 2,
    }
