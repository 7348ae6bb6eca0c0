"""The records in one place, and the part that some teachers are trained on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tacit.errors import InvalidArgument
from tacit.transfer.teachers.records import part, read, rows_by_teacher

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = np.array([0, 1, 2, 0, 1, 2])


class Pairs(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(ROWS[row]), int(LABELS[row])


class Ragged(Pairs):
    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(3 if row == 4 else 2), 0


def test_a_record_of_no_class_is_as_if_it_were_not_there() -> None:
    for label in (-1, 3, 2**40):
        labels = LABELS.copy()
        labels[4] = label
        found = read((ROWS, labels), 3, groups=[9, 4, 9, 4, 4, 7])
        assert found.labels.tolist() == [0, 1, 2, 0, 2]
        assert found.inputs.tolist() == np.delete(ROWS, 4, axis=0).tolist()
        assert (found.units, found.owners.tolist()) == (3, [2, 0, 2, 0, 1])


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8])
def test_labels_are_whole_numbers_of_any_kind(kind: type[np.integer[Any]]) -> None:
    assert read((ROWS, LABELS.astype(kind)), 3).labels.tolist() == LABELS.tolist()
    huge = np.full(len(ROWS), 2**64 - 1, dtype=np.uint64)
    assert len(read((ROWS, huge), 3).labels) == 0


@pytest.mark.parametrize(
    "dataset",
    [
        (ROWS, LABELS),
        (ROWS.tolist(), LABELS.tolist()),
        TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(LABELS)),
        Pairs(),
    ],
)
def test_all_forms_of_a_data_set_are_read_alike(dataset: object) -> None:
    found = read(dataset, 3)
    torch.testing.assert_close(found.inputs, torch.from_numpy(ROWS))
    assert found.labels.tolist() == LABELS.tolist()
    assert (found.units, found.owners.tolist()) == (6, [0, 1, 2, 3, 4, 5])


class Reversed(TensorDataset):
    """Chooses its rows itself, as data sets do that leave some out."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(len(self) - 1 - index)


def test_rows_are_those_of_the_data_set_and_not_of_its_tensors() -> None:
    found = read(Reversed(torch.from_numpy(ROWS), torch.from_numpy(LABELS)), 3)
    assert found.labels.tolist() == LABELS.tolist()[::-1]


def test_an_array_that_cannot_be_written_to_is_read() -> None:
    fixed = ROWS.copy()
    fixed.setflags(write=False)
    assert read((fixed, LABELS), 3).inputs.shape == (6, 2)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ((ROWS, LABELS[:5]), "one label for each"),
        ((ROWS[:0], LABELS[:0]), "one or more"),
        # No record's number or shape is told, which are private.
        (Ragged(), "of one shape and type; bring them to one first$"),
        ((ROWS, LABELS / 2), "whole numbers"),
        ((["a"], [0]), "inputs must be an array of numbers"),
        (
            ([[1.0], [2.0, 71.0]], [0, 1]),
            "inputs must be an array of numbers, each row of the same",
        ),
        ((ROWS, [0, 1, 2, 0, 1, 10**400]), "labels must be an array of numbers"),
        (DataLoader(Pairs()), "pass loader.dataset"),
        (ROWS, "got ndarray"),
        (7, "got int"),
    ],
)
def test_other_things_are_refused(dataset: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read(dataset, 3)


def test_a_part_holds_its_teachers_records_and_no_others() -> None:
    records = read((ROWS, LABELS), 3)
    rows = rows_by_teacher(records, np.array([2, 0, 2, 0, 0, 3]), 5)
    assert [one.tolist() for one in rows] == [[1, 3, 4], [], [0, 2], [5], []]
    found = part(records, rows, (2, 4, 3))
    assert found.sizes.tolist() == [2, 0, 1]
    assert found.starts.tolist() == [0, 2, 2]
    assert found.inputs.tolist() == ROWS[[0, 2, 5]].tolist()
    assert [found.of(place)[1].tolist() for place in range(3)] == [[0, 2], [], [2]]


class Distorted(Dataset[Any]):
    """A data set whose transform draws from the states that everybody shares."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        drawn = torch.rand(()).item() + np.random.rand() + random.random()  # noqa: NPY002
        return torch.from_numpy(self.rows[place]) + drawn, 0


def test_a_random_transform_gives_a_record_the_same_whoever_else_is_there() -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - as scripts do, and then what comes next is known
    random.seed(0)
    all_of_them = read(Distorted(ROWS), 3).inputs
    after = torch.rand(())
    torch.manual_seed(0)
    assert after == torch.rand(())
    assert torch.equal(read(Distorted(ROWS[1:]), 3).inputs, all_of_them[1:])


def test_rows_of_one_group_stay_together() -> None:
    records = read((ROWS, LABELS), 3, groups=[9, 4, 9, 4, 4, 7])
    assert (records.units, records.owners.tolist()) == (3, [2, 0, 2, 0, 0, 1])
    rows = rows_by_teacher(records, np.array([1, 1, 0]), 2)
    assert [one.tolist() for one in rows] == [[0, 2], [1, 3, 4, 5]]
    with pytest.raises(InvalidArgument, match="the group of each record") as refused:
        read((ROWS, LABELS), 3, groups=[1, 2])
    assert "6" not in str(refused.value)  # how many there are is protected
    with pytest.raises(InvalidArgument, match="groups must be of one type"):
        read((ROWS, LABELS), 3, groups=np.array([1, 2, "x", 3, 4, 5], dtype=object))


def test_the_digest_tells_any_change() -> None:
    first = read((ROWS, LABELS), 3).digest()
    other = ROWS.copy()
    other[5, 1] += 1e-5
    assert first == read((ROWS.copy(), LABELS.copy()), 3).digest()
    assert first != read((other, LABELS), 3).digest()
    assert first != read((ROWS, LABELS[::-1].copy()), 3).digest()
    assert first != read((ROWS.reshape(6, 1, 2), LABELS), 3).digest()
    assert first != read((ROWS, LABELS), 3, groups=[0, 0, 1, 2, 3, 4]).digest()
