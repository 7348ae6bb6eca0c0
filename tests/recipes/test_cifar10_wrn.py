"""The wide residual network: its published settings, and going on at the step where it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tacit import recipes
from tacit.training.plan import Plan

from .pictures import check_published, pictures

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"epochs": 2, "lot": 20, "views": 2, "depth": 10, "width": 1}


def test_what_was_published() -> None:
    anchors = {1.0: 56.8, 2.0: 64.9, 3.0: 69.2, 4.0: 71.9, 8.0: 79.5}
    module = check_published("cifar10-wrn", anchors)
    for spent, noise in ((1.0, 10.0), (2.0, 6.0), (3.0, 5.0), (4.0, 4.0), (8.0, 3.0)):
        chosen = module.settings(spent)
        assert (chosen.lot, chosen.views, chosen.depth, chosen.width) == (4096, 16, 16, 4)
        plan = Plan.for_budget(
            epsilon=spent, delta=1e-5, examples=50_000, lot_size=4096, epochs=chosen.epochs,
            clip=1.0,
        )  # fmt: skip
        assert plan.noise_multiplier == pytest.approx(noise, rel=2e-3)


def test_it_goes_on_at_the_step_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pictures(channels=3, size=16, train=60, test=20)
    steps: list[int] = []
    step = torch.optim.SGD.step

    def counting(self: torch.optim.SGD, *given: object) -> None:
        steps.append(1)
        step(self, *given)

    monkeypatch.setattr(torch.optim.SGD, "step", counting)
    with pytest.raises(recipes.Interrupted, match="stopped after step 2 of 6"):
        recipes.run(
            "cifar10-wrn", epsilon=8, settings=SMALL, data=data, folder=tmp_path / "run",
            progress=False, stop=lambda: len(steps) >= 2,
        )  # fmt: skip
    assert len(steps) == 2
    done = recipes.run(
        "cifar10-wrn", epsilon=8, settings=SMALL, data=data, folder=tmp_path / "run", resume=True,
        progress=False,
    )  # fmt: skip
    assert len(steps) == done.statement.steps_taken == 6
    assert done.statement.epsilon <= 8.0
    assert isinstance(done.model, torch.nn.Module)
