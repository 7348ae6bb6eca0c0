"""CIFAR-10: all layouts hold the same images, and no pickle runs a program."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tacit.data import cifar, load
from tacit.data.contents import Contents
from tacit.errors import DataError

from .writing import (
    cifar_binary,
    cifar_pickle,
    cifar_pickle_of_python_2,
    cifar_rows,
    tar_gz,
)

ROWS = [cifar_rows(4, seed=seed) for seed in range(6)]


def of(data: bytes, *, verified: bool = True) -> Contents:
    return Contents("data_batch_1", data, verified)


def six(write) -> list[Contents]:
    return [of(write(*rows)) for rows in ROWS]


def archive(write, names) -> Contents:
    files = {name: write(*rows) for name, rows in zip(names, ROWS, strict=True)}
    return of(tar_gz({"other/readme.html": b"<html>"} | files))


LAYOUTS = {
    "binary": lambda: cifar.read_binary(six(cifar_binary)),
    "python": lambda: cifar.read_python(six(cifar_pickle)),
    "python 2": lambda: cifar.read_python(six(cifar_pickle_of_python_2)),
    "binary tar": lambda: cifar.read_binary_archive(iter([archive(cifar_binary, cifar.BINARY)])),
    "python tar": lambda: cifar.read_python_archive(iter([archive(cifar_pickle, cifar.PYTHON)])),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_holds_the_same_images(layout):
    train, test = LAYOUTS[layout]()
    assert (len(train), len(test)) == (20, 4)
    assert train.inputs.shape == (20, 3, 32, 32)
    assert (train.inputs.dtype, train.labels.dtype) == (np.uint8, np.int64)
    # Row 9 is image 1 of batch 3; its green value at (2, 5) is byte 1024 + 2 · 32 + 5 of the row.
    pixels, kinds = ROWS[2]
    assert train.inputs[9, 1, 2, 5] == pixels[1, 1024 + 2 * 32 + 5]
    assert train.labels[9] == kinds[1]
    np.testing.assert_array_equal(test.inputs.reshape(4, 3072), ROWS[5][0])
    np.testing.assert_array_equal(test.labels, ROWS[5][1])
    assert train.inputs.flags.writeable
    assert train.inputs.flags.c_contiguous


def test_the_pickles_that_the_tests_write_are_read_by_pickle_itself_too():
    for write in (cifar_pickle, cifar_pickle_of_python_2):
        batch = pickle.loads(write(*ROWS[0]), encoding="bytes")
        np.testing.assert_array_equal(batch[b"data"], ROWS[0][0])
        assert batch[b"labels"] == ROWS[0][1].tolist()


@pytest.mark.parametrize("folder", ["cifar10", "cifar-10-batches-bin", "."])
def test_binary_batches_are_found_in_a_folder(folder, tmp_path):
    (tmp_path / folder).mkdir(exist_ok=True)
    for batch, rows in zip(cifar.BATCHES, ROWS, strict=True):
        (tmp_path / folder / f"{batch}.bin").write_bytes(cifar_binary(*rows))
    split = load("cifar10", tmp_path, unverified=True)
    assert len(split.train) == 20
    assert split.classes[6] == "frog"
    assert set(split.files.values()) == {"unverified"}


def test_a_pickle_without_its_published_checksum_is_not_read(tmp_path):
    for batch, rows in zip(cifar.BATCHES, ROWS, strict=True):
        (tmp_path / batch).write_bytes(cifar_pickle(*rows))
    with pytest.raises(DataError, match="is not the published file: its md5 is"):
        load("cifar10", tmp_path)
    with pytest.raises(DataError, match="a pickle, which can run any program"):
        load("cifar10", tmp_path, unverified=True)


class Program:
    """Writes a file when it is unpickled by an unguarded reader."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


class Shell:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return (os.system, (self.command,))


def test_a_hostile_pickle_runs_nothing_even_if_its_checksum_matched(tmp_path):
    mark = tmp_path / "ran"
    for hostile in (Program(mark), Shell(f"touch {mark}")):
        data = pickle.dumps({b"data": hostile, b"labels": []}, protocol=2)
        pickle.loads(data)
        assert mark.exists()  # the attack is a real one
        mark.unlink()
        with pytest.raises(DataError, match="it names"):
            cifar.read_python([of(data)] * 6)
        assert not mark.exists()


def test_arrays_of_objects_and_of_other_kinds_are_refused():
    objects = np.array([b"anything"], dtype=object)
    for data in (objects, np.zeros((1, 3072)), np.zeros((1, 3071), np.uint8), b"bytes"):
        batch = pickle.dumps({b"data": data, b"labels": [0]}, protocol=2)
        with pytest.raises(DataError, match="is no batch of CIFAR-10"):
            cifar.read_python([of(batch)] * 6)


@pytest.mark.parametrize("data", [b"", b"no pickle", pickle.dumps([1, 2]), pickle.dumps({})])
def test_a_pickle_of_something_else_is_refused_in_a_line(data):
    with pytest.raises(DataError, match="is no batch of CIFAR-10") as refusal:
        cifar.read_python([of(data)] * 6)
    assert "\n" not in str(refusal.value)


def test_damaged_binary_batches_are_refused():
    pixels, kinds = ROWS[0]
    for data in (b"", cifar_binary(pixels, kinds)[:-1]):
        with pytest.raises(DataError, match="no whole rows of 3073 bytes"):
            cifar.read_binary([of(data)] * 6)
    with pytest.raises(DataError, match="rows or labels are missing"):
        cifar.read_binary([of(cifar_binary(pixels, kinds + 10))] * 6)
