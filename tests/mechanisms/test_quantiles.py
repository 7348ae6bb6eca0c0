"""Quantiles: the exact law over the points, and scores that move as little as is said."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import Exponential
from tacit.errors import InvalidArgument
from tacit.mechanisms import quantile, quantiles
from tacit.mechanisms._races import numbers_below, winners
from tacit.mechanisms.quantiles import _PARTS, _placed, _regions
from tacit.randomness import UnsafeSeededStream

from .laws import has_weights


def _scores(places: list[int], points: int, share: int) -> np.ndarray:
    """Every point's score, by counting: the oracle."""
    data = np.asarray(places)
    return np.asarray(
        [
            -abs((_PARTS - share) * int((data < g).sum()) - share * int((data > g).sum()))
            for g in range(points + 1)
        ]
    )


def _expanded(places: list[int], points: int, share: int) -> np.ndarray:
    starts, sizes, scores = _regions(np.sort(np.asarray(places, dtype=np.int64)), points, share)
    found = np.zeros(points + 1, dtype=np.int64)
    for start, size, score in zip(starts, sizes, scores, strict=True):
        found[start : start + size] = score
    assert sizes.sum() == points + 1
    return found


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(0, _PARTS))
def test_every_point_has_its_score(places: list[int], share: int) -> None:
    assert np.array_equal(_expanded(places, 30, share), _scores(places, 30, share))


@given(
    st.lists(st.integers(0, 30), max_size=12),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, _PARTS),
)
def test_how_far_a_record_moves_a_score(
    places: list[int], one: int, other: int, share: int
) -> None:
    before, after = (_expanded(list(data), 30, share) for data in (places, [*places, one]))
    assert np.abs(before - after).max() <= max(share, _PARTS - share)
    replaced = _expanded([*places, other], 30, share)
    assert np.abs(replaced - after).max() <= _PARTS


@pytest.mark.parametrize("q", [pytest.param(0.25, marks=pytest.mark.slow), 0.5, 0.9])
def test_the_law_and_no_less_noise(q: float) -> None:
    points, share, draws = 20, round(q * _PARTS), 200_000
    places = np.sort(np.random.default_rng(0).integers(0, points + 1, 21))
    starts, sizes, scores = _regions(places, points, share)
    rate = Fraction(1) / (2 * max(share, _PARTS - share))
    stream = UnsafeSeededStream(0, f"quantile {q}")
    regions = winners(scores, rate, "gumbel", draws, stream, sizes)
    weights = sizes * np.exp(float(rate) * scores)
    assert has_weights(regions, weights)
    less = winners(scores, rate / Fraction("0.97"), "gumbel", draws, stream, sizes)
    assert not has_weights(less, weights)
    spread = [numbers_below(int(sizes[one]), 1, stream)[0] for one in regions[:20_000]]
    exact = np.exp(float(rate) * _scores(places.tolist(), points, share))
    assert has_weights(starts[regions[:20_000]] + np.asarray(spread), exact)


def test_close_to_the_quantile_where_there_is_much_data() -> None:
    values = np.random.default_rng(0).normal(size=50_000)
    for q in (0.1, 0.5, 0.99):
        for adjacency in ("add-remove", "replace-one"):
            found = quantile(values, q, bounds=(-6, 6), epsilon=1, adjacency=adjacency).value  # type: ignore[arg-type]
            assert abs((values < found).mean() - q) < 2e-3
    ages = np.random.default_rng(0).integers(0, 90, 10_000)
    assert quantile(ages, 0.5, bounds=(0, 120), step=1, epsilon=1).value == np.median(ages)


def test_every_record_counts_whatever_it_is() -> None:
    values = [math.nan, math.inf, -math.inf, 1e308, -1e308]
    assert _placed(values, -1.0, 2.0, 10).tolist() == [0, 0, 5, 10, 10]
    assert -1 <= quantile(values, 0.5, bounds=(-1, 1), epsilon=1).value <= 1
    assert 0 <= quantile([], 0.5, bounds=(0, 1), epsilon=1).value <= 1
    assert type(quantile(pd.Series([1, None, 3]), 0.5, bounds=(0, 9), epsilon=1).value) is float


def test_the_event_and_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quantile([1.0], 0.5, bounds=(0, 2), epsilon=0.4).event == Exponential(0.4, "add-remove")
    seen = []
    monkeypatch.setattr(
        quantiles, "winner", lambda _scores, rate, *_: seen.append(rate * _PARTS) or 0
    )
    quantile([1.0], 0.5, bounds=(0, 2), epsilon=1)
    quantile([1.0], 0.75, bounds=(0, 2), epsilon=1)
    quantile([1.0], 0.5, bounds=(0, 2), epsilon=1, adjacency="replace-one")
    assert seen == [1, Fraction(2, 3), Fraction(1, 2)]


@pytest.mark.parametrize("skip", [False, True])
def test_blanking_out_a_record_tells_no_more_than_epsilon(
    monkeypatch: pytest.MonkeyPatch, skip: bool
) -> None:
    laws = []

    def law(scores: Any, rate: Fraction, _law: str, _stream: Any, sizes: Any) -> int:
        weights = np.repeat(np.exp(float(rate) * (scores - scores.max())), sizes)
        order = np.repeat(starts, sizes) + np.concatenate([np.arange(size) for size in sizes])
        laws.append(np.log(weights / weights.sum())[np.argsort(order)])
        return 0

    monkeypatch.setattr(quantiles, "winner", law)
    for blanked in (0, None):
        data = [blanked] + [0] * 5 + [48] + [51] * 5
        starts = _regions(_placed(data, 0.0, 100.0, 100, skip), 100, _PARTS // 2)[0]
        quantile(
            data, 0.5, bounds=(0, 100), step=1, skip_missing=skip, epsilon=1, adjacency="zero-out"
        )
    assert np.abs(laws[0] - laws[1]).max() <= 1


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.floats(0, 1))
def test_the_answer_lies_within_the_bounds(lower: float, width: float, q: float) -> None:
    upper = lower + width
    found = quantile([lower, upper], q, bounds=(lower, upper), epsilon=1).value
    assert lower <= found <= upper


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match=r"q must lie between 0 and 1, got 1\.5"):
        quantile([1.0], 1.5, bounds=(0, 1), epsilon=1)
    with pytest.raises(InvalidArgument, match="step must divide the bounds"):
        quantile([1.0], 0.5, bounds=(0, 1), step=2, epsilon=1)
    with pytest.raises(InvalidArgument, match="one number per record"):
        quantile(np.ones((1, 1)), 0.5, bounds=(0, 1), epsilon=1)


def test_missing_records_are_skipped_and_nothing_else() -> None:
    values: list[Any] = [0, 0, 0, 1, None, math.nan, "x", [9], math.inf, -math.inf, "1"]
    kept = _placed(values, 0.0, 4.0, 4, skip=True)
    assert kept.tolist() == [0, 0, 0, 0, 1, 1, 4]
    assert _placed(values, 0.0, 4.0, 4).tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 4]
    for skip, middle in ((True, 0.0), (False, 5.0)):
        found = quantile(
            [0.0] * 300 + [None] * 1000, 0.5, bounds=(0, 10), step=1, skip_missing=skip, epsilon=5
        ).value
        assert found == middle
