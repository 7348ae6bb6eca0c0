"""What a run prints: the numbers in it, by the words that stand before them."""

from __future__ import annotations

import logging
import re
import sys
import threading
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO, cast, final

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = re.compile(
    r"([^\W\d]\w*)\b[\"']?\s*[=:]?\s*([-+]?\b(?:nan\b|inf\b|\d+\.?\d*(?:e[-+]?\d+)?))", re.I
)


@final
class Tee:
    """A stream that notes what its own thread writes to it, and passes everything on."""

    def __init__(self, stream: TextIO, heard: list[str]) -> None:
        self._stream, self._heard, self._thread = stream, heard, threading.get_ident()

    def write(self, text: str) -> int:
        """Writes and notes."""
        if threading.get_ident() == self._thread:
            self._heard.append(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@final
class Ear(logging.Handler):
    """Notes what is logged, at whatever level."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.NOTSET)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        """Notes a message."""
        self._heard.append(f"{record.getMessage()}\n")


@contextmanager
def listening(*, logs: bool) -> Iterator[list[str]]:
    """All that is printed meanwhile, to either stream, or logged; piece by piece.

    Without ``logs`` for runs with a ledger, whose data base would log every statement.
    """
    heard: list[str] = []
    out, err = (cast("TextIO", Tee(stream, heard)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err), _logged(heard) if logs else nullcontext():
        yield heard


@contextmanager
def _logged(heard: list[str]) -> Iterator[None]:
    """Also what would be logged if anybody asked for more; others' handlers get no more of it."""
    root, ear = logging.getLogger(), Ear(heard)
    level, others = root.level, list(root.handlers)

    def as_before(record: logging.LogRecord) -> bool:
        return record.levelno >= level

    for handler in others:
        handler.addFilter(as_before)
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(ear)
        for handler in others:
            handler.removeFilter(as_before)


def numbers_in(text: str) -> dict[str, float]:
    """The numbers of a text, by the word before each and how often it came already.

    >>> numbers_in("step 1: loss=0.25, step 2: loss=0.5 (3.1 it/s)")
    {'step': 1.0, 'loss': 0.25, 'step 2': 2.0, 'loss 2': 0.5}
    """
    found: dict[str, float] = {}
    times: dict[str, int] = {}
    for word, number in _NUMBER.findall(text):
        times[word] = times.get(word, 0) + 1
        found[word if times[word] == 1 else f"{word} {times[word]}"] = float(number)
    return found
