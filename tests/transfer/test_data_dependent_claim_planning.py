"""Planning how a cost is told: from votes that are public, and close to the best choice."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream
from tacit.transfer import (
    ConfidentGNMax,
    GNMax,
    LNMax,
    label,
    plan_cost_release,
    sanitised_cost,
    simulated_votes,
)

VOTES = simulated_votes(0.92, queries=120, teachers=100, classes=4)
SETTING = ConfidentGNMax(threshold=80.0, screening_sigma=40.0, sigma=16.0)


@pytest.fixture(name="plan", scope="module")
def a_plan():
    return plan_cost_release(VOTES, SETTING, delta=1e-5, queries=300, answers=150)


def told(plan, seed, **changes):
    """What is claimed of a run with such votes."""
    votes = simulated_votes(0.92, queries=300, teachers=100, classes=4, seed=seed)
    run = label(votes, SETTING, answers=150, stream=UnsafeSeededStream(seed, "votes"))
    numbers = {
        "order": plan.order,
        "smoothness": plan.smoothness,
        "noise_multiplier": plan.noise_multiplier,
    }
    stream = UnsafeSeededStream(seed, "told")
    found = sanitised_cost(votes, SETTING, run, **(numbers | changes), stream=stream)
    return found.epsilon(1e-5)


def test_what_is_planned_is_about_what_is_claimed(plan):
    claimed = [told(plan, seed) for seed in range(1, 8)]
    assert np.median(claimed) == pytest.approx(plan.epsilon, rel=0.15)


def test_other_numbers_claim_more(plan):
    best = np.mean([told(plan, seed) for seed in range(1, 5)])
    for changes in (
        {"order": 2.2 * plan.order},
        {"order": 0.4 * plan.order},
        {"smoothness": 4.0 * plan.smoothness},
        {"noise_multiplier": 3.0 * plan.noise_multiplier},
        {"noise_multiplier": plan.noise_multiplier / 2.5},
    ):
        assert np.mean([told(plan, seed, **changes) for seed in range(1, 5)]) > best


def test_fewer_answers_and_more_agreement_cost_less(plan):
    fewer = plan_cost_release(VOTES, SETTING, delta=1e-5, queries=300, answers=40)
    assert fewer.epsilon < plan.epsilon
    agreed = simulated_votes(0.98, queries=120, teachers=100, classes=4)
    assert (
        plan_cost_release(agreed, SETTING, delta=1e-5, queries=300, answers=150).epsilon
        < plan.epsilon
    )


def test_gnmax_is_planned_without_screenings():
    alone = plan_cost_release(VOTES, GNMax(sigma=16.0), delta=1e-5)
    assert 0.0 < alone.epsilon < 10.0


def test_simulated_votes_agree_as_much_as_said_and_are_repeatable():
    votes = simulated_votes(0.8, queries=2000, teachers=100, classes=5, seed=3)
    assert votes.counts[:, 0].mean() == pytest.approx(80.0, abs=2.0)
    assert (
        votes.counts == simulated_votes(0.8, queries=2000, teachers=100, classes=5, seed=3).counts
    ).all()
    assert (votes.queries, votes.teachers, votes.classes) == (2000, 100, 5)


def test_refusals():
    with pytest.raises(InvalidArgument, match="aggregator"):
        plan_cost_release(VOTES, LNMax(), delta=1e-5)
    with pytest.raises(InvalidArgument, match="delta"):
        plan_cost_release(VOTES, SETTING, delta=0.0)
    with pytest.raises(InvalidArgument, match="answers"):
        plan_cost_release(VOTES, SETTING, delta=1e-5, answers=121)
    with pytest.raises(InvalidArgument, match="agreement"):
        simulated_votes(1.0)
