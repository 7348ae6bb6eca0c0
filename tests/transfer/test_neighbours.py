"""Neighbours: against whole-number arithmetic, ties, two libraries, and blindness to others."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.transfer import neighbours
from tacit.transfer.neighbours import Neighbours, on_grid, private_labels, private_rows


def brute(records: Any, queries: Any, count: int) -> Any:
    """Ranked by Python's whole numbers: by similarity, then by place."""
    rows, asked = on_grid("records", records), on_grid("queries", queries)
    result = []
    for query in asked.astype(int).tolist():
        scores = [sum(a * b for a, b in zip(row, query, strict=True)) for row in rows.astype(int)]
        order = sorted(range(len(rows)), key=lambda place, s=scores: (-s[place], place))
        result.append(order[:count])
    return result


@pytest.fixture(params=["faiss", "torch"])
def library(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setattr(neighbours, "_CELLS", 100)  # so that it takes several blocks
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    else:
        pytest.importorskip("faiss", reason="the extra [neighbours] is not installed")
    return str(request.param)


@pytest.mark.parametrize("count", [1, 7, 39, 40])
@pytest.mark.parametrize("features", [1, 2, 17])
def test_ranking_is_that_of_whole_numbers(library: str, features: int, count: int) -> None:
    rng = np.random.default_rng(features)
    records = rng.normal(size=(40, features))
    records[20:30] = records[:10]  # ties
    queries = rng.normal(size=(30, features))
    near = Neighbours(records)
    assert (near._faiss is None) == (library == "torch")
    assert near.nearest(queries, count).tolist() == brute(records, queries, count)


def test_many_ties_at_the_last_place(library: str) -> None:
    del library
    rng = np.random.default_rng(0)
    records = rng.choice([-1.0, 0.0, 1.0], size=(300, 2))  # nine different rows
    queries = rng.choice([-1.0, 0.0, 1.0], size=(25, 2))
    for count in (1, 50, 299):
        assert Neighbours(records).nearest(queries, count).tolist() == brute(
            records, queries, count
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_gives_the_same() -> None:
    rng = np.random.default_rng(6)
    records = np.repeat(rng.normal(size=(2000, 40)), 2, axis=0)
    queries = rng.normal(size=(200, 40))
    torch.set_float32_matmul_precision("medium")  # what a program may have set
    try:
        found = Neighbours(records, device="cuda").nearest(queries, 300)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert np.array_equal(found, Neighbours(records).nearest(queries, 300))


def test_longest_rows_are_exact_in_single_precision() -> None:
    """Products of the longest possible rows, in float32, equal those of int64."""
    rng = np.random.default_rng(1)
    for features in (3, 100, 5000):
        rows = on_grid("rows", rng.choice([-1.0, 1.0], size=(50, features)))
        rows = np.vstack([rows, on_grid("rows", np.eye(features)[:3])])
        single = rows @ rows.T
        exact = rows.astype(np.int64) @ rows.astype(np.int64).T
        assert np.array_equal(single.astype(np.int64), exact)
        assert np.abs(exact).max() < 2**24
        assert np.abs(rows).max() <= 2048  # eleven bits, all that TF32 keeps


def test_a_row_is_made_from_itself_alone() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(5000, 33)) * np.exp(rng.normal(size=(5000, 1)) * 20)
    whole = on_grid("rows", rows)
    some = rng.permutation(5000)[:777]
    assert np.array_equal(on_grid("rows", rows[some]), whole[some])
    assert np.array_equal(on_grid("rows", rows[-1:]), whole[-1:])
    assert np.array_equal(on_grid("rows", torch.from_numpy(rows)), whole)


@pytest.mark.parametrize("removed", [0, 17, 59])
def test_order_of_the_others_is_blind_to_a_record(library: str, removed: int) -> None:
    del library
    rng = np.random.default_rng(3)
    records = np.repeat(rng.normal(size=(20, 6)), 3, axis=0)
    queries = rng.normal(size=(50, 6))
    before = Neighbours(records).nearest(queries, 60)
    after = Neighbours(np.delete(records, removed, axis=0)).nearest(queries, 59)
    names = np.delete(np.arange(60), removed)
    assert [names[row].tolist() for row in after] == [
        row[row != removed].tolist() for row in before
    ]


def test_among_some_is_the_same_order() -> None:
    rng = np.random.default_rng(4)
    records = np.repeat(rng.normal(size=(30, 4)), 2, axis=0)
    near = Neighbours(records)
    asked = near.prepared(rng.normal(size=(9, 4)))
    for row, query in zip(near.first(asked, 60), asked, strict=True):
        among = np.sort(rng.choice(60, size=25, replace=False))
        assert near.ranked(query, among, 8).tolist() == row[np.isin(row, among)][:8].tolist()
        assert len(near.ranked(query, among[:3], 8)) == 3


def test_extreme_numbers_keep_their_direction() -> None:
    rows = np.array([[3e300, 4e300], [3e-300, 4e-300], [0.0, -0.0]])
    assert on_grid("rows", rows).tolist() == [[1229, 1638], [1229, 1638], [0, 0]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([1.0, 2.0], "one row for each record"),
        ([["a"]], "must be numbers"),
        (np.empty((3, 0)), "one column for each feature"),
        ([[1.0, np.nan]], "finite"),
        ([[1.0, np.inf]], "finite"),
        (np.empty((0, 3)), "one row or more"),
    ],
)
def test_refused_rows(rows: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Neighbours(rows)


def test_refused_questions() -> None:
    near = Neighbours(np.eye(3))
    with pytest.raises(InvalidArgument, match="at most the 3 records"):
        near.nearest(np.eye(3), 4)
    with pytest.raises(InvalidArgument, match="3 features"):
        near.nearest(np.eye(2), 1)
    assert near.nearest(np.empty((0, 3)), 2).shape == (0, 2)


def test_a_refusal_does_not_tell_how_many_records_there_are() -> None:
    for rows in (np.zeros((71, 2), dtype=bool), np.zeros(71), np.zeros((71, 2, 2))):
        with pytest.raises(InvalidArgument, match="one row for each record") as refused:
            private_rows("features", rows)
        assert "71" not in str(refused.value)


def test_an_entry_behind_a_mask_is_missing() -> None:
    rows = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 0], [0, 1]])
    assert private_rows("rows", rows).tolist() == [[1.0, 2.0], [0.0, 0.0]]


def test_no_private_record_is_refused() -> None:
    """A refusal would tell of it. Its label is no class and its row is 0."""
    for odd in (71, -4, 2.5, np.nan, "x", None, 10**400, [1]):
        labels = [0, True, odd, 9.0]
        assert private_labels(labels, 10, records=4).tolist() == [0, 1, -1, 9]
    upcast = np.asarray([0, 1, np.nan])  # by one missing label
    assert private_labels(upcast, 10, records=3).tolist() == [0, 1, -1]
    assert private_labels(np.asarray([0, 71, -1]), 10, records=3).tolist() == [0, -1, -1]
    for odd in (np.nan, -np.inf, "x", None, 10**400, [1]):
        rows = np.empty((2, 2), dtype=object)
        rows[0], rows[1, 0], rows[1, 1] = [1.0, 2.0], 3.0, odd
        assert private_rows("features", rows).tolist() == [[1, 2], [0, 0]]
    assert private_rows("features", torch.tensor([[1.0, torch.nan]])).tolist() == [[0, 0]]
    wide = np.array([["1", "2"], ["1e400", "1"]]).astype(np.longdouble)  # where there are such
    assert on_grid("rows", private_rows("features", wide)).tolist() == [[916.0, 1832.0], [0, 0]]
    half = torch.tensor([[1.0, 2.0], [torch.inf, 1.0]], dtype=torch.bfloat16)
    assert private_rows("features", half).tolist() == [[1, 2], [0, 0]]


def test_what_is_refused_is_the_container() -> None:
    with pytest.raises(InvalidArgument, match="labels must be one for each record; features"):
        private_labels([0, 1], 10, records=3)
    with pytest.raises(InvalidArgument, match="got 2 dimensions"):
        private_labels(np.zeros((3, 1)), 10, records=3)
    with pytest.raises(InvalidArgument, match="features must be a 2-D array, a tensor"):
        private_rows("features", [[1.0]])
