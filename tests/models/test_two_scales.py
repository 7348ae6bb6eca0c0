"""The CNN of two scales: its sizes, and exact clipping by fast rules."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

import tacit
from tacit.errors import InvalidArgument
from tacit.models import TwoScaleCnn


@pytest.mark.parametrize(("places", "size"), [(7, 3), (8, 4)])
def test_it_has_the_parameters_of_its_layers(places: int, size: int) -> None:
    net = TwoScaleCnn(9, 5, size=size, width=4)
    wanted = (9 * 9 * 4 + 4) + ((4 + 5) * 9 * 4 + 4) + (4 * size**2 * 10 + 10)
    assert sum(one.numel() for one in net.parameters()) == wanted
    fine, coarse = torch.zeros(2, 9, places, places), torch.zeros(2, 5, size, size)
    assert net(fine, coarse).shape == (2, 10)


def test_private_training_takes_it_without_a_fallback() -> None:
    torch.manual_seed(0)
    net = TwoScaleCnn(6, 5, size=3, width=4)
    data = TensorDataset(torch.randn(20, 6, 7, 7), torch.randn(20, 5, 3, 3), torch.arange(20) % 10)
    plan = tacit.Plan(examples=20, lot_size=10, steps=2, noise_multiplier=1.0, clip=0.5)
    with tacit.private(net, torch.optim.SGD(net.parameters(), lr=0.1), plan, data) as dp:
        for lot in dp.lots():
            for fine, coarse, y in lot:
                dp.backward(tacit.losses.cross_entropy(net(fine, coarse), y))
            dp.step()
        assert "fallback" not in dp.explain()


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="coarse must be a whole number"):
        TwoScaleCnn(81, 0, size=3)
