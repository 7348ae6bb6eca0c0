"""A folder of shadow models' outputs, from which training that was cut off goes on.

Each finished model is one file, written whole or not at all. All of it is private: who was a
member, and what models that were trained on private records say of them. Only its owner can read
it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from tacit._files import LOCK, PRIVATE, held, put
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

RECORD: Final = "shadows.json"
WARNING: Final = "PRIVATE.txt"
TEXT: Final = """\
Everything in this folder is private: it was computed from the records, for an audit, and no
guarantee covers it. Delete it when the audit is done.
"""
_FORMAT: Final = 1
_DIGEST: Final = 32  # bytes of SHA-256 that a file begins with


@final
class Folder:
    """The folder of one set of shadow models.

    Guarantee: what it gives back was written whole, for the settings that it was begun with;
    anything else is refused.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).absolute()
        self._run = b""

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Makes the folder if need be, and keeps other processes out meanwhile."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(self._path))
            except BlockingIOError:
                raise self.refused("is in use by another process: wait for it") from None
            except OSError as error:
                raise self.refused(f"cannot be written: {error.strerror or error}") from None
            yield

    def settings(self) -> dict[str, Any] | None:
        """What the folder was begun with; None if it is new."""
        if not (self._path / RECORD).exists():
            self._check_new()
            return None
        try:
            record = json.loads((self._path / RECORD).read_text())
            if record["format"] != _FORMAT:
                raise self.refused(f"has the format {record['format']!r}, not {_FORMAT}")
            self._run = bytes.fromhex(record["run"])
            return dict(record["settings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise self.refused(f"is damaged: {RECORD} cannot be read ({error})") from None

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Writes the record of a new folder."""
        self._run = secrets.token_bytes(16)
        self._replace(WARNING, TEXT.encode())
        record = {"format": _FORMAT, "run": self._run.hex(), "settings": dict(settings)}
        self._replace(RECORD, json.dumps(record, indent=1).encode())

    def add(self, model: int, logits: NDArray[np.float32]) -> None:
        """Keeps what a finished model says."""
        content = io.BytesIO()
        np.save(content, logits, allow_pickle=False)
        name = _name(model)
        self._replace(name, self._digest(name, content.getvalue()) + content.getvalue())

    def models(self) -> dict[int, NDArray[np.float32]]:
        """What each of the finished models says, by its number."""
        numbers = sorted(
            int(path.stem.removeprefix("model-")) for path in self._path.glob("model-*.npy")
        )
        return {number: self._read(_name(number)) for number in numbers}

    def _read(self, name: str) -> NDArray[np.float32]:
        try:
            found = (self._path / name).read_bytes()
        except OSError as error:
            raise self.refused(f"is damaged: {name}: {error.strerror or error}") from None
        digest, content = found[:_DIGEST], found[_DIGEST:]
        if digest != self._digest(name, content):
            raise self.refused(f"is damaged: {name} is not as it was written for this run")
        return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))

    def _check_new(self) -> None:
        left = {LOCK, WARNING}  # what a run may leave that was cut off at once
        others = [one.name for one in self._path.iterdir() if one.name not in left]
        if others := [name for name in others if not name.endswith(".new")]:
            raise self.refused(
                f"holds {min(others)!r} and no shadow models: name a new or empty folder"
            )

    def _digest(self, name: str, content: bytes) -> bytes:
        """Of the content for this name in this run: a file of another run does not pass."""
        return hashlib.sha256(self._run + name.encode() + b"\0" + content).digest()

    def _replace(self, name: str, content: bytes) -> None:
        """Writes beside the place, flushes to the disk, and moves there in one operation."""
        try:
            put(self._path / name, content, mode=PRIVATE)
        except OSError as error:
            raise self.refused(f"cannot be written: {error.strerror or error}") from None

    def refused(self, reason: str) -> CheckpointError:
        """The error that says why the folder is of no use."""
        return CheckpointError(f"folder {self._path} {reason}")


def _name(model: int) -> str:
    return f"model-{model:06d}.npy"
