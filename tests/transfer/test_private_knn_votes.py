"""Votes of samples: against sampling first, the sensitivity by brute force, and no second vote."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tacit.randomness import UnsafeSeededStream, included
from tacit.transfer import private_knn
from tacit.transfer.neighbours import Neighbours, on_grid
from tacit.transfer.private_knn import SampledVotes


def made(records: Any, labels: Any, queries: Any, k: int, rate: float, seed: int = 0) -> Any:
    near = Neighbours(records)
    return SampledVotes(
        near, np.asarray(labels), near.prepared(queries), classes=3, k=k, rate=rate,
        stream=UnsafeSeededStream(seed, "samples"),
    )  # fmt: skip


def sampled_first(records: Any, labels: Any, queries: Any, k: int, rate: float, seed: int) -> Any:
    """The definition: draw the sample, rank it by whole numbers, let the first k vote."""
    stream = UnsafeSeededStream(seed, "samples")
    rows, asked = (on_grid("", one).astype(np.int64) for one in (records, queries))
    result = []
    for query in asked:
        sample = included(len(rows), rate, stream).tolist()
        order = sorted(sample, key=lambda place, q=query: (-int(rows[place] @ q), place))
        result.append([sum(labels[place] == c for place in order[:k]) for c in range(3)])
    return result


@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("k", [1, 5, 40, 500])
@pytest.mark.parametrize("depth", [None, 3])
def test_the_same_coins_give_the_votes_of_sampling_first(
    rate: float, k: int, depth: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the ranking is too short and has to be extended, which depth 3 makes happen."""
    if depth is not None and rate < 1.0:
        monkeypatch.setattr(private_knn, "ranked_depth", lambda *_: depth)
    monkeypatch.setattr(private_knn, "_CELLS", 700)
    rng = np.random.default_rng(5)
    records = np.repeat(rng.normal(size=(150, 3)), 2, axis=0)  # ties throughout
    labels = rng.integers(0, 3, size=300)
    queries = rng.normal(size=(40, 3))
    votes = made(records, labels, queries, k, rate, seed=7)
    found = [votes(query).tolist() for query in range(40)]
    assert found == sampled_first(records, labels, queries, k, rate, seed=7)


def test_queries_may_come_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_knn, "_CELLS", 30)
    rng = np.random.default_rng(6)
    records, labels = rng.normal(size=(20, 3)), rng.integers(0, 3, size=20)
    queries = rng.normal(size=(12, 3))
    votes = made(records, labels, queries, 4, 1.0)
    straight = [votes(query).tolist() for query in range(12)]
    for query in rng.permutation(12):
        assert votes(int(query)).tolist() == straight[query]


POSITIONS = [(1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
RECORDS = list(itertools.product(POSITIONS, range(3)))


def votes_of(records: Any, k: int) -> Any:
    if not records:
        return np.zeros(3, dtype=np.int64)
    rows, labels = zip(*records, strict=True)
    return made(rows, labels, [(1.0, 0.2)], k, 1.0)(0)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_sensitivity_by_brute_force(k: int) -> None:
    """Every set of up to three records in three places and classes, and each of its neighbours.

    A sample is such a set: sampling is left to the accountant. Ties and samples of fewer than k
    records are among them.
    """
    known = {
        records: votes_of(records, k)
        for size in range(4)
        for records in itertools.product(RECORDS, repeat=size)
    }
    removed = [
        (known[records] - known[records[:place] + records[place + 1 :]])
        for records in known
        for place in range(len(records))
    ]
    # With k = 3 none of three is pushed out: a record adds its own vote, no more.
    assert max(int(change @ change) for change in removed) == (2 if k < 3 else 1)
    largest = [
        abs(int(known[records].max() - known[records[:place] + records[place + 1 :]].max()))
        for records in known
        for place in range(len(records))
    ]
    assert max(largest) == 1
    rng = np.random.default_rng(8)
    some = [records for records in known if len(records) == 3]
    replaced = []
    for choice in rng.choice(len(some), size=300, replace=False):
        records = some[choice]
        for place, other in itertools.product(range(3), RECORDS):
            changed = known[(*records[:place], other, *records[place + 1 :])]
            replaced.append(known[records] - changed)
            assert abs(int(known[records].max() - changed.max())) <= 1
    assert max(int(change @ change) for change in replaced) == 2


def test_larger_sets_are_no_worse() -> None:
    rng = np.random.default_rng(9)
    for _ in range(300):
        picked = rng.integers(0, len(RECORDS), size=9)
        records = tuple(RECORDS[one] for one in picked)
        k, place = int(rng.integers(1, 7)), int(rng.integers(9))
        change = votes_of(records, k) - votes_of(records[:place] + records[place + 1 :], k)
        assert int(change @ change) <= 2


def test_no_record_votes_twice() -> None:
    """The published code draws with replacement, so that a record may vote more than once.

    Of class 1 there is one record, the nearest of all: it has one vote at most. Drawn with
    replacement, as there, it has two or more in a fifth of all draws.
    """
    records = np.vstack([[[1.0, 0.0]], np.tile([[1.0, 1.0]], (49, 1))])
    labels = np.array([1] + [0] * 49)
    votes = made(records, labels, [(1.0, 0.0)], 30, 0.8)
    found = np.array([votes(0) for _ in range(2000)])
    assert found[:, 1].max() == 1
    assert found.sum(axis=1).max() <= 30
    rng = np.random.default_rng(0)
    published = [np.sum(labels[rng.choice(50, size=40)] == 1) for _ in range(2000)]
    assert max(published) >= 2


def test_each_record_is_sampled_at_the_rate_and_anew() -> None:
    """The one record of class 1 votes in a share of calls that is the rate, by 6 deviations."""
    records = np.vstack([[[1.0, 0.0]], np.tile([[0.0, 1.0]], (9, 1))])
    votes = made(records, [1] + [0] * 9, [(1.0, 0.0)], 10, 0.3)
    calls = 20_000
    found = np.array([votes(0) for _ in range(calls)])
    spread = math.sqrt(0.3 * 0.7 / calls)
    assert abs(found[:, 1].mean() - 0.3) < 6 * spread
    assert abs(found[:, 0].mean() / 9 - 0.3) < 6 * spread
    joint = np.mean((found[1:, 1] == 1) & (found[:-1, 1] == 1))
    assert abs(joint - 0.09) < 6 * math.sqrt(0.09 * 0.91 / calls) * 1.5


def test_an_empty_sample_has_no_votes() -> None:
    votes = made(np.eye(3), [0, 1, 2], np.eye(3), 2, 0.0)
    assert votes(1).tolist() == [0, 0, 0]
