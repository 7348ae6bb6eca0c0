"""Bugs in what happens when: steps and numbers that depend on the data themselves."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tacit.training.claim import Run
from tacit.training.lot import Computation
from tacit.training.sampling import LotSampler
from tacit.training.session import Session

from . import settings
from .mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@contextmanager
def _empty_without_noise() -> Iterator[None]:
    """A lot without examples leaves the parameters as they are."""
    finish, update = Computation.finished, Session._update
    empty = False

    def finished(self: Computation) -> dict[str, Tensor]:
        nonlocal empty
        sums = finish(self)
        empty = not sums
        return sums

    def updated(self: Session, *given: Any) -> None:
        if not empty:
            update(self, *given)

    with (
        patch.object(Computation, "finished", finished),
        patch.object(Session, "_update", updated),
    ):
        yield


def _empty_drawn_again() -> Any:
    def drawn(self: LotSampler) -> Any:
        lot = draw(self)
        while len(lot) == 0:
            lot = draw(self)
        return lot

    draw = LotSampler.draw
    return patch.object(LotSampler, "draw", drawn)


@contextmanager
def _noting_losses(noted: list[float]) -> Iterator[None]:
    """Keeps the mean loss of the latest batch."""
    backward = Session.backward

    def noting(self: Session, losses: Tensor) -> None:
        backward(self, losses)
        noted[:] = [float(losses.detach().mean())]

    with patch.object(Session, "backward", noting):
        yield


@contextmanager
def _loss_in_checkpoint() -> Iterator[None]:
    noted = [0.0]

    def state_dict(self: Run) -> dict[str, Any]:
        return {"last_step": self.last_step, "unsafe": self.unsafe, "loss": noted[0]}

    with _noting_losses(noted), patch.object(Run, "state_dict", state_dict):
        yield


@contextmanager
def _rate_by_loss() -> Iterator[None]:
    """The released mean is scaled by the exact training loss, as a schedule on it would do."""
    noted, update = [1.0], Session._update

    def updated(self: Session, means: dict[str, Tensor], *given: Any) -> None:
        update(self, {name: value * noted[0] for name, value in means.items()}, *given)

    with _noting_losses(noted), patch.object(Session, "_update", updated):
        yield


@contextmanager
def _still_when_good() -> Iterator[None]:
    """A step is left out where the lot's loss is small: there is little to learn from it."""
    noted, update = [1.0], Session._update

    def updated(self: Session, *given: Any) -> None:
        if noted[0] > 0.5:
            update(self, *given)

    with _noting_losses(noted), patch.object(Session, "_update", updated):
        yield


MUTANTS = (
    Mutant(
        name="empty lot without noise",
        says="an empty lot makes no step, which tells that it was empty",
        components=("control flow", "noise"),
        setting=settings.small_lots,
        patch=_empty_without_noise,
    ),
    Mutant(
        name="empty lot drawn again",
        says="lots are drawn until one is not empty",
        components=("sampling", "control flow"),
        setting=settings.small_lots,
        patch=_empty_drawn_again,
    ),
    Mutant(
        name="exact loss in the checkpoint",
        says="the checkpoint holds the training loss, without noise",
        components=("control flow", "resuming", "charging"),
        setting=settings.linear,
        patch=_loss_in_checkpoint,
    ),
    Mutant(
        name="exact loss in the update",
        says="the step's length follows the exact training loss",
        components=("control flow", "update", "noise"),
        setting=settings.linear,
        patch=_rate_by_loss,
    ),
    Mutant(
        name="step skipped by loss",
        says="no step is taken where the exact training loss is small",
        components=("control flow", "update", "noise"),
        setting=settings.linear,
        patch=_still_when_good,
    ),
)
