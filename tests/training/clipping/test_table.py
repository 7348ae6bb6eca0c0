"""Every model of the table against the oracle: norms, clipped sums, sensitivity and rules."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from tacit.errors import TacitError, UnsupportedModel
from tacit.training.clipping import clipped_gradients

from . import oracle
from .cases import FALLBACK, TABLE, Case, floats

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tacit.training.clipping import Clipped

EXACT = 1e-5  # of float32, as the issue demands
HALF = 1e-2  # of norms in bf16
HALF_SUM = 2e-2  # of sums in bf16: the guard on top of the roundings of single entries
ROUNDING = 1e-6  # what a released norm may exceed the clip by, relatively

pytestmark = [
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]


def clipped(case: Case, inputs: tuple[Tensor, ...], clip: float) -> Clipped:
    model = case.model()
    return clipped_gradients(
        oracle.trainable(model),
        lambda: case.call(model, inputs),
        rows=len(inputs[0]),
        clip=clip,
        views=case.views,
    )


@functools.lru_cache(maxsize=8)
def whole(case: Case, clip: float) -> Clipped:
    """The case's own batch, for the tests that look at the same result."""
    return clipped(case, case.batch(), clip)


def flat(result: Clipped, names: Iterable[str]) -> Tensor:
    """The sums as one vector in double precision; a missing name is an error."""
    return torch.cat([result.sums[name].double().flatten() for name in names])


def clips(case: Case) -> dict[str, float]:
    """A clip that cuts every unit, one that cuts about half of them, and one that cuts none."""
    truth = oracle.truth(case)
    norms = truth.norms[truth.finite & (truth.norms > 0)]
    if norms.numel() == 0:
        return {"all": 1.0}
    low, middle, high = norms.min().item(), norms.median().item(), norms.max().item()
    return {"all": low / 2, "half": middle * (1 - 1e-3), "none": 2 * high}


def unit(case: Case, inputs: tuple[Tensor, ...], index: int) -> tuple[Tensor, ...]:
    return tuple(x[index * case.views : (index + 1) * case.views] for x in inputs)


def assert_norms(case: Case, found: Tensor, truth: oracle.Truth) -> None:
    assert found.shape == truth.norms.shape
    finite = truth.finite
    wanted, got = truth.norms[finite], found.double()[finite]
    tolerance = EXACT if case.autocast is None else HALF
    worst = ((got - wanted).abs() / wanted.clamp(min=1e-12)).max().item() if len(wanted) else 0.0
    assert worst <= tolerance, f"norms off by {worst:.2e}"


def assert_sum(case: Case, found: Tensor, wanted: Tensor) -> None:
    """Within the tolerance relative to the sum's norm; where that is 0, exactly."""
    tolerance = EXACT if case.autocast is None else HALF_SUM
    error = (found - wanted).norm().item()
    assert math.isfinite(error), "the sum is not finite"
    assert error <= tolerance * wanted.norm().item(), f"sum off by {error / wanted.norm():.2e}"


@pytest.fixture(scope="module", params=TABLE, ids=lambda case: case.slug)
def case(request: pytest.FixtureRequest) -> Case:
    """A row of the table; of the module's scope, so that its tests follow one another."""
    chosen: Case = request.param
    if chosen.may_refuse:
        try:
            whole(chosen, clips(chosen)["all"])
        except UnsupportedModel as refusal:
            pytest.skip(f"refused, which is safe: {refusal}")
    return chosen


def test_norms_and_clipped_sums_are_the_oracles(case: Case):
    truth = oracle.truth(case)
    for which, clip in clips(case).items():
        result = whole(case, clip)
        assert set(result.sums) == set(truth.names)
        assert_norms(case, result.norms, truth)
        assert_sum(case, flat(result, truth.names), truth.clipped_sum(clip))
        cut = result.scales[truth.finite & (truth.norms > 0)] < 0.999
        assert which != "all" or cut.all()
        assert which != "none" or not cut.any() or case.autocast is not None


def test_sums_are_at_least_single_precision_and_shaped_as_parameters(case: Case):
    parameters = oracle.trainable(case.model())
    result = whole(case, clips(case)["all"])
    for name, total in result.sums.items():
        assert total.shape == parameters[name].shape
        assert total.dtype in (torch.float32, torch.float64)
        assert not total.requires_grad


def test_the_expected_rules_serve(case: Case):
    used = {use.rule for use in whole(case, clips(case)["all"]).uses}
    assert case.rules <= used
    if case.native is not None:
        assert (FALLBACK in used) is not case.native


def test_no_unit_releases_more_than_the_clip(case: Case):
    truth, clip = oracle.truth(case), clips(case)["all"]
    spoilt = {row // case.views for row in case.spoilt}
    for index in sorted({0, case.rows // case.views - 1} | spoilt):
        released = flat(clipped(case, unit(case, case.batch(), index), clip), truth.names)
        assert released.norm().item() <= clip * (1 + ROUNDING)
        assert truth.finite[index] or released.count_nonzero() == 0


def test_replacing_one_unit_moves_the_sum_by_at_most_twice_the_clip(case: Case):
    truth, batch = oracle.truth(case), case.batch()
    clip = clips(case)["all"]
    strangers = tuple(
        3 * x if x.is_floating_point() else x for x in case.draw(case.views, other=True)
    )
    replaced = tuple(
        torch.cat([new, x[case.views :]]) for new, x in zip(strangers, batch, strict=True)
    )
    before, after = whole(case, clip), clipped(case, replaced, clip)
    moved = flat(after, truth.names) - flat(before, truth.names)
    assert moved.norm().item() <= 2 * clip * (1 + ROUNDING)
    changed = oracle.truth_about(case, replaced)
    assert_sum(case, flat(after, truth.names), changed.clipped_sum(clip))
    others = truth.finite[1:]
    assert_norms_alike(case, before.norms[1:][others], after.norms[1:][others])


def assert_norms_alike(case: Case, first: Tensor, second: Tensor) -> None:
    tolerance = EXACT if case.autocast is None else HALF
    torch.testing.assert_close(first, second, rtol=tolerance, atol=1e-12)


def test_the_result_does_not_depend_on_the_physical_batch(case: Case):
    truth, batch = oracle.truth(case), case.batch()
    clip = clips(case).get("half", clips(case)["all"])
    cut = case.views * (case.rows // case.views // 3)  # uneven parts; the first may be empty
    if cut == 0 and not case.empty:
        cut = case.views
    together = flat(whole(case, clip), truth.names)
    first = flat(clipped(case, tuple(x[:cut] for x in batch), clip), truth.names)
    second = flat(clipped(case, tuple(x[cut:] for x in batch), clip), truth.names)
    assert_sum(case, first + second, together)


def test_an_empty_batch_adds_nothing(case: Case):
    if not case.empty:
        pytest.skip("PyTorch itself cannot run this model on no rows")
    result = clipped(case, case.draw(0), 1.0)
    assert result.norms.shape == (0,)
    assert set(result.sums) == set(oracle.truth(case).names)
    assert all(total.count_nonzero() == 0 for total in result.sums.values())


def test_bf16_norms_are_not_below_the_truth_by_more_than_the_guard():
    for case in TABLE:
        if case.autocast is not None:
            norms = clipped(case, case.batch(), 1.0).norms.double()
            assert (norms >= 0.99 * oracle.truth(case).norms).all(), case.name


@pytest.mark.parametrize("size", [1e18, 1e25, 1e35])
def test_a_huge_row_releases_at_most_the_clip_and_leaves_the_others_alone(size: float):
    """Its squared norm overflows float32: it may be cut or dropped, and must not get through."""
    torch.manual_seed(0)
    model, x = nn.Linear(4, 3), floats(4)(5, torch.Generator().manual_seed(1))
    parameters = oracle.trainable(model)

    def released(inputs: Tensor) -> Tensor:
        result = clipped_gradients(
            parameters, lambda: model(inputs).sum(1), rows=len(inputs), clip=1.0
        )
        return flat(result, parameters)

    huge = x.clone()
    huge[2] *= size
    others = torch.cat([x[:2], x[3:]])
    assert released(huge[2:3]).norm() <= 1 + ROUNDING
    torch.testing.assert_close(
        released(huge) - released(huge[2:3]), released(others), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    ("shape", "losses"),
    [
        ("(B, 1)", lambda out: out[:, :1].square()),
        ("scalar", lambda out: out.square().mean()),
        ("(B, T)", lambda out: out.square()),
        ("one too few", lambda out: out[1:, 0].square()[None]),
    ],
)
def test_losses_of_another_shape_are_refused(shape: str, losses: object):  # noqa: ARG001
    model = nn.Linear(4, 3)
    parameters = oracle.trainable(model)
    with pytest.raises(TacitError):
        clipped_gradients(parameters, lambda: losses(model(torch.randn(5, 4))), rows=5, clip=1.0)  # type: ignore[operator]
