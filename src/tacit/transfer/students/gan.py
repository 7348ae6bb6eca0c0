"""The student of PATE-G: a discriminator that tells classes apart, and real images from made ones.

Salimans et al. 2016, "Improved techniques for training GANs", section 5: the scores l of the
classes also say how real an image is, D(x) = Σexp(l)/(Σexp(l)+1), and the generator is to match the
mean of the discriminator's features on real images ("feature matching"). Papernot et al. 2017 train
PATE's students so.

Its networks are dense for grey images, as published (those for MNIST of Salimans et al. 2016: noise
in every layer instead of batch norm, weights normalised), else convolutions, which are smaller than
theirs for SVHN and CIFAR-10.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, final

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from tacit.errors import InvalidArgument
from tacit.transfer.students.images import weak
from tacit.transfer.students.student import BATCH, Descent, cross_entropy

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.transfer.students.student import StudentTask


LR, MOMENTUM, MEMORY = 3e-3, 0.5, 0.999


def train_gan(task: StudentTask) -> nn.Module:
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


HIDDEN = 100  # numbers that an image is made of
DENSE = (1000, 500, 250, 250, 250)
WIDTH = 64


@final
class GaussianNoise(nn.Module):
    """Gaussian noise while training."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.deviation = deviation

    def forward(self, values: Tensor) -> Tensor:
        """The values with noise."""
        return values + self.deviation * torch.randn_like(values) if self.training else values


def discriminator(images: Tensor, classes: int) -> nn.Sequential:
    """A classifier that ends in a linear layer and mixes no examples."""
    channels, height, width = images.shape[1:]
    if channels > 1:
        return _convolutions(channels, classes)
    sizes = (height * width, *DENSE)
    layers: list[nn.Module] = [nn.Flatten(), GaussianNoise(0.3)]
    for before, after in pairwise(sizes):
        layers += [weight_norm(nn.Linear(before, after)), nn.ReLU(), GaussianNoise(0.5)]
    return nn.Sequential(*layers[:-1], nn.Linear(sizes[-1], classes))


def _convolutions(channels: int, classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Dropout2d(0.2)]
    before = channels
    for after, stride in ((WIDTH, 1), (WIDTH, 2), (2 * WIDTH, 1), (2 * WIDTH, 2), (2 * WIDTH, 1)):
        layers += [
            weight_norm(nn.Conv2d(before, after, 3, stride=stride, padding=1)), nn.LeakyReLU(0.2)
        ]  # fmt: skip
        before = after
    head = nn.Linear(before, classes)
    return nn.Sequential(*layers, nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


def generator(images: Tensor) -> nn.Sequential:
    """Makes pixels from 0 to 1, of the shape of ``images``, of ``HIDDEN`` normal numbers."""
    channels, height, width = images.shape[1:]
    if channels == 1:
        inner: list[nn.Module] = []
        for before in (HIDDEN, 500):
            inner += [nn.Linear(before, 500), nn.BatchNorm1d(500), nn.Softplus()]
        end = [nn.Linear(500, height * width), nn.Sigmoid(), nn.Unflatten(1, (1, height, width))]
        return nn.Sequential(*inner, *end)
    low = (height // 4, width // 4)
    maps = 4 * WIDTH
    return nn.Sequential(
        nn.Linear(HIDDEN, maps * low[0] * low[1]), nn.Unflatten(1, (maps, *low)),
        nn.BatchNorm2d(maps), nn.ReLU(),
        nn.ConvTranspose2d(maps, maps // 2, 4, stride=2, padding=1),
        nn.BatchNorm2d(maps // 2), nn.ReLU(),
        nn.ConvTranspose2d(maps // 2, channels, 4, stride=2, padding=1),
        nn.Sigmoid(),
    )  # fmt: skip
