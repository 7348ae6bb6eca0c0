"""One teacher after the other: networks of any kind, and classifiers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit.transfer.teachers.models import train_classifier, train_network
from tacit.transfer.teachers.records import Part
from tacit.transfer.teachers.schedule import TeacherSchedule

PLAN = TeacherSchedule(epochs=3, batch_size=8, lr=0.1, weight_decay=0.0, seed=1)
RANDOM = np.random.default_rng(0)
ROWS = torch.from_numpy(RANDOM.normal(size=(40, 4)).astype(np.float32))
PART = Part((0, 1, 2), ROWS, (ROWS[:, 0] > 0).long(), np.array([20, 0, 20]))


def with_batch_norm_and_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2))


def test_a_network_is_trained_in_its_own_random_state() -> None:
    """Dropout draws from the teacher's seed, not from what teachers before it have left."""
    torch.manual_seed(1)
    first = train_network(with_batch_norm_and_dropout, PART, 2, PLAN, "cpu")
    torch.manual_seed(2)
    train_network(with_batch_norm_and_dropout, PART, 0, PLAN, "cpu")
    again = train_network(with_batch_norm_and_dropout, PART, 2, PLAN, "cpu")
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_running_means_are_of_its_own_records() -> None:
    first, other = (
        train_network(with_batch_norm_and_dropout, PART, place, PLAN, "cpu") for place in (0, 2)
    )
    assert (first["1.running_mean"] != other["1.running_mean"]).any()
    assert first["1.num_batches_tracked"] == PLAN.steps(20)


class Kept:
    """Stands in for a classifier: keeps what it was told."""

    def __init__(self) -> None:
        self.random_state: int | None = None

    def get_params(self) -> dict[str, Any]:
        return {"random_state": self.random_state}

    def set_params(self, random_state: int) -> None:
        self.random_state = random_state

    def fit(self, rows: Any, labels: Any) -> Kept:
        self.seen = rows, labels
        return self

    def predict(self, rows: Any) -> Any:
        return np.zeros(len(rows), dtype=np.int64)


def test_a_classifier_is_given_its_rows_and_a_seed_of_its_own() -> None:
    """Regression: with NumPy's shared state, one teacher's size would move the next one's draws."""
    first, other = (train_classifier(Kept, PART, place, PLAN) for place in (0, 2))
    np.testing.assert_array_equal(other.seen[0], ROWS[20:].numpy())
    assert other.seen[1].tolist() == PART.labels[20:].tolist()
    assert first.random_state is not None
    assert other.random_state is not None
    assert first.random_state != other.random_state


@pytest.mark.parametrize(("size", "vote"), [(0, 0), (1, 3), (5, 3)])
def test_a_classifier_that_saw_one_class_gives_that(size: int, vote: int) -> None:
    part = Part((0,), torch.zeros(size, 4), torch.full((size,), 3), np.array([size]))
    assert train_classifier(Kept, part, 0, PLAN).predict(np.zeros((2, 4))).tolist() == [vote] * 2


class Particular(Kept):
    """Refuses what scikit-learn's classifiers do: a missing number when it is fitted, or too few
    rows when it is asked; or everything."""

    def __init__(self, refuses: str = "") -> None:
        super().__init__()
        self.refuses = refuses

    def fit(self, rows: Any, labels: Any) -> Kept:
        if self.refuses == "all" or np.isnan(rows).any():
            raise ValueError(f"Input X contains NaN, of {len(rows)} rows")
        return super().fit(rows, labels)

    def predict(self, rows: Any) -> Any:
        if self.refuses == "few" and len(self.seen[0]) < 5:
            raise ValueError(f"Expected n_neighbors <= n_samples_fit = {len(self.seen[0])}")
        return super().predict(rows)


@pytest.mark.parametrize("refuses", ["nan", "few"])
def test_a_teacher_whose_records_are_refused_votes_as_most_of_them(refuses: str) -> None:
    """An error would tell of them, and stop the teachers that have not this record."""
    rows = torch.zeros(4, 3)
    rows[1, 1] = float("nan") if refuses == "nan" else 0.0
    part = Part((0,), rows, torch.tensor([2, 7, 7, 1]), np.array([4]))
    teacher = train_classifier(lambda: Particular(refuses), part, 0, PLAN)
    assert teacher.predict(np.zeros((2, 3))).tolist() == [7, 7]


def test_a_classifier_that_can_learn_nothing_is_no_teachers_fault() -> None:
    with pytest.raises(ValueError, match="of 1000 rows") as raised:
        train_classifier(lambda: Particular("all"), PART, 2, PLAN)
    assert raised.value.__context__ is None  # what the records were refused with tells of them


class Drawing(Kept):
    """Draws from the states that everybody shares, as the parts of a pipeline do without a seed."""

    def get_params(self) -> dict[str, Any]:
        return {"part__random_state": None}

    def fit(self, rows: Any, labels: Any) -> Kept:
        self.drawn = np.random.rand(2).tolist(), random.random()  # noqa: NPY002
        return super().fit(rows, labels)


def test_a_classifier_draws_nothing_that_teachers_before_it_left() -> None:
    np.random.seed(3)  # noqa: NPY002 - as scripts do, and then what comes next is known
    alone = train_classifier(Drawing, PART, 2, PLAN)
    other = train_classifier(Drawing, PART, 0, PLAN)
    again = train_classifier(Drawing, PART, 2, PLAN)
    assert alone.drawn == again.drawn != other.drawn
    after = np.random.rand()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    assert after == np.random.rand()  # noqa: NPY002


def test_teachers_that_are_given_one_model_do_not_share_it() -> None:
    network, classifier = with_batch_norm_and_dropout(), Kept()
    alone = train_network(lambda: network, PART, 2, PLAN, "cpu")
    train_network(lambda: network, PART, 0, PLAN, "cpu")
    again = train_network(lambda: network, PART, 2, PLAN, "cpu")
    assert all(torch.equal(alone[name], again[name]) for name in alone)
    first, other = (train_classifier(lambda: classifier, PART, place, PLAN) for place in (0, 2))
    assert first.seen[0].tolist() != other.seen[0].tolist()
