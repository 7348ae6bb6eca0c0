"""The records of a run, and their neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tacit import Plan
from tacit.auditing.replay import Setting
from tacit.auditing.replay.setting import chosen, filled_with, has_real_numbers, spare


def setting(groups: list[int] | None = None) -> Setting:
    users = {} if groups is None else {"unit": "user", "examples_per_user": 2}
    plan = Plan(
        examples=9 if groups is None else len(set(groups)), lot_size=2, steps=3,
        noise_multiplier=1.0, clip=1.0, **users,  # type: ignore[arg-type]
    )  # fmt: skip
    data = TensorDataset(torch.arange(9.0))
    return Setting(
        model=lambda: nn.Linear(1, 1), loss=lambda m, b: m(b[0]), dataset=data, plan=plan,
        groups=groups,
    )  # fmt: skip


def test_the_first_units_are_chosen_with_all_of_their_examples() -> None:
    assert chosen(setting(), 4).examples.tolist() == [0, 1, 2, 3]
    assert chosen(setting(), 40).count == 9
    users = chosen(setting([5, 3, 5, 9, 3, 9, 9, 1, 1]), 3)
    assert users.units.tolist() == [2, 1, 2, 1, 0, 0]
    assert users.examples.tolist() == [0, 1, 2, 4, 7, 8]


def test_a_user_has_no_more_examples_than_the_cap_unless_asked() -> None:
    one = setting([0, 0, 1, 0, 1, 2, 2, 2, 2])  # of two examples at a time
    assert chosen(one, 9).examples.tolist() == [0, 1, 2, 4, 5, 6]
    assert chosen(one, 9, capped=False).examples.tolist() == list(range(9))


def test_a_neighbour_lacks_the_last_unit() -> None:
    records = chosen(setting([5, 3, 5, 9, 3, 9, 9, 1, 1]), 3)
    assert records.without(2).examples.tolist() == [1, 4, 7, 8]
    with pytest.raises(ValueError, match="last"):
        records.without(0)


def test_a_unit_is_replaced_by_one_that_is_not_there() -> None:
    one = setting([5, 3, 5, 9, 3, 9, 9, 1, 1])
    records = chosen(one, 3)
    other = records.replaced(2, spare(one, records))
    assert other.examples.tolist() == [3, 1, 5, 4, 7, 8]
    assert np.array_equal(other.units, records.units)
    plain = chosen(setting(), 4)
    assert spare(setting(), plain).tolist() == [4]
    assert spare(setting(), chosen(setting(), 9)).tolist() == [0]


def test_real_numbers_are_filled_and_others_stay() -> None:
    example = {"x": torch.ones(2), "y": 3, "z": np.ones(2), "w": 1.5, "label": torch.tensor(4)}
    filled = filled_with(math.nan)(example)
    assert filled["x"].isnan().all()
    assert np.isnan(filled["z"]).all()
    assert math.isnan(filled["w"])
    assert filled["y"] == 3
    assert int(filled["label"]) == 4
    assert has_real_numbers(example)
    assert not has_real_numbers((torch.tensor([1, 2]), 3))
