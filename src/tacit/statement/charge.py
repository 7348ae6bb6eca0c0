"""Where a release is charged: enough for a reader to look it up in the ledger."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

from tacit._validation import shown, text
from tacit.errors import InvalidArgument
from tacit.statement.checking import count

_HEAD: Final = re.compile(r"[1-9][0-9]{0,14}:[0-9a-f]{64}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The entry of a ledger that a release is charged in.

    Args:
        ledger: The random name that the ledger gave itself.
        location: Where its database is, without a password.
        budget: The budget's name.
        reservation: The number of the reservation, or of the entry that charged it.
        head: The newest entry when the statement was made, which vouches for all before it.
    """

    ledger: str
    location: str
    budget: str
    reservation: int | None
    head: str

    def __post_init__(self) -> None:
        for name in ("ledger", "location", "budget"):
            text(f"charge's {name}", getattr(self, name))
        if self.reservation is not None:
            count("charge's reservation", self.reservation, at_least=1)
        if not isinstance(self.head, str) or not _HEAD.fullmatch(self.head):
            raise InvalidArgument(
                f"charge's head must be an entry's number and hash, got {shown(self.head)}"
            )


def read(value: object) -> Charge | None:
    """The charge from itself, or from the dictionary that JSON holds; None if there is none."""
    if value is None or isinstance(value, Charge):
        return value
    if isinstance(value, dict) and set(value) == set(Charge.__slots__):
        return Charge(**value)
    raise InvalidArgument(f"charge must be a Charge or None, got {shown(value)}")
