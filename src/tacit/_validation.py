"""Small validators whose message names the argument, its value and the remedy."""

from __future__ import annotations

import math
import reprlib
import unicodedata
from typing import SupportsFloat, SupportsIndex

from tacit.errors import InvalidArgument

UNITS = ("example", "user")
LONGEST_TEXT = 10_000
# Letters and marks that show nothing, though Unicode counts them as printable.
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U0001d159"
) | {chr(one) for span in (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)) for one in span}
# Control characters, halves of a letter, line separators; and what turns text around.
_STEERING = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def positive(name: str, value: SupportsFloat, *, typed: str | None = None) -> float:
    """Returns ``value`` as a float if it is a positive finite number.

    An error shows ``typed``, the text that the number was read from, if there is one; so do those
    of the functions below.

    >>> positive("sigma", 4)
    4.0
    """
    number = _real(name, value)
    if not 0.0 < number < math.inf:
        raise InvalidArgument(
            f"{name} must be a positive finite number, got {_given(value, typed)}"
        )
    return number


def clip_in_reach(name: str, value: SupportsFloat) -> float:
    """Gradients are in single precision: norms far below or above these would be 0 or infinite."""
    clip = positive(name, value)
    if not 1e-12 <= clip <= 1e12:
        raise InvalidArgument(
            f"{name} must lie between 1e-12 and 1e12, got {clip!r}; scale the loss instead"
        )
    return clip


def non_negative(name: str, value: SupportsFloat, *, typed: str | None = None) -> float:
    """Returns ``value`` as a float if it is zero or a positive finite number."""
    number = _real(name, value)
    if not 0.0 <= number < math.inf:
        raise InvalidArgument(
            f"{name} must be a finite number, zero or above, got {_given(value, typed)}"
        )
    return number


def probability(name: str, value: SupportsFloat, *, typed: str | None = None) -> float:
    """Returns ``value`` as a float if it lies in the closed interval from 0 to 1."""
    number = _real(name, value)
    if not 0.0 <= number <= 1.0:
        raise InvalidArgument(f"{name} must lie between 0 and 1, got {_given(value, typed)}")
    return number


def open_probability(name: str, value: SupportsFloat, *, typed: str | None = None) -> float:
    """Returns ``value`` as a float if it lies strictly between 0 and 1."""
    number = _real(name, value)
    if not 0.0 < number < 1.0:
        raise InvalidArgument(
            f"{name} must lie strictly between 0 and 1, got {_given(value, typed)}"
        )
    return number


def whole(
    name: str, value: SupportsIndex | float, *, at_least: int = 1, typed: str | None = None
) -> int:
    """Returns ``value`` as an int if it is a whole number no smaller than ``at_least``.

    >>> whole("times", 1e4)
    10000
    """
    if isinstance(value, float):
        exact = int(value) if value.is_integer() else None
    else:
        exact = None if isinstance(value, bool) else _index(value)
    if exact is None or exact < at_least:
        raise InvalidArgument(
            f"{name} must be a whole number, {at_least} or more, got {_given(value, typed)}"
        )
    return exact


def flag(name: str, value: object) -> bool:
    """Returns ``value`` if it is True or False, and not merely truthy.

    >>> flag("monotone", True)
    True
    """
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, got {shown(value)}")
    return value


def check_delta(delta: float, records: int, unit: str) -> float:
    """Refuses a δ under which whole records may be published.

    Publishing each record with chance δ is (0, δ)-private: with δ ≥ 1/n that is a record or more on
    average (Dwork and Roth 2014, section 2.3).

    >>> check_delta(1e-5, 60_000, "example")
    1e-05
    """
    number = open_probability("delta", delta)
    if number * records >= 1.0:
        raise InvalidArgument(
            f"delta must be below 1/{records} for {records} {unit}s, got {delta!r}: publishing one "
            f"of them outright would keep a δ that large; take {0.1 / records:.1g} or less"
        )
    return number


def unit_of_privacy(value: str) -> str:
    """Returns ``value`` if it is one of those whom a guarantee can protect.

    >>> unit_of_privacy("user")
    'user'
    """
    if value not in UNITS:
        raise InvalidArgument(f"unit must be one of {', '.join(UNITS)}, got {shown(value)}")
    return value


def printable(text: str) -> str:
    r"""``text`` in one line that can neither steer a terminal nor hide, whoever wrote it.

    >>> printable("a\x1b[2Jb\u202ec")
    'a?[2Jb?c'
    """
    return "".join(
        letter if letter.isprintable() and letter not in _INVISIBLE else "?" for letter in text
    )


def one_line(text: str) -> str:
    r"""``printable``, with line ends and other gaps as single spaces.

    >>> one_line("first\n  second")
    'first second'
    """
    return printable(" ".join(text.split()))


def text(name: str, value: object, *, longest: int = LONGEST_TEXT) -> str:
    """Returns ``value`` if it is a text that cannot steer a terminal, and is not too long.

    >>> text("noise", "fast")
    'fast'
    """
    if not isinstance(value, str) or len(value) > longest:
        raise InvalidArgument(
            f"{name} must be a text of at most {longest:,} letters, got {shown(value)}"
        )
    if any(unicodedata.category(one) in _STEERING or one in _BIDI for one in value):
        raise InvalidArgument(
            f"{name} must be one line without control characters, got {shown(value)}"
        )
    return value


def shown(value: object) -> str:
    """A value for a message: not longer than a line, whatever it is.

    >>> shown(10**400)
    '100000000000000000...0000000000000000000'
    """
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def _given(value: object, typed: str | None) -> str:
    return shown(value) if typed is None else typed


def _index(value: SupportsIndex) -> int | None:
    try:
        return value.__index__()
    except (AttributeError, TypeError):
        return None


def _real(name: str, value: SupportsFloat) -> float:
    if type(value) is float:  # most are, and schedules have ten thousand of them
        return value
    if isinstance(value, str | bytes | bool):
        raise InvalidArgument(f"{name} must be a number, got {shown(value)}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{name} must be a number, got {shown(value)}") from None
