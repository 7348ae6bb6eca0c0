"""A small CNN on scattering maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit._validation import whole

__all__ = ["MapCnn"]


class MapCnn(nn.Module):
    """A convolution of single places (1×1), tanh, and a dense layer over all of them.

    A shallower head than the CNN of Tramèr & Boneh 2021 (two 3×3 convolutions on J = 2 maps). Maps
    that ``MultiScale.places`` made know their surroundings already, and weights that a larger
    window would need cost more in noise than they find.

    Args:
        channels: of the maps.
        size: height and width of the maps.
        width: channels of the convolution.
        classes: how many there are.

    >>> MapCnn(512, size=3)(torch.zeros(5, 512, 3, 3)).shape
    torch.Size([5, 10])
    """

    def __init__(self, channels: int, *, size: int, width: int = 128, classes: int = 10) -> None:
        super().__init__()
        inner = whole("width", width)
        self.convolution = nn.Conv2d(whole("channels", channels), inner, 1)
        self.last = nn.Linear(inner * whole("size", size) ** 2, whole("classes", classes))
        nn.init.zeros_(self.last.weight)

    def forward(self, maps: Tensor) -> Tensor:
        """Scores, shape (images, classes)."""
        scores: Tensor = self.last(torch.tanh(self.convolution(maps)).flatten(1))
        return scores
