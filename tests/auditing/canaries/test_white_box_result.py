""""""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from tacit.auditing import Guesses, Scores, gaussian_scores
from tacit.auditing.canaries import plan_noise
from tacit.auditing.canaries.white_box_result import ratio_p_value
from tacit.errors import InvalidArgument
from tacit.training import Plan

from .simulated import DELTA, plan_for, simulated

# ---- found

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


# ---- plan noises


def totals(found) -> Scores:
    return Scores(found.totals[found.included], found.totals[~found.included])


def test_of_full_batches_it_is_the_gaussian_bound() -> None:
    plan = plan_for(4.0, 1.0, 10)
    sums = totals(simulated(plan, np.random.default_rng(1), m=4000))
    found = plan_noise(sums, plan, DELTA)
    # That one has the deviation of all canaries, and keeps a part of its failure rate for a check.
    mu = math.sqrt(plan.steps) / found.number("noise_multiplier")
    assert mu == pytest.approx(gaussian_scores(sums, DELTA).number("mu"), rel=0.02)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_law_of_the_statistic(adjacency: str) -> None:
    """At the true noise, a share of 5 % of runs is refuted, whatever the canary adds."""
    plan = replace(plan_for(8.0, 0.3, 6), adjacency=adjacency)
    draw, missed = np.random.default_rng(7), 0
    for _ in range(3000):
        one = Scores(*(
            5.0 * (side * draw.binomial(6, 0.3, 100) + math.sqrt(6.0) * plan.noise_multiplier
            * draw.normal(size=100)) for side in (1.0, -1.0 if adjacency == "replace-one" else 0.0)
        ))  # fmt: skip
        missed += ratio_p_value(one, plan, 1.0 / plan.noise_multiplier) <= 0.05
    assert 1e-3 < binom.cdf(missed, 3000, 0.05) < 0.999


def test_it_is_the_epsilon_of_the_plan_with_that_noise() -> None:
    plan = plan_for(4.0, 0.1, 30)
    found = plan_noise(totals(simulated(plan, np.random.default_rng(2))), plan, DELTA)
    noisier = replace(plan, noise_multiplier=found.number("noise_multiplier"))
    assert found.epsilon == noisier.epsilon(DELTA)


@pytest.mark.parametrize(("rate", "steps"), [(0.5, 10), (0.05, 40)])
def test_it_is_seldom_too_high(rate: float, steps: int) -> None:
    plan, draw = plan_for(4.0, rate, steps), np.random.default_rng(3)
    runs = [totals(simulated(plan, draw)) for _ in range(100)]
    p_values = [ratio_p_value(run, plan, 1.0 / plan.noise_multiplier) for run in runs]
    assert binom.sf(sum(p <= 0.05 for p in p_values) - 1, 100, 0.05) > 1e-3
    assert plan_noise(runs[0], plan, DELTA).epsilon > 0.2 * 4.0


def test_totals_that_do_not_differ_show_nothing() -> None:
    plan, draw = plan_for(4.0, 0.1, 30), np.random.default_rng(5)
    same = Scores(-1.0 + draw.normal(size=500), draw.normal(size=500))
    assert plan_noise(same, plan, DELTA).epsilon == 0.0


def test_replaced_canaries_lie_twice_as_far_apart() -> None:
    one = Plan(examples=100, lot_size=100, steps=4, noise_multiplier=2.0, clip=1.0)
    two = replace(one, adjacency="replace-one")
    draw = np.random.default_rng(6)
    sums = Scores(3.0 + draw.normal(size=500), draw.normal(size=500))
    found = [plan_noise(sums, plan, DELTA) for plan in (one, two)]
    noises = [bound.number("noise_multiplier") for bound in found]
    assert noises[1] == pytest.approx(2.0 * noises[0])
    assert found[1].epsilon == pytest.approx(found[0].epsilon)


def test_totals_without_noise_are_refused() -> None:
    plan = plan_for(4.0, 0.1, 30)
    with pytest.raises(InvalidArgument, match=r"totals\.outside"):
        plan_noise(Scores([1.0, 2.0], [0.0, 0.0]), plan, DELTA)
