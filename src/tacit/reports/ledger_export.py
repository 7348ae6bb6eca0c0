"""A ledger as a file of JSON lines, from which anyone can check the chain without the database."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from tacit._files import PRIVATE, drafted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tacit.ledger.entries import Entry


def line_of(entry: Entry) -> str:
    """One entry as one line of JSON: all of its columns, ``body`` as the text that is hashed."""
    return json.dumps(asdict(entry), allow_nan=False)


def write(entries: Iterable[Entry], path: Path) -> None:
    """Writes ``entries`` to ``path``, one a line.

    Guarantee:
        The file ends up with all of the entries, on the disk, or as it was before, also after a
        crash of the machine. Only its owner can read it: handing it on is a decision.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with drafted(path, mode=PRIVATE) as draft, draft.open("w", encoding="ascii") as file:
        file.writelines(f"{line_of(entry)}\n" for entry in entries)
