"""The real sets, where there are any: numbers, first labels, and the time to load them.

They are looked for in the folder that ``real_data`` names.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from tacit.data import load
from tacit.data.adult import LONGEST_ROW
from tacit.data.sets import SETS, find

from ..real_data import FOLDER

FIRST_LABELS = {
    "mnist": [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
    "fashion": [9, 0, 0, 3, 0, 2, 7, 2, 5, 5],
    "cifar10": [6, 9, 9, 4, 1, 1, 2, 7, 8, 3],
    "svhn": [1, 9, 2, 3, 2, 5, 9, 3, 3, 1],
    "adult": [0, 0, 0, 0, 0, 0, 0, 1, 1, 1],
}
COUNTS = {  # of each class among the training examples, as published
    "mnist": [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    "fashion": [6000] * 10,
    "cifar10": [5000] * 10,
    "svhn": [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
    "adult": [24720, 7841],
}
SHAPES = {
    "mnist": (60_000, 1, 28, 28),
    "fashion": (60_000, 1, 28, 28),
    "cifar10": (50_000, 3, 32, 32),
    "svhn": (73_257, 3, 32, 32),
    "adult": (32_561, 104),
}


def real(name: str):
    if not FOLDER.is_dir() or find(SETS[name], (FOLDER,)) is None:
        pytest.skip(f"{name} is not in {FOLDER}; set TACIT_DATA to a folder that has it")
    # The SVHN that developers have is a rebuilt one: its counts and labels are the published ones.
    return load(name, FOLDER, download=False, unverified=name == "svhn")


@pytest.mark.parametrize("name", SHAPES)
def test_the_published_numbers(name):
    split = real(name)
    assert split.train.inputs.shape == SHAPES[name]
    assert (len(split.train), len(split.test)) == SETS[name].examples
    assert split.train.labels[:10].tolist() == FIRST_LABELS[name]
    assert np.bincount(split.train.labels).tolist() == COUNTS[name]
    if name != "svhn":
        assert not any("unverified" in found for found in split.files.values())


def test_mean_and_deviation_of_mnist_are_the_known_ones():
    """The two numbers that everyone normalises MNIST by."""
    pixels = real("mnist").train.inputs / np.float32(255)
    assert pixels.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert pixels.std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)


def test_means_of_the_colours_of_cifar10_are_the_known_ones():
    means = real("cifar10").train.inputs.mean((0, 2, 3)) / 255
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)


def test_nobody_in_adult_is_longer_than_promised():
    split = real("adult")
    for part in (split.train, split.test):
        assert np.linalg.norm(part.inputs, axis=1).max() <= LONGEST_ROW
        assert part.inputs.min() >= 0.0
        assert part.inputs.max() <= 1.0
    assert split.test.labels.mean() == pytest.approx(0.2362, abs=5e-5)


def test_sentences():
    split = real("sst2")
    assert (len(split.train), len(split.test)) == SETS["sst2"].examples
    assert split.test.inputs[0] == "it 's a charming and often affecting journey ."
    assert split.test.labels[0] == 1
    assert split.test.labels.sum() == 444  # of 872
    assert all(isinstance(text, str) and text == text.strip() for text in split.train.inputs)


def test_messages():
    split = real("sms")
    assert (len(split.train), len(split.test)) == SETS["sms"].examples
    assert split.train.labels.sum() + split.test.labels.sum() == 747
    assert split.train.labels.mean() == pytest.approx(split.test.labels.mean(), abs=0.02)


def test_shakespeare():
    split = real("shakespeare")
    assert (len(split.train), len(split.test)) == SETS["shakespeare"].examples
    assert bytes(split.train.inputs[0]).startswith(b"First Citizen:\nBefore we proceed any further")
    assert len(np.unique(split.train.inputs)) == 65


def test_speeches():
    split = real("speeches")
    assert (len(split.train), len(split.test)) == SETS["speeches"].examples
    assert split.train.inputs[0].startswith("First Citizen:\nBefore we proceed any further")
    labels = np.concatenate([split.train.labels, split.test.labels])
    assert labels.max() + 1 == len(split.classes)
    texts = [*split.train.inputs, *split.test.inputs]
    said = {
        label: text.partition("\n")[0].rstrip(":")
        for label, text in zip(labels, texts, strict=True)
    }
    names = {" ".join(name.casefold().split()) for name in said.values()}
    assert len(names) == len(said)  # a number stands for one name, however that is written


@pytest.mark.parametrize(("name", "seconds"), [("mnist", 1.0), ("fashion", 2.0), ("cifar10", 5.0)])
def test_loading_is_quick(name, seconds):
    """CPU time of this thread, so that busy neighbours do not count against it."""
    real(name)  # brings the files into memory, as the first reading does
    start = time.thread_time()
    real(name)
    assert time.thread_time() - start < seconds
