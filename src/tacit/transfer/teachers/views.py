"""Views of images: each a little turned, moved and bent, to show a teacher more than it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

TURN: Final = 0.18  # radians, at most
SCALE: Final = 0.1
SHEAR: Final = 0.16
SHIFT: Final = 0.09  # of half the image's width
BEND: Final = 0.05  # the spread of the same, at 5×5 places between which the image is bent


def views(images: NDArray[np.uint8] | Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Images with distorted copies: shape (images, count, channels, height, width).

    The distortions are drawn once from a public seed, and all images get the same ones. Were they
    drawn image by image from a known seed, to leave a record out would give all that follow it
    other copies, and change every teacher. Give all views of a record the same group:

    ``Teachers(make, (rows, labels.repeat(count)), …, groups=np.arange(n).repeat(count))``

    Guarantee:
        The views of an image depend on it and on public numbers alone.

    Args:
        images: uint8, shape (images, channels, height, width).
        count: How many views, the image itself being the first.
        seed: Of the distortions.

    >>> views(torch.zeros(3, 1, 28, 28, dtype=torch.uint8), 4).shape
    torch.Size([3, 4, 1, 28, 28])
    """
    if str(images.dtype) not in ("uint8", "torch.uint8") or images.ndim != 4:
        raise InvalidArgument(
            "images must be uint8 of shape (images, channels, height, width), got "
            f"{images.dtype} of shape {tuple(images.shape)}"
        )
    pixels = images if isinstance(images, Tensor) else torch.tensor(images)
    random = np.random.default_rng(whole("seed", seed, at_least=0))
    found = [pixels]
    for _ in range(whole("count", count) - 1):
        grid = _grid(random, pixels.shape[2], pixels.shape[3]).to(pixels.device)
        moved = functional.grid_sample(
            pixels.float(), grid.expand(len(pixels), -1, -1, -1), align_corners=False
        )
        found.append(moved.round_().clamp_(0, 255).to(torch.uint8))
    return torch.stack(found, dim=1)


def _grid(random: np.random.Generator, height: int, width: int) -> Tensor:
    """Where each pixel of one random distortion comes from, shape (1, height, width, 2)."""
    turn, scale, shear = random.uniform(-1, 1, 3) * (TURN, SCALE, SHEAR)
    cosine, sine = (1 + scale) * np.cos(turn), np.sin(turn)
    shift = random.uniform(-SHIFT, SHIFT, 2)
    affine = np.array([[[cosine, shear - sine, shift[0]], [sine, cosine, shift[1]]]])
    bend = torch.from_numpy(random.normal(0.0, BEND, (1, 2, 5, 5))).float()
    smooth = functional.interpolate(bend, (height, width), mode="bicubic", align_corners=True)
    grid = functional.affine_grid(
        torch.from_numpy(affine).float(), [1, 1, height, width], align_corners=False
    )
    return grid + smooth.permute(0, 2, 3, 1)
