"""Scattering features at several scales, as rows of norm 1.

A single transform averages over windows of one size. Fine windows tell where something is, coarse
ones what it is; a linear model does best with both side by side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit._validation import positive, whole
from tacit.errors import InvalidArgument
from tacit.models.scattering import Scattering2d

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MultiScale"]


class MultiScale(nn.Module):
    """Rows of scattering features, one block per scale; it has no parameters.

    Each block is s^exponent, s being the scattering coefficients, which are moduli and so not
    negative; then group norm over its paths, and norm 1. The row of all blocks has norm 1 again.
    An exponent below 1 brings faint structures forward.

    Guarantee: row i of the result depends on image i alone, and nothing is learned: the features
    of private images are as secret as the images, and computing them costs nothing.

    Args:
        size: of the square images, in pixels.
        channels: of the images.
        scales: the J of each block, such as (2, 3): windows of 2^J pixels.
        exponent: what coefficients are raised to; 0.5 is their square root.
        groups: of the group norm, over channels and paths together; the largest number up to this
            that divides them is taken. 1 normalises a block as a whole.

    >>> features = MultiScale(28, scales=(2, 3))
    >>> rows = features(torch.rand(5, 1, 28, 28))
    >>> rows.shape, rows.norm(dim=1).round(decimals=4).tolist()
    (torch.Size([5, 5922]), [1.0, 1.0, 1.0, 1.0, 1.0])
    """

    def __init__(
        self,
        size: int,
        *,
        channels: int = 1,
        scales: Sequence[int] = (2,),
        exponent: float = 1.0,
        groups: int = 27,
    ) -> None:
        super().__init__()
        if not scales:
            raise InvalidArgument("scales must name at least one scale, such as (2, 3), got ()")
        self.exponent = positive("exponent", exponent)
        self.channels = whole("channels", channels)
        self.blocks = nn.ModuleList(Scattering2d(size, size, J=scale) for scale in scales)
        self.groups = [
            _divisor(self.channels * block.paths, whole("groups", groups))  # type: ignore[operator, arg-type]
            for block in self.blocks
        ]

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Rows of shape (images, features) of pixels, shape (images, channels, size, size)."""
        rows = [
            functional.normalize(self.maps(index, images).flatten(1))
            for index in range(len(self.blocks))
        ]
        return torch.cat(rows, dim=1) / math.sqrt(len(rows))

    @torch.no_grad()
    def maps(self, index: int, images: Tensor) -> Tensor:
        """One block as images: (images, channels · paths, height, width), after group norm."""
        found: Tensor = self.blocks[index](images).flatten(1, 2)
        if self.exponent != 1.0:
            found = found.clamp(min=0.0).pow(self.exponent)
        return functional.group_norm(found, self.groups[index])

    @torch.no_grad()
    def places(self, images: Tensor) -> Tensor:
        """All blocks at the places of the coarsest: (images, features of a place, height, width).

        A place of a coarse map covers several of a finer one, whose features stand side by side;
        what is left over at the lower and right edge of a finer map is dropped.

        >>> MultiScale(32, scales=(2, 3)).places(torch.rand(5, 1, 32, 32)).shape
        torch.Size([5, 541, 4, 4])
        """
        found = [self.maps(index, images) for index in range(len(self.blocks))]
        size = min(maps.shape[-1] for maps in found)
        folds = [maps.shape[-1] // size for maps in found]
        return torch.cat(
            [
                functional.pixel_unshuffle(maps[..., : size * fold, : size * fold], fold)
                for maps, fold in zip(found, folds, strict=True)
            ],
            dim=1,
        )


def _divisor(number: int, at_most: int) -> int:
    """The largest divisor of ``number`` that is not above ``at_most``.

    >>> _divisor(81, 27), _divisor(217, 40), _divisor(217, 1)
    (27, 31, 1)
    """
    return max(one for one in range(1, min(number, at_most) + 1) if number % one == 0)
