"""Output perturbation: the sensitivity with the real solver, the noise, the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.accounting import Gaussian, PureDp, epsilon
from tacit.convex.perturbation import output_design, release_output
from tacit.convex.problem import Problem
from tacit.convex.solver import Objective, minimised
from tacit.randomness import UnsafeSeededStream

from .problems import LOSSES, problem_for, task_for


def solved(design, features, targets):
    """The minimum under the design's ridge, which is public and does not follow the data's size."""
    task = task_for(
        design.task.loss, examples=len(features), features=features.shape[1], clip=design.task.clip
    )
    objective = Objective(Problem(task, features, targets), design.ridge, np.zeros(task.parameters))
    return minimised(objective, 0.5 * design.tolerance)


@pytest.mark.parametrize("name", list(LOSSES))
def test_no_neighbour_moves_the_minimum_beyond_the_sensitivity(name):
    loss = LOSSES[name]
    clip = 0.5 if name == "squared" else None
    task = task_for(loss, regularization=0.02, clip=clip, adjacency="replace-one")
    design = output_design(task)
    problem = problem_for(task)
    base = solved(design, problem.features, problem.targets)
    rng = np.random.default_rng(5)
    for _ in range(8):
        features, targets = problem.features.copy(), problem.targets.copy()
        row = rng.integers(len(features))
        direction = rng.standard_normal(3)
        features[row] = direction / np.linalg.norm(direction) * (1 - 1e-12)
        targets[row] = rng.integers(loss.outputs) if loss.outputs > 1 else rng.choice([-1.0, 1.0])
        moved = np.linalg.norm(solved(design, features, targets) - base)
        assert moved <= design.sensitivity
        kept = np.delete(np.arange(len(features)), row)
        removed = np.linalg.norm(solved(design, features[kept], targets[kept]) - base)
        assert removed <= 0.5 * design.sensitivity + design.tolerance / design.ridge


def test_sensitivity_is_nearly_reached():
    # One example among none: the minimum goes from +L/Λ to -L/Λ as the ridge grows.
    task = task_for(examples=1, features=1, regularization=50.0, adjacency="replace-one", norm=1.0)
    design = output_design(task)
    minima = [solved(design, np.array([[1.0]]), np.array([sign])) for sign in (-1.0, 1.0)]
    assert np.linalg.norm(minima[0] - minima[1]) > 0.49 * design.sensitivity
    linear = output_design(
        task_for(
            LOSSES["linear"], examples=1, features=1, regularization=2.0, adjacency="replace-one"
        )
    )
    minima = [solved(linear, np.array([[sign]]), np.zeros(1)) for sign in (-1.0, 1.0)]
    assert np.linalg.norm(minima[0] - minima[1]) > 0.9999 * linear.sensitivity


def test_formula_is_the_papers():
    for adjacency, times in (("add-remove", 1.0), ("replace-one", 2.0)):
        design = output_design(task_for(regularization=0.1, norm=3.0, adjacency=adjacency))
        assert design.sensitivity == pytest.approx(times * 3.0 / (200 * 0.1), rel=1e-5)
        assert epsilon(design.event, 1e-5, adjacency=adjacency) == pytest.approx(1.0, rel=1e-9)
        assert isinstance(design.event, Gaussian)


def test_released_noise_is_that_of_the_event():
    design = output_design(task_for(features=400, examples=50, regularization=0.1))
    problem = problem_for(design.task)
    objective = Objective(problem, design.ridge, np.zeros(400))
    minimum = minimised(objective, 1e-9)
    noise = release_output(design, problem, UnsafeSeededStream(0, "noise")) - minimum
    square = np.sum(noise**2) / (design.noise_multiplier * design.sensitivity) ** 2
    assert chi2.ppf(1e-7, 400) < square < chi2.ppf(1 - 1e-7, 400)


def test_pure_noise_has_the_gamma_length():
    task = task_for(delta=0.0, features=4, regularization=0.1, adjacency="replace-one")
    design = output_design(task)
    assert design.event == PureDp(1.0, "replace-one")
    problem = problem_for(task)
    minimum = minimised(Objective(problem, design.ridge, np.zeros(4)), 1e-9)
    stream = UnsafeSeededStream(1, "noise")
    lengths = [
        np.linalg.norm(release_output(design, problem, stream) - minimum) for _ in range(100)
    ]
    # Gamma(4, Δ/ε) has mean 4Δ/ε and standard deviation 2Δ/ε.
    assert np.mean(lengths) == pytest.approx(
        4 * design.sensitivity, abs=6 * 2 * design.sensitivity / math.sqrt(100)
    )


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_regularisation_left_out_has_the_least_bound(delta):
    best = output_design(task_for(delta=delta))
    for factor in (0.5, 0.9, 1.1, 2.0):
        other = output_design(task_for(delta=delta, regularization=factor * best.regularization))
        assert other.excess_risk > best.excess_risk
