"""The replaced layers: what becomes of which, what is kept, and that examples no longer mix."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tacit.errors import InvalidArgument
from tacit.training.replace_batchnorm import Replacement, fix, fixes

LAYERS = {
    "1d": (nn.BatchNorm1d(64), "GroupNorm(4, 64)", (6, 64)),
    "1d, long": (nn.BatchNorm1d(64), "GroupNorm(4, 64)", (6, 64, 5)),
    "1d, narrow": (nn.BatchNorm1d(20), "GroupNorm(1, 20)", (6, 20)),
    "2d": (nn.BatchNorm2d(64), "GroupNorm(16, 64)", (6, 64, 4, 4)),
    "2d, wide": (nn.BatchNorm2d(512), "GroupNorm(32, 512)", (6, 512, 2, 2)),
    "2d, odd": (nn.BatchNorm2d(7), "GroupNorm(1, 7)", (6, 7, 4, 4)),
    "2d, plain": (nn.BatchNorm2d(8, affine=False), "GroupNorm(2, 8)", (6, 8, 4, 4)),
    "2d, untracked": (
        nn.BatchNorm2d(8, track_running_stats=False), "GroupNorm(2, 8)", (6, 8, 4, 4)),
    "3d": (nn.BatchNorm3d(12), "GroupNorm(3, 12)", (6, 12, 2, 3, 4)),
    "sync": (nn.SyncBatchNorm(32), "GroupNorm(2, 32)", (6, 32, 4, 4)),
    "instance": (
        nn.InstanceNorm2d(5, affine=True, track_running_stats=True),
        "InstanceNorm2d(5, track_running_stats=False)", (6, 5, 4, 4)),
}  # fmt: skip
layers = pytest.mark.parametrize(("layer", "becomes", "shape"), LAYERS.values(), ids=LAYERS.keys())


def data(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@layers
def test_the_report_says_what_becomes_of_a_layer(
    layer: nn.Module, becomes: str, shape: tuple[int, ...]
) -> None:
    del shape
    (found,) = fixes(nn.Sequential(nn.Identity(), layer))
    assert found.path == "1"
    assert found.new == becomes
    assert found.old.startswith(f"{type(layer).__name__}(")
    (alone,) = fixes(layer)
    assert str(alone) == f"the model: {found.old} -> {becomes}"


@layers
def test_a_replaced_layer_looks_at_one_example_and_changes_no_buffer(
    layer: nn.Module, becomes: str, shape: tuple[int, ...]
) -> None:
    del becomes
    fixed = fix(nn.Sequential(layer))
    x = data(*shape)
    together = fixed(x)
    alone = torch.cat([fixed(x[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(together, alone)
    assert together.std() > 0.5  # and it is no constant
    assert not list(fixed.buffers())
    assert fixes(fixed) == ()


def test_parameters_settings_and_the_argument_survive() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16, eps=1e-3), nn.Flatten())
    model[1].weight.data.uniform_()
    model[1].bias.data.uniform_()
    model[1].bias.requires_grad_(False)
    model = model.double().eval()
    before = copy.deepcopy(model.state_dict())
    fixed = fix(model)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(fixed[0].weight, model[0].weight)
    assert fixed[0].weight is not model[0].weight
    assert isinstance(fixed[1], nn.GroupNorm)
    assert fixed[1].eps == 1e-3
    assert torch.equal(fixed[1].weight, model[1].weight)
    assert torch.equal(fixed[1].bias, model[1].bias)
    assert fixed[1].weight is not model[1].weight
    assert fixed[1].weight.requires_grad
    assert not fixed[1].bias.requires_grad
    assert fixed[1].weight.dtype == torch.float64
    assert not fixed[1].training
    fixed[1].weight.data.zero_()
    assert model[1].weight.any()
    expected = nn.functional.group_norm(
        x := data(2, 16, 5, 5).double(), 4, model[1].weight, model[1].bias, 1e-3
    )
    torch.testing.assert_close(fix(model)[1](x), expected)


def test_a_layer_without_scale_and_shift_gets_none() -> None:
    fixed = fix(nn.Sequential(nn.BatchNorm2d(8, affine=False)))
    assert not list(fixed.parameters())
    assert fixed[0].affine is False


def test_a_shared_layer_stays_shared() -> None:
    norm = nn.BatchNorm2d(8)
    model = nn.Sequential(norm, nn.ReLU(), norm)
    fixed = fix(model)
    assert fixed[0] is fixed[2]
    assert [found.path for found in fixes(model)] == ["0", "2"]


def test_tied_scales_stay_tied() -> None:
    model = nn.Sequential(nn.BatchNorm2d(8), nn.BatchNorm2d(8))
    model[1].weight = model[0].weight
    fixed = fix(model)
    assert fixed[0].weight is fixed[1].weight


def test_a_model_that_is_such_a_layer_is_replaced_itself() -> None:
    assert isinstance(fix(nn.BatchNorm1d(32)), nn.GroupNorm)


def test_what_mixes_nothing_is_left_alone() -> None:
    model = nn.Sequential(
        nn.Linear(4, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4)
    )
    assert fixes(model) == ()
    fixed = fix(model)
    assert fixed is not model
    assert [type(a) for a in fixed] == [type(a) for a in model]


class NormWithActivation(nn.BatchNorm2d):
    """As timm's: replacing it by a norm alone would drop the activation."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return super().forward(input).relu()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (NormWithActivation(8), r"1 is a NormWithActivation, .*replace it by hand"),
        (nn.LazyBatchNorm2d(), r"1 is a LazyBatchNorm2d that has not seen data: run model\(x\)"),
        (nn.BatchNorm1d(1), r"1 is a BatchNorm1d of one feature"),
    ],
)
def test_what_cannot_be_replaced_is_refused(layer: nn.Module, message: str) -> None:
    model = nn.Sequential(nn.Identity(), layer)
    for ask in (fixes, fix):
        with pytest.raises(InvalidArgument, match=message) as refusal:
            ask(model)
        assert "\n" not in str(refusal.value)


def test_a_replacement_is_a_value() -> None:
    assert Replacement("a", "b", "c") == Replacement("a", "b", "c")
