"""Convolutions by standardised filters: as looped autograd has them, and no more than the clip."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tacit.models.filters import SMALLEST, standardised
from tacit.training.clipping import clipped_gradients
from tacit.training.clipping.forms import Convolution, Projected, convolution, matrix
from tacit.training.clipping.forms import projected as forms

from . import oracle
from .cases import NAN, Case, case, floats
from .networks import Bare

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.training.clipping import Clipped

STANDARDISED = "standardised conv"
SHAPES = {"w": (6, 4, 3, 3), "g": (6,), "b": (6,)}
IMAGE = floats(4, 7, 6)


def model(function: Callable[..., Tensor], **shapes: tuple[int, ...]) -> Callable[[], nn.Module]:
    return lambda: Bare(function, **(shapes or SHAPES))


def convolved(floor: float = SMALLEST, **options: Any) -> Callable[..., Tensor]:
    """A convolution with gain and bias, of the dimensions that its weights have."""

    def call(m: Any, x: Tensor) -> Tensor:
        function = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
        gain, bias = getattr(m, "g", None), getattr(m, "b", None)
        return function(x, standardised(m.w, gain, floor=floor), bias, **options)

    return call


def twice(m: Any, x: Tensor) -> Tensor:
    """One set of filters for two convolutions, and the weight standardised a second time."""
    filters = standardised(m.w, m.g)
    inner = torch.tanh(F.conv2d(x, filters, m.b, padding=1))
    inner = torch.tanh(F.conv2d(inner, filters, padding=1, stride=2))
    return F.conv2d(inner, standardised(m.w), padding=1)


def plainly_too(m: Any, x: Tensor) -> Tensor:
    """The weight enters as it is, beside its standardised self; and a gain serves two layers."""
    inner = torch.tanh(F.conv2d(x, standardised(m.w, m.g), padding=1))
    return F.conv2d(inner, m.w, padding=1) + F.conv2d(inner, standardised(m.v, m.g), padding=1)


def of_an_expression(m: Any, x: Tensor) -> Tensor:
    """A weight and a gain that are computed themselves."""
    return F.conv2d(x, standardised(m.w * m.w.sigmoid(), m.g.exp()), m.b)


def elsewhere(m: Any, x: Tensor) -> Tensor:
    """Filters that no convolution takes as they are."""
    filters = standardised(m.w, m.g)
    return F.conv2d(x, filters[:4]).flatten(1) @ filters.reshape(-1, 8).mT


def written_into(m: Any, x: Tensor) -> Tensor:
    """Filters of which one channel is left out, in their place."""
    filters = standardised(m.w, m.g)
    filters[:, 0] = 0.0
    return F.conv2d(x, filters, m.b)


def frozen(*names: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        made = model(convolved())()
        for name in names:
            made.get_parameter(name).requires_grad_(requires_grad=False)
        return made

    return build


def with_equal_weights() -> nn.Module:
    made = model(convolved())()
    with torch.no_grad():
        made.get_parameter("w")[1] = 0.25
    return made


def channels_last() -> nn.Module:
    return model(convolved())().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


SQUARE = {"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "g": (4,), "b": (4,)}
CASES = [
    case("plain", model(convolved()), IMAGE),
    case("no gain, no bias", model(convolved(), w=(6, 4, 3, 3)), IMAGE),
    case("stride misses the edge", model(convolved(stride=(2, 3))), IMAGE),
    case("groups", model(convolved(groups=2, padding=1), w=(6, 2, 3, 3), g=(6,), b=(6,)), IMAGE),
    case("depthwise", model(convolved(groups=4), w=(8, 1, 3, 3), g=(8, 1, 1, 1)), IMAGE),
    case("one pixel", model(convolved(), w=(6, 4, 1, 1), g=(6,), b=(6,)), IMAGE),
    case("same, dilated", model(convolved(padding="same", dilation=2)), IMAGE),
    case("one dimension", model(convolved(), w=(6, 4, 3), g=(6,), b=(6,)), floats(4, 9)),
    case("three", model(convolved(), w=(3, 2, 2, 3, 2), g=(3,)), floats(2, 4, 5, 3)),
    case("below the floor", model(convolved(floor=1e3)), IMAGE),
    case("equal weights", with_equal_weights, IMAGE, as_built=True),
    case("views", model(convolved(padding=1)), IMAGE, rows=6, views=3),
    case("a row that is none", model(convolved()), IMAGE, spoilt={1: NAN}),
    case("double", model(convolved()), IMAGE, dtype=torch.float64),
    case("bfloat16", model(convolved()), IMAGE, autocast=torch.bfloat16),
    case("channels last", channels_last, IMAGE),
    case("weight frozen", frozen("w"), IMAGE),
    case("gain frozen", frozen("g", "b"), IMAGE),
    case("used twice", model(twice, **SQUARE), floats(4, 5, 5)),
    case("plainly too", model(plainly_too, **SQUARE), floats(4, 5, 5)),
]  # fmt: skip
# What no rule of their own serves: right all the same.
EXPRESSIONS = [
    case("of an expression", model(of_an_expression), IMAGE),
    case("elsewhere", model(elsewhere, w=(6, 4, 4, 5), g=(6,)), floats(4, 5, 5)),
    case("written into", model(written_into), IMAGE),
]


def run(of: Case, clip: float) -> Clipped:
    inputs, built = of.batch(), of.model()
    return clipped_gradients(
        oracle.trainable(built),
        lambda: of.call(built, inputs),
        rows=of.rows,
        views=of.views,
        clip=clip,
    )


@pytest.fixture(params=["written out", "a difference"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen: str = request.param
    monkeypatch.setattr(forms, "_WRITTEN", 2**20 if chosen == "written out" else 0)
    return chosen


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("of", [*CASES, *EXPRESSIONS], ids=lambda of: of.slug)
def test_norms_and_sums_are_those_of_looped_autograd(of: Case):
    truth = oracle.truth(of)
    clip = float(truth.norms[truth.finite].median()) * 0.999
    found = run(of, clip)
    tolerance = 1e-2 if of.autocast else 2e-5
    wanted = truth.norms[truth.finite]
    norms = found.norms.double()[truth.finite]
    assert ((norms - wanted) / wanted).abs().max() <= tolerance
    total = torch.cat([found.sums[name].double().flatten() for name in truth.names])
    assert (total - truth.clipped_sum(clip)).norm() <= 2 * tolerance * truth.clipped_sum(
        clip
    ).norm()
    assert (STANDARDISED in {use.rule for use in found.uses}) == (
        of.name not in ("elsewhere", "written into")
    )


def taken_back(large: float, size: int, kind: str) -> tuple[dict[str, nn.Parameter], Any]:
    """A record whose gradient by filter is almost all mean, or almost all along the filter."""
    weight = nn.Parameter(torch.randn(3, size, 3, 3))
    if kind == "mean of the weights, too":
        weight.data = 100 + 0.01 * weight.data
    gain = nn.Parameter(torch.zeros(3)) if kind == "no gain yet" else None
    normal = standardised(weight.detach())
    along = torch.ones_like(normal[:1]) if kind.startswith("mean") else normal[:1]
    if kind == "both":
        along = along + torch.ones_like(along)
    x = large * along + torch.randn(1, size, 3, 3)
    g = torch.randn(1, 3, 1, 1)
    parameters = {"weight": weight} | ({} if gain is None else {"gain": gain})
    return parameters, lambda: (F.conv2d(x, standardised(weight, gain)) * g).sum((1, 2, 3))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    "kind", ["mean", "mean of the weights, too", "filter", "both", "no gain yet"]
)
def test_what_the_projection_takes_off_does_not_hide_a_norm(kind: str):
    torch.manual_seed(0)
    for large in (1.0, 1e2, 1e3, 1e4, 1e6, 1e8):
        for _ in range(3):
            parameters, losses = taken_back(large, 1 if "," in kind else 8, kind)
            found = clipped_gradients(parameters, losses, rows=1, clip=0.01)
            squares = sum(float(one.double().square().sum()) for one in found.sums.values())
            assert math.sqrt(squares) <= 0.01 * (1 + 1e-6), large
            assert large > 1.0 or math.sqrt(squares) >= 0.0098


def uncover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms as they are computed, without what rounding may hide."""
    monkeypatch.setattr(forms, "product_error", lambda *_, **__: 0.0)
    monkeypatch.setattr(forms, "rounding", lambda _: 0.0)
    monkeypatch.setattr(convolution, "cover", lambda *_, **__: (1.0, 0.0))
    monkeypatch.setattr(Convolution, "norm_error", 0.0)


def test_without_its_cover_a_difference_would_release_more(monkeypatch: pytest.MonkeyPatch):
    """So the records of the test above do find it."""
    monkeypatch.setattr(forms, "_WRITTEN", 0)
    uncover(monkeypatch)
    torch.manual_seed(0)
    worst = 0.0
    for large in (1e3, 1e4, 1e6):
        for kind in ("mean", "filter", "both"):
            parameters, losses = taken_back(large, 8, kind)
            found = clipped_gradients(parameters, losses, rows=1, clip=0.01)
            worst = max(worst, float(found.sums["weight"].norm()))
    assert worst > 0.011


def coarse(values: Tensor) -> Tensor:
    """Rounded to ten binary places, as the tensor cores may read single precision."""
    return ((values.float().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("kind", ["mean", "filter"])
def test_coarse_inner_products_are_covered(kind: str, monkeypatch: pytest.MonkeyPatch):
    """A GPU's convolutions in TF32, done here: too much is never subtracted."""
    monkeypatch.setattr(matrix, "rounds_coarsely", lambda *_, **__: True)
    monkeypatch.setattr(forms, "_WRITTEN", 0)
    exact = torch.convolution
    monkeypatch.setattr(
        torch, "convolution", lambda x, w, *rest: exact(coarse(x), coarse(w), *rest)
    )
    torch.manual_seed(0)
    made = [one(large, kind) for large in (1.0, 1e1, 1e2, 1e3, 1e4) for _ in range(3)]
    true = [doubled(form).dense().flatten(1).square().sum(1) for form in made]
    assert all((form.squared_norms() >= one).all() for form, one in zip(made, true, strict=True))
    uncover(monkeypatch)
    made = [form.part(0, form.units) for form in made]
    assert any((form.squared_norms() < one).any() for form, one in zip(made, true, strict=True))


def one(large: float, kind: str) -> Projected:
    """Gradients of which the projection takes most."""
    normal = standardised(torch.randn(3, 8, 3, 3))
    along = torch.ones_like(normal[:1]) if kind == "mean" else normal[:1]
    image = (large * along + torch.randn(5, 8, 3, 3)).unsqueeze(1)
    of = Convolution(image, torch.randn(5, 1, 3, 1, 1), (3, 8, 3, 3), (1, 1), (0, 0), (1, 1), 1)
    return Projected(of, normal, torch.tensor([0.5, 1.0, 2.0]), torch.ones(3))


def doubled(form: Projected) -> Projected:
    """The same in double precision."""
    of = form.filters
    sizes = (of.shape, of.stride, of.padding, of.dilation, of.groups)
    wide = Convolution(of.image.double(), of.grad.double(), *sizes)
    return Projected(wide, form.normal.double(), form.rate.double(), form.divided.double())
