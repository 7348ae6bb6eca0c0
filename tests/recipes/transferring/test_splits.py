"""The three parts: disjoint, fixed, as published, and without the labels of public images."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.data import Examples, Split, load
from tacit.errors import InvalidArgument
from tacit.recipes.transferring.splits import PUBLIC, Parts, parts_of, tuning_parts


def numbered(name: str, train: int, test: int) -> Split:
    """Images whose pixels are their own number, the training set's first."""

    def some(first: int, count: int) -> Examples:
        numbers = np.arange(first, first + count)
        pixels = np.stack([numbers // 256, numbers % 256], axis=1).astype(np.uint8)
        return Examples(pixels.reshape(-1, 1, 1, 2), numbers % 10)

    classes = tuple("0123456789")
    return Split(name, some(0, train), some(train, test), classes, {"a": "sha256:0"})


def numbers(images: np.ndarray) -> np.ndarray:
    flat = np.asarray(images).reshape(-1, 2).astype(np.int64)
    return 256 * flat[:, 0] + flat[:, 1]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_images_are_the_first_of_the_test_set(name: str) -> None:
    whole = numbered(name, 300, 10_500)
    parts = parts_of(whole)
    public = PUBLIC[name]
    assert np.array_equal(numbers(parts.data.train.inputs), np.arange(300))
    assert np.array_equal(numbers(parts.public), 300 + np.arange(public))
    assert np.array_equal(numbers(parts.data.test.inputs), np.arange(300 + public, 10_800))
    assert np.array_equal(parts.data.test.labels, np.arange(300 + public, 10_800) % 10)
    assert parts.data.files == whole.files


def test_digits_are_cut_anew_and_each_is_in_one_part() -> None:
    whole = load("digits")
    parts = parts_of(whole)
    pieces = [parts.data.train.inputs, parts.public, parts.data.test.inputs]
    assert [len(piece) for piece in pieces] == [1000, 500, 297]
    every = np.concatenate([np.asarray(whole.train.inputs), np.asarray(whole.test.inputs)])
    assert np.array_equal(np.concatenate(pieces), every)


def test_tuning_parts_hold_no_test_image() -> None:
    parts = tuning_parts(numbered("mnist", 60_000, 10_000))
    assert np.array_equal(numbers(parts.data.train.inputs), np.arange(50_000))
    assert np.array_equal(numbers(parts.public), np.arange(50_000, 59_000))
    assert np.array_equal(numbers(parts.data.test.inputs), np.arange(59_000, 60_000))


def test_labels_of_public_images_are_nowhere() -> None:
    parts = parts_of(numbered("mnist", 30, 9_100))
    assert not hasattr(parts, "public_labels")
    assert isinstance(parts.public, np.ndarray)


def test_what_is_no_such_set_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="dataset must be one of digits, mnist"):
        parts_of(numbered("adult", 30, 30))
    with pytest.raises(InvalidArgument, match="public must be uint8"):
        Parts(data=numbered("mnist", 3, 3), public=np.zeros((3, 4), np.uint8))
