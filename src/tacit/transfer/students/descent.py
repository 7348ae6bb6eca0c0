"""How a student's weights are improved, and their average over the last steps."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
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
        self._lr, self._memory, self._steps = lr, memory, 0
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=lr, betas=(momentum, 0.999), weight_decay=WEIGHT_DECAY
        )
        self._average = copy.deepcopy(model).eval()
        both = zip(self._average.state_dict().values(), model.state_dict().values(), strict=True)
        pairs = list(both)
        self._weights = [pair for pair in pairs if pair[0].is_floating_point()]
        self._counts = [pair for pair in pairs if not pair[0].is_floating_point()]

    @property
    def average(self) -> nn.Module:
        """The model with the averaged weights, in evaluation mode."""
        return self._average

    def step(self, loss: Tensor, done: float) -> None:
        """Takes a step against the gradient of ``loss``; ``done`` is how much is done, of 1."""
        rising, falling = done / WARM_UP, (1 + math.cos(math.pi * done)) / 2
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr * max(min(rising, falling), 1e-3)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self._remember()

    @torch.no_grad()
    def _remember(self) -> None:
        """An average that forgets, and forgets its first steps the faster.

        Of all weights at once, and without asking the device for anything: who asks waits for it.
        """
        kept = min(self._memory, (1 + self._steps) / (10 + self._steps)) if self._steps else 0.0
        averages, current = ([pair[which] for pair in self._weights] for which in (0, 1))
        torch._foreach_lerp_(averages, current, 1 - kept)
        for average, count in self._counts:
            average.copy_(count)
        self._steps += 1
