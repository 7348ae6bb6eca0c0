"""Sums over private data: bounded per example, the same from pieces, with the right derivatives."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.convex.problem import Problem, shortened
from tacit.errors import InvalidArgument

from .problems import LOSSES, problem_for, task_for


def problem_of(name, clip):
    return problem_for(task_for(LOSSES[name], clip=clip))


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("name", list(LOSSES))
def test_gradient_is_a_sum_of_bounded_vectors_one_per_example(name, clip):
    if name == "squared" and clip is None:
        pytest.skip("refused: its gradients have no bound")
    problem = problem_of(name, clip)
    theta = 3 * np.random.default_rng(0).standard_normal(problem.task.parameters)
    each = [problem.gradient(theta, np.array([row])) for row in range(problem.task.examples)]
    assert np.max(np.linalg.norm(each, axis=1)) <= problem.task.lipschitz * (1 + 1e-12)
    assert np.allclose(np.sum(each, axis=0), problem.gradient(theta))
    value, gradient = problem.value_and_gradient(theta)
    assert value == problem.value(theta)
    assert np.allclose(gradient, problem.gradient(theta))


@pytest.mark.parametrize("name", list(LOSSES))
def test_gradient_and_curvature_are_those_of_the_value(name):
    problem = problem_of(name, 0.2 if LOSSES[name].outputs == 1 else None)
    rng = np.random.default_rng(1)
    theta, direction = (rng.standard_normal(problem.task.parameters) for _ in range(2))
    ahead, behind = (problem.value(theta + sign * 1e-6 * direction) for sign in (1, -1))
    assert (ahead - behind) / 2e-6 == pytest.approx(problem.gradient(theta) @ direction, abs=1e-3)
    ahead, behind = (problem.gradient(theta + sign * 1e-7 * direction) for sign in (1, -1))
    assert (ahead - behind) / 2e-7 == pytest.approx(
        problem.curved(theta, direction),
        abs=1e-4 if name in ("logistic", "squared", "linear", "softmax") else 0.05,
    )


def test_several_scores_clipped_have_no_objective():
    assert problem_of("softmax", None).task.has_objective
    assert problem_of("logistic", 0.2).task.has_objective
    assert not problem_of("softmax", 0.2).task.has_objective


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e3, 1e200, 1e308])
def test_shortened_rows_are_never_above_the_norm(scale):
    rows = scale * np.random.default_rng(0).uniform(-1, 1, (200, 7))
    short = shortened(rows, 0.7)
    norms = np.linalg.norm(short, axis=1)
    assert norms.max() <= 0.7
    if scale >= 1e3:
        assert norms.min() > 0.7 * (1 - 1e-11)
    if scale <= 1e-3:
        assert np.array_equal(short, rows)


def test_rows_that_are_not_finite_become_zero():
    rows = np.array([[np.nan, 1.0], [np.inf, 0.0], [0.1, -np.inf], [0.1, 0.2]])
    assert shortened(rows, 1.0).tolist() == [[0, 0], [0, 0], [0, 0], [0.1, 0.2]]


def test_long_rows_and_wrong_shapes_are_refused():
    problem = problem_for(task_for())
    with pytest.raises(InvalidArgument, match="norm at most"):
        Problem(problem.task, 2 * problem.features, problem.targets)
    with pytest.raises(InvalidArgument, match="norm at most"):
        Problem(problem.task, problem.features * np.nan, problem.targets)
    with pytest.raises(InvalidArgument, match="shape"):
        Problem(problem.task, problem.features[:-1], problem.targets)
