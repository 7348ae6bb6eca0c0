from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from tacit.auditing.canaries.scoring import Scorer
from tacit.training import Plan


class Told:
    """Directions whose released coordinates are told by hand."""

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
    told = Told()
    scorer = Scorer(told, plan, 5)
    released = np.array([[-1.5, -0.2, 0.0, 0.9, 2.5], [0.1, 0.2, 0.3, 0.4, 0.5]])
    for step in released:
        told.moved = torch.tensor(step * plan.clip / plan.lot_size)
        scorer.note()
    out = norm.pdf(released, 0.0, 0.7)
    others = {place: norm.pdf(released, place, 0.7) for place in (-1.0, 1.0)}
    below = out if adjacency == "add-remove" else (1 - rate) * out + rate * others[-1.0]
    expected = np.log(((1 - rate) * out + rate * others[1.0]) / below).sum(axis=0)
    assert scorer.scores.tolist() == pytest.approx(expected.tolist(), rel=1e-9)
    assert scorer.totals.tolist() == pytest.approx(released.sum(axis=0).tolist())


def test_little_noise_does_not_overflow() -> None:
    plan = Plan(examples=10, lot_size=5, steps=1, noise_multiplier=1e-3, clip=1.0)
    told = Told()
    scorer = Scorer(told, plan, 1)
    told.moved = torch.tensor([0.2], dtype=torch.float64)  # the clip, over the lot
    scorer.note()
    assert scorer.scores.item() == pytest.approx(math.log(0.5) + 0.5e6)
