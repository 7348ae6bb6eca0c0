"""Objective perturbation: designs, and an attack on neighbouring data with the real optimiser."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta

from tacit.accounting import ApproxDp, PureDp
from tacit.convex.losses import Softmax
from tacit.convex.objective import kifer_sigma, profile_sigma, redberg_sigma
from tacit.convex.perturbation import objective_design, release_objective
from tacit.convex.problem import Problem
from tacit.convex.solver import Objective
from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream

from .problems import problem_for, task_for


def test_designs_have_the_theorems_noise():
    task = task_for(regularization=0.02)
    assert objective_design(task).sigma == profile_sigma(task, 4.0)
    assert objective_design(task, "redberg").sigma == redberg_sigma(1.0, 1e-5, 4.0)
    assert objective_design(task, "kifer").sigma == kifer_sigma(1.0, 1e-5)
    assert objective_design(task).event == ApproxDp(1.0, 1e-5, "add-remove")
    pure = objective_design(task_for(delta=0.0, regularization=0.02))
    assert pure.analysis == "cms"
    assert pure.event == PureDp(1.0, "add-remove")


def test_sharper_analyses_take_less_noise_and_promise_less_risk():
    risks = [
        objective_design(task_for(), name).excess_risk for name in ("profile", "redberg", "kifer")
    ]
    assert risks == sorted(risks)
    assert risks[0] < risks[1] < risks[2]


@pytest.mark.parametrize("analysis", ["profile", "redberg", "kifer"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_regularisation_left_out_has_the_least_bound(analysis, epsilon):
    best = objective_design(task_for(epsilon=epsilon), analysis)
    for factor in (0.5, 0.8, 1.25, 2.0):
        try:
            other = objective_design(
                task_for(epsilon=epsilon, regularization=factor * best.regularization), analysis
            )
        except InvalidArgument:  # below what the theorem allows
            continue
        assert other.excess_risk >= best.excess_risk * (1 - 1e-6)


def test_analyses_refuse_what_they_do_not_prove():
    for task in (task_for(adjacency="replace-one"), task_for(Softmax(3))):
        for analysis in ("redberg", "kifer"):
            with pytest.raises(InvalidArgument, match="profile"):
                objective_design(task, analysis)
    with pytest.raises(InvalidArgument, match="cms"):
        objective_design(task_for(), "cms")
    with pytest.raises(InvalidArgument, match="delta"):
        objective_design(task_for(delta=0.0), "profile")
    with pytest.raises(InvalidArgument, match="regularization must be at least"):
        objective_design(task_for(regularization=1e-6), "kifer")
    with pytest.raises(InvalidArgument, match="analysis must be"):
        objective_design(task_for(), "other")
    clipped = problem_for(task_for(Softmax(3), clip=0.1))
    with pytest.raises(InvalidArgument, match="noisy-gd"):
        release_objective(objective_design(clipped.task), clipped, UnsafeSeededStream(0, "tilt"))


def test_released_point_is_the_minimum_under_a_tilt():
    task = task_for(regularization=0.05)
    design, problem = objective_design(task), problem_for(task)
    theta = release_objective(design, problem, UnsafeSeededStream(0, "tilt"))
    tilt = -Objective(problem, design.ridge, np.zeros(3)).gradient(theta)
    assert 0.3 * design.sigma < np.linalg.norm(tilt) < 4 * design.sigma


RUNS = 400


def attacked(delta, epsilon, shift):
    """How often an attacker says "without", when the example is missing and when it is there.

    Forty examples pull the coefficient to where the added one has a gradient of L nearly in full.
    The attacker knows them: from the coefficient it finds the tilt that they alone would need, and
    says "without" if that is below ``shift`` times the noise's scale. The solver is the real one.
    """
    rows, targets = np.ones((41, 1)), np.array([-1.0] * 40 + [1.0])
    ridge, hits = 8.0, []
    known = Problem(task_for(examples=40, features=1), rows[:40], targets[:40])
    for count in (40, 41):
        task = task_for(
            examples=count, features=1, epsilon=epsilon, delta=delta, regularization=ridge / count
        )
        design, problem = objective_design(task), Problem(task, rows[:count], targets[:count])
        stream = UnsafeSeededStream(14, f"attack {count}")
        hits.append(0)
        for _ in range(RUNS):
            theta = release_objective(design, problem, stream)
            tilt = -Objective(known, ridge, np.zeros(1)).gradient(theta)[0]
            hits[-1] += tilt > shift * (design.sigma or design.gamma_scale)
    return hits


def ends(hits, miss=5e-7):
    """Clopper and Pearson's ends of the chance of a hit."""
    return (
        beta.ppf(miss, hits, RUNS - hits + 1),
        beta.ppf(1 - miss, hits + 1, RUNS - hits),
    )


def test_attack_with_the_real_solver_stays_below_pure_epsilon():
    without, present = attacked(delta=0.0, epsilon=1.0, shift=0.0)
    assert math.log(ends(without)[0] / ends(present)[1]) <= 1.0
    assert math.log(without / present) > 0.7  # so that the attack is one


@pytest.mark.slow
def test_attack_with_the_real_solver_stays_below_delta():
    # At the threshold where the privacy loss of a Gaussian passes ε.
    without, present = attacked(delta=0.05, epsilon=0.5, shift=0.9)
    assert ends(without)[0] - math.exp(0.5) * ends(present)[1] <= 0.05
    assert (without - math.exp(0.5) * present) / RUNS > 0.015
