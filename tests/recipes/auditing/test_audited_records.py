"""What is asked: views one after the other, and records drawn by coins."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data import Examples, load
from tacit.errors import InvalidArgument
from tacit.recipes.auditing.audited_records import drawn_canaries, with_views

IMAGES = Examples(np.arange(2 * 9, dtype=np.uint8).reshape(2, 1, 3, 3), np.array([4, 5]))


def test_views_of_an_image_come_together_and_the_first_is_the_image() -> None:
    found = with_views(IMAGES, 3)
    assert found.labels.tolist() == [4, 4, 4, 5, 5, 5]
    pictures = np.asarray(found.inputs)
    assert np.array_equal(pictures[[0, 3]], np.asarray(IMAGES.inputs))
    assert pictures[1, 0].tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]  # one down, edge kept
    assert pictures[2, 0].tolist() == [[3, 4, 5], [6, 7, 8], [6, 7, 8]]


def test_all_nine_views_differ() -> None:
    pictures = np.asarray(with_views(IMAGES, 9).inputs)[:9]
    assert len({one.tobytes() for one in pictures}) == 9


def test_one_view_is_the_examples_themselves() -> None:
    assert with_views(IMAGES, 1) is IMAGES


@pytest.mark.parametrize(
    ("examples", "views", "words"),
    [
        (IMAGES, 10, "views must be at most 9"),
        (IMAGES, 0, "views must be"),
        (Examples(np.zeros((2, 3)), np.array([0, 1])), 2, "needs images"),
    ],
)
def test_views_that_cannot_be(examples: Examples, views: int, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        with_views(examples, views)


def test_canaries_are_mislabelled_and_coins_fair() -> None:
    data = load("digits")
    drawn = drawn_canaries(data, 1000, 1, wrong=True)
    assert (drawn.train.labels[drawn.rows] != data.train.labels[drawn.rows]).all()
    rest = np.setdiff1d(np.arange(len(data.train)), drawn.rows)
    assert np.array_equal(drawn.train.labels[rest], data.train.labels[rest])
    assert len(set(drawn.rows.tolist())) == 1000
    assert 420 < drawn.coins.sum() < 580  # seeded
    right = drawn_canaries(data, 1000, 1, wrong=False)
    assert right.train is data.train
    assert not np.array_equal(drawn_canaries(data, 1000, 2, wrong=True).coins, drawn.coins)
