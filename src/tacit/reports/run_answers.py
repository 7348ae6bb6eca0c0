"""The labels that a transfer released, read as something that anybody may have written."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tacit.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "answers.csv"
_HEAD: Final = "query,label"


def read(path: Path) -> tuple[tuple[int, int], ...]:
    """Pairs of a public image's number and its released label.

    Raises:
        CheckpointError: with one line that names the file.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not lines or lines[0] != _HEAD:
        raise CheckpointError(f"{path} is refused: its first line must be {_HEAD!r}")
    pairs = tuple(_pair(path, number, line) for number, line in enumerate(lines[1:], 2))
    if any(one[0] >= two[0] for one, two in pairwise(pairs)):
        raise CheckpointError(f"{path} is refused: a query is there twice, or out of order")
    return pairs


def _pair(path: Path, number: int, line: str) -> tuple[int, int]:
    parts = line.split(",")
    if len(parts) != 2 or not all(one.isdigit() and len(one) < 10 for one in parts):
        raise CheckpointError(f"{path}, line {number}, is refused: it must be two whole numbers")
    return int(parts[0]), int(parts[1])
