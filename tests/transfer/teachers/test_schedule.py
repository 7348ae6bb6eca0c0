"""A teacher's steps: from its own size, its number and a public seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import InvalidArgument
from tacit.transfer.teachers.schedule import TeacherSchedule, made, pixels

PLAN = TeacherSchedule(epochs=3, batch_size=4, lr=0.1, weight_decay=0.0, seed=5)


@pytest.mark.parametrize(("size", "steps"), [(0, 0), (1, 3), (4, 3), (5, 6), (11, 9)])
def test_an_epoch_shows_every_record(size: int, steps: int) -> None:
    batches = list(PLAN.batches(2, size))
    assert len(batches) == PLAN.steps(size) == steps
    assert all(len(batch) == 4 for batch in batches)
    for epoch in range(3 if size else 0):
        own = batches[epoch * steps // 3 : (epoch + 1) * steps // 3]
        assert sorted(set(np.concatenate(own).tolist())) == list(range(size))


def test_teachers_have_orders_and_weights_of_their_own_that_can_be_repeated() -> None:
    first = [np.stack(list(PLAN.batches(teacher, 40))) for teacher in (0, 1, 0)]
    assert (first[0] != first[1]).any()
    np.testing.assert_array_equal(first[0], first[2])
    weights = [made(lambda: nn.Linear(3, 2), PLAN, teacher).weight for teacher in (0, 1, 0)]
    assert (weights[0] != weights[1]).any()
    assert (weights[0] == weights[2]).all()


def test_torchs_random_state_is_neither_read_nor_moved() -> None:
    torch.manual_seed(1)
    first = made(lambda: nn.Linear(3, 2), PLAN, 0).weight
    after = torch.rand(2)
    torch.manual_seed(1)
    assert (torch.rand(2) == after).all()
    torch.manual_seed(2)
    assert (made(lambda: nn.Linear(3, 2), PLAN, 0).weight == first).all()


def test_uint8_are_pixels() -> None:
    assert pixels(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx(
        [0.0, 0.2, 1.0]
    )
    rows = torch.rand(3)
    assert pixels(rows) is rows


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    layer = nn.Linear(3, 2)
    layer.scaled = layer.weight * 2.0  # as the old weight_norm keeps it
    with pytest.raises(InvalidArgument, match=r"copy\.deepcopy can copy.*got Linear"):
        made(lambda: layer, PLAN, 0)
