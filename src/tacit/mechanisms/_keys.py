"""Counting records by key, each record by itself, whatever its type, and quickly for long arrays.

A released key must not tell of the records that were not released. So each record is brought to a
*canonical key* by a rule that looks at nothing but that record, and only canonical keys are
compared, counted and sorted: Python's own numbers, texts, bytes, dates and tuples, never an object
of the data.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tacit.errors import InvalidArgument
from tacit.mechanisms._records import entries, is_polars_series, is_series

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timezone

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Key: TypeAlias = int | float | str | bytes | date | tuple[Any, ...]
_Pairs: TypeAlias = list[tuple[Any, int]]

_NUMBERS = "iufb"
_TEXTS = "US"
_PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying by it loses nothing
_EPOCH, _LAST_DAY = date(1970, 1, 1).toordinal(), date.max.toordinal()
_LIMIT = 2**53  # float64 holds every whole number below it, and no odd one above


def canonical(record: Any) -> Key | None:
    """The key of one record, by itself; None if it has none, and is not counted.

    - Numbers: equal ones are one key, an int if they are whole, else the nearest float: NumPy and
      pandas turn a whole column into floats because of one missing value, so 1, 1.0, True and
      Decimal(1) must not differ. Those of 2⁵³ and beyond have no key, for float64 merges them.
    - Texts and bytes: as they are.
    - Dates as they are, date-times to the microsecond and, with a time zone, in UTC.
    - Tuples of these.
    - Nothing else: not a list, an object, or what is missing (None, NaN, NaT, pandas' NA).

    >>> [canonical(one) for one in (True, np.float32(2), 0.5, np.str_("a"), None, [1], 10**400)]
    [1, 2, 0.5, 'a', None, None, None]
    """
    kind = type(record)  # not isinstance, which asks the record
    if issubclass(kind, tuple):
        parts = tuple(_plain(part) for part in tuple.__iter__(record))
        return None if None in parts else parts
    return _plain(record)


def _plain(record: Any) -> Key | None:
    """The key of a record that is no tuple. The methods are Python's own, not a subclass's."""
    kind = type(record)
    if issubclass(kind, str):
        return str.__str__(record)
    if issubclass(kind, bytes):
        return bytes.__getitem__(record, slice(None))
    if issubclass(kind, int):
        whole = int.__int__(record)
        return whole if -_LIMIT < whole < _LIMIT else None
    if issubclass(kind, float):
        return _real(float.__float__(record))
    if kind is complex:
        return _real(record.real) if record.imag == 0.0 else None
    if kind is Decimal or kind is Fraction:
        return _ratio(record)
    if issubclass(kind, np.generic):
        return _scalar(record)
    return _moment(record)


def _real(number: float) -> Key | None:
    if not -_LIMIT < number < _LIMIT:
        return None
    return int(number) if number.is_integer() else number


def _ratio(record: Decimal | Fraction) -> Key | None:
    try:
        return _real(float(record))
    except (OverflowError, ValueError):  # too large; a signalling NaN
        return None


def _scalar(record: Any) -> Key | None:
    if issubclass(type(record), np.datetime64):
        return _time(record)
    if issubclass(type(record), np.floating):
        with np.errstate(over="ignore"):
            return _real(float(np.float64(record)))
    plain = None if issubclass(type(record), np.timedelta64) else np.generic.item(record)
    return None if issubclass(type(plain), np.generic) else canonical(plain)


def _moment(record: Any) -> Key | None:
    kind = type(record)
    if kind is date:
        whole: date = record
        return whole
    if kind is datetime:
        return _in_utc(record)
    pandas = sys.modules.get("pandas")
    if pandas is not None and kind is pandas.Timestamp:
        found = _time(record.to_datetime64())
        return found if record.tzinfo is None or found is None else found.replace(tzinfo=UTC)
    return None


def _in_utc(record: datetime) -> datetime | None:
    if record.tzinfo is None:
        return record.replace(fold=0)
    try:
        return record.astimezone(UTC)
    except Exception:  # a time zone is the data's own code
        return None


def _time(record: Any) -> datetime | None:
    try:
        found = record.astype("datetime64[us]").item()
    except (OverflowError, ValueError):
        return None
    return found if type(found) is datetime else None


def placed(records: Iterable[Any], keys: Sequence[Any]) -> Integers:
    """The place of each record's key among the canonical ``keys``; -1 if it is none of them."""
    place_of = {key: place for place, key in enumerate(keys)}
    found = [
        place_of.get(record if type(record) is str else canonical(record), -1) for record in records
    ]
    return np.asarray(found, dtype=np.int64)


def places(values: Any, keys: Sequence[Key]) -> Integers:
    """As ``placed``, for any container of records; ``keys`` are different ones."""
    given = column(values)
    if isinstance(given, list):
        return placed(given, keys)
    return _number_places(given, keys)


def column(values: Any) -> NDArray[Any] | list[Any]:
    """The records one by one: an array of numbers (NaN where one is missing), or any objects."""
    if is_polars_series(values):
        return _of_polars(values)
    if is_series(values):
        return _records_of_series(values)
    given = entries("values", values)
    if isinstance(given, list):
        return given
    if given.ndim != 1:
        raise InvalidArgument(f"values must be one cell per record, got {given.ndim} dimensions")
    if given.dtype.kind in _NUMBERS:
        return _wide(given)
    return list(given) if given.dtype.kind in "Mm" else given.tolist()


def _records_of_series(values: Any) -> NDArray[Any] | list[Any]:
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return column(np.asarray(values.to_numpy()))
    if isinstance(dtype, sys.modules["pandas"].CategoricalDtype):
        table = [*dtype.categories, None]
        return [table[code] for code in values.cat.codes.tolist()]
    found: list[Any] = values.to_numpy(dtype=object).tolist()
    return found


def numbered(values: Any, cells: int) -> Integers:
    """How many records are 0, 1, 2, … cells-1."""
    given = _given(values)
    if isinstance(given, np.ndarray) and given.dtype.kind in _NUMBERS:
        inside = given[(given >= 0) & (given < cells)]
        if inside.dtype.kind == "f":
            inside = inside[inside == np.floor(inside)]
        return np.bincount(inside.astype(np.int64), minlength=cells)
    tally = _tally(given)
    return np.asarray([tally[cell] for cell in range(cells)], dtype=np.int64)


def named(values: Any, keys: Sequence[Key]) -> Integers:
    """How many records have each of the different ``keys``, which are canonical."""
    given = _given(values)
    if isinstance(given, np.ndarray) and given.dtype.kind in _NUMBERS:
        return _searched(given, keys)
    tally = _tally(given)
    return np.asarray([tally[key] for key in keys], dtype=np.int64)


def _searched(given: NDArray[Any], keys: Sequence[Key]) -> Integers:
    """By a sorted search: many numbers, few keys, and no table of all numbers."""
    found = _number_places(given, keys)
    return np.bincount(found[found >= 0], minlength=len(keys))


def _number_places(given: NDArray[Any], keys: Sequence[Key]) -> Integers:
    """A number beyond 2⁵³ equals no key, and neither does NaN."""
    found = np.full(len(given), -1, dtype=np.int64)
    numeric = [place for place, key in enumerate(keys) if isinstance(key, int | float)]
    if not numeric:
        return found
    known = np.asarray([keys[place] for place in numeric], dtype=np.float64)
    order = np.argsort(known)
    reals = given.astype(np.float64)
    near = order[np.minimum(np.searchsorted(known[order], reals), len(known) - 1)]
    hits = known[near] == reals
    found[hits] = np.asarray(numeric)[near[hits]]
    return found


def _held(given: NDArray[Any]) -> NDArray[Any]:
    """Those of the numbers that have a key."""
    if given.dtype.kind == "b":
        return given
    return given[(given > -_LIMIT) & (given < _LIMIT)]


def tallied(values: Any) -> tuple[list[Key], Integers]:
    """The different keys among the records, sorted, and how many records have each."""
    tally = _tally(_given(values))
    keys = sorted(tally, key=_order)
    return keys, np.asarray([tally[key] for key in keys], dtype=np.int64)


def _order(key: Key) -> tuple[Any, ...]:
    """By kind first and then by value, whatever other keys there are."""
    if isinstance(key, tuple):
        return ("tuple", [_order(part) for part in key])
    if isinstance(key, int | float):
        return ("number", key)
    if isinstance(key, date):
        return ("date", key.isoformat())
    return (type(key).__name__, key)


def _tally(given: NDArray[Any] | _Pairs) -> Counter[Key]:
    """How many records have each key."""
    pairs = _of_array(given) if isinstance(given, np.ndarray) else given
    tally: Counter[Key] = Counter()
    for record, count in pairs:
        key = canonical(record)
        if key is not None:
            tally[key] += count
    return tally


def _given(values: Any) -> NDArray[Any] | _Pairs:
    """The records as an array of one type, or, if they are Python objects, with counts."""
    if is_series(values):
        return _of_series(values)
    if is_polars_series(values):
        records = _of_polars(values)
        return _of_list(records) if isinstance(records, list) else records
    given = entries("values", values)
    if isinstance(given, list):
        return _of_list(given)
    if given.ndim != 1:
        raise InvalidArgument(f"values must be one cell per record, got {given.ndim} dimensions")
    return _wide(given)


def _wide(given: NDArray[Any]) -> NDArray[Any]:
    """Floats as float64, the kind that keys are."""
    if given.dtype.kind != "f":
        return given
    with np.errstate(over="ignore"):
        return given.astype(np.float64, copy=False)


def _of_series(values: Any) -> NDArray[Any] | _Pairs:
    pandas, dtype = sys.modules["pandas"], values.dtype
    if isinstance(dtype, np.dtype):
        return _wide(np.asarray(values.to_numpy()))
    if isinstance(dtype, pandas.CategoricalDtype):
        codes = values.cat.codes.to_numpy()
        counts = np.bincount(codes[codes >= 0], minlength=len(dtype.categories))
        return list(zip(dtype.categories, counts.tolist(), strict=True))
    if isinstance(dtype, pandas.StringDtype):
        counted = values.value_counts(dropna=True, sort=False)
        return list(zip(counted.index, counted.tolist(), strict=True))
    return _of_list(values.to_numpy(dtype=object).tolist())


def _of_polars(values: Any) -> NDArray[Any] | list[Any]:
    """Of dates the days and ticks behind them: Polars panics at one beyond the year 9999.

    A list or a struct has no key, and need not be looked into.
    """
    polars, dtype = sys.modules["polars"], values.dtype
    if dtype.is_numeric() or dtype == polars.Boolean:
        return np.asarray(values.cast(polars.Float64).to_numpy())
    if dtype == polars.Date:
        return [_day(one) for one in values.to_physical().to_list()]
    if dtype == polars.Datetime:
        zone = None if dtype.time_zone is None else UTC
        ticks = values.to_physical().to_list()
        return [_tick(one, dtype.time_unit, zone) for one in ticks]
    if dtype.is_temporal() or dtype.is_nested():
        return [None] * len(values)
    found: list[Any] = values.to_list()
    return found


def _day(days: int | None) -> date | None:
    """From the number of days since the first of January 1970."""
    ordinal = _EPOCH + (0 if days is None else days)
    return date.fromordinal(ordinal) if days is not None and 1 <= ordinal <= _LAST_DAY else None


def _tick(ticks: int | None, unit: str, zone: timezone | None) -> datetime | None:
    found = None if ticks is None else _time(np.asarray(ticks).astype(f"datetime64[{unit}]")[()])
    return None if found is None else found.replace(tzinfo=zone)


def _of_list(records: list[Any]) -> _Pairs:
    """Python's own numbers and texts once each: those that are equal have the same key."""
    plain: list[Any] = []
    others: list[Any] = []
    for record in records:
        kind = type(record)
        (plain if kind is str or kind is int or kind is float else others).append(record)
    return [*Counter(plain).items(), *((record, 1) for record in others)]


def _of_array(given: NDArray[Any]) -> _Pairs:
    kind = given.dtype.kind
    if kind in _NUMBERS:
        found, counts = np.unique(_held(given), return_counts=True)
        return list(zip(found.tolist(), counts.tolist(), strict=True))
    if kind in _TEXTS:
        return _texts(given)
    if kind == "M":
        found, counts = np.unique(given, return_counts=True)
        return list(zip(found, counts.tolist(), strict=True))
    return [] if kind == "m" else _of_list(given.tolist())


def _texts(given: NDArray[Any]) -> _Pairs:
    _, first, back, counts = np.unique(
        _hashes(given), return_index=True, return_inverse=True, return_counts=True
    )
    if np.array_equal(given[first][back], given):  # no two texts share a hash
        return list(zip(given[first].tolist(), counts.tolist(), strict=True))
    return _of_list(given.tolist())


def _hashes(texts: NDArray[Any]) -> NDArray[np.uint64]:
    """A number for each text, equal for equal texts and different for nearly all others."""
    size = 4 if texts.dtype.kind == "U" else 1
    letters: NDArray[Any] = np.ascontiguousarray(texts).view(f"u{size}")
    total = np.zeros(len(texts), dtype=np.uint64)
    for column in letters.reshape(len(texts), -1).T if len(texts) else ():
        total = (total ^ column.astype(np.uint64)) * _PRIME
        total ^= total >> np.uint64(29)
    return total
