"""A recipe's settings: read from text or JSON by the types that their fields are annotated with."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LARGEST = 1e30  # what single precision can still square or scale a little

_TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
_TRUTHS |= {"false": False, "no": False, "off": False, "0": False}


def names(settings: Any) -> tuple[str, ...]:
    """The names of all settings."""
    if not is_dataclass(settings):
        raise InvalidArgument(f"settings must be a dataclass, got {settings!r}")
    return tuple(field.name for field in fields(settings))


def as_dict(settings: Any) -> dict[str, Any]:
    """The settings in JSON's types."""
    return {name: getattr(settings, name) for name in names(settings)}


def changed(settings: Any, new: Mapping[str, Any]) -> Any:
    """``settings`` with these instead; each is of its field's type, or a text that says one.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Own:
    ...     lot: int = 100
    ...     head: Literal["linear", "cnn"] = "linear"
    >>> changed(Own(), {"lot": "5e2", "head": "cnn"})
    Own(lot=500, head='cnn')
    """
    kinds = get_type_hints(type(settings))
    check_names(new, names(settings))
    return replace(settings, **{name: _read(name, kinds[name], new[name]) for name in new})


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses names that are not settings, and lists those there are."""
    there = tuple(known)
    for name in given:
        if name not in there:
            close = get_close_matches(name, there, 1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise InvalidArgument(
                f"there is no setting {name!r}; {meant}there are {', '.join(there)}"
            )


def _read(name: str, kind: Any, value: Any) -> Any:
    """``value`` as a ``kind``."""
    if get_origin(kind) in (UnionType, Union):
        return _read_optional(name, kind, value)
    if get_origin(kind) is Literal:
        return _read_choice(name, get_args(kind), value)
    reader = {bool: _truth, int: _whole, float: _real, str: _text}.get(kind)
    if reader is None:
        raise InvalidArgument(f"{name} has a type that cannot be read: {kind!r}")
    return reader(name, value)


def _read_optional(name: str, kind: Any, value: Any) -> Any:
    nothing = value is None or (isinstance(value, str) and value.lower() == "none")
    if nothing and NoneType in get_args(kind):
        return None
    (kept,) = (one for one in get_args(kind) if one is not NoneType)
    return _read(name, kept, value)


def _read_choice(name: str, choices: tuple[Any, ...], value: Any) -> Any:
    for one in choices:
        if value == one or str(value) == str(one):
            return one
    raise InvalidArgument(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def _truth(name: str, value: Any) -> bool:
    found = value if isinstance(value, bool) else _TRUTHS.get(str(value).lower())
    if found is None:
        raise InvalidArgument(f"{name} must be true or false, got {value!r}")
    return found


def _whole(name: str, value: Any) -> int:
    number = _number(value)
    if number is None or not number.is_integer():
        raise InvalidArgument(f"{name} must be a whole number, got {value!r}")
    return int(number)


def _real(name: str, value: Any) -> float:
    number = _number(value)
    if number is None or not abs(number) <= _LARGEST:
        raise InvalidArgument(f"{name} must be a number from -1e30 to 1e30, got {value!r}")
    return number


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a text, got {value!r}")
    return value
