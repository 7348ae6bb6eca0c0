"""The virtual adversarial student: what it says is to change little even in the worst direction.

Miyato et al. 2018, "Virtual adversarial training", algorithm 1 with one power iteration, and the
entropy of what it says of unlabelled points beside it ("VAT+EntMin").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from tacit.transfer.students.augmentation import weak
from tacit.transfer.students.descent import Descent
from tacit.transfer.students.task import BATCH, cross_entropy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tacit.transfer.students.task import Task

PROBE = 1e-2  # ξ, the length at which the worst direction is looked for, in pixels from 0 to 1
LENGTH = 0.1  # ε: how far an image is moved, for each pixel's root; 2.8 in all for 28×28
ENTROPY = 1.0


def train(task: Task) -> nn.Module:
    """The trained model."""
    model = task.model()
    descent = Descent(model)
    for done, rows in task.batches():
        own = task.draw(task.weights, BATCH)
        learned = cross_entropy(
            model(weak(task.pixels(own), flip=task.flip)), task.labels[own]
        ).mean()
        images = weak(task.pixels(rows), flip=task.flip)
        scores = model(images)
        said = scores.detach()
        moved = images + LENGTH * images[0].numel() ** 0.5 * _worst(model, images, said)
        smoothness = _divergence(said, model(moved))
        entropy = -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()
        descent.step(learned + smoothness + ENTROPY * entropy, done)
    return descent.average


def _worst(model: nn.Module, images: Tensor, said: Tensor) -> Tensor:
    """The direction, of length 1, in which what the model says changes fastest."""
    probe = _unit(torch.randn_like(images)).requires_grad_()
    change = _divergence(said, model(images + PROBE * probe))
    (gradient,) = torch.autograd.grad(change, [probe])
    return _unit(gradient)


def _unit(directions: Tensor) -> Tensor:
    return functional.normalize(directions.flatten(1), eps=1e-20).view_as(directions)


def _divergence(said: Tensor, says: Tensor) -> Tensor:
    """The mean over the rows of KL(softmax(said) ‖ softmax(says))."""
    return functional.kl_div(
        says.log_softmax(1), said.log_softmax(1), log_target=True, reduction="batchmean"
    )
