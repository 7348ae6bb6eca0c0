"""Files that are there whole or not at all, and locks that keep other processes out."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PRIVATE = 0o600  # only its owner reads it
LOCK = ".lock"


def put(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Writes beside the place, flushes to the disk, and moves there in one operation.

    Only one process at a time may write a file: hold a lock. Errors are the system's own.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     put(Path(folder) / "votes", b"whole")
    ...     [found.name for found in Path(folder).iterdir()], (Path(folder) / "votes").read_bytes()
    (['votes'], b'whole')
    """
    # A random name that did not exist: no link that was laid beside is written through.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(draft, flags, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes a rename in ``folder`` survive a crash of the machine, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes a private folder if need be, and keeps other processes out meanwhile.

    Raises ``BlockingIOError`` if another process has it; other errors are the system's own.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        if not locked(handle):
            raise BlockingIOError("it is in use by another process")
        yield
    finally:
        os.close(handle)


def locked(handle: int) -> bool:
    """Takes the lock of an open file until it is closed; False if another process has it.

    Where there are no such locks (Windows), it is always taken.
    """
    try:
        import fcntl  # noqa: PLC0415 - POSIX only
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
