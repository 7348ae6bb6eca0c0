"""A statement's fields: each of its type, and none larger than it can be; where it is charged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tacit._files import parse_json
from tacit._validation import shown, text
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.statement.claim import Statement


LARGEST_JSON: Final = 4 << 20  # letters; a real statement has thousands
MOST_STEPS: Final = 10**15
MOST_ITEMS: Final = 1000
MOST_NODES: Final = 10_000  # dictionaries, lists and numbers of one event or plan
DEEPEST: Final = 40
MOST_SENSITIVITY: Final = 10**6  # of whole numbers: an accountant's tables are as long
FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
SHA_256: Final = re.compile(r"[0-9a-f]{64}")
_TEXTS = ("sampling", "noise", "tacit_version")
_OPTIONAL_TEXTS = (
    "torch_version",
    "ledger",
    "stopped_early",
    "threat_model",
    "tuning",
    "randomness",
)


def parsed(written: object) -> Any:
    """The JSON that ``to_json`` wrote, within bounds.

    >>> parsed('{"epsilon": 1, "epsilon": 2}')
    Traceback (most recent call last):
    tacit.errors.InvalidArgument: text must be JSON of a statement: the key 'epsilon' is there twice
    """
    if not isinstance(written, str):
        raise InvalidArgument(f"text must be JSON of a statement, got {shown(written)}")
    try:
        return parse_json(written, most=LARGEST_JSON)
    except ValueError as error:
        raise InvalidArgument(f"text must be JSON of a statement: {error}") from None


def own(name: str, value: object) -> dict[str, Any]:
    """A copy in JSON's types, so that nobody else can change it; not larger than can be checked."""
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        copy = None
    if not isinstance(copy, dict):
        raise InvalidArgument(f"{name} must be a dictionary in JSON's types, got {shown(value)}")
    if _nodes(name, copy, 0) > MOST_NODES:
        raise InvalidArgument(f"{name} must have at most {MOST_NODES:,} parts: it has more")
    return copy


def _nodes(name: str, value: object, depth: int) -> int:
    """How many parts there are; their texts and numbers are bounded on the way."""
    if depth > DEEPEST:
        raise InvalidArgument(f"{name} must be at most {DEEPEST} levels deep: it is deeper")
    if isinstance(value, Mapping):
        largest = value.get("sensitivity")
        if isinstance(largest, int) and largest > MOST_SENSITIVITY:
            raise InvalidArgument(
                f"sensitivity must be at most {MOST_SENSITIVITY:,} in a statement, got "
                f"{shown(largest)}; scale the release down"
            )
        return 1 + sum(_nodes(text(name, key), one, depth + 1) for key, one in value.items())
    if isinstance(value, list):
        return 1 + sum(_nodes(name, one, depth + 1) for one in value)
    if isinstance(value, str):
        text(name, value)
    elif isinstance(value, int | float) and not abs(value) <= 1e300:
        raise InvalidArgument(f"{name} must be a number up to 1e300, got {shown(value)}")
    return 1


def texts(name: str, values: object) -> tuple[str, ...]:
    """``values`` as a tuple, if all of them are texts."""
    given = tuple(values) if isinstance(values, list | tuple) else (None,)
    if len(given) > MOST_ITEMS or not all(isinstance(one, str) for one in given):
        raise InvalidArgument(
            f"{name} must be a tuple of texts, {MOST_ITEMS} at most, got {shown(values)}"
        )
    return tuple(text(name, one) for one in given)


def versions_of(value: object) -> dict[str, str]:
    """A copy of a dictionary of texts."""
    if (
        not isinstance(value, dict)
        or len(value) > MOST_ITEMS
        or not all(isinstance(one, str) for pair in value.items() for one in pair)
    ):
        raise InvalidArgument(f"versions must map names to versions, got {shown(value)}")
    return {text("versions", name): text("versions", one) for name, one in value.items()}


def files_of(value: object) -> dict[str, str]:
    """A copy of a dictionary from names of files, without folders, to their SHA-256."""
    if (
        not isinstance(value, dict)
        or len(value) > MOST_ITEMS
        or not all(isinstance(one, str) for pair in value.items() for one in pair)
        or not all(FILE_NAME.fullmatch(one) for one in value)
        or not all(SHA_256.fullmatch(one) for one in value.values())
    ):
        raise InvalidArgument(
            "files must map plain file names to SHA-256 in 64 small hexadecimal digits, "
            f"got {shown(value)}"
        )
    return dict(value)


def check_texts(statement: Statement) -> None:
    """Refuses fields that should be words and are not."""
    for name in _TEXTS:
        if not isinstance(getattr(statement, name), str):
            raise InvalidArgument(f"{name} must be a text, got {shown(getattr(statement, name))}")
        text(name, getattr(statement, name))
    for name in _OPTIONAL_TEXTS:
        value = getattr(statement, name)
        if not isinstance(value, str | None):
            raise InvalidArgument(f"{name} must be a text or None, got {shown(value)}")
        if value is not None:
            text(name, value)
    digest = statement.configuration
    if digest is not None and not (isinstance(digest, str) and SHA_256.fullmatch(digest)):
        raise InvalidArgument(
            f"configuration must be a SHA-256 in 64 small hexadecimal digits, got {shown(digest)}"
        )


def count(name: str, value: object, *, at_least: int = 0, at_most: int = MOST_STEPS) -> int:
    """``value`` if it is a whole number in this range: an ``int``, and nothing that passes for one.

    >>> count("steps_lost", 3)
    3
    """
    if type(value) is not int or not at_least <= value <= at_most:
        raise InvalidArgument(
            f"{name} must be a whole number from {at_least} to {at_most}, got {shown(value)}"
        )
    return value


def check_steps(statement: Statement) -> None:
    """Refuses numbers of steps that cannot be, and a run cut short without its rule."""
    planned, taken = statement.steps_planned, statement.steps_taken
    early = statement.stopped_early
    if (planned is None) != (taken is None):
        raise InvalidArgument(
            f"steps_planned and steps_taken go together, got {shown(planned)} and {shown(taken)}"
        )
    lost = count("steps_lost", statement.steps_lost)
    if planned is None or taken is None:
        if lost or early:
            raise InvalidArgument(
                "steps_lost and stopped_early are for a run that has a plan with steps, got "
                f"{lost} and {shown(early)}"
            )
        return
    count("steps_planned", planned, at_least=1)
    if count("steps_taken", taken) > planned:
        raise InvalidArgument(f"steps_taken must be at most {planned}, got {taken!r}")
    if taken + lost > planned:
        raise InvalidArgument(
            f"steps_lost must be at most the {planned - taken} steps that were not taken, "
            f"got {lost}"
        )
    if (taken < planned) != bool(early):
        raise InvalidArgument(
            "stopped_early must say which rule applies if fewer steps were taken than planned, and "
            f"only then, got {shown(early)} after {taken!r} of {planned!r} steps"
        )


# ---- where a release is charged


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


def charge_of(value: object) -> Charge | None:
    """The charge from itself, or from the dictionary that JSON holds; None if there is none."""
    if value is None or isinstance(value, Charge):
        return value
    if isinstance(value, dict) and set(value) == set(Charge.__slots__):
        return Charge(**value)
    raise InvalidArgument(f"charge must be a Charge or None, got {shown(value)}")
