"""HOG: against loops over pixels, its geometry, and that an image stands for itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.transfer.hog import hog


def slow(image, cell, bins):
    """One image, pixel by pixel."""
    pixels = image.astype(np.float64) / 255.0
    _, height, width = pixels.shape
    table = np.zeros((height // cell, width // cell, bins))
    for i in range(height // cell * cell):
        for j in range(width // cell * cell):
            best = (0.0, 0.0, 0.0)
            for plane in pixels:
                down = plane[i + 1, j] - plane[i - 1, j] if 0 < i < height - 1 else 0.0
                right = plane[i, j + 1] - plane[i, j - 1] if 0 < j < width - 1 else 0.0
                if math.hypot(down, right) > best[0] + 1e-12:
                    best = (math.hypot(down, right), down, right)
            strength, down, right = best
            turn = math.atan2(down, right) % math.pi / math.pi * bins
            lower = int(turn)
            table[i // cell, j // cell, lower % bins] += strength * (1 - (turn - lower))
            table[i // cell, j // cell, (lower + 1) % bins] += strength * (turn - lower)
    rows = []
    for i in range(table.shape[0] - 1):
        for j in range(table.shape[1] - 1):
            block = table[i : i + 2, j : j + 2].transpose(2, 0, 1).ravel()
            block = np.minimum(block / max(np.linalg.norm(block), 1e-5), 0.2)
            rows.append(block / max(np.linalg.norm(block), 1e-5))
    return np.concatenate(rows)


@pytest.mark.parametrize(("channels", "cell", "bins"), [(1, 4, 9), (3, 4, 9), (1, 3, 6)])
def test_against_loops(channels, cell, bins):
    rng = np.random.default_rng(channels)
    images = rng.integers(0, 256, size=(3, channels, 14, 17), dtype=np.uint8)
    found = hog(images, cell=cell, directions=bins)
    for image, row in zip(images, found, strict=True):
        assert row == pytest.approx(slow(image, cell, bins), abs=2e-5)


def test_an_edge_points_across():
    image = np.zeros((1, 1, 8, 8), dtype=np.uint8)
    image[..., 4:] = 255  # gradients to the right: the first direction alone
    row = hog(image)[0].reshape(9, 4)
    assert row[0].min() > 0.1
    assert np.abs(row[1:]).max() < 1e-6


def test_contrast_and_brightness_do_not_matter():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 100, size=(1, 1, 16, 16), dtype=np.uint8)
    assert hog(image) == pytest.approx(hog((2 * image + 50).astype(np.uint8)), abs=1e-5)


def test_an_image_stands_for_itself():
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, size=(40, 1, 12, 12), dtype=np.uint8)
    whole = hog(images)
    assert np.array_equal(hog(images[7:8]), whole[7:8])
    assert whole.dtype == np.float32


@pytest.mark.parametrize(
    "images",
    [np.zeros((2, 28, 28), np.uint8), np.zeros((2, 1, 28, 28)), np.zeros((2, 1, 7, 28), np.uint8)],
)
def test_refusals(images):
    with pytest.raises(InvalidArgument, match="images must be uint8"):
        hog(images)
