"""``tacit train mnist-tempered --epsilon 2.93``: a small CNN with bounded activations.

Tanh instead of ReLU (Papernot et al. 2020, "Tempered Sigmoid Activations for Deep Learning with
Differential Privacy", https://arxiv.org/abs/2007.14191).

Beside the published recipe, several shifted views of an image are averaged before clipping, lots
are large, the learning rate falls at the end, and the last weights are averaged: none of this costs
any ε.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch.optim.swa_utils import AveragedModel

from tacit import models
from tacit._validation import probability
from tacit.recipes import parts
from tacit.runs import Anchor, Recipe
from tacit.training import Performance, Prepared, Schedule

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set.

    ``views`` of an image, moved by up to ``shift`` pixels (and mirrored, if ``flip``), are averaged
    before clipping. The rate falls over the last ``falling`` share of the steps, and the weights of
    the last ``averaged`` share are averaged.
    """

    epochs: float
    lot: int
    clip: float
    lr: float
    momentum: float = 0.0
    views: int = 1
    shift: int = 0
    flip: bool = False
    falling: float = 0.5
    averaged: float = 0.2
    compiled: bool = False


def settings(epsilon: float) -> Settings:
    """Found at ε = 2.93; where there is more noise, steps are shorter."""
    return Settings(epochs=40.0, lot=4096, clip=0.1, lr=min(64.0, 24.0 * epsilon), views=4, shift=1)


def outline(task: Task) -> Outline:
    """Poisson lots, each image in several views."""
    chosen = task.settings
    return task.plan(lot=chosen.lot, epochs=chosen.epochs, clip=chosen.clip, views=chosen.views)


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """The CNN, with moved images."""
    del release  # nothing is released before training
    chosen: Settings = task.settings

    def view(rows: Tensor) -> Tensor:
        moved = chosen.shift or chosen.flip
        return parts.crops(rows, 28, pad=chosen.shift, flip=chosen.flip) if moved else rows

    model = models.tempered_cnn(channels=1).to(task.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen.lr, momentum=chosen.momentum)
    return Prepared(
        model=model,
        optimizer=optimizer,
        plan=plan,
        dataset=parts.images(task.data.train, task.device),
        loss=parts.loss_of(view),
        held_out=parts.images(task.data.test, task.device),
        schedule=Schedule(
            scheduler=parts.falling(optimizer, plan.steps, chosen.falling),
            average=AveragedModel(model),
            average_from=int(plan.steps * (1.0 - probability("averaged", chosen.averaged))),
        ),
        performance=Performance(compile=chosen.compiled),
        tf32=False,
    )


RECIPE = Recipe(
    name="mnist-tempered",
    summary="a small tanh CNN (Papernot et al. 2020)",
    data="mnist",
    settings=settings,
    outline=outline,
    prepare=prepare,
    anchors=(
        Anchor(
            epsilon=2.93,
            accuracy=98.1,
            source="Papernot et al. 2020 (quoted by Tramèr & Boneh 2021)",
            shortcuts="lots not known to be the Poisson samples they are accounted as",
        ),
    ),
    tuning="on 10,000 held-out training images; not charged",
)
