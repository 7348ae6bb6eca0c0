"""Scalars, arrays, pandas and Polars objects in; the same kind out. Nothing here imports either.

*Records* are private one by one: each becomes a number, or a missing one, by a rule that looks at
nothing but the record, so that no record changes how another is read (``numbers``). A *value* is
what the caller computed, all of it, and may be refused (``finite``, ``integers``).
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from tacit._validation import shown
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]


MOST = 2**62
_TEXTS_AND_OBJECTS = "OUST"


@runtime_checkable
class _ArrayLike(Protocol):
    """A tensor, or another library's array."""

    def __array__(self) -> NDArray[Any]: ...


def is_series(values: object) -> bool:
    """Whether this is a pandas Series: where pandas was never imported, nothing is."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, pandas.Series)


def is_frame(values: object) -> bool:
    """Whether this is a pandas DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, pandas.DataFrame)


def is_polars_series(values: object) -> bool:
    """Whether this is a Polars Series."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(values, polars.Series)


def is_polars_frame(values: object) -> bool:
    """Whether this is a Polars DataFrame; a LazyFrame holds no records yet."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(values, polars.DataFrame)


def columns_named(name: str, values: Any, names: Iterable[Any]) -> list[Any]:
    """The columns of these names, of a frame or a mapping, or of these places, of a 2-D array.

    Names and places are public; that a column is not there tells nothing of the records.
    """
    if isinstance(values, np.ndarray) and values.ndim == 2:
        held: dict[Any, Any] = dict(enumerate(values.T))
    elif is_frame(values):
        held = {one: values.iloc[:, place] for place, one in enumerate(values.columns)}
        if len(held) != values.shape[1]:
            raise InvalidArgument("values must have columns of different names; rename them")
    elif is_polars_frame(values):
        held = {one: values.get_column(one) for one in values.columns}
    elif isinstance(values, Mapping):
        held = dict(values)
    else:
        raise InvalidArgument(
            f"values must be a DataFrame, a 2-D array or a mapping of columns if {name} names "
            f"columns, got {type(values).__name__}"
        )
    asked = list(names)
    for one in asked:
        if one not in held:
            raise InvalidArgument(f"{name} must name columns of values, got {shown(one)}")
    if not asked:
        raise InvalidArgument(f"{name} must name at least one column")
    return [held[one] for one in asked]


def reals(name: str, values: Any) -> Reals:
    """The numbers of a value or a setting, as float64; what is missing is NaN."""
    try:
        if is_series(values) or is_frame(values):
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        if isinstance(values, np.ma.MaskedArray):
            return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(
            f"{name} must be numbers that float64 holds, got {type(values).__name__} of something "
            "else"
        ) from None


def unmasked(values: Any) -> Any:
    """A tensor or any other array as NumPy's, with None where it is masked.

    What lies beneath a mask was left out by it; NumPy's own ``asarray`` gives just that. What is no
    array is given back as it is.
    """
    if isinstance(values, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(values.astype(object), None))
    return np.asarray(values) if isinstance(values, _ArrayLike) else values


def finite(name: str, values: Any) -> Reals:
    """The numbers, none of them missing or infinite.

    The refusal tells that one is, and not which.
    """
    given = reals(name, values)
    if not np.all(np.isfinite(given)):
        raise InvalidArgument(f"{name} must be finite numbers; replace missing and infinite ones")
    return given


def clipped(name: str, values: Any, lower: float, upper: float) -> Reals:
    """The numbers of a value, within the bounds; what is no number counts as their middle."""
    arrays = isinstance(values, _ArrayLike) and not isinstance(values, np.generic)
    if is_series(values) or is_frame(values) or arrays:
        given = numbers(name, values)
    else:
        try:
            given = _of_array(name, np.asarray(values, dtype=object))
        except ValueError:
            raise InvalidArgument(f"{name} must have rows of one length") from None
    return np.clip(np.where(np.isnan(given), lower + 0.5 * (upper - lower), given), lower, upper)


def integers(name: str, values: Any) -> NDArray[np.int64]:
    """The whole numbers of a value, of an integer type; those beyond 2⁶² count as 2⁶².

    Clipping moves no two numbers further apart, so that a sensitivity stays what it was.
    """
    if is_series(values) or is_frame(values):
        given = values.to_numpy()
    else:  # as objects, for [2**63, 1] are floats to NumPy
        held = unmasked(values)
        given = np.asarray(held, dtype=object if isinstance(held, int | list | tuple) else None)
    kind = given.dtype.kind
    exact = kind == "O" and all(
        issubclass(type(one), int | np.integer | np.bool_) for one in given.ravel().tolist()
    )
    if kind not in "iub" and not exact:
        raise InvalidArgument(f"{name} must be integers; round them, or take a mechanism for reals")
    if kind == "b" or (kind in "iu" and given.dtype.itemsize < 8):
        return np.asarray(given, dtype=np.int64)
    within = np.asarray(np.clip(given, 0 if kind == "u" else -MOST, MOST))
    return np.asarray(within, dtype=np.int64)


def entries(name: str, values: Any) -> NDArray[Any] | list[Any]:
    """The records as they come: an array, or a list of Python objects; not a pandas one.

    Never a list made into an array, whose type would be decided by all records together.
    """
    if isinstance(values, np.ndarray):
        found: NDArray[Any] = unmasked(values)
        return found
    if isinstance(values, list | tuple | range):
        return list(values)
    if isinstance(values, _ArrayLike):
        return np.asarray(values)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidArgument(
            f"{name} must be an array, a list or a pandas object of records, "
            f"got {type(values).__name__}"
        )
    return list(values)


def numbers(name: str, values: Any) -> Reals:
    """The records, or rows of them, as float64.

    Guarantee:
        An entry becomes a number by itself. One that is no number (missing, a list, a text that
        does not spell one) is NaN, and one that float64 cannot hold is infinite. Only the
        container's own type is ever refused.

    >>> numbers("values", [2, "x", 10**400, None, True, "1.5"]).tolist()
    [2.0, nan, inf, nan, 1.0, 1.5]
    """
    if is_frame(values):
        columns = [_of_series(name, values.iloc[:, place]) for place in range(values.shape[1])]
        return np.column_stack(columns) if columns else np.empty(values.shape)
    if is_series(values):
        return _of_series(name, values)
    if is_polars_frame(values):
        columns = [_of_polars(name, column) for column in values.get_columns()]
        return np.column_stack(columns) if columns else np.empty(values.shape)
    if is_polars_series(values):
        return _of_polars(name, values)
    given = entries(name, values)
    return _of_list(given) if isinstance(given, list) else _of_array(name, given)


def number_rows(values: Iterable[Any], columns: int) -> Reals:
    """Rows of a declared length; of a record that is none, every entry is missing."""
    found = np.full((0, columns), math.nan)
    rows = [_row(one, columns) for one in values]
    return np.stack(rows) if rows else found


def _row(record: Any, columns: int) -> Reals:
    if issubclass(type(record), list | tuple | np.ndarray) and len(record) == columns:
        return _of_list(list(record))
    return np.full(columns, math.nan)


def _of_series(name: str, values: Any) -> Reals:
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return _of_array(name, values.to_numpy())
    if isinstance(dtype, sys.modules["pandas"].CategoricalDtype):
        table = _of_list([*dtype.categories, None])
        return np.asarray(table[values.cat.codes.to_numpy()], dtype=np.float64)
    if dtype.kind in "biuf":
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    if dtype.kind not in _TEXTS_AND_OBJECTS:
        raise InvalidArgument(f"{name} must be numbers, got {type(dtype).__name__}")
    return _of_list(values.to_numpy(dtype=object).tolist())


def _of_polars(name: str, values: Any) -> Reals:
    """A column of numbers by Polars' own cast, which looks at one entry; any other as objects."""
    polars, dtype = sys.modules["polars"], values.dtype
    if dtype.is_temporal():
        raise InvalidArgument(f"{name} must be numbers, got {shown(dtype)}")
    if dtype.is_numeric() or dtype == polars.Boolean:
        return np.array(values.cast(polars.Float64).to_numpy(), dtype=np.float64)
    if dtype.is_nested():  # a list is no number, and need not be looked into
        return np.full(len(values), math.nan)
    return _of_list(values.to_list())


def _of_array(name: str, given: NDArray[Any]) -> Reals:
    kind = given.dtype.kind
    if kind in "biuf":
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(given, dtype=np.float64)
    if kind == "c":
        return np.asarray(np.where(given.imag == 0.0, given.real, np.nan), dtype=np.float64)
    if kind in _TEXTS_AND_OBJECTS:
        return _of_list(given.ravel().tolist()).reshape(given.shape)
    raise InvalidArgument(f"{name} must be numbers, got {given.dtype.type.__name__}")


def _of_list(records: list[Any]) -> Reals:
    return np.fromiter(map(_number, records), dtype=np.float64, count=len(records))


def _number(record: Any) -> float:
    """One record as a number, whatever it is; NaN if it is none."""
    kind = type(record)  # not isinstance, which asks the record
    if issubclass(kind, np.ndarray) and np.ndarray.ndim.__get__(record):
        return math.nan
    if record is np.ma.masked:  # which would show by a warning
        return math.nan
    try:
        if issubclass(kind, complex | np.complexfloating):
            return float(record.real) if record.imag == 0.0 else math.nan
        return float(record)
    except OverflowError:
        return _far(record)
    except Exception:  # a record must not show by what it raises
        return math.nan


def _far(record: Any) -> float:
    """A number too large for float64."""
    try:
        return math.inf if record > 0 else -math.inf
    except Exception:
        return math.nan


def like(values: Any) -> Callable[[NDArray[Any]], Any]:
    """Makes an array of the same shape into what ``values`` is: a number, an array or a Series.

    >>> like(3)(np.asarray(2.5)), like([1, 2])(np.asarray([0.5, 1.5]))
    (2.5, array([0.5, 1.5]))
    """
    if is_series(values):
        return lambda array: type(values)(array, index=values.index, name=values.name)
    if is_frame(values):
        return lambda array: type(values)(array, index=values.index, columns=values.columns)
    # As objects, so that NumPy asks nothing of them.
    given = values if isinstance(values, _ArrayLike) else np.asarray(values, dtype=object)
    if np.ndim(given) == 0:
        return lambda array: array.item()
    return lambda array: array


def like_columns(
    values: Any, dimensions: int, names: Sequence[Any] | None = None
) -> Callable[[NDArray[Any]], Any]:
    """Makes one number a column into what suits records of one or two dimensions.

    ``names`` are those of the columns that were chosen; left out, all of a frame were.
    """
    if is_frame(values):
        series = sys.modules["pandas"].Series
        return lambda array: series(array, index=values.columns if names is None else names)
    if is_polars_frame(values) or names is not None:
        keys = values.columns if names is None else names
        return lambda array: dict(zip(keys, array.tolist(), strict=True))
    if dimensions == 1:
        return lambda array: array.item()
    return lambda array: array


# ---- public bounds, given by the user and never taken from the data


_LEAST = 1e-290  # what lies closer together cannot be scaled up in float64


def interval(name: str, bounds: Sequence[float]) -> tuple[float, float]:
    """The two ends of ``bounds``, finite and in order."""
    (lower,), (upper,) = intervals(name, bounds, 1)
    return float(lower), float(upper)


def whole_interval(name: str, bounds: Sequence[int]) -> tuple[int, int]:
    """The two ends of ``bounds``, whole numbers below 2⁶² and in order."""
    try:
        lower, upper = (operator.index(end) for end in bounds)
    except (TypeError, ValueError):
        lower, upper = 1, 0
    if not -MOST <= lower < upper <= MOST:
        raise InvalidArgument(
            f"{name} must be two whole numbers, the lower below the upper, got {shown(bounds)}"
        )
    return lower, upper


def intervals(
    name: str, bounds: Sequence[Any], columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends for each column, given as two numbers or as two rows of numbers.

    >>> intervals("bounds", (0, [1, 2]), 2)
    (array([0., 0.]), array([1., 2.]))
    """
    try:
        lower, upper = (
            np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)) for end in bounds
        )
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"{name} must be a lower and an upper end, each a number or one per column "
            f"({columns}), got {bounds!r}"
        ) from None
    with np.errstate(over="ignore", invalid="ignore"):
        width = upper - lower
    if not np.all((width > _LEAST) & np.isfinite(width) & np.isfinite(lower)):
        raise InvalidArgument(
            f"{name} must be finite, the lower end below the upper, got {bounds!r}"
        )
    return lower, upper
