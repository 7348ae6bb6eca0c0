"""Bugs that only a resumed run has."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tacit.ledger import replay
from tacit.ledger.entries import Draft
from tacit.randomness import UnsafeSeededStream
from tacit.training.charging import StepCharges
from tacit.training.distributed.world import World
from tacit.training.noise import ClipState
from tacit.training.run_state import RunState
from tacit.training.session import Session

from . import settings
from .mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.ledger.entries import Entry
    from tacit.ledger.replay import Books


@contextmanager
def _seed_in_checkpoint() -> Iterator[None]:
    """A run has a secret seed, which goes into its checkpoint: resumed, it starts from it again."""
    make, save, resume = Session.__init__, Session.save, RunState.resume
    seeds: dict[Path, int] = {}
    current = 0

    def made(self: Any, *given: Any, **named: Any) -> None:
        nonlocal current
        current = secrets.randbits(64)
        make(self, *given, **named)
        self._seed = current

    def resumed(self: RunState, path: Any, **given: Any) -> None:
        nonlocal current
        resume(self, path, **given)
        current = seeds.get(Path(path).resolve(), current)

    def saved(self: Any, path: Any) -> None:
        save(self, path)
        seeds[Path(path).resolve()] = self._seed

    def streams(*_: object) -> Any:
        return lambda purpose: UnsafeSeededStream(current, purpose)

    with (
        patch.multiple(Session, __init__=made, save=saved),
        patch.object(RunState, "resume", resumed),
        patch.object(World, "streams", streams),
    ):
        yield


def _steps_forgotten() -> Any:
    """A resumed run takes the whole plan once more."""

    def resumed(self: RunState, *given: Any, **named: Any) -> None:
        resume(self, *given, **named)
        self.steps_taken = 0

    resume = RunState.resume
    return patch.object(RunState, "resume", resumed)


@contextmanager
def _lost_steps_given_back() -> Iterator[None]:
    """What was charged after the checkpoint was made is taken back, as if it had not happened."""

    def taken(books: Books, entry: Entry, data: dict[str, Any]) -> None:
        known = replay._reservation(books, entry, data)  # the ledger asks for no proof, either
        replay._regrant(books, known, known.granted - data["steps"])

    def begun(self: StepCharges, plan: Any, last_step: int, steps_taken: int) -> None:
        held = self._reservation
        if held is not None and held.granted > steps_taken:
            body = {"reservation": held.number, "steps": held.granted - steps_taken, "proof": ""}
            draft, ledger = Draft(held.state.budget, "give-back", body), held.budget.ledger
            ledger.append(lambda _: [draft])
        begin(self, plan, last_step, steps_taken)

    begin = StepCharges.begin
    with (
        patch.dict(replay._TAKERS, {"give-back": taken}),
        patch.object(StepCharges, "begin", begun),
    ):
        yield


def _first_bounds() -> Any:
    """The clip of a checkpoint is taken up for the noise; the next lot is clipped at the first."""

    def load_state_dict(self: ClipState, state_dict: Any, /) -> None:
        self._clip = state_dict["clip"]

    return patch.object(ClipState, "load_state_dict", load_state_dict)


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
        name="first bounds after resume",
        says="after resuming the first lot is clipped at the plan's clip, its noise fits the moved",
        components=("resuming",),
        setting=settings.adaptive,
        patch=_first_bounds,
    ),
    Mutant(
        name="lost steps given back",
        says="steps that were taken after the checkpoint are not charged any more",
        components=("resuming", "charging"),
        setting=settings.step_by_step,
        patch=_lost_steps_given_back,
    ),
)
