"""Bugs in who is sampled: other lots than the accountant counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from tacit.training.sampling import LotSampler

from . import settings
from .mutant import Mutant

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DRAW = LotSampler.draw  # as it should be


def _shuffled() -> Any:
    """An order is drawn once an epoch, and lots are cut from it."""

    def draw(self: Any) -> NDArray[np.int64]:
        plan = self._plan
        size = max(1, round(plan.lot_size))
        left = getattr(self, "_left", np.empty(0, dtype=np.int64))
        if len(left) < size:
            left = np.random.default_rng().permutation(plan.examples)
        self._left = left[size:]
        return np.sort(left[:size])

    return patch.object(LotSampler, "draw", draw)


def _with_chances(chances: Any) -> Any:
    """Poisson sampling, at other chances than the plan's: ``chances`` of rate and number."""

    def draw(self: LotSampler) -> NDArray[np.int64]:
        plan = self._plan
        if plan.sample_rate == 1.0:
            return _DRAW(self)
        each = np.clip(chances(plan.sample_rate, plan.examples), 0.0, 1.0)
        return np.flatnonzero(np.random.default_rng().random(plan.examples) < each)

    return lambda: patch.object(LotSampler, "draw", draw)


def _weighted(rate: float, count: int) -> NDArray[np.float64]:
    """One record has four times its chance, as under a weighted sampler."""
    chances = np.full(count, rate * (count - 4.0) / (count - 1.0))
    chances[0] = 4.0 * rate
    return chances


def _in_pairs() -> Any:
    """Neighbouring records are read together: one coin decides for two."""

    def draw(self: LotSampler) -> NDArray[np.int64]:
        plan = self._plan
        coins = np.random.default_rng().random(-(-plan.examples // 2)) < plan.sample_rate
        return np.flatnonzero(np.repeat(coins, 2)[: plan.examples])

    return patch.object(LotSampler, "draw", draw)


MUTANTS = (
    Mutant(
        name="shuffling",
        says="lots are cut from a shuffled order, and accounted as Poisson samples",
        components=("sampling",),
        setting=settings.linear,
        patch=_shuffled,
    ),
    Mutant(
        name="wrong rate",
        says="each example is drawn with 1.25 times the plan's rate",
        components=("sampling",),
        setting=settings.linear,
        patch=_with_chances(lambda rate, count: np.full(count, 1.25 * rate)),
    ),
    Mutant(
        name="weighted sampling",
        says="one example is drawn four times as often as the plan says",
        components=("sampling",),
        setting=settings.linear,
        patch=_with_chances(_weighted),
    ),
    Mutant(
        name="pairs of examples",
        says="examples are drawn two by two, not independently",
        components=("sampling",),
        setting=settings.linear,
        patch=_in_pairs,
    ),
)
