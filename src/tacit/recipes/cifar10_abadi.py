"""``tacit train cifar10-abadi --epsilon 8 --device cuda``: the first private CIFAR-10 network.

The network of Abadi et al. 2016 (https://arxiv.org/abs/1607.00133, Section 5.3): patches of 24×24,
two convolutions, two dense layers, clip 3, lots of 2,000 or 4,000.

The paper trained only the dense layers with privacy: its convolutions came from public images. Here
everything is trained on the private images alone, which is harder; its figures are not expected.
Its noise of 6 clips would allow 220, 370 and 1,200 epochs at ε = 2, 4 and 8 by the exact
accountant; fewer epochs with less noise come to much the same sooner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch.utils.data import TensorDataset

from tacit import models
from tacit.recipes import parts
from tacit.runs import Anchor, Recipe
from tacit.training import Performance, Prepared, Schedule

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan

_SIZE = 24


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    With ``random``, patches are taken at random places and mirrored, and ``views`` of them averaged
    before clipping; else the patch in the middle is taken, as in the paper.
    """

    epochs: float
    lot: int
    clip: float = 3.0
    lr: float = 0.1
    views: int = 1
    random: bool = False
    falling: float = 0.5
    decay: float = 0.999
    compiled: bool = False


def settings(epsilon: float) -> Settings:
    """The paper's lots and clip."""
    if epsilon <= 3.0:
        return Settings(epochs=60.0, lot=2000)
    return Settings(epochs=80.0 if epsilon <= 6.0 else 120.0, lot=4000)


def outline(task: Task) -> Outline:
    """Poisson lots."""
    chosen = task.settings
    return task.plan(lot=chosen.lot, epochs=chosen.epochs, clip=chosen.clip, views=chosen.views)


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """The whole network, from scratch."""
    del release  # nothing is released before training
    chosen: Settings = task.settings
    train, test = (parts.images(part, task.device) for part in (task.data.train, task.data.test))

    def view(rows: Tensor) -> Tensor:
        return parts.crops(rows, _SIZE, flip=True) if chosen.random else middle(rows)

    model = models.abadi_cnn().to(task.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen.lr)
    return Prepared(
        model=model,
        optimizer=optimizer,
        plan=plan,
        dataset=train,
        loss=parts.loss_of(view),
        held_out=TensorDataset(middle(test.tensors[0]), test.tensors[1]),
        schedule=Schedule(
            scheduler=parts.falling(optimizer, plan.steps, chosen.falling),
            average=parts.moving_average(model, chosen.decay),
        ),
        performance=Performance(compile=chosen.compiled),
        tf32=False,
    )


def middle(images: Tensor) -> Tensor:
    """The patch in the middle of each image."""
    top, left = ((side - _SIZE) // 2 for side in images.shape[2:])
    return images[:, :, top : top + _SIZE, left : left + _SIZE]


RECIPE = Recipe(
    name="cifar10-abadi",
    summary="two convolutions and two dense layers on 24×24 patches (Abadi et al. 2016)",
    data="cifar10",
    settings=settings,
    outline=outline,
    prepare=prepare,
    anchors=tuple(
        Anchor(
            epsilon=epsilon,
            accuracy=accuracy,
            source="Abadi et al. 2016, Figure 6",
            shortcuts="convolutions pre-trained on public images (CIFAR-100), which we do not use; "
            "lots of permuted examples, accounted as Poisson samples",
        )
        for epsilon, accuracy in ((2.0, 67.0), (4.0, 70.0), (8.0, 73.0))
    ),
    tuning="lots and clip as published; the rest was set without a search",
)
