"""One look at the private data beside the training itself, and what it released."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from tacit._validation import shown, text
from tacit.errors import InvalidArgument
from tacit.statement.fields import MOST_ITEMS, own

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True)
class Access:
    """What was done to the data before the training, and the event that it was charged as.

    Args:
        what: What was done, in words.
        event: What that released, as ``tacit.accounting.to_json`` writes it; None if it released
            nothing about the data, because it is the same whatever the data are.

    >>> Access("inputs divided by 255").charged
    False
    """

    what: str
    event: dict[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.what, str) or not self.what.strip():
            raise InvalidArgument(f"preprocessing must say what was done, got {shown(self.what)}")
        text("preprocessing", self.what)
        if self.event is not None:
            object.__setattr__(self, "event", own("preprocessing's event", self.event))

    @property
    def charged(self) -> bool:
        """Whether it is part of the statement's event."""
        return self.event is not None


def accesses(values: object) -> tuple[Access, ...]:
    """Accesses from themselves, or from the dictionaries that JSON holds."""
    given = values if isinstance(values, list | tuple) and len(values) <= MOST_ITEMS else (None,)
    return tuple(_access(one) for one in given)


def _access(value: object) -> Access:
    if isinstance(value, Access):
        return value
    if isinstance(value, dict) and set(value) == {"what", "event"}:
        return Access(**value)
    raise InvalidArgument(f"preprocessing must be a tuple of Access, got {shown(value)}")


def check_charged(event: Mapping[str, Any], preprocessing: tuple[Access, ...]) -> None:
    """Refuses an event that does not begin with what preprocessing was charged as."""
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415 - only where one is

    charged = [from_dict(one.event) for one in preprocessing if one.charged]
    if not charged:
        return
    whole = event.get("events") if event.get("kind") == "Composed" else None
    first = [from_dict(one) for one in (whole or ())[: len(charged)]]
    if first != charged:
        raise InvalidArgument(
            "event must begin with the events of preprocessing, in their order, so that they are "
            f"charged, got {shown(event)}; tacit.statement.extended does it"
        )


def without_preprocessing(
    event: Mapping[str, Any], preprocessing: tuple[Access, ...]
) -> dict[str, Any]:
    """What is left of ``event`` beside preprocessing: the training itself."""
    charged = sum(one.charged for one in preprocessing)
    if not charged:
        return dict(event)
    rest = event["events"][charged:]
    return dict(rest[0]) if len(rest) == 1 else {"kind": "Composed", "events": rest}
