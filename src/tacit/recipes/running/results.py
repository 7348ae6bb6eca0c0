"""The end of a run: its model, its history, its statement and its record, each file whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tacit.recipes.running.folder import CHECKPOINT, HISTORY, JOURNAL, LOCK, MODEL, STATEMENT

if TYPE_CHECKING:
    from torch import nn

    from tacit.recipes.running.folder import Folder
    from tacit.recipes.running.record import Record
    from tacit.recipes.running.trained import Trained


def write(folder: Folder, record: Record, trained: Trained) -> Record:
    """Writes all of it, the record last: it says that the run has come to its end.

    A crash in between leaves the checkpoint, from which a resumed run writes the same again.
    """
    folder.write(MODEL, _model_bytes(trained.model, record))
    folder.write(HISTORY, _history_bytes(trained))
    for name, content in trained.files.items():
        folder.write(name, content)
    folder.write(STATEMENT, f"{trained.statement.to_json()}\n".encode())
    ended = replace(record, test_accuracy=trained.accuracy, notes=trained.notes, finished=True)
    ended.write(folder)
    # What was released beside the model stays: it is charged, and the model may need it.
    folder.remove([CHECKPOINT, *(one.name for one in folder.path.glob(f"*{JOURNAL}"))])
    folder.remove_private()
    folder.remove([LOCK])  # last: whoever comes next finds nothing half removed
    return ended


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


def _model_bytes(model: nn.Module | Mapping[str, Any], record: Record) -> bytes:
    from safetensors.torch import save  # noqa: PLC0415 - only where a model is written

    named = model if isinstance(model, Mapping) else model.state_dict()
    tensors = {
        name: torch.as_tensor(np.asarray(value) if not torch.is_tensor(value) else value)
        .detach()
        .to("cpu")
        .clone()  # tied weights have one memory, which the format refuses
        .contiguous()
        for name, value in named.items()
    }
    metadata = {
        "tacit": json.dumps(
            {"recipe": record.recipe, "settings": dict(record.winner or record.settings)}
        )
    }
    return save(tensors, metadata=metadata)
