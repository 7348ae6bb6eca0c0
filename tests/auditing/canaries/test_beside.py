from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate

from tacit.auditing.canaries.beside import NOBODY, Beside, BesideCollate, beside_loss
from tacit.auditing.canaries.directions import Axes
from tacit.training import Automatic, Plan
from tacit.training.judging import default_loss

DATA = TensorDataset(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 1, 0]))


def test_canaries_come_after_the_data() -> None:
    rows = Beside(DATA, np.array([1.0, 0.0, 1.0], dtype=np.float32))
    assert len(rows) == 9
    assert [rows[at][1:] for at in (0, 5, 6, 7, 8)] == [
        (NOBODY, 0.0), (NOBODY, 0.0), (0, 1.0), (1, 0.0), (2, 1.0),
    ]  # fmt: skip
    assert torch.equal(rows[7][0][0], DATA[1][0])


def test_more_canaries_than_data() -> None:
    rows = Beside(DATA, np.ones(20, dtype=np.float32))
    assert rows[25][1] == 19


def test_a_row_has_the_users_loss_or_the_canarys_own() -> None:
    plan = Plan(examples=9, lot_size=9, steps=1, noise_multiplier=1.0, clip=0.5)
    model, axes = nn.Linear(3, 2), Axes(3, torch.device("cpu"))
    (vector,) = axes.optimizers()[0].param_groups[0]["params"]
    vector.data.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    rows = Beside(DATA, np.array([1.0, 0.0, -1.0], dtype=np.float32))
    batch = BesideCollate(default_collate)([rows[at] for at in (2, 6, 7, 8)])
    losses = beside_loss(default_loss, model, axes, plan)(batch)
    x, y = DATA[2]
    assert torch.allclose(losses[:1], nn.functional.cross_entropy(model(x[None]), y[None]))
    assert losses[1:].tolist() == [512.0, 0.0, -1536.0]
    # Of a canary nothing reaches the model, of the user's row nothing the canaries.
    losses[1:].sum().backward()
    assert not any(parameter.grad.any() for parameter in model.parameters())
    assert vector.grad.flatten().tolist() == [512.0, 0.0, -512.0]


def test_a_gradient_is_far_above_what_steadies_automatic_clipping() -> None:
    plan = Plan(
        examples=9, lot_size=9, steps=1, noise_multiplier=1.0, clip=0.5,
        clipping=Automatic(stability=3.0),
    )  # fmt: skip
    axes = Axes(1, torch.device("cpu"))
    (vector,) = axes.optimizers()[0].param_groups[0]["params"]
    vector.data.fill_(1.0)
    batch = BesideCollate(default_collate)([Beside(DATA, np.ones(1, dtype=np.float32))[6]])
    losses = beside_loss(default_loss, nn.Linear(3, 2), axes, plan)(batch)
    assert losses.tolist() == [3072.0]
