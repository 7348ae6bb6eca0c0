"""Writing put upright: by how much it slants is a matter of the hand, not of what was written."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Upright"]

STEEPEST = 1.0  # a slant, as a slope, beyond which an image is not put upright further


@final
class Upright(nn.Module):
    """Images moved so that their mass is in the middle, and sheared so that it does not slant.

    With (x, y) a pixel's place from the centre of mass, weighed by its brightness, the slant is
    E[xy]/E[y²]: the slope of the line that tells x by y best. Each row is moved back by that much.

    >>> slanted = torch.zeros(1, 1, 9, 9)
    >>> for row in range(1, 8):
    ...     slanted[0, 0, row, row] = 1
    >>> Upright()(slanted)[0, 0, :, 4].round()
    tensor([0., 1., 1., 1., 1., 1., 1., 1., 0.])
    """

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Images of the same shape, (images, channels, height, width), from pixels from 0 to 1."""
        mass = pixels.sum(1)
        across, down = (_places(size, pixels) for size in (pixels.shape[3], pixels.shape[2]))
        whole = mass.sum((1, 2)).clamp(min=1e-6)
        right = (mass * across).sum((1, 2)) / whole
        low = (mass * down[:, None]).sum((1, 2)) / whole
        x, y = across - right[:, None], down - low[:, None]
        upward = (mass.sum(2) * y * y).sum(1).clamp(min=1e-6)
        slant = torch.einsum("nij,ni,nj->n", mass, y, x) / upward
        maps = torch.eye(2, 3, device=pixels.device, dtype=pixels.dtype).repeat(len(pixels), 1, 1)
        maps[:, 0, 1] = slant.clamp(-STEEPEST, STEEPEST)
        maps[:, 0, 2], maps[:, 1, 2] = right, low
        grid = functional.affine_grid(maps, list(pixels.shape), align_corners=False)
        return functional.grid_sample(pixels, grid, align_corners=False)


def _places(size: int, like: Tensor) -> Tensor:
    """The middles of pixels on a line from -1 to 1."""
    return (2 * torch.arange(size, device=like.device, dtype=like.dtype) + 1) / size - 1
