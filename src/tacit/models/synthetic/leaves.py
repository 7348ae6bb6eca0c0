"""Dead leaves: discs of all sizes that hide each other, as things in photographs do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

DISCS = 80  # an image; with these radii they leave hardly a pixel free
SMALLEST, LARGEST = 0.06, 1.0  # radii, in sides of the image


def dead_leaves(random: np.random.Generator, count: int, channels: int, size: int) -> Floats:
    """Shape (count, channels, size, size), from 0 to 1.

    Radii have the density r^−3, for which the picture looks alike at all scales (Lee, Mumford &
    Huang 2001, "Occlusion models for natural images").
    """
    radii = size * _radii(random.random((DISCS, count))).astype(np.float32)
    centres = random.uniform(-0.2, 1.2, (DISCS, 2, count)).astype(np.float32) * size
    colours = _colours(random, count, channels)
    line = np.arange(size, dtype=np.float32) + 0.5
    images = np.empty((count, channels, size, size), dtype=np.float32)
    images[:] = colours[0][:, :, None, None]
    for radius, (y, x), colour in zip(radii, centres, colours[1:], strict=True):
        squares = (line - y[:, None])[:, :, None] ** 2 + (line - x[:, None])[:, None, :] ** 2
        inside = squares <= (radius**2)[:, None, None]
        np.copyto(images, colour[:, :, None, None], where=inside[:, None])
    return images


def _radii(quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The law's quantiles: r^−2 is uniform between those of the largest and the smallest."""
    inverse: NDArray[np.float64] = quantiles * LARGEST**-2 + (1 - quantiles) * SMALLEST**-2
    return inverse**-0.5


def _colours(random: np.random.Generator, count: int, channels: int) -> Floats:
    """Shape (DISCS + 1, count, channels): mostly light and dark, a little hue, around a mean."""
    light = random.normal(0, 0.22, (DISCS + 1, count, 1))
    hue = random.normal(0, 0.08, (DISCS + 1, count, channels)) * (channels > 1)
    mean = random.uniform(0.25, 0.7, (1, count, 1)) + random.normal(0, 0.06, (1, count, channels))
    return (mean + light + hue).clip(0, 1).astype(np.float32)
