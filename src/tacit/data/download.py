"""Downloads a file: resumed where it broke off, compared with its checksum, then moved into place.

Guarantee: under its own name a file is whole and, where a checksum is known, the published one.
What is on the way is called ``NAME.part``; a crash leaves at most that, and the next attempt goes
on from there. Two processes that want the same file take turns (not on Windows).
"""

from __future__ import annotations

import errno
import http.client
import os
import re
import shutil
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from tacit._files import append_to, move
from tacit.data.contents import LARGEST, Contents, digest, digest_of_file, inside
from tacit.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

    from tacit.data.description import File


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


# ---- one request over HTTP for the rest of a file, and what goes wrong with it


CHUNK: Final = 1 << 18
PATIENCE: Final = 30.0  # seconds without a byte
BEYOND_ITS_END: Final = 416


class Failed(Exception):
    """A place did not give the file; the message says why. What has arrived is kept."""


@final
class Received:
    """What has arrived of a file, at the end of which more is written."""

    def __init__(
        self, out: FileIO, size: int | None, tell: Callable[[int, int | None], None]
    ) -> None:
        self.size = size
        self._out = out
        self._tell = tell

    def length(self) -> int:
        """The bytes that are there."""
        return os.fstat(self._out.fileno()).st_size

    def discard(self) -> None:
        """Begins again, with an empty file."""
        self._out.truncate(0)

    def add(self, chunk: bytes, total: int | None) -> None:
        """Writes the chunk out, past any buffer: a full disk is noticed here."""
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._out.write(rest) :]
        self._tell(self.length(), total)


def transfer(url: str, received: Received) -> None:
    """Asks for what is missing of a file, or for all of it if the server cannot send a part.

    Raises:
        Failed: With the reason; also if fewer or more bytes came than should have.
        OSError: What came could not be written.
    """
    start = received.length()
    answer = _asked(url, start)
    if answer is None:  # there is nothing from there on: what has arrived is something else
        received.discard()
        return transfer(url, received)
    with answer:
        if answer.status != http.client.PARTIAL_CONTENT or _begins(answer) != start:
            received.discard()
        total = _total(answer, received.length())
        if total is not None and received.size not in (None, total):
            raise Failed(f"it has {total:,} bytes where {received.size:,} are published")
        _copy(answer, received, total)
    return None


def _copy(answer: http.client.HTTPResponse, received: Received, total: int | None) -> None:
    most = total or received.size or LARGEST
    while chunk := _read(answer):
        if received.length() + len(chunk) > most:
            received.discard()
            raise Failed(f"it sends more than {most:,} bytes")
        received.add(chunk, total or received.size)
    there, wanted = received.length(), total or received.size
    if wanted is not None and there < wanted:
        raise Failed(f"it broke off after {there:,} of {wanted:,} bytes")


def _asked(url: str, start: int) -> http.client.HTTPResponse | None:
    headers = {"User-Agent": "tacit"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=PATIENCE
        )
    except urllib.error.HTTPError as error:
        error.close()
        if start and error.code == BEYOND_ITS_END:
            return None
        raise Failed(f"HTTP {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failed(_why(error)) from None
    return answer


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(CHUNK)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failed(_why(error)) from None


def _begins(answer: http.client.HTTPResponse) -> int | None:
    """Where the part begins that a server sends."""
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _total(answer: http.client.HTTPResponse, start: int) -> int | None:
    """The bytes of the whole file, by what the server says of this part."""
    length = answer.headers.get("Content-Length", "")
    return start + int(length) if length.isdecimal() else None


def _why(error: BaseException) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    match cause:
        case socket.gaierror():
            return "no network, or no such server"
        case TimeoutError():
            return f"no answer for {PATIENCE:g} seconds"
        case ConnectionRefusedError():
            return "it refuses connections"
        case OSError() if cause.strerror:
            return f"the connection failed: {cause.strerror}"
        case _:
            return f"the connection failed: {' '.join(str(cause).split())[:100]}"
