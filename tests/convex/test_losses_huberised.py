"""Clipping is Huberising: the clipped gradient is the gradient of the Huberised loss."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.convex.losses import Huberised, Linear, Squared
from tacit.convex.problem import Problem
from tacit.errors import InvalidArgument

from .problems import SCALAR, problem_for, targets_for, task_for


@pytest.mark.parametrize("name", list(SCALAR))
@pytest.mark.parametrize("clip", [0.05, 0.3, 0.7, 5.0])
def test_gradient_of_the_huberised_loss_is_the_clipped_gradient(name, clip):
    loss = SCALAR[name]
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((500, 3))
    theta, targets = 2 * rng.standard_normal(3), targets_for(loss, 500, rng)
    norms = np.linalg.norm(rows, axis=1)
    plain = loss.slopes((rows @ theta)[:, None], targets) * rows
    lengths = np.linalg.norm(plain, axis=1)
    clipped = plain * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[:, None]
    assert np.any(lengths > clip) or clip == 5.0

    hubers = Huberised(loss, clip)
    numeric = np.empty_like(rows)
    for place in range(3):
        step = np.zeros(3)
        step[place] = 1e-5
        ahead, behind = (
            hubers.values((rows @ (theta + sign * step))[:, None], targets, norms)
            for sign in (1, -1)
        )
        numeric[:, place] = (ahead - behind) / 2e-5
    assert np.max(np.abs(numeric - clipped)) < 5e-4  # the second derivative jumps at both ends
    exact = hubers.slopes((rows @ theta)[:, None], targets, norms) * rows
    assert np.allclose(exact, clipped, rtol=1e-12, atol=1e-14)
    assert np.linalg.norm(exact, axis=1).max() <= clip * (1 + 1e-12)


@pytest.mark.parametrize("name", list(SCALAR))
def test_loss_is_unchanged_inside_the_interval_and_straight_outside(name):
    loss = SCALAR[name]
    rng = np.random.default_rng(1)
    targets, norms = targets_for(loss, 300, rng), np.full(300, 2.0)
    hubers = Huberised(loss, 0.6)
    low, high = hubers.interval(targets, norms)
    scores = 4 * rng.standard_normal((300, 1))
    inside = (scores[:, 0] >= low) & (scores[:, 0] <= high)
    values = hubers.values(scores, targets, norms)
    assert np.allclose(values[inside], loss.values(scores, targets)[inside])
    assert np.all(values <= loss.values(scores, targets) + 1e-12) or isinstance(loss, Linear)
    slopes = hubers.slopes(scores, targets, norms)[:, 0]
    assert np.allclose(np.abs(slopes[~inside]), 0.3)
    assert inside.any() != isinstance(loss, Linear)


def test_interval_of_the_squared_loss_is_hubers():
    low, high = Huberised(Squared(), 1.5).interval(np.array([2.0]), np.array([3.0]))
    assert low.tolist() == [1.5]
    assert high.tolist() == [2.5]


def test_example_of_the_lecture_goes_the_wrong_way():
    # Losses θ, -0.3θ, -0.3θ clipped at 0.5: the sum rises by 0.4, the clipped sum falls by 0.1.
    task = task_for(Linear(), examples=3, features=1, clip=0.5)
    problem = Problem(task, np.array([[1.0], [-0.3], [-0.3]]), np.zeros(3))
    assert problem.gradient(np.zeros(1)) == pytest.approx([-0.1])
    plain = Problem(task_for(Linear(), examples=3, features=1), problem.features, problem.targets)
    assert plain.gradient(np.zeros(1)) == pytest.approx([0.4])


def test_zero_rows_have_no_gradient():
    problem = problem_for(task_for(clip=0.1))
    rows = np.zeros_like(problem.features)
    assert np.all(Problem(problem.task, rows, problem.targets).gradient(np.ones(3)) == 0)


def test_bad_clip_is_refused():
    with pytest.raises(InvalidArgument, match="clip"):
        Huberised(Squared(), 0.0)
