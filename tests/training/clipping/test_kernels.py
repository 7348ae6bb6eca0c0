"""The kernels of matrix weights against double precision: by Triton's interpreter, or on a GPU."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.training.clipping import clipped_gradients, recorder, sums
from tacit.training.clipping.forms import Dense, OneHot, Outer, matrix
from tacit.training.clipping.rules import linear, normalisation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# The interpreter multiplies bfloat16 wrongly.
KINDS = [torch.float32, torch.float16, *([torch.bfloat16] if ON_GPU else [])]
SHAPES = [(3, 5, 7, 20), (2, 70, 4, 9), (1, 17, 70, 33)]  # units, terms, two sizes
ROUNDED = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2**-7}  # once

kind = pytest.mark.parametrize("kind", KINDS, ids=str)
shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The kernels, with TF32 off; forms and rules use them on this device."""
    switches = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [one.allow_tf32 for one in switches]
    for one in switches:
        one.allow_tf32 = False
    if not ON_GPU:

        def for_kernels(*tensors: Tensor) -> bool:
            return all(one.dtype in matrix._FOR_KERNELS for one in tensors)

        for module in (matrix, sums, recorder, linear, normalisation):
            monkeypatch.setattr(module, "for_kernels", for_kernels)
        monkeypatch.setattr(matrix, "worth_keeping", lambda *_: False)
        monkeypatch.setattr(sums, "_is_device", lambda _: True)
    yield importlib.import_module("tacit.training.clipping.kernels")
    for one, was in zip(switches, before, strict=True):
        one.allow_tf32 = was


def random(*size: int, kind: torch.dtype = torch.float32) -> Tensor:
    drawn = torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))
    return drawn.to(DEVICE, kind)


def written(left: Tensor, right: Tensor) -> Tensor:
    return left.double().mT @ right.double()


def close(found: Tensor, wanted: Tensor, rtol: float = 2e-6) -> None:
    """Within ``rtol`` of the largest; norms in parts are added up."""
    if wanted.ndim == 1 and found.ndim == 2:
        found = matrix.added_up(found)
    error = (found.double() - wanted.double()).abs().max()
    assert float(error) <= rtol * float(wanted.abs().max()), float(error)


def held(found: Tensor, wanted: Tensor, kind: torch.dtype) -> None:
    """Squared norms: exact, or raised by what scaled copies of half the precision may round."""
    if DEVICE == "cpu" or kind == torch.float32:
        close(found, wanted, 1e-5)
        return
    share = matrix.added_up(found).double() / wanted
    assert bool((share >= 1.0 - 1e-5).all())
    assert bool((share <= 1.1).all()), share


# ---- norms


def fine(terms: int) -> tuple[float, float]:
    """What ``cover`` is in single precision."""
    return 1.0, terms * 2.0**-24


def norms(kernels: ModuleType, way: str, left: Tensor, right: Tensor) -> Tensor:
    found: Tensor = getattr(kernels, way)(left, right, fine(left.shape[1]))
    return found


@pytest.mark.parametrize("way", ["gram_norms", "product_norms"])
@pytest.mark.parametrize("sides", [(9, 4), (70, 80)], ids=["narrow", "wide"])
def test_norms_are_raised_as_they_are_asked_to_be(
    way: str, sides: tuple[int, int], kernels: ModuleType
) -> None:
    left, right = (random(3, 70, side) for side in sides)  # two blocks of terms
    plain = written(left, right).square().sum((1, 2))
    every = (left.double().square().sum(2) * right.double().square().sum(2)).sum(1)
    found = getattr(kernels, way)(left, right, (1.5, 0.25))
    close(found, 1.5 * plain + 0.25 * every, 1e-5)


def test_wide_products_in_half_precision_are_raised(kernels: ModuleType) -> None:
    """Their lengths are found in a pass of their own."""
    left, right = (random(2, 20, side, kind=KINDS[-1]) for side in (130, 70))
    plain = written(left, right).square().sum((1, 2))
    every = (left.double().square().sum(2) * right.double().square().sum(2)).sum(1)
    found = kernels.product_norms(left, right, (1.5, 0.25))
    close(found, 1.5 * plain + 0.25 * every, 1e-5)


@pytest.mark.parametrize("shape", [(2, 64, 16, 24), (2, 6, 256, 256)], ids=["product", "Gram"])
@pytest.mark.usefixtures("kernels")
def test_norms_of_terms_that_cancel_hold_what_their_sum_rounds(shape: tuple[int, ...]) -> None:
    """By either way: the norm alone would be rounding, and a sum of scaled terms rounds as well."""
    units, terms, p, q = shape
    left, right = random(units, terms, p), random(units, terms, q)
    left[:, 1::2], right[:, 1::2] = left[:, ::2], -right[:, ::2]
    form = Outer(left, right, (p, q))
    assert form.way == ("fused product" if terms > 16 else "fused Gram matrices")
    every = (left.double().square().sum(2) * right.double().square().sum(2)).sum(1)
    held = matrix.added_up(form.squared_norms()).double()
    assert bool((held >= 0.99 * terms * 2.0**-24 * every).all())


@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device: the interpreter has no bfloat16")
def test_gradients_of_narrow_weights_of_long_sequences_are_written_out_once() -> None:
    """What is scaled is what was measured; a unit that is not finite is left out of the sum."""
    for p, q in ((16, 320), (320, 16)):
        left = random(5, 256, p, kind=torch.bfloat16)
        right = random(5, 256, q, kind=torch.bfloat16)
        right[3, 7, 2] = float("nan")
        form = Outer(left, right, (p, q))
        assert form.way == "written out"
        each = written(left, right)
        norms = matrix.added_up(form.squared_norms())
        assert not bool(norms[3].isfinite())
        rest = [0, 1, 2, 4]
        close(norms[rest], each[rest].square().sum((1, 2)), 1e-5)
        scales = torch.tensor([0.3, 0.0, 2.0, 0.0, 1.0], device=DEVICE)
        wanted = 0.3 * each[0] + 2.0 * each[2] + each[4]
        close(form.weighted_sum(scales), wanted, 1e-5)


@pytest.fixture
def half(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """What gradients of long sequences are written out in: the interpreter has no bfloat16."""
    del kernels
    if not ON_GPU:
        monkeypatch.setattr(matrix, "_WRITTEN_HALF", frozenset({torch.float16}))
        monkeypatch.setattr(matrix, "_LONG", 64)
    return torch.bfloat16 if ON_GPU else torch.float16


def test_what_is_written_out_in_half_precision_is_what_is_measured(half: torch.dtype) -> None:
    """A weight of a long sequence that is used once: norms of the very numbers that are added."""
    terms = matrix._LONG
    left, right = random(3, terms, 96, kind=half), random(3, terms, 72, kind=half)
    right[2, 5, 1] = float("inf")
    form = Outer(left, right, (96, 72))
    assert form.way == "written out"
    norms = matrix.added_up(form.norms_alone()).double()
    assert not form.repairs
    assert not bool(norms[2].isfinite())
    close(norms[:2], written(left, right)[:2].square().sum((1, 2)), 2**-8)
    for at in range(2):
        scales = torch.zeros(3, device=DEVICE)
        scales[at] = 0.37
        alone = Outer(left, right, form.shape)
        alone.norms_alone()
        released = float(alone.weighted_sum(scales).double().norm())
        assert released == pytest.approx(0.37 * float(norms[at].sqrt()), rel=1e-6)


def test_a_weight_of_a_long_sequence_that_is_used_twice_is_not_rounded(half: torch.dtype) -> None:
    """Only what is used once is written out in half precision."""
    left, right = random(2, matrix._LONG, 72, kind=half), random(2, matrix._LONG, 80, kind=half)
    forms = [Outer(left, right, (72, 80)), Outer(-left, right, (72, 80))]
    assert forms[0]._is_long
    sums.merged_squared_norms(forms)
    assert not any(one._kept for one in forms)


@pytest.mark.parametrize("kind", KINDS[1:], ids=str)
def test_scaled_terms_that_cancel_leave_little_behind(
    kind: torch.dtype, kernels: ModuleType
) -> None:
    """What rounding to the terms' own precision leaves is multiplied as well."""
    left, right = random(2, 64, 16, kind=kind), random(2, 64, 24, kind=kind)
    left[:, 1::2], right[:, 1::2] = left[:, ::2], -right[:, ::2]
    left[:, 2] *= 1.25
    scales = torch.tensor([0.7, 0.013], device=DEVICE)
    wanted = torch.einsum("i,itp,itq->pq", scales.double(), left.double(), right.double())
    found = kernels.weighted_product(left, right, scales).double()
    every = (
        scales[:, None].double() * left.double().norm(dim=2) * right.double().norm(dim=2)
    ).sum()
    assert float((found - wanted).norm()) <= 2.0**-19 * float(every)


@kind
@shape
@pytest.mark.parametrize("way", ["gram_norms", "product_norms"])
def test_norms_of_sums_of_outer_products(
    way: str, shape: tuple[int, ...], kind: torch.dtype, kernels: ModuleType
) -> None:
    units, terms, p, q = shape
    left, right = random(units, terms, p, kind=kind), random(units, terms, q, kind=kind)
    wanted = written(left, right).square().sum((1, 2))
    close(norms(kernels, way, left, right), wanted, 2e-6 + terms * 2.0**-24)
    close(norms(kernels, way, right, left), wanted, 2e-6 + terms * 2.0**-24)


@pytest.mark.parametrize("way", ["gram_norms", "product_norms"])
def test_strides_are_those_of_the_tensors(way: str, kernels: ModuleType) -> None:
    whole = random(6, 3, 40)
    left, right = whole.movedim(1, 0)[:, :, 3:12], whole.mT[:3, 6:12]
    assert not left.is_contiguous()
    assert right.stride(2) != 1
    close(norms(kernels, way, left, right), written(left, right).square().sum((1, 2)))
    repeated = left[:1].expand(3, -1, -1)
    wanted = written(repeated, right).square().sum((1, 2))
    close(norms(kernels, way, repeated, right), wanted)


def apart(values: Tensor) -> Tensor:
    """The same numbers, every other one of a longer row: as the real parts of complex ones lie."""
    return torch.stack([values, 7.0 + values], -1)[..., 0]


def repeated(values: Tensor) -> Tensor:
    """One number for all of a row: as the gradient of a sum lies."""
    return values[..., :1].expand_as(values)


@pytest.mark.parametrize("laid", [apart, repeated])
def test_numbers_that_do_not_lie_side_by_side(
    laid: Callable[[Tensor], Tensor], kernels: ModuleType
) -> None:
    """Every kernel gives what it gives for a copy of them."""
    values, wide = laid(random(4, 6)), laid(random(4, 3, 6))
    other, scales = laid(random(4, 3, 5)), torch.tensor([0.5, 0.0, 2.0, 1.0], device=DEVICE)
    ids, image = torch.tensor([[0, 1, 1]] * 4, device=DEVICE), laid(random(4, 4, 6))
    finite = torch.zeros((), device=DEVICE)
    single, biased = wide[:, :1], other[:, :1]
    calls: list[tuple[Callable[..., Any], tuple[Tensor, ...]]] = [
        (kernels.squares, (values,)),
        (kernels.squares, (wide,)),
        (lambda one: kernels.added(laid(kernels.squares(one))), (wide,)),
        (kernels.product_of_squares, (single, biased)),
        (kernels.product_and_left, (single, biased)),
        (lambda one: kernels.totals([one[:, 0], one[:, 1]]), (values,)),
        (lambda one: kernels.rows_sum(one, scales), (values,)),
        (lambda one: kernels.rows_sum(one, scales), (wide,)),
        (lambda one: kernels.rows_scaled(one, scales, torch.float32), (values,)),
        (lambda one: kernels.rows_kept(one, scales), (wide,)),
        (kernels.term_sums, (wide,)),
        (kernels.term_sums, (wide, wide + 1)),
        (lambda *two: kernels.normalised_sums(*two, 1e-5, "layer"), (wide, wide + 1)),
        (lambda *two: kernels.grouped_sums(*two, 2, 1e-5), (image, image + 1)),
        (lambda *two: kernels.gram_norms(*two, fine(3)), (wide, other)),
        (lambda *two: kernels.product_norms(*two, fine(3)), (wide, other)),
        (lambda one: kernels.equal_id_norms(ids, one, fine(3)), (wide,)),
        (lambda *two: kernels.cross_products(ids, two[0], two[1], two[0]), (wide, other)),
        (lambda *two: kernels.weighted_product(*two, scales), (wide, other)),
        (
            lambda *two: kernels.repair(torch.zeros(6, 5, device=DEVICE), *two, scales, finite),
            (wide, other),
        ),
        (
            lambda *two: kernels.several_products([kernels.Product(*two, biased=True)], scales),
            (single, biased),
        ),
    ]
    for call, given in calls:
        found, wanted = call(*given), call(*(one.contiguous() for one in given))
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("terms", [20, 70])
def test_cancellation_hides_nothing(terms: int, kernels: ModuleType) -> None:
    """Terms that cancel leave a norm that is at least the true one, and far below the terms'."""
    left, right = random(2, terms, 8), random(2, terms, 8)
    left[:, 1::2], right[:, 1::2] = left[:, ::2], -right[:, ::2]
    left[:, 0] *= 1.001
    found = matrix.added_up(norms(kernels, "gram_norms", left, right))
    wanted = written(left, right).square().sum((1, 2))
    assert bool((found.double() >= wanted).all())
    every = (left.double().square().sum(2) * right.double().square().sum(2)).sum(1)
    assert bool((found - wanted <= 2 * terms * 2.0**-23 * every).all())


def test_what_overflows_is_not_taken_for_nothing() -> None:
    parts = torch.tensor([[1.0, 1.0, 2.0], [-3.0, float("-inf"), 1.0]])
    found = matrix.added_up(parts)
    assert found[[0, 2]].tolist() == [0.0, 3.0]
    assert not bool(found[1].isfinite())


@kind
@pytest.mark.parametrize("shape", [(3, 5, 20), (2, 70, 9)], ids=str)
def test_norms_of_looked_up_rows(
    shape: tuple[int, ...], kind: torch.dtype, kernels: ModuleType
) -> None:
    units, terms, size = shape
    ids, right = (random(units, terms) * 3).long() + 9, random(units, terms, size, kind=kind)
    table = OneHot(ids, right.double(), (20, size)).dense()
    wanted = table.square().sum((1, 2))
    close(kernels.equal_id_norms(ids, right, fine(terms)), wanted, 2e-6 + terms * 2.0**-24)


@kind
@pytest.mark.parametrize("terms", [(5, 4), (70, 3)], ids=str)
def test_what_a_table_and_a_product_share(
    terms: tuple[int, int], kind: torch.dtype, kernels: ModuleType
) -> None:
    looked_up, multiplied = terms
    ids = (random(2, looked_up) * 3).long() + 9
    rows = random(2, looked_up, 7, kind=kind)
    left, right = random(2, multiplied, 20, kind=kind), random(2, multiplied, 7, kind=kind)
    table = OneHot(ids, rows.double(), (20, 7)).dense()
    wanted = (table * written(left, right)).sum((1, 2))
    close(kernels.cross_products(ids, rows, left, right), wanted, 1e-5)


@kind
def test_squares_and_products_of_squares(kind: torch.dtype, kernels: ModuleType) -> None:
    values, other = random(3, 1, 1500, kind=kind), random(3, 1, 20, kind=kind)
    first, second = (one.double().square().sum((1, 2)) for one in (values, other))
    close(kernels.squares(values), first)
    close(kernels.product_of_squares(values, other), first * second)


def test_long_rows_are_squared_in_pieces(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_SQUARES_STEPS", 1)
    values = random(2, 1, 3000)
    wanted = values.double().square().sum((1, 2))
    close(kernels.squares(values), wanted)
    close(kernels.product_of_squares(values, values), wanted.square())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the interpreter
@pytest.mark.parametrize("bad", [float("inf"), pytest.param(float("nan"), marks=pytest.mark.slow)])
def test_a_unit_that_is_not_finite_spoils_its_own_norm_alone(
    bad: float, kernels: ModuleType
) -> None:
    left, right = random(3, 70, 4), random(3, 70, 5)  # two blocks of terms
    ids = torch.zeros(3, 70, dtype=torch.long, device=DEVICE)
    for way in (
        lambda l, r: kernels.gram_norms(l, r, fine(70)),
        lambda l, r: kernels.product_norms(l, r, fine(70)),
        lambda _, r: kernels.equal_id_norms(ids, r, fine(70)),
        lambda l, r: kernels.product_of_squares(l[:, 69:], r[:, 69:]),
        lambda _, r: kernels.squares(r),
        lambda _, r: kernels.term_sums(r)[1],
        lambda _, r: kernels.normalised_sums(r, r, 1e-5, "layer")[0][1],
    ):
        clean = matrix.added_up(way(left, right))
        spoilt = right.clone()
        spoilt[1, 69, 2] = bad
        found = matrix.added_up(way(left, spoilt))
        assert torch.equal(found[[0, 2]], clean[[0, 2]])
        assert not bool(found[1].isfinite())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the interpreter
@pytest.mark.parametrize("stability", [None, 0.5])
def test_scales_are_those_of_the_plain_path(
    stability: float | None, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    squared = random(2, 300).double().exp()
    squared[0, 3], squared[1, 4], squared[:, 5] = float("nan"), float("inf"), 0.0
    bounds, mask = torch.tensor([0.5, 2.0], device=DEVICE), random(300) > -1
    found = sums.scales_of(squared, bounds, stability=stability, slack=1e-3, mask=mask)
    monkeypatch.setattr(sums, "_is_device", lambda _: False)
    wanted = sums.scales_of(squared, bounds, stability=stability, slack=1e-3, mask=mask)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=1e-7, atol=0)
    assert torch.equal(kernels.scales(squared, bounds, mask, stability, 1e-3), found)
    assert not bool(found[:, ~mask | ~squared.isfinite().all(0)].any())


# ---- sums over terms


@kind
@shape
def test_sums_over_terms_and_their_norms(
    shape: tuple[int, ...], kind: torch.dtype, kernels: ModuleType
) -> None:
    units, terms, _, size = shape
    grad, factor = random(units, terms, size, kind=kind), random(units, terms + 1, size)[:, 1:]
    for found, wanted in (
        (kernels.term_sums(grad), grad.double().sum(1)),
        (kernels.term_sums(grad, factor), (grad.double() * factor.double()).sum(1)),
    ):
        close(found[0], wanted)
        close(found[1], wanted.square().sum(1))


@kind
@shape
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_sums_of_a_norms_weight_and_bias(
    norm: str, shape: tuple[int, ...], kind: torch.dtype, kernels: ModuleType
) -> None:
    units, terms, _, size = shape
    x, grad = (
        random(units, terms, size, kind=kind),
        random(units, terms + 1, size, kind=kind)[:, 1:],
    )
    normalise = F.layer_norm if norm == "layer" else F.rms_norm
    (weight, weight_norms), (bias, bias_norms) = kernels.normalised_sums(x, grad, 1e-3, norm)
    wanted = (normalise(x.double(), (size,), eps=1e-3) * grad.double()).sum(1)
    close(weight, wanted)
    close(weight_norms, wanted.square().sum(1))
    if norm == "layer":
        close(bias, grad.double().sum(1))
        close(bias_norms, grad.double().sum(1).square().sum(1))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the interpreter
def test_a_norm_without_epsilon_divides_by_nothing_that_is_not_there(kernels: ModuleType) -> None:
    x, grad = random(2, 5, 7), random(2, 5, 7)
    (found, _), _ = kernels.normalised_sums(x, grad, 0.0, "rms")
    close(found, (F.rms_norm(x.double(), (7,), eps=0.0) * grad.double()).sum(1))


@kind
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_sums_of_a_group_norms_weight_and_bias(
    groups: int, last: bool, kind: torch.dtype, kernels: ModuleType
) -> None:
    x, grad = random(2, 6, 70, kind=kind) + 3, random(3, 6, 70, kind=kind)[1:]
    if last:
        x, grad = (one.mT.contiguous().mT for one in (x, grad))
    (weight, weight_norms), (bias, bias_norms) = kernels.grouped_sums(x, grad, groups, 1e-3)
    wanted = (F.group_norm(x.double(), groups, eps=1e-3) * grad.double()).sum(2)
    close(weight, wanted)
    close(weight_norms, wanted.square().sum(1))
    close(bias, grad.double().sum(2))
    close(bias_norms, grad.double().sum(2).square().sum(1))


def test_many_channels_are_taken_in_blocks_of_groups(kernels: ModuleType) -> None:
    x, grad = random(2, 60, 5), random(2, 61, 5)[:, 1:]
    (weight, norms), _ = kernels.grouped_sums(x, grad, 12, 1e-5)
    wanted = (F.group_norm(x.double(), 12, eps=1e-5) * grad.double()).sum(2)
    close(weight, wanted)
    close(norms, wanted.square().sum(1))


# ---- weighted sums


def spoilt_scales(units: int) -> Tensor:
    """The first unit is left out."""
    scales = random(units).abs() + 0.1
    scales[0] = 0
    return scales.double()


@kind
def test_rows_are_scaled_and_rounded_once(kind: torch.dtype, kernels: ModuleType) -> None:
    values = random(3, 5, 20, kind=kind)
    scales = spoilt_scales(3)
    values[0, 2] = float("nan")
    wide = values.float() * scales.float()[:, None, None]
    wide[0] = 0
    assert torch.equal(kernels.rows_scaled(values, scales, torch.float32), wide)
    assert torch.equal(kernels.rows_scaled(values, scales, kind), wide.to(kind))
    kept = values.clone()
    kept[0] = 0
    assert torch.equal(kernels.rows_kept(values, scales), kept)


@kind
@pytest.mark.parametrize("units", [3, 130])
def test_weighted_sums_of_rows(units: int, kind: torch.dtype, kernels: ModuleType) -> None:
    values, scales = random(units, 2, 70, kind=kind), spoilt_scales(units)
    wanted = torch.einsum("u,uab->ab", scales, values.double())
    values[0] = float("inf")
    close(kernels.rows_sum(values, scales), wanted)


@kind
@pytest.mark.parametrize("units", [3, 21])
def test_weighted_sums_of_long_rows(
    units: int, kind: torch.dtype, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread keeps its columns; with fewer programs rows are long sooner."""
    monkeypatch.setattr(kernels, "_PROGRAMS", 4)
    monkeypatch.setattr(kernels, "_rows_sum_kernel", None)
    values, scales = random(units, 3, 1100, kind=kind), spoilt_scales(units)
    wanted = torch.einsum("u,uab->ab", scales, values.double())
    values[0] = float("nan")
    close(kernels.rows_sum(values, scales), wanted)


@kind
@pytest.mark.parametrize("shape", [(3, 5, 7, 20), (20, 30, 4, 9)], ids=str)
def test_weighted_sums_of_outer_products(
    shape: tuple[int, ...], kind: torch.dtype, kernels: ModuleType
) -> None:
    units, terms, p, q = shape
    left, right = random(units, terms, p, kind=kind), random(units, terms, q, kind=kind)
    scales = spoilt_scales(units)
    wanted = torch.einsum("u,uab->ab", scales, written(left, right))
    left[0], right[0] = float("nan"), float("inf")
    for found in (
        kernels.weighted_product(left, right, scales),
        kernels.weighted_product(right, left, scales).mT,
    ):
        close(found, wanted, ROUNDED[kind])


@kind
@pytest.mark.parametrize("shape", [(3, 5, 70, 90), (3, 30, 4, 9)], ids=str)
def test_a_spoilt_product_is_computed_again_and_another_is_not(
    shape: tuple[int, ...], kind: torch.dtype, kernels: ModuleType
) -> None:
    units, terms, p, q = shape
    left, right = random(units, terms, p, kind=kind), random(units, terms, q, kind=kind)
    scales = spoilt_scales(units)
    wanted = torch.einsum("u,uab->ab", scales, written(left, right))
    left[0], right[0] = float("nan"), float("inf")
    spoilt = torch.full((p, q), float("nan"), device=DEVICE)
    finite = torch.tensor([True, False], device=DEVICE)
    assert bool(kernels.repair(spoilt, left, right, scales, finite[0]).isnan().all())
    close(kernels.repair(spoilt, left, right, scales, finite[1]), wanted, ROUNDED[kind])


def test_sums_of_several_weights_and_their_biases(kernels: ModuleType) -> None:
    sizes = [(40, 35, True), (3, 70, False), (1, 1, True), (64, 2, True)]
    products = [
        kernels.Product(random(70, 1, p), random(70, 1, q), biased=biased)
        for p, q, biased in sizes
    ]  # fmt: skip
    scales = spoilt_scales(70)
    wanted = [torch.einsum("u,uab->ab", scales, written(o.left, o.right)) for o in products]
    biases = [torch.einsum("u,ua->a", scales, one.left[:, 0].double()) for one in products]
    for one in products:
        one.left[0], one.right[0] = float("nan"), float("inf")  # of scale 0: not read
    for count in (1, 2, 4):
        found = kernels.several_products(products[:count], scales)
        for (total, own), matrix_sum, bias, one in zip(
            found, wanted[:count], biases, products, strict=False
        ):
            close(total, matrix_sum, ROUNDED[torch.float32])
            if one.biased:
                close(own, bias, ROUNDED[torch.float32])
            else:
                assert own.numel() == 0


def test_norms_of_several_weights_are_added_up_in_double_precision(kernels: ModuleType) -> None:
    rows = [random(130).square() * 10.0**-at for at in range(8)]
    for count in (1, 3, 8):
        wanted = torch.stack(rows[:count]).sum(0, dtype=torch.float64)
        found = kernels.totals(rows[:count])
        assert found.dtype == torch.float64
        close(found, wanted, 1e-15)


# ---- forms and rules


FORMS: dict[str, Any] = {
    "one term": lambda kind: Outer(
        random(4, 1, 6, kind=kind), random(4, 1, 5, kind=kind), (6, 5)
    ),
    "many terms": lambda kind: Outer(
        random(4, 30, 6, kind=kind), random(4, 30, 5, kind=kind), (6, 5)
    ),
    "few terms": lambda kind: Outer(
        random(4, 2, 90, kind=kind), random(4, 2, 80, kind=kind), (90, 80)
    ),
    "turned": lambda kind: Outer(
        random(4, 30, 6, kind=kind), random(4, 30, 10, kind=kind), (6, 2, 5), (1, 0, 2)
    ),
    "table": lambda kind: OneHot(
        (random(4, 12).abs() * 2).long(), random(4, 12, 5, kind=kind), (12, 5)
    ),
    "written": lambda kind: Dense(random(4, 3, 700, kind=kind)),
    "summed": lambda kind: matrix.summed(random(4, 6, 40, kind=kind)),
}  # fmt: skip


@kind
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.usefixtures("kernels")
def test_forms_are_those_of_the_written_gradients(name: str, kind: torch.dtype) -> None:
    form = FORMS[name](kind)
    dense = form.dense().double()
    held(form.squared_norms(), dense.flatten(1).square().sum(1), kind)
    scales = torch.tensor([0.5, 0.0, 0.25, 2.0], device=DEVICE)
    wanted = torch.einsum("i,i...->...", scales.double(), dense)
    found = [form.weighted_sum(scales)]
    if isinstance(form, Outer):
        found += [
            form.repaired_sum(scales, torch.tensor(yes, device=DEVICE)) for yes in (True, False)
        ]
    for one in found:
        assert one.shape == wanted.shape
        close(one, wanted, 1e-5 if kind == torch.float32 else ROUNDED[kind])


@pytest.mark.usefixtures("kernels")
def test_a_side_that_lies_askew_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "_WORTH_ALIGNING", 64)
    left, right = random(2, 3, 71, kind=torch.float16), random(2, 3, 85, kind=torch.float16)
    assert matrix.aligned(left).shape[2] == 72
    assert matrix.aligned(matrix.aligned(left)).shape[2] == 72
    form, scales = Outer(left, right, (71, 85)), torch.tensor([0.5, 2.0], device=DEVICE)
    dense = written(left, right)
    held(form.squared_norms(), dense.square().sum((1, 2)), torch.float16)
    wanted = torch.einsum("i,i...->...", scales.double(), dense)
    for finite in torch.tensor([True, False], device=DEVICE):
        close(form.repaired_sum(scales, finite), wanted, ROUNDED[torch.float16])


@pytest.mark.usefixtures("kernels")
def test_the_way_with_the_fewest_products_is_taken() -> None:
    half = torch.float16
    lora = Outer(random(1, 48, 16, kind=half), random(1, 48, 576, kind=half), (16, 576))
    wide = Outer(random(1, 256, 768, kind=half), random(1, 256, 3072, kind=half), (768, 3072))
    long = Outer(random(1, 1024, 768, kind=half), random(1, 1024, 768, kind=half), (768, 768))
    assert [one.way for one in (lora, wide, long)] == [
        "fused product", "fused Gram matrices", "fused product",
    ]  # fmt: skip
    single = Outer(random(1, 1024, 768), random(1, 1024, 768), (768, 768))
    assert not single.way.startswith("fused")  # a library multiplies single precision faster


class Words(nn.Module):
    """Tied, reused, normed, scaled and shifted weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.first, self.second = nn.LayerNorm(8), nn.RMSNorm(8)
        self.map, self.gain = nn.Linear(8, 8), nn.Parameter(torch.ones(8))
        self.shift = nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.table(x.abs().mul(3).long()[..., 0]))
        x = self.second(x + self.map(self.map(x)) * self.gain + self.shift)
        return F.linear(x, self.table.weight)


class Images(nn.Module):
    """Convolutions, group norms in both layouts, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(4, 6, 3), nn.Conv1d(6, 6, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(groups, 6) for groups in (2, 3))
        self.last = nn.Linear(6, 11)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](self.first(x.mT))
        x = self.norms[1](self.second(x).relu().mT.contiguous().mT)
        return self.last(x.mT)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the interpreter
@pytest.mark.usefixtures("kernels")
def test_a_row_that_is_not_finite_leaves_the_sum_of_the_others() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(70, 80), nn.Tanh(), nn.Linear(80, 66)).to(DEVICE)
    x = random(4, 3, 70)

    def clipped(inputs: Tensor) -> Any:
        named = dict(model.named_parameters())
        return clipped_gradients(
            named, lambda: model(inputs).square().mean((1, 2)), rows=len(inputs), clip=0.05
        )

    wanted = clipped(x[1:])
    x[0, 1, 2] = float("inf")
    found = clipped(x)
    assert float(found.scales[0]) == 0
    for name, total in wanted.sums.items():
        close(found.sums[name], total, 1e-5)


class Rows(nn.Module):
    """Weights of one term a row, five of them, one without a bias, and a last one used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(9, 9, bias=at != 1) for at in range(5))
        self.last = nn.Linear(9, 9)

    def forward(self, x: Tensor) -> Tensor:
        for one in self.maps:
            x = one(x).tanh()
        return self.last(self.last(x))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the interpreter
@pytest.mark.parametrize("spoilt", [False, True])
def test_small_weights_of_one_term_are_summed_together(
    spoilt: bool, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x, calls = Rows().to(DEVICE), random(6, 9), []
    several = kernels.several_products

    def noted(some: Any, scales: Tensor) -> Any:
        calls.append([one.biased for one in some])
        return several(some, scales)

    monkeypatch.setattr(kernels, "several_products", noted)

    def clipped(net: nn.Module, inputs: Tensor) -> Any:
        named = dict(net.named_parameters())
        return clipped_gradients(
            named, lambda: net(inputs).logsumexp(1).square(), rows=len(inputs), clip=0.05
        )

    if spoilt:
        x[0, 3] = float("nan")
    found = clipped(model, x)
    # Of the last weight's two uses biases are added up before anything is clipped.
    assert calls == [[True, False, True, True], [True, False, False]]
    kept = slice(int(spoilt), None)
    wanted = clipped(model.double(), x.double()[kept])
    close(found.norms[kept], wanted.norms, 1e-5)
    assert bool((found.scales[: int(spoilt)] == 0).all())
    for name, total in wanted.sums.items():
        close(found.sums[name], total, 1e-5)


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("build", [Words, Images])
@pytest.mark.usefixtures("kernels")
def test_a_model_is_clipped_as_in_double_precision(build: type[nn.Module], views: int) -> None:
    torch.manual_seed(0)
    model = build().to(DEVICE)
    x = random(6, 5, 4)

    def clipped(net: nn.Module, inputs: Tensor) -> Any:
        def losses() -> Tensor:
            return net(inputs).logsumexp(2).square().mean(1)

        named = dict(net.named_parameters())
        return clipped_gradients(named, losses, rows=6, clip=0.05, views=views)

    found, wanted = clipped(model, x), clipped(model.double(), x.double())
    close(found.norms, wanted.norms, 1e-5)
    for name, total in wanted.sums.items():
        close(found.sums[name], total, 1e-5)


@pytest.mark.usefixtures("kernels")
def test_a_gradient_that_is_the_real_part_of_another_is_measured_as_it_is() -> None:
    """What a Fourier transform pulls back lies at every other number: one record, one clip."""
    torch.manual_seed(0)
    kernel = nn.Parameter(torch.randn(8, device=DEVICE))
    x = random(1, 8)

    def losses() -> Tensor:
        product = torch.fft.rfft(x) * torch.fft.rfft(kernel)
        return torch.fft.irfft(product, n=8).square().sum(1)

    found = clipped_gradients({"kernel": kernel}, losses, rows=1, clip=0.5)
    (truth,) = torch.autograd.grad(losses().sum(), kernel)
    assert float(truth.norm()) > 0.5
    assert float(found.norms[0]) == pytest.approx(float(truth.norm()), rel=1e-4)
    assert float(found.sums["kernel"].norm()) <= 0.5 * (1 + 1e-6)
