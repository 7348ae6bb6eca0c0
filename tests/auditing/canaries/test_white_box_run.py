""""""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn
from torch.utils.data import TensorDataset

from tacit.auditing import gaussian_scores
from tacit.auditing.canaries import WhiteBoxResult, white_box
from tacit.auditing.canaries.white_box_run import CanaryScorer, plan_with_canaries
from tacit.errors import InvalidArgument
from tacit.training import AdaptiveQuantile, Flat, FullBatch, PerLayer, Plan, TruncatedPoisson
from tacit.training.noise import FastNoise

if TYPE_CHECKING:
    from collections.abc import Callable


# ---- white boxes

DELTA = 1e-5
SURE = 1.0 - 1e-7  # no test may fail by chance
DATA = TensorDataset(torch.randn(40, 3), torch.randint(2, (40,)))


def audit(plan: Plan, **settings: Any) -> WhiteBoxResult:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    settings = {"canaries": 1000, "seed": 1} | settings
    return white_box(model, DATA, plan, optimizer=optimizer, delta=DELTA, **settings)


def plan_for(epsilon: float, **settings: Any) -> Plan:
    settings = {"examples": 40, "lot_size": 40, "steps": 5, "clip": 0.7} | settings
    return Plan.for_budget(epsilon=epsilon, delta=DELTA, **settings)


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({}, 0.45),
        ({"lot_size": 8, "steps": 20}, 0.05),
        ({"adjacency": "replace-one"}, 0.45),
        ({"noise": "secure"}, 0.45),
    ],
)
def test_it_finds_most_of_epsilon_and_no_more(settings: dict[str, Any], share: float) -> None:
    found = audit(plan_for(8.0, **settings), canaries=2000)
    assert found.claimed == pytest.approx(8.0)
    assert not found.verdict(decisive=SURE).contradicted
    bounds = [estimate(SURE).epsilon for estimate in found.estimates()]
    assert max(bounds) > share * 8.0  # at 95 % it is about 0.9 and 0.75 of it


def spread(clipping: Flat | PerLayer) -> WhiteBoxResult:
    model = nn.Sequential(nn.Linear(3, 100), nn.Tanh(), nn.Linear(100, 50), nn.Linear(50, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    plan = plan_for(8.0, clipping=clipping, steps=3)
    return white_box(
        model, DATA, plan, optimizer=optimizer, delta=DELTA, canaries=500, directions="spread",
        seed=1,
    )  # fmt: skip


@pytest.mark.parametrize("clipping", [Flat(), PerLayer()])
def test_spread_over_the_models_own_parameters(clipping: Flat | PerLayer) -> None:
    found = spread(clipping)
    assert not found.verdict(decisive=SURE).contradicted
    apart = found.totals[found.included].mean() - found.totals[~found.included].mean()
    assert apart == pytest.approx(3.0, abs=1.6)  # of deviations below 2.8: six of the means'


def test_spread_canaries_see_too_little_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastNoise, "means", noise_times(0.2))
    assert spread(Flat()).verdict().contradicted


def test_coins_are_the_seeds_and_noise_is_not() -> None:
    plan = plan_for(4.0, steps=1)
    first, second = audit(plan, canaries=100), audit(plan, canaries=100)
    assert np.array_equal(first.included, second.included)
    assert not np.array_equal(first.totals, second.totals)
    assert 20 < first.included.sum() < 80


def noise_times(factor: float) -> Callable[..., dict[str, torch.Tensor]]:
    means = FastNoise.means

    def scaled(self: FastNoise, *tensors: Any, scale: float, **named: Any) -> Any:
        return means(self, *tensors, scale=factor * scale, **named)

    return scaled


@pytest.mark.parametrize("settings", [{}, {"lot_size": 8, "steps": 20}])
def test_an_engine_with_half_of_the_noise_is_contradicted(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FastNoise, "means", noise_times(0.5))
    verdict = audit(plan_for(4.0, **settings), canaries=2000).verdict()
    assert verdict.contradicted
    assert "contradicts" in verdict.describe()


def test_opposite_canaries_are_two_changes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(2.0)
    found = audit(plan, canaries=2000, out="opposite")
    assert found.changes == 2
    apart = found.totals[found.included].mean() - found.totals[~found.included].mean()
    deviation = 2.0 * plan.noise_multiplier * (plan.steps / 2000) ** 0.5
    assert apart == pytest.approx(2.0 * plan.steps, abs=6.0 * deviation)
    assert not found.verdict(decisive=SURE).contradicted
    assert found.estimates()[0](SURE).epsilon > 0.6 * 2.0  # without opposites 0.3 of it
    monkeypatch.setattr(FastNoise, "means", noise_times(0.7))
    assert audit(plan, canaries=2000, out="opposite").verdict().contradicted


def test_users_are_units() -> None:
    plan = Plan(
        examples=10, lot_size=10, steps=3, noise_multiplier=0.4, clip=1.0, unit="user",
        examples_per_user=4,
    )  # fmt: skip
    found = audit(plan, groups=np.arange(40) % 10, canaries=200)
    assert found.plan.examples == 210
    apart = found.totals[found.included].mean() - found.totals[~found.included].mean()
    assert apart == pytest.approx(3.0, abs=0.7)  # seven standard deviations


def test_views_of_a_canary_are_one_canary() -> None:
    plan = Plan(examples=40, lot_size=40, steps=3, noise_multiplier=0.4, clip=1.0, views=3)
    found = audit(plan, canaries=200)
    apart = found.totals[found.included].mean() - found.totals[~found.included].mean()
    assert apart == pytest.approx(3.0, abs=0.7)


def test_steps_are_told() -> None:
    steps: list[int] = []
    audit(plan_for(4.0, steps=3), canaries=10, on_step=steps.append)
    assert steps == [1, 2, 3]


def test_gaussian_scores_are_the_totals_of_full_batches() -> None:
    found = audit(plan_for(4.0))
    sums = found.totals[found.included], found.totals[~found.included]
    scores = type(found.trials)(*sums)
    assert gaussian_scores(scores, DELTA).epsilon == pytest.approx(
        gaussian_scores(found.trials, DELTA).epsilon, rel=1e-6
    )


def test_the_rate_stays() -> None:
    plan = Plan(examples=60, lot_size=6, steps=9, noise_multiplier=2.0, clip=1.0)
    grown = plan_with_canaries(plan, 1000)
    assert (grown.examples, grown.steps, grown.noise_multiplier) == (1060, 9, 2.0)
    assert grown.sample_rate == pytest.approx(plan.sample_rate, rel=1e-15)
    assert grown.epsilon(DELTA) == pytest.approx(plan.epsilon(DELTA), rel=1e-9)


def test_full_and_truncated_lots_grow() -> None:
    full = Plan(examples=60, lot_size=60, steps=9, noise_multiplier=2.0, clip=1.0)
    assert isinstance(plan_with_canaries(full, 7).sampling, FullBatch)
    cut = Plan(
        examples=60, lot_size=6, steps=9, noise_multiplier=2.0, clip=1.0,
        sampling=TruncatedPoisson(20),
    )  # fmt: skip
    assert plan_with_canaries(cut, 60).sampling == TruncatedPoisson(40)


def test_refusals() -> None:
    layers = Plan(
        examples=40, lot_size=8, steps=2, noise_multiplier=1.0, clip=1.0, clipping=PerLayer()
    )
    with pytest.raises(InvalidArgument, match="spread"):
        audit(layers)
    moving = replace(layers, clipping=AdaptiveQuantile(quantile=0.5, count_noise=2.0))
    with pytest.raises(InvalidArgument, match="AdaptiveQuantile"):
        audit(moving)
    with pytest.raises(InvalidArgument, match="directions"):
        audit(plan_for(4.0), directions="diagonal")
    with pytest.raises(InvalidArgument, match="examples=41"):
        audit(Plan(examples=41, lot_size=8, steps=2, noise_multiplier=1.0, clip=1.0))
    with pytest.raises(InvalidArgument, match="out must be 'absent' or 'opposite', got 'other'"):
        audit(plan_for(4.0), out="other")
    for odd in (plan_for(4.0, lot_size=8), plan_for(4.0, adjacency="replace-one")):
        with pytest.raises(InvalidArgument, match="out='opposite' is for add-remove and full"):
            audit(odd, out="opposite")
    with pytest.raises(InvalidArgument, match="canaries"):
        audit(plan_for(4.0), canaries=1)


# ---- scoring


class FixedDirections:
    """Directions whose released coordinates are set by hand."""

    def __init__(self) -> None:
        self.moved = torch.zeros(0)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return []

    def along(self, canaries: torch.Tensor) -> torch.Tensor:
        return canaries

    def released(self) -> torch.Tensor:
        return self.moved


@pytest.mark.parametrize("rate", [1.0, 0.3, 0.001])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_scores_are_ratios_of_densities(rate: float, adjacency: str) -> None:
    plan = Plan(
        examples=1000, lot_size=1000 * rate, steps=2, noise_multiplier=0.7, clip=2.0,
        adjacency=adjacency,
    )  # fmt: skip
    fixed = FixedDirections()
    scorer = CanaryScorer(fixed, plan, 5)
    released = np.array([[-1.5, -0.2, 0.0, 0.9, 2.5], [0.1, 0.2, 0.3, 0.4, 0.5]])
    for step in released:
        fixed.moved = torch.tensor(step * plan.clip / plan.lot_size)
        scorer.note()
    out = norm.pdf(released, 0.0, 0.7)
    others = {place: norm.pdf(released, place, 0.7) for place in (-1.0, 1.0)}
    below = out if adjacency == "add-remove" else (1 - rate) * out + rate * others[-1.0]
    expected = np.log(((1 - rate) * out + rate * others[1.0]) / below).sum(axis=0)
    assert scorer.scores.tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    assert scorer.totals.tolist() == pytest.approx(released.sum(axis=0).tolist())


def test_little_noise_does_not_overflow() -> None:
    plan = Plan(examples=10, lot_size=5, steps=1, noise_multiplier=1e-3, clip=1.0)
    fixed = FixedDirections()
    scorer = CanaryScorer(fixed, plan, 1)
    fixed.moved = torch.tensor([0.2], dtype=torch.float64)  # the clip, over the lot
    scorer.note()
    assert scorer.scores.item() == pytest.approx(math.log(0.5) + 0.5e6)
