"""How a student's weights are improved, and their average over the last steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import torch
from torch.optim.swa_utils import AveragedModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

WARM_UP = 0.1  # of the training, in which the rate rises
WEIGHT_DECAY = 1e-3


@final
class Descent:
    """AdamW whose rate rises and then falls to zero, and an average of the weights.

    Args:
        model: What is trained, in place.
        lr: The largest rate.
        momentum: Adam's β₁.
        memory: Of the average, per step.
    """

    def __init__(
        self, model: nn.Module, *, lr: float = 4e-3, momentum: float = 0.9, memory: float = 0.98
    ) -> None:
        self._model, self._lr = model, lr
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=lr, betas=(momentum, 0.999), weight_decay=WEIGHT_DECAY
        )
        self._average = AveragedModel(model, avg_fn=_fading(memory), use_buffers=True)
        self._average.eval()

    @property
    def average(self) -> nn.Module:
        """The model with the averaged weights, in evaluation mode."""
        return self._average.module

    def step(self, loss: Tensor, done: float) -> None:
        """Takes a step against the gradient of ``loss``; ``done`` is how much is done, of 1."""
        rising, falling = done / WARM_UP, (1 + math.cos(math.pi * done)) / 2
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr * max(min(rising, falling), 1e-3)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self._average.update_parameters(self._model)


def _fading(memory: float) -> Callable[[Tensor, Tensor, Tensor | int], Tensor]:
    """An average that forgets, and forgets its first steps the faster."""

    def averaged(average: Tensor, current: Tensor, count: Tensor | int) -> Tensor:
        kept = min(memory, (1 + int(count)) / (10 + int(count)))
        return average.lerp(current, 1 - kept) if average.is_floating_point() else current

    return averaged
