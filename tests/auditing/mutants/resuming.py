"""Bugs that only a resumed run has."""

from __future__ import annotations

import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tacit.errors import InvalidArgument
from tacit.ledger import Reservation
from tacit.randomness import UnsafeSeededStream
from tacit.training import session
from tacit.training.charging import Charges
from tacit.training.session import Session

from . import settings
from .mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _seed_in_checkpoint() -> Iterator[None]:
    """A run has a secret seed, which goes into its checkpoint: resumed, it starts from it again."""
    make, save, resume = Session.__init__, Session.save, Session._resume
    seeds: dict[Path, int] = {}
    current = 0

    def made(self: Any, *given: Any, **named: Any) -> None:
        nonlocal current
        current = secrets.randbits(64)
        make(self, *given, **named)
        self._seed = current

    def resumed(self: Any, path: Any, *given: Any) -> None:
        nonlocal current
        resume(self, path, *given)
        current = seeds.get(Path(path).resolve(), current)

    def saved(self: Any, path: Any) -> None:
        save(self, path)
        seeds[Path(path).resolve()] = self._seed

    def stream(seed: object, purpose: str) -> UnsafeSeededStream:
        del seed
        return UnsafeSeededStream(current, purpose)

    with (
        patch.multiple(Session, __init__=made, save=saved, _resume=resumed),
        patch.object(session, "_stream", stream),
    ):
        yield


def _steps_forgotten() -> Any:
    """A resumed run takes the whole plan once more."""

    def resumed(self: Session, *given: Any) -> None:
        resume(self, *given)
        self.steps_taken = 0

    resume = Session._resume
    return patch.object(Session, "_resume", resumed)


@contextmanager
def _lost_steps_given_back() -> Iterator[None]:
    """What was charged after the checkpoint was made is taken back, as if it had not happened."""

    def made(self: Reservation, ledger: Any, number: int) -> None:
        make(self, ledger, number)
        objects.setdefault((ledger.identity, number), []).append(self)

    def begun(self: Charges, plan: Any, last_step: int, steps_taken: int) -> None:
        if self._reservation is not None:
            # Only the object that took the lease can give it back; in one process it is at hand.
            place = self._reservation.budget.ledger.identity, self._reservation.number
            for held in objects[place]:
                with suppress(InvalidArgument):
                    held.give_back(self._reservation.granted - steps_taken)
        begin(self, plan, last_step, steps_taken)

    make, begin = Reservation.__init__, Charges.begin
    objects: dict[tuple[str, int], list[Reservation]] = {}
    with (
        patch.object(Reservation, "__init__", made),
        patch.object(Charges, "begin", begun),
    ):
        yield


MUTANTS = (
    Mutant(
        name="noise reused after resume",
        says="a resumed run draws the noise of the first run's first steps again",
        components=("resuming", "noise"),
        setting=settings.linear,
        patch=_seed_in_checkpoint,
    ),
    Mutant(
        name="steps forgotten on resume",
        says="a resumed run counts its steps from zero, and takes more than were charged",
        components=("resuming", "charging"),
        setting=settings.linear,
        patch=_steps_forgotten,
    ),
    Mutant(
        name="lost steps given back",
        says="steps that were taken after the checkpoint are not charged any more",
        components=("resuming", "charging"),
        setting=settings.step_by_step,
        patch=_lost_steps_given_back,
    ),
)
