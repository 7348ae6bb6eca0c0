"""Sums and means: sensitivities that hold for every float64, laws, kinds, counts."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from tacit.accounting import Gaussian, Laplace
from tacit.accounting import epsilon as epsilon_of
from tacit.errors import InvalidArgument
from tacit.mechanisms import mean
from tacit.mechanisms import sum as private_sum
from tacit.mechanisms._columns import Columns, columns_for
from tacit.mechanisms.release import amount
from tacit.randomness import UnsafeSeededStream

from .laws import is_gaussian, is_laplace

_MANY = 200_000
_ANY = st.floats(allow_nan=True, allow_infinity=True)
_ENDS = st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)).filter(
    lambda ends: ends[1] - ends[0] > 1e-290
)

Rows = NDArray[np.float64]


def _totals(rows: Rows, columns: Columns) -> NDArray[np.object_]:
    return columns._totals(rows, np.zeros(rows.shape[1]))


@given(arrays(np.float64, (6, 2), elements=_ANY), st.tuples(_ENDS, _ENDS), st.booleans())
@settings(deadline=None)
def test_no_row_moves_a_sum_by_more_than_is_paid_for(
    rows: Rows, ends: tuple[tuple[float, float], tuple[float, float]], counted: bool
) -> None:
    lower, upper = (np.asarray([one[side] for one in ends]) for side in (0, 1))
    for bits in (8, 32):
        columns = Columns(lower, upper, counted, bits)
        first, last = columns.ends
        added = _totals(rows, columns) - _totals(rows[:-1], columns)
        assert np.all(np.abs(added) <= 2**bits)
        other = rows.copy()
        other[-1] = rows[0]
        replaced = _totals(rows, columns) - _totals(other, columns)
        assert np.all(np.abs(replaced[:2]) <= last - first)
        assert not counted or (added[-1] == 2**bits and replaced[-1] == 0)


def test_a_sum_of_any_number_of_rows_does_not_wrap_around() -> None:
    """2¹⁷ rows of 2⁴⁶ steps, as 2³¹ of the usual 2³² have it."""
    columns = Columns(np.zeros(1), np.ones(1), True, 46)
    rows = np.ones((2**17, 1))
    assert columns._totals(rows, np.zeros(1)).tolist() == [2**63, 2**63]
    noisy = columns.noisy_sums(
        rows, np.zeros(1), Laplace(2.0**-9), UnsafeSeededStream(0, "many rows")
    )
    assert noisy == pytest.approx(2**17)


@given(st.lists(_ENDS, min_size=1, max_size=4), st.booleans())
@settings(deadline=None)
def test_the_event_covers_replacing_a_row(ends: list[tuple[float, float]], counted: bool) -> None:
    """Both distances, computed from the whole numbers themselves."""
    lower, upper = (np.asarray([one[side] for one in ends]) for side in (0, 1))
    columns = Columns(lower, upper, counted, 32)
    first, last = columns.ends
    moved = (last - first) * 2.0**-32
    pure = columns.event(amount(1.0, None, None), "replace-one")
    assert moved.sum() / columns.size <= pure.replace_distance * (1 + 1e-12)
    smooth = columns.event(amount(None, None, 1.0), "replace-one")
    assert np.linalg.norm(moved) / math.sqrt(columns.size) <= smooth.replace_distance * (1 + 1e-12)


def test_float64_sums_are_not_what_is_added_up() -> None:
    """Casacuberta et al. 2022: a float64 sum moves by more than the largest record."""
    rows = np.concatenate([[2.0**53], np.ones(1000)])
    less = np.delete(rows, 0)
    apart = float(np.cumsum(rows)[-1] - np.cumsum(less)[-1])
    assert apart != 2.0**53  # so does NumPy's, in the plainest order
    columns = Columns(np.zeros(1), np.asarray([2.0**53]), False, 32)
    moved = _totals(rows[:, None], columns) - _totals(less[:, None], columns)
    assert moved.tolist() == [2**32]
    shuffled = np.random.default_rng(0).permutation(rows)
    assert np.array_equal(_totals(shuffled[:, None], columns), _totals(rows[:, None], columns))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_laws_and_no_less_noise(adjacency: str) -> None:
    rows = np.zeros((1, _MANY))
    stream = UnsafeSeededStream(0, adjacency)
    for law, accepted, asked in (
        (Laplace, is_laplace, {"epsilon": _MANY / 3.0}),
        (Gaussian, is_gaussian, {"rho": _MANY / 18.0}),
    ):
        released = private_sum(
            rows,
            bounds=(-2, 2),
            adjacency=adjacency,
            stream=stream,
            **asked,  # type: ignore[arg-type]
        )
        assert isinstance(released.event, law)
        scale = 6.0 if adjacency == "add-remove" else 12.0
        assert accepted(released.value, scale)
        assert not accepted(0.97 * released.value, scale)
    means = mean(
        rows,
        bounds=(-2, 2),
        count=1,
        epsilon=_MANY * 50.0,
        adjacency=adjacency,
        stream=stream,  # type: ignore[arg-type]
    ).value
    assert is_laplace(means, 0.04 if adjacency == "add-remove" else 0.08)


def test_a_private_count_has_noise_of_its_own() -> None:
    """The mean under add-remove must not divide by the number of records as it is."""
    values = np.full(50, 1.0)
    found = [
        mean(values, bounds=(-1, 1), epsilon=2, stream=UnsafeSeededStream(seed, "mean")).value
        for seed in range(400)
    ]
    given = [
        mean(
            values, bounds=(-1, 1), count=50, epsilon=2, stream=UnsafeSeededStream(seed, "m")
        ).value
        for seed in range(400)
    ]
    assert np.std(found) > np.std(given)
    assert abs(np.mean(found) - 1) < 0.1
    pure = mean(values, bounds=(-1, 1), epsilon=2)
    assert pure.event.scale == 0.5  # sum and count: 1 each, 2 in L1
    assert pure.event.replace_distance == pytest.approx(1.0)
    assert epsilon_of(pure.event, 1e-9, "basic") == 2.0
    smooth = mean(values, bounds=(-1, 1), rho=0.5)
    assert smooth.event.replace_distance == pytest.approx(math.sqrt(2))


def test_answers_are_close_where_there_is_much_data() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(0, 10, (100_000, 3)) * [1.0, 100.0, 0.01]
    upper = [10.0, 1000.0, 0.1]
    for asked in ({"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.5}):
        found = mean(rows, bounds=(0, upper), **asked).value
        assert np.allclose(found / rows.mean(axis=0), 1, atol=1e-2)
        total = private_sum(rows, bounds=(0, upper), **asked).value
        assert np.allclose(total / rows.sum(axis=0), 1, atol=1e-2)


def test_missing_and_infinite_entries_do_not_poison_the_sum() -> None:
    values = [1.0, math.nan, math.inf, -math.inf, 1e300]
    sure = {"epsilon": 1e6}
    assert private_sum(values, bounds=(-10, 10), **sure).value == pytest.approx(11, abs=0.01)
    assert private_sum([math.nan], bounds=(3, 10), **sure).value == pytest.approx(3, abs=0.01)
    assert mean([math.nan] * 3, bounds=(0, 10), count=3, **sure).value == pytest.approx(5, abs=0.01)


def test_the_mean_stays_within_its_bounds() -> None:
    for seed in range(200):
        found = mean(
            [5.0], bounds=(0, 10), epsilon=0.01, stream=UnsafeSeededStream(seed, "m")
        ).value
        assert 0 <= found <= 10
    assert 0 <= mean([], bounds=(0, 10), epsilon=1).value <= 10
    assert 0 <= mean([], bounds=(0, 10), epsilon=1, adjacency="replace-one").value <= 10


def test_the_same_kind_comes_out() -> None:
    series, frame = pd.Series([1.0, 2.0]), pd.DataFrame({"a": [1, 2], "b": [None, 4]})
    assert type(private_sum([1, 2], bounds=(0, 3), epsilon=1).value) is float
    assert type(mean(series, bounds=(0, 3), epsilon=1).value) is float
    found = private_sum(frame, bounds=(0, 5), epsilon=1e6).value
    assert isinstance(found, pd.Series)
    assert found.index.tolist() == ["a", "b"]
    assert found.round().tolist() == [3.0, 4.0]
    assert mean(np.ones((4, 2)), bounds=(0, 3), epsilon=1).value.shape == (2,)


@given(st.floats(1e-3, 1e3), st.booleans())
@settings(deadline=None)
def test_the_accountant_finds_no_more_than_was_asked(epsilon: float, replaced: bool) -> None:
    adjacency = "replace-one" if replaced else "add-remove"
    columns = columns_for(
        np.asarray([0.0, -3.0]),
        np.asarray([5.0, 1.0]),
        amount(epsilon, None, None),
        adjacency,  # type: ignore[arg-type]
    )
    event = columns.event(amount(epsilon, None, None), adjacency)  # type: ignore[arg-type]
    found = epsilon_of(event, 1e-9, "basic", adjacency)  # type: ignore[arg-type]
    assert found <= epsilon
    assert found == pytest.approx(epsilon, rel=1e-9)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="bounds"):
        private_sum([1.0], epsilon=1)  # type: ignore[call-arg] - never inferred from the data
    with pytest.raises(InvalidArgument, match="bounds must be finite"):
        private_sum([1.0], bounds=(2, 1), epsilon=1)
    with pytest.raises(InvalidArgument, match="one per column \\(1\\)"):
        private_sum(np.ones(1), bounds=([0, 0], [1, 1]), epsilon=1)
    with pytest.raises(InvalidArgument, match="got 3 dimensions"):
        private_sum(np.ones((1, 1, 1)), bounds=(0, 1), epsilon=1)
    with pytest.raises(InvalidArgument, match="values must be numbers, got datetime64"):
        private_sum(np.zeros(2, dtype="datetime64[s]"), bounds=(0, 1), epsilon=1)
    with pytest.raises(InvalidArgument, match=r"values must be an array, a list .* got dict"):
        private_sum({}, bounds=(0, 1), epsilon=1)
    with pytest.raises(InvalidArgument, match="count must be a whole number"):
        mean([1.0], bounds=(0, 1), count=0, epsilon=1)
    with pytest.raises(InvalidArgument, match="epsilon \\(or rho\\) must be larger"):
        mean([1.0], bounds=(0, 1), epsilon=1e-12)
