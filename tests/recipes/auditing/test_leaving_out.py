"""A record that is left out adds exactly nothing, whatever it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import tacit
from tacit.recipes.auditing.leaving_out import without

ROWS = 20
OUT = np.arange(ROWS) == 7


class Plain(Dataset[Any]):
    """The same rows, one by one."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[torch.Tensor, ...]:
        return tuple(one[row] for one in self.tensors)


def rows(strange: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(ROWS, 3, generator=draw), torch.randint(2, (ROWS,), generator=draw)
    if strange is not None:
        x[strange], y[strange] = 1e4, 1 - y[strange]
    return x, y


def trained(dataset: Dataset[Any], left_out: Any, views: int = 1) -> torch.Tensor:
    """The weights after three noisy steps, all chance fixed."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    plan = tacit.Plan(
        examples=ROWS, lot_size=10, steps=3, noise_multiplier=1.0, clip=1.0, views=views
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    prepared = tacit.Prepared(model=model, optimizer=optimizer, plan=plan, dataset=dataset)
    prepared = without(prepared, left_out)
    with tacit.private(
        model, optimizer, plan, prepared.dataset, collate=prepared.collate, unsafe_seed=1
    ) as dp:
        for lot in dp.lots():
            assert prepared.loss is not None
            for batch in lot:
                dp.backward(prepared.loss(model, batch))
            dp.step()
    return model.weight.detach().clone()


@pytest.mark.parametrize("kind", [TensorDataset, Plain])
@pytest.mark.parametrize("views", [1, 2])
def test_what_a_left_out_record_holds_does_not_matter(kind: Any, views: int) -> None:
    usual = trained(kind(*rows(None)), OUT, views)
    assert torch.equal(usual, trained(kind(*rows(7)), OUT, views))
    assert not torch.equal(usual, trained(kind(*rows(8)), OUT, views))


def test_it_matters_if_it_is_in() -> None:
    everyone = np.zeros(ROWS, dtype=bool)
    whole = trained(TensorDataset(*rows(None)), everyone)
    assert not torch.equal(whole, trained(TensorDataset(*rows(7)), everyone))
    assert not torch.equal(whole, trained(TensorDataset(*rows(None)), OUT))


def test_losses_of_the_others_are_as_they_were() -> None:
    data = TensorDataset(*rows(None))
    model = torch.nn.Linear(3, 2)
    plan = tacit.Plan(examples=ROWS, lot_size=10, steps=3, noise_multiplier=1.0, clip=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    prepared = tacit.Prepared(model=model, optimizer=optimizer, plan=plan, dataset=data)
    changed = without(prepared, OUT)
    assert changed.loss is not None
    found = changed.loss(model, changed.dataset[:])
    x, y = data.tensors
    expected = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    expected[7] = 0.0
    assert torch.equal(found, expected)
    assert len(changed.dataset) == ROWS  # type: ignore[arg-type]
