"""The model that a finished run released, put together again by its recipe, and what it answers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tacit import _files
from tacit.errors import CheckpointError
from tacit.recipes.auditing.answers import answers
from tacit.recipes.auditing.trial import prepared_by
from tacit.recipes.named import released_by
from tacit.runs.folder import MODEL
from tacit.training import checkpoint_file

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from tacit.recipes.auditing.trial import Trial


def released_answers(trial: Trial, folder: Path) -> NDArray[np.float32]:
    """The logits of the folder's model on what the trial asks about; nothing is trained."""
    prepared = prepared_by(trial, trial.data, 0, released_by(folder, trial.recipe))
    _load(prepared.released, folder / MODEL)
    return answers(prepared.released, prepared, trial.views)


def checksum(folder: Path) -> str:
    """The SHA-256 of the folder's model."""
    try:
        with _files.opened(folder / MODEL) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"{folder / MODEL} cannot be read: {reason}; the audit needs the model that the run "
            "released"
        ) from None


def _load(model: nn.Module, path: Path) -> None:
    _, tensors = checkpoint_file.load_tensors(path)
    try:
        model.load_state_dict(tensors)
    except (RuntimeError, TypeError, ValueError) as error:
        line = " ".join(str(error).split())
        raise CheckpointError(f"{path} does not hold the recipe's model: {line[:200]}") from None
