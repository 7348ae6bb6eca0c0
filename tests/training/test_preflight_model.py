"""What must hold before training: which parameters are private, which modules are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tacit.errors import InvalidArgument, UnsupportedModel
from tacit.training.preflight import check_modules, private_parameters, unwrapped

from .sessions import network, sgd


@pytest.mark.parametrize(
    "module",
    [nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.BatchNorm3d(4), nn.SyncBatchNorm(4)],
    ids=lambda m: type(m).__name__,
)
def test_every_kind_of_batch_norm_is_refused_by_name(module: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(module))
    with pytest.raises(UnsupportedModel, match=rf"1\.0 \({type(module).__name__}\)"):
        check_modules(model)
    check_modules(model.eval())


def test_several_devices_of_one_process_are_refused() -> None:
    model = nn.Linear(2, 2)
    assert unwrapped(model) is model
    with pytest.raises(UnsupportedModel, match="DataParallel splits batches"):
        unwrapped(nn.DataParallel(model))


def test_instance_norm_is_refused_only_with_running_statistics() -> None:
    check_modules(nn.InstanceNorm2d(4, affine=True))
    with pytest.raises(UnsupportedModel, match="track_running_stats=False"):
        check_modules(nn.InstanceNorm2d(4, track_running_stats=True))


def test_private_parameters_are_those_of_the_optimizers_that_train() -> None:
    model = network()
    model[0].bias.requires_grad_(False)
    found = private_parameters(model, [torch.optim.SGD(model.parameters(), lr=0.1)])
    assert list(found) == ["0.weight", "2.weight", "2.bias"]
    assert all(found[name] is model.get_parameter(name) for name in found)


def test_tied_parameters_are_one() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert list(private_parameters(model, [sgd(model)])) == ["0.weight", "0.bias", "1.bias"]


def test_parameters_outside_of_the_model_are_private_too() -> None:
    model, extra = network(), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.1)
    found = private_parameters(model, [optimizer])
    assert found["(outside the model) 0"] is extra


def test_complex_parameters_are_refused() -> None:
    model = nn.ParameterDict({"w": nn.Parameter(torch.ones(2, dtype=torch.complex64))})
    with pytest.raises(UnsupportedModel, match="must be real numbers"):
        private_parameters(model, [torch.optim.SGD(model.parameters(), lr=0.1)])


def test_two_devices_are_refused() -> None:
    model = nn.ParameterDict(
        {"a": nn.Parameter(torch.ones(2)), "b": nn.Parameter(torch.ones(2, device="meta"))}
    )
    with pytest.raises(InvalidArgument, match=r"one device, got \['cpu', 'meta'\]"):
        private_parameters(model, [torch.optim.SGD(model.parameters(), lr=0.1)])
