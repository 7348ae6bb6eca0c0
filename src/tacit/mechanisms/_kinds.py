"""Scalars, arrays and pandas objects in; the same kind out. Nothing here imports pandas."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]

MOST = 2**62


def is_series(values: object) -> bool:
    """Whether this is a pandas Series: where pandas was never imported, nothing is."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, pandas.Series)


def is_frame(values: object) -> bool:
    """Whether this is a pandas DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, pandas.DataFrame)


def reals(name: str, values: Any) -> Reals:
    """The numbers, as float64; what is missing is NaN."""
    try:
        if is_series(values) or is_frame(values):
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"{name} must be numbers, got {type(values).__name__} of something else"
        ) from None


def finite(name: str, values: Any) -> Reals:
    """The numbers, none of them missing or infinite.

    The refusal tells that one is, and not which.
    """
    numbers = reals(name, values)
    if not np.all(np.isfinite(numbers)):
        raise InvalidArgument(f"{name} must be finite numbers; replace missing and infinite ones")
    return numbers


def integers(name: str, values: Any) -> NDArray[np.int64]:
    """The whole numbers, of an integer type and at most 2⁶² from 0."""
    given = values.to_numpy() if is_series(values) or is_frame(values) else np.asarray(values)
    if given.dtype.kind not in "iub":
        raise InvalidArgument(
            f"{name} must be integers, got {given.dtype}; round them, or take a mechanism for reals"
        )
    if given.dtype.kind != "b" and np.any((given > MOST) | (given < -MOST)):
        raise InvalidArgument(f"{name} must be at most 2**62 from 0; bound them first")
    return given.astype(np.int64)


def like(values: Any) -> Callable[[NDArray[Any]], Any]:
    """Makes an array of the same shape into what ``values`` is: a number, an array or a Series.

    >>> like(3)(np.asarray(2.5)), like([1, 2])(np.asarray([0.5, 1.5]))
    (2.5, array([0.5, 1.5]))
    """
    if is_series(values):
        return lambda array: type(values)(array, index=values.index, name=values.name)
    if is_frame(values):
        return lambda array: type(values)(array, index=values.index, columns=values.columns)
    if np.ndim(values) == 0:
        return lambda array: array.item()
    return lambda array: array


def like_columns(rows: Any) -> Callable[[NDArray[Any]], Any]:
    """Makes one number a column into what suits ``rows``: a number, an array or a Series."""
    if is_frame(rows):
        series = sys.modules["pandas"].Series
        return lambda array: series(array, index=rows.columns)
    if np.ndim(rows) == 1:
        return lambda array: array.item()
    return lambda array: array
