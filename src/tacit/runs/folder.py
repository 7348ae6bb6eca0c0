"""A run's folder: one process at a time, every file written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from tacit import _files
from tacit.errors import CheckpointError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORD = "run.json"
CHECKPOINT = "checkpoint.safetensors"
MODEL = "model.safetensors"
HISTORY = "history.jsonl"
STATEMENT = "statement.json"
LOCK = _files.LOCK
PRIVATE = "private"
SEARCH = "search"
SECRET: Final = (PRIVATE, SEARCH)  # folders that are gone once a run has ended
JOURNAL = ".journal"
_ATTEMPTS: Final = 100


@final
class Folder:
    """The folder at ``path``, which need not exist yet.

    ``begin`` makes it and keeps other processes out; ``close`` lets them in again.

    Guarantee:
        Of several processes that begin in one folder, one at a time goes on. Those that are refused
        change nothing in it. The folder is its owner's alone; so is what is written as secret.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._handle: int | None = None
        self._made: list[Path] = []
        self._must_be_new = False

    def file(self, name: str) -> Path:
        """The file of this name, which is directly in the folder."""
        if name != Path(name).name or name in ("", ".", ".."):
            raise InvalidArgument(f"name must be that of a file in the folder, got {name!r}")
        return self.path / name

    def holds(self, name: str) -> bool:
        """Whether the folder has this file."""
        return self.file(name).is_file()

    def check_new(self) -> None:
        """Refuses a place where no new run can be kept; makes nothing."""
        self._must_be_new = True  # again under the lock: another process may come first
        if self.path.exists() and not self.path.is_dir():
            raise InvalidArgument(f"{self.path} is no folder; name a new or empty one")
        self._check_empty()
        self._check_writable()

    def _check_empty(self) -> None:
        if self.holds(RECORD):
            raise InvalidArgument(
                f"{self.path} holds a run already; go on with it (resume=True, or "
                "--resume in a shell), or name another folder"
            )
        names = [one.name for one in self._entries()] if self.path.is_dir() else []
        if any(name != LOCK and not _files.is_draft(name) for name in names):
            raise InvalidArgument(f"{self.path} is not empty; name a new or empty folder")

    def check_run(self) -> None:
        """Refuses a place that holds no run."""
        if not self.holds(RECORD):
            raise InvalidArgument(f"{self.path} holds no run to go on with; start one without "
                                  "resume")  # fmt: skip
        self._check_writable()

    def _entries(self) -> Iterable[Path]:
        try:
            return list(self.path.iterdir())
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def _check_writable(self) -> None:
        nearest = next(one for one in (self.path, *self.path.parents) if os.path.lexists(one))
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise InvalidArgument(
                f"{self.path} cannot be written; name a folder of yours to keep the run in"
            )

    # ---- one process at a time

    def begin(self) -> None:
        """Makes the folder, if it is not there, and locks it; harmless a second time."""
        if self._handle is not None:
            return
        missing = [one for one in (self.path, *self.path.parents) if not one.exists()]
        try:
            self._handle = self._locked()
            if self._must_be_new:
                self._check_empty()
            _files.sweep(self.path)
        except BlockingIOError:
            raise InvalidArgument(
                f"{self.path} is in use by another process; wait for it, or name another folder"
            ) from None
        except OSError as error:
            self.close()
            raise _unwritable(self.path, error) from None
        except BaseException:
            self.close()
            raise
        self._made = missing

    def _locked(self) -> int:
        """The lock; whoever had it may be removing the folder at this moment."""
        for _ in range(_ATTEMPTS):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                return _files.lock(self.path)
            except FileNotFoundError:
                time.sleep(0.01)
        raise FileNotFoundError(2, "it is removed again and again")

    def close(self) -> None:
        """Lets others in; harmless a second time."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def leave(self, names: Iterable[str]) -> None:
        """Removes these files, the lock, and every folder that ``begin`` made if it is empty.

        Whoever does not have the lock removes nothing: they are another process's.
        """
        if self._handle is None:
            return
        with contextlib.suppress(OSError):
            for name in (*names, LOCK):
                self.file(name).unlink(missing_ok=True)
            for one in self._made:
                one.rmdir()
        self.close()

    # ---- files

    def read(self, name: str) -> Any:
        """What a JSON file holds."""
        try:
            return _files.read_json(self.file(name))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CheckpointError(f"{self.file(name)} cannot be read: {reason}") from None

    def write(self, name: str, content: bytes, *, secret: bool = False) -> None:
        """Writes a file beside its place, flushes it to the disk, and moves it there."""
        self.begin()
        path = self.file(name)
        try:
            _files.put(path, content, mode=_files.OWNER_ONLY if secret else 0o666)
        except OSError as error:
            raise _unwritable(path, error) from None

    def private(self, name: str) -> Path:
        """A place for what the run needs to go on and nobody else may see, until it ends."""
        return self.inner(PRIVATE) / self.file(name).name

    def inner(self, name: str) -> Path:
        """A folder in this one, for its owner alone; a link to another place is refused."""
        self.begin()
        place = self.file(name)
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            if place.is_symlink():
                raise OSError(errno.ELOOP, "it is a link to another place")
            place.chmod(0o700)  # whoever made it
        except OSError as error:
            raise _unwritable(place, error) from None
        return place

    def remove_secrets(self) -> None:
        """Removes all that ``private`` gave a place to, and the journal of a search."""
        for name in SECRET:
            try:
                shutil.rmtree(self.file(name))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CheckpointError(
                    f"{self.file(name)} is secret and cannot be removed: "
                    f"{error.strerror or error}; remove it by hand"
                ) from None

    def remove(self, names: Iterable[str]) -> None:
        """Removes files that are no longer needed."""
        for name in names:
            with contextlib.suppress(OSError):
                self.file(name).unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> CheckpointError:
    reason = error.strerror or str(error)
    return CheckpointError(f"{path} cannot be written: {reason}; make room, or name another folder")
