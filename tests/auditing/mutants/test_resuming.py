"""Each bug of resumed runs is there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

import tacit
from tacit.training.styles import AdaptiveQuantile

from .watching import noise_multipliers, of_everybody, run, shows, silent, with_plan

if TYPE_CHECKING:
    from pathlib import Path

    from tacit.auditing.replay import Setting
    from tacit.training.session import Session

    from .mutant import Mutant


class _Crash(Exception):
    pass


def _crashed(setting: Setting, path: Path, *, saved: int, steps: int, **given: Any) -> Session:
    """A run that was saved after ``saved`` steps, and crashed after ``steps``."""
    model = setting.model()
    optimizer = setting.optimizer(model.parameters())
    try:
        with tacit.private(
            model, optimizer, setting.plan, setting.dataset,
            performance=setting.performance, **given,
        ) as dp:  # fmt: skip
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(setting.loss(model, batch))
                dp.step()
                if dp.steps_taken == saved:
                    dp.save(path)
                if dp.steps_taken == steps:
                    raise _Crash
    except _Crash:
        return dp
    raise AssertionError


@shows("noise reused after resume")
def test_the_first_noise_comes_again(mutant: Mutant, tmp_path: Path) -> None:
    setting, path = silent(mutant.setting()), tmp_path / "run"
    halved = replace(setting, plan=replace(setting.plan, steps=6))
    with mutant.patch():
        first = _recorded(halved, path, saved=3)
        again = run(halved, resume=path)
    assert all(torch.equal(a, b) for a, b in zip(first, again.sums(), strict=False))


def _recorded(setting: Setting, path: Path, *, saved: int) -> list[torch.Tensor]:
    """The noise of a run that is saved after ``saved`` steps."""
    kept: list[torch.Tensor] = []

    def optimizer(parameters: Any) -> Any:
        made = setting.optimizer(parameters)
        held = [p for group in made.param_groups for p in group["params"]]

        def note(*_: Any) -> None:
            flat = torch.cat([p.grad.double().flatten() for p in held])
            kept.append(setting.plan.lot_size * flat)

        made.register_step_pre_hook(note)
        return made

    _crashed(replace(setting, optimizer=optimizer), path, saved=saved, steps=saved)
    return kept


@shows("steps forgotten on resume")
def test_more_steps_are_taken_than_planned(mutant: Mutant, tmp_path: Path) -> None:
    setting = mutant.setting()
    _crashed(setting, tmp_path / "run", saved=3, steps=3)
    with mutant.patch():
        assert 3 + len(run(setting, resume=tmp_path / "run").released) == setting.plan.steps + 3
    assert 3 + len(run(setting, resume=tmp_path / "run").released) == setting.plan.steps


@shows("lost steps given back")
def test_lost_steps_are_taken_again(mutant: Mutant, tmp_path: Path) -> None:
    setting, path = mutant.setting(), tmp_path / "run"
    budget = tacit.Ledger(f"sqlite:///{tmp_path}/budget.db").open("data", epsilon=99, delta=1e-5)
    _crashed(setting, path, saved=2, steps=4, budget=budget)
    with mutant.patch():
        taken = 4 + len(run(setting, resume=path, budget=budget).released)
    charged = sum(one.granted for one in budget.ledger.refresh().reservations.values())
    assert (taken, charged) == (8, 6)


@shows("first bounds after resume")
def test_a_resumed_lot_is_clipped_at_the_first_clip(mutant: Mutant, tmp_path: Path) -> None:
    style = AdaptiveQuantile(count_noise=1e-6, quantile=0.1, learning_rate=0.5)
    setting = with_plan(of_everybody(mutant.setting()), clipping=style, clip=2.5)
    _crashed(setting, tmp_path / "run", saved=3, steps=3)
    sigma = setting.plan.noise_multiplier
    assert min(noise_multipliers(setting, resume=tmp_path / "run")) >= sigma
    with mutant.patch():
        assert noise_multipliers(setting, resume=tmp_path / "run")[0] < 0.95 * sigma
