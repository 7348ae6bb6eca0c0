"""The model that a finished run released, put together again by its recipe, and what it answers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NoReturn, final

from tacit import _files
from tacit.errors import CheckpointError, InvalidArgument
from tacit.recipes.auditing.answers import answers
from tacit.recipes.auditing.trial import carried_out, unfitted
from tacit.recipes.running import released as released_values
from tacit.recipes.running.folder import MODEL
from tacit.recipes.running.keeping import Forgetful
from tacit.training import checkpoint_file

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from tacit.accounting.events import Event
    from tacit.recipes.auditing.trial import Trial
    from tacit.recipes.running.lesson import Lesson


def released_answers(trial: Trial, folder: Path) -> NDArray[np.float32]:
    """The logits of the folder's model on what the trial asks about; nothing is trained."""
    try:
        carried_out(trial, trial.data, 0, _show, _Released(folder, trial.recipe.name))
    except _Shown as shown:
        _load(shown.lesson.model, folder / MODEL)
        return answers(shown.lesson.model, shown.lesson, trial.views)
    raise unfitted(trial.recipe)


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


class _Shown(Exception):
    def __init__(self, lesson: Lesson) -> None:
        super().__init__()
        self.lesson = lesson


def _show(lesson: Lesson) -> NoReturn:
    raise _Shown(lesson)


@final
class _Released(Forgetful):
    """Gives a job what its run released beside the model, and lets it release nothing more."""

    def __init__(self, folder: Path, recipe: str) -> None:
        self._folder, self._recipe = folder, recipe

    def released(self, name: str) -> tuple[Any, Event] | None:
        """What the run released, if its folder still has it."""
        path = self._folder / f"released-{name}.safetensors"
        if not path.is_file():
            raise InvalidArgument(
                f"the run in {self._folder} cannot be audited: {self._recipe} released its "
                f"{name} beside the model, and the folder does not keep it ({path.name})"
            )
        return released_values.read(path)
