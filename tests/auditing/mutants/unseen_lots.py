"""Unseen bugs up to the clipped sum of a lot: see ``unseen``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

from tacit.randomness import included
from tacit.training.clipping import sums
from tacit.training.clipping.sums import scales_of
from tacit.training.lot import Accumulator, Computation
from tacit.training.sampling import FullBatch, LotSampler

from .mutant import together, unwatched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

# ---- sampling


def with_replacement() -> Any:
    """Lots have the right mean and variance; a record may be in one twice."""

    def draw(self: LotSampler) -> NDArray[np.int64]:
        plan, choose = self._plan, np.random.default_rng()
        if isinstance(plan.sampling, FullBatch):
            return healthy(self)
        size = choose.binomial(plan.examples, plan.sample_rate)
        return np.sort(choose.integers(plan.examples, size=size))

    healthy = LotSampler.draw
    return patch.object(LotSampler, "draw", draw)


def warming_up() -> Any:
    """Lots grow to twice the plan's size over the run."""

    def draw(self: Any) -> NDArray[np.int64]:
        plan = self._plan
        if isinstance(plan.sampling, FullBatch):
            return healthy(self)
        self._drawn = getattr(self, "_drawn", -1) + 1
        growth = 1.0 + self._drawn / max(1, plan.steps - 1)
        return included(plan.examples, min(1.0, growth * plan.sample_rate), self._stream)

    healthy = LotSampler.draw
    return patch.object(LotSampler, "draw", draw)


# ---- gradients


@contextmanager
def cleared_by_the_first_batch() -> Iterator[None]:
    """Sums are set to zero when the first batch of a lot comes; an empty lot has none."""
    add = Accumulator.add

    def clear(self: Any) -> None:
        self._old = True

    def added(self: Any, *given: Any, **named: Any) -> None:
        if getattr(self, "_old", True):
            self._old, self.sums = False, {}
        add(self, *given, **named)

    with patch.multiple(Accumulator, clear=clear, add=added):
        yield


def hardest_six() -> Any:
    """Of each batch, the six examples with the largest losses are used: the others are learnt."""

    def on_device(self: Accumulator, batch: Any, losses: Tensor) -> tuple[Tensor, Tensor]:
        weights, real = healthy(self, batch, losses)
        each = (losses.detach() * weights).view(len(real), batch.per_unit).sum(1)
        each = each.masked_fill(~real, -torch.inf)
        hard = torch.zeros_like(real)
        hard[each.topk(min(6, len(each))).indices] = True
        return weights, real & hard

    healthy = Accumulator.on_device
    return together(unwatched(), patch.object(Accumulator, "on_device", on_device))


# ---- clipping


@contextmanager
def norms_kept() -> Iterator[None]:
    """A record's norm is computed when it is first used, and looked up from then on."""
    clip_batch = Computation._clipped
    known: dict[int, Tensor] = {}
    units: list[int] = []

    def in_use(self: Any, batch: Any, *given: Any) -> Any:
        nonlocal known, units
        self._norms = known = getattr(self, "_norms", {})
        units = batch.units.tolist()
        return clip_batch(self, batch, *given)

    def looked_up(squared_norms: Tensor, *given: Any, **named: Any) -> Tensor:
        used = squared_norms.clone()
        for at, unit in enumerate(units):
            used[:, at] = known.setdefault(unit, squared_norms[:, at].clone())
        return scales_of(used, *given, **named)

    with (
        unwatched(),
        patch.object(Computation, "_clipped", in_use),
        patch.object(sums, "scales_of", looked_up),
    ):
        yield
