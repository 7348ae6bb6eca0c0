"""``tacit train cifar10-wrn --epsilon 8 --device cuda``: a wide residual network, from scratch.

By De et al. 2022, "Unlocking High-Accuracy Differentially Private Image Classification through
Scale" (https://arxiv.org/abs/2204.13650): WRN-16-4 with group norm and weight standardisation, lots
of 4,096, 16 views of every image averaged before clipping, clip 1, a constant rate of 2, and an
exponential moving average of the weights.

It takes hours: stop it at any time (Ctrl-C) and go on with ``--resume`` at the step where it was.
Images and views stay on the device. The steps are as many as noise of 10, 6, 5, 4 and 3 clips
allows at ε = 1, 2, 3, 4 and 8 by the exact accountant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

import torch

from tacit import models
from tacit.recipes import parts
from tacit.runs import Anchor, Recipe
from tacit.training import Performance, Prepared, Schedule

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan

_STEPS = {1.0: 1055, 2.0: 1312, 3.0: 1863, 4.0: 1946, 8.0: 3477}  # σ = 10, 6, 5, 4 and 3


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set; ``batch`` is how many views a GPU computes at once, at most.

    ``precision`` is that of a GPU's forward and backward pass; ``single`` is TF32 there.
    """

    epochs: float
    lot: int = 4096
    clip: float = 1.0
    lr: float = 2.0
    views: int = 16
    shift: int = 4
    depth: int = 16
    width: int = 4
    decay: float = 0.9999
    precision: Literal["bfloat16", "single"] = "bfloat16"
    batch: int = 4096


def settings(epsilon: float) -> Settings:
    """The published settings of the nearest ε."""
    nearest = min(_STEPS, key=lambda known: abs(known - epsilon))
    return Settings(epochs=_STEPS[nearest] * 4096 / 50_000)


def outline(task: Task) -> Outline:
    """Poisson lots, each image in many views."""
    chosen = task.settings
    return task.plan(lot=chosen.lot, epochs=chosen.epochs, clip=chosen.clip, views=chosen.views)


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """The network and its averaged twin."""
    del release  # nothing is released before training
    chosen: Settings = task.settings
    on_gpu = task.device.type == "cuda"
    model = models.wide_resnet(depth=chosen.depth, width=chosen.width).to(task.device)
    if on_gpu:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def view(rows: Tensor) -> Tensor:
        moved = parts.crops(rows, rows.shape[-1], pad=chosen.shift, flip=True)
        return moved.contiguous(memory_format=torch.channels_last) if on_gpu else moved

    performance = Performance(batch=chosen.batch, precision=chosen.precision, capture=True)
    return Prepared(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=chosen.lr),
        plan=plan,
        dataset=parts.images(task.data.train, task.device),
        loss=parts.loss_of(view, torch.compile(model) if on_gpu else None),
        held_out=parts.images(task.data.test, task.device),
        schedule=Schedule(average=parts.moving_average(model, chosen.decay)),
        performance=performance if on_gpu else None,
        tf32=True,
    )


RECIPE = Recipe(
    name="cifar10-wrn",
    summary="WRN-16-4 with 16 views and averaged weights (De et al. 2022); hours on a GPU",
    data="cifar10",
    settings=settings,
    outline=outline,
    prepare=prepare,
    anchors=tuple(
        Anchor(
            epsilon=epsilon,
            accuracy=accuracy,
            source="De et al. 2022",
            shortcuts="shuffled batches of fixed size, accounted as Poisson samples",
        )
        for epsilon, accuracy in ((1.0, 56.8), (2.0, 64.9), (3.0, 69.2), (4.0, 71.9), (8.0, 79.5))
    ),
    tuning="as published, where nothing was charged for it",
)
