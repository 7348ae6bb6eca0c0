"""Sizes of physical batches: few shapes, never above the limit, and halves when memory is short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tacit.training.batches import Batch, BatchSizer

from .sessions import plan


def sizer(batch: Any = "auto", *, padded: bool = False, **changed: Any) -> BatchSizer:
    given = {"examples": 60_000, "lot_size": 600} | changed
    return BatchSizer(plan(**given), batch, torch.device("cpu"), padded=padded)


@pytest.mark.parametrize("batch", [1, 3, 8, 64, 100, 1024])
@pytest.mark.parametrize("per_unit", [1, 2, 7])
def test_a_given_size_is_kept(batch: int, per_unit: int) -> None:
    units = sizer(batch).units(per_unit)
    assert units == 1 or units * per_unit <= batch
    assert units >= 1


def test_lots_are_cut_evenly() -> None:
    """A lot of 698, four deviations above 600, in batches of at most 512: two of 352, not 512."""
    assert sizer(512).units(1) == 352
    assert sizer(1024).units(1) == 704


def test_a_full_batch_is_not_rounded() -> None:
    assert sizer(1024, examples=700, lot_size=700).units(1) == 700
    assert sizer(600, examples=700, lot_size=700).units(1) == 350


def test_padding_fills_up_to_one_size() -> None:
    assert sizer(512).padded_to(17, 352) == 17
    filled = sizer(512, padded=True)
    assert {filled.padded_to(units, 352) for units in (1, 17, 352)} == {352}


def of_size(units: int, per_unit: int) -> Batch:
    none = np.empty(0, dtype=np.int64)
    return Batch(none, none, np.empty(0, dtype=np.float32), per_unit, units)


@pytest.mark.parametrize("per_unit", [1, 3])
def test_memory_that_runs_out_halves_until_one_unit_is_left(per_unit: int) -> None:
    one = sizer(512 * per_unit)
    sizes = []
    units = one.units(per_unit)
    while one.shrink(of_size(units, per_unit)):
        assert one.units(per_unit) <= units // 2
        units = one.units(per_unit)
        sizes.append(units)
    assert sizes[-1] == 1
    assert len(sizes) < 12
    assert one.units(per_unit) == 1


class Memory:
    """A device with room for so many rows, of which a batch takes its own."""

    def __init__(self, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.peak, size = 0, 1000
        answers: dict[str, Any] = {
            "reset_peak_memory_stats": lambda _: None,
            "memory_allocated": lambda _: 0,
            "memory_reserved": lambda _: 0,
            "max_memory_allocated": lambda _: self.peak * size,
            "mem_get_info": lambda _: (rows * size, rows * size),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, answer)


@pytest.mark.parametrize("per_unit", [1, 4])
@pytest.mark.parametrize("room", [40, 500, 900, 1500, 3000, 10**6])
def test_the_largest_batch_that_fits_is_soon_known(
    room: int, per_unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lot that fits whole left no batch full, was measured for ever, and never recorded."""
    memory = Memory(room * per_unit, monkeypatch)
    found = BatchSizer(
        plan(examples=60_000, lot_size=600), "auto", torch.device("cuda"), padded=True
    )
    for lot in (590, 610, 600):
        left = lot
        while left:
            units = min(left, found.units(per_unit))
            found.before()
            memory.peak = units * per_unit
            found.after(of_size(units, per_unit)._replace(rows=np.zeros(memory.peak, np.int64)))
            assert units <= room
            left -= units
    assert found.is_settled
    assert found.units(per_unit) <= room
    assert found.units(per_unit) >= min(700, 0.4 * room)
