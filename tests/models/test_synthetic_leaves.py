"""Dead leaves: flat discs of all sizes that hide each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from tacit.models import synthetic


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return synthetic.dead_leaves(np.random.default_rng(0), 200, 3, 32)


def test_an_image_has_no_more_colours_than_leaves(images: np.ndarray) -> None:
    for one in images:
        colours = np.unique(one.reshape(3, -1).T, axis=0)
        assert 2 <= len(colours) <= synthetic.DISCS + 1


def test_neighbours_are_mostly_of_one_leaf_and_edges_are_sharp(images: np.ndarray) -> None:
    same = (images[..., 1:] == images[..., :-1]).all(1)
    assert 0.5 < same.mean() < 0.95


def test_small_leaves_are_many_and_large_ones_there(images: np.ndarray) -> None:
    sizes = np.concatenate([
        np.unique(one.reshape(3, -1).T, axis=0, return_counts=True)[1] for one in images
    ])  # fmt: skip
    assert np.median(sizes) < 32 * 32 / 20
    assert sizes.max() > 32 * 32 / 3


def test_radii_follow_the_power_law() -> None:
    radii = synthetic._radii(np.linspace(0, 1, 10_001))
    assert (radii[0], radii[-1]) == pytest.approx((synthetic.SMALLEST, synthetic.LARGEST))
    for low, high in ((0.06, 0.08), (0.1, 0.3), (0.5, 0.9)):
        share = ((radii >= low) & (radii < high)).mean()
        total = quad(lambda r: r**-3, synthetic.SMALLEST, synthetic.LARGEST)[0]
        assert share == pytest.approx(quad(lambda r: r**-3, low, high)[0] / total, abs=3e-4)


def test_channels_share_most_of_their_light(images: np.ndarray) -> None:
    flat = images - images.mean((2, 3), keepdims=True)
    red, green, _ = flat.swapaxes(0, 1).reshape(3, -1)
    assert 0.6 < np.corrcoef(red, green)[0, 1] < 0.98
