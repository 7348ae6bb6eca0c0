"""Small validators whose message names the argument, its value and the remedy."""

from __future__ import annotations

import math
from typing import SupportsFloat, SupportsIndex

from tacit.errors import InvalidArgument

UNITS = ("example", "user")
# Letters and marks that show nothing, though Unicode counts them as printable.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")


def positive(name: str, value: SupportsFloat) -> float:
    """Returns ``value`` as a float if it is a positive finite number.

    >>> positive("sigma", 4)
    4.0
    """
    number = _real(name, value)
    if not 0.0 < number < math.inf:
        raise InvalidArgument(f"{name} must be a positive finite number, got {value!r}")
    return number


def non_negative(name: str, value: SupportsFloat) -> float:
    """Returns ``value`` as a float if it is zero or a positive finite number."""
    number = _real(name, value)
    if not 0.0 <= number < math.inf:
        raise InvalidArgument(f"{name} must be a finite number, zero or above, got {value!r}")
    return number


def probability(name: str, value: SupportsFloat) -> float:
    """Returns ``value`` as a float if it lies in the closed interval from 0 to 1."""
    number = _real(name, value)
    if not 0.0 <= number <= 1.0:
        raise InvalidArgument(f"{name} must lie between 0 and 1, got {value!r}")
    return number


def open_probability(name: str, value: SupportsFloat) -> float:
    """Returns ``value`` as a float if it lies strictly between 0 and 1."""
    number = _real(name, value)
    if not 0.0 < number < 1.0:
        raise InvalidArgument(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return number


def whole(name: str, value: SupportsIndex | float, *, at_least: int = 1) -> int:
    """Returns ``value`` as an int if it is a whole number no smaller than ``at_least``.

    >>> whole("times", 1e4)
    10000
    """
    if isinstance(value, float):
        exact = int(value) if value.is_integer() else None
    else:
        exact = None if isinstance(value, bool) else _index(value)
    if exact is None or exact < at_least:
        raise InvalidArgument(f"{name} must be a whole number, {at_least} or more, got {value!r}")
    return exact


def unit_of_privacy(value: str) -> str:
    """Returns ``value`` if it is one of those whom a guarantee can protect.

    >>> unit_of_privacy("user")
    'user'
    """
    if value not in UNITS:
        raise InvalidArgument(f"unit must be one of {UNITS}, got {value!r}")
    return value


def printable(text: str) -> str:
    r"""``text`` in one line that can neither steer a terminal nor hide, whoever wrote it.

    >>> printable("a\x1b[2Jb\u202ec")
    'a?[2Jb?c'
    """
    return "".join(
        letter if letter.isprintable() and letter not in _INVISIBLE else "?" for letter in text
    )


def _index(value: SupportsIndex) -> int | None:
    try:
        return value.__index__()
    except (AttributeError, TypeError):
        return None


def _real(name: str, value: SupportsFloat) -> float:
    if isinstance(value, str | bytes | bool):
        raise InvalidArgument(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} must be a number, got {value!r}") from None
