"""One request over HTTP for the rest of a file, and what goes wrong with it, in words."""

from __future__ import annotations

import http.client
import os
import re
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final, final

from tacit.data.contents import LARGEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

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
        """Begins anew."""
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
