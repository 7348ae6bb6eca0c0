"""Features that tell public images apart before anything was learned from a label."""

from __future__ import annotations

from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit import models
from tacit.transfer.students.upright import Upright

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
