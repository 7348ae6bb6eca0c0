"""The networks: sizes as published, one row at a time, and every layer by a fast rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tacit
from tacit import models
from tacit.errors import InvalidArgument
from tacit.training.clipping import clipped_gradients

if TYPE_CHECKING:
    from collections.abc import Callable

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    # how it is made, the shape of an example, and the parameters it has by hand
    "abadi_mlp": (models.abadi_mlp, (60,), 60 * 1000 + 1000 + 1000 * 10 + 10),
    "abadi_cnn": (
        models.abadi_cnn,
        (3, 24, 24),
        (75 * 64 + 64) + (25 * 64 * 64 + 64) + (2304 * 384 + 384) + (384 * 384 + 384) + 3850,
    ),
    "tempered_cnn": (models.tempered_cnn, (1, 28, 28), 1040 + 8224 + 16416 + 330),
    "scatter_linear": (models.scatter_linear, (1, 81, 7, 7), 81 * 49 * 10 + 10),
    "scatter_linear, colour": (
        lambda: models.scatter_linear(3, size=32),
        (3, 81, 8, 8),
        243 * 64 * 10 + 10,
    ),
    "scatter_cnn": (
        models.scatter_cnn,
        (1, 81, 7, 7),
        (81 * 9 * 16 + 16) + (16 * 9 * 32 + 32) + (512 * 32 + 32) + 330,
    ),
    "scatter_cnn, colour": (
        lambda: models.scatter_cnn(3),
        (3, 81, 8, 8),
        (243 * 9 * 64 + 64) + (64 * 9 * 64 + 64) + (1024 * 10 + 10),
    ),
    "wide_resnet": (lambda: models.wide_resnet(depth=10, width=1), (3, 32, 32), 78_938),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    make, shape, _ = NETWORKS[name]
    torch.manual_seed(0)
    return make(), torch.randn(6, *shape), torch.randint(10, (6,))


@pytest.mark.parametrize("name", NETWORKS)
def test_it_has_the_parameters_of_its_layers_and_ten_outputs(name: str) -> None:
    network, x, _ = made(name)
    assert sum(one.numel() for one in network.parameters()) == NETWORKS[name][2]
    assert network(x).shape == (6, 10)


@pytest.mark.parametrize("name", NETWORKS)
def test_private_training_takes_it_by_fast_rules_alone(name: str) -> None:
    network, x, y = made(name)
    plan = tacit.Plan(examples=6, lot_size=6, steps=1, noise_multiplier=1.0, clip=1.0)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    with tacit.private(network, optimizer, plan, TensorDataset(x, y)) as dp:
        report = dp.verify(lambda batch: tacit.losses.cross_entropy(network(batch[0]), batch[1]))
        assert report is not None
        assert report.moved <= report.limit * (1 + 1e-3)
        for lot in dp.lots():
            dp.accumulate(lot, lambda b: tacit.losses.cross_entropy(network(b[0]), b[1]))
            dp.step()
        assert "fallback" not in dp.explain()


@pytest.mark.parametrize("name", ["scatter_cnn", "tempered_cnn", "wide_resnet"])
def test_norms_are_those_of_one_example_at_a_time(name: str) -> None:
    network, x, y = made(name)
    parameters = dict(network.named_parameters())
    found = clipped_gradients(
        parameters, lambda: tacit.losses.cross_entropy(network(x), y), rows=6, clip=1e9
    )
    exact = network.double()
    for row in range(6):
        loss = nn.functional.cross_entropy(exact(x[row : row + 1].double()), y[row : row + 1])
        gradients = torch.autograd.grad(loss, list(exact.parameters()))
        norm = torch.stack([one.norm() for one in gradients]).norm().item()
        assert found.norms[row].item() == pytest.approx(norm, rel=1e-4)


def test_a_tempered_network_may_have_relus_instead() -> None:
    kinds = {type(layer) for layer in models.tempered_cnn(activation="relu")}
    assert nn.ReLU in kinds
    assert nn.Tanh not in kinds


def test_features_are_normalised_in_groups_unless_told_otherwise() -> None:
    x = torch.rand(2, 1, 81, 7, 7)
    assert torch.allclose(models.scatter_linear()[:-1](x).mean(1), torch.zeros(2), atol=1e-6)
    assert torch.equal(models.scatter_linear(groups=None)[:-1](x), x.flatten(1))


@pytest.mark.parametrize("make", [models.scatter_linear, models.scatter_cnn])
def test_channels_and_paths_may_be_one_axis_already(make: Callable[[], nn.Module]) -> None:
    network, x = make(3, size=32), torch.rand(2, 3, 81, 8, 8)
    assert torch.equal(network(x.flatten(1, 2)), network(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.abadi_mlp(inputs=0), "inputs must be a whole number"),
        (lambda: models.tempered_cnn(activation="selu"), "activation must be 'tanh' or 'relu'"),
        (lambda: models.scatter_linear(groups=10), "groups must divide the 81 features"),
        (lambda: models.scatter_cnn(size=7), "size must be at least 8 pixels, got 7"),
        (lambda: models.scatter_cnn(0), "channels must be a whole number"),
    ],
)
def test_what_makes_no_network_is_refused(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()
