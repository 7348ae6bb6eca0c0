"""A setting: the model, loss, data and plan that an engine is tested with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, final

import torch

from tacit.training.performance import Performance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.training.plan import Plan

Loss: TypeAlias = "Callable[[nn.Module, Any], Tensor]"
MakeOptimizer: TypeAlias = "Callable[[Iterable[nn.Parameter]], Optimizer]"


def gentle_sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    """SGD with momentum and a small rate."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """What a user would hand to ``tacit.private``; the self-test needs nothing else.

    Attributes:
        model: Makes the model anew, on the CPU. Its weights may be random.
        loss: ``loss(model, batch)``, one number for each row, as for ``tacit.fit``.
        dataset: Map-style. A few dozen of its records are used.
        plan: The claim. Its clip, style, noise, unit, views, adjacency and σ are tested as they
            are; the numbers of examples and steps are replaced by small ones.
        optimizer: Makes the optimizer of the trainable parameters.
        groups: The user of every example, where the plan's unit is the user.
        collate: Makes a batch of a list of examples; PyTorch's default if left out.
        performance: How lots are computed; the batch size is varied by the test.
    """

    model: Callable[[], nn.Module]
    loss: Loss
    dataset: Dataset[Any]
    plan: Plan
    optimizer: MakeOptimizer = gentle_sgd
    groups: Sequence[int] | NDArray[np.int64] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    performance: Performance = field(default_factory=Performance)
