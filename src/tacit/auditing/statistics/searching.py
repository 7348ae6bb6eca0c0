"""The largest value that a test refutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def last_refuted(refutes: Callable[[float], bool], most: float, *, within: float = 1e-9) -> float:
    """About the largest value from 0 to ``most`` that is refuted, on the refuted side; else 0.

    If a value is refuted, so must every smaller one be. Values are asked for in doubles from 1
    and then by halves, to ``within`` (relative above 1).

    >>> round(last_refuted(lambda value: value < 2.5, 700.0), 6)
    2.5
    """
    if not refutes(0.0):
        return 0.0
    low, high = 0.0, min(1.0, most)
    while refutes(high):
        if high == most:
            return most
        low, high = high, min(2.0 * high, most)
    while high - low > within * max(1.0, high):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refutes(middle) else (low, middle)
    return low
