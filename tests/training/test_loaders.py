"""Loaders: the rows that were asked for, in order, by whichever way suits the data."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from tacit.errors import InvalidArgument
from tacit.training.loaders import InProcess, InWorkers, OnDevice, check_once, make_loader

CPU = torch.device("cpu")


class Where(Dataset[Any]):
    """Each example is its own number and the process that loaded it."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        return {"index": index, "process": os.getpid()}


def parts(*rows: list[int]) -> list[Any]:
    return [np.array(each, dtype=np.int64) for each in rows]


def test_the_way_follows_from_the_data() -> None:
    tensors = TensorDataset(torch.arange(5))
    assert isinstance(make_loader(tensors, CPU, None, 0, pin_memory=False), OnDevice)
    assert isinstance(make_loader(tensors, CPU, list, 0, pin_memory=False), InProcess)
    assert isinstance(make_loader(Where(), CPU, None, 0, pin_memory=False), InProcess)
    assert isinstance(make_loader(Where(), CPU, None, 2, pin_memory=False), InWorkers)


class Reversed(TensorDataset):
    """Chooses its rows itself, as data sets do that leave some out."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(len(self) - 1 - index)


def test_rows_are_those_of_the_data_set_and_not_of_its_tensors() -> None:
    loader = make_loader(Reversed(torch.arange(5)), CPU, None, 0, pin_memory=False)
    ((rows,),) = loader.batches(parts([0, 1]))
    assert rows.tolist() == [4, 3]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_with_any_row_any_number_of_times(workers: int) -> None:
    loader = make_loader(Where(), CPU, None, workers, pin_memory=False)
    for _ in range(2):  # workers live from lot to lot
        wanted = [[3, 1], [4], [1, 5, 9, 2, 2], [0]]
        got = [batch["index"].tolist() for batch in loader.batches(parts(*wanted))]
        assert got == wanted
    assert list(loader.batches([])) == []


def test_workers_load_ahead_and_share_the_work() -> None:
    loader = make_loader(Where(), CPU, None, 2, pin_memory=False)
    asked = parts(*[[at] for at in range(8)])
    loaders = {int(b["process"]) for b in loader.batches(asked)}
    assert len(loaders) == 2
    assert os.getpid() not in loaders


def test_workers_left_in_the_middle_start_again_cleanly() -> None:
    loader = make_loader(Where(), CPU, None, 2, pin_memory=False)
    batches = loader.batches(parts(*[[at] for at in range(8)]))
    assert next(batches)["index"].tolist() == [0]
    batches.close()  # type: ignore[attr-defined]
    got = [b["index"].tolist() for b in loader.batches(parts([7, 8], [9]))]
    assert got == [[7, 8], [9]]


TABLE = TensorDataset(torch.arange(12))


@pytest.mark.parametrize(
    ("dataset", "groups"),
    [
        (Subset(TABLE, range(12)), None),
        (Subset(Subset(TABLE, [3, 3, 4]), [0, 2]), None),
        (ConcatDataset([Subset(TABLE, [0, 1]), Subset(TABLE, [2, 3])]), None),
        (TABLE + TensorDataset(torch.arange(12)), None),
        (Subset(ConcatDataset([TABLE, TABLE]), [0, 13]), None),
        (Subset(TABLE, [0, 0, 1]), ["Ann", "Ann", "Ben"]),
        (Subset(TABLE, []), None),
        (ConcatDataset([TensorDataset(TABLE.tensors[0][at::2]) for at in (0, 1)]), None),
        (ConcatDataset([TensorDataset(torch.zeros(1, 2).expand(3, 2)), TABLE]), None),
    ],
)
def test_selections_that_hold_an_example_once(dataset: Any, groups: Any) -> None:
    check_once(dataset, groups)


@pytest.mark.parametrize(
    ("dataset", "groups"),
    [
        (Subset(TABLE, [0] * 10), None),
        (Subset(TABLE, [-1, 11]), None),
        (Subset(Subset(TABLE, [3, 3, 4]), [0, 1]), None),
        (ConcatDataset([TABLE, TABLE]), None),
        (ConcatDataset([Subset(TABLE, [0, 1]), Subset(TABLE, [1, 3])]), None),
        (Subset(ConcatDataset([TABLE, TABLE]), [-24, 12]), None),
        (ConcatDataset([TABLE, TensorDataset(*(one[3:5] for one in TABLE.tensors))]), None),
        (Subset(TABLE, [0, 0, 1]), ["Ann", "Ben", "Ben"]),
    ],
)
def test_an_example_twice_is_refused_as_two_units(dataset: Any, groups: Any) -> None:
    with pytest.raises(InvalidArgument, match="must hold every example once"):
        check_once(dataset, groups)


def test_tensors_on_the_device_are_indexed_there() -> None:
    x, y = torch.arange(12.0).view(6, 2), torch.arange(6)
    loader = OnDevice((x, y))
    ((some_x, some_y),) = loader.batches(parts([4, 1, 4]))
    assert torch.equal(some_x, x[[4, 1, 4]])
    assert torch.equal(some_y, y[[4, 1, 4]])
    ((all_x, _),) = loader.batches(parts(list(range(6))))
    assert all_x.data_ptr() == x.data_ptr()  # the whole is no copy
    ((other, _),) = loader.batches(parts([1, 0, 2, 3, 4, 5]))
    assert other.data_ptr() != x.data_ptr()
    assert torch.equal(other, x[[1, 0, 2, 3, 4, 5]])


def test_tensors_that_lie_elsewhere_are_noticed() -> None:
    """A recorded step reads them where they lay."""
    x = torch.arange(12.0).view(4, 3)
    loader = OnDevice((x,))
    loader.check_unchanged()
    x.data = x.data.clone()
    with pytest.raises(InvalidArgument, match="data set was changed"):
        loader.check_unchanged()
