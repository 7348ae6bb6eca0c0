"""The student of PATE-G: a discriminator that tells classes apart, and real images from made ones.

Salimans et al. 2016, "Improved techniques for training GANs", section 5: the scores l of the
classes also say how real an image is, D(x) = Σexp(l)/(Σexp(l)+1), and the generator is to match the
mean of the discriminator's features on real images ("feature matching"). Papernot et al. 2017 train
PATE's students so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from tacit.errors import InvalidArgument
from tacit.transfer.students.augmentation import weak
from tacit.transfer.students.descent import Descent
from tacit.transfer.students.gan_networks import HIDDEN, discriminator, generator
from tacit.transfer.students.task import BATCH, cross_entropy

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.transfer.students.task import Task

LR, MOMENTUM, MEMORY = 3e-3, 0.5, 0.999


def train(task: Task) -> nn.Module:
    """The trained model: the discriminator, its weights averaged."""
    model = task.model(lambda: discriminator(task.images, task.classes))
    features = _without_head(model)
    maker = generator(task.images).to(task.device)
    descent = Descent(model, lr=LR, momentum=MOMENTUM, memory=MEMORY)
    making = Descent(maker, lr=LR, momentum=MOMENTUM, memory=MEMORY)
    for done, rows in task.batches():
        own = task.draw(task.weights, BATCH)
        known, real = (weak(task.pixels(part), flip=task.flip) for part in (own, rows))
        made = maker(torch.randn(len(rows), HIDDEN, device=task.device))
        learned = cross_entropy(model(known), task.labels[own]).mean()
        descent.step(learned + _real_or_made(model(real), model(made.detach())) / 2, done)
        making.step(_mismatch(features, real, made), done)
    return descent.average


def _without_head(model: nn.Sequential) -> nn.Sequential:
    """The same layers but the last, of which the generator is to match what they say."""
    *before, network = model
    if not isinstance(network, nn.Sequential) or not isinstance(network[-1], nn.Linear):
        raise InvalidArgument(
            "network must make an nn.Sequential that ends in nn.Linear for method='gan', whose "
            f"generator matches what comes before, got {type(network).__name__}"
        )
    return nn.Sequential(*before, network[:-1])


def _real_or_made(real: Tensor, made: Tensor) -> Tensor:
    """−log D(real) − log(1 − D(made)), with log D = lse − softplus(lse), lse = log Σexp(l)."""
    seen, drawn = (scores.float().logsumexp(1) for scores in (real, made))
    return (functional.softplus(seen) - seen + functional.softplus(drawn)).mean()


def _mismatch(features: nn.Module, real: Tensor, made: Tensor) -> Tensor:
    with torch.no_grad():
        wanted = features(real).mean(0)
    difference: Tensor = features(made).mean(0) - wanted
    return difference.square().mean()
