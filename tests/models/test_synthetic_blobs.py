"""Blobs: large, in one piece, lit and patterned, many of them mirrored like garments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from tacit.models.synthetic import blobs


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return blobs(np.random.default_rng(0), 400, 28)


def test_they_fill_much_of_the_picture(images: np.ndarray) -> None:
    assert images.min() >= 0
    assert images.max() <= 1
    share = (images > 0.02).mean((1, 2))  # Fashion-MNIST: half
    assert 0.3 < share.mean() < 0.6
    assert share.min() > 0.02


def test_most_are_in_one_piece(images: np.ndarray) -> None:
    pieces = []
    for one in images:
        labels, count = ndimage.label(ndimage.binary_closing(one > 0.02))
        sizes = np.bincount(labels.ravel())[1:]
        pieces.append((sizes > 10).sum() if count else 0)
    assert np.mean(np.array(pieces) == 1) > 0.85


def test_many_outlines_are_mirrored(images: np.ndarray) -> None:
    seen = images > 0.02
    alike = (seen == seen[:, :, ::-1]).mean((1, 2))
    assert 0.4 < (alike > 0.9).mean() < 0.95


def test_they_differ_in_brightness_and_texture(images: np.ndarray) -> None:
    cores = [ndimage.binary_erosion(one > 0.02, iterations=2) for one in images]
    inside = [one[core] for one, core in zip(images, cores, strict=True) if core.sum() > 20]
    means = np.array([one.mean() for one in inside])
    grain = np.array([one.std() / one.mean() for one in inside])
    assert means.std() > 0.08  # brightness goes from 0.6 to 1
    assert grain.min() > 0.005
    assert np.quantile(grain, 0.9) > 1.5 * np.quantile(grain, 0.3)
