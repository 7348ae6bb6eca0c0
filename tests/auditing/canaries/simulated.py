"""White-box runs without an engine: the law of the scores, written down apart from it."""

from __future__ import annotations

from functools import cache

import numpy as np

from tacit.auditing.canaries import WhiteBoxResult
from tacit.training import Plan

DELTA = 1e-5


def plan_for(epsilon: float, rate: float, steps: int, examples: int = 1000) -> Plan:
    return Plan.for_budget(
        epsilon=epsilon, delta=DELTA, examples=examples, lot_size=rate * examples, steps=steps,
        clip=1.0,
    )  # fmt: skip


@cache
def claimed(plan: Plan) -> float:
    return plan.epsilon(DELTA)


def simulated(
    plan: Plan, draw: np.random.Generator, *, noise: float = 1.0, m: int = 1000, other: float = 0.0
) -> WhiteBoxResult:
    """A run with ``noise`` times the plan's noise; canaries that are out add ``other``."""
    q, sigma = plan.sample_rate, plan.noise_multiplier
    coins = draw.random(m) < 0.5
    sampled = (draw.random((plan.steps, m)) < q) * np.where(coins, 1.0, other)
    moved = sampled + noise * sigma * draw.standard_normal((plan.steps, m))
    ratios = np.exp((moved - 0.5) / sigma**2)
    scores = np.log(1.0 - q + q * ratios).sum(axis=0)
    changes = 2 if other < 0.0 else 1
    return WhiteBoxResult(plan, DELTA, claimed(plan), coins, scores, moved.sum(axis=0), changes)
