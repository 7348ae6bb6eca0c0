""""""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate

import tacit
from tacit.auditing.canaries.canary_dataset import (
    NOBODY,
    AxisDirections,
    CanaryCollate,
    CanaryDataset,
    Directions,
    SpreadDirections,
    canary_loss,
)
from tacit.auditing.canaries.white_box_run import CanaryScorer
from tacit.errors import InvalidArgument
from tacit.training import Automatic, Flat, PerLayer, Plan
from tacit.training.judging import default_loss

# ---- directions

WIDE = TensorDataset(torch.randn(6, 30), torch.tensor([0, 1, 0, 1, 1, 0]))
SIGNS = np.array([1.0, 0.0, -1.0], dtype=np.float32)


def quiet(clipping: object) -> Plan:
    return Plan(
        examples=9, lot_size=9, steps=4, noise_multiplier=1e-6, clip=0.3, clipping=clipping
    )  # fmt: skip


def totals(model: nn.Module, directions: Directions, plan: Plan, *, alone: bool) -> list[float]:
    """Of a run of the engine; ``alone`` leaves the user's losses out."""
    scorer = CanaryScorer(directions, plan, len(SIGNS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(scorer.note)
    users = (lambda model, batch: 0.0 * default_loss(model, batch)) if alone else default_loss
    losses = canary_loss(users, model, directions, plan)
    with tacit.private(
        model, [optimizer, *directions.optimizers()], plan, CanaryDataset(WIDE, SIGNS),
        collate=CanaryCollate(default_collate),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            dp.accumulate(lot, losses)
            dp.step()
    return scorer.totals.tolist()


@pytest.mark.parametrize("clipping", [Flat(), Automatic(stability=0.1)])
def test_on_axes_the_engine_brings_each_to_the_clip_by_itself(clipping: object) -> None:
    axes = AxisDirections(3, torch.device("cpu"))
    found = totals(nn.Linear(30, 2), axes, quiet(clipping), alone=False)
    assert found == pytest.approx([4.0, 0.0, -4.0], rel=2e-3, abs=1e-4)
    (vector,) = axes.optimizers()[0].param_groups[0]["params"]
    assert not vector.any()  # it is never moved


@pytest.mark.parametrize("clipping", [Flat(), Automatic(stability=0.1), PerLayer()])
def test_spread_directions_in_the_models_own_parameters(clipping: object) -> None:
    model, plan = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 2)), quiet(clipping)
    spread = SpreadDirections(3, dict(model.named_parameters()), plan, seed=1)
    parts = torch.cat(spread._parts, dim=1).double()
    products = parts @ parts.T
    assert products.diagonal().tolist() == pytest.approx([1.0] * 3, rel=1e-5)
    signs = torch.from_numpy(SIGNS).double()
    expected = 4.0 * products @ signs  # what others add along a direction counts
    found = totals(model, spread, plan, alone=True)
    assert found == pytest.approx(expected.tolist(), rel=2e-3, abs=5e-3)


def test_a_seed_draws_the_same_directions() -> None:
    parameters, plan = dict(nn.Linear(30, 2).named_parameters()), quiet(Flat())
    first, again, other = (SpreadDirections(3, parameters, plan, seed) for seed in (1, 1, None))
    assert torch.equal(first._parts[0], again._parts[0])
    assert not torch.equal(first._parts[0], other._parts[0])


def test_too_many_numbers_are_refused() -> None:
    parameters = dict(nn.Linear(1000, 1000).named_parameters())
    with pytest.raises(InvalidArgument, match="axes"):
        SpreadDirections(5000, parameters, quiet(Flat()), seed=1)


# ---- beside

DATA = TensorDataset(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 1, 0]))


def test_canaries_come_after_the_data() -> None:
    rows = CanaryDataset(DATA, np.array([1.0, 0.0, 1.0], dtype=np.float32))
    assert len(rows) == 9
    assert [rows[at][1:] for at in (0, 5, 6, 7, 8)] == [
        (NOBODY, 0.0), (NOBODY, 0.0), (0, 1.0), (1, 0.0), (2, 1.0),
    ]  # fmt: skip
    assert torch.equal(rows[7][0][0], DATA[1][0])


def test_more_canaries_than_data() -> None:
    rows = CanaryDataset(DATA, np.ones(20, dtype=np.float32))
    assert rows[25][1] == 19


def test_a_row_has_the_users_loss_or_the_canarys_own() -> None:
    plan = Plan(examples=9, lot_size=9, steps=1, noise_multiplier=1.0, clip=0.5)
    model, axes = nn.Linear(3, 2), AxisDirections(3, torch.device("cpu"))
    (vector,) = axes.optimizers()[0].param_groups[0]["params"]
    vector.data.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    rows = CanaryDataset(DATA, np.array([1.0, 0.0, -1.0], dtype=np.float32))
    batch = CanaryCollate(default_collate)([rows[at] for at in (2, 6, 7, 8)])
    losses = canary_loss(default_loss, model, axes, plan)(batch)
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
    axes = AxisDirections(1, torch.device("cpu"))
    (vector,) = axes.optimizers()[0].param_groups[0]["params"]
    vector.data.fill_(1.0)
    batch = CanaryCollate(default_collate)([CanaryDataset(DATA, np.ones(1, dtype=np.float32))[6]])
    losses = canary_loss(default_loss, nn.Linear(3, 2), axes, plan)(batch)
    assert losses.tolist() == [3072.0]
