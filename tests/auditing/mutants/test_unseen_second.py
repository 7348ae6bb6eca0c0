"""Each bug of the second unseen round is there, shown by a measurement apart from the self-test."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import tacit
from tacit.accounting import Composed, Gaussian, PoissonSampled
from tacit.auditing.replay import COMPONENTS
from tacit.randomness import UnsafeSeededStream
from tacit.training import sampling
from tacit.training.lot import Accumulator
from tacit.training.noise import FastNoise
from tacit.training.sampling import LotSampler

from .catalogue import BY_NAME
from .mutant import unwatched
from .settings import mlp, vectors
from .unseen import UNSEEN_BY_NAME
from .unseen_second import SECOND_UNSEEN, SECOND_UNSEEN_BY_NAME
from .watching import flat, inclusion, moved, noise, of_everybody, run, with_plan

if TYPE_CHECKING:
    from pathlib import Path

    from .mutant import Mutant

DELTA = 1e-5


def shows(name: str) -> pytest.MarkDecorator:
    """A test that shows this bug; it is given the mutant."""
    return pytest.mark.parametrize("mutant", [SECOND_UNSEEN_BY_NAME[name]], ids=[name])


def test_there_are_ten_others_and_each_is_shown() -> None:
    marks = [mark for value in globals().values() for mark in getattr(value, "pytestmark", ())]
    shown = {mutant.name for mark in marks for mutant in mark.args[1]}
    blamed = {component for mutant in SECOND_UNSEEN for component in mutant.components}
    assert len(SECOND_UNSEEN) == 10
    assert shown == set(SECOND_UNSEEN_BY_NAME)
    assert not shown & {*BY_NAME, *UNSEEN_BY_NAME}
    assert blamed <= set(COMPONENTS)


@shows("lots cut to a fixed shape")
def test_one_record_more_pushes_another_out(mutant: Mutant) -> None:
    plan = mutant.setting().plan

    def differ() -> set[int]:
        """Where a lot of twenty and the same one without its first record differ."""
        lots = []
        for first in (0, 1):
            with patch.object(sampling, "included", lambda *_, first=first: np.arange(first, 20)):
                lots.append(set(LotSampler(plan, UnsafeSeededStream(0, "lots")).draw().tolist()))
        return lots[0] ^ lots[1]

    with mutant.patch():
        assert differ() == {0, 16}
        assert 0.03 < (inclusion(mutant.setting(), 1000).sum(1) == 16).mean() < 0.3
    assert differ() == {0}
    assert (inclusion(mutant.setting(), 1000).sum(1) > 16).mean() > 0.03


@shows("first epoch's lots again")
def test_lots_come_again_and_cost_more(mutant: Mutant) -> None:
    setting = mutant.setting()

    def comes_again() -> bool:
        lots = inclusion(setting, 12)
        return bool((lots[4:8] == lots[:4]).all() and (lots[8:] == lots[:4]).all())

    assert not comes_again()
    with mutant.patch():
        assert comes_again()
        claimed = run(setting).session.statement(DELTA).epsilon
    # Two of the four lots are released twice: with one coin each, and √2 of the distance.
    twice, once = (
        PoissonSampled(setting.plan.sample_rate, Gaussian(sigma)) for sigma in (0.5**0.5, 1.0)
    )
    assert tacit.accounting.epsilon(Composed(twice, twice, once, once), DELTA) > 1.3 * claimed


@shows("noise without tails")
def test_no_noise_is_beyond_three(mutant: Mutant) -> None:
    setting = with_plan(mlp(), lot_size=1, steps=80)  # 5040 numbers; 13 beyond, on average
    with mutant.patch():
        cut = noise(setting).abs()
    assert 2.9 < float(cut.max()) < 3.0001
    assert int((noise(setting).abs() > 3.0001).sum()) >= 5


@shows("noise partly taken back")
def test_noise_is_correlated_from_step_to_step(mutant: Mutant) -> None:
    setting = with_plan(mutant.setting(), lot_size=1, steps=60)

    def correlation() -> float:
        drawn = noise(setting)
        assert float(drawn.std()) == pytest.approx(1.0, abs=0.04)
        return float((drawn[1:] * drawn[:-1]).mean())

    with mutant.patch():
        assert correlation() == pytest.approx(-0.4, abs=0.07)
    assert correlation() == pytest.approx(0.0, abs=0.07)


@shows("views in two batches")
def test_an_example_adds_two_clips(mutant: Mutant) -> None:
    with mutant.patch():
        assert max(moved(mutant.setting(), record) for record in range(2)) > 1.99
    assert max(moved(mutant.setting(), record) for record in range(2)) < 1.0001


@shows("batch with a NaN left out")
def test_one_record_takes_others_out(mutant: Mutant) -> None:
    x, y = vectors().tensors
    broken = x.clone()
    broken[0] = torch.nan
    setting = replace(mutant.setting(), dataset=TensorDataset(broken, y))
    with mutant.patch():
        assert moved(setting) > 1.2
    assert moved(setting) < 1e-4


@shows("trained entries by the exact gradient")
def test_half_of_the_weights_never_move(mutant: Mutant) -> None:
    setting = mutant.setting()
    exact = run(with_plan(setting, noise_multiplier=1e-9), steps=1, unsafe_seed=0).sums()[0].abs()

    def trained() -> torch.Tensor:
        first = flat(dict(setting.model().named_parameters()))
        return flat(run(setting, unsafe_seed=0).weights[-1]) != first

    with mutant.patch():
        assert torch.equal(trained(), exact >= exact.median())
    assert trained().all()


@shows("broken-off epoch not counted")
def test_epsilon_is_of_four_steps_of_six(mutant: Mutant) -> None:
    setting = mutant.setting()
    four = tacit.accounting.epsilon(setting.plan.event_after(4), DELTA)
    with mutant.patch():
        session = run(setting).session
        assert session.steps_taken == 6
        assert session.statement(DELTA).epsilon == pytest.approx(four, rel=1e-9)
    assert run(setting).session.statement(DELTA).epsilon > 1.1 * four


@shows("moved clip resumed without its noise")
def test_a_resumed_step_has_too_little_noise(mutant: Mutant, tmp_path: Path) -> None:
    setting = of_everybody(mutant.setting())

    def noise_multipliers() -> list[float]:
        """Of the steps after the third: the noise over the longest clipped gradient."""
        model = setting.model()
        optimizer = setting.optimizer(model.parameters())
        with tacit.private(model, optimizer, setting.plan, setting.dataset, unsafe_seed=0) as dp:
            for lot in itertools.islice(dp.lots(), 3):
                dp.accumulate(lot, lambda batch: setting.loss(model, batch))
                dp.step()
            dp.save(tmp_path / "run")
        scales: list[float] = []
        longest: list[float] = []
        add, means = Accumulator.add, FastNoise.means

        def adding(self: Any, result: Any, **named: Any) -> None:
            longest.append(float((result.scales * result.squared_norms.sqrt()).max()))
            add(self, result, **named)

        def releasing(self: Any, *given: Any, scale: float, **named: Any) -> Any:
            scales.append(scale)
            return means(self, *given, scale=scale, **named)

        with patch.object(Accumulator, "add", adding), patch.object(FastNoise, "means", releasing):
            run(setting, resume=tmp_path / "run", unsafe_seed=0)
        return [scale / length for scale, length in zip(scales, longest, strict=True)]

    sigma = setting.plan.noise_multiplier
    with mutant.patch():
        assert noise_multipliers()[0] < 0.5 * sigma
    with unwatched():  # one batch a lot here, too
        assert min(noise_multipliers()) >= sigma


@shows("best weights by the training loss")
def test_a_run_leaves_the_weights_of_its_best_step(mutant: Mutant) -> None:
    setting = mutant.setting()
    losses: list[float] = []

    def noted(model: Any, batch: Any) -> torch.Tensor:
        values = setting.loss(model, batch)
        losses.append(float(values.detach().mean()))
        return values

    def left() -> int:
        """After which step the weights were as the run leaves them."""
        losses.clear()
        with unwatched():  # one loss a lot
            seen = run(replace(setting, loss=noted), unsafe_seed=1)
        final = flat(dict(seen.session.model.named_parameters()))
        return [torch.equal(flat(weights), final) for weights in seen.weights].index(True)

    assert left() == 5
    with mutant.patch():
        best = left()
    assert best == int(np.argmin(losses)) < 5
