"""Noisy descent: events, noise, sampling, and the convergence that theory promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.accounting import Gaussian, PoissonSampled, Repeated, epsilon
from tacit.convex.descent import best_sample_rate, descent_design, release_descent
from tacit.convex.losses import Linear, Softmax
from tacit.convex.solver import Objective, minimised
from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream

from .problems import problem_for, task_for


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_event_meets_the_budget_and_just_so(adjacency, rate):
    design = descent_design(task_for(adjacency=adjacency), steps=40, sample_rate=rate)
    spent = epsilon(design.event, 1e-5, adjacency=adjacency)
    assert 0.999 < spent <= 1.0 + 1e-12
    one = Gaussian(design.noise_multiplier)
    assert design.event == Repeated(one if rate == 1.0 else PoissonSampled(rate, one), 40)


class Watched:
    """A problem whose gradient is 0, and that remembers where it was asked."""

    def __init__(self):
        self.places, self.rows = [], []

    def gradient(self, theta, rows=None):
        self.places.append(theta.copy())
        self.rows.append(rows)
        return np.zeros_like(theta)


def test_steps_carry_the_noise_of_the_event():
    task = task_for(Linear(), features=4000)
    design = descent_design(task, steps=20)
    problem = Watched()
    release_descent(design, problem, UnsafeSeededStream(0, "descent"))
    moves = np.diff(np.array(problem.places), axis=0)
    step = task.reach / math.sqrt(20 * design.variance)
    noise = moves / step * task.examples
    square = np.sum(noise**2) / (design.noise_multiplier * task.lipschitz) ** 2
    assert chi2.ppf(1e-7, noise.size) < square < chi2.ppf(1 - 1e-7, noise.size)
    assert square / 0.97**2 > chi2.ppf(1 - 1e-7, noise.size)  # 3 % would be seen


def test_samples_are_poisson_and_fresh():
    task = task_for(examples=2000)
    design = descent_design(task, steps=60, sample_rate=0.1)
    problem = Watched()
    release_descent(design, problem, UnsafeSeededStream(0, "descent"))
    sizes = [len(rows) for rows in problem.rows]
    assert np.mean(sizes) == pytest.approx(200, abs=6 * math.sqrt(180 / 60))
    assert len(set(sizes)) > 5
    assert not np.array_equal(problem.rows[0], problem.rows[1])


@pytest.mark.parametrize(
    ("case", "regularization"), [("smooth", None), ("convex", None), ("strongly-convex", 0.05)]
)
@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_descent_reaches_the_minimum_within_its_bound(case, regularization, rate):
    task = task_for(examples=2000, epsilon=4.0, regularization=regularization, radius=3.0, clip=1.0)
    problem = problem_for(task)
    # Labels that the rows explain, so that there is something to learn.
    problem.targets[:] = np.sign(problem.features @ np.array([3.0, -2.0, 0.5]) + 0.3)
    ridge = 2000 * (regularization or 1e-3)
    best = minimised(Objective(problem, ridge, np.zeros(3)), 1e-6)
    best *= min(1.0, task.reach / np.linalg.norm(best))
    design = descent_design(task, steps=150, sample_rate=rate, case=case)
    found = release_descent(design, problem, UnsafeSeededStream(1, "descent"))
    start = problem.value(np.zeros(3)) / 2000
    risk = (problem.value(found) - problem.value(best)) / 2000
    assert risk <= design.excess_risk
    assert problem.value(found) / 2000 < 0.8 * start


def test_points_stay_within_a_radius():
    task = task_for(Linear(), epsilon=0.1)
    found = release_descent(
        descent_design(task, steps=30),
        problem_for(task),
        UnsafeSeededStream(0, "descent"),
        radius=0.5,
    )
    assert np.linalg.norm(found) <= 0.5


def test_several_scores_may_be_clipped():
    task = task_for(Softmax(3), clip=0.2)
    found = release_descent(
        descent_design(task, steps=5), problem_for(task), UnsafeSeededStream(0, "descent")
    )
    assert found.shape == (9,)


def test_steps_left_out_follow_theory_within_patience():
    few = descent_design(task_for(examples=100, features=50))
    many = descent_design(task_for(examples=10**7))
    assert 1 <= few.steps < many.steps == 500
    assert 0 < best_sample_rate(task_for(examples=10**5)) < 0.5


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="delta"):
        descent_design(task_for(delta=0.0))
    with pytest.raises(InvalidArgument, match="sample_rate"):
        descent_design(task_for(), sample_rate=1.5)
    with pytest.raises(InvalidArgument, match="steps"):
        descent_design(task_for(), steps=0)
