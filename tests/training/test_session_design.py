"""The code in the design and in the manual runs as it stands, on small data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import tacit
from tacit.errors import InvalidArgument

from .sessions import data, network, plan, sgd


def test_the_example_of_the_design() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 20, generator=generator)
    dataset = TensorDataset(x, (x[:, 0] > 0).long())
    model = nn.Linear(20, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    plan = tacit.Plan.for_budget(
        epsilon=8, delta=1e-5, examples=600, lot_size=60, epochs=2, clip=1.0
    )
    with tacit.private(model, optimizer, plan, dataset, budget=None) as dp:
        for lot in dp.lots():  # a Poisson sample; may be empty, still costs a step and noise
            for x, y in lot:  # physical batches, sized to memory
                dp.backward(F.cross_entropy(model(x), y, reduction="none"))
            dp.step()  # noise, optimizer.step(), clears the sums
    assert dp.spent(delta=1e-5) == pytest.approx(8.0, rel=1e-6)
    assert dp.spent(delta=1e-5) <= 8.0
    assert "linear" in dp.explain()
    assert dp.statement(delta=1e-5).epsilon <= 8.0
    assert dp.steps_taken == plan.steps == 20
    with torch.no_grad():
        right = (model(dataset.tensors[0]).argmax(1) == dataset.tensors[1]).float().mean()
    assert float(right) > 0.7


def test_private_training_learns_what_public_training_learns() -> None:
    """With next to no noise and a wide clip, a step is a step of ordinary SGD."""
    model, twin = network(), network()
    dataset = data()
    optimizer, other = sgd(model), sgd(twin)
    chosen = plan(lot_size=40, clip=1e3, noise_multiplier=1e-10, steps=20)
    with tacit.private(model, optimizer, chosen, dataset) as dp:
        for lot in dp.lots():
            for x, y in lot:
                dp.backward(F.cross_entropy(model(x), y, reduction="none"))
            dp.step()
    for _ in range(20):
        other.zero_grad()
        F.cross_entropy(twin(dataset.tensors[0]), dataset.tensors[1]).backward()
        other.step()
    for one, two in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "statement",
    [
        lambda dp: dp.backward(torch.zeros(3, requires_grad=True)),
        lambda dp: dp.step(),
        lambda dp: next(dp.lots()),
        lambda dp: dp.verify(lambda batch: batch),
        lambda dp: dp.public().__enter__(),
    ],
)
def test_nothing_happens_outside_the_context(statement: Any) -> None:
    model = network()
    dp = tacit.private(model, sgd(model), plan(), data())
    with pytest.raises(tacit.errors.ProtocolError, match="inside `with"):
        statement(dp)


def test_a_budget_is_one_of_a_ledger() -> None:
    model = network()
    with pytest.raises(InvalidArgument, match="budget must be a budget of a ledger"):
        tacit.private(model, sgd(model), plan(), data(), budget="ledger")  # type: ignore[arg-type]
