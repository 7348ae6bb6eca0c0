"""Each of the unseen bugs is there, shown by a measurement; the self-test has no part in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

import tacit
from tacit.accounting import Composed, Gaussian, PoissonSampled
from tacit.auditing.replay import COMPONENTS
from tacit.randomness import UnsafeSeededStream
from tacit.training.fit import Keeping, Prepared, Watch, carry_out
from tacit.training.lot import Accumulator
from tacit.training.sampling import LotSampler

from .catalogue import BY_NAME
from .unseen import UNSEEN, UNSEEN_BY_NAME
from .watching import moved, noise, of_everybody, run, with_plan

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from .mutant import Mutant

DELTA = 1e-5


def shows(name: str) -> pytest.MarkDecorator:
    """A test that shows this bug; it is given the mutant."""
    return pytest.mark.parametrize("mutant", [UNSEEN_BY_NAME[name]], ids=[name])


def test_there_are_ten_others_and_each_is_shown() -> None:
    marks = [mark for value in globals().values() for mark in getattr(value, "pytestmark", ())]
    shown = {mutant.name for mark in marks for mutant in mark.args[1]}
    assert len(UNSEEN) == 10
    assert shown == set(UNSEEN_BY_NAME)
    assert not shown & set(BY_NAME)
    assert {component for mutant in UNSEEN for component in mutant.components} <= set(COMPONENTS)


@shows("sampling with replacement")
def test_a_record_is_in_a_lot_twice(mutant: Mutant) -> None:
    plan = mutant.setting().plan

    def most() -> NDArray[np.int64]:
        sampler = LotSampler(plan, UnsafeSeededStream(0, "lots"))
        return np.array([np.bincount(sampler.draw(), minlength=48).max() for _ in range(400)])

    with mutant.patch():
        assert (most() >= 2).mean() > 0.5
    assert (most() == 1).all()


@shows("lot size warm-up")
def test_the_rate_grows_and_costs_more(mutant: Mutant) -> None:
    setting = mutant.setting()
    plan, stream = setting.plan, UnsafeSeededStream(0, "lots")
    with mutant.patch():
        samplers = [LotSampler(plan, stream) for _ in range(500)]
        sizes = np.array([[len(one.draw()) for _ in range(plan.steps)] for one in samplers])
    rates = sizes.mean(0) / plan.examples
    expected = plan.sample_rate * (1.0 + np.arange(plan.steps) / (plan.steps - 1))
    assert np.abs(rates - expected).max() < 0.03  # 10 standard deviations
    steps = [PoissonSampled(rate, Gaussian(plan.noise_multiplier)) for rate in expected]
    spent = tacit.accounting.epsilon(Composed(*steps), DELTA)
    with mutant.patch():
        assert spent > 1.2 * run(setting).session.statement(DELTA).epsilon


@shows("sum left over by an empty lot")
def test_an_empty_lot_releases_the_sum_before_it(mutant: Mutant) -> None:
    setting = with_plan(mutant.setting(), noise_multiplier=1e-6, steps=20)

    def length_of_empty() -> list[float]:
        seen = run(setting, unsafe_seed=0)
        later = list(zip(seen.lots, seen.sums(), strict=True))[5:]
        return [float(total.norm()) for lot, total in later if not lot]

    with mutant.patch():
        assert min(length_of_empty()) > 0.5
    assert max(length_of_empty()) < 1e-4


@shows("hardest six of a batch")
def test_one_record_pushes_another_out(mutant: Mutant) -> None:
    setting = mutant.setting()
    with mutant.patch():
        assert max(moved(setting, record) for record in range(setting.plan.examples)) > 1.2
    assert max(moved(setting, record) for record in range(4)) < 1.0001


@shows("norms kept from the first use")
def test_a_scaled_gradient_is_longer_than_the_clip(mutant: Mutant) -> None:
    setting = with_plan(mutant.setting(), steps=30)

    def longest() -> float:
        lengths: list[float] = []
        add = Accumulator.add

        def noting(self: Any, result: Any, **named: Any) -> None:
            lengths.append(float((result.scales * result.squared_norms.sqrt()).max()))
            add(self, result, **named)

        with patch.object(Accumulator, "add", noting):
            run(setting, unsafe_seed=0)
        return max(lengths)

    with mutant.patch():
        assert longest() > 1.3 * setting.plan.clip
    assert longest() <= setting.plan.clip


@shows("noise of one length")
def test_noise_has_one_length(mutant: Mutant) -> None:
    with mutant.patch():
        lengths = noise(mutant.setting(), seed=None)
    dimension = lengths.shape[1]
    assert torch.allclose(lengths.norm(dim=1), torch.tensor(dimension**0.5).double(), rtol=1e-5)
    assert noise(mutant.setting()).norm(dim=1).std() > 0.1


@shows("noise never against the gradient")
def test_no_step_goes_against_the_gradient(mutant: Mutant) -> None:
    one = with_plan(mutant.setting(), lot_size=1, noise_multiplier=4.0)
    exact = with_plan(one, noise_multiplier=1e-9)

    def along() -> torch.Tensor:
        """Of first steps on the same lot: the noisy sum along the exact one."""
        pairs = [
            (run(exact, steps=1, unsafe_seed=seed), run(one, steps=1, unsafe_seed=seed))
            for seed in range(12)
        ]
        kept = [(a, b) for a, b in pairs if a.lots[0]]
        assert all(a.lots == b.lots for a, b in kept)
        return torch.stack([a.sums()[0] @ b.sums()[0] for a, b in kept])

    with mutant.patch():
        assert (along() >= 0).all()
    assert (along() < 0).any()


@shows("error feedback")
def test_what_was_cut_off_comes_a_step_later(mutant: Mutant) -> None:
    setting = with_plan(of_everybody(mutant.setting()), noise_multiplier=1e-6)

    def lengths() -> list[float]:
        return [float(total.norm()) for total in run(setting, steps=2, unsafe_seed=0).sums()]

    healthy = lengths()
    with mutant.patch():
        first, second = lengths()
    assert first == pytest.approx(healthy[0], rel=1e-6)
    assert second > healthy[1] + 10.0 * setting.plan.clip


@shows("second run not charged")
def test_a_second_run_leaves_no_entry(mutant: Mutant, tmp_path: Path) -> None:
    budget = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db").open("data", epsilon=99, delta=DELTA)
    setting = mutant.setting()

    def charged() -> int:
        assert len(run(setting, budget=budget).released) == 6
        return sum(one.granted for one in budget.ledger.refresh().reservations.values())

    with mutant.patch():
        assert [charged(), charged()] == [6, 6]
    assert charged() == 12


@shows("only the steps since resumed")
def test_epsilon_is_of_the_second_half(mutant: Mutant, tmp_path: Path) -> None:
    setting, path = mutant.setting(), tmp_path / "run"

    def claimed() -> float:
        stop = iter([False, False, True]).__next__
        for more, on in (({"stop": stop}, {}), ({}, {"resume": path})):
            model = setting.model()
            optimizer = setting.optimizer(model.parameters())
            done = carry_out(
                Prepared(model=model, optimizer=optimizer, plan=setting.plan,
                         dataset=setting.dataset, loss=setting.loss),
                delta=DELTA, keeping=Keeping(save=path, **on),
                watch=Watch(progress=False, **more),
            )  # fmt: skip
        assert done.statement.steps_taken == 6
        return done.statement.epsilon

    honest = claimed()
    half = replace(setting.plan, steps=3)
    path.unlink()
    with mutant.patch():
        assert claimed() == pytest.approx(tacit.accounting.epsilon(half.event, DELTA), rel=1e-9)
    assert honest > 1.2 * tacit.accounting.epsilon(half.event, DELTA)
