"""Strokes: thin, in one piece or few, and in the middle, as written digits are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from tacit.models.synthetic import strokes

SIZE = 28


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return strokes(np.random.default_rng(0), 400, SIZE)


def test_ink_is_white_on_much_black(images: np.ndarray) -> None:
    assert images.min() == 0
    assert (images.max((1, 2)) > 0.9).mean() > 0.98
    share = (images > 0.5).mean((1, 2))  # MNIST: 12 % on average
    assert 0.08 < share.mean() < 0.18
    assert share.max() < 0.45


def test_the_ink_is_centred(images: np.ndarray) -> None:
    line = np.arange(SIZE)
    ink = images / images.sum((1, 2), keepdims=True)
    rows, columns = (ink.sum(2) * line).sum(1), (ink.sum(1) * line).sum(1)
    # What is drawn twice is white only once, so the centre of the light is not quite that of ink.
    assert np.abs(rows - (SIZE - 1) / 2).mean() < 0.6
    assert np.abs(columns - (SIZE - 1) / 2).mean() < 0.6


def test_a_drawing_is_as_large_as_a_digit(images: np.ndarray) -> None:
    seen = images > 0.3
    sides = np.array([max(np.ptp(np.nonzero(one), axis=1)) + 1 for one in seen])
    assert 19 < np.median(sides) < 25


def test_lines_are_whole_and_not_dotted(images: np.ndarray) -> None:
    pieces = [ndimage.label(one > 0.3, np.ones((3, 3)))[1] for one in images]
    assert max(pieces) <= 4  # one a curve at most
    assert np.mean(pieces) < 1.6


def test_the_nib_is_a_few_pixels_wide(images: np.ndarray) -> None:
    thick = np.array([ndimage.distance_transform_edt(one > 0.5).max() for one in images])
    assert 1 <= np.median(thick) < 3.5
