"""Entries: the rows of the ledger, their canonical text, and the chain of hashes through them.

The hash of an entry is SHA-256 over all of its other columns, the hash of the entry before among
them. Each column is written with its length in front, so that no two different entries have the
same text to hash. Whoever knows the newest hash therefore knows the whole ledger.

An entry is dated to the day: finer times would follow the sizes of lots, and entries are handed on.
Their order is that of their numbers. With a key, each entry also carries a *seal*, an HMAC that
nobody can make who does not hold the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, final

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_HASH = ""  # what the first entry follows
LONGEST_BODY = 4_000_000  # characters
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
        """What ``body`` says.

        Raises:
            ValueError: if it is not the canonical text of a JSON object of finite numbers.
        """
        if len(self.body) > LONGEST_BODY:
            raise ValueError(f"the body has {len(self.body)} characters")
        found = json.loads(self.body, parse_constant=_no_number)
        if not isinstance(found, dict):
            raise ValueError("the body is no JSON object")
        if canonical(found) != self.body:
            raise ValueError("the body is not in its canonical form")
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


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


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


def today() -> str:
    """The day in UTC, as entries are dated."""
    return datetime.now(UTC).date().isoformat()


def entry_after(
    last: Head | None, draft: Draft, *, not_before: str = "", key: bytes | None = None
) -> Entry:
    """``draft`` in its place after ``last``, dated today, or on the day ``not_before`` if later."""
    unsealed = Entry(
        number=last.number + 1 if last else 1,
        budget=draft.budget,
        kind=draft.kind,
        at=max(today(), not_before),
        body=canonical(draft.body),
        previous=last.hash if last else NO_HASH,
        hash="",
    )
    if key is not None:
        body = {**draft.body, "seal": _seal(unsealed, key)}
        unsealed = replace(unsealed, body=canonical(body))
    return hashed(unsealed)


def hashed(entry: Entry) -> Entry:
    """``entry`` with the hash that belongs to it."""
    return replace(entry, hash=hash_of(entry))


def is_sealed_by(entry: Entry, key: bytes) -> bool:
    """Whether the seal of ``entry`` was made with ``key``.

    Guarantee: who does not hold the key cannot make an entry for which this is true, nor move a
    sealed one to another place in the chain (HMAC-SHA256 over every other column).
    """
    body = entry.data
    seal = body.pop("seal", None)
    unsealed = replace(entry, body=canonical(body))
    return isinstance(seal, str) and hmac.compare_digest(
        seal.encode("utf-8", "replace"), _seal(unsealed, key).encode()
    )


def _seal(unsealed: Entry, key: bytes) -> str:
    return hmac.digest(key, b"tacit ledger entry " + hash_of(unsealed).encode(), "sha256").hex()


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
