"""Bugs in the clipping: of the wrong thing, or at the wrong bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

from tacit.auditing.replay.part_checks import layers
from tacit.training import batches, lot, styles
from tacit.training.clipping import engine, sums
from tacit.training.clipping.engine import Engine
from tacit.training.clipping.forms import matrix
from tacit.training.guards import Guard
from tacit.training.lot import Accumulator
from tacit.training.noise import ClipState, FastNoise, grid_step

from . import settings
from .mutant import Mutant, together, unwatched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from tacit.training.clipping.sums import BatchSums

_CLIP = sums.clipped_sums  # as it should be


def _norm(sums: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([value.double().square().sum() for value in sums.values()]).sum().sqrt()


def _whole_batch(*, mean: bool) -> Callable[[], Any]:
    """Nobody is clipped by themselves: the batch is, its sum or its mean."""

    def clip(*given: Any) -> BatchSums:
        *most, bounds, mask, _ = given
        found = _CLIP(*most, torch.full_like(bounds, 1e12), mask)
        count = float(mask.sum()) if mean else 1.0
        factor = (bounds.norm() / (_norm(found.sums) / count).clamp(min=1e-30)).clamp(max=1.0)
        sums = {name: value * float(factor) for name, value in found.sums.items()}
        return replace(found, sums=sums)

    return lambda: together(unwatched(), patch.object(engine, "clipped_sums", clip))


def _ignored() -> Any:
    def scales(squared_norms: Tensor, bounds: Tensor, *, mask: Tensor, **_: Any) -> Tensor:
        del bounds
        usable = squared_norms.isfinite().all(0) & mask
        return torch.where(usable, torch.ones_like(squared_norms), 0.0)

    return together(unwatched(), patch.object(sums, "scales_of", scales))


def _each_layer_the_whole() -> Any:
    def by_module(clip: float, names: tuple[str, ...]) -> tuple[styles.Group, ...]:
        return tuple(replaced._replace(bound=clip) for replaced in shared(clip, names))

    shared = styles._by_module
    return together(unwatched(), patch.object(styles, "_by_module", by_module))


def _not_a_number() -> Any:
    """NaN > C is false, so that a gradient which is not a number is not scaled down."""

    def scales(
        squared_norms: Tensor, bounds: Tensor, *, slack: float, mask: Tensor, **_: Any
    ) -> Tensor:
        norms, limit = squared_norms.sqrt() * (1.0 + slack), bounds.unsqueeze(1)
        factors = torch.where(norms > limit, limit / norms, 1.0)
        return torch.where(mask, factors, 0.0)

    def weighed(values: Tensor, scales: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        wide = values if dtype is None else values.to(dtype)
        return wide * scales.view(-1, *[1] * (values.ndim - 1)).to(wide.dtype)

    return together(
        unwatched(),
        patch.object(Guard, "check_finite", lambda *_, **__: None),  # which would end such a run
        patch.object(sums, "scales_of", scales),
        patch.object(matrix, "weighed", weighed),
    )


def _median_of_the_lot() -> Any:
    """The bound is the median norm of the current batch, and the noise goes by it."""

    def clip(*given: Any) -> BatchSums:
        *most, bounds, mask, _ = given
        norms = _CLIP(*most, bounds, mask).squared_norms.sum(0).sqrt()
        if mask.any():
            bounds.mul_(norms[mask].median().clamp(min=1e-12) / bounds.norm())
        return _CLIP(*most, bounds, mask)

    def sensitivity(self: ClipState) -> float:
        return float(self.bounds.norm())

    def noise_scale(self: ClipState) -> float:
        return self._plan.noise_multiplier * sensitivity(self)

    return together(
        unwatched(),
        patch.object(engine, "clipped_sums", clip),
        patch.object(ClipState, "sensitivity", property(sensitivity)),
        patch.object(ClipState, "noise_scale", property(noise_scale)),
    )


def _exact_count() -> Any:
    def count(self: FastNoise, exact: float, scale: float) -> float:
        del self, scale
        return exact

    return patch.object(FastNoise, "count", count)


def _rows_as_units() -> Any:
    """Every row is clipped by itself, whoever it belongs to, and counts in full."""

    def begin(
        self: Engine, rows: int, per_unit: int = 1, signature: Any = None, **others: Any
    ) -> bool:
        del per_unit
        return started(self, rows, 1, signature, **others)

    def on_device(self: Accumulator, batch: Any, losses: Tensor) -> tuple[Tensor, Tensor]:
        del self
        real = torch.tensor(batch.weights, device=losses.device) > 0
        return real.to(losses.dtype), real

    started = Engine.begin
    return together(
        unwatched(),
        patch.object(Engine, "begin", begin),
        patch.object(Accumulator, "on_device", on_device),
    )


def _users_in_order() -> Any:
    """Rows are split by how many each user has, as if they lay in the order of users."""

    def members(groups: Any, plan: Any) -> list[Any]:
        del plan
        counts = np.unique(np.asarray(groups), return_counts=True)[1]
        return np.split(np.arange(len(groups)), np.cumsum(counts)[:-1])

    return patch.object(batches, "_members", members)


def _rounded_outwards() -> Any:
    """A gradient in whole steps is brought down to the clip as if rounding had made it longer."""

    def rounded(batch: BatchSums, clip: float, entries: int) -> BatchSums:
        step = grid_step(clip, entries)
        values = {name: value.double() / step for name, value in batch.sums.items()}
        whole = {name: value.trunc() for name, value in values.items()}
        most, norm = clip / step, float(_norm(whole))
        if norm > most:
            factor = most / (norm - math.sqrt(entries))
            whole = {name: (value * factor).trunc() for name, value in values.items()}
        sums = {name: value.nan_to_num(0.0, 0.0, 0.0).long() for name, value in whole.items()}
        return replace(batch, sums=sums, borrowed=False)

    return together(
        patch.object(layers, "rounded_towards_zero", rounded),
        patch.object(lot, "rounded_towards_zero", rounded),
    )


MUTANTS = (
    Mutant(
        name="clipping the batch mean",
        says="the mean gradient of a batch is clipped, not each example's",
        components=("clipping",),
        setting=settings.linear,
        patch=_whole_batch(mean=True),
    ),
    Mutant(
        name="clipping per micro-batch",
        says="the sum of each physical batch is clipped, not each example's gradient",
        components=("clipping",),
        setting=settings.small_batches,
        patch=_whole_batch(mean=False),
    ),
    Mutant(
        name="clip ignored",
        says="no gradient is scaled down",
        components=("clipping",),
        setting=settings.linear,
        patch=_ignored,
    ),
    Mutant(
        name="per-layer bound taken as global",
        says="each of two layers may have the whole clip",
        components=("clipping",),
        setting=settings.per_layer,
        patch=_each_layer_the_whole,
    ),
    Mutant(
        name="NaN example",
        says="a gradient that is not a number goes into the sum",
        components=("clipping",),
        setting=settings.linear,
        patch=_not_a_number,
    ),
    Mutant(
        name="clip from the data",
        says="the clip is the median norm of the batch, which nobody pays for",
        components=("clipping", "noise"),
        setting=settings.linear,
        patch=_median_of_the_lot,
    ),
    Mutant(
        name="adaptive clip without noise",
        says="the adaptive clip moves by the exact count of small gradients",
        components=("clipping", "noise"),
        setting=settings.adaptive,
        patch=_exact_count,
    ),
    Mutant(
        name="a user's records apart",
        says="each record of a user is clipped by itself, and all are added",
        components=("clipping",),
        setting=settings.users,
        patch=_rows_as_units,
    ),
    Mutant(
        name="users taken for sorted",
        says="a user is the next few rows, whoever they belong to",
        components=("clipping",),
        setting=settings.users_in_no_order,
        patch=_users_in_order,
    ),
    Mutant(
        name="views as examples",
        says="each view of an example is clipped by itself, and all are added",
        components=("clipping",),
        setting=settings.views,
        patch=_rows_as_units,
    ),
    Mutant(
        name="whole steps beyond the clip",
        says="a gradient in whole steps of a grid is longer than the clip, by what it was rounded",
        components=("clipping",),
        setting=settings.exact,
        patch=_rounded_outwards,
        part=layers.whole_steps,
    ),
)
