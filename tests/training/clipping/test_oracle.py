"""The oracle and the table themselves: a wrong truth would make every other test worthless."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, vmap

from . import oracle
from .cases import TABLE, Case

BY_FUNCTION = ("mlp, in-place relu", "conv2d, groups", "layer norm, two dimensions", "siamese")


def test_names_are_told_apart():
    assert len({case.name for case in TABLE}) == len(TABLE) >= 60


@pytest.mark.parametrize("name", BY_FUNCTION)
def test_the_oracle_agrees_with_vectorised_gradients(name: str):
    (case,) = (case for case in TABLE if case.name == name)
    model = case.model().double()
    parameters = {key: p.detach() for key, p in model.named_parameters()}

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *row: torch.Tensor) -> torch.Tensor:
            return case.losses(self.model, *(x[None] for x in row))[0]

    def loss(values: dict[str, torch.Tensor], *row: torch.Tensor) -> torch.Tensor:
        return functional_call(Loss(), {f"model.{key}": v for key, v in values.items()}, row)

    inputs = oracle.doubled(case.batch())
    found = vmap(grad(loss), in_dims=(None, *(0 for _ in inputs)))(parameters, *inputs)
    flat = torch.cat([found[key].flatten(1) for key in oracle.truth(case).names], dim=1)
    torch.testing.assert_close(flat, oracle.truth(case).gradients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.slug)
def test_no_row_of_the_table_mixes_examples(case: Case):
    model, inputs = case.model().double(), oracle.doubled(case.batch())
    together = case.losses(model, *inputs)
    alone = [case.losses(model, *(x[i : i + 1] for x in inputs)) for i in range(case.rows)]
    assert together.shape == (case.rows,)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-10, atol=1e-12, equal_nan=True)


def test_a_unit_that_is_not_finite_releases_nothing():
    gradients = torch.tensor([[3.0, 4.0], [float("nan"), 1.0], [0.3, 0.4], [0.0, 0.0]])
    found = oracle.Truth(("w",), gradients.double()).contributions(1.0)
    wanted = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.3, 0.4], [0.0, 0.0]]).double()
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-7)
