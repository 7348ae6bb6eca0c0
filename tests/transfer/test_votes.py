"""Votes: counted right, and refused in one line when they are not votes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tacit.errors import DataError, InvalidArgument
from tacit.transfer import Votes

COUNTS = np.array([[3, 1, 0], [0, 2, 2]])


def test_labels_are_counted_query_by_query():
    labels = np.random.default_rng(1).integers(0, 5, size=(40, 17))
    counts = [[int((column == j).sum()) for j in range(7)] for column in labels.T]
    votes = Votes.from_labels(labels, classes=7)
    assert votes.counts.tolist() == counts
    assert (votes.queries, votes.classes, votes.teachers, len(votes)) == (17, 7, 40, 17)


def test_gaps_are_to_the_first_class_which_is_left_out_once():
    votes = Votes(np.array([[1, 5, 4], [5, 5, 0]]))
    assert votes.largest().tolist() == [5, 5]
    assert votes.gaps().tolist() == [[1, 4], [0, 5]]


def test_counts_are_a_copy_that_cannot_be_written_and_are_not_printed():
    mine = COUNTS.copy()
    votes = Votes(mine)
    mine[0, 0] = 99
    assert votes.counts[0, 0] == 3
    with pytest.raises(ValueError, match="read-only"):
        votes.counts[0, 0] = 1
    assert repr(votes) == "Votes(queries=2, classes=3, teachers=4)"


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.array([3, 1]), "one row per query"),
        (np.zeros((0, 3), int), "one row per query"),
        (np.array([[4], [4]]), "two or more"),
        (np.array([[3, 1], [2, 1]]), "the same number of teachers"),
        (np.array([[0, 0]]), "1 or more"),
        (np.array([[5, -1]]), "between 0 and"),
        (np.array([[1.5, 2.5]]), "fractions"),
        (np.array([[np.nan, 1.0]]), "fractions or nan"),
        (np.array([[np.inf, 1.0]]), "between 0 and"),
        (np.array([[2**64 - 1, 1]], dtype=np.uint64), "between 0 and"),
        (np.array([[2**39 - 1, 1]]), "between 0 and"),  # in steps of the noise, beyond int64
        (np.array([[2**35, 2**35, 1]]), r"at most 2\*\*36"),
        (np.array([[True, False]]), "array of bool"),
        (np.array([["a", "b"]]), "whole numbers"),
    ],
)
def test_what_is_no_table_of_counts_is_refused_in_one_line(counts, message):
    with pytest.raises(InvalidArgument, match=message) as caught:
        Votes(counts)
    assert "\n" not in str(caught.value)


def test_whole_floats_are_counts():
    assert Votes(COUNTS.astype(np.float32)).counts.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([[0, 3]]), "classes - 1 = 2$"),
        (np.array([[0, -1]]), "between 0 and"),
        (np.array([0, 1]), "one row per teacher"),
        (np.zeros((3, 0), int), "one row per teacher"),
    ],
)
def test_what_are_no_labels_is_refused(labels, message):
    with pytest.raises(InvalidArgument, match=message):
        Votes.from_labels(labels, classes=3)


def test_a_refusal_tells_no_vote():
    refused = [
        lambda: Votes(np.array([[771, 229], [771, 228]])),
        lambda: Votes(np.array([[771, -229]])),
        lambda: Votes.from_labels(np.array([[0, 771], [1, 229]]), classes=3),
    ]
    for one in refused:
        with pytest.raises(InvalidArgument) as caught:
            one()
        assert not {"771", "229", "999", "1000"} & set(re.findall(r"\d+", str(caught.value)))


def test_files_of_counts_and_of_labels_are_read(tmp_path):
    np.save(tmp_path / "counts.npy", COUNTS)
    np.save(tmp_path / "labels.npy", np.array([[0, 2], [0, 1]], dtype=np.uint8))
    assert Votes.load(tmp_path / "counts.npy", holds="counts").counts.tolist() == COUNTS.tolist()
    found = Votes.load(str(tmp_path / "labels.npy"), holds="labels", classes=3)
    assert found.counts.tolist() == [[2, 0, 0], [0, 1, 1]]


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a file of votes was executed",))


def test_a_pickle_is_refused_unread(tmp_path):
    np.save(tmp_path / "bomb.npy", np.array([[Bomb()]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"bomb.npy is no .npy file of numbers") as caught:
        Votes.load(tmp_path / "bomb.npy", holds="counts")
    assert "\n" not in str(caught.value)


def test_files_that_hold_something_else_are_refused_by_name(tmp_path):
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.savez(tmp_path / "zip.npz", COUNTS)
    np.save(tmp_path / "wrong.npy", -COUNTS)
    np.save(tmp_path / "counts.npy", COUNTS)
    for name in ("text.npy", "empty.npy", "zip.npz"):
        with pytest.raises(DataError, match=f"{name} is no .npy file"):
            Votes.load(tmp_path / name, holds="counts")
    with pytest.raises(DataError, match=r"missing.npy cannot be read: No such file"):
        Votes.load(tmp_path / "missing.npy", holds="counts")
    with pytest.raises(DataError, match=r"wrong.npy does not hold votes: counts must lie between"):
        Votes.load(tmp_path / "wrong.npy", holds="counts")
    with pytest.raises(DataError, match="3 classes, not on 10"):
        Votes.load(tmp_path / "counts.npy", holds="counts", classes=10)
    with pytest.raises(InvalidArgument, match="classes must be given"):
        Votes.load(tmp_path / "counts.npy", holds="labels")
    with pytest.raises(InvalidArgument, match="holds must be"):
        Votes.load(tmp_path / "counts.npy", holds="logits")
