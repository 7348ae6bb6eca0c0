"""One step is Algorithm 1 of Abadi et al. 2016, whatever the batches and the style are."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import tacit
from tacit.errors import InvalidArgument
from tacit.training import AdaptiveQuantile, Automatic, PerGroup, PerLayer
from tacit.training.performance import Performance

from . import sessions
from .sessions import (
    CLIP,
    EXAMPLES,
    WIDTH,
    Grads,
    cross_entropy,
    data,
    drawn,
    example_sum,
    network,
    plan,
    session,
    sgd,
    whole_lot,
)


def first_step(
    batch: int | str = "auto", seed: int = 1, **changed: Any
) -> tuple[dict[str, Tensor], list[int]]:
    """What the first step hands to the optimizer, and the lot it came from."""
    model = network()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    with session(
        model,
        optimizer=optimizer,
        plan=plan(**changed),
        performance=Performance(batch=batch),  # type: ignore[arg-type]
        unsafe_seed=seed,
    ) as dp:
        lot = next(dp.lots())
        units = drawn(lot).tolist()
        whole_lot(dp, lot, cross_entropy(model))
    return grads.steps[0], units


@pytest.mark.parametrize("batch", [1, 3, 8, "auto"])
def test_the_optimizer_gets_the_clipped_sum_over_the_lot_size(batch: int | str) -> None:
    got, units = first_step(batch)
    truth = example_sum(network(), data(), units, CLIP)
    assert len(units) != 12  # a lot of the planned size would hide a wrong divisor
    assert sessions.close(got, {name: value / 12 for name, value in truth.items()})


def test_the_norms_are_on_both_sides_of_the_clip() -> None:
    """Else the tests here would not see whether there is clipping."""
    units = [[sessions.row_of(data(), at)] for at in range(EXAMPLES)]
    norms = [
        sessions.norm(g)
        for g in sessions.unit_gradients(
            network(), lambda m, r: functional.cross_entropy(m(r[0]), r[1]), units
        )
    ]
    assert min(norms) < CLIP < max(norms)


@pytest.mark.parametrize("lot_size", [12, 7.5, 20])
def test_the_divisor_is_the_plans_lot_size(lot_size: float) -> None:
    """Opacus #571 and #819: a realised or data-dependent size tells who was in the lot."""
    got, units = first_step(lot_size=lot_size)
    truth = example_sum(network(), data(), units, CLIP)
    assert sessions.close(got, {name: value / lot_size for name, value in truth.items()})


def test_the_same_lot_gives_the_same_sum_for_every_batch_size() -> None:
    one, units = first_step(1)
    for batch in (2, 5, 16, "auto"):
        other, again = first_step(batch)
        assert again == units
        assert sessions.close(other, {name: value.double() for name, value in one.items()})


class OfSums(nn.Module):
    """Weights that are sums of parameters: autograd has one tensor for the gradients of both."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        shapes = {"base": (4, WIDTH), "change": (4, WIDTH), "turned": (WIDTH, 4), "pooled": (6, 4)}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape, generator=generator)))

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.linear(x, self.base + self.change + self.turned.mT)
        return hidden[:, :3] + hidden @ self.pooled.sum(0).unsqueeze(1)


@pytest.mark.parametrize("batch", [3, 5])
def test_the_next_batch_is_added_once_to_weights_that_are_sums(batch: int) -> None:
    model = OfSums()
    grads = Grads(model, optimizer := sgd(model))
    performance = Performance(batch=batch)
    with session(model, optimizer=optimizer, performance=performance) as dp:
        lot = next(dp.lots())
        units = drawn(lot).tolist()
        whole_lot(dp, lot, cross_entropy(model))
    truth = example_sum(OfSums(), data(), units, CLIP)
    assert len(units) > batch
    assert sessions.close(grads.steps[0], {name: value / 12 for name, value in truth.items()})


def test_noise_is_added_once_per_lot_and_not_per_batch() -> None:
    """With the same seed and much noise, batches of 1 and one batch release the same numbers."""
    one, _ = first_step(1, noise_multiplier=3.0)
    other, _ = first_step("auto", noise_multiplier=3.0)
    quiet, _ = first_step("auto")
    assert sessions.close(one, {name: value.double() for name, value in other.items()})
    assert not sessions.close(one, {name: value.double() for name, value in quiet.items()}, 0.1)


def test_the_model_moves_by_the_released_mean() -> None:
    model, before = network(), network()
    optimizer = sgd(model, lr=0.3)
    grads = Grads(model, optimizer)
    with session(model, optimizer=optimizer) as dp:
        whole_lot(dp, next(dp.lots()), cross_entropy(model))
    for name, parameter in model.named_parameters():
        moved = before.get_parameter(name) - 0.3 * grads.steps[0][name]
        torch.testing.assert_close(parameter.detach(), moved.detach())
        assert parameter.grad is None


def test_full_batch_plans_use_every_example() -> None:
    got, units = first_step(lot_size=EXAMPLES)
    assert units == list(range(EXAMPLES))
    truth = example_sum(network(), data(), units, CLIP)
    assert sessions.close(got, {name: value / EXAMPLES for name, value in truth.items()})


def test_nothing_is_claimed_at_a_delta_that_allows_to_publish_somebody() -> None:
    with session(network()) as dp:
        pass
    assert dp.statement(0.99 / EXAMPLES).delta == 0.99 / EXAMPLES
    for delta in (1.0 / EXAMPLES, 0.5):
        with pytest.raises(InvalidArgument, match=f"delta must be below 1/{EXAMPLES}"):
            dp.statement(delta)


def test_a_lot_knows_its_step_and_epoch_and_rows() -> None:
    model = network()
    with session(model, performance=Performance(batch=5)) as dp:
        lots = dp.lots()
        assert len(lots) == 4
        for number, lot in enumerate(lots):
            assert lot.step == number
            assert lot.epoch == number * 12 // EXAMPLES
            assert isinstance(lot.epoch, int)
            left = len(drawn(lot))
            for x, y in lot:
                assert len(x) == len(y) <= 5
                counted = left - len(lot._draw.left)
                dp.backward(cross_entropy(model)((x, y)))
                assert left - len(lot._draw.left) in (counted, counted + len(x))
            assert lot.is_done
            dp.step()
            assert len(lots) == 3 - number
        assert dp.steps_taken == 4


# ---- clipping styles


def gradients_of(units: list[int]) -> list[dict[str, Tensor]]:
    def losses(model: nn.Module, row: Any) -> Tensor:
        return functional.cross_entropy(model(row[0]), row[1], reduction="none")

    rows = [[sessions.row_of(data(), at)] for at in units]
    return sessions.unit_gradients(network(), losses, rows)


def grouped_sum(gradients: list[dict[str, Tensor]], bounds: dict[str, float]) -> dict[str, Tensor]:
    totals: dict[str, Tensor] = {}
    for prefix, bound in bounds.items():
        part = [{n: g for n, g in one.items() if n.startswith(prefix)} for one in gradients]
        totals |= sessions.flat_sum(part, bound)
    return {name: totals[name] / 12 for name in gradients[0]}


def test_per_group_clipping_has_a_bound_for_each_group() -> None:
    style = PerGroup({"0": 1.1, "2": 1.2})
    got, units = first_step(3, clipping=style, clip=None)
    assert sessions.close(got, grouped_sum(gradients_of(units), {"0": 1.1, "2": 1.2}))


def test_per_layer_clipping_shares_the_clip() -> None:
    got, units = first_step(clipping=PerLayer())
    share = CLIP / math.sqrt(2)
    assert sessions.close(got, grouped_sum(gradients_of(units), {"0": share, "2": share}))


def test_automatic_clipping_normalises() -> None:
    got, units = first_step(4, clipping=Automatic(stability=0.05))
    each = gradients_of(units)
    truth = {
        name: sum(CLIP / (sessions.norm(g) + 0.05) * g[name] for g in each) / 12 for name in each[0]
    }
    assert sessions.close(got, truth)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "style",
    [PerGroup({"0": 3.0, "2": 4.0}), PerLayer(), Automatic()],
    ids=lambda s: type(s).__name__,
)
def test_the_noise_follows_from_the_whole_clip(style: Any) -> None:
    model = nn.Sequential(nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 200))
    named = PerGroup({"0": 3.0, "2": 4.0}) if isinstance(style, PerGroup) else style
    chosen = plan(
        examples=2, lot_size=1e-9, noise_multiplier=2.0, clipping=named,
        clip=None if isinstance(style, PerGroup) else 5.0,
    )  # fmt: skip
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    dataset = TensorDataset(torch.zeros(2, 200))
    with tacit.private(model, optimizer, chosen, dataset) as dp:
        assert len(drawn(next(dp.lots()))) == 0
        dp.step()
    for values in grads.steps[0].values():
        if values.numel() > 1000:
            assert float(values.std()) * 1e-9 == pytest.approx(10.0, rel=0.03)


# ---- adaptive clipping


def adaptive(**changed: Any) -> Any:
    return AdaptiveQuantile(**({"count_noise": 1e-6, "learning_rate": 0.5} | changed))


def test_the_first_clip_is_the_plans_and_the_next_follows_the_count() -> None:
    model = network()
    optimizer = sgd(model, lr=1e-9)
    grads = Grads(model, optimizer)
    chosen = plan(lot_size=EXAMPLES, clipping=adaptive(quantile=0.3), steps=2)
    each = gradients_of(list(range(EXAMPLES)))
    with session(model, optimizer=optimizer, plan=chosen) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    within = sum(sessions.norm(g) <= CLIP for g in each) / EXAMPLES
    second = CLIP * math.exp(-0.5 * (within - 0.3))
    assert 0 < within < 1
    for step, clip in enumerate((CLIP, second)):
        truth = sessions.flat_sum(each, clip)
        assert sessions.close(grads.steps[step], {n: v / EXAMPLES for n, v in truth.items()})


@pytest.mark.parametrize("quantile", [0.2, 0.8])
@pytest.mark.parametrize("batch", [7, "auto"])
def test_the_clip_moves_to_the_quantile(quantile: float, batch: Any) -> None:
    model = network()
    chosen = plan(clip=30.0, clipping=adaptive(quantile=quantile), steps=60)
    with session(
        model, optimizer=sgd(model, lr=1e-9), plan=chosen, performance=Performance(batch=batch)
    ) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
        norms = sorted(sessions.norm(g) for g in gradients_of(list(range(EXAMPLES))))
        low, high = (norms[int(EXAMPLES * (quantile + off))] for off in (-0.19, 0.19))
        assert low * 0.8 < dp._clip.sensitivity < high * 1.25


def test_the_count_is_noisy_also_in_an_empty_lot() -> None:
    chosen = plan(
        lot_size=1e-6, clipping=AdaptiveQuantile(count_noise=2.0, learning_rate=1e-6), steps=200
    )
    clips = []
    with session(plan=chosen) as dp:
        for lot in dp.lots():
            before = dp._clip.sensitivity
            assert len(drawn(lot)) == 0
            dp.step()
            # share - quantile = noise/lot_size, times a learning rate that undoes the lot size
            clips.append(-math.log(dp._clip.sensitivity / before))
    spread = torch.tensor(clips)
    assert float(spread.std()) == pytest.approx(2.0, rel=0.25)
    assert abs(float(spread.mean())) < 0.6


def test_the_count_is_charged() -> None:
    """PEERS 6: its sensitivity is ½ about the centre, so that its multiplier is 2·count_noise."""
    flat = plan(noise_multiplier=1.0, steps=100)
    chosen = plan(noise_multiplier=1.0, steps=100, clipping=AdaptiveQuantile(count_noise=2.0))
    lone = plan(noise_multiplier=1.0 / math.sqrt(1 + 1 / 16), steps=100)
    assert chosen.epsilon(1e-5) > flat.epsilon(1e-5) * 1.01
    assert chosen.epsilon(1e-5) == pytest.approx(lone.epsilon(1e-5), rel=1e-6)


def test_the_noise_follows_the_clip_as_it_moves() -> None:
    model = nn.Linear(300, 300)
    optimizer = sgd(model, lr=1e-12)
    grads = Grads(model, optimizer)
    chosen = plan(
        examples=2, lot_size=1e-6, noise_multiplier=2.0, clip=4.0, steps=3,
        clipping=AdaptiveQuantile(count_noise=1e-9, learning_rate=2.0, quantile=0.9),
    )  # fmt: skip
    clips = []
    with tacit.private(model, optimizer, chosen, TensorDataset(torch.zeros(2, 300))) as dp:
        for lot in dp.lots():
            assert len(drawn(lot)) == 0
            clips.append(dp._clip.sensitivity)
            dp.step()
    assert clips[2] > clips[1] * 1.5 > clips[0] * 2
    for clip, values in zip(clips, grads.steps, strict=True):
        assert float(values["weight"].std()) * 1e-6 == pytest.approx(2.0 * clip, rel=0.02)


def test_a_bound_in_double_precision_is_not_rounded_up() -> None:
    """1.7 lies below the nearest single-precision number, which no unit may reach."""
    torch.manual_seed(0)
    model = network().double()
    optimizer = sgd(model)
    grads = Grads(model, optimizer)
    clip = 1.7
    chosen = plan(lot_size=1, examples=1, steps=2, clip=clip, noise_multiplier=1e-15)
    one = TensorDataset(torch.randn(1, WIDTH).double() * 1e3, torch.zeros(1).long())
    with tacit.private(model, optimizer, chosen, one) as dp:
        for lot in dp.lots():
            whole_lot(dp, lot, cross_entropy(model))
    for step in grads.steps:
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in step.values()))
        assert norm <= clip * (1 + 1e-10)
