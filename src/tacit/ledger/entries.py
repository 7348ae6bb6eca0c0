"""Entries: the rows of the ledger, their canonical text, and the chain of hashes through them.

The hash of an entry is SHA-256 over all of its other columns, the hash of the entry before among
them. Each column is written with its length in front, so that no two different entries have the
same text to hash. Whoever knows the newest hash therefore knows the whole ledger.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, final

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_HASH = ""  # what the first entry follows
_FORMAT = "tacit ledger entry 1"


@final
@dataclass(frozen=True, slots=True)
class Head:
    """The place of one entry in a ledger: its number, and a hash over all up to it.

    >>> Head.parse("12:" + "ab" * 32).number
    12
    """

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Reads what ``str`` wrote."""
        found = re.fullmatch(r"([1-9][0-9]{0,17}):([0-9a-f]{64})", str(text))
        if found is None:
            raise InvalidArgument(f"head must look like '12:<64 hex digits>', got {text!r}")
        return cls(int(found[1]), found[2])


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """What is to become an entry: everything but its place."""

    budget: str
    kind: str
    body: Mapping[str, Any]


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """One row: ``kind`` says what happened to ``budget`` at the time ``at``, ``body`` the details.

    ``budget`` is empty where the entry concerns the whole ledger. ``body`` is canonical JSON.
    """

    number: int
    budget: str
    kind: str
    at: str
    body: str
    previous: str
    hash: str

    @property
    def data(self) -> dict[str, Any]:
        """What ``body`` says."""
        found = json.loads(self.body)
        if not isinstance(found, dict):
            raise ValueError("the body is no JSON object")
        return found

    @property
    def head(self) -> Head:
        """The place of this entry."""
        return Head(self.number, self.hash)


def canonical(value: object) -> str:
    """``value`` as JSON with one spelling only: sorted keys, no spaces, numbers to the last bit.

    >>> canonical({"b": 0.1, "a": [1, None]})
    '{"a":[1,null],"b":0.1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def hash_of(entry: Entry) -> str:
    """SHA-256 over every column but the hash itself.

    Guarantee: the text that is hashed determines every column, so that two entries with the same
    hash are the same entry, or a collision of SHA-256 has been found.
    """
    columns = (
        _FORMAT,
        str(entry.number),
        entry.budget,
        entry.kind,
        entry.at,
        entry.body,
        entry.previous,
    )
    digest = hashlib.sha256()
    for column in columns:
        # A damaged row may hold bytes that are no UTF-8; the store reads them as surrogates.
        raw = column.encode("utf-8", "surrogateescape")
        digest.update(b"%d:" % len(raw) + raw)
    return digest.hexdigest()


def entry_after(last: Head | None, draft: Draft) -> Entry:
    """``draft`` in its place after ``last``, dated now."""
    unsealed = Entry(
        number=last.number + 1 if last else 1,
        budget=draft.budget,
        kind=draft.kind,
        at=datetime.now(UTC).isoformat(timespec="microseconds"),
        body=canonical(draft.body),
        previous=last.hash if last else NO_HASH,
        hash="",
    )
    return sealed(unsealed)


def sealed(entry: Entry) -> Entry:
    """``entry`` with the hash that belongs to it."""
    return Entry(
        entry.number, entry.budget, entry.kind, entry.at, entry.body, entry.previous, hash_of(entry)
    )


def break_between(last: Head | None, entry: Entry) -> str | None:
    """What is wrong with ``entry`` coming after ``last``, or None if it does."""
    expected = last.number + 1 if last else 1
    if entry.number > expected:
        missing = f"entry {expected} is" if entry.number == expected + 1 else None
        return f"{missing or f'entries {expected} to {entry.number - 1} are'} missing"
    if entry.number < expected:
        return f"entry {entry.number} stands where entry {expected} belongs"
    if entry.hash != hash_of(entry):
        return f"entry {entry.number} was changed: its hash does not belong to its contents"
    if entry.previous != (last.hash if last else NO_HASH):
        return f"entry {entry.number} does not follow the entry before it: one of them was replaced"
    return None
