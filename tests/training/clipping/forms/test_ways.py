"""However a form goes about its norms and sums, they are those of the gradients written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.training.clipping.forms import Convolution, Dense, Form, OneHot, Outer, matrix
from tacit.training.clipping.forms import convolution as convolutions
from tacit.training.clipping.forms.matrix import squared_sum


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def convolution(
    channels: tuple[int, int],
    size: int,
    kernel: int,
    *,
    rows: int = 1,
    groups: int = 1,
    stride: int = 1,
    dilation: int = 1,
) -> Convolution:
    into, out = channels
    result = (size + 2 - dilation * (kernel - 1) - 1) // stride + 1
    return Convolution(
        random(4, rows, into, size, size + stride),
        random(4, rows, out, result, result + 1),
        (out, into // groups, kernel, kernel),
        (stride, stride),
        (1, 1),
        (dilation, dilation),
        groups,
    )


FORMS: dict[str, Form] = {
    "one term": Outer(random(4, 1, 6), random(4, 1, 5), (6, 5)),
    "many terms": Outer(random(4, 30, 6), random(4, 30, 5), (6, 5)),
    "few terms": Outer(random(4, 2, 60), random(4, 2, 50), (60, 50)),
    "turned": Outer(random(4, 30, 6), random(4, 30, 10), (6, 2, 5), (1, 0, 2)),
    "large image": convolution((3, 4), 9, 3),
    "small image": convolution((30, 40), 3, 3),
    "several rows": convolution((3, 4), 9, 3, rows=2),
    "groups": convolution((4, 6), 9, 3, groups=2),
    "stride": convolution((3, 4), 9, 3, stride=2),
    "stride and many channels": convolution((30, 40), 3, 3, stride=2),
    "dilation": convolution((3, 4), 9, 3, dilation=2),
    "everything": convolution((4, 6), 9, 2, rows=2, groups=2, stride=2, dilation=3),
    "table": OneHot(torch.randint(7, (4, 12)), random(4, 12, 5), (7, 5)),
    "written": Dense(random(4, 3, 700)),
}


@pytest.fixture(params=["as chosen", "not kept"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A CPU writes small gradients out; the other ways are for the rest, and for GPUs."""
    if request.param == "not kept":
        for module in (matrix, convolutions):
            monkeypatch.setattr(module, "worth_keeping", lambda *_: False)
    name: str = request.param
    return name


@pytest.mark.parametrize("name", FORMS)
def test_norms_and_sums_are_those_of_the_written_gradients(name: str, way: str):
    form = FORMS[name]
    dense = form.dense().double()
    true = dense.flatten(1).square().sum(1)
    excess = form.squared_norms().double() - true
    hidden = matrix.rounding(torch.float32) * form.uncancelled().double()
    assert (excess >= -1e-5 * true).all()
    assert (excess <= 1e-5 * true + hidden).all()
    scales = torch.tensor([0.5, 1.0, 0.25, 2.0])
    wanted = torch.einsum("i,i...->...", scales.double(), dense)
    error = (form.weighted_sum(scales).double() - wanted).norm()
    assert error <= 1e-6 * wanted.norm(), way


@pytest.mark.parametrize("name", FORMS)
def test_no_cancellation_lowers_the_bound_of_the_terms(name: str):
    """It is at least the squared norm of the terms' lengths, wherever their signs are."""
    form = FORMS[name]
    sides = [side for side in ("left", "right", "image", "grad", "values") if hasattr(form, side)]
    positive = replace(form, **{side: getattr(form, side).abs() for side in sides})
    least = positive.dense().double().flatten(1).square().sum(1)
    assert (form.uncancelled().double() >= (1 - 1e-5) * least).all()


@pytest.mark.parametrize("name", FORMS)
def test_a_unit_of_scale_zero_adds_nothing_even_if_it_is_not_finite(name: str, way: str):
    form = FORMS[name]
    scales = torch.tensor([0.5, 1.0, 0.0, 2.0])
    form.squared_norms()
    clean = form.weighted_sum(scales)
    spoilt = _spoilt(form)
    spoilt.squared_norms()
    torch.testing.assert_close(spoilt.weighted_sum(scales), clean, rtol=1e-5, atol=1e-5)
    assert way


def _spoilt(form: Any) -> Form:
    """The same with NaN in unit 2."""
    changed: dict[str, Tensor] = {}
    for name in ("left", "right", "image", "grad", "values"):
        if hasattr(form, name):
            changed[name] = getattr(form, name).clone()
            changed[name][2] = float("nan")
    match form:
        case Outer():
            return Outer(changed["left"], changed["right"], form.shape, form.order)
        case OneHot():
            return OneHot(form.ids, changed["right"], form.shape)
        case Dense():
            return Dense(changed["values"])
        case _:
            settings = (form.shape, form.stride, form.padding, form.dilation, form.groups)
            return Convolution(changed["image"], changed["grad"], *settings)


def test_a_processor_writes_out_what_is_no_larger_than_its_inputs():
    assert FORMS["many terms"].way == FORMS["large image"].way == "written out"
    assert FORMS["few terms"].way == "Gram matrices"
    assert FORMS["small image"].way == "Gram matrix of pixels"


@pytest.mark.parametrize("length", [1, 511, 512, 513, 100_000])
def test_long_rows_are_added_up_within_rounding(length: int):
    values = random(3, length)
    wanted = values.double().square().sum(1)
    torch.testing.assert_close(squared_sum(values).double(), wanted, rtol=5e-7, atol=0)
