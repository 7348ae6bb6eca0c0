"""Histograms: every type of key, the law, the threshold of unknown keys, what one record moves."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import ApproxDp, DiscreteGaussian, DiscreteLaplace, Repeated
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.mechanisms import _keys, histogram
from tacit.mechanisms._keys import named, numbered, tallied
from tacit.mechanisms.histograms import _counted, threshold
from tacit.randomness import UnsafeSeededStream

from .laws import has_integer_weights

_CELLS = 200_000
_SURE = 60.0  # an ε at which noise is 0, all but surely


def _stream(name: object = "cells") -> UnsafeSeededStream:
    return UnsafeSeededStream(0, str(name))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_laws_and_no_less_noise(adjacency: Any) -> None:
    empty: list[int] = []
    apart = 1 if adjacency == "add-remove" else 2

    def noise(**asked: float) -> Any:
        return histogram(empty, cells=2 * _CELLS, adjacency=adjacency, stream=_stream(), **asked)

    assert has_integer_weights(noise(epsilon=0.5).value, 2.0 * apart, 1)
    assert not has_integer_weights(noise(epsilon=0.5 / 0.97).value, 2.0 * apart, 1)
    released = noise(rho=0.1 * apart)
    assert has_integer_weights(released.value, math.sqrt(5), 2)
    assert not has_integer_weights(noise(rho=0.1 * apart / 0.97**2).value, math.sqrt(5), 2)


def test_events() -> None:
    def event(adjacency: Any = None, **asked: float) -> Any:
        return histogram([0], cells=3, adjacency=adjacency, **asked).event

    assert event(epsilon=0.5) == DiscreteLaplace(2.0)
    assert event("replace-one", epsilon=0.5) == DiscreteLaplace(4.0)
    assert isinstance(event(rho=0.1), DiscreteGaussian)
    assert isinstance(event("replace-one", rho=0.1), Repeated)
    for adjacency, delta in itertools.product(("add-remove", "replace-one"), (1e-5, 1e-9)):
        found = epsilon_of(event(adjacency, epsilon=1, delta=delta), delta, adjacency=adjacency)
        assert 0.9 < found <= 1


_KEYS = st.one_of(
    st.lists(st.integers(-3, 3), max_size=30),
    st.lists(st.sampled_from([0.5, 1.0, math.nan, -math.inf, 3.0]), max_size=30),
    st.lists(st.sampled_from(["", "a", "b", "ab", "ba", "é", "𝄞"]), max_size=30),
    st.lists(st.sampled_from([b"", b"a", b"b", b"ab"]), max_size=30),
    st.lists(st.booleans(), max_size=30),
)


@given(_KEYS, st.booleans())
def test_keys_are_counted_as_a_counter_does(keys: list[Any], series: bool) -> None:
    present = Counter(key for key in keys if key == key and key != -math.inf)  # noqa: PLR0124
    given = pd.Series(keys, dtype=object if not keys else None) if series else np.asarray(keys)
    found, counts = tallied(given)
    assert dict(zip(found, counts.tolist(), strict=True)) == dict(present)
    assert list(found) == sorted(found)
    cells = [*sorted(present)[:3], "other" if keys and isinstance(keys[0], str) else 77]
    if keys and isinstance(keys[0], bytes):
        cells[-1] = b"other"
    tally = named(given, cells)
    assert tally.tolist() == [present.get(cell, 0) for cell in cells]


def test_texts_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_keys, "_hashes", lambda texts: np.zeros(len(texts), dtype=np.uint64))
    given = np.asarray(["a", "b", "b", "c"])
    assert tallied(given)[0] == ["a", "b", "c"]
    assert tallied(given)[1].tolist() == [1, 2, 1]
    assert named(given, ["b", "c", "x"]).tolist() == [2, 1, 0]


def test_hashes_differ() -> None:
    texts = np.asarray(["".join(one) for one in itertools.product("abcdefghij", repeat=5)])
    assert len(np.unique(_keys._hashes(texts))) == len(texts)


@given(st.lists(st.sampled_from([-1, 0, 1, 2, 3, 7, 2**40]), max_size=40))
def test_numbered_cells(values: list[int]) -> None:
    expected = [values.count(k) for k in range(4)]
    assert numbered(np.asarray(values, dtype=np.int64), 4).tolist() == expected
    assert numbered(np.asarray([*values, 0.5, math.nan]), 4).tolist() == expected
    assert numbered(np.asarray([*values, None], dtype=object), 4).tolist() == expected


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=20))
def test_cells_between_edges_are_numpys(values: list[float]) -> None:
    edges = [-10.0, 0.0, 0.5, 1e6]
    numbers = np.asarray(values, dtype=np.float64)
    expected, _ = np.histogram(numbers[np.isfinite(numbers)], edges)
    assert _counted(numbers, None, edges)[1].tolist() == expected.tolist()


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(0, 9), st.integers(0, 9))
def test_what_a_record_moves(values: list[int], one: int, other: int) -> None:
    before, after, replaced = (
        numbered(np.asarray(data, dtype=np.int64), 6)
        for data in (values, [*values, one], [*values, other])
    )
    assert np.abs(after - before).sum() <= 1
    assert np.abs(after - replaced).sum() <= 2


@pytest.mark.parametrize("scale", [0.1, 1.0, 7.3, 200.0])
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
def test_the_threshold_is_the_least_that_holds(scale: float, delta: float) -> None:
    ratio = mpmath.exp(-1 / mpmath.mpf(scale))

    def reached(least: int) -> mpmath.mpf:
        """By a count of one: the sum of a geometric row."""
        return ratio ** (least - 1) / (1 + ratio)

    found = threshold(scale, delta)
    assert reached(found) <= delta
    assert found == 2 or reached(found - 1) > delta * (1 - 1e-9)


def test_keys_of_one_record_come_out_as_rarely_as_promised() -> None:
    alone = np.arange(_CELLS)
    for adjacency, share in (("add-remove", 1), ("replace-one", 2)):
        released = histogram(
            alone,
            epsilon=1,
            delta=0.01,
            adjacency=adjacency,
            stream=_stream(adjacency),  # type: ignore[arg-type]
        )
        assert released.event == ApproxDp(1.0, 0.01, adjacency)
        rate = len(released.value) / _CELLS
        assert rate <= 0.01 / share + 5 * math.sqrt(0.01 / _CELLS)
        assert rate > 0.003 / share


def test_unknown_keys_come_out_sorted_with_their_counts() -> None:
    values = ["z"] * 500 + ["a"] * 400 + ["once"]
    released = histogram(values, epsilon=1, delta=1e-9, stream=_stream())
    assert list(released.value) == ["a", "z"]
    assert released.value["z"] == pytest.approx(500, abs=30)
    series = histogram(pd.Series(values), epsilon=1, delta=1e-9, stream=_stream()).value
    assert isinstance(series, pd.Series)
    assert series.index.tolist() == ["a", "z"]
    mixed = histogram(
        np.asarray(["a"] * 300 + [7] * 300 + [None] * 300, dtype=object), epsilon=1, delta=1e-9
    )
    assert set(mixed.value) == {"a", 7}


def test_the_same_kind_comes_out() -> None:
    values = ["b", "a", "b", "x"]
    counts = histogram(values, cells=["a", "b", "c"], epsilon=_SURE).value
    assert counts.tolist() == [1, 2, 0]
    assert counts.dtype == np.int64
    series = histogram(pd.Series(values), cells=["a", "b", "c"], epsilon=_SURE).value
    assert series.to_dict() == {"a": 1, "b": 2, "c": 0}
    numbers = pd.Series([1, 2, 2, 9])
    assert histogram(numbers, cells=[2, 1], epsilon=_SURE).value.to_dict() == {2: 2, 1: 1}
    binned = histogram(numbers, edges=[0, 2, 9], epsilon=_SURE).value
    assert binned.tolist() == [1, 3]
    assert pd.Interval(0, 2, closed="left") in binned.index


_ENTRIES = st.sampled_from(["a", "b", "zz", None, 1, 1.0, True, 2, 0.5, math.nan, 10**400, [1]])
_ROWS = st.lists(st.tuples(_ENTRIES, _ENTRIES, st.sampled_from([0, 1, 2.5, 9, -1, "3", None])))


@given(_ROWS, st.sampled_from(["mapping", "frame", "array", "categories"]))
@settings(deadline=None, max_examples=60)
def test_cells_of_several_columns_are_counted_row_by_row(rows: list[Any], kind: str) -> None:
    """Against a loop over the rows."""
    cells, edges = {"x": ["a", 1, "b"], "y": 3}, {"z": [0, 1, 3, 9]}
    expected = np.zeros((3, 3, 3), dtype=np.int64)
    for x, y, z in rows:
        first = {"a": 0, 1: 1, "b": 2}.get(x if not isinstance(x, list) else None, -1)
        second = y if isinstance(y, int | float) and y in (0, 1, 2) else -1
        number = math.nan if z is None else float(z)
        third = -1 if not 0 <= number <= 9 else (0 if number < 1 else 1 if number < 3 else 2)
        if min(first, second, third) >= 0:
            expected[first, int(second), third] += 1
    columns: dict[str, Any] = {
        name: [row[place] for row in rows] for place, name in enumerate("xyz")
    }
    values: Any = columns
    if kind == "frame":
        values = pd.DataFrame({name: pd.Series(columns[name], dtype=object) for name in "xyz"})
    if kind == "categories":
        texts = [x if isinstance(x, str) else None for x in columns["x"]]
        values = columns | {"x": pd.Series(pd.Categorical(texts, categories=["zz", "b", "a"]))}
        expected[1] = 0
    if kind == "array":
        held = np.empty((len(rows), 3), dtype=object)
        for place, row in enumerate(rows):
            for at in range(3):
                held[place, at] = row[at]
        values = held
        cells, edges = {0: cells["x"], 1: 3}, {2: edges["z"]}  # type: ignore[dict-item]
    found = histogram(values, cells=cells, edges=edges, epsilon=_SURE, stream=_stream()).value
    if kind == "frame":
        assert list(found.index.names) == ["x", "y", "z"]
        found = found.to_numpy().reshape(3, 3, 3)
    assert np.array_equal(found, expected)


def test_several_columns_have_the_noise_and_event_of_one() -> None:
    nobody = np.zeros((0, 2), dtype=np.int64)
    for adjacency, apart in (("add-remove", 1), ("replace-one", 2)):
        released = histogram(
            nobody,
            cells={0: 400, 1: 500},
            epsilon=0.5,
            adjacency=adjacency,  # type: ignore[arg-type]
            stream=_stream(),
        )
        assert released.value.shape == (400, 500)
        assert released.event == DiscreteLaplace(2.0 * apart)
        assert has_integer_weights(released.value.ravel(), 2.0 * apart, 1)
        assert not has_integer_weights(released.value.ravel(), 2.1 * apart, 1)
    one = histogram(np.zeros((0, 1)), cells={0: 3}, rho=0.1)
    assert one.value.shape == (3,)
    assert isinstance(one.event, DiscreteGaussian)


def test_frames_have_an_index_of_levels() -> None:
    frame = pd.DataFrame({"age": [31.0, None, 70], "blood": ["A", "B", "A"], "n": [1, 2, 3]})
    found = histogram(
        frame, cells={"blood": ["A", "B"]}, edges={"age": [0, 50, 120]}, epsilon=_SURE
    ).value
    assert found[("A", pd.Interval(0, 50, closed="left"))] == 1
    assert found.groupby(level="blood").sum().to_dict() == {"A": 2, "B": 0}
    assert list(histogram(frame, cells={"n": [3, 1]}, epsilon=_SURE).value.index) == [(3,), (1,)]


def test_unknown_keys_of_several_columns_are_tuples() -> None:
    frame = pd.DataFrame(
        {"b": [1, 2, 1, None] * 300 + [9], "a": ["x", "y", "x", "z"] * 300 + ["once"]}
    )
    released = histogram(frame, epsilon=1, delta=1e-9, stream=_stream())
    assert list(released.value.index) == [(1, "x"), (2, "y")]
    assert [type(part) for part in released.value.index[0]] == [int, str]
    assert released.value[(1, "x")] == pytest.approx(600, abs=30)


@settings(deadline=None, max_examples=20)
@given(st.floats(0.05, 5))
def test_a_cell_that_nobody_is_in_is_released_too(epsilon: float) -> None:
    assert len(histogram([], cells=["a", "b"], epsilon=epsilon).value) == 2


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="give either cells or edges"):
        histogram([1], cells=3, edges=[0, 1], epsilon=1)
    with pytest.raises(InvalidArgument, match="delta must be given where cells= is not"):
        histogram([1], epsilon=1)
    with pytest.raises(InvalidArgument, match="cells must be one or more different"):
        histogram([1], cells=[1, 1], epsilon=1)
    with pytest.raises(InvalidArgument, match="cells must be a whole number"):
        histogram([1], cells=0, epsilon=1)
    with pytest.raises(InvalidArgument, match="edges must be two or more increasing"):
        histogram([1], edges=[0, 0], epsilon=1)
    with pytest.raises(InvalidArgument, match="numbers below 2\\*\\*53, texts"):
        histogram([1], cells=[None, 2**53], epsilon=1)
    with pytest.raises(InvalidArgument, match="cells must be one or more different"):
        histogram([1], cells="ab", epsilon=1)
    assert len(histogram([1], cells=np.int64(3), epsilon=1).value) == 3  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="one cell per record, got 2 dimensions"):
        histogram(np.ones((2, 2)), cells=3, epsilon=1)
    with pytest.raises(InvalidArgument, match="one number per record, got 2 dimensions"):
        histogram(np.ones((2, 2)), edges=[0, 1], epsilon=1)
    with pytest.raises(InvalidArgument, match="cells and edges must name different columns"):
        histogram({"a": [1]}, cells={"a": 3}, edges={"a": [0, 1]}, epsilon=1)
    with pytest.raises(InvalidArgument, match="cells and edges must name different columns"):
        histogram({"a": [1]}, cells={"a": 3}, edges=[0, 1], epsilon=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="must name columns of values, got 'b'"):
        histogram({"a": [1]}, cells={"b": 3}, epsilon=1)
    with pytest.raises(InvalidArgument, match="columns of one length"):
        histogram({"a": [1], "b": [1, 2]}, cells={"a": 3, "b": 3}, epsilon=1)
    with pytest.raises(InvalidArgument, match=r"at most 2\*\*28 cells, got \(100000, 100000\)"):
        histogram({"a": [1], "b": [1]}, cells={"a": 10**5, "b": 10**5}, epsilon=1)
    with pytest.raises(InvalidArgument, match="edges must be two or more increasing"):
        histogram({"a": [1]}, edges={"a": [1]}, epsilon=1)
    with pytest.raises(InvalidArgument, match=r"values must be an array, a list .* got str"):
        histogram("text", cells=3, epsilon=1)
