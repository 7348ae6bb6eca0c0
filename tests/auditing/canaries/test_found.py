from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom

from tacit.auditing import Guesses

from .simulated import plan_for, simulated

PLANS = [(2.0, 1.0, 10), (8.0, 1.0, 10), (4.0, 0.5, 10), (8.0, 0.1, 30), (4.0, 0.02, 100)]


def false_alarms(epsilon: float, rate: float, steps: int, runs: int) -> tuple[int, int]:
    """How many verdicts on right runs show more than the claim, and how many contradict it."""
    plan, draw = plan_for(epsilon, rate, steps), np.random.default_rng(1)
    verdicts = [simulated(plan, draw).verdict() for _ in range(runs)]
    over = sum(verdict.shown.epsilon > verdict.claimed for verdict in verdicts)
    return over, sum(verdict.contradicted for verdict in verdicts)


@pytest.mark.parametrize(("epsilon", "rate", "steps"), PLANS)
def test_right_runs_are_not_contradicted(epsilon: float, rate: float, steps: int) -> None:
    over, contradicted = false_alarms(epsilon, rate, steps, 8)
    assert binom.sf(over - 1, 8, 0.05) > 1e-3
    assert contradicted == 0  # one in 10,000 is allowed


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "rate", "steps"), PLANS)
def test_right_runs_are_seldom_contradicted(epsilon: float, rate: float, steps: int) -> None:
    over, contradicted = false_alarms(epsilon, rate, steps, 500)
    assert binom.sf(over - 1, 500, 0.05) > 1e-3
    assert binom.sf(contradicted - 1, 500, 1e-4) > 1e-3


@pytest.mark.parametrize(("epsilon", "rate", "steps"), PLANS)
def test_half_of_the_noise_is_contradicted(epsilon: float, rate: float, steps: int) -> None:
    found = simulated(plan_for(epsilon, rate, steps), np.random.default_rng(2), noise=0.5, m=4000)
    verdict = found.verdict()
    assert verdict.contradicted
    assert verdict.exit_status == 1


def test_the_plans_own_curve() -> None:
    plan, draw = plan_for(4.0, 1.0, 10), np.random.default_rng(3)
    assert simulated(plan, draw).curve_p_value() > 1e-3
    assert simulated(plan, draw, noise=0.4, m=4000).curve_p_value() <= 1e-4


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_opposite_canaries(epsilon: float) -> None:
    plan, draw = plan_for(epsilon, 1.0, 10), np.random.default_rng(6)
    right = [simulated(plan, draw, other=-1.0) for _ in range(8)]
    over = sum(one.verdict().shown.epsilon > epsilon for one in right)
    assert binom.sf(over - 1, 8, 0.05) > 1e-3
    assert not any(one.verdict().contradicted for one in right)
    assert min(one.curve_p_value() for one in right) > 1e-3
    assert simulated(plan, draw, noise=0.5, m=4000, other=-1.0).verdict().contradicted


def test_the_curve_of_two_changes() -> None:
    """At small ε, where guesses of a right run are often wrong."""
    plan, draw = plan_for(1.0, 1.0, 10), np.random.default_rng(7)
    assert simulated(plan, draw, noise=0.3, m=4000, other=-1.0).curve_p_value() <= 1e-4


def test_guesses_and_trials() -> None:
    found = simulated(plan_for(4.0, 1.0, 5), np.random.default_rng(4))
    assert len(found.trials.inside) == found.included.sum()
    assert found.trials.inside.mean() > found.trials.outside.mean()
    guesses = found.guesses(100)
    assert (guesses.canaries, guesses.made) == (1000, 100)
    assert isinstance(guesses, Guesses)
    assert guesses.right > 60


def test_the_summary_is_json() -> None:
    found = simulated(plan_for(2.0, 0.5, 5), np.random.default_rng(5))
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain["canaries"] == 1000
    assert plain["contradicted"] is False
    assert [bound["method"] for bound in plain["bounds"]] == [
        "Gaussian scores, noncentral t",
        "one run, counts of right guesses",
        "noise of the plan, by Student's statistic of totals",
    ]
