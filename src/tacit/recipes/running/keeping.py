"""What a run keeps so that it can go on: nothing, or what its folder holds."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Protocol, final

from tacit._validation import non_negative, whole
from tacit.errors import CheckpointError, InvalidArgument
from tacit.training.progress import EpochRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import nn
    from torch.utils.data import Dataset

    from tacit.accounting.events import Event
    from tacit.mechanisms import Released
    from tacit.training.judging import RowWise
    from tacit.training.loaders import Collate
    from tacit.training.plan import Plan

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def check_name(name: str) -> str:
    """Returns ``name`` if a file can be called by it: no dots, slashes or spaces."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name must be of lower-case letters, digits and hyphens, got {name!r}"
        )
    return name


class Keeper(Protocol):
    """Where a job keeps what it must not lose."""

    @property
    def configuration(self) -> str | None:
        """The run's hash, if it has one."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether the run was cut off before, and goes on."""
        ...

    @property
    def kept(self) -> bool:
        """Whether a run that is cut off can go on."""
        ...

    @property
    def checkpoint(self) -> Path | None:
        """Where the checkpoint goes, if one is kept."""
        ...

    def resumable_checkpoint(self) -> Path | None:
        """The checkpoint to go on from, if there is one."""
        ...

    def private(self, name: str) -> Path | None:
        """A place for what the run needs to go on and nobody else may see, if any is kept."""
        ...

    def journal(self, name: str) -> Path | None:
        """Where the journal of what is released bit by bit goes, if one is kept."""
        ...

    def begin(self, budget: Mapping[str, str] | None) -> None:
        """Comes before the first thing that is kept; ``budget`` is where it is charged."""

    def same_plan(self, plan: Plan, also: Sequence[Event]) -> Plan:
        """The plan that a resumed run was started with, else ``plan``, which is kept."""
        ...

    def released(self, name: str) -> tuple[Any, Event] | None:
        """What was released under ``name`` before the run was cut off."""
        ...

    def keep_released(self, name: str, released: Released[Any], what: str) -> None:
        """Keeps a released value."""

    def judge(
        self,
        model: nn.Module,
        dataset: Dataset[Any],
        correct: RowWise | None,
        collate: Collate | None,
    ) -> None:
        """Lets a search score the model on its training data, with noise."""


class Forgetful:
    """Keeps nothing."""

    @property
    def configuration(self) -> str | None:
        """None."""
        return None

    @property
    def resumed(self) -> bool:
        """Never."""
        return False

    @property
    def kept(self) -> bool:
        """Never."""
        return False

    @property
    def checkpoint(self) -> Path | None:
        """None."""
        return None

    def resumable_checkpoint(self) -> Path | None:
        """None."""
        return None

    def private(self, name: str) -> Path | None:
        """None."""
        del name
        return None

    def journal(self, name: str) -> Path | None:
        """None."""
        del name
        return None

    def begin(self, budget: Mapping[str, str] | None) -> None:
        """Nothing begins."""

    def same_plan(self, plan: Plan, also: Sequence[Event]) -> Plan:
        """The plan itself."""
        del also
        return plan

    def released(self, name: str) -> tuple[Any, Event] | None:
        """Nothing was."""
        del name
        return None

    def keep_released(self, name: str, released: Released[Any], what: str) -> None:
        """Forgets it."""

    def judge(
        self,
        model: nn.Module,
        dataset: Dataset[Any],
        correct: RowWise | None,
        collate: Collate | None,
    ) -> None:
        """Nobody asks."""


@final
class History:
    """The epochs so far; joins the checkpoint, so that a resumed run has those before it."""

    def __init__(self) -> None:
        self.records: list[EpochRecord] = []

    def append(self, record: EpochRecord) -> None:
        """Takes an epoch in."""
        self.records.append(record)

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return {"records": [asdict(record) for record in self.records]}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Takes up the epochs of a checkpoint."""
        self.records = list(epochs(state_dict["records"]))


def epochs(plain: Any) -> tuple[EpochRecord, ...]:
    """The epochs that ``asdict`` took apart, each with its numbers and nothing else."""
    names = {one.name for one in fields(EpochRecord)}
    if not isinstance(plain, list):
        raise CheckpointError("its history is no list of epochs")
    for one in plain:
        if not isinstance(one, dict) or set(one) != names:
            raise CheckpointError(f"an epoch must have exactly {sorted(names)}")
        whole("epoch", one["epoch"], at_least=0)
        whole("steps", one["steps"], at_least=0)
        for name in names - {"epoch", "steps"}:
            if one[name] is not None or name != "held_out_accuracy":
                non_negative(name, one[name])
    return tuple(EpochRecord(**one) for one in plain)
