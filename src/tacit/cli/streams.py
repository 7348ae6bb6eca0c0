"""Standard output and error, also where their encoding has no ε."""

from __future__ import annotations

import codecs
import sys
from io import TextIOWrapper
from typing import TextIO

_SPELLED = {"ε": "epsilon", "δ": "delta", "σ": "sigma", "é": "e"}
_SPELLED |= {"≤": "<=", "≈": "~", "–": "-", "─": "-", "█": "#", "•": "*"}
_HANDLER = "tacit-spelled"


def say(text: str) -> None:
    """Writes to standard output, in its own encoding: ``click.echo`` takes ASCII for UTF-8."""
    sys.stdout.write(f"{text}\n")


def complain(line: str) -> None:
    """Writes one line to standard error."""
    sys.stderr.write(f"tacit: {line}\n")


def be_encodable(stream: TextIO) -> None:
    """Lets a stream whose encoding lacks ε write ``epsilon`` instead of failing."""
    if isinstance(stream, TextIOWrapper):
        codecs.register_error(_HANDLER, _spell)
        stream.reconfigure(errors=_HANDLER)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_SPELLED.get(letter, "?") for letter in missing), error.end
