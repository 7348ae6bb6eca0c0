"""Digits: the file of scikit-learn, read without importing it, equals what it gives out."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tacit.data import images, load
from tacit.data.contents import Contents
from tacit.data.description import fixed_split
from tacit.errors import DataError

ROW = ",".join(["3"] * 64)


def test_digits_are_those_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    expected = datasets.load_digits()
    split = load("digits")
    train, test = fixed_split(1797, 360)
    for part, rows in ((split.train, train), (split.test, test)):
        np.testing.assert_array_equal(part.inputs[:, 0], expected.images[rows])
        np.testing.assert_array_equal(part.labels, expected.target[rows])
    assert split.train.inputs.shape == (1437, 1, 8, 8)
    assert split.train.inputs.dtype == np.uint8
    assert split.train.inputs.max() == 16
    assert np.bincount(split.test.labels, minlength=10).min() >= 25


def test_scikit_learn_is_not_imported():
    pytest.importorskip("sklearn")
    code = "import sys, tacit.data; tacit.data.load('digits'); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_scikit_learn_the_message_says_so(monkeypatch):
    monkeypatch.setattr(images, "find_spec", lambda _: None)
    with pytest.raises(DataError, match=r"pip install 'tacit\[sklearn\]'"):
        load("digits", download=False)


def test_without_scikit_learn_a_copy_of_the_file_serves(monkeypatch, tmp_path):
    pytest.importorskip("sklearn")
    embedded = images.embedded_digits()
    assert embedded is not None
    shutil.copy(embedded / "digits.csv.gz", tmp_path)
    monkeypatch.setattr(images, "find_spec", lambda _: None)
    assert len(load("digits", tmp_path, download=False).train) == 1437


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "no rows of numbers"),
        ("1,2,3\n", "no rows of 64 values"),
        (f"{ROW},10\n", "a label past 9"),
        (f"17,{ROW}\n", "no rows of 64 values"),
        (f"-1,{ROW}\n", "no rows of 64 values"),
    ],
)
def test_a_damaged_file_is_refused(text, message):
    data = gzip.compress(text.encode() * 10)
    with pytest.raises(DataError, match=message):
        images.read_digits(iter([Contents("digits.csv.gz", data, True)]))
