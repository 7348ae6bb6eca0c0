"""The end of a run: its model, its history, its statement and its record, written and loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch

from tacit import _files
from tacit._validation import printable
from tacit.errors import CheckpointError, InvalidArgument, TacitError
from tacit.runs import record as records
from tacit.runs.folder import CHECKPOINT, HISTORY, JOURNAL, LOCK, MODEL, RECORD, STATEMENT, Folder
from tacit.runs.kept import epochs, history_bytes
from tacit.statement import Statement, extended
from tacit.training import checkpoint_file

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from torch import nn

    from tacit.runs.record import RunRecord
    from tacit.training.progress import EpochRecord

_LARGEST: Final = 16 << 20  # bytes of a history or a statement; a real one has thousands


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A private model, how well it does, and what may be claimed of it.

    Args:
        model: The trained model, with averaged weights if there are any; or arrays by name.
        history: The epochs, in public numbers.
        statement: The claim, with everything that was released of the data.
        accuracy: The share of held-out examples that ``model`` gets right, if there are any.
        notes: What a reader of the result should know beside the statement.
        files: Other files that are released with the model, by name.
    """

    model: nn.Module | Mapping[str, Any]
    history: tuple[EpochRecord, ...]
    statement: Statement
    accuracy: float | None
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


# ---- writing


def write(folder: Folder, record: RunRecord, trained: Trained) -> Trained:
    """Writes all of it, the record last; returns ``trained`` with the statement as it is written.

    A crash in between leaves the checkpoint, from which a resumed run writes the same again.
    """
    tensors = _tensors(trained.model)
    released = {MODEL: _model_bytes(tensors, record), **trained.files}
    folder.write(HISTORY, history_bytes(trained.history))
    for name, content in released.items():
        folder.write(name, content)
    statement = _statement(trained.statement, tensors, released)
    folder.write(STATEMENT, f"{statement.to_json()}\n".encode())
    ended = replace(record, test_accuracy=trained.accuracy, notes=trained.notes, finished=True)
    ended.write(folder)
    clear(folder)
    return replace(trained, statement=statement)


def clear(folder: Folder) -> None:
    """Removes what a run needs only while it goes; harmless a second time.

    What was released beside the model stays: it is charged, and the model may need it.

    Guarantee:
        Nothing secret is left in the folder when this returns. A run that was killed at its very
        end is cleared when somebody goes on with it.
    """
    folder.begin()
    folder.remove([CHECKPOINT, *(one.name for one in folder.path.glob(f"*{JOURNAL}"))])
    folder.remove_secrets()
    folder.remove([LOCK])  # last: whoever comes next finds nothing half removed


def _statement(
    statement: Statement, tensors: Mapping[str, torch.Tensor], released: Mapping[str, bytes]
) -> Statement:
    """The claim with the checksums of what is released, so that no other file passes for it."""
    return extended(
        statement,
        files={name: hashlib.sha256(content).hexdigest() for name, content in released.items()},
        releases=tuple(non_finite(tensors)),
    )


def non_finite(tensors: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """A line for a reader, if a model holds values that are no finite numbers."""
    bad = [
        name
        for name, one in tensors.items()
        if one.dtype.is_floating_point and not bool(torch.isfinite(one).all())
    ]
    if bad:
        yield (
            f"a model of no use: {len(bad)} of its {len(tensors)} tensors hold NaN or infinity, "
            f"{printable(bad[0])[:80]!r} for one"
        )


def _model_bytes(tensors: dict[str, torch.Tensor], record: RunRecord) -> bytes:
    from safetensors.torch import save  # noqa: PLC0415 - only where a model is written

    metadata = {
        "tacit": json.dumps(
            {"recipe": record.recipe, "settings": dict(record.winner or record.settings)}
        )
    }
    return save(tensors, metadata=metadata)


def _tensors(model: nn.Module | Mapping[str, Any]) -> dict[str, torch.Tensor]:
    named = model if isinstance(model, Mapping) else model.state_dict()
    return {
        name: torch.as_tensor(np.asarray(value) if not torch.is_tensor(value) else value)
        .detach()
        .to("cpu")
        .clone()  # tied weights have one memory, which the format refuses
        .contiguous()
        for name, value in named.items()
    }


# ---- loading


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finished:
    """A finished run, as its folder holds it; every file is the one that the statement names.

    Args:
        path: The folder.
        record: What the run is.
        statement: What may be claimed of the model.
        history: The epochs, in public numbers.
        weights: The released tensors by name.
        module: The network that holds them, if one was given to hold them.
    """

    path: Path
    record: RunRecord
    statement: Statement
    history: tuple[EpochRecord, ...]
    weights: Mapping[str, torch.Tensor]
    module: nn.Module | None = None

    @property
    def model(self) -> nn.Module:
        """The network with the released weights.

        Raises:
            InvalidArgument: if no network was given: a folder holds weights and no code.
        """
        if self.module is None:
            raise InvalidArgument(
                f"model must be given to hold the weights in {self.path}, for a folder holds no "
                "code: tacit.load(folder, model=Network()); .weights has the tensors by name"
            )
        return self.module

    def in_model(self, model: nn.Module) -> Finished:
        """The same, with ``model`` holding the released weights."""
        try:
            model.load_state_dict(dict(self.weights))
        except (RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.path / MODEL} does not hold the weights of this model: {_line(error)}"
            ) from None
        return replace(self, module=model)


def load(folder: str | os.PathLike[str]) -> Finished:
    """The finished run in ``folder``, with its weights by name.

    Guarantee:
        Nothing in the folder is run. A model file other than the one that the statement names is
        refused.

    Raises:
        CheckpointError: with one line that names the file.
    """
    place = Folder(folder)
    path = Path(folder)
    if not place.holds(RECORD):
        raise CheckpointError(f"{path} holds no run; name the folder that out= or --out named")
    record = records.read(place)
    if not record.finished or not place.holds(STATEMENT):
        raise CheckpointError(
            f"the run in {path} has not come to its end; {record.how_to_go_on(path)}"
        )
    statement = _claim(path / STATEMENT)
    if statement.configuration != record.configuration:
        raise CheckpointError(f"{path / RECORD} and {path / STATEMENT} are of different runs")
    checked_model(path, statement)
    _, tensors = checkpoint_file.load_tensors(path / MODEL)
    return Finished(
        path=path, record=record, statement=statement, history=_epochs(path / HISTORY),
        weights=tensors,
    )  # fmt: skip


def checked_model(path: Path, statement: Statement) -> str:
    """The SHA-256 of the folder's model, which must be the one that the statement names."""
    try:
        with _files.opened(path / MODEL) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path / MODEL} cannot be read: {_line(error)}") from None
    named = statement.files.get(MODEL)
    if named is None:
        raise CheckpointError(
            f"{path / STATEMENT} names no checksum of the model, so that any file could pass for it"
        )
    if named != found:
        raise CheckpointError(
            f"{path / MODEL} is not the file that {STATEMENT} is about; bring that one back"
        )
    return found


def _claim(path: Path) -> Statement:
    try:
        return Statement.from_json(_files.read(path, most=_LARGEST).decode("utf-8"))
    except (OSError, ValueError, TacitError) as error:
        raise CheckpointError(f"{path} is refused: {_line(error)}") from None


def _epochs(path: Path) -> tuple[EpochRecord, ...]:
    try:
        text = _files.read(path, most=_LARGEST).decode("utf-8")
        return epochs([_files.parse_json(line) for line in text.splitlines()])
    except (OSError, ValueError, TypeError, RecursionError, TacitError) as error:
        raise CheckpointError(f"{path} is refused: {_line(error)}") from None


def _line(error: object) -> str:
    reason = getattr(error, "strerror", None) or error
    line = printable(" ".join(str(reason).split()))  # a hostile file names its tensors
    return line if len(line) <= 300 else f"{line[:299]}…"
