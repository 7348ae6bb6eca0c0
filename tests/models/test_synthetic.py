"""Synthetic images: shapes, seeds and refusals, for all kinds alike."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.models import synthetic, synthetic_images

KINDS = get_args(synthetic.Kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "channels"), [(28, 1), (32, 3), (8, 2)])
def test_images_have_the_shape_and_the_bytes_of_images(
    kind: synthetic.Kind, size: int, channels: int
) -> None:
    images = synthetic_images(40, size=size, channels=channels, kind=kind, seed=1)
    assert images.shape == (40, channels, size, size)
    assert images.dtype == np.uint8
    assert images.std((1, 2, 3)).min() > 3  # none is empty
    assert len(np.unique(images.reshape(40, -1), axis=0)) == 40  # nor like another


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_says_all_and_another_seed_something_else(kind: synthetic.Kind) -> None:
    one = synthetic_images(synthetic.CHUNK + 7, size=12, kind=kind, seed=5)
    assert np.array_equal(one, synthetic_images(len(one), size=12, kind=kind, seed=5))
    other = synthetic_images(len(one), size=12, kind=kind, seed=6)
    assert (one != other).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize("kind", ["strokes", "blobs"])
def test_a_shape_has_one_colour_where_there_are_several_channels(kind: synthetic.Kind) -> None:
    images = synthetic_images(30, channels=3, kind=kind, seed=2).astype(float)
    light = images.max(axis=(2, 3), keepdims=True)
    assert (
        np.abs(images / light - (images / light)[:, :1]).max() < 0.06
    )  # of rounding, in the darkest
    assert (light.max(1) - light.min(1)).min() > 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": 0}, "count must be a whole number, 1 or more"),
        ({"size": 7}, "size must be a whole number, 8 or more"),
        ({"channels": 0}, "channels must be a whole number"),
        ({"seed": -1}, "seed must be a whole number, 0 or more"),
        ({"kind": "cats"}, "kind must be one of .*dead-leaves.*got 'cats'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given: dict[str, object], message: str) -> None:
    settings = {"count": 3, "kind": "strokes", "seed": 0} | given
    with pytest.raises(InvalidArgument, match=message):
        synthetic_images(**settings)
