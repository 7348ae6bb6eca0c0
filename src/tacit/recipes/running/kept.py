"""A job's keeper that keeps everything in the run's folder."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from tacit.errors import CheckpointError, TacitError
from tacit.recipes.running import released as released_values
from tacit.recipes.running.folder import CHECKPOINT, JOURNAL, LOCK, RECORD
from tacit.recipes.running.keeping import Forgetful, check_name
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tacit.accounting.events import Event
    from tacit.mechanisms import Released
    from tacit.recipes.running.folder import Folder
    from tacit.recipes.running.record import Record


@final
class InFolder(Forgetful):
    """Keeps plan, released values and checkpoints in ``folder``, which is made when first needed.

    Guarantee:
        A value that ``keep_released`` kept is found by ``released`` after any crash.
    """

    def __init__(self, folder: Folder, record: Record, *, resumed: bool) -> None:
        self.folder, self.record, self._resumed = folder, record, resumed
        self._begun = resumed

    @property
    def configuration(self) -> str | None:
        """The run's hash."""
        return self.record.configuration

    @property
    def resumed(self) -> bool:
        """Whether the folder held the run before."""
        return self._resumed

    @property
    def kept(self) -> bool:
        """Always."""
        return True

    @property
    def checkpoint(self) -> Path:
        """Where the checkpoint goes."""
        return self.folder.file(CHECKPOINT)

    def resumable_checkpoint(self) -> Path | None:
        """The checkpoint, if the run is resumed and had come so far."""
        there = self.resumed and os.path.lexists(self.checkpoint)  # what is no file is refused
        return self.checkpoint if there else None

    def private(self, name: str) -> Path:
        """A place in the folder, removed when the run has come to its end."""
        return self.folder.private(check_name(name))

    def journal(self, name: str) -> Path:
        """Beside the record: whoever deletes what is private must not make a run ask again."""
        return self.folder.file(f"{check_name(name)}{JOURNAL}")

    def begin(self, budget: Mapping[str, str] | None) -> None:
        """Makes the folder with its record: from here on the run can go on after a crash."""
        if not self._begun:
            self.record = replace(self.record, budget=budget)
            self.record.write(self.folder)
            self._begun = True

    def same_plan(self, plan: Plan, also: Sequence[Event]) -> Plan:
        """The plan that the run began with: another machine's arithmetic may differ in a digit."""
        del also
        before = self.record.plan
        if before is None:
            self.record = replace(self.record, plan=plan.as_dict())
            if self._begun:
                self.record.write(self.folder)
            return plan
        try:
            old = Plan.from_dict(dict(before))
        except (TacitError, ValueError, TypeError, KeyError, ArithmeticError) as error:
            line = " ".join(str(error).split())[:200]
            raise CheckpointError(f"{self.folder.file(RECORD)} holds no plan: {line}") from None
        close = abs(old.noise_multiplier / plan.noise_multiplier - 1.0) < 1e-9
        same = replace(plan, noise_multiplier=old.noise_multiplier) == old
        return old if close and same else plan

    def released(self, name: str) -> tuple[Any, Event] | None:
        """What the run released before it was cut off."""
        path = self._released_file(name)
        there = self.resumed and os.path.lexists(path)  # else it would be released once more
        return released_values.read(path) if there else None

    def keep_released(self, name: str, released: Released[Any], what: str) -> None:
        """Writes the value."""
        released_values.write(self._released_file(name), released, what)

    @property
    def nothing_kept(self) -> bool:
        """Whether the folder holds nothing of this run but its record."""
        names = {one.name for one in self.folder.path.glob("*")} if self._begun else set()
        return not self.resumed and not names - {RECORD, LOCK}

    def _released_file(self, name: str) -> Path:
        return self.folder.file(f"released-{check_name(name)}.safetensors")
