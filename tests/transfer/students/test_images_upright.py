"""Writing put upright."""

import math

import pytest
import torch

from tacit.transfer.students.images import Upright


def blob(slant: float, right: float, low: float, *, size: int = 40) -> torch.Tensor:
    """A Gaussian hill, twice as high as wide, slanted and moved."""
    place = (2 * torch.arange(size) + 1) / size - 1
    y, x = torch.meshgrid(place - low, place - right, indexing="ij")
    return torch.exp(-0.5 * (((x - slant * y) / 0.1) ** 2 + (y / 0.2) ** 2))[None, None]


@pytest.mark.parametrize("slant", [-0.6, 0.0, 0.3])
@pytest.mark.parametrize(("right", "low"), [(0.0, 0.0), (0.15, -0.1)])
def test_a_slanted_hill_becomes_the_upright_one(slant: float, right: float, low: float) -> None:
    found = Upright()(blob(slant, right, low))
    assert (found - blob(0.0, 0.0, 0.0)).abs().max() < 0.03


def test_the_slant_is_limited() -> None:
    found = Upright()(blob(1.5, 0.0, 0.0))
    assert (found - blob(0.5, 0.0, 0.0)).abs().max() < 0.05


def test_each_image_is_changed_by_itself_and_a_blank_one_stays() -> None:
    images = torch.cat([blob(0.4, 0.1, 0.0), torch.zeros(1, 1, 40, 40), blob(-0.2, 0.0, 0.2)])
    found = Upright()(images)
    assert bool((found[1] == 0).all())
    for row in range(3):
        torch.testing.assert_close(found[row : row + 1], Upright()(images[row : row + 1]))


def test_channels_are_moved_together() -> None:
    one = blob(0.5, 0.1, 0.1)
    found = Upright()(torch.cat([one, 0.5 * one], dim=1))
    torch.testing.assert_close(found[:, 1], 0.5 * found[:, 0])
    assert math.isclose(float(found[:, 0].sum()), float(one.sum()), rel_tol=0.02)
