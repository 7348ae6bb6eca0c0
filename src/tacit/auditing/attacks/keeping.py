"""A folder of shadow models' outputs, from which training that was cut off goes on.

Each finished model is one file, written whole or not at all. All of it is private: who was a
member, and what models that were trained on private records say of them. Only its owner can read
it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tacit._files import array_bytes, parse_array
from tacit._folders import WARNING, PartsFolder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from tacit.errors import CheckpointError

__all__ = ["RECORD", "WARNING", "Folder"]

RECORD: Final = "shadows.json"
_NAME: Final = re.compile(r"model-(\d{6,12})\.npy")
TEXT: Final = """\
Everything in this folder is private: it was computed from the records, for an audit, and no
guarantee covers it. Delete it when the audit is done.
"""


@final
class Folder:
    """The folder of one set of shadow models.

    Guarantee: what it gives back was written whole, for the settings that it was begun with;
    anything else is refused.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._parts = PartsFolder(path, record=RECORD, holds="shadow models")

    def opened(self) -> AbstractContextManager[None]:
        """Makes the folder if need be, and keeps other processes out meanwhile."""
        return self._parts.opened()

    def settings(self) -> dict[str, Any] | None:
        """What the folder was begun with; None if it is new."""
        record = self._parts.record("settings")
        if record is not None and not isinstance(record["settings"], dict):
            raise self.refused(f"is damaged: {RECORD} has no settings")
        return None if record is None else record["settings"]

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Writes the record of a new folder."""
        self._parts.begin(TEXT)
        self._parts.conclude({"settings": dict(settings)})

    def add(self, model: int, logits: NDArray[np.float32]) -> None:
        """Keeps what a finished model says."""
        self._parts.write(_name(model), array_bytes(logits))

    def models(self) -> dict[int, NDArray[np.float32]]:
        """What each of the finished models says, by its number."""
        names = (path.name for path in self._parts.path.glob("model-*.npy"))
        numbers = sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))
        return {number: self._read(_name(number)) for number in numbers}

    def _read(self, name: str) -> NDArray[np.float32]:
        try:
            return parse_array(self._parts.read(name)).astype(np.float32)
        except ValueError as error:
            raise self.refused(f"is damaged: {name}: {error}") from None

    def refused(self, reason: str) -> CheckpointError:
        """The error that says why the folder is of no use."""
        return self._parts.refused(reason)


def _name(model: int) -> str:
    return f"model-{model:06d}.npy"
