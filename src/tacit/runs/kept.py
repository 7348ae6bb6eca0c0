"""What a run keeps so that it can go on: its plan, what it released, its checkpoint, its epochs.

No pickle: arrays and tensors go into safetensors files, the rest into their JSON documents.
"""

from __future__ import annotations

import base64
import json
import os
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from tacit._validation import non_negative, whole
from tacit.accounting.serialization import as_dict, from_dict
from tacit.errors import CheckpointError, InvalidArgument, TacitError
from tacit.mechanisms import Components
from tacit.runs.folder import CHECKPOINT, HISTORY, JOURNAL, LOCK, RECORD
from tacit.training import checkpoint_file
from tacit.training.checkpoint_file import Packer, unpack
from tacit.training.distributed.world import World
from tacit.training.plan import Plan
from tacit.training.progress import EpochRecord, checked_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tacit.accounting.events import Event
    from tacit.mechanisms import Released
    from tacit.runs.folder import Folder
    from tacit.runs.record import RunRecord

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_KIND = "tacit kind"


def check_name(name: str) -> str:
    """Returns ``name`` if a file can be called by it: no dots, slashes or spaces."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name must be of lower-case letters, digits and hyphens, got {name!r}"
        )
    return name


@final
class Kept:
    """What one run keeps in its folder, which is made when first needed; without one, nothing.

    Of several processes rank 0 has the folder, and the others hear from it what it holds.

    Guarantee:
        A value that ``keep_released`` kept is found by ``released`` after any crash.
    """

    def __init__(
        self,
        place: tuple[Folder, RunRecord] | None = None,
        *,
        resumed: bool = False,
        world: World | None = None,
    ) -> None:
        self.world = world or World(0, 1)
        self.folder: Folder | None = None if place is None else place[0]
        self._record: RunRecord | None = None if place is None else place[1]
        self.resumed = resumed
        self._begun = resumed

    @property
    def record(self) -> RunRecord:
        """The run's record."""
        assert self._record is not None
        return self._record

    @property
    def configuration(self) -> str | None:
        """The run's hash, if it has a record."""
        return None if self._record is None else self._record.configuration

    @property
    def resumable(self) -> bool:
        """Whether a run that is interrupted can go on."""
        return self.folder is not None

    @property
    def checkpoint(self) -> Path | None:
        """Where the checkpoint goes, if one is kept."""
        return None if self.folder is None else self.folder.file(CHECKPOINT)

    def checkpoint_before(self) -> Path | None:
        """The checkpoint to go on from, if the run is resumed and had come that far."""
        path = self.checkpoint
        there = self.resumed and path is not None and os.path.lexists(path)  # no file is refused
        return path if there else None

    def checkpoints(self) -> tuple[Path | None, Path | None]:
        """Where the checkpoint goes, and the one to go on from; all processes ask together."""

        def say() -> list[str | None]:
            paths = (self.checkpoint, self.checkpoint_before())
            return [None if path is None else str(path) for path in paths]

        save, before = self.world.said("the checkpoint's place", say)
        return (None if save is None else Path(save)), (None if before is None else Path(before))

    def secret(self, name: str) -> Path | None:
        """A place for what the run needs to go on and nobody else may see, until it ends."""
        return None if self.folder is None else self.folder.private(check_name(name))

    def journal(self, name: str) -> Path | None:
        """Where the journal of a gradual release goes.

        Beside the record: whoever deletes what is secret must not make a run ask again.
        """
        check_name(name)
        return None if self.folder is None else self.folder.file(f"{name}{JOURNAL}")

    def begin(self, budget: Mapping[str, str] | None) -> None:
        """Comes before the first thing that is kept: from here on the run survives a crash.

        ``budget`` is where the run is charged.
        """
        if self.folder is not None and not self._begun:
            self._record = replace(self.record, budget=budget)
            self._record.write(self.folder)
            self._begun = True

    def show(self, records: Sequence[EpochRecord]) -> None:
        """Writes the epochs so far for whoever watches; the end writes them again."""
        if self.folder is not None:
            self.folder.write(HISTORY, history_bytes(records))

    def choose(self, winner: Mapping[str, Any], plan: Mapping[str, Any] | None) -> None:
        """Notes what a search chose; it is written with the results."""
        self._record = replace(self.record, winner=winner, plan=plan)

    def same_plan(self, plan: Plan) -> Plan:
        """The plan that the run began with: another machine's arithmetic may differ in a digit."""
        if self.world.is_alone:
            return self._same_plan(plan)
        said = self.world.said("the plan", lambda: self._same_plan(plan).to_json())
        return Plan.from_json(said)

    def _same_plan(self, plan: Plan) -> Plan:
        if self.folder is None:
            return plan
        before = self.record.plan
        if before is None:
            self._record = replace(self.record, plan=plan.as_dict())
            if self._begun:
                self._record.write(self.folder)
            return plan
        try:
            old = Plan.from_dict(dict(before))
        except (TacitError, ValueError, TypeError, KeyError, ArithmeticError) as error:
            line = " ".join(str(error).split())[:200]
            raise CheckpointError(f"{self.folder.file(RECORD)} holds no plan: {line}") from None
        same = plan.taken_up(old)
        if same is None:
            raise InvalidArgument(
                f"plan must be as when the run in {self.folder.path} began; resume it as it was, "
                "or start a new run in another folder"
            )
        return same

    def released(self, name: str) -> tuple[Any, Event] | None:
        """What was released under ``name`` before the run was interrupted."""
        path = self._released_file(check_name(name))
        there = self.resumed and path is not None and os.path.lexists(path)  # never a second time
        return read_released(path) if there and path is not None else None

    def keep_released(self, name: str, released: Released[Any], what: str) -> None:
        """Writes the value, if anything is kept."""
        path = self._released_file(name)
        if path is not None:
            write_released(path, released, what)

    @property
    def nothing_kept(self) -> bool:
        """Whether there is nothing of this run but its record."""
        if self.folder is None or not self._begun:
            return not self.resumed
        names = {one.name for one in self.folder.path.glob("*")}
        return not self.resumed and not names - {RECORD, LOCK}

    def _released_file(self, name: str) -> Path | None:
        return None if self.folder is None else released_file(self.folder, name)


def released_file(folder: Folder, name: str) -> Path:
    """Where a run keeps what it released under ``name``."""
    return folder.file(f"released-{check_name(name)}.safetensors")


# ---- epochs


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


def history_bytes(records: Sequence[EpochRecord]) -> bytes:
    """Held-out metrics only: neither losses nor times, which depend on the private data."""
    lines = [
        {
            "epoch": one.epoch,
            "steps": one.steps,
            "held_out_accuracy": one.held_out_accuracy,
            "epsilon": one.epsilon,
            **({"metrics": dict(one.metrics)} if one.metrics else {}),
        }
        for one in records
    ]
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines).encode()


def epochs(plain: Any) -> tuple[EpochRecord, ...]:
    """The epochs that ``asdict`` took apart, each with its numbers and nothing else.

    Metrics may be missing: a run without any has none to write.
    """
    names = {one.name for one in fields(EpochRecord)} - {"metrics"}
    if not isinstance(plain, list):
        raise CheckpointError("its history is no list of epochs")
    for one in plain:
        if not isinstance(one, dict) or set(one) - {"metrics"} != names:
            raise CheckpointError(f"an epoch must have exactly {sorted(names)}, or also metrics")
        whole("epoch", one["epoch"], at_least=0)
        whole("steps", one["steps"], at_least=0)
        for name in names - {"epoch", "steps"}:
            if one[name] is not None or name != "held_out_accuracy":
                non_negative(name, one[name])
        checked_metrics(one.get("metrics", {}))
    return tuple(EpochRecord(**one) for one in plain)


# ---- released values


def shared_release(
    world: World, name: str, release: Callable[[], tuple[Any, Event]]
) -> tuple[Any, Event]:
    """What rank 0 releases, for all processes: none of them asks the data a second time."""
    if world.is_alone:
        return release()
    own: list[tuple[Any, Event]] = []

    def say() -> str:
        own.append(release())
        value, event = own[0]
        packer = Packer()
        document = {"event": as_dict(event), "value": packer.pack(_taken_apart(value), "value")}
        return base64.b64encode(checkpoint_file.to_bytes(document, packer.tensors)).decode()

    said = world.said(f"the release of {name}", say)
    if own:
        return own[0]
    document, tensors = checkpoint_file.from_bytes(base64.b64decode(said), "rank 0's release")
    return _put_together(unpack(document["value"], tensors)), from_dict(document["event"])


def write_released(path: Path, released: Released[Any], what: str) -> None:
    """Writes the value, its event and its words; whole or not at all."""
    packer = Packer()
    document = {
        "what": what,
        "event": as_dict(released.event),
        "value": packer.pack(_taken_apart(released.value), "value"),
    }
    checkpoint_file.write(path, document, packer.tensors)


def read_released(path: Path) -> tuple[Any, Event]:
    """What ``write_released`` wrote.

    Guarantee: nothing in the file is run. Whoever can write it can choose the value.
    """
    document, tensors = checkpoint_file.read(path)
    try:
        value = _put_together(unpack(document["value"], tensors))
        return value, from_dict(document["event"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, ArithmeticError,
            TacitError) as error:  # fmt: skip
        line = checkpoint_file.one_line(error)
        raise CheckpointError(f"{path} is no released value of tacit's: {line}") from None


def _taken_apart(value: Any) -> Any:
    """``value`` in what a packer takes; arrays as tensors, with a note that they were arrays."""
    if isinstance(value, np.ndarray):
        return {_KIND: "array", "of": torch.from_numpy(np.array(value, order="C"))}
    if isinstance(value, Components):
        parts = (np.asarray(value.directions), value.strengths, value.centre)
        return {_KIND: "components", "of": [_taken_apart(part) for part in parts]}
    if isinstance(value, list | tuple):
        return type(value)(_taken_apart(one) for one in value)
    if isinstance(value, dict):
        return {key: _taken_apart(one) for key, one in value.items()}
    return value


def _put_together(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_put_together(one) for one in value)
    if not isinstance(value, dict):
        return value
    match value.get(_KIND):
        case None:
            return {key: _put_together(one) for key, one in value.items()}
        case "array":
            return value["of"].numpy()
        case "components":
            return Components(*(_put_together(part) for part in value["of"]))
        case other:
            raise CheckpointError(f"it holds a value of the kind {other!r}")
