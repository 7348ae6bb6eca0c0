"""A secret folder that holds the finished parts of a long job, which goes on from there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from tacit._files import LARGEST_PART, LOCK, OWNER_ONLY, held, is_draft, put, read, read_json
from tacit.errors import CheckpointError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

WARNING: Final = "PRIVATE.txt"
_FORMAT: Final = 1
_DIGEST: Final = 32  # bytes of SHA-256 that a file begins with


@final
class PartsFolder:
    """A record in JSON, and parts that are written whole or not at all, for its owner alone.

    Args:
        path: The folder.
        record: The name of its record, which makes the rest count.
        holds: What it holds, in words.

    Guarantee: what ``read`` gives back was written whole, under this name, for the run of the
    record; anything else is refused.
    """

    def __init__(self, path: str | os.PathLike[str], *, record: str, holds: str) -> None:
        self.path = Path(path).absolute()
        self._record, self._holds = record, holds
        self._run = b""

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Makes the folder if need be, and keeps other processes out meanwhile."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(held(self.path))
            except BlockingIOError:
                raise self.refused("is in use by another process: wait for it") from None
            except OSError as error:
                raise self._unwritable(error) from None
            yield

    def record(self, *fields: str, left: tuple[str, ...] = ()) -> dict[str, Any] | None:
        """The record, with at least these fields; None if the folder is new.

        ``left`` is what a run may leave that ended before its record was written.
        """
        if not (self.path / self._record).exists():
            self._check_new({LOCK, WARNING, *left})
            return None
        try:
            found: dict[str, Any] = read_json(self.path / self._record)
            if found["format"] != _FORMAT:
                raise self.refused(f"has the format {found['format']!r:.20}, not {_FORMAT}")
            self._run = bytes.fromhex(found["run"])
            return {field: found[field] for field in fields}
        except CheckpointError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise self.refused(f"is damaged: {self._record} cannot be read ({reason})") from None

    def begin(self, warning: str) -> None:
        """Begins a run of its own; it counts once its record is written."""
        self._run = secrets.token_bytes(16)
        self._replace(WARNING, warning.encode())

    def conclude(self, fields: Mapping[str, Any]) -> None:
        """Writes the record."""
        record = {"format": _FORMAT, "run": self._run.hex(), **fields}
        self._replace(self._record, json.dumps(record, indent=1, allow_nan=False).encode())

    def write(self, name: str, content: bytes) -> None:
        """Keeps a part."""
        if len(content) + _DIGEST > LARGEST_PART:
            raise self.refused(f"cannot keep {name}: it has {len(content):,} bytes, too many")
        self._replace(name, self._digest(name, content) + content)

    def read(self, name: str) -> bytes:
        """The part of this name, as it was written."""
        try:
            found = read(self.path / name, most=LARGEST_PART)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise self.refused(f"is damaged: {name}: {reason}") from None
        digest, content = found[:_DIGEST], found[_DIGEST:]
        if digest != self._digest(name, content):
            raise self.refused(f"is damaged: {name} is not as it was written for this run")
        return content

    def refused(self, reason: str) -> CheckpointError:
        """The error that says why the folder is of no use."""
        return CheckpointError(f"folder {self.path} {reason}")

    def _check_new(self, left: set[str]) -> None:
        others = [one.name for one in self.path.iterdir() if one.name not in left]
        if others := [name for name in others if not name.endswith(".new") and not is_draft(name)]:
            raise self.refused(
                f"holds {min(others)!r} and no {self._holds}: name a new or empty folder"
            )

    def _digest(self, name: str, content: bytes) -> bytes:
        """Of the content for this name in this run: a file of another run does not pass."""
        return hashlib.sha256(self._run + name.encode() + b"\0" + content).digest()

    def _replace(self, name: str, content: bytes) -> None:
        try:
            put(self.path / name, content, mode=OWNER_ONLY)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> CheckpointError:
        return self.refused(f"cannot be written: {error.strerror or error}")
