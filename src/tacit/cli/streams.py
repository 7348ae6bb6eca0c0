"""Standard output and error, also where their encoding has no ε."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import unicodedata
from io import TextIOWrapper
from typing import TextIO

from tacit._validation import printable

_SPELLED = {"ε": "epsilon", "δ": "delta", "σ": "sigma", "μ": "mu", "×": "x", "…": "..."}
_SPELLED |= {"≤": "<=", "≈": "~", "–": "-", "─": "-", "█": "#", "•": "*"}
_HANDLER = "tacit-spelled"


_STANDARD_ERROR = 2
LONGEST = 4000  # letters of a complaint


def say(text: str) -> None:
    """Writes to standard output, in its own encoding: ``click.echo`` takes ASCII for UTF-8.

    Guarantee:
        Nothing in ``text`` steers the terminal, whoever wrote it: lines are kept, and every other
        control character becomes a question mark. Colours come from ``page.say_page`` only.
    """
    write("\n".join(map(printable, text.split("\n"))))


def write(rendered: str) -> None:
    """Writes what ``page`` made, colours and all, to standard output."""
    sys.stdout.write(f"{rendered}\n")


def complain(line: str) -> None:
    """Writes one line to standard error, which cannot steer the terminal either."""
    shown = printable(line)
    if len(shown) > LONGEST:
        shown = f"{shown[:LONGEST]}…"
    with contextlib.suppress(OSError):  # there is nobody else to tell
        sys.stderr.write(f"tacit: {shown}\n")


def be_there() -> None:
    """Puts nothing in the place of streams that were closed (``>&-``), as of a daemon.

    Else the next files that are opened would have their numbers, and get what is written to them.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (handle := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        pass
    os.close(handle)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for good


def be_encodable(stream: TextIO) -> None:
    """Lets a stream whose encoding lacks ε write ``epsilon`` instead of failing."""
    if isinstance(stream, TextIOWrapper):
        codecs.register_error(_HANDLER, _spell)
        stream.reconfigure(errors=_HANDLER)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_SPELLED.get(letter) or _bare(letter) for letter in missing), error.end


def _bare(letter: str) -> str:
    """The letter without its accents: e for è. A raised digit stays unknown: 10⁸ is not 108."""
    parts = unicodedata.normalize("NFKD", letter)
    return "".join(one for one in parts if one.isascii() and one.isalpha()) or "?"
