"""Fields of an entry: each of one type, and in range; what is not raises ``ValueError`` and such.

Whoever can write the database can write an entry, so none of them is taken on trust.
"""

from __future__ import annotations

import re
from typing import Any

LARGEST_EPSILON = 1e6  # of a limit; more protects nobody
LONGEST_NAME = 200
LONGEST_TEXT = 1000
MOST_STEPS = 2**53
MOST_EVENTS = 2048  # of which one reservation's event may be made: each is computed again
ID = re.compile(r"[0-9a-f]{32}")
_MOST_ORDERS = 10_000
_LARGEST = 1e300  # of any number; a divergence that has no finite bound is this


def check_fields(data: dict[str, Any], *names: str) -> None:
    """Refuses a body with other fields than these."""
    if set(data) != set(names):
        raise ValueError(f"its fields are {sorted(data)[:20]}, not {sorted(names)}")


def whole(data: dict[str, Any], name: str, least: int, most: int) -> int:
    """The whole number of this name, in its range."""
    value = data[name]
    if type(value) is not int or not least <= value <= min(most, MOST_STEPS):
        raise ValueError(f"{name} is not a whole number from {least} to {most}")
    return value


def number(data: dict[str, Any], name: str, most: float = _LARGEST) -> float:
    """The number of this name, from 0 to ``most``."""
    value = data[name]
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"{name} is not a number from 0 to {most:g}")
    return float(value)


def text(data: dict[str, Any], name: str, *, lines: bool = False) -> str:
    """The text of this name, which can be shown; reasons could once have several lines."""
    value = data[name]
    if not isinstance(value, str) or len(value) > (100 if lines else 1) * LONGEST_TEXT:
        raise ValueError(f"{name} is no text of at most {LONGEST_TEXT} characters")
    shown = "".join(value.split()) if lines else value
    if not all(letter.isprintable() or letter == " " for letter in shown):
        raise ValueError(f"{name} has characters that cannot be shown")
    return value


def one_of(data: dict[str, Any], name: str, values: tuple[str, ...]) -> str:
    """The text of this name, if it is one of ``values``."""
    if data[name] not in values:
        raise ValueError(f"{name} is not one of {values}")
    return str(data[name])


def detail(data: dict[str, Any]) -> dict[str, Any] | None:
    """What is kept with a reservation or a request: an object, or nothing."""
    if not isinstance(data["detail"], dict | None):
        raise TypeError("detail is no object")
    return data["detail"]


def limits(data: dict[str, Any], composition: str) -> tuple[float, float]:
    """The limits (ε, δ) of a budget."""
    epsilon, delta = number(data, "epsilon", LARGEST_EPSILON), number(data, "delta", 1.0)
    if epsilon == 0.0 or delta == 1.0 or (delta == 0.0 and composition != "basic"):
        raise ValueError("its limits are not valid")
    return epsilon, delta


def orders_of(data: dict[str, Any], composition: str) -> tuple[float, ...]:
    """The orders that a Rényi budget watches."""
    orders = data["orders"]
    if not isinstance(orders, list) or len(orders) > _MOST_ORDERS:
        raise TypeError("orders is no list")
    found = tuple(number({"orders": one}, "orders") for one in orders)
    rising = all(one < other for one, other in zip((1.0, *found), found, strict=False))
    if bool(found) != (composition == "renyi") or not rising:
        raise ValueError("its orders are not those of a Rényi filter")
    return found


def steps_of(data: dict[str, Any], event: dict[str, Any]) -> int:
    """As many as the event pays for: a repeated one says how many that is."""
    times = whole(event, "times", 0, MOST_STEPS) if event["kind"] == "Repeated" else MOST_STEPS
    return whole(data, "steps", 1, times)


def check_event(event: object) -> None:
    """Refuses what cannot be an event, or has too many parts to be computed again."""
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        raise TypeError("its event is not valid")
    if events_in(event) > MOST_EVENTS:
        raise ValueError(f"its event is made of more than {MOST_EVENTS}")


def events_in(event: object) -> int:
    """How many events an event is made of, itself included."""
    count, rest = 0, [event]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            count += 1
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
    return count
