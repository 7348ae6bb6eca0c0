"""Wide residual networks: standardised filters, the order of layers, and sizes as published."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tacit.errors import InvalidArgument
from tacit.models import networks, wide_resnet
from tacit.models.networks import StandardisedConv2d


def convolution(outputs: int = 5, inputs: int = 4, *, stride: int = 1) -> StandardisedConv2d:
    torch.manual_seed(0)
    layer = StandardisedConv2d(inputs, outputs, 3, stride=stride)
    with torch.no_grad():
        layer.weight.add_(0.7)
        layer.gain.uniform_(0.5, 2.0)
        layer.bias.normal_()
    return layer


def test_filters_have_no_mean_and_the_gain_as_their_norm() -> None:
    layer = convolution()
    filters = layer.standardised()
    assert torch.allclose(filters.mean((1, 2, 3)), torch.zeros(5), atol=1e-6)
    assert torch.allclose(filters.flatten(1).norm(dim=1), layer.gain, rtol=1e-5)
    # gain · (w − mean) / √(N·var), written with torch's own variance
    w, n = layer.weight, 4 * 9
    wanted = layer.gain.view(-1, 1, 1, 1) * (w - w.mean((1, 2, 3), keepdim=True))
    wanted = wanted / (n * w.var((1, 2, 3), correction=0, keepdim=True)).sqrt()
    assert torch.allclose(filters, wanted, atol=1e-6)


def test_neither_the_scale_nor_the_mean_of_weights_matters() -> None:
    layer, x = convolution(), torch.randn(2, 4, 6, 6)
    before = layer(x)
    with torch.no_grad():
        layer.weight.mul_(3).add_(2)
    assert torch.allclose(layer(x), before, atol=1e-5)


def test_constant_weights_do_no_harm() -> None:
    layer = convolution()
    with torch.no_grad():
        layer.weight.fill_(1.0)
    out = layer(torch.randn(2, 4, 6, 6))
    assert torch.allclose(out, layer.bias.view(1, -1, 1, 1).expand_as(out), atol=1e-5)


@pytest.mark.parametrize(("stride", "side"), [(1, 8), (2, 4)])
def test_it_is_a_convolution_with_a_bias(stride: int, side: int) -> None:
    layer, x = convolution(stride=stride), torch.randn(2, 4, 8, 8)
    plain = nn.Conv2d(4, 5, 3, stride=stride, padding=1)
    with torch.no_grad():
        plain.weight.copy_(layer.standardised())
        plain.bias.copy_(layer.bias)
    assert layer(x).shape == (2, 5, side, side)
    assert torch.allclose(layer(x), plain(x), atol=1e-6)


def test_wrn_16_4_has_13_convolutions_and_three_on_the_ways_past() -> None:
    network = wide_resnet()
    kinds = [type(layer) for layer in network.modules()]
    assert kinds.count(StandardisedConv2d) == 13 + 3
    assert kinds.count(nn.GroupNorm) == 12 + 3 + 1
    widths = [layer.weight.shape[0] for layer in network.modules()
              if isinstance(layer, StandardisedConv2d)]  # fmt: skip
    assert sorted(set(widths)) == [16, 64, 128, 256]
    assert all(one.num_groups == 16 for one in network.modules() if isinstance(one, nn.GroupNorm))
    # Zagoruyko & Komodakis give 2.7 million; norms, gains and biases make up the rest.
    assert 2.7e6 < sum(one.numel() for one in network.parameters()) < 2.8e6


def test_the_norm_follows_the_activation_and_the_mean_ends_it() -> None:
    network = wide_resnet(depth=10, width=1)
    block = network[1]
    assert [type(one).__name__ for one in block.residual] == [
        "ReLU", "GroupNorm", "StandardisedConv2d", "ReLU", "GroupNorm", "StandardisedConv2d",
    ]  # fmt: skip
    assert [type(one).__name__ for one in block.past] == ["ReLU", "GroupNorm", "StandardisedConv2d"]
    assert [type(one).__name__ for one in network[-4:]] == ["ReLU", "GroupNorm", "_Mean", "Linear"]
    x = torch.randn(2, 3, 32, 32)
    places = network[:-2](x)
    assert places.shape == (2, 64, 8, 8)
    assert torch.allclose(network[-1](places.mean((2, 3))), network(x), atol=1e-6)


def test_only_the_first_block_of_a_stage_computes_on_the_way_past() -> None:
    blocks = [one for one in wide_resnet().children() if isinstance(one, networks._Block)]
    assert [isinstance(one.past, nn.Identity) for one in blocks] == [False, True] * 3
    x = torch.randn(1, 64, 4, 4)
    assert torch.allclose(blocks[1](x), x + blocks[1].residual(x))


def test_a_seed_makes_it_reproducible() -> None:
    torch.manual_seed(4)
    one = wide_resnet(depth=10, width=1).state_dict()
    torch.manual_seed(4)
    two = wide_resnet(depth=10, width=1).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth": 17}, r"depth must be 10, 16, 22, … \(6·n\+4\), got 17"),
        ({"depth": 4}, "depth must be a whole number, 10 or more"),
        ({"groups": 3}, "groups must divide the 16 channels"),
        ({"width": 0}, "width must be a whole number"),
    ],
)
def test_sizes_that_make_no_network_are_refused(given: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        wide_resnet(**given)
