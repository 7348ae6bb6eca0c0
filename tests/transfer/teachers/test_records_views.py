"""Views of images: of one image at a time, and a little different from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.models import synthetic_images
from tacit.transfer.teachers import views

IMAGES = synthetic_images(6, kind="strokes", seed=1)


def test_an_images_views_depend_on_it_alone() -> None:
    """Regression: drawn image by image, they would change for all that follow one left out."""
    together = views(IMAGES, 4)
    apart = torch.cat([views(IMAGES[place : place + 1], 4) for place in range(6)])
    assert torch.equal(together, apart)


def test_the_first_view_is_the_image_and_the_others_are_like_it() -> None:
    found = views(torch.from_numpy(IMAGES), 9).float()
    assert torch.equal(found[:, 0], torch.from_numpy(IMAGES).float())
    ink = found.mean((2, 3, 4))
    assert ((ink[:, 1:] / ink[:, :1] - 1).abs() < 0.5).all()
    assert (found[:, 1:] - found[:, :1]).abs().mean((2, 3, 4)).min() > 1.0


def test_seeds_are_other_views() -> None:
    assert torch.equal(views(IMAGES, 2, seed=1), views(IMAGES, 2, seed=1))
    assert not torch.equal(views(IMAGES, 2, seed=1), views(IMAGES, 2, seed=2))
    assert views(IMAGES, 1).shape == (6, 1, 1, 28, 28)


def test_only_images_are_taken() -> None:
    with pytest.raises(InvalidArgument, match="uint8 of shape"):
        views(np.zeros((3, 1, 8, 8)), 2)  # type: ignore[arg-type]
