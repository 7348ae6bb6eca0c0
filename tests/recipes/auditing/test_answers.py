"""What a model is asked: every row once, in evaluation mode, views where the recipe has some."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from tacit.errors import InvalidArgument
from tacit.recipes.auditing.answers import answers
from tacit.training import Plan, Prepared


def prepared(model: torch.nn.Module, *tensors: torch.Tensor, correct: Any = None) -> Prepared:
    data = TensorDataset(*tensors)
    plan = Plan(examples=len(data), lot_size=1, steps=1, noise_multiplier=1.0, clip=1.0)
    return Prepared(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), plan=plan,
        dataset=data, held_out=data, correct=correct,
    )  # fmt: skip


def test_every_row_is_answered_in_order() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.9))
    model.train()
    x, y = torch.randn(2500, 3), torch.zeros(2500, dtype=torch.int64)
    found = answers(model, prepared(model, x, y))
    assert found.shape == (2500, 1, 4)
    assert np.allclose(found[:, 0], model[0](x).detach().numpy(), atol=1e-6)
    assert model.training  # as it was


def test_views_of_an_example_come_one_after_the_other() -> None:
    model = torch.nn.Linear(2, 3)
    x, y = torch.randn(12, 2), torch.zeros(12, dtype=torch.int64)
    found = answers(model, prepared(model, x, y), views=4)
    assert found.shape == (3, 4, 3)
    assert np.allclose(found[1, 2], model(x[6]).detach().numpy(), atol=1e-6)


def test_a_recipe_with_its_own_rule_hands_views_itself() -> None:
    model = torch.nn.Linear(2, 3)
    x, y = torch.randn(5, 4, 2), torch.zeros(5, dtype=torch.int64)
    found = answers(model, prepared(model, x, y, correct=lambda *_: None))
    assert found.shape == (5, 4, 3)
    assert np.allclose(found[3, 1], model(x[3, 1]).detach().numpy(), atol=1e-6)


def test_batches_that_are_no_pairs() -> None:
    model = torch.nn.Linear(2, 3)
    with pytest.raises(InvalidArgument, match="batches are pairs"):
        answers(model, prepared(model, torch.randn(5, 2)))
