"""Minimising: the gradient is as small as asked, whatever the quick solvers do."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.convex import solver
from tacit.convex.solver import Objective, minimised
from tacit.errors import TacitError

from .problems import LOSSES, problem_for, task_for


def objective_for(name="logistic", ridge=0.5, scale=5.0):
    loss = LOSSES[name]
    problem = problem_for(task_for(loss, clip=0.5 if name == "squared" else None))
    tilt = scale * np.random.default_rng(2).standard_normal(problem.task.parameters)
    return Objective(problem, ridge, tilt)


@pytest.mark.parametrize("name", list(LOSSES))
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e4])
def test_gradient_is_below_the_tolerance(name, ridge):
    objective = objective_for(name, ridge)
    theta = minimised(objective, 1e-7)
    assert np.linalg.norm(objective.gradient(theta)) <= 1e-7


def test_minimum_is_scikit_learns():
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415

    problem = problem_for(task_for())
    theta = minimised(Objective(problem, 2.0, np.zeros(3)), 1e-8)
    theirs = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000)
    theirs.fit(problem.features, problem.targets)
    assert theta == pytest.approx(theirs.coef_[0], abs=1e-5)


@pytest.mark.parametrize("name", ["logistic", "hinge", "softmax"])
@pytest.mark.parametrize("left", ["_newton", "_accelerated"])
def test_slow_solvers_finish_what_the_quick_ones_leave(name, left, monkeypatch):
    monkeypatch.setattr(solver, "_quasi_newton", lambda objective, start, tolerance: start)  # noqa: ARG005
    if left == "_accelerated":
        monkeypatch.setattr(solver, "_newton", lambda objective, theta, tolerance: theta)  # noqa: ARG005
    objective = objective_for(name, ridge=2.0)
    theta = minimised(objective, 1e-6)
    assert np.linalg.norm(objective.gradient(theta)) <= 1e-6


def test_tolerance_that_floating_point_cannot_reach_is_an_error():
    with pytest.raises(TacitError, match="regularization"):
        minimised(objective_for(ridge=10.0), 1e-30)
