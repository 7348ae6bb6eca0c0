"""Each bug between a lot and its mean is there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch.utils.data import TensorDataset

import tacit

from .watching import noise, of_everybody, run, shows, silent, with_plan

if TYPE_CHECKING:
    from .mutant import Mutant


@shows("batch norm")
def test_one_example_moves_the_others(mutant: Mutant) -> None:
    setting = of_everybody(mutant.setting())
    x, y = setting.dataset.tensors  # type: ignore[attr-defined]
    changed = x.clone()
    changed[0] *= 1e4
    with mutant.patch():
        one, other = (
            run(replace(setting, dataset=TensorDataset(values, y)), steps=1, unsafe_seed=0).sums()
            for values in (x, changed)
        )
    assert float((one[0] - other[0]).norm()) > 4.0 * setting.plan.clip  # two are allowed


@shows("mean over the realised lot")
def test_the_noise_tells_how_many_were_drawn(mutant: Mutant) -> None:
    setting = mutant.setting()
    with mutant.patch():
        seen = run(silent(setting), unsafe_seed=0)
    ratios = noise(setting).norm(dim=1) / torch.stack(seen.sums()).norm(dim=1)
    drawn = torch.tensor([len(lot) for lot in seen.lots])[1:]  # the first lot is read for checks
    assert torch.allclose(ratios[1:] * setting.plan.lot_size, drawn.double(), rtol=1e-5)


@shows("checked batch twice")
def test_eight_units_add_two_clips_each(mutant: Mutant) -> None:
    setting = with_plan(of_everybody(mutant.setting()), noise_multiplier=1e-9, steps=2)

    def sums() -> list[torch.Tensor]:
        seen, model = [], setting.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        optimizer.register_step_pre_hook(
            lambda *_: seen.append(
                torch.cat([p.grad.double().flatten() for p in model.parameters()])  # type: ignore[union-attr]
            )
        )
        with tacit.private(model, optimizer, setting.plan, setting.dataset, unsafe_seed=0) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: setting.loss(model, batch))
                dp.step()
                dp.verify()
        return seen

    assert torch.allclose(*sums(), atol=1e-6)
    with mutant.patch():
        first, second = sums()
    assert float((second - first).norm()) * setting.plan.lot_size > 1.5 * setting.plan.clip
