"""SVHN: MATLAB's order of axes is undone, and the digit 0 is called 0."""

from __future__ import annotations

import io

import numpy as np
import pytest
from scipy.io import savemat

from tacit.data import load
from tacit.data.contents import Contents
from tacit.data.images import read_svhn
from tacit.errors import DataError

from .writing import images


def mat(pixels: np.ndarray, kinds: np.ndarray) -> bytes:
    """Writes images (N, height, width, colour) as MATLAB has them."""
    out = io.BytesIO()
    variables = {"X": np.moveaxis(pixels, 0, -1), "y": kinds[:, None], "other": np.ones(3)}
    savemat(out, variables, do_compression=True)
    return out.getvalue()


def test_images_and_labels_come_back(tmp_path):
    pixels = images(12, seed=3, shape=(32, 32, 3))
    kinds = np.array([10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1], np.uint8)
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "train_32x32.mat").write_bytes(mat(pixels, kinds))
    (tmp_path / "svhn" / "test_32x32.mat").write_bytes(mat(pixels[:2], kinds[:2]))
    split = load("svhn", tmp_path, unverified=True)
    assert split.train.inputs.shape == (12, 3, 32, 32)
    assert split.train.inputs.dtype == np.uint8
    for image in (0, 5, 11):
        for colour in range(3):
            expected = pixels[image, :, :, colour]
            np.testing.assert_array_equal(split.train.inputs[image, colour], expected)
    assert split.train.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert split.test.labels.dtype == np.int64
    assert split.train.inputs.flags.c_contiguous
    assert split.train.inputs.flags.writeable


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no MATLAB file"),
        (b"no matlab" * 50, "no MATLAB file"),
        (mat(images(2, seed=0, shape=(32, 32, 3)), np.array([1, 2], np.uint8))[:900], "no MATLAB"),
        (mat(images(2, seed=0, shape=(32, 32, 3)), np.array([1], np.uint8)), "1 labels"),
        (mat(images(2, seed=0, shape=(28, 28, 3)), np.array([1, 2], np.uint8)), "not images of 32"),
        (mat(images(1, seed=0, shape=(32, 32, 3)), np.array([11], np.uint8)), "labels outside"),
        (mat(images(1, seed=0, shape=(32, 32, 3)), np.array([0], np.uint8)), "labels outside"),
    ],
)
def test_a_damaged_file_is_refused_in_a_line(data, message):
    with pytest.raises(DataError, match=message) as refusal:
        read_svhn(iter([Contents("train_32x32.mat", data, True)] * 2))
    assert "\n" not in str(refusal.value)
