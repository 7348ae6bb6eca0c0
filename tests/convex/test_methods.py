"""Scaling by public numbers alone, and the order of charge and release."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tacit.convex import methods
from tacit.convex.losses import Softmax
from tacit.convex.methods import DataScaling, MethodSettings, learn
from tacit.errors import BudgetExceeded, InvalidArgument
from tacit.randomness import UnsafeSeededStream

from .problems import problem_for, task_for


def test_scores_are_the_same_in_either_unit():
    rng = np.random.default_rng(0)
    data, theta = 3 * rng.standard_normal((50, 4)), rng.standard_normal((2, 5))
    scaling = DataScaling(100.0, 0.5)
    coefficients, intercepts = scaling.coefficients(theta.ravel(), 2)
    assert data @ coefficients.T + intercepts == pytest.approx(scaling.rows(data) @ theta.T)


@pytest.mark.parametrize("scale", [0.0, 0.5, 2.0])
def test_scaled_rows_are_within_the_norm(scale):
    rows = DataScaling(2.0, scale).rows(1e3 * np.random.default_rng(0).standard_normal((100, 3)))
    assert np.linalg.norm(rows, axis=1).max() <= DataScaling(2.0, scale).norm
    assert rows.shape[1] == (3 if scale == 0.0 else 4)


def test_one_row_does_not_change_how_others_are_scaled():
    data = np.random.default_rng(0).standard_normal((10, 3))
    other = data.copy()
    other[0] = 1e9
    assert np.array_equal(
        DataScaling(2.0, 0.5).rows(data)[1:], DataScaling(2.0, 0.5).rows(other)[1:]
    )


def test_bad_scalings_are_refused():
    with pytest.raises(InvalidArgument, match="data_norm must be given"):
        DataScaling(None, 0.5)
    with pytest.raises(InvalidArgument, match="data_norm"):
        DataScaling(0.0, 0.5)
    with pytest.raises(InvalidArgument, match="intercept_scale"):
        DataScaling(1.0, -1.0)


def test_no_random_byte_is_drawn_when_the_charge_is_refused(tmp_path, monkeypatch):
    def never(purpose):
        raise AssertionError(f"drew bytes for {purpose}")

    monkeypatch.setattr(methods, "fresh_stream", never)
    problem = problem_for(task_for())
    with tacit.Ledger(tmp_path / "budget.db") as ledger:
        spent = ledger.open("spent", epsilon=1e-6, delta=1e-9)
        with pytest.raises(BudgetExceeded, match="has no room"):
            learn(problem.task, problem.features, problem.targets, MethodSettings(), spent)


@pytest.mark.parametrize(
    ("method", "delta"),
    [("output", 1e-5), ("output", 0.0), ("objective", 1e-5), ("amp", 1e-5), ("auto", 0.0)],
)
def test_a_minimum_that_clipping_leaves_none_of_is_refused_before_the_charge(
    tmp_path, method, delta
):
    task = task_for(Softmax(4), clip=0.2, delta=delta, regularization=0.1)
    problem = problem_for(task)
    with tacit.Ledger(f"sqlite:///{tmp_path / 'budget.db'}") as ledger:
        budget = ledger.open("rows", epsilon=1.0, delta=1e-5)
        with pytest.raises(InvalidArgument, match=r"clip 0\.2 leaves no objective"):
            learn(task, problem.features, problem.targets, MethodSettings(method=method), budget)
        assert budget.spent().epsilon == 0.0


def test_a_given_stream_repeats_the_fit():
    problem = problem_for(task_for())
    first, second = (
        learn(
            problem.task,
            problem.features,
            problem.targets,
            MethodSettings(),
            stream=UnsafeSeededStream(0, "fit"),
        ).theta
        for _ in range(2)
    )
    assert np.array_equal(first, second)
