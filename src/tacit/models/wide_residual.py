"""Wide residual networks as De et al. 2022 train them privately.

"Unlocking high-accuracy differentially private image classification through scale": WRN-16-4 of
Zagoruyko & Komodakis (2016) with group normalisation in place of batch normalisation, which would
mix examples, put after the activation; and convolutions whose weights are standardised (Qiao et al.
2019), with a gain and a bias of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit._validation import whole
from tacit.errors import InvalidArgument

__all__ = ["StandardisedConv2d", "wide_resnet"]

SMALLEST = 1e-4  # what the variance of a filter's weights, times their number, is held above


def wide_resnet(
    *, depth: int = 16, width: int = 4, groups: int = 16, channels: int = 3, classes: int = 10
) -> nn.Sequential:
    """A wide residual network for images of 32×32 or so, with fresh weights.

    Args:
        depth: 6·n+4 for n blocks in each of the three stages.
        width: how many times 16, 32 and 64 channels the stages have.
        groups: of the group normalisation.
        channels: of the images.
        classes: how many there are.

    >>> network = wide_resnet()
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    blocks, odd = divmod(whole("depth", depth, at_least=10) - 4, 6)
    if odd:
        raise InvalidArgument(f"depth must be 10, 16, 22, … (6·n+4), got {depth!r}")
    if 16 % whole("groups", groups):
        raise InvalidArgument(f"groups must divide the 16 channels of the stem, got {groups!r}")
    layers: list[nn.Module] = [StandardisedConv2d(whole("channels", channels), 16, 3)]
    before = 16
    for stride, base in ((1, 16), (2, 32), (2, 64)):
        after = base * whole("width", width)
        layers.append(_Block(before, after, groups=groups, stride=stride, first=True))
        layers += [_Block(after, after, groups=groups) for _ in range(blocks - 1)]
        before = after
    head = _dense(before, whole("classes", classes))
    return nn.Sequential(*layers, *_prepared(before, groups), _Mean(), head)


class StandardisedConv2d(nn.Module):
    """A convolution that keeps its size, by filters of mean 0 and norm ``gain``.

    W' = gain·(W − mean W)/√(N·var W) over the N weights of each filter, so that W' neither depends
    on W's scale nor passes on the mean of what comes in.

    >>> layer = StandardisedConv2d(3, 16, 3)
    >>> layer.standardised().flatten(1).norm(dim=1)[:2].detach().round(decimals=4)
    tensor([1., 1.])
    """

    def __init__(self, inputs: int, outputs: int, size: int, *, stride: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, size, size))
        self.gain = nn.Parameter(torch.ones(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.stride = stride
        nn.init.normal_(self.weight, std=(inputs * size**2) ** -0.5)

    def standardised(self) -> Tensor:
        """The filters as they are used."""
        flat = self.weight.flatten(1)
        centred = flat - flat.mean(1, keepdim=True)
        squares = centred.square().sum(1)
        scale = self.gain * squares.clamp(min=SMALLEST).rsqrt()
        return (centred * scale.unsqueeze(1)).view_as(self.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Shape (rows, outputs, height/stride, width/stride)."""
        around = self.weight.shape[-1] // 2
        return functional.conv2d(images, self.standardised(), self.bias, self.stride, around)


class _Block(nn.Module):
    """Two convolutions beside a way past them; the first block of a stage has one on that way."""

    def __init__(
        self, inputs: int, outputs: int, *, groups: int, stride: int = 1, first: bool = False
    ) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_prepared(inputs, groups), StandardisedConv2d(inputs, outputs, 3, stride=stride),
            *_prepared(outputs, groups), StandardisedConv2d(outputs, outputs, 3),
        )  # fmt: skip
        self.past = (
            nn.Sequential(
                *_prepared(inputs, groups), StandardisedConv2d(inputs, outputs, 1, stride=stride)
            )
            if first
            else nn.Identity()
        )

    def forward(self, images: Tensor) -> Tensor:
        total: Tensor = self.residual(images) + self.past(images)
        return total


class _Mean(nn.Module):
    """The mean over all places."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


def _prepared(channels: int, groups: int) -> tuple[nn.Module, nn.Module]:
    """The norm comes after the activation, as De et al. have it."""
    return nn.ReLU(), nn.GroupNorm(groups, channels)


def _dense(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.trunc_normal_(layer.weight, std=inputs**-0.5, a=-2 * inputs**-0.5, b=2 * inputs**-0.5)
    nn.init.zeros_(layer.bias)
    return layer
