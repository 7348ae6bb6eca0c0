"""The end of a run: its model, its history, its statement and its record, each file whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit._validation import printable
from tacit.recipes.running.folder import CHECKPOINT, HISTORY, JOURNAL, LOCK, MODEL, STATEMENT
from tacit.statement import extended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from tacit.recipes.running.folder import Folder
    from tacit.recipes.running.record import Record
    from tacit.recipes.running.trained import Trained
    from tacit.statement import Statement


def write(folder: Folder, record: Record, trained: Trained) -> Trained:
    """Writes all of it, the record last; returns ``trained`` with the statement as it is written.

    A crash in between leaves the checkpoint, from which a resumed run writes the same again.
    """
    tensors = _tensors(trained.model)
    released = {MODEL: _model_bytes(tensors, record), **trained.files}
    folder.write(HISTORY, _history_bytes(trained))
    for name, content in released.items():
        folder.write(name, content)
    statement = _statement(trained.statement, tensors, released)
    folder.write(STATEMENT, f"{statement.to_json()}\n".encode())
    ended = replace(record, test_accuracy=trained.accuracy, notes=trained.notes, finished=True)
    ended.write(folder)
    # What was released beside the model stays: it is charged, and the model may need it.
    folder.remove([CHECKPOINT, *(one.name for one in folder.path.glob(f"*{JOURNAL}"))])
    folder.remove_private()
    folder.remove([LOCK])  # last: whoever comes next finds nothing half removed
    return replace(trained, statement=statement)


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


def _history_bytes(trained: Trained) -> bytes:
    """Held-out metrics only: neither losses nor times, which depend on the private data."""
    lines = [
        {
            "epoch": one.epoch,
            "steps": one.steps,
            "held_out_accuracy": one.held_out_accuracy,
            "epsilon": one.epsilon,
        }
        for one in trained.history
    ]
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines).encode()


def _model_bytes(tensors: dict[str, torch.Tensor], record: Record) -> bytes:
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
