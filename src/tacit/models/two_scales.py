"""A small CNN on scattering features of two scales."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tacit._validation import whole

__all__ = ["TwoScaleCnn"]


class TwoScaleCnn(nn.Module):
    """Two convolutions: one on fine maps, one on its halved result with coarse maps beside it.

    After the CNN on scattering features of Tramèr & Boneh 2021, which has the fine maps alone.

    Args:
        fine: channels of the fine maps, such as 81 or 243 (J = 2).
        coarse: channels of the coarse maps, such as 217 or 651 (J = 3).
        size: height and width of the coarse maps; the fine ones have twice that, or one more.
        width: channels of the convolutions.
        classes: how many there are.

    >>> net = TwoScaleCnn(81, 217, size=3)
    >>> net(torch.zeros(5, 81, 7, 7), torch.zeros(5, 217, 3, 3)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self, fine: int, coarse: int, *, size: int, width: int = 64, classes: int = 10
    ) -> None:
        super().__init__()
        inner = whole("width", width)
        self.first = nn.Conv2d(whole("fine", fine), inner, 3, padding=1)
        self.halve = nn.MaxPool2d(2)
        self.second = nn.Conv2d(inner + whole("coarse", coarse), inner, 3, padding=1)
        self.last = nn.Linear(inner * whole("size", size) ** 2, whole("classes", classes))

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        """Scores, shape (images, classes)."""
        found = self.halve(torch.tanh(self.first(fine)))
        found = torch.tanh(self.second(torch.cat([found, coarse], dim=1)))
        scores: Tensor = self.last(found.flatten(1))
        return scores
