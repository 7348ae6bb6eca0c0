"""A folder of trained teachers, from which a run that was cut off goes on.

The assignment is drawn once and written before the first teacher is trained; every piece of
teachers is a file that is written whole or not at all. All of it is private: which teacher a
record has, a checksum of the data, and weights that were trained without noise. Only its owner can
read it.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import secrets
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch

from tacit._folders import PartsFolder
from tacit.transfer.teachers.trained import Trained

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

RECORD: Final = "teachers.json"
TEXT: Final = """\
Everything in this folder is private: it was computed from the records without any noise.
Which teacher a record has and what a teacher learned must not leave; only what an aggregator
answers of the teachers' votes may. Delete the folder when the labels are made.
"""
_ASSIGNMENT: Final = "assignment"


@final
class Folder:
    """The folder of one ensemble, which ``settings`` describe.

    Guarantee: what it gives back was written whole for the same settings and the same records;
    anything else is refused. Fitted classifiers are pickles, which may run code when they are
    read: they are read only if nobody but this user could have written them.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self._parts = PartsFolder(path, record=RECORD, holds="teachers")
        self._settings = json.loads(json.dumps(settings))

    def opened(self) -> AbstractContextManager[None]:
        """Makes the folder if need be, and keeps other processes out meanwhile."""
        return self._parts.opened()

    def begun(self) -> tuple[NDArray[np.int64], int] | None:
        """The teacher of each unit and the seed, None in a new folder; another run is refused."""
        record = self._parts.record("settings", "seed", left=(_ASSIGNMENT,))
        if record is None:
            return None
        for name, value in self._settings.items():
            if record["settings"].get(name) != value:
                raise self._parts.refused(
                    f"is of teachers with another {name}: name a new folder, or give the one it "
                    "was made with"
                )
        content = io.BytesIO(self._parts.read(_ASSIGNMENT))
        return np.load(content, allow_pickle=False), int(record["seed"])

    def begin(self, assignment: NDArray[np.int64], seed: int) -> None:
        """Writes the assignment, and then the record that makes it count."""
        self._parts.begin(TEXT)
        content = io.BytesIO()
        np.save(content, assignment, allow_pickle=False)
        self._parts.write(_ASSIGNMENT, content.getvalue())
        self._parts.conclude({"seed": seed, "settings": self._settings})

    def add(self, trained: Trained) -> None:
        """Keeps some trained teachers."""
        name = f"teachers-{trained.teachers[0]:06d}-{secrets.token_hex(4)}"
        if trained.classifiers:
            try:
                content = pickle.dumps((trained.teachers, trained.classifiers))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise self._parts.refused(f"cannot keep these classifiers: {error}") from None
            self._parts.write(f"{name}.pickle", content)
            return
        buffer = io.BytesIO()
        torch.save((trained.teachers, dict(trained.weights)), buffer)
        self._parts.write(f"{name}.pt", buffer.getvalue())

    def pieces(self) -> list[Trained]:
        """All teachers that were kept."""
        found = []
        for path in sorted(self._parts.path.glob("teachers-*")):
            if path.suffix not in (".pt", ".pickle"):  # a draft that was cut off
                continue
            content = self._parts.read(path.name)
            if path.suffix == ".pickle":
                self._check_owner(path)
                teachers, fitted = pickle.loads(content)
                found.append(Trained(teachers, {}, fitted))
            else:
                teachers, weights = torch.load(io.BytesIO(content), weights_only=True)
                found.append(Trained(tuple(teachers), weights, ()))
        return found

    def _check_owner(self, path: Path) -> None:
        for found in (self._parts.path.stat(), path.lstat()):
            if os.name == "posix" and (found.st_uid != os.getuid() or found.st_mode & 0o022):
                raise self._parts.refused(
                    "could have been written by others, whose code its classifiers would run: "
                    "make it yours alone (chown, chmod -R go-w), or name a new one"
                )
