"""No record shows by anything but the numbers: not by type, order, shape, message or exception.

Every mechanism on records × odd records × containers is run on neighbouring data, with and without
the odd record; what comes out may differ in its noisy numbers only.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, deque
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from tacit.errors import InvalidArgument
from tacit.mechanisms import (
    SparseVector,
    bounded_laplace,
    covariance,
    discrete_gaussian,
    discrete_laplace,
    exponential,
    gaussian,
    geometric,
    histogram,
    laplace,
    mean,
    noisy_max,
    pca,
    quantile,
    randomized_response,
    standard_deviation,
    top_k,
    variance,
)
from tacit.mechanisms import sum as private_sum
from tacit.mechanisms._keys import canonical, named, numbered, tallied
from tacit.randomness import UnsafeSeededStream

if TYPE_CHECKING:
    from collections.abc import Callable


class _Whole(int):
    """A subclass that lies about what it is and equals."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    __repr__ = __str__ = __lt__ = __gt__ = __hash__  # type: ignore[assignment]


class _Real(float):
    __hash__ = _Whole.__hash__


class _Text(str):
    __slots__ = ()
    __eq__ = _Whole.__eq__
    __hash__ = _Whole.__hash__
    __repr__ = __str__ = __lt__ = _Whole.__hash__  # type: ignore[assignment]


class _Hostile:
    """Refuses everything that may be asked of it, and calls itself an int."""

    __eq__ = _Whole.__eq__
    __hash__ = _Whole.__hash__
    __repr__ = __str__ = __lt__ = __float__ = __bool__ = _Whole.__hash__  # type: ignore[assignment]
    __class__ = int  # type: ignore[assignment]


_ODD: dict[str, Any] = {
    "huge": 10**400,
    "huge negative": -(10**400),
    "beyond int64": 2**64,
    "text": "x",
    "empty text": "",
    "long text": "x" * 1000,
    "number in words": "7",
    "bytes": b"x",
    "nan": math.nan,
    "infinite": -math.inf,
    "none": None,
    "bool": True,
    "fraction of a key": 1.5,
    "nested list": [1, [2]],
    "list": [1, 2],
    "tuple": (1, (2, None)),
    "dict": {},
    "array": np.ones(2),
    "array of one": np.ones(1),
    "object": object(),
    "hostile": _Hostile(),
    "whole": _Whole(3),
    "real": _Real(2.5),
    "texts": _Text("y"),
    "complex": 1j,
    "NA": pd.NA,
    "NaT": pd.NaT,
    "missing time": np.datetime64("NaT"),
    "time": pd.Timestamp("2020-01-01 00:00:00.123456789", tz="Asia/Tokyo"),
    "date": date(2020, 1, 1),
    "span": np.timedelta64(5, "ns"),
    "signalling": Decimal("sNaN"),
    "huge decimal": Decimal("1E+999999"),
    "huge fraction": Fraction(10**400),
    "float16": np.float16(3),
    "longdouble": np.longdouble(3),
    "type": int,
}


def _objects(records: list[Any]) -> Any:
    held = np.empty(len(records), dtype=object)
    for place, record in enumerate(records):
        held[place] = record
    return held


_HELD: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "generator": lambda records: (one for one in records),
    "object array": _objects,
    "masked array": lambda records: np.ma.masked_array(
        _objects([0, *records]), [1] + [0] * len(records)
    ),
    "object index": lambda records: pd.Index(_objects(records), dtype=object, tupleize_cols=False),
    "object series": lambda records: pd.Series(_objects(records), dtype=object),
}
_RECORDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda data, stream: private_sum(data, bounds=(0, 20), epsilon=1, stream=stream),
    "mean": lambda data, stream: mean(data, bounds=(0, 20), epsilon=1, stream=stream),
    "mean of two": lambda data, stream: mean(
        data, bounds=(0, 20), rho=1, adjacency="replace-one", stream=stream
    ),
    "quantile": lambda data, stream: quantile(data, 0.5, bounds=(0, 20), epsilon=1, stream=stream),
    "numbered cells": lambda data, stream: histogram(data, cells=4, epsilon=1, stream=stream),
    "named cells": lambda data, stream: histogram(
        data, cells=["x", 2, (1, 2)], rho=1, stream=stream
    ),
    "edges": lambda data, stream: histogram(data, edges=[0, 2, 11], epsilon=1, stream=stream),
    "unknown keys": lambda data, stream: histogram(data, epsilon=1, delta=1e-9, stream=stream),
}
# These read records as those above do; all containers are for make test-slow.
_ALIKE: dict[str, Callable[[Any, Any], Any]] = {
    "sum of those present": lambda data, stream: private_sum(
        data, bounds=(1, 20), skip_missing=True, epsilon=1, stream=stream
    ),
    "mean of those present": lambda data, stream: mean(
        data, bounds=(0, 20), skip_missing=True, rho=1, adjacency="replace-one", stream=stream
    ),
    "variance": lambda data, stream: variance(data, bounds=(0, 20), epsilon=1, stream=stream),
    "standard deviation": lambda data, stream: standard_deviation(
        data, bounds=(0, 20), skip_missing=True, rho=1, stream=stream
    ),
    "median of those present": lambda data, stream: quantile(
        data, 0.5, bounds=(0, 20), skip_missing=True, epsilon=1, stream=stream
    ),
    "named column": lambda data, stream: mean(
        {"a": data}, bounds={"a": (0, 20)}, epsilon=1, stream=stream
    ),
    "cells of a column": lambda data, stream: histogram(
        {"a": data}, cells={"a": ["x", 2, (1, 2)]}, epsilon=1, stream=stream
    ),
    "edges of a column": lambda data, stream: histogram(
        {"a": data}, edges={"a": [0, 2, 11]}, epsilon=1, stream=stream
    ),
}
_ALL = _RECORDS | _ALIKE
_BASE = [1] * 140 + [10] * 100 + [2] * 120


def _form(release: Callable[[Any, Any], Any], data: Any) -> Any:
    """All but the numbers: what was raised, or types, shapes, names and their order."""
    try:
        released = release(data, UnsafeSeededStream(0, "odd"))
    except Exception as error:
        return type(error), str(error)
    return _shape(released.value), released.event, released.adjacency


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return dict, [(type(key), key, type(count)) for key, count in value.items()]
    if isinstance(value, pd.Series):
        names = [(type(key), key) for key in value.index]
        return pd.Series, value.dtype, value.index.dtype, value.name, names
    if isinstance(value, pd.DataFrame):
        return pd.DataFrame, list(value.dtypes), list(value.columns), list(value.index)
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype, value.shape
    return type(value)


_PAIRS = [
    pytest.param(
        mechanism,
        held,
        marks=[pytest.mark.slow]
        if mechanism in _ALIKE and held not in ("list", "object series")
        else [],
    )
    for mechanism in _ALL
    for held in _HELD
]


@pytest.mark.parametrize(("mechanism", "held"), _PAIRS)
def test_no_record_shows_by_its_kind(mechanism: str, held: str) -> None:
    release, hold = _ALL[mechanism], _HELD[held]
    alone = _form(release, hold(_BASE))
    assert alone[-1] in ("add-remove", "replace-one"), "released, and not refused"
    nobody = _form(release, hold([]))
    for name, record in _ODD.items():
        for place in (0, 240, len(_BASE)):
            beside = [*_BASE[:place], record, *_BASE[place:]]
            assert _form(release, hold(beside)) == alone, name
        assert _form(release, hold([record])) == nobody, name


@pytest.mark.parametrize("held", ["list", "tuple", "object array", "object series"])
def test_no_answer_shows_by_its_kind(held: str) -> None:
    """The number of answers is public: one is replaced."""
    for categories in (3, [False, True], ["x", "y"]):

        def release(data: Any, stream: Any, categories: Any = categories) -> Any:
            return randomized_response(data, categories=categories, epsilon=1, stream=stream)

        ordinary = _form(release, _HELD[held]([1, 0, 1, 0]))
        for name, record in _ODD.items():
            assert _form(release, _HELD[held]([1, 0, record, 0])) == ordinary, name


_BOUNDED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda data, stream: private_sum(data, bounds=(0, [1, 2, 3]), rho=1, stream=stream),
    "mean": lambda data, stream: mean(data, bounds=(0, [1, 2, 3]), epsilon=1, stream=stream),
    "mean of those present": lambda data, stream: mean(
        data, bounds=(0, [1, 2, 3]), skip_missing=True, epsilon=1, stream=stream
    ),
    "variance": lambda data, stream: variance(data, bounds=(0, [1, 2, 3]), rho=1, stream=stream),
    "covariance": lambda data, stream: covariance(data, norm=1, rho=1, stream=stream),
    "pca": lambda data, stream: _Directions(pca(data, 2, norm=1, rho=1, stream=stream)),
}


class _Directions:
    """The release of the directions, whose kind is that of the data."""

    def __init__(self, released: Any) -> None:
        self.value = released.value.directions
        self.event, self.adjacency = released.event, released.adjacency


@pytest.mark.parametrize("mechanism", _BOUNDED)
def test_no_row_shows_by_its_kind(mechanism: str) -> None:
    release = _BOUNDED[mechanism]
    rows = [[0.1, 0.2, 0.3]] * 20

    def objects(given: list[Any]) -> Any:
        return _objects([entry for row in given for entry in row]).reshape(-1, 3)

    holds: list[Callable[[list[Any]], Any]] = [
        objects,
        lambda given: pd.DataFrame(objects(given), columns=["a", "b", "c"]),
    ]
    if mechanism not in ("covariance", "pca"):
        holds += [list, tuple]
    for hold in holds:
        alone = _form(release, hold(rows))
        assert alone[-1] == "add-remove"
        for name, record in _ODD.items():
            assert _form(release, hold([*rows, [0.5, record, 0.5]])) == alone, name
            if hold in (list, tuple):
                assert _form(release, hold([*rows, record])) == alone, name


_CROSSED: dict[str, Callable[[Any, Any], Any]] = {
    "cells of columns": lambda data, stream: histogram(
        data, cells={"a": ["x", 2], "b": 3}, edges={"c": [0, 2, 11]}, epsilon=1, stream=stream
    ),
    "means of columns": lambda data, stream: mean(
        data, bounds={"c": (0, 9), "a": (0, 1)}, skip_missing=True, epsilon=1, stream=stream
    ),
    "unknown keys of columns": lambda data, stream: histogram(
        data, epsilon=1, delta=1e-9, stream=stream
    ),
}


@pytest.mark.parametrize("mechanism", _CROSSED)
def test_no_row_of_a_frame_shows_by_its_kind(mechanism: str) -> None:
    release = _CROSSED[mechanism]
    columns: dict[str, list[Any]] = {"a": ["x", 2] * 90, "b": [1, 0] * 90, "c": [7.5, 1.0] * 90}

    def frame(given: dict[str, list[Any]]) -> Any:
        return pd.DataFrame(
            {name: pd.Series(_objects(column), dtype=object) for name, column in given.items()}
        )

    for hold in [frame] if mechanism.startswith("unknown") else [frame, dict]:
        alone = _form(release, hold(columns))
        assert alone[-1] == "add-remove"
        for name, record in _ODD.items():
            for odd in "abc":
                row = {"a": "x", "b": 1, "c": 1.0} | {odd: record}
                beside = {one: [*columns[one], row[one]] for one in columns}
                assert _form(release, hold(beside)) == alone, (name, odd)


def test_with_bounds_no_one_number_is_refused() -> None:
    def release(value: Any, stream: Any) -> Any:
        return bounded_laplace(value, sensitivity=0.1, bounds=(0, 1), epsilon=1, stream=stream)

    for name, record in _ODD.items():
        if not isinstance(record, list | tuple | np.ndarray | dict):
            assert _form(release, record) == _form(release, 0.5), name


@pytest.mark.parametrize("mechanism", [laplace, gaussian])
def test_with_bounds_no_value_is_refused(mechanism: Callable[..., Any]) -> None:
    asked = {"epsilon": 1} if mechanism is laplace else {"rho": 1}

    def release(value: Any, stream: Any) -> Any:
        return mechanism(value, bounds=(0, 1), stream=stream, **asked)

    for name, record in _ODD.items():
        if not isinstance(record, list | tuple | np.ndarray | dict):
            assert _form(release, record) == _form(release, 0.5), name
        assert _form(release, _objects([0.5, record])) == _form(release, [0.5, 0.5]), name


_VALUES: dict[str, Callable[[Any], Any]] = {
    "laplace": lambda value: laplace(value, sensitivity=1, epsilon=1),
    "gaussian": lambda value: gaussian([0.5, value], sensitivity=1, rho=1),
    "discrete_laplace": lambda value: discrete_laplace(value, epsilon=1),
    "discrete_gaussian": lambda value: discrete_gaussian([1, value], rho=1),
    "geometric": lambda value: geometric(value, epsilon=1, bounds=(0, 9)),
    "top_k": lambda value: top_k([1, value], 2, sensitivity=1, epsilon=1),
    "exponential": lambda value: exponential([1, value], sensitivity=1, epsilon=1),
    "noisy_max": lambda value: noisy_max({"a": 1, "b": value}, sensitivity=1, epsilon=1),
    "SparseVector": lambda value: SparseVector(7, sensitivity=1, epsilon=1).above(value),
}


def _refusal(release: Callable[[Any], Any], value: Any) -> str:
    """The words of a refusal; nothing but an ``InvalidArgument`` may be raised."""
    try:
        release(value)
    except InvalidArgument as error:
        return str(error)
    return ""


@pytest.mark.parametrize("mechanism", _VALUES)
def test_a_value_that_is_refused_is_not_printed(mechanism: str) -> None:
    """What the caller computed has a sensitivity, or is refused in one way, without its digits."""
    odd = {name: one for name, one in _ODD.items() if name not in ("hostile", "texts")}
    for name, value in (odd | {"digits": 123456.75}).items():
        told = _refusal(_VALUES[mechanism], value)
        assert not any(part in told for part in ("123456", "000000", "xxx")), name


_PANDAS: dict[str, tuple[Any, Any]] = {
    "a missing whole number": (pd.Series(_BASE), pd.Series([*_BASE, None])),
    "a missing yes or no": (
        pd.Series([True, False] * 400),
        pd.Series([True, False] * 400 + [None]),
    ),
    "a half": (pd.Series(_BASE), pd.Series([*_BASE, 0.5])),
    "a text": (pd.Series(_BASE), pd.Series([*_BASE, "x"])),
    "a missing nullable": (
        pd.Series(_BASE, dtype="Int64"),
        pd.Series([*_BASE, None], dtype="Int64"),
    ),
    "a category": (
        pd.Series(_BASE, dtype="category"),
        pd.Series(["x", *_BASE, None], dtype="category"),
    ),
    "a string": (
        pd.Series(["b", "a"] * 400, dtype="string"),
        pd.Series(["b", "a"] * 400 + [None, "zzzzzzzz"], dtype="string"),
    ),
    "a text among texts": (pd.Series(["b", "a"] * 400), pd.Series(["b", "a"] * 400 + [7])),
    "a wider text": (np.asarray(["b", "a"] * 400), np.asarray(["b", "a"] * 400 + ["zzzz"])),
    "a number among booleans": (
        np.asarray([True, False] * 400),
        np.asarray([True, False] * 400 + [2]),
    ),
    "a complex number": (np.asarray(_BASE), np.asarray([*_BASE, 1j])),
    "a whole number that int64 has not": (np.asarray(_BASE), np.asarray([*_BASE, 2**63])),
    "one that float64 has not": (
        np.asarray([2**53 + 1] * 400 + _BASE),
        np.asarray([2**53 + 1] * 400 + [*_BASE, 0.5]),
    ),
    "a missing one in an array of pandas": (
        pd.array(_BASE, dtype="Int64"),
        pd.array([*_BASE, None], dtype="Int64"),
    ),
    "a sparse one": (
        pd.Series(_BASE, dtype=pd.SparseDtype("int64")),
        pd.Series([*_BASE, None], dtype=pd.SparseDtype("float64")),
    ),
    "a nullable yes or no": (
        pd.Series([True, False] * 400, dtype="boolean"),
        pd.Series([True, False] * 400 + [None], dtype="boolean"),
    ),
    "a finer time": (
        np.asarray(["2020-01-01", "2021-01-01"] * 400, dtype="datetime64"),
        np.asarray(
            ["2020-01-01", "2021-01-01"] * 400 + ["2020-01-01T00:00:01.5"], dtype="datetime64"
        ),
    ),
    "a text among times": (
        pd.Series([pd.Timestamp("2020-01-01")] * 400),
        pd.Series([pd.Timestamp("2020-01-01")] * 400 + ["x"], dtype=object),
    ),
}


@pytest.mark.parametrize("name", _PANDAS)
def test_what_one_record_does_to_a_columns_type_does_not_show(name: str) -> None:
    without, with_it = _PANDAS[name]
    release = _RECORDS["unknown keys"]
    alone = _form(release, without)
    assert _form(release, with_it) == alone
    assert alone[0][-1], "some keys are released"
    if without.dtype.kind in "iufb":
        for mechanism in ("sum", "mean", "variance", "quantile", "numbered cells", "edges"):
            assert _form(_ALL[mechanism], with_it) == _form(_ALL[mechanism], without)


_REVIEWED: dict[str, tuple[Any, Any]] = {
    "a text in a list": (_BASE, [*_BASE, "x"]),
    "a missing value in a Series": (pd.Series(_BASE), pd.Series([*_BASE, None])),
    "a text in an object Series": (
        pd.Series(_BASE, dtype=object),
        pd.Series([*_BASE, "x"], dtype=object),
    ),
}


@pytest.mark.parametrize("name", _REVIEWED)
def test_an_attacker_who_looks_at_the_keys_learns_nothing(name: str) -> None:
    """200 runs each: any test by type, order and names does no better than (ε, δ) allows."""
    seen = []
    for data in _REVIEWED[name]:
        forms = [repr(_shape(histogram(data, epsilon=1, delta=1e-9).value)) for _ in range(200)]
        seen.append(Counter(forms))
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1


@pytest.mark.parametrize("dtype", ["i1", "u1", "u8", "f2", "f4", "f8", "g", "?", ">i4", ">f8"])
def test_every_type_of_number_has_the_same_keys(dtype: str) -> None:
    given = np.asarray([1, 0, 1]).astype(dtype)
    assert [type(key) for key in tallied(given)[0]] == [int, int]
    assert tallied(given)[1].tolist() == numbered(given, 2).tolist() == [1, 2]
    assert named(given, [1, "1", 0]).tolist() == [2, 0, 1]


def test_equal_records_have_equal_keys_and_only_python_types() -> None:
    ones = [1, True, 1.0, np.int8(1), np.uint64(1), np.float16(1), np.longdouble(1), np.True_]
    ones += [Decimal(1), Fraction(1), 1 + 0j, np.complex64(1), _Whole(1), _Real(1)]
    assert {(type(canonical(one)), canonical(one)) for one in ones} == {(int, 1)}
    texts = ["a", np.str_("a"), _Text("a")]
    assert {(type(canonical(one)), canonical(one)) for one in texts} == {(str, "a")}
    assert canonical((np.int8(1), _Text("a"))) == (1, "a")
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    assert canonical(pd.Timestamp("2020-01-01 21:00", tz="Asia/Tokyo")) == noon
    assert canonical(np.datetime64("2020-01-01", "D")) == datetime(2020, 1, 1)
    assert canonical(np.datetime64(10**18, "Y")) is None
    for edge in (2**53, -(2**53), 2.0**53, 1e300, Decimal(2**53)):
        assert canonical(edge) is None
    assert canonical(2**53 - 1) == canonical(2.0**53 - 1) == 2**53 - 1


def test_a_masked_record_shows_by_no_warning() -> None:
    """NumPy warns when it turns one into a number."""
    for data in ([1.0, 2.0], [1.0, 2.0, np.ma.masked]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            private_sum(data, bounds=(0, 10), epsilon=1.0)
        assert caught == []


@pytest.mark.parametrize("hidden", [np.ma.masked_array([1, 999], mask=[0, 1]), np.ma.masked])
@pytest.mark.parametrize(
    "mechanism", [laplace, gaussian, exponential, noisy_max, discrete_laplace, discrete_gaussian]
)
def test_what_a_mask_hides_is_not_released(mechanism: Callable[..., Any], hidden: Any) -> None:
    """The mask left it out, and so no sensitivity speaks of it."""
    asked = {"rho": 1.0} if mechanism in (gaussian, discrete_gaussian) else {"epsilon": 1.0}
    with pytest.raises(InvalidArgument, match=r"must be (finite|integers)"):
        mechanism(hidden, sensitivity=1, **asked)
    shown = np.ma.masked_array([1, 2], mask=False)
    assert np.shape(mechanism(shown, sensitivity=1, **asked).value) in ((), (2,))


def test_a_masked_answer_is_none_of_the_categories() -> None:
    answers = np.ma.masked_array(np.zeros(1_000, dtype=int), mask=True)
    given = randomized_response(answers, epsilon=30, stream=UnsafeSeededStream(0, "mask")).value
    assert 400 < given.sum() < 600
