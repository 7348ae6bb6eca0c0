"""The CNN on scattering maps: its sizes, and exact clipping by fast rules."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

import tacit
from tacit.errors import InvalidArgument
from tacit.models import MapCnn


@pytest.mark.parametrize("size", [3, 7])
def test_it_has_the_parameters_of_its_layers(size: int) -> None:
    net = MapCnn(9, size=size, width=4)
    wanted = (9 * 4 + 4) + (4 * size**2 * 10 + 10)
    assert sum(one.numel() for one in net.parameters()) == wanted
    assert net(torch.zeros(2, 9, size, size)).shape == (2, 10)


def test_it_begins_with_no_opinion() -> None:
    scores = MapCnn(5, size=3, width=4)(torch.randn(6, 5, 3, 3))
    assert torch.equal(scores, scores[:1].expand_as(scores))


def test_private_training_takes_it_without_a_fallback() -> None:
    torch.manual_seed(0)
    net = MapCnn(6, size=3, width=4)
    data = TensorDataset(torch.randn(20, 6, 3, 3), torch.arange(20) % 10)
    plan = tacit.Plan(examples=20, lot_size=10, steps=2, noise_multiplier=1.0, clip=0.5)
    with tacit.private(net, torch.optim.SGD(net.parameters(), lr=0.1), plan, data) as dp:
        for lot in dp.lots():
            for maps, y in lot:
                dp.backward(tacit.losses.cross_entropy(net(maps), y))
            dp.step()
        assert "fallback" not in dp.explain()


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="channels must be a whole number"):
        MapCnn(0, size=3)
