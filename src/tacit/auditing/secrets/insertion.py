"""Putting a canary into data: anywhere in a text, or with all copies in one privacy unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Kind = TypeVar("Kind", bound=np.generic)


def insert(
    text: str, canary: str, times: int, *, seed: int | np.random.Generator | None = None
) -> str:
    r"""The text with ``canary`` between its lines, ``times`` times, at places drawn at random.

    The copies may come to lie in several privacy units: a guarantee for one unit says less of
    such a canary, for groups are protected less than their members. ``insert_into_unit`` keeps
    them together.

    >>> insert("to be\nor not\n", "1234\n", 2, seed=0)
    'to be\n1234\nor not\n1234\n'
    """
    copies = whole("times", times, at_least=0)
    lines = text.splitlines(keepends=True)
    draw = np.random.default_rng(seed)
    places = draw.integers(len(lines) + 1, size=copies)
    found: list[str] = []
    for number in range(len(lines) + 1):
        found += [canary] * int(np.count_nonzero(places == number))
        found += lines[number : number + 1]
    return "".join(found)


def insert_into_unit(
    rows: NDArray[Kind], unit: int, canary: Sequence[int] | NDArray[np.int64], times: int
) -> NDArray[Kind]:
    """A copy of ``rows`` in which one row holds the canary ``times`` times, at even distances.

    The row keeps its length: the canary takes the place of what stood there.

    Args:
        rows: Sequences of tokens, one privacy unit each; shape (units, length).
        unit: The row's number.
        canary: Its tokens.
        times: How many copies; 0 leaves the row as it is.

    Guarantee:
        The result differs from ``rows`` in the one row only.

    >>> insert_into_unit(np.zeros((2, 8), np.int64), 1, [3, 4], 3).tolist()
    [[0, 0, 0, 0, 0, 0, 0, 0], [3, 4, 3, 4, 0, 3, 4, 0]]
    """
    copies, tokens = whole("times", times, at_least=0), np.asarray(canary)
    if rows.ndim != 2 or not 0 <= unit < len(rows):
        raise InvalidArgument(
            f"unit must be the number of one of the rows, got {unit!r} for shape {rows.shape}"
        )
    length = rows.shape[1]
    if copies * len(tokens) > length:
        raise InvalidArgument(
            f"times must be at most {length // len(tokens)}, as a unit of {length} tokens has room "
            f"for, got {times!r}"
        )
    changed = rows.copy()
    for copy in range(copies):
        begin = copy * length // copies
        changed[unit, begin : begin + len(tokens)] = tokens
    return changed
