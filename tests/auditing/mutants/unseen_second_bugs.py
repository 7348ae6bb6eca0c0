"""The bugs of the second unseen round, put into the engine: see ``unseen_second``."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

from tacit.statement import claim as statements
from tacit.training import claim
from tacit.training.batches import RowsOfUnits, Units
from tacit.training.lot import Accumulator, Computation
from tacit.training.noise import ClipState, FastNoise
from tacit.training.sampling import FullBatch, LotSampler
from tacit.training.session import Session

from .mutant import together, unwatched
from .noise import drawn, in_every_draw, noise_and_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.randomness import GaussianSource

# ---- sampling


def of_one_shape() -> Any:
    """A lot goes into a buffer of 5/4 of its mean size, in eights; what is above is dropped."""

    def draw(self: LotSampler) -> NDArray[np.int64]:
        drawn = healthy(self)
        if isinstance(self._plan.sampling, FullBatch):
            return drawn
        return drawn[: 8 * math.ceil(1.25 * self._plan.lot_size / 8)]

    healthy = LotSampler.draw
    return patch.object(LotSampler, "draw", draw)


def first_epoch_again() -> Any:
    """The lots of an epoch are kept in a list, and the list is gone through again and again."""

    def draw(self: Any) -> NDArray[np.int64]:
        self._kept = getattr(self, "_kept", [])
        self._drawn = getattr(self, "_drawn", -1) + 1
        lots = max(1, round(1.0 / self._plan.sample_rate))
        if self._drawn < lots:
            self._kept.append(healthy(self))
        return self._kept[self._drawn % lots]

    healthy = LotSampler.draw
    return patch.object(LotSampler, "draw", draw)


# ---- noise


def without_tails() -> Any:
    """Normal numbers beyond 3 are drawn again: five times in a row they are one in 10¹³."""

    def normal_(self: GaussianSource, tensor: Tensor, scale: float = 1.0) -> None:
        drawn(self, tensor)
        for _ in range(4):  # what is recorded cannot look whether there are any left
            again = torch.empty_like(tensor)
            drawn(self, again)
            tensor.copy_(torch.where(tensor.abs() > 3.0, again, tensor))
        tensor.mul_(scale)

    return in_every_draw(normal_)


def taken_back() -> Any:
    """A step's noise is what it should be, less half of the last step's, at the same scale."""

    def means(self: Any, parameters: Any, sums: Any, **given: Any) -> dict[str, Tensor]:
        fresh, mean = noise_and_mean(self, parameters, sums, **given)
        last, self._last = getattr(self, "_last", None), fresh
        if last is None:
            return {name: mean[name] + fresh[name] for name in parameters}
        return {
            name: mean[name] + (fresh[name] - 0.5 * last[name]) / math.sqrt(1.25)
            for name in parameters
        }

    return patch.object(FastNoise, "means", means)


# ---- gradients and clipping


@contextmanager
def views_apart() -> Iterator[None]:
    """An example with more views than a batch has rows is computed, and clipped, in parts."""
    begin, rows_of, width_of = Session._lot, Units.rows, Units.width

    def lot(self: Any, units: NDArray[np.int64]) -> Any:
        views, rows = self.plan.views, self._computation._cutter.sizer._room
        fitting = max(part for part in range(1, views + 1) if views % part == 0 and part <= rows)
        if self.plan.unit == "user" or fitting == views:
            return begin(self, units)
        self._computation._cutter._units._part = fitting
        return begin(self, np.repeat(units, views // fitting))

    def rows(
        self: Any, units: NDArray[np.int64], *, widest: bool, padded: int | None = None
    ) -> RowsOfUnits:
        part = getattr(self, "_part", None)
        if part is None:
            return rows_of(self, units, widest=widest, padded=padded)
        filled = np.append(units, np.repeat(units[:1], max(0, (padded or 0) - len(units))))
        share = np.full(len(filled) * part, 1.0 / self._plan.views, dtype=np.float32)
        share[len(units) * part :] = 0.0
        return RowsOfUnits(np.repeat(filled, part), share, part)

    def width(self: Any, units: NDArray[np.int64], *, widest: bool) -> int:
        part = getattr(self, "_part", None)
        return width_of(self, units, widest=widest) if part is None else part

    with (
        unwatched(),
        patch.object(Session, "_lot", lot),
        patch.multiple(Units, rows=rows, width=width),
    ):
        yield


def not_finite_left_out() -> Any:
    """A batch in which some loss is infinite or not a number adds nothing."""

    def on_device(self: Accumulator, batch: Any, losses: Tensor) -> tuple[Tensor, Tensor]:
        weights, real = healthy(self, batch, losses)
        return weights, real & losses.detach().isfinite().all()

    healthy = Accumulator.on_device
    return together(unwatched(), patch.object(Accumulator, "on_device", on_device))


# ---- update


@contextmanager
def only_what_matters() -> Iterator[None]:
    """The half of all entries whose exact gradient was largest in the first lot is trained."""
    finish, update = Computation.finished, Session._update

    def finished(self: Any) -> dict[str, Tensor]:
        self._exact = finish(self)
        return self._exact

    def updated(self: Any, means: dict[str, Tensor], *given: Any) -> None:
        exact: dict[str, Tensor] = self._computation._exact
        if exact and not hasattr(self, "_chosen"):
            sizes = {name: exact.get(name, torch.zeros_like(means[name])).abs() for name in means}
            middle = torch.cat([size.flatten() for size in sizes.values()]).median()
            self._chosen = {name: size >= middle for name, size in sizes.items()}
        chosen = getattr(self, "_chosen", dict.fromkeys(means, True))
        update(self, {name: value * chosen[name] for name, value in means.items()}, *given)

    with (
        patch.object(Computation, "finished", finished),
        patch.object(Session, "_update", updated),
    ):
        yield


# ---- charging


def by_whole_epochs() -> Any:
    """The accountant counts an epoch when it ends; one that is broken off does not count."""

    def counted(plan: Any, steps: int, delta: float) -> float:
        epochs = int(steps * plan.sample_rate + 1e-9)
        return epsilon(plan, min(steps, round(epochs / plan.sample_rate)) or steps, delta)

    epsilon = claim.epsilon
    return together(
        patch.object(claim, "epsilon", counted),
        patch.object(statements, "check_claim", lambda _: None),  # it would refuse to say so
    )


# ---- resuming


def bounds_alone() -> Any:
    """A resumed run clips by the checkpoint's clip; the noise goes by the plan's for a step."""

    def load_state_dict(self: ClipState, state_dict: Any, /) -> None:
        self.bounds = self._shares * float(state_dict["clip"])

    return together(unwatched(), patch.object(ClipState, "load_state_dict", load_state_dict))


# ---- control flow


@contextmanager
def best_restored() -> Iterator[None]:
    """The weights after the step with the least exact training loss are what a run leaves."""
    backward, update, leave = Session.backward, Session._update, Session.__exit__

    def noting(self: Any, losses: Tensor) -> None:
        batch = self._computation._batch
        backward(self, losses)
        if not batch.replaced:  # not a repetition for the engine's own check
            self._losses = [*getattr(self, "_losses", ()), *losses.detach().tolist()]

    def updated(self: Any, *given: Any) -> None:
        update(self, *given)
        losses, self._losses = getattr(self, "_losses", []), []
        least, _ = getattr(self, "_best", (math.inf, None))
        if losses and sum(losses) / len(losses) < least:
            kept = {name: p.detach().clone() for name, p in self._parameters.items()}
            self._best = (sum(losses) / len(losses), kept)

    def left(self: Any, kind: Any, *given: Any) -> None:
        if kind is None and self._custody.is_at_home and hasattr(self, "_best"):
            with torch.no_grad():
                for name, parameter in self._parameters.items():
                    parameter.copy_(self._best[1][name])
            self._custody.inside().note_step()
        leave(self, kind, *given)

    with patch.multiple(Session, backward=noting, _update=updated, __exit__=left):
        yield
