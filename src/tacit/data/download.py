"""Downloads a file: resumed where it broke off, compared with its checksum, then moved into place.

Guarantee: under its own name a file is whole and, where a checksum is known, the published one.
What is on the way is called ``NAME.part``; a crash leaves at most that, and the next attempt goes
on from there. Two processes that want the same file take turns (not on Windows).
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tacit._files import append_to, move
from tacit.data.contents import Contents, digest, digest_of_file, inside
from tacit.data.transfer import Failed, Received, transfer
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

    from tacit.data.catalogue import File

Progress = Callable[[str, int, "int | None"], None]

ATTEMPTS: Final = 5  # that a place gets, as long as each brings the file further
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def download(file: File, target: Path, progress: Progress | None = None) -> None:
    """Downloads a file from the first of its places that has it.

    Raises:
        DataError: No place gave it, or it cannot be written here.
    """
    part = target.with_name(f"{target.name}.part")
    made = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(part) as out:
            if not target.exists():  # else another process has just brought it
                _fill(file, target, out, progress)
                _put_in_place(out, part, target)
    except OSError as error:
        raise DataError(
            f"{target} cannot be written: {error.strerror or error}; choose another folder"
        ) from None
    finally:
        for folder in made:
            with suppress(OSError):  # it is not empty, which is how it should be
                folder.rmdir()


def _fill(file: File, target: Path, out: FileIO, progress: Progress | None) -> None:
    """Gets the whole file, from place after place, or says why there is none."""
    _ask_for_room(file, target, out)
    reasons = []
    for url in file.urls:
        try:
            return _get(url, file, out, progress)
        except Failed as failure:
            reasons.append(f"{urlsplit(url).netloc}: {failure}")
        except OSError as error:
            if error.errno in FULL:
                out.truncate(0)  # the room is worth more than what has arrived
                raise DataError(_no_room(file, target, f"is full ({error.strerror})")) from None
            raise
    raise DataError(
        f"{file.name} cannot be downloaded ({'; '.join(reasons)}); try again later, which goes on "
        f"where this ended, or put the file into {target.parent} yourself"
    )


def _get(url: str, file: File, out: FileIO, progress: Progress | None) -> None:
    """Gets the file from one place, and goes on where the connection breaks off."""
    received = Received(out, file.size, lambda there, total: _tell(progress, file, there, total))
    for attempt in range(ATTEMPTS):
        start = received.length()
        if not start or start != file.size:
            try:
                transfer(url, received)
            except Failed:
                if received.length() <= start or attempt + 1 == ATTEMPTS:
                    raise
                continue
        if _sound(out, file):
            return
        out.truncate(0)
        if not start:  # else what was there from an earlier attempt may be to blame
            break
    raise Failed("it has another file than the published one, by its checksum")


def _tell(progress: Progress | None, file: File, there: int, total: int | None) -> None:
    if progress is not None:
        progress(file.name, there, total)


def _sound(out: FileIO, file: File) -> bool:
    if file.inside is None:
        return file.digest in (None, digest_of_file(out, file.digest))
    out.seek(0)
    try:
        contents = inside(Contents(file.name, out.read(), False), file.inside)
    except DataError:
        return False
    return file.digest in (None, digest(contents.data, file.digest))


def _ask_for_room(file: File, target: Path, out: FileIO) -> None:
    """Refuses before the first byte where the disk is known to be too small."""
    missing = (file.size or 0) - os.fstat(out.fileno()).st_size
    free = shutil.disk_usage(target.parent).free
    if missing > free:
        raise DataError(_no_room(file, target, f"has room for {free:,} bytes only"))


def _no_room(file: File, target: Path, why: str) -> str:
    need = "more" if file.size is None else f"{file.size:,} bytes"
    return f"the disk of {target.parent} {why}, and {file.name} needs {need}; choose another folder"


# ---- the file on the disk


@contextmanager
def _locked(part: Path) -> Iterator[FileIO]:
    """The file on the way, for this process alone; it is removed again if it stays empty."""
    while True:
        with os.fdopen(append_to(part, mode=0o666), "a+b", buffering=0) as out:
            _lock(out)
            if not _still(part, out):
                continue  # the process before has moved or removed it
            try:
                yield out
            finally:
                if not out.closed and not os.fstat(out.fileno()).st_size and _still(part, out):
                    _unlink(part, out)
            return


def _lock(out: FileIO) -> None:
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415  # there is none on Windows

        fcntl.flock(out, fcntl.LOCK_EX)


def _still(part: Path, out: FileIO) -> bool:
    try:
        return os.path.samestat(os.fstat(out.fileno()), part.stat())
    except FileNotFoundError:
        return False


def _unlink(part: Path, out: FileIO) -> None:
    if os.name == "nt":  # removes no open file
        out.close()
    part.unlink(missing_ok=True)


def _put_in_place(out: FileIO, part: Path, target: Path) -> None:
    if os.name == "nt":  # moves no open file
        out.close()
    move(part, target)
