"""Variances, and what one record moves: every pair of neighbours of a small domain, by brute force.

The whole numbers that a release adds noise to are taken from it for all data sets of two records
out of a domain that holds the ends, the middle, what is beyond, and what is missing. Between
neighbours they must not differ by more than the event says, and for some they do differ by it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from tacit.accounting.events import Laplace, distance
from tacit.errors import InvalidArgument
from tacit.mechanisms import mean, noisy_sum, standard_deviation, variance
from tacit.mechanisms._columns import Asking, Columns, centred_means
from tacit.mechanisms.release import agreed, amount
from tacit.mechanisms.variances import _APART_L1, _APART_L2
from tacit.randomness import UnsafeSeededStream

from .laws import is_gaussian, is_laplace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_SURE = {"epsilon": 1e7}
_MANY = 100_000
_DOMAIN = [3.0, 10.0, 6.5, 3.8, 5.625, 5.98744, 99.0, -math.inf, math.nan, "x"]


@pytest.fixture
def totals(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.float64]]:
    """What noise is added to, measured in the most that a row adds."""
    seen: list[NDArray[np.float64]] = []
    compute = Columns._totals

    def spy(self: Columns, *arguments: Any) -> Any:
        found = compute(self, *arguments)
        seen.append(found.astype(np.float64) / 2.0**self.bits)
        return found

    monkeypatch.setattr(Columns, "_totals", spy)
    return seen


def _moves(
    release: Callable[..., Any], totals: list[NDArray[np.float64]], adjacency: str, asked: Any
) -> tuple[float, float]:
    """The most that neighbours differ by, over what is paid for; and what is paid for."""
    norm = 1 if "epsilon" in asked else 2
    worst = 0.0
    for kept in _DOMAIN[::3]:
        totals.clear()
        events = {
            release(data, bounds=(3, 10), adjacency=adjacency, **asked).event
            for data in ([kept], *([kept, one] for one in _DOMAIN))
        }
        assert len(events) == 1
        neighbours = totals[1:] if adjacency == "replace-one" else totals[:1]
        gaps = np.subtract(np.asarray(totals[1:])[:, None], np.asarray(neighbours))
        worst = max(worst, float(np.linalg.norm(gaps, norm, axis=-1).max()))
    shared = len(totals[0]) if norm == 1 else math.sqrt(len(totals[0]))
    return worst / shared, distance(events.pop().replace_distance, adjacency)  # type: ignore[arg-type]


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("asked", [{"epsilon": 1.0}, {"rho": 1.0}], ids=str)
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("release", [noisy_sum, mean, variance])
def test_no_record_moves_more_than_is_paid_for(
    release: Any, skip: bool, asked: Any, adjacency: str, totals: Any
) -> None:
    moved, paid = _moves(
        lambda *a, **k: release(*a, **k, skip_missing=skip), totals, adjacency, asked
    )
    assert moved <= paid * (1 + 1e-9)
    assert moved >= 0.99 * paid, "and not for less"


def test_how_far_an_entry_moves_both_sums() -> None:
    """By a fine grid, and the places where it is attained."""
    t = np.linspace(-1, 1, 801)
    points = np.stack([t, 2 * t**2 - 1])
    gaps = points[:, :, None] - points[:, None, :]
    assert np.abs(gaps).sum(axis=0).max() == pytest.approx(_APART_L1, abs=1e-9)  # from 1 to -1/4
    assert 0 <= _APART_L2 - np.sqrt((gaps**2).sum(axis=0)).max() < 2e-5
    with_number = np.vstack([points, np.ones_like(t)])
    assert np.abs(with_number).sum(axis=0).max() <= _APART_L1
    assert np.sqrt((with_number**2).sum(axis=0)).max() <= _APART_L2


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_laws_and_no_less_noise(adjacency: Any) -> None:
    """Two features of many columns: every sum has the noise of the event."""
    rows, ones = np.zeros((1, _MANY)), np.ones(_MANY)
    joint = (_APART_L1 * _MANY, _APART_L2 * math.sqrt(_MANY))
    for asked, accepted, moved in (
        (amount(2e3 * _MANY, None, None), is_laplace, 25 / 16),
        (amount(None, None, 1e6 * _MANY), is_gaussian, 2.26818 / math.sqrt(2)),
    ):
        terms = agreed("variance", adjacency, None, None, "", UnsafeSeededStream(0, adjacency))
        grant, found = centred_means(
            [rows, rows], [ones, ones], joint, Asking(1, False, asked, terms)
        )
        assert isinstance(grant.event, Laplace) == asked.pure
        scale = 1e-3 * (moved if adjacency == "replace-one" else 1.0)
        noise = np.concatenate(found)
        assert accepted(noise, scale)
        assert not accepted(0.97 * noise, scale)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "zero-out"])
def test_values_are_numpys(adjacency: Any) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal([50, 2], [10, 0.1], (4000, 2))
    bounds = ([0, 1], [100, 3])
    found = variance(rows, bounds=bounds, adjacency=adjacency, **_SURE).value
    assert found == pytest.approx(rows.var(axis=0), rel=1e-3)
    deviation = standard_deviation(rows, bounds=bounds, adjacency=adjacency, **_SURE).value
    assert deviation == pytest.approx(rows.std(axis=0), rel=1e-3)
    clipped = variance(rows, bounds=(45, 55), adjacency=adjacency, **_SURE).value
    assert clipped[0] == pytest.approx(np.clip(rows[:, 0], 45, 55).var(), rel=1e-3)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_missing_entries_are_skipped_column_by_column(adjacency: Any) -> None:
    rows = np.random.default_rng(1).uniform(2, 9, (3000, 2))
    rows[::3, 0] = math.nan
    rows[1::4, 1] = math.nan
    asked = {"bounds": (1, 10), "skip_missing": True, "adjacency": adjacency, **_SURE}
    assert mean(rows, **asked).value == pytest.approx(np.nanmean(rows, axis=0), rel=1e-3)
    assert variance(rows, **asked).value == pytest.approx(np.nanvar(rows, axis=0), rel=1e-3)
    assert noisy_sum(rows, **asked).value == pytest.approx(np.nansum(rows, axis=0), rel=1e-3)
    public = mean(rows[:, 0], **asked, count=2000)
    assert public.value == pytest.approx(np.nanmean(rows[:, 0]), rel=1e-3)
    assert mean(rows[:, 0], **asked).event != public.event, "a private number costs"
    kept = mean(rows[:, 0], **(asked | {"skip_missing": False})).value
    assert kept == pytest.approx((np.nansum(rows[:, 0]) + 1000 * 5.5) / 3000, rel=1e-3)


def test_answers_lie_where_variances_do() -> None:
    for seed in range(60):
        stream = UnsafeSeededStream(seed, "v")
        assert 0 <= variance([5.0], bounds=(0, 10), epsilon=0.01, stream=stream).value <= 25
        found = standard_deviation([], bounds=(0, 10), rho=0.01, stream=stream).value
        assert 0 <= found <= 5
    assert variance([math.nan] * 9, bounds=(0, 1), skip_missing=True, **_SURE).value <= 0.25


def test_columns_with_declared_bounds() -> None:
    frame = pd.DataFrame(
        {"age": [30, None, 50] * 400, "name": ["a", "b", "c"] * 400, "pay": [1e3, 2e3, 3e3] * 400}
    )
    bounds = {"pay": (0, 4e3), "age": (0, 120)}
    found = mean(frame, bounds=bounds, skip_missing=True, **_SURE).value
    assert isinstance(found, pd.Series)
    assert found.round(1).to_dict() == {"pay": 2000.0, "age": 40.0}
    plain = {name: frame[name].tolist() for name in frame}
    for values in (plain, {name: frame[name] for name in frame}):
        again = mean(values, bounds=bounds, skip_missing=True, **_SURE).value
        assert {name: round(one, 1) for name, one in again.items()} == found.round(1).to_dict()
    assert variance(frame, bounds={"pay": (0, 4e3)}, **_SURE).value.round(-3).to_dict() == {
        "pay": 667e3 // 1e3 * 1e3
    }
    texts = noisy_sum(frame, bounds={"name": (0, 1)}, **_SURE).value
    assert abs(texts["name"]) < 1e-3, "texts are no numbers"
    rows = frame[["pay", "age"]].to_numpy()
    by_place = noisy_sum(rows, bounds={1: (0, 120)}, **_SURE).value
    assert by_place[1] == pytest.approx(400 * 80, rel=1e-4)


def test_refusals() -> None:
    frame = pd.DataFrame({"a": [1.0]})
    with pytest.raises(InvalidArgument, match="bounds must name columns of values, got 'b'"):
        mean(frame, bounds={"b": (0, 1)}, epsilon=1)
    with pytest.raises(InvalidArgument, match="bounds must name at least one column"):
        mean(frame, bounds={}, epsilon=1)
    with pytest.raises(InvalidArgument, match="bounds must be finite"):
        mean(frame, bounds={"a": (1, 0)}, epsilon=1)
    with pytest.raises(InvalidArgument, match="a DataFrame, a 2-D array or a mapping of columns"):
        mean([1.0], bounds={"a": (0, 1)}, epsilon=1)
    with pytest.raises(InvalidArgument, match="columns of one length"):
        mean({"a": [1.0], "b": [1.0, 2.0]}, bounds={"a": (0, 1), "b": (0, 1)}, epsilon=1)
    twice = pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    with pytest.raises(InvalidArgument, match="columns of different names"):
        mean(twice, bounds={"a": (0, 1)}, epsilon=1)
    with pytest.raises(InvalidArgument, match="skip_missing must be True or False"):
        variance([1.0], bounds=(0, 1), skip_missing="no", epsilon=1)  # type: ignore[arg-type]
    for bounds in ((0, 1e200), (0, 1e-200)):
        with pytest.raises(InvalidArgument, match="float64 holds the square"):
            variance([1.0], bounds=bounds, epsilon=1)
    with pytest.raises(InvalidArgument, match="count must be a whole number"):
        variance([1.0], bounds=(0, 1), count=0, epsilon=1)
