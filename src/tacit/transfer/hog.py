"""Histograms of oriented gradients (Dalal & Triggs 2005): features that nothing is learned for.

Private-kNN was published with them. Scattering features (``tacit.models``) serve better; these are
quick to compute and need no synthetic images.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.models import batched

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

_BLOCK = 2  # cells that are normalised together, in each direction
_CLIP = 0.2  # of L2-Hys: no direction counts for more
_FLOOR = 1e-5  # below which a gradient is no shape


def hog(
    images: NDArray[np.uint8] | Tensor,
    *,
    cell: int = 4,
    directions: int = 9,
    device: str | torch.device = "cpu",
) -> NDArray[np.float32]:
    """Features of images of type uint8 and shape (images, channels, height, width).

    In each cell, how strong the gradients are in each direction of the half circle; a gradient
    between two directions counts for both in proportion. Cells are normalised in overlapping blocks
    of 2×2 by L2-Hys. Of several channels, the one with the strongest gradient counts at each pixel.
    Pixels beyond the last whole cell are left out.

    Guarantee: row i of the result depends on image i alone, to the last bit (``models.batched``).

    Args:
        images: The images.
        cell: The side of a cell, in pixels; an image has two cells or more in each direction.
        directions: How many.
        device: Where to compute.

    >>> import numpy as np
    >>> hog(np.zeros((5, 1, 28, 28), dtype=np.uint8)).shape
    (5, 1296)
    """
    given = torch.as_tensor(images)
    side, bins = whole("cell", cell, at_least=2), whole("directions", directions, at_least=2)
    if given.ndim != 4 or given.dtype != torch.uint8 or min(given.shape[2:]) < _BLOCK * side:
        raise InvalidArgument(
            f"images must be uint8 of shape (images, channels, height, width) with {_BLOCK} cells "
            f"of {side} pixels or more each way, got {given.dtype} {tuple(given.shape)}"
        )
    rows = batched(lambda pixels: hog_rows(pixels, side, bins), given, device=device)
    result: NDArray[np.float32] = rows.cpu().numpy()
    return result


def hog_rows(pixels: Tensor, cell: int = 4, bins: int = 9) -> Tensor:
    """The same of a batch of pixels from 0 to 1, to be part of other features (``batched``)."""
    cells = _cells(*_gradients(pixels), cell, bins)
    blocks = cells.unfold(2, _BLOCK, 1).unfold(3, _BLOCK, 1)  # n, bins, down, right, 2, 2
    rows = blocks.permute(0, 2, 3, 1, 4, 5).flatten(3)
    rows = functional.normalize(rows, dim=-1, eps=_FLOOR).clamp(max=_CLIP)
    return functional.normalize(rows, dim=-1, eps=_FLOOR).flatten(1)


def _gradients(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences down and right, zero at the border, of each pixel's strongest channel."""
    down, right = torch.zeros_like(pixels), torch.zeros_like(pixels)
    down[:, :, 1:-1] = pixels[:, :, 2:] - pixels[:, :, :-2]
    right[..., 1:-1] = pixels[..., 2:] - pixels[..., :-2]
    strongest = (down.square() + right.square()).argmax(dim=1, keepdim=True)
    return down.gather(1, strongest)[:, 0], right.gather(1, strongest)[:, 0]


def _cells(down: Tensor, right: Tensor, cell: int, bins: int) -> Tensor:
    """The sums of the gradients' lengths in each cell by direction: (images, bins, down, right)."""
    strength = torch.hypot(down, right)
    turn = torch.atan2(down, right).remainder(math.pi) * (bins / math.pi)
    lower = turn.floor()
    share = turn - lower
    first = lower.long().remainder(bins)
    maps = strength.new_zeros(len(strength), bins, *strength.shape[1:])
    maps.scatter_add_(1, first[:, None], (strength * (1.0 - share))[:, None])
    maps.scatter_add_(1, (first + 1).remainder(bins)[:, None], (strength * share)[:, None])
    return functional.avg_pool2d(maps, cell) * cell**2
