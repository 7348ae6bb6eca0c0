"""Approximate minima perturbation: any solver's point is covered, and little is paid for it."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.accounting import ApproxDp, analytic_gaussian_sigma
from tacit.convex import perturbation, solver
from tacit.convex.losses import Softmax
from tacit.convex.perturbation import amp_design, objective_design, release_amp
from tacit.convex.solver import Objective
from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream

from .problems import problem_for, task_for


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_both_parts_together_have_epsilon_and_delta(epsilon, adjacency):
    task = task_for(epsilon=epsilon, adjacency=adjacency)
    design = amp_design(task)
    first = design.objective.task
    rest = task.epsilon - first.epsilon, task.delta - first.delta
    assert rest[0] > 0 < rest[1]
    assert design.noise_multiplier >= analytic_gaussian_sigma(*rest)
    assert design.event == ApproxDp(epsilon, 1e-5, adjacency)
    assert design.objective.event == ApproxDp(first.epsilon, first.delta, adjacency)


def test_it_costs_little_more_than_objective_perturbation():
    task = task_for(examples=20_000, features=50)
    assert amp_design(task).excess_risk < 1.04 * objective_design(task).excess_risk


def test_second_noise_is_small_and_covers_two_points_within_the_tolerance():
    design = amp_design(task_for(features=50))
    assert design.sensitivity == 2 * design.tolerance / design.ridge
    noise = design.noise_multiplier * design.sensitivity * np.sqrt(50)
    assert noise < 0.05 * design.task.reach


@pytest.mark.parametrize("stopped", ["start", "wild"])
def test_solver_that_stops_early_is_finished(stopped, monkeypatch):
    def lazy(objective, start, tolerance):  # noqa: ARG001
        return start if stopped == "start" else start + 1e3

    monkeypatch.setattr(solver, "_quasi_newton", lazy)
    monkeypatch.setattr(solver, "_newton", lazy)
    seen = {}

    def watched(objective, tolerance):
        theta = solver.minimised(objective, tolerance)
        seen["norm"] = np.linalg.norm(objective.gradient(theta))
        return theta

    monkeypatch.setattr(perturbation, "minimised", watched)
    task = task_for(regularization=0.05)
    design = amp_design(task)
    release_amp(design, problem_for(task), UnsafeSeededStream(0, "amp"))
    assert 0 < seen["norm"] < design.tolerance


def test_released_point_is_near_a_minimum_under_the_tilt():
    task = task_for(regularization=0.05, features=300)
    design, problem = amp_design(task), problem_for(task)
    theta = release_amp(design, problem, UnsafeSeededStream(0, "amp"))
    tilt = -Objective(problem, design.ridge, np.zeros(300)).gradient(theta)
    assert np.linalg.norm(tilt) == pytest.approx(design.objective.sigma * np.sqrt(300), rel=0.2)


def test_released_point_is_on_a_grid():
    task = task_for(regularization=0.05)
    theta = release_amp(amp_design(task), problem_for(task), UnsafeSeededStream(0, "amp"))
    sigma = amp_design(task).noise_multiplier * amp_design(task).sensitivity
    steps = theta / 2.0 ** (np.floor(np.log2(sigma)) - 36)
    assert np.all(steps == np.rint(steps))


def test_it_refuses_pure_privacy_and_clipped_classes():
    with pytest.raises(InvalidArgument, match="objective"):
        amp_design(task_for(delta=0.0))
    clipped = problem_for(task_for(Softmax(3), clip=0.1))
    with pytest.raises(InvalidArgument, match="noisy-gd"):
        release_amp(amp_design(clipped.task), clipped, UnsafeSeededStream(0, "amp"))
