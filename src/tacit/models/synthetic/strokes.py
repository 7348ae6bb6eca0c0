"""Strokes of a pen: chains of Bézier curves, drawn and centred like written digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

CURVES = 4  # at most, an image
POINTS = 48  # of a curve, at which the pen is set down: closer than its nib is wide
NIB = (0.024, 0.042)  # widths of the pen, as shares of the image's side
REACH = 20 / 28  # the drawing's larger side, as a share of the image's


def strokes(random: np.random.Generator, count: int, size: int) -> Floats:
    """White strokes on black, shape (count, size, size), from 0 to 1."""
    places, lengths = _fitted(*_path(random, count), size=size)
    return _inked(random, places, lengths, size)


def _path(random: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Points on the curves, shape (count, points, 2), and the length that each stands for."""
    angles = random.uniform(-np.pi / 2, np.pi / 2, (count, CURVES, 4, 2))
    controls = np.sin(angles).astype(np.float32)  # more often far out than in the middle
    controls[..., 0] *= 0.75  # what is written is higher than wide
    for at in range(1, CURVES):
        joined = random.random((count, 1)) < 0.75  # else the pen is lifted
        before = controls[:, at - 1]
        smooth = 2 * before[:, 3] - before[:, 2]
        controls[:, at, 0] = np.where(joined, before[:, 3], controls[:, at, 0])
        turned = random.random((count, 1)) < 0.3  # a corner where the pen turns
        controls[:, at, 1] = np.where(joined & ~turned, smooth, controls[:, at, 1])
    t = ((np.arange(POINTS, dtype=np.float32) + 0.5) / POINTS)[:, None]
    basis = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    slope = np.hstack([-3 * (1 - t) ** 2, 3 * (1 - t) * (1 - 3 * t), 3 * t * (2 - 3 * t), 3 * t**2])
    points = np.einsum("pk,nckx->ncpx", basis, controls)
    speeds = np.linalg.norm(np.einsum("pk,nckx->ncpx", slope, controls), axis=-1) / POINTS
    drawn = np.arange(CURVES) < random.choice([1, 2, 3, 4], (count, 1), p=[0.25, 0.45, 0.25, 0.05])
    points = np.where(drawn[..., None, None], points, points[:, :1])
    lengths = speeds * drawn[..., None]
    return points.reshape(count, -1, 2), lengths.reshape(count, -1)


def _fitted(points: Floats, lengths: Floats, *, size: int) -> tuple[Floats, Floats]:
    """In pixels: scaled to the size of a digit and centred by its ink, as MNIST's are."""
    low, high = points.min(1, keepdims=True), points.max(1, keepdims=True)
    scale = REACH * size / (high - low).max(-1, keepdims=True).clip(min=0.5)
    ink = lengths / lengths.sum(1, keepdims=True)
    centre = np.einsum("np,npx->nx", ink, points)[:, None]
    return (points - centre) * scale + (size - 1) / 2, lengths * scale[..., 0]


def _inked(random: np.random.Generator, points: Floats, lengths: Floats, size: int) -> Floats:
    """A Gaussian nib along the points, saturated: white in the middle, grey at the edges.

    A Gaussian is a product of one an axis, so that the picture is a product of two matrices.
    """
    width = random.uniform(*NIB, (len(points), 1, 1)).astype(np.float32) * size
    pixels = np.arange(size, dtype=np.float32)
    across, down = (
        np.exp(-0.5 * ((points[..., axis, None] - pixels) / width) ** 2) for axis in (0, 1)
    )
    # The line integral of the nib over a straight line is 1 in its middle.
    ink = np.matmul((down * lengths[..., None] / width / np.sqrt(2 * np.pi)).swapaxes(1, 2), across)
    light: Floats = ((ink - 0.3) / 0.4).clip(0, 1)
    return light
