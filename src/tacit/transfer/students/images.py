"""What students do with images: random changes, writing put upright, and features.

Random changes keep what images show, for a whole batch at once on its device.

``weak`` moves an image a little; ``bent`` also turns, shears and bends it, as a writer's hand may;
``strong`` turns, scales, shears and recolours it and blanks a square (after RandAugment and CutOut,
as FixMatch uses them; Sohn et al. 2020, section 2.3). Every image of a batch is changed in its own
way. Randomness is torch's own: nothing here is private.
"""

from __future__ import annotations

from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit import models

SHIFT = 1 / 14  # of the side: 2 of 28 pixels
TURN, SCALE, SHEAR = 0.35, 0.2, 0.3  # radians; as a share; as a slope
LIGHT = 0.4  # contrast, brightness and a channel's own strength change by up to this share
BLANK = 0.35  # of the side: the largest blank square
GENTLE = 0.5  # how far ``bent`` goes in turning, scaling and shearing, of how far ``strong`` goes
BEND = 0.05  # the spread of a move, as a share of half the side, at 5×5 places of an image


def weak(images: Tensor, *, flip: bool) -> Tensor:
    """Shifted by whole pixels and, where that is allowed, mirrored at random.

    Args:
        images: pixels from 0 to 1, shape (images, channels, height, width).
        flip: whether a mirrored image shows the same.
    """
    rows, _, height, width = images.shape
    maps = torch.eye(2, 3, device=images.device).repeat(rows, 1, 1)
    for axis, side in ((0, width), (1, height)):
        reach = max(1, round(SHIFT * side))
        pixels = torch.randint(-reach, reach + 1, (rows,), device=images.device)
        maps[:, axis, 2] = 2 * pixels / side  # the grid runs from -1 to 1
    return _moved(images, _mirrored(maps) if flip else maps)


def bent(images: Tensor, *, flip: bool) -> Tensor:
    """Turned, scaled, sheared and shifted by a little, and moved unevenly: as if written again."""
    maps = _maps(images, GENTLE, SHIFT * 1.25)
    moves = BEND * torch.randn(len(images), 2, 5, 5, device=images.device)
    size = list(images.shape[2:])
    smooth = functional.interpolate(moves, size, mode="bilinear", align_corners=True)
    return _moved(images, _mirrored(maps) if flip else maps, smooth.permute(0, 2, 3, 1))


def strong(images: Tensor, *, flip: bool) -> Tensor:
    """Turned, scaled, sheared and shifted; recoloured if they have colours; with a blank square."""
    maps = _maps(images, 1.0, 3 * SHIFT)
    found = _moved(images, _mirrored(maps) if flip else maps)
    if images.shape[1] > 1:
        found = _recoloured(found)
    return _blanked(found)


def _maps(images: Tensor, strength: float, shift: float) -> Tensor:
    """A random affine map for each image, in the grid that runs from -1 to 1."""
    rows = len(images)

    def between(size: float, *shape: int) -> Tensor:
        return size * (2 * torch.rand(*shape, device=images.device) - 1)

    angle, shear = between(strength * TURN, rows), between(strength * SHEAR, rows)
    across, down = (1 + between(strength * SCALE, rows) for _ in range(2))
    cosine, sine = angle.cos(), angle.sin()
    linear = torch.stack(
        [across * cosine, shear * cosine - down * sine, across * sine, shear * sine + down * cosine]
    )
    return torch.cat([linear.T.view(-1, 2, 2), between(shift, rows, 2, 1)], dim=2)


def _mirrored(maps: Tensor) -> Tensor:
    """Half of the maps, with left and right exchanged."""
    signs = 1 - 2 * torch.randint(0, 2, (len(maps), 1), device=maps.device)
    return torch.cat([maps[:, :1] * signs[:, None], maps[:, 1:]], dim=1)


def _moved(images: Tensor, maps: Tensor, moves: Tensor | float = 0.0) -> Tensor:
    """The images under affine maps, and ``moves`` of each pixel.

    Beyond the edge lies black, or a photograph's reflection.
    """
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False) + moves
    beyond = "zeros" if images.shape[1] == 1 else "reflection"
    return functional.grid_sample(images, grid, padding_mode=beyond, align_corners=False)


def _recoloured(images: Tensor) -> Tensor:
    rows, channels = images.shape[:2]
    strength = 1 + LIGHT * (2 * torch.rand(rows, channels, 1, 1, device=images.device) - 1)
    offset = LIGHT * (2 * torch.rand(rows, 1, 1, 1, device=images.device) - 1)
    mean = images.mean((2, 3), keepdim=True)
    return ((images - mean) * strength + mean + offset / 2).clamp(0, 1)


def _blanked(images: Tensor) -> Tensor:
    """With a square, of another size and place in each, that shows the image's mean."""
    rows, _, height, width = images.shape
    half = BLANK / 2 * torch.rand(rows, 1, device=images.device)

    def outside(side: int) -> Tensor:
        middle = torch.rand(rows, 1, device=images.device)
        return (torch.linspace(0, 1, side, device=images.device) - middle).abs() > half

    kept = outside(height)[:, None, :, None] | outside(width)[:, None, None, :]
    return torch.where(kept, images, images.mean((2, 3), keepdim=True))


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


DIRECTIONS = 400


@final
class Whitened(nn.Module):
    """Scattering at two scales, made of equal strength in all directions in which images differ.

    Mean and directions are those of public images, which may be looked at freely (a difference to
    ``tacit.models.Whitening`` of synthetic ones, which is for private images).

    Args:
        size: of the square images, in pixels.
        channels: of the images.
        upright: whether images are put upright first.
    """

    mean: Tensor
    directions: Tensor

    def __init__(self, size: int, channels: int, *, upright: bool = False) -> None:
        super().__init__()
        scales = (2, 3) if size > 16 else (1, 2)  # windows of 2^J pixels
        scattering = models.MultiScale(size, channels=channels, scales=scales, groups=31)
        self.scattering = nn.Sequential(Upright(), scattering) if upright else scattering

    @classmethod
    def of(cls, images: Tensor, *, upright: bool = False) -> tuple[Self, Tensor]:
        """The features that tell ``images`` (uint8) apart best, and those of all of them."""
        found = cls(images.shape[2], images.shape[1], upright=upright).to(images.device)
        rows = models.batched(found.scattering, images, device=images.device)
        found.register_buffer("mean", rows.mean(0))
        rows -= found.mean
        kept = min(DIRECTIONS, *rows.shape)
        _, strengths, directions = torch.svd_lowrank(rows, q=kept, niter=2)
        # The ridge is what chance makes of a direction: about the N-th part of the whole strength.
        scales = (strengths.square() + rows.square().mean(0).sum()).rsqrt()
        found.register_buffer("directions", directions * scales)
        return found, functional.normalize(rows @ found.directions)

    def forward(self, pixels: Tensor) -> Tensor:
        """Rows of norm 1, of pixels from 0 to 1, shape (images, channels, size, size)."""
        return functional.normalize((self.scattering(pixels) - self.mean) @ self.directions)
