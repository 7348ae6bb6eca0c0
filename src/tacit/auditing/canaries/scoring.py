"""Scores of canaries, read off the gradients that a run releases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.auditing.canaries.directions import Directions
    from tacit.training.plan import Plan


@final
class Scorer:
    """Adds up, over the steps, what the released gradients tell of each canary.

    It sees what the optimizers see: the noisy mean gradient. ``totals`` adds up the coordinate
    along a canary's direction, in clips. ``scores`` adds up the logarithms of the ratio of a step's
    densities, with the canary and without it, under the plan: the best score there is for a run by
    this plan. For full batches it is a multiple of the total, plus a constant.
    """

    def __init__(self, directions: Directions, plan: Plan, canaries: int) -> None:
        self._directions, self._plan = directions, plan
        self.totals = torch.zeros(canaries, dtype=torch.float64)
        self.scores = torch.zeros(canaries, dtype=torch.float64)

    def note(self, *_: object) -> None:
        """Reads a step's gradient, as a hook before an optimizer's step."""
        in_clips = self._plan.lot_size / self._plan.clip
        moved = self._directions.released().double().cpu() * in_clips
        self.totals += moved
        self.scores += log_ratio(moved, self._plan)


def log_ratio(moved: Tensor, plan: Plan) -> Tensor:
    """The logarithm of the densities' ratio at ``moved``: with the canary and without.

    (1-q)·N(0, σ²) + q·N(1, σ²) over N(0, σ²). Under replace-one a canary that is out was replaced
    by its opposite: q·N(-1, σ²) is below the line.
    """
    out = math.log1p(-plan.sample_rate) if plan.sample_rate < 1.0 else -math.inf
    apart, within = torch.tensor(out, dtype=torch.float64), math.log(plan.sample_rate)
    squares = plan.noise_multiplier**2

    def density(place: float) -> Tensor:
        return torch.logaddexp(apart, within + (place * moved - 0.5) / squares)

    return density(1.0) - density(-1.0) if plan.adjacency == "replace-one" else density(1.0)
