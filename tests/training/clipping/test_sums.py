"""Entangled parameters are written out cluster by cluster, whatever the order of their uses."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tacit.training.clipping import clipped_gradients, engine, recorder, sums
from tacit.training.clipping.forms.matrix import gram_total, squared_sum


def uses(*names: tuple[str, ...]) -> list[SimpleNamespace]:
    return [SimpleNamespace(origin=SimpleNamespace(names=one)) for one in names]


def test_clusters_are_what_uses_hold_together() -> None:
    every = frozenset("abcdef")
    for order in permutations([("a", "b"), ("c",), ("b", "d"), ("e", "f"), ("x",)]):
        found = sums._clusters(uses(*order), every)  # type: ignore[arg-type]
        assert {*found} == {frozenset("abd"), frozenset("c"), frozenset("ef")}


class Standardised(nn.Module):
    """Two layers whose weights are computed from parameters, and share a gain."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(6, 5))
        self.second = nn.Parameter(torch.randn(4, 6))
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.tanh(x @ (self.gain * self.first / self.first.std()).T)
        return inner @ (self.gain * self.second / self.second.std()).T


@pytest.mark.parametrize("slices", [2**24, 1, 100])
def test_slices_of_any_size_give_the_norms_of_one_at_a_time(
    slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "LARGEST_TEMPORARY", slices)
    torch.manual_seed(0)
    model, x = Standardised(), torch.randn(7, 5)
    found = clipped_gradients(
        dict(model.named_parameters()), lambda: model(x).square().sum(1), rows=7, clip=1.0
    )
    for row, norm in enumerate(found.norms):
        grads = torch.autograd.grad(model(x[row : row + 1]).square().sum(), [*model.parameters()])
        wanted = torch.cat([one.flatten() for one in grads]).norm()
        assert float(norm) == pytest.approx(float(wanted), rel=1e-4)


def test_operands_in_a_list_are_clipped_like_operands_one_by_one() -> None:
    weight = nn.Parameter(torch.randn(3, 4))
    x = torch.randn(6, 4)
    one, other = (
        clipped_gradients(
            {"weight": weight},
            lambda given=given: torch.einsum("bi,oi->bo", *given).square().sum(1),  # type: ignore[misc]
            rows=6,
            clip=0.5,
        )
        for given in ((x, weight), ([x, weight],))
    )
    assert torch.equal(one.sums["weight"], other.sums["weight"])
    assert torch.equal(one.norms, other.norms)


def test_a_weight_times_a_transposed_batch_whose_gradient_is_zero() -> None:
    """As many rows as the weight has: zeros do not show which dimension they are in."""
    weight, other = nn.Parameter(torch.randn(4, 8)), nn.Parameter(torch.randn(8, 3))
    x = torch.randn(4, 8)
    found = clipped_gradients(
        {"weight": weight, "other": other},
        lambda: (
            ((weight @ x.mT).mT + weight.mT.__rmatmul__(x)).mul(0.0).sum(1)
            + (x @ other).square().sum(1)
        ),
        rows=4,
        clip=1.0,
    )
    assert not found.sums["weight"].any()
    assert found.sums["other"].any()


def test_a_norm_whose_sums_overflow_to_minus_infinity_is_none() -> None:
    """Gram entries of both signs: their sum overflows below, though the norm is a positive one."""
    terms, size = 1024, 2304
    layer = torch.nn.Linear(size, size, bias=False)
    large = (3.4e38 / (terms * terms / 128 * size * size)) ** 0.5 * 2**0.25
    x = torch.full((1, terms, size), large)
    weights = torch.ones(1, terms, size)
    weights[:, terms // 2 :] = -2.0
    found = clipped_gradients(
        dict(layer.named_parameters()),
        lambda: (layer(x) * weights).nan_to_num().sum((1, 2)),
        rows=1,
        clip=1.0,
    )
    assert float(found.sums["weight"].double().norm()) <= 1.0 + 1e-6


def test_a_gram_total_of_minus_infinity_is_not_finite() -> None:
    products = torch.tensor([[[1e38, -3e38], [-3e38, 1e38]], [[1.0, -1.5], [-1.5, 1.0]]])
    total = gram_total(products, (1.0, 2.0**-23))
    assert not bool(total[0].isfinite())
    assert 0.0 <= float(total[1]) < 1e-5


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_norms_and_sums_on_a_cpu_are_not_those_of_bfloat16(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With "medium", oneDNN rounds what it multiplies on processors that have AMX."""
    seen: list[str] = []
    switch, inner = torch.backends.mkldnn.matmul, engine.clipped_sums

    def noted(*given: Any, **named: Any) -> Any:
        seen.append(switch.fp32_precision)
        return inner(*given, **named)

    monkeypatch.setattr(engine, "clipped_sums", noted)
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    torch.set_float32_matmul_precision(precision)
    try:
        before = switch.fp32_precision
        parameters = dict(layer.named_parameters())
        clipped_gradients(parameters, lambda: layer(x).square().sum(1), rows=4, clip=1.0)
        assert switch.fp32_precision == before
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(seen) <= {"none", "ieee"}


@pytest.mark.parametrize("length", [1, 511, 512, 513, 1000, 1024, 1031, 7919, 20_000])
def test_squares_are_added_up_in_blocks_of_any_length(length: int) -> None:
    """Blocks of one size or not: as exact as sums of 512 in single precision are."""
    values = torch.randn(5, length, generator=torch.Generator().manual_seed(length))
    wanted = values.double().square().sum(1)
    assert torch.allclose(squared_sum(values).double(), wanted, rtol=2e-6, atol=0.0)
    assert torch.allclose(squared_sum(values[:, None].mT).double(), wanted, rtol=2e-6, atol=0.0)


class Changing(nn.Module):
    """Results that are changed in place, images, and rows of several entries."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Flatten(2))
        self.rows = nn.Sequential(nn.Linear(9, 6), nn.ReLU(inplace=True), nn.Linear(6, 3))
        self.last = nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.rows(self.image(x)).flatten(1)
        return nn.functional.relu_(self.last(y).mul_(2.0))


def test_a_tap_that_is_not_computed_is_one_that_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits in a recording and outside; also where results are changed in place."""
    torch.manual_seed(0)
    model, x = Changing(), torch.randn(7, 2, 5, 5)

    def found() -> Any:
        values = dict(model.named_parameters())
        return clipped_gradients(values, lambda: model(x).square().sum(1), rows=7, clip=0.5)

    added, applied = found(), []
    monkeypatch.setattr(recorder, "_is_recorded", lambda _: True)
    plain = recorder._Tap.apply
    monkeypatch.setattr(recorder._Tap, "apply", lambda *given: applied.append(1) or plain(*given))
    tapped = found()
    assert len(applied) == 2  # the image and the last; of several entries the results are views
    assert torch.equal(added.norms, tapped.norms)
    assert added.sums.keys() == tapped.sums.keys()
    assert all(torch.equal(added.sums[name], tapped.sums[name]) for name in added.sums)
