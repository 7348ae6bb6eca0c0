"""Reverse-kNN: votes and how far a record moves them by brute force, noise, charges, digits."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tacit import data
from tacit.accounting import DiscreteLaplace, Gaussian, epsilon
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.ledger import Ledger
from tacit.mechanisms import Released
from tacit.randomness import UnsafeSeededStream
from tacit.transfer.neighbours import Neighbours, cluster_centres, on_grid
from tacit.transfer.reverse_knn import ReverseKnn, Tally, votes_for


def seeded() -> dict[str, UnsafeSeededStream]:
    """A stream of one test: of one that all shared, each would draw what others left."""
    return {"stream": UnsafeSeededStream(0, "test")}


def brute(features: Any, labels: Any, points: Any, k: int, classes: int) -> Any:
    rows, places = (on_grid("", one).astype(np.int64) for one in (features, points))
    counts = np.zeros((len(places), classes), dtype=np.int64)
    for row, label in zip(rows, labels, strict=True):
        order = sorted(range(len(places)), key=lambda one, r=row: (-int(places[one] @ r), one))
        for place in order[:k]:
            counts[place, label] += 1
    return counts


@pytest.mark.parametrize("k", [1, 3, 12])
def test_votes(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.transfer.reverse_knn._BLOCK", 37)
    rng = np.random.default_rng(0)
    features, points = rng.normal(size=(200, 4)), rng.normal(size=(12, 4))
    labels = rng.integers(0, 5, size=200)
    found = votes_for(features, labels, points, k=k, classes=5)
    assert np.array_equal(found, brute(features, labels, points, k, 5))
    assert found.sum() == 200 * k


@pytest.mark.parametrize("k", [1, 2, 3])
def test_how_far_a_record_moves_the_table(k: int) -> None:
    """All records of a few places and classes, alone: votes add up, so others do not matter."""
    points = [(1.0, 0.0), (0.9, 0.5), (0.5, 0.9), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)]
    records = list(itertools.product(points, range(2)))
    alone = [votes_for(np.array([row]), [label], points, k=k, classes=2) for row, label in records]
    assert {int(np.abs(one).sum()) for one in alone} == {k}
    assert {int((one * one).sum()) for one in alone} == {k}
    changes = [one - other for one, other in itertools.product(alone, repeat=2)]
    assert max(int(np.abs(one).sum()) for one in changes) == 2 * k
    assert max(int((one * one).sum()) for one in changes) == 2 * k
    both = votes_for(np.array([points[0], points[3]]), [0, 1], points, k=k, classes=2)
    assert np.array_equal(both, alone[0] + alone[7])


@pytest.mark.parametrize(("adjacency", "moved"), [("add-remove", 1), ("replace-one", 2)])
@pytest.mark.parametrize("k", [1, 4])
def test_scales_and_events(adjacency: Any, moved: int, k: int) -> None:
    given = (np.eye(5), [0] * 5, np.eye(5))
    laplace = ReverseKnn(k, classes=2, epsilon=0.25).label(*given, adjacency=adjacency)
    event = laplace.released.event
    assert isinstance(event, DiscreteLaplace)
    assert event.scale == moved * k / 0.25
    assert epsilon(event, 1e-9, adjacency=adjacency) == pytest.approx(0.25, rel=1e-6)
    gauss = ReverseKnn(k, classes=2, epsilon=0.5, delta=1e-5).label(*given, adjacency=adjacency)
    found = gauss.released.event
    assert isinstance(found, Gaussian)
    assert epsilon(found, 1e-5, adjacency=adjacency) == pytest.approx(0.5, rel=1e-6)
    assert gauss.deviation == pytest.approx(found.sigma * math.sqrt(moved * k))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_what_is_declared_is_what_is_released_to_the_last_digit(adjacency: Any) -> None:
    """1/(1/x) need not be x, and a ledger compares events exactly."""
    given = (np.eye(5), [0] * 5, np.eye(5))
    for seed in range(20):
        noise = 0.1 + np.random.default_rng(seed).random()
        for way in (
            ReverseKnn(3, classes=2, epsilon=noise),
            ReverseKnn(3, classes=2, epsilon=noise, delta=1e-5),
            ReverseKnn(3, classes=2, noise_multiplier=noise),
        ):
            told = way.label(*given, adjacency=adjacency)
            assert way.declared(adjacency=adjacency) == told.released.event


def test_a_multiplier_is_in_units_of_one_record() -> None:
    """The same noise for each adjacency, σ·√k; a replaced record is √2 as far and costs more."""
    given = (np.eye(5), [0] * 5, np.eye(5))
    knn = ReverseKnn(4, classes=2, noise_multiplier=5.0)
    kept, replaced = (knn.label(*given, adjacency=a) for a in ("add-remove", "replace-one"))
    assert kept.deviation == pytest.approx(10.0)
    assert replaced.deviation == pytest.approx(10.0)
    assert epsilon(kept.released.event, 1e-5) == pytest.approx(epsilon(Gaussian(5.0), 1e-5))
    assert epsilon(replaced.released.event, 1e-5, adjacency="replace-one") == pytest.approx(
        epsilon(Gaussian(5.0 / math.sqrt(2.0)), 1e-5)
    )


@pytest.mark.parametrize("asked", [{"epsilon": 0.2}, {"noise_multiplier": 3.0}])
def test_the_noise_is_as_large_as_it_says(asked: Any) -> None:
    """And neither two thirds nor three halves of it; 20,000 numbers settle that."""
    rows = np.vstack([np.eye(2)] * 1)
    points = np.random.default_rng(1).normal(size=(10_000, 2))
    tally = ReverseKnn(1, classes=2, **asked).label(rows, [0, 1], points, **seeded())
    spread = float(np.std(tally.released.value))
    assert spread == pytest.approx(tally.deviation, rel=0.05)


def test_labels_and_confidence_come_from_the_table_alone() -> None:
    table = np.array([[10.0, 4.0, 0.0], [0.0, 1.0, 1.0], [-3.0, -9.0, 50.0]])
    tally = Tally(Released(table, Gaussian(3.0), "add-remove", "example"), 3.0)
    assert tally.labels.tolist() == [0, 1, 2]
    assert tally.confidence.tolist() == pytest.approx([0.9213503965, 0.5, 1.0])


@pytest.mark.parametrize(
    ("rows", "k", "told"),
    [
        (np.ones((1, 3)), 1, "features must have as many columns as points, which have 2, got 3"),
        ([[1.0, 2.0]], 1, "features must be a 2-D array"),
        (np.ones((1, 2)), 3, "k must be at most the 2 public points, got 3"),
    ],
)
def test_a_refusal_names_what_the_caller_gave(rows: Any, k: int, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        ReverseKnn(k, classes=2, epsilon=1.0).label(rows, [0], np.eye(2), **seeded())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [500.0, 1e4, 1e300])
def test_noise_that_vanishes_in_floating_point_leaves_labels_sure(epsilon: float) -> None:
    """It was 0/0, after the table had been released and paid for."""
    tally = ReverseKnn(1, classes=2, epsilon=epsilon).label(
        np.eye(2), [0, 1], np.vstack([np.eye(2), -np.ones((1, 2))]), **seeded()
    )
    assert tally.labels.tolist() == [0, 1, 0]
    assert tally.confidence.tolist() == [1.0, 1.0, 0.5]


def test_pooling_is_a_sum_over_near_points() -> None:
    table = np.array([[5.0, 1.0], [0.0, 4.0], [2.0, 8.0]])
    whole = Tally(Released(table, Gaussian(3.0), "replace-one", "example", 7), 3.0)
    pooled = whole.pooled(np.array([[0, 1], [0, 0], [1, 2], [2, 0]]))
    assert pooled.released.value.tolist() == [[5, 5], [10, 2], [2, 12], [7, 9]]
    assert pooled.labels.tolist() == [0, 0, 1, 1]
    assert pooled.deviation == pytest.approx(3.0 * math.sqrt(2.0))
    assert (pooled.released.event, pooled.released.entry) == (Gaussian(3.0), 7)


def test_charged_before_release(tmp_path: Any) -> None:
    given = (np.eye(5), [0] * 5, np.eye(5))
    with Ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        knn = ReverseKnn(classes=2, epsilon=0.5)
        with pytest.raises(BudgetExceeded):
            knn.label(*given, budget=ledger.open("small", epsilon=0.4, delta=1e-5))
        budget = ledger.open("enough", epsilon=0.5, delta=1e-5, adjacency="replace-one")
        tally = knn.label(*given, budget=budget)
        assert tally.released.entry is not None
        assert tally.released.adjacency == "replace-one"
        assert tally.released.event.scale == 4.0
        with pytest.raises(BudgetExceeded):
            knn.label(*given, budget=budget)


def test_digits_are_labelled() -> None:
    found = data.load("digits")
    rows = found.train.inputs.reshape(len(found.train), -1).astype(np.float32)
    labels = np.asarray(found.train.labels)
    public = rows[1000:]
    centres = cluster_centres(public, 20, seed=0)
    tally = ReverseKnn(classes=10, epsilon=1.0).label(
        rows[:1000], labels[:1000], centres, **seeded()
    )
    near = Neighbours(centres).nearest(public, 1)
    assert np.mean(tally.labels[near[:, 0]] == labels[1000:]) > 0.8
    assert np.array_equal(tally.pooled(near).labels, tally.labels[near[:, 0]])


def test_pooling_makes_up_for_few_votes_at_each_point() -> None:
    found = data.load("digits")
    rows = found.train.inputs.reshape(len(found.train), -1).astype(np.float32)
    labels, public = np.asarray(found.train.labels), rows[1000:]
    knn = ReverseKnn(classes=10, epsilon=2.0)
    tally = knn.label(rows[:1000], labels[:1000], public, **seeded())
    pooled = tally.pooled(Neighbours(public).nearest(public, 10))
    assert np.mean(tally.labels == labels[1000:]) < 0.9
    assert np.mean(pooled.labels == labels[1000:]) > 0.92


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": 1, "epsilon": 1.0},
        {"classes": 2},
        {"classes": 2, "epsilon": 1.0, "noise_multiplier": 1.0},
        {"classes": 2, "epsilon": -1.0},
        {"classes": 2, "noise_multiplier": 1.0, "delta": 1e-5},
        {"classes": 2, "epsilon": 1.0, "delta": 1.0},
        {"classes": 2, "epsilon": 1.0, "k": 0},
    ],
)
def test_refusals(wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        ReverseKnn(**wrong)


def test_more_votes_than_points() -> None:
    with pytest.raises(InvalidArgument, match="k must be at most the 3 public points, got 4"):
        ReverseKnn(4, classes=2, epsilon=1.0).label(np.eye(3), [0, 1, 0], np.eye(3))
