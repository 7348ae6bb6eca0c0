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
from typing import TYPE_CHECKING, final

import torch

from tacit import models
from tacit.recipes import parts
from tacit.recipes.recipe import Anchor, Recipe
from tacit.training import Performance

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.recipes import Job, Trained

_STEPS = {1.0: 1055, 2.0: 1312, 3.0: 1863, 4.0: 1946, 8.0: 3477}  # σ = 10, 6, 5, 4 and 3


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set; ``batch`` is how many views a GPU computes at once, at most."""

    epochs: float
    lot: int = 4096
    clip: float = 1.0
    lr: float = 2.0
    views: int = 16
    shift: int = 4
    depth: int = 16
    width: int = 4
    decay: float = 0.9999
    batch: int = 4096


def settings(epsilon: float) -> Settings:
    """The published settings of the nearest ε."""
    nearest = min(_STEPS, key=lambda known: abs(known - epsilon))
    return Settings(epochs=_STEPS[nearest] * 4096 / 50_000)


def train(job: Job) -> Trained:
    """The whole run, or what is left of it."""
    chosen: Settings = job.settings
    train, test = (parts.images(part, job.device) for part in (job.data.train, job.data.test))
    plan = job.plan(
        examples=len(train), lot_size=chosen.lot, epochs=chosen.epochs, clip=chosen.clip,
        views=chosen.views,
    )  # fmt: skip
    on_gpu = job.device.type == "cuda"
    model = models.wide_resnet(depth=chosen.depth, width=chosen.width).to(job.device)
    if on_gpu:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def view(rows: Tensor) -> Tensor:
        moved = parts.crops(rows, rows.shape[-1], pad=chosen.shift, flip=True)
        return moved.contiguous(memory_format=torch.channels_last) if on_gpu else moved

    with parts.arithmetic(tf32=True):
        return job.fit(
            model, train, plan,
            optimizer=torch.optim.SGD(model.parameters(), lr=chosen.lr),
            loss=parts.loss_of(view),
            held_out=test,
            average=parts.moving_average(model, chosen.decay),
            performance=Performance(batch=chosen.batch) if on_gpu else None,
        )  # fmt: skip


RECIPE = Recipe(
    name="cifar10-wrn",
    summary="WRN-16-4 with 16 views and averaged weights (De et al. 2022); hours on a GPU",
    data="cifar10",
    settings=settings,
    train=train,
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
