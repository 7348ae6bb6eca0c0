"""The IDX format: read as it was written, and refused where it says one thing and is another."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from tacit.data import load
from tacit.data.contents import Contents
from tacit.data.images import array, read_idx
from tacit.errors import DataError

from .writing import idx, images, labels, write_mnist


def of(data: bytes) -> Contents:
    return Contents("train-images", data, True)


@pytest.mark.parametrize("name", ["mnist", "fashion"])
@pytest.mark.parametrize("packed", [True, False])
def test_images_and_labels_come_back_as_written(name, packed, tmp_path):
    pixels, digits, test_pixels, test_digits = write_mnist(tmp_path / name, packed=packed)
    split = load(name, tmp_path, unverified=True)
    assert split.name == name
    assert split.train.inputs.shape == (7, 1, 28, 28)
    assert split.train.inputs.dtype == np.uint8
    assert split.train.labels.dtype == np.int64
    np.testing.assert_array_equal(split.train.inputs[:, 0], pixels)
    np.testing.assert_array_equal(split.train.labels, digits)
    np.testing.assert_array_equal(split.test.inputs[:, 0], test_pixels)
    np.testing.assert_array_equal(split.test.labels, test_digits)
    assert len(split.classes) == 10


def test_arrays_are_contiguous_and_may_be_changed():
    """torch.from_numpy warns of arrays that may not be."""
    found = array(of(idx(images(3, seed=1))), 3)
    assert found.flags.writeable
    assert found.flags.c_contiguous


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no IDX file of 3 dimensions"),
        (b"\0\0\x08\x03\0\0", "no IDX file of 3 dimensions"),
        (b"<html>please log in</html>", "no IDX file of 3 dimensions"),
        (idx(labels(5, seed=0)), "no IDX file of 3 dimensions"),
        (b"\0\0\x0d" + idx(images(2, seed=0))[3:], "no IDX file of 3 dimensions"),
        (idx(images(2, seed=0))[:-1], r"2 × 28 × 28 bytes, but has 1,567"),
        (idx(images(2, seed=0)) + b"!", r"2 × 28 × 28 bytes, but has 1,569"),
        (b"\0\0\x08\x03" + b"\xff" * 12, r"but has 0"),
        (gzip.compress(idx(images(2, seed=0)))[:-9], "ends too early"),
    ],
)
def test_a_damaged_file_is_refused(data, message):
    with pytest.raises(DataError, match=message):
        array(of(data), 3)


def test_images_and_labels_must_be_equally_many():
    files = [idx(images(3, seed=0)), idx(labels(4, seed=0))]
    with pytest.raises(DataError, match=r"3 images and .* 4 labels"):
        read_idx(iter([of(one) for one in files * 2]))


def test_a_label_past_nine_is_refused():
    files = [idx(images(1, seed=0)), idx(np.array([10], np.uint8))]
    with pytest.raises(DataError, match="a label 10, past 9"):
        read_idx(iter([of(one) for one in files * 2]))
