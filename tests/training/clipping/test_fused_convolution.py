"""Fused norms and sums of convolutions are those of looped autograd in double precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.models.filters import standardised
from tacit.training.clipping import sums
from tacit.training.clipping.forms import Convolution, Projected, matrix
from tacit.training.clipping.forms import convolution as convolutions
from tacit.training.clipping.forms import projected as projections

pytest.importorskip("triton", reason="Triton is not installed")

from tacit.training.clipping import fused_convolution as fused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TF32 = 2**-9
# Triton's interpreter multiplies bfloat16 wrongly.
ON_A_GPU = [(torch.bfloat16, True), (torch.bfloat16, False)] if DEVICE == "cuda" else []


@dataclass(frozen=True)
class Case:
    channels: int
    results: int
    space: tuple[int, ...]
    kernel: tuple[int, ...]
    rows: int = 1
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    groups: int = 1
    units: int = 3

    def form(self, dtype: torch.dtype, *, last: bool = True) -> Convolution:
        dimensions = len(self.space)
        generator = torch.Generator().manual_seed(sum(self.space) + self.channels)
        image = torch.randn(self.units * self.rows, self.channels, *self.space, generator=generator)
        shape = (self.results, self.channels // self.groups, *self.kernel)
        out = _convolved(image, torch.zeros(shape), self._settings).shape
        grad = torch.randn(out, generator=generator)
        if last and dimensions > 1:
            layout = torch.channels_last if dimensions == 2 else torch.channels_last_3d
            image = image.contiguous(memory_format=layout)
            grad = grad.contiguous(memory_format=layout)
        inputs = [
            one.to(DEVICE, dtype).unflatten(0, (self.units, self.rows)) for one in (image, grad)
        ]
        return Convolution(*inputs, shape, *self._settings)

    @property
    def _settings(self) -> tuple[Any, ...]:
        sizes = (self.stride, self.padding, self.dilation)
        return *((one,) * len(self.space) for one in sizes), self.groups


CASES = {
    "plain": Case(16, 20, (6, 7), (3, 3)),
    "few channels": Case(3, 16, (6, 7), (3, 3)),
    "aligned channels": Case(24, 16, (5, 5), (3, 3)),
    "many channels, few pixels": Case(36, 20, (2, 3), (3, 3)),
    "stride": Case(16, 8, (9, 7), (3, 3), stride=2),
    "dilation": Case(16, 8, (9, 7), (3, 2), dilation=2, padding=2),
    "one pixel": Case(17, 20, (5, 6), (1, 1), stride=2, padding=0),
    "rows": Case(16, 8, (4, 5), (3, 3), rows=3),
    "groups": Case(32, 8, (4, 5), (2, 2), groups=2, rows=2),
    "groups of few channels": Case(6, 8, (4, 5), (3, 3), groups=2),
    "depthwise": Case(20, 20, (5, 6), (3, 3), groups=20),
    "depthwise, aligned": Case(16, 16, (4, 5), (2, 2), groups=16, rows=2),
    "depthwise, twice": Case(5, 10, (5, 6), (3, 3), groups=5, rows=2, stride=2),
    "one dimension": Case(16, 5, (75,), (5,), padding=2),
    "three dimensions": Case(16, 5, (3, 4, 5), (2, 3, 2), stride=2),
    "several tiles": Case(16, 16, (9, 8), (2, 2), rows=2, padding=0),
}
# Which take the ways of others, at other sizes: interpreted, a case takes half a second.
LIKE_OTHERS = {
    "aligned channels", "dilation", "groups of few channels", "depthwise, aligned",
    "depthwise, twice", "several tiles",
}  # fmt: skip


def _convolved(image: Tensor, kernel: Tensor, settings: tuple[Any, ...]) -> Tensor:
    functions = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
    return functions[image.ndim](image, kernel, None, *settings)


def oracle(form: Convolution) -> Tensor:
    """Every unit's gradient by autograd in double precision."""
    settings = (form.stride, form.padding, form.dilation, form.groups)
    found = []
    for image, grad in zip(form.image.double(), form.grad.double(), strict=True):
        kernel = torch.zeros(form.shape, dtype=torch.float64, device=image.device)
        kernel.requires_grad_()
        result = _convolved(image, kernel, settings)
        found += torch.autograd.grad(result, kernel, grad)
    return torch.stack(found)


def squares(gradients: Tensor) -> Tensor:
    return gradients.flatten(1).square().sum(1)


def sizes_and_inputs(form: Convolution) -> tuple[fused.Sizes, fused.Prepared]:
    sizes = fused.sizes_of(form.image, form.grad, *form._settings)
    return sizes, fused.prepared(form.image, form.grad, sizes)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms choose kernels as they would on a GPU."""
    monkeypatch.setattr(convolutions, "for_kernels", lambda _: True)


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize(
    ("dtype", "last"),
    [
        (torch.float16, True),
        pytest.param(torch.float16, False, marks=pytest.mark.slow),
        pytest.param(torch.float32, True, marks=pytest.mark.slow),
        *ON_A_GPU,
    ],
)
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow) if one in LIKE_OTHERS else one for one in CASES],
)
def test_norms_and_sums_are_the_oracles(name: str, dtype: torch.dtype, last: bool):
    form = CASES[name].form(dtype, last=last)
    wanted = oracle(form)
    near = TF32 if dtype == torch.float32 and "depthwise" not in name else 2e-5
    norms = form.squared_norms().double()
    torch.testing.assert_close(norms, squares(wanted), rtol=near, atol=0)
    scales = torch.tensor([0.5, 0.0, 2.0], device=DEVICE)
    total = torch.einsum("i,i...->...", scales.double(), wanted)
    assert (form.weighted_sum(scales) - total).norm() <= near * total.norm()


@pytest.mark.parametrize(
    "dtype", [torch.float16, pytest.param(torch.float32, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "name", ["few channels", "several tiles", pytest.param("rows", marks=pytest.mark.slow)]
)
def test_every_way_gives_the_same(name: str, dtype: torch.dtype):
    form = CASES[name].form(dtype)
    wanted = oracle(form)
    near = 2e-5 if dtype == torch.float16 else TF32
    sizes, of = sizes_and_inputs(form)
    for found in (
        fused.launch_products(of, sizes.blocks(), writes=False)[0], fused.launch_grams(of)
    ):  # fmt: skip
        norms = fused.launch_norms(found, of).double()
        torch.testing.assert_close(norms, squares(wanted), rtol=near, atol=0)
    scales = torch.tensor([0.5, 0.0, 2.0], device=DEVICE)
    total = torch.einsum("i,i...->...", scales.double(), wanted)
    own = fused.weighted_sum(form.image, form.grad, scales, *form._settings)
    assert (own - total).norm() <= near * total.norm()


@pytest.mark.usefixtures("chosen")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, by the interpreter
@pytest.mark.parametrize(
    ("name", "dtype", "bad"),
    [
        ("few channels", torch.float16, float("nan")),
        ("depthwise", torch.float32, float("inf")),
        *(
            pytest.param(name, dtype, bad, marks=pytest.mark.slow)
            for name, dtype, bad in [
                ("few channels", torch.float32, float("inf")),
                ("depthwise", torch.float16, float("nan")),
                ("plain", torch.float16, float("nan")),
                ("plain", torch.float32, float("inf")),
                ("many channels, few pixels", torch.float16, float("nan")),
                ("many channels, few pixels", torch.float32, float("inf")),
            ]
        ),
    ],
)
def test_what_is_not_finite_stays_with_its_unit(name: str, dtype: torch.dtype, bad: float):
    form = CASES[name].form(dtype)
    clean = form.squared_norms()
    scales = torch.tensor([0.5, 0.0, 2.0], device=DEVICE)
    total = form.weighted_sum(scales)
    for side in ("image", "grad"):
        values = getattr(form, side).clone()
        values[1, 0, 0, 1, 2] = bad
        spoilt = replace(form, **{side: values})
        norms = spoilt.squared_norms()
        assert not norms[1].isfinite()
        assert torch.equal(norms[[0, 2]], clean[[0, 2]])
        assert torch.equal(spoilt.weighted_sum(scales), total)


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("many", [128, 2])
@pytest.mark.parametrize(
    "exponents",
    [(-30, -9, 0, 12), pytest.param((-30, -9, 0, 3, 9, 12), marks=pytest.mark.slow)],
    ids=len,
)
def test_a_units_norm_depends_on_that_unit_alone(
    exponents: tuple[int, ...], many: int, monkeypatch: pytest.MonkeyPatch
):
    """However units are packed, and however their sizes differ."""
    monkeypatch.setattr(fused, "_MANY_UNITS", many)
    units = len(exponents)
    form = replace(CASES["plain"], units=units).form(torch.float32)
    sizes = 10.0 ** torch.tensor(exponents, device=DEVICE)
    form = replace(form, image=form.image * sizes.view(-1, 1, 1, 1, 1))
    norms = form.squared_norms()
    torch.testing.assert_close(norms.double(), squares(oracle(form)), rtol=TF32, atol=1e-40)
    alone = [form.part(at, at + 1).squared_norms() for at in range(units)]
    assert torch.equal(norms, torch.cat(alone))


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("name", ["plain", "many channels, few pixels"])
def test_numbers_below_the_range_of_float16_hide_nothing_from_a_norm(name: str):
    """One pixel is so large that all others vanish beside it, and it meets no gradient."""
    form = CASES[name].form(torch.float32)
    image, grad = form.image * 2.0**-45, form.grad.clone()
    grad[..., :2, :2] = 0.0
    image[..., 0, 0] = 1.0
    form = replace(form, image=image, grad=grad)
    norms = form.squared_norms().double().sqrt()
    wanted = squares(oracle(form)).sqrt()
    assert (norms >= wanted * (1 - TF32)).all()
    assert (norms <= 1e-6).all()


@pytest.mark.usefixtures("chosen")
def test_a_unit_of_zeros_has_no_norm_to_speak_of():
    form = CASES["plain"].form(torch.float32)
    grad = form.grad.clone()
    grad[1] = 0.0
    assert form.squared_norms()[1] > 1
    assert replace(form, grad=grad).squared_norms()[1] < 1e-20


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize(
    "name", ["groups", "depthwise", pytest.param("few channels", marks=pytest.mark.slow)]
)
def test_gradients_that_are_written_out_are_those_that_are_added_up(name: str):
    form = replace(CASES[name], units=2).form(torch.float16)
    wanted = oracle(form)
    assert (form.dense() - wanted).norm() <= 2e-5 * wanted.norm()
    scales = torch.tensor([0.5, 2.0], device=DEVICE)
    total = torch.einsum("i,i...->...", scales, form.dense())
    assert (form.weighted_sum(scales) - total).norm() <= 2e-6 * total.norm()


@pytest.mark.usefixtures("chosen")
def test_uses_of_one_kernel_that_cancel_are_clipped_to_what_is_released():
    """Their norm is that of the gradients as packed: c·c - c²·1 is 0, and 2⁻¹⁰ of it as packed."""
    one = Case(16, 16, (6, 6), (1, 1), padding=0, units=1).form(torch.float32)
    ones, c = torch.ones_like(one.image), 1 + 0.98 * 2.0**-11
    uses = [
        replace(one, image=c * ones, grad=c * ones),
        replace(one, image=c * c * ones, grad=-ones),
    ]
    known = sums.merged_squared_norms(uses).sqrt() * (1 + TF32)
    released = sum(form.weighted_sum(1 / known) for form in uses)
    assert float(released.norm()) <= 1 + 1e-6


@pytest.mark.usefixtures("chosen")
def test_uses_of_a_depthwise_kernel_are_not_packed_without_tf32(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    one = Case(16, 16, (6, 6), (1, 1), padding=0, groups=16, units=1).form(torch.float32)
    ones = torch.ones_like(one.image)
    uses = [
        replace(one, image=(1 + 0.52 * 2.0**-10) * ones, grad=ones),
        replace(one, grad=0 * ones),
    ]
    known = sums.merged_squared_norms(uses).sqrt() * (1 + 2e-6)
    released = sum(form.weighted_sum(1 / known) for form in uses)
    assert float(released.norm()) <= 1 + 1e-6


@pytest.mark.usefixtures("chosen")
def test_uses_of_one_kernel_are_covered_where_a_library_rounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(convolutions.Convolution, "_fused", False)
    monkeypatch.setattr(matrix, "rounds_coarsely", lambda *_, convolved: convolved)
    one = CASES["plain"].form(torch.float32)
    held = sums.merged_squared_norms([one, replace(one, grad=-one.grad)])
    assert (held >= 2.0**-16 * one.uncancelled()).all()


@pytest.mark.usefixtures("chosen")
def test_without_tf32_single_precision_goes_the_plain_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(convolutions, "worth_keeping", lambda *_: False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    form = CASES["plain"].form(torch.float32)
    assert form.way == "a product per kernel offset"
    assert CASES["depthwise"].form(torch.float32).way == "written out"
    torch.testing.assert_close(
        form.squared_norms().double(), squares(oracle(form)), rtol=1e-5, atol=0
    )


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize(
    "name",
    ["plain", "depthwise", pytest.param("many channels, few pixels", marks=pytest.mark.slow)],
)
def test_a_program_can_be_traced_with_shapes_alone(name: str):
    form = CASES[name].form(torch.float16)

    def both(image: Tensor, grad: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
        one = replace(form, image=image, grad=grad)
        return one.squared_norms(), one.weighted_sum(scales)

    inputs = (form.image, form.grad, torch.ones(3, device=DEVICE))
    program = make_fx(both, tracing_mode="fake")(*inputs)
    for found, wanted in zip(program(*inputs), both(*inputs), strict=True):
        assert torch.equal(found, wanted)


def sizes(case: Case) -> fused.Sizes:
    form = case.form(torch.float16)
    return fused.sizes_of(form.image, form.grad, *form._settings)


def test_the_way_is_chosen_by_the_work():
    assert sizes(Case(256, 256, (8, 8), (3, 3), units=1)).by_gram
    assert not sizes(Case(64, 64, (32, 32), (3, 3), units=1)).by_gram
    assert not sizes(Case(128, 128, (16, 16), (3, 3), units=1)).by_gram
    assert sizes(CASES["depthwise"]).by_entries
    assert sizes(CASES["few channels"]).blocks().flat
    assert sizes(Case(64, 64, (32, 32), (3, 3), units=1)).blocks().taps == 3


@pytest.mark.usefixtures("chosen")
def test_small_kernels_are_written_once_for_norm_and_sum():
    assert Case(16, 16, (24, 24), (3, 3), units=1).form(torch.float16).way == "written out"
    assert CASES["plain"].form(torch.float16).way != "written out"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_no_units_at_all(dtype: torch.dtype):
    form = CASES["plain"].form(dtype).part(0, 0)
    assert fused.squared_norms(form.image, form.grad, *form._settings).shape == (0,)
    nothing = fused.weighted_sum(
        form.image, form.grad, torch.zeros(0, device=DEVICE), *form._settings
    )
    assert torch.equal(nothing, torch.zeros(form.shape, device=DEVICE))


# ---- convolutions by standardised filters


def projected(form: Convolution) -> Projected:
    generator = torch.Generator().manual_seed(7)
    normal = standardised(torch.randn(form.shape, generator=generator)).to(DEVICE)
    rate = torch.rand(form.shape[0], generator=generator).to(DEVICE)
    divided = (torch.arange(form.shape[0], device=DEVICE) != 1).float()
    return Projected(form, normal, rate, divided)


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize(
    "most",
    [
        pytest.param(2**20, id="written out"),
        pytest.param(0, id="a difference", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("rows", torch.float16),
        pytest.param("stride", torch.float32, marks=pytest.mark.slow),
        pytest.param("groups", torch.float16, marks=pytest.mark.slow),
        pytest.param("depthwise", torch.float16, marks=pytest.mark.slow),
        pytest.param("one dimension", torch.float32, marks=pytest.mark.slow),
    ],
)
def test_projected_gradients_are_the_oracles(
    name: str, dtype: torch.dtype, most: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(projections, "for_kernels", lambda *_: True)
    monkeypatch.setattr(projections, "_WRITTEN", most)
    form = projected(CASES[name].form(dtype))
    near = 3e-5 if dtype == torch.float16 and most else TF32  # scaled, half precision is single
    whole = oracle(form.filters).flatten(2)
    normal = form.normal.double().flatten(1)
    along = (whole * normal).sum(2)
    wanted = whole - whole.mean(2, keepdim=True) - (along * form.divided).unsqueeze(2) * normal
    wanted = wanted * form.rate.unsqueeze(1)
    assert (form.along_filters() - along).norm() <= near * along.norm()
    norms = form.squared_norms()
    norms = norms if norms.ndim == 1 else norms.sum(0)
    torch.testing.assert_close(norms.double(), squares(wanted), rtol=2 * near, atol=0)
    scales = torch.tensor([0.5, 0.0, 2.0], device=DEVICE)
    total = torch.einsum("i,i...->...", scales.double(), wanted).view(form.normal.shape)
    assert (form.weighted_sum(scales) - total).norm() <= near * total.norm()


@pytest.mark.usefixtures("chosen")
def test_a_projection_reads_gradients_as_they_lie_and_leaves_them():
    """What patches give may be laid otherwise than it is numbered."""
    written = torch.randn(3, 18, 4, device=DEVICE).transpose(1, 2)
    before, normal = written.clone(), torch.randn(4, 18, device=DEVICE)
    rest = torch.rand(4, device=DEVICE), torch.ones(4, device=DEVICE)
    found = fused.projected(written, normal, *rest)
    laid = fused.projected(written.contiguous(), normal, *rest)
    for one, other in zip(found, laid, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(written, before)


@pytest.mark.usefixtures("chosen")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NumPy's, by the interpreter
def test_a_projection_leaves_what_is_not_finite_with_its_unit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(projections, "for_kernels", lambda *_: True)
    form = projected(CASES["few channels"].form(torch.float16))
    clean = form.squared_norms()
    scales = torch.tensor([0.5, 0.0, 2.0], device=DEVICE)
    total = form.weighted_sum(scales)
    values = form.filters.grad.clone()
    values[1, 0, 0, 1, 2] = float("nan")
    spoilt = replace(form, filters=replace(form.filters, grad=values))
    norms = spoilt.squared_norms()
    assert not norms[:, 1].isfinite().any()
    assert torch.equal(norms[:, [0, 2]], clean[:, [0, 2]])
    assert torch.equal(spoilt.weighted_sum(scales), total)
