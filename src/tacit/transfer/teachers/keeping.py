"""A folder of trained teachers, from which a run that was cut off goes on.

The assignment is drawn once and written before the first teacher is trained; every piece of
teachers is a file that is written whole or not at all. All of it is private: which teacher a
record has, a checksum of the data, and weights that were trained without noise. Only its owner can
read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch

from tacit._files import LOCK, PRIVATE, held, put
from tacit.errors import CheckpointError
from tacit.transfer.teachers.trained import Trained

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

RECORD: Final = "teachers.json"
WARNING: Final = "PRIVATE.txt"
TEXT: Final = """\
Everything in this folder is private: it was computed from the records without any noise.
Which teacher a record has and what a teacher learned must not leave; only what an aggregator
answers of the teachers' votes may. Delete the folder when the labels are made.
"""
_ASSIGNMENT: Final = "assignment"
_FORMAT: Final = 1
_DIGEST: Final = 32  # bytes of SHA-256 that a file begins with


@final
class Folder:
    """The folder of one ensemble, which ``settings`` describe.

    Guarantee: what it gives back was written whole for the same settings and the same records;
    anything else is refused. Fitted classifiers are pickles, which may run code when they are
    read: they are read only if nobody but this user could have written them.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self._path = Path(path).absolute()
        self._settings = json.loads(json.dumps(settings))
        self._run = b""

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Makes the folder if need be, and keeps other processes out meanwhile."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(self._path))
            except BlockingIOError:
                raise self._refused("is in use by another process: wait for it") from None
            except OSError as error:
                raise self._refused(f"cannot be written: {error.strerror or error}") from None
            yield

    def begun(self) -> tuple[NDArray[np.int64], int] | None:
        """The teacher of each unit and the seed, None in a new folder; another run is refused."""
        if not (self._path / RECORD).exists():
            self._check_new()
            return None
        record = self._record()
        for name, value in self._settings.items():
            if record["settings"].get(name) != value:
                raise self._refused(
                    f"is of teachers with another {name}: name a new folder, or give the one it "
                    "was made with"
                )
        self._run = bytes.fromhex(record["run"])
        content = io.BytesIO(self._read(_ASSIGNMENT))
        return np.load(content, allow_pickle=False), int(record["seed"])

    def begin(self, assignment: NDArray[np.int64], seed: int) -> None:
        """Writes the assignment, and then the record that makes it count."""
        self._run = secrets.token_bytes(16)
        self._replace(WARNING, TEXT.encode())
        content = io.BytesIO()
        np.save(content, assignment, allow_pickle=False)
        self._write(_ASSIGNMENT, content.getvalue())
        record = {
            "format": _FORMAT, "run": self._run.hex(), "seed": seed, "settings": self._settings
        }  # fmt: skip
        self._replace(RECORD, json.dumps(record, indent=1).encode())

    def add(self, trained: Trained) -> None:
        """Keeps some trained teachers."""
        name = f"teachers-{trained.teachers[0]:06d}-{secrets.token_hex(4)}"
        if trained.classifiers:
            try:
                content = pickle.dumps((trained.teachers, trained.classifiers))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise self._refused(f"cannot keep these classifiers: {error}") from None
            self._write(f"{name}.pickle", content)
            return
        buffer = io.BytesIO()
        torch.save((trained.teachers, dict(trained.weights)), buffer)
        self._write(f"{name}.pt", buffer.getvalue())

    def pieces(self) -> list[Trained]:
        """All teachers that were kept."""
        found = []
        for path in sorted(self._path.glob("teachers-*")):
            if path.suffix not in (".pt", ".pickle"):  # a draft that was cut off
                continue
            content = self._read(path.name)
            if path.suffix == ".pickle":
                self._check_owner(path)
                teachers, fitted = pickle.loads(content)
                found.append(Trained(teachers, {}, fitted))
            else:
                teachers, weights = torch.load(io.BytesIO(content), weights_only=True)
                found.append(Trained(tuple(teachers), weights, ()))
        return found

    def _check_new(self) -> None:
        left = {LOCK, WARNING, _ASSIGNMENT}  # what a run may leave that was cut off at once
        others = [one.name for one in self._path.iterdir() if one.name not in left]
        if others := [name for name in others if not name.endswith(".new")]:
            raise self._refused(f"holds {others[0]!r} and no teachers: name a new or empty folder")

    def _record(self) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads((self._path / RECORD).read_text())
            if record["format"] != _FORMAT:
                raise self._refused(f"has the format {record['format']!r}, not {_FORMAT}")
            record["settings"], record["run"], record["seed"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise self._refused(f"is damaged: {RECORD} cannot be read ({error})") from None
        return record

    def _write(self, name: str, content: bytes) -> None:
        self._replace(name, self._digest(name, content) + content)

    def _read(self, name: str) -> bytes:
        try:
            found = (self._path / name).read_bytes()
        except OSError as error:
            raise self._refused(f"is damaged: {name}: {error.strerror or error}") from None
        digest, content = found[:_DIGEST], found[_DIGEST:]
        if digest != self._digest(name, content):
            raise self._refused(f"is damaged: {name} is not as it was written for this run")
        return content

    def _digest(self, name: str, content: bytes) -> bytes:
        """Of the content for this name in this run: a file of another run does not pass."""
        return hashlib.sha256(self._run + name.encode() + b"\0" + content).digest()

    def _replace(self, name: str, content: bytes) -> None:
        """Writes beside the place, flushes to the disk, and moves there in one operation."""
        try:
            put(self._path / name, content, mode=PRIVATE)
        except OSError as error:
            raise self._refused(f"cannot be written: {error.strerror or error}") from None

    def _check_owner(self, path: Path) -> None:
        for found in (self._path.stat(), path.lstat()):
            if os.name == "posix" and (found.st_uid != os.getuid() or found.st_mode & 0o022):
                raise self._refused(
                    "could have been written by others, whose code its classifiers would run: "
                    "make it yours alone (chown, chmod -R go-w), or name a new one"
                )

    def _refused(self, reason: str) -> CheckpointError:
        return CheckpointError(f"folder {self._path} {reason}")
