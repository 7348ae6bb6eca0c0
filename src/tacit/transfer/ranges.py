"""The largest value of any range of an array, from a table of ranges of 1, 2, 4, … values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Places = NDArray[np.int64]


def range_maxima(values: Array) -> Array:
    """Row k holds the largest of the 2^k values that begin at each place."""
    rows = [values]
    while 2 ** len(rows) <= len(values):
        half = 2 ** (len(rows) - 1)
        moved = np.concatenate([rows[-1][half:], np.full(half, -np.inf)])
        rows.append(np.maximum(rows[-1], moved))
    return np.stack(rows)


def largest_between(table: Array, first: Places, last: Places) -> Array:
    """The largest value from ``first`` to ``last``: of two overlapping powers of two."""
    level = np.log2(last - first + 1).astype(np.int64)
    result: Array = np.maximum(table[level, first], table[level, last + 1 - 2**level])
    return result
