"""The networks of the semi-supervised GAN: dense for grey images, as published, else convolutions.

The dense ones are those for MNIST of Salimans et al. 2016 (noise in every layer instead of batch
norm, weights normalised); the convolutions are smaller than theirs for SVHN and CIFAR-10.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, final

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

if TYPE_CHECKING:
    from torch import Tensor

HIDDEN = 100  # numbers that an image is made of
DENSE = (1000, 500, 250, 250, 250)
WIDTH = 64


@final
class Noise(nn.Module):
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
    layers: list[nn.Module] = [nn.Flatten(), Noise(0.3)]
    for before, after in pairwise(sizes):
        layers += [weight_norm(nn.Linear(before, after)), nn.ReLU(), Noise(0.5)]
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
