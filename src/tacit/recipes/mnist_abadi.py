"""``tacit train mnist-abadi --epsilon 2``: private components, and a hidden layer on them.

The experiment of Abadi et al. 2016 (https://arxiv.org/abs/1607.00133, Section 5.2): principal
components of MNIST, 1,000 hidden units, lots of 600, clip 4. The components are released once, with
noise of ``pca_noise`` times what one image adds, and charged together with the training.

The paper's noise on the gradients (8, 4 and 2 clips at ε = 0.5, 2 and 8) would allow 100, 350 and
950 epochs by the exact accountant, which its rate (from 0.1 to 0.052 in ten epochs) would need.
Here fewer epochs with less noise and a higher rate, which falls all the time, come as far sooner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils.data import TensorDataset

from tacit import mechanisms, models
from tacit.accounting import Gaussian
from tacit.runs import Anchor, Recipe
from tacit.training import Prepared, Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.data import Examples
    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan

_SOURCE = "Abadi et al. 2016, Figure 3"
_SHORTCUTS = "lots of permuted examples, accounted as Poisson samples"


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What may be set; the rate falls to ``last_lr`` over the first ``falling`` share of steps."""

    epochs: float
    lot: int = 600
    clip: float = 4.0
    lr: float
    last_lr: float
    falling: float = 1.0
    components: int = 60
    pca_noise: float
    hidden: int = 1000


def settings(epsilon: float) -> Settings:
    """The paper's noise on the components, by how much may be given away."""
    if epsilon <= 1.0:
        return Settings(epochs=12.0, lr=0.5, last_lr=0.03, pca_noise=16.0)
    if epsilon <= 4.0:
        return Settings(epochs=30.0, lr=0.6, last_lr=0.05, pca_noise=7.0)
    return Settings(epochs=100.0, lr=0.6, last_lr=0.05, pca_noise=4.0)


def outline(task: Task) -> Outline:
    """The components, then the network."""
    chosen = task.settings
    return task.plan(
        lot=chosen.lot, epochs=chosen.epochs, clip=chosen.clip,
        also=(Gaussian(chosen.pca_noise, math.sqrt(2.0)),),
    )  # fmt: skip


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    """The network on what private components see of the images."""
    chosen: Settings = task.settings
    train, test = (_pixels(part) for part in (task.data.train, task.data.test))

    def components(budget: Budget | None) -> Released[Any]:
        lengths = np.linalg.norm(train, axis=1, keepdims=True)
        found = mechanisms.pca(
            train / np.maximum(lengths, 1e-12), chosen.components, norm=1.0,
            noise_multiplier=chosen.pca_noise, budget=budget, label="components",
        )  # fmt: skip
        return replace(found, value=found.value.directions)

    directions = release(
        "components",
        components,
        what=f"{chosen.components} principal components of the images, each of norm 1",
    )
    model = models.abadi_mlp(inputs=chosen.components, hidden=chosen.hidden).to(task.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen.lr)
    steps = max(1.0, plan.steps * chosen.falling)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 1.0 - min(step / steps, 1.0) * (1.0 - chosen.last_lr / chosen.lr)
    )
    return Prepared(
        model=model,
        optimizer=optimizer,
        plan=plan,
        dataset=_seen(train @ directions.T, task.data.train, task.device),
        held_out=_seen(test @ directions.T, task.data.test, task.device),
        schedule=Schedule(scheduler=scheduler),
    )


def _pixels(examples: Examples) -> NDArray[np.float64]:
    """Images as rows of numbers between 0 and 1."""
    return np.asarray(examples.inputs, dtype=np.float64).reshape(len(examples), -1) / 255.0


def _seen(rows: NDArray[np.float64], examples: Examples, device: torch.device) -> TensorDataset:
    """The network's inputs and labels, on the device."""
    return TensorDataset(
        torch.as_tensor(rows, dtype=torch.float32, device=device),
        torch.as_tensor(examples.labels, device=device),
    )


RECIPE = Recipe(
    name="mnist-abadi",
    summary="private PCA to 60 and a hidden layer of 1,000 units (Abadi et al. 2016)",
    data="mnist",
    settings=settings,
    outline=outline,
    prepare=prepare,
    anchors=tuple(
        Anchor(epsilon=epsilon, accuracy=accuracy, source=_SOURCE, shortcuts=_SHORTCUTS)
        for epsilon, accuracy in ((0.5, 90.0), (2.0, 95.0), (8.0, 97.0))
    ),
    tuning="epochs and rates on 10,000 held-out training images, the rest as published; not "
    "charged",
)
