"""Events as JSON, and back: the same value, to the last bit of every number.

A black box that names no adjacency is written without one, as all were before they could name one:
it is then read under whatever adjacency is asked about, and inside of a sampler as the worst that
holds under that one, so that no older record promises more than it did.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_args

from tacit.accounting.events import Composed, Event, Runs, is_left_out
from tacit.errors import InvalidArgument

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_RUNS: dict[str, type[Runs]] = {kind.__name__: kind for kind in get_args(Runs)}


def to_json(event: Event) -> str:
    """Writes ``event`` as one line of JSON.

    >>> from tacit.accounting import PureDp, Repeated
    >>> to_json(Repeated(PureDp(0.5), 10))
    '{"kind": "Repeated", "event": {"kind": "PureDp", "epsilon": 0.5}, "times": 10}'
    """
    return json.dumps(as_dict(event), allow_nan=False)


def from_json(text: str) -> Event:
    """Reads what ``to_json`` wrote.

    >>> from_json('{"kind": "PureDp", "epsilon": 0.5}')
    PureDp(epsilon=0.5)
    """
    try:
        return from_dict(json.loads(text))
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"text must be JSON as written by to_json: {error}") from None


def as_dict(event: Event | Runs) -> dict[str, Any]:
    """``event`` as nested dictionaries, lists and numbers."""
    plain: dict[str, Any] = {"kind": type(event).__name__}
    for field in fields(event):
        value = getattr(event, field.name)
        if not is_left_out(field, value):
            plain[field.name] = _plain_value(value)
    return plain


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    return as_dict(value) if type(value).__name__ in _KINDS | _RUNS else value


def from_dict(plain: object) -> Event:
    """The event that ``as_dict`` took apart."""
    if not isinstance(plain, dict) or plain.get("kind") not in _KINDS:
        raise InvalidArgument(f"an event needs a kind among {sorted(_KINDS)}, got {plain!r}")
    kind = _KINDS[plain["kind"]]
    given = _fields_of(kind, plain)
    if kind is Composed:
        return Composed(*given["events"])
    return _construct(kind, given)


def _fields_of(kind: type[Event] | type[Runs], plain: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    optional = {field.name for field in fields(kind) if is_left_out(field, field.default)}
    given = {name: _value(value) for name, value in plain.items() if name != "kind"}
    if not names - optional <= set(given) <= names:
        raise InvalidArgument(
            f"{kind.__name__} needs the fields {sorted(names)}, got {sorted(given)}"
        )
    return given


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    if isinstance(value, dict) and value.get("kind") in _RUNS:
        kind = _RUNS[value["kind"]]
        return kind(**_fields_of(kind, value))
    return from_dict(value) if isinstance(value, dict) else value


def _construct(kind: type[Event], given: dict[str, Any]) -> Event:
    if given.get("probability") is not None:
        # Randomised response stores both of its forms; the second follows from epsilon.
        del given["probability"]
    return kind(**given)
