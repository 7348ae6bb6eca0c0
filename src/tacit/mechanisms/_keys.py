"""Counting records by key: each by itself, whatever its type, and quickly for long arrays."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.errors import InvalidArgument
from tacit.mechanisms._kinds import is_series

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_NUMBERS = "iufb"
_TEXTS = "US"
_PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying by it loses nothing


def numbered(values: Any, cells: int) -> Integers:
    """How many records are 0, 1, 2, … cells-1."""
    given = _flat(values)
    if given.dtype.kind not in _NUMBERS:
        return named(values, np.arange(cells))
    inside = given[(given >= 0) & (given < cells)]
    if inside.dtype.kind == "f":
        inside = inside[inside == np.floor(inside)]
    return np.bincount(inside.astype(np.int64), minlength=cells)


def named(values: Any, names: NDArray[Any]) -> Integers:
    """How many records equal each of the different ``names``."""
    return np.bincount(_places(values, names), minlength=len(names))


def _places(values: Any, names: NDArray[Any]) -> Integers:
    """The places among ``names`` of those records that have one."""
    if is_series(values) and values.dtype.kind not in _NUMBERS:
        places = np.asarray(sys.modules["pandas"].Index(names).get_indexer(values), dtype=np.int64)
        return places[places >= 0]
    given = _flat(values)
    if given.dtype.kind in _NUMBERS and names.dtype.kind in _NUMBERS:
        return _searched(given, names, given, names)
    if given.dtype.kind in _TEXTS and given.dtype.kind == names.dtype.kind:
        wide = np.promote_types(given.dtype, names.dtype)
        hashes, known = _hashes(given.astype(wide)), _hashes(names.astype(wide))
        if len(np.unique(known)) == len(known):
            return _searched(hashes, known, given, names)
    place_of = {name: place for place, name in enumerate(names.tolist())}
    found = _hashed(lambda: [place_of.get(one, -1) for one in given.tolist()])
    places = np.asarray(found, dtype=np.int64)
    return places[places >= 0]


def _searched(
    keys: NDArray[Any], known: NDArray[Any], given: NDArray[Any], names: NDArray[Any]
) -> Integers:
    """Places by a sorted search of the keys, kept where the names themselves agree."""
    order = np.argsort(known)
    places = order[np.minimum(np.searchsorted(known[order], keys), len(known) - 1)]
    return np.asarray(places[names[places] == given], dtype=np.int64)


def tallied(values: Any) -> tuple[list[Any], Integers]:
    """The different keys among the records, sorted, and how many records have each."""
    if is_series(values):
        counted = values.value_counts(dropna=True, sort=False)
        return _sorted(counted.index.tolist(), counted.to_numpy(dtype=np.int64))
    given = _flat(values)
    if given.dtype.kind in _NUMBERS:
        keys, counts = np.unique(given[~np.isnan(given)], return_counts=True)
        return keys.tolist(), counts.astype(np.int64)
    if given.dtype.kind in _TEXTS:
        _, first, back, counts = np.unique(
            _hashes(given), return_index=True, return_inverse=True, return_counts=True
        )
        if np.array_equal(given[first][back], given):  # no two texts share a hash
            return _sorted(given[first].tolist(), counts.astype(np.int64))
    tally = _hashed(lambda: Counter(given.tolist()))
    present = [key for key in tally if key is not None and key == key]  # noqa: PLR0124 - NaN
    return _sorted(present, np.asarray([tally[key] for key in present], dtype=np.int64))


def _sorted(keys: list[Any], counts: Integers) -> tuple[list[Any], Integers]:
    try:
        order = sorted(range(len(keys)), key=keys.__getitem__)
    except TypeError:
        order = sorted(range(len(keys)), key=lambda k: (type(keys[k]).__name__, repr(keys[k])))
    return [keys[place] for place in order], counts[order]


def _hashes(texts: NDArray[Any]) -> NDArray[np.uint64]:
    """A number for each text, equal for equal texts and different for nearly all others."""
    size = 4 if texts.dtype.kind == "U" else 1
    letters: NDArray[Any] = np.ascontiguousarray(texts).view(f"u{size}")
    total = np.zeros(len(texts), dtype=np.uint64)
    for column in letters.reshape(len(texts), -1).T if len(texts) else ():
        total = (total ^ column.astype(np.uint64)) * _PRIME
        total ^= total >> np.uint64(29)
    return total


def _flat(values: Any) -> NDArray[Any]:
    given = values.to_numpy() if is_series(values) else np.asarray(values)
    if given.ndim != 1:
        raise InvalidArgument(f"values must be one cell per record, got the shape {given.shape}")
    return given


def _hashed(count: Callable[[], Any]) -> Any:
    try:
        return count()
    except TypeError:
        raise InvalidArgument("values must be hashable: numbers, texts or tuples") from None
