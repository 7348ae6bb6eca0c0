"""Polars columns are read as lists are, record by record; frames answer by the name of a column."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.mechanisms import (
    bounded_laplace,
    covariance,
    histogram,
    laplace,
    mean,
    noisy_sum,
    quantile,
    standard_deviation,
    top_k,
    variance,
)
from tacit.mechanisms._keys import places, tallied
from tacit.mechanisms._records import numbers
from tacit.randomness import UnsafeSeededStream

pl = pytest.importorskip("polars", reason="Polars is not installed here: pip install polars")

_SURE = {"epsilon": 1e7}


def _stream() -> UnsafeSeededStream:
    return UnsafeSeededStream(0, "polars")


def _columns() -> dict[str, Any]:
    return {
        "whole": pl.Series([3, None, 2**53 + 1, -1], dtype=pl.Int64),
        "small": pl.Series([3, None, 255, 0], dtype=pl.UInt8),
        "wide": pl.Series([3, None, 10**30, -1], dtype=pl.Int128),
        "real": pl.Series([3.0, None, math.nan, -math.inf, 0.5], dtype=pl.Float64),
        "short": pl.Series([3.0, None, math.nan, 0.1], dtype=pl.Float32),
        "yes or no": pl.Series([True, None, False]),
        "exact": pl.Series([Decimal("1.50"), None, Decimal(2)], dtype=pl.Decimal(20, 2)),
        "text": pl.Series(["7", None, "x", ""]),
        "category": pl.Series(["7", None, "x", "x"], dtype=pl.Categorical),
        "enum": pl.Series(["x", None, "7"], dtype=pl.Enum(["7", "x"])),
        "bytes": pl.Series([b"x", None]),
        "objects": pl.Series([1, "x", 10**400, None, [1]], dtype=pl.Object),
        "lists": pl.Series([[1, 2], None, []]),
        "structs": pl.Series([{"a": 1}, {"a": None}]),
        "nothing": pl.Series([None, None]),
    }


@pytest.mark.parametrize("name", list(_columns()))
def test_a_column_is_read_as_the_list_of_its_records(name: str) -> None:
    column = _columns()[name]
    listed = [float(np.float32(one)) if name == "short" and one is not None else one
              for one in column.to_list()]  # fmt: skip
    assert np.array_equal(numbers("values", column), numbers("values", listed), equal_nan=True)
    assert tallied(column)[0] == tallied(listed)[0]
    assert tallied(column)[1].tolist() == tallied(listed)[1].tolist()
    keys: list[Any] = [3, "x", 1, "7", 0.5, b"x", -1]
    assert places(column, keys).tolist() == places(listed, keys).tolist()


def test_dates_and_times() -> None:
    """One beyond the year 9999 would end in a panic of Polars itself: it has no key."""
    days = pl.Series([0, 18262, None, 2**30], dtype=pl.Int32).cast(pl.Date)
    assert tallied(days)[0] == [date(1970, 1, 1), date(2020, 1, 1)]
    assert places(days, [date(2020, 1, 1)]).tolist() == [-1, 0, -1, -1]
    for unit, noon in (("ms", 43_200_000), ("us", 43_200_000_000), ("ns", 43_200_000_000_000)):
        ticks = pl.Series([noon, None, 2**62], dtype=pl.Int64)
        plain = tallied(ticks.cast(pl.Datetime(unit)))[0]
        assert datetime(1970, 1, 1, 12) in plain
        zoned = ticks.cast(pl.Datetime(unit)).dt.replace_time_zone("UTC")
        assert (
            datetime(1970, 1, 1, 12, tzinfo=UTC)
            in tallied(zoned.dt.convert_time_zone("Asia/Tokyo"))[0]
        )
    assert tallied(pl.Series([1], dtype=pl.Int64).cast(pl.Duration("us")))[0] == []
    with pytest.raises(InvalidArgument, match="values must be numbers, got Date"):
        mean(days, bounds=(0, 1), epsilon=1)


def test_no_record_shows_by_what_it_does_to_a_column() -> None:
    for without, with_it in (
        (pl.Series([1, 2] * 400), pl.Series([1, 2] * 400 + [None])),
        (pl.Series([1, 2] * 400), pl.Series([1.0, 2.0] * 400 + [0.5])),
        (pl.Series(["a", "b"] * 400), pl.Series(["a", "b"] * 400 + [None, "zzzzzzzz"])),
        (
            pl.Series([0] * 400, dtype=pl.Int32).cast(pl.Date),
            pl.Series([0] * 400 + [2**30], dtype=pl.Int32).cast(pl.Date),
        ),
    ):
        found = [
            histogram(one, epsilon=1, delta=1e-9, stream=_stream()).value
            for one in (without, with_it)
        ]
        forms = [[(type(key), key) for key in one] for one in found]
        assert forms[0] == forms[1] != []


def test_frames() -> None:
    frame = pl.DataFrame({"age": [30, None, 50] * 400, "ward": ["n", "s", "n"] * 400})
    found = mean(frame, bounds={"age": (0, 120)}, skip_missing=True, **_SURE).value
    assert {name: round(one, 2) for name, one in found.items()} == {"age": 40.0}
    all_columns = noisy_sum(frame.select("age"), bounds=(0, 120), **_SURE).value
    assert all_columns["age"] == pytest.approx(32_000, abs=0.1)
    asked: Any = {"bounds": {"age": (0, 120)}, "skip_missing": True, **_SURE}
    assert variance(frame, **asked).value["age"] == pytest.approx(100, rel=1e-3)
    assert standard_deviation(frame, **asked).value["age"] == pytest.approx(10, rel=1e-3)
    crossed = histogram(frame, cells={"ward": ["n", "s"]}, edges={"age": [0, 40, 99]}, epsilon=60)
    assert crossed.value.tolist() == [[400, 400], [0, 0]]
    assert histogram(frame["ward"], cells=["s", "n"], epsilon=60).value.tolist() == [400, 800]
    keys = histogram(frame, epsilon=60, delta=1e-9).value
    assert keys == {(30, "n"): 400, (50, "n"): 400}
    with pytest.raises(InvalidArgument, match="must name columns of values, got 'pay'"):
        mean(frame, bounds={"pay": (0, 1)}, epsilon=1)
    with pytest.raises(InvalidArgument, match="got LazyFrame"):
        mean(frame.lazy(), bounds=(0, 1), epsilon=1)


def test_columns() -> None:
    ages = pl.Series("age", [30, 31, 31, None, 45] * 300)
    assert quantile(ages, 0.5, bounds=(0, 99), step=1, skip_missing=True, epsilon=9).value == 31
    assert mean(ages, bounds=(0, 99), skip_missing=True, **_SURE).value == pytest.approx(34.25)
    assert histogram(ages, edges=[0, 31, 99], epsilon=60).value.tolist() == [300, 900]
    scores = pl.Series([3.0, 9.0, 4.0])
    assert top_k(scores, 2, sensitivity=1e-6, epsilon=1).value == [1, 2]
    noisy = laplace(scores, sensitivity=1, epsilon=1).value
    assert isinstance(noisy, np.ndarray)
    assert noisy.shape == (3,)
    assert bounded_laplace(pl.Series([0.5]), sensitivity=1, bounds=(0, 1), epsilon=1).value < 1
    rows = pl.DataFrame({"a": [0.1] * 50, "b": [0.2, None] * 25})
    assert covariance(rows, norm=1, rho=1).value.shape == (2, 2)
