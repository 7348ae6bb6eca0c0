"""A folder of trained teachers, from which an interrupted run continues.

The assignment is drawn once and written before the first teacher is trained; every piece of
teachers is a file that is written whole or not at all. All of it is private: which teacher a
record has, a checksum of the data, and weights that were trained without noise. Only its owner can
read it.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from torch import Tensor, nn

from tacit._files import array_bytes, parse_array
from tacit._folders import PartsFolder
from tacit._pickles import PickledModels, check_owner
from tacit.errors import CheckpointError, InvalidArgument
from tacit.training import checkpoint_file
from tacit.training.checkpoint_file import Packer, unpack
from tacit.transfer.teachers.models import Constant, TrainedTeachers

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

    from tacit._pickles import ModelFormat


RECORD: Final = "teachers.json"
TEXT: Final = """\
Everything in this folder is private: it was computed from the records without any noise.
Which teacher a record has and what a teacher learned must not leave; only what an aggregator
answers of the teachers' votes may. Delete the folder when the labels are made.
"""
_ASSIGNMENT: Final = "assignment"
_KIND: Final = ".safetensors"
_PICKLES: Final = (".pt", ".pickle")  # as older versions wrote them


@final
class TeacherStore:
    """The folder of one ensemble, which ``settings`` describe.

    Args:
        path: The folder.
        settings: What it must have been made with to be gone on with; ``count`` among them.
        first: A teacher before its training.
        models: How fitted classifiers become state that a file can hold.

    Guarantee: what it gives back was written whole for the same settings and the same records;
    anything else is refused. Nothing in it is run, unless ``models`` is ``PickledModels()``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: Mapping[str, Any],
        *,
        first: Any,
        models: ModelFormat | None,
    ) -> None:
        if models is None and not isinstance(first, nn.Module):
            raise InvalidArgument(
                "models must say how the folder keeps fitted classifiers, got None: give an object "
                "with state(model) and model(state), or PickledModels(), if nobody else can write "
                "the folder"
            )
        self._parts = PartsFolder(path, record=RECORD, holds="teachers")
        self._settings = json.loads(json.dumps(settings))
        self._models = models
        self._weights = first.state_dict() if isinstance(first, nn.Module) else {}

    def opened(self) -> AbstractContextManager[None]:
        """Makes the folder if need be, and keeps other processes out meanwhile."""
        return self._parts.opened()

    def begun(self, units: int) -> tuple[NDArray[np.int64], int] | None:
        """The teacher of each unit and the seed, None in a new folder; another run is refused."""
        record = self._parts.record("settings", "seed", left=(_ASSIGNMENT,))
        if record is None:
            return None
        settings, seed = record["settings"], record["seed"]
        if not isinstance(settings, dict) or type(seed) is not int or not 0 <= seed < 2**63:
            raise self._damaged(RECORD, "its settings or its seed are none")
        for name, value in self._settings.items():
            if settings.get(name) != value:
                raise self._parts.refused(
                    f"is of teachers with another {name}: name a new folder, or give the one it "
                    "was made with"
                )
        try:
            found = parse_array(self._parts.read(_ASSIGNMENT))
        except ValueError as error:
            raise self._damaged(_ASSIGNMENT, error) from None
        if found.shape != (units,) or found.dtype.kind not in "iu":
            raise self._damaged(_ASSIGNMENT, "it is not of these records")
        if found.size and not 0 <= found.min() <= found.max() < self._settings["count"]:
            raise self._damaged(_ASSIGNMENT, "it names teachers that there are not")
        return found.astype(np.int64), seed

    def begin(self, assignment: NDArray[np.int64], seed: int) -> None:
        """Writes the assignment, and then the record that makes it count."""
        self._parts.begin(TEXT)
        self._parts.write(_ASSIGNMENT, array_bytes(assignment))
        self._parts.conclude({"seed": seed, "settings": self._settings})

    def add(self, trained: TrainedTeachers) -> None:
        """Keeps some trained teachers."""
        packer = Packer()
        kept: Any = dict(trained.weights)
        labels = [one.label if isinstance(one, Constant) else None for one in trained.classifiers]
        if self._models is not None and trained.classifiers:
            # A teacher that gives one class is none of the models that it was told how to keep.
            pairs = zip(trained.classifiers, labels, strict=True)
            kept = [self._models.state(one) if label is None else None for one, label in pairs]
        try:
            document = {
                "teachers": list(trained.teachers),
                "models": type(self._models).__name__ if trained.classifiers else None,
                "labels": labels,
                "kept": packer.pack(kept, "teachers"),
            }
            content = checkpoint_file.to_bytes(document, packer.tensors)
        except CheckpointError as error:
            raise self._parts.refused(f"cannot keep these teachers: {error}") from None
        name = f"teachers-{trained.teachers[0]:06d}-{secrets.token_hex(4)}"
        self._parts.write(f"{name}{_KIND}", content)

    def pieces(self) -> list[TrainedTeachers]:
        """All teachers that were kept."""
        found: list[TrainedTeachers] = []
        for path in sorted(self._parts.path.glob("teachers-*")):
            if path.suffix in _PICKLES:
                raise self._parts.refused(
                    f"keeps teachers as pickles ({path.name}), which can run any program and are "
                    "not read; an older tacit wrote them: name a new folder"
                )
            if path.suffix == _KIND:
                found.append(self._piece(path))
        teachers = [teacher for one in found for teacher in one.teachers]
        if len(set(teachers)) != len(teachers):
            raise self._parts.refused("is damaged: a teacher is there twice")
        return found

    def _piece(self, path: Path) -> TrainedTeachers:
        content = self._parts.read(path.name)
        try:
            document, tensors = checkpoint_file.from_bytes(content, path.name)
            teachers = tuple(document["teachers"])
            wanted = range(self._settings["count"])
            if not teachers or any(type(one) is not int or one not in wanted for one in teachers):
                raise ValueError("it names teachers that there are not")
            kept = unpack(document["kept"], tensors)
            if self._weights:
                self._check_weights(kept, len(teachers))
                return TrainedTeachers(teachers, kept, ())
            return TrainedTeachers(
                teachers, {}, self._classifiers(path, document, kept, len(teachers))
            )
        except (ValueError, KeyError, TypeError, CheckpointError) as error:
            raise self._damaged(path.name, error) from None

    def _check_weights(self, kept: Any, count: int) -> None:
        if not isinstance(kept, dict) or set(kept) != set(self._weights):
            raise ValueError("its weights are not those of the model")
        for name, one in self._weights.items():
            given = kept[name]
            same = isinstance(given, Tensor) and given.dtype == one.dtype
            if not same or given.shape != (count, *one.shape):
                raise ValueError(f"its {name} is not that of the model")

    def _classifiers(self, path: Path, document: Any, kept: Any, count: int) -> tuple[Any, ...]:
        assert self._models is not None
        if document["models"] != type(self._models).__name__:
            raise CheckpointError(f"it was kept with models={document['models']!r:.60}")
        if not isinstance(kept, list) or len(kept) != count:
            raise ValueError("it does not hold a classifier for each teacher")
        if isinstance(self._models, PickledModels):
            check_owner(self._parts.path, path)
        labels = document.get("labels", [None] * count)  # an older tacit kept them as models
        if not isinstance(labels, list) or len(labels) != count:
            raise ValueError("it does not hold a label, or none, for each teacher")
        known = range(self._settings["classes"])
        if any(one is not None and (type(one) is not int or one not in known) for one in labels):
            raise ValueError("it holds labels that are no classes")
        return tuple(
            self._models.model(one) if label is None else Constant(label)
            for one, label in zip(kept, labels, strict=True)
        )

    def _damaged(self, name: str, reason: object) -> CheckpointError:
        return self._parts.refused(f"is damaged: {name}: {' '.join(str(reason).split())[:300]}")
