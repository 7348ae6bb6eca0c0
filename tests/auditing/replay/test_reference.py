"""The second accountant: below the truth, and close to it."""

from __future__ import annotations

import mpmath
import pytest
from scipy import optimize, stats

from tacit import Plan
from tacit.accounting import bounds
from tacit.auditing.replay.reference import least_epsilon, least_together
from tacit.training.sampling import FullBatch, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile


def plan(
    rate: float, sigma: float, steps: int, adjacency: str = "add-remove", **more: object
) -> Plan:
    return Plan(
        examples=1000, lot_size=1000 * rate, steps=steps, noise_multiplier=sigma, clip=1.0,
        adjacency=adjacency, **more,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "adjacency"),
    [
        (0.26, 1.0, 8, "add-remove"),
        (0.26, 1.0, 8, "replace-one"),
        (0.26, 1.0, 8, "zero-out"),
        (0.1, 0.6, 20, "add-remove"),
        (0.01, 1.1, 100, "add-remove"),
        (0.26, 20.0, 8, "add-remove"),
    ],
)
def test_it_is_just_below_the_certified_interval(
    rate: float, sigma: float, steps: int, adjacency: str
) -> None:
    one = plan(rate, sigma, steps, adjacency)
    certified = bounds(one.event, 1e-5, adjacency=one.adjacency)
    found = least_epsilon(one, steps, 1e-5)
    assert found is not None
    assert 0.99 * certified.lower < found <= certified.upper


@pytest.mark.parametrize(("adjacency", "distance"), [("add-remove", 1.0), ("replace-one", 2.0)])
def test_without_sampling_it_is_the_gaussian_closed_form(adjacency: str, distance: float) -> None:
    mu = distance * 40**0.5 / 9.0

    def excess(epsilon: float) -> float:
        above = stats.norm.cdf(mu / 2 - epsilon / mu)
        return float(above - mpmath.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)) - 1e-5

    truth = optimize.brentq(excess, 0.0, 50.0)
    found = least_epsilon(plan(1.0, 9.0, 40, adjacency), 40, 1e-5)
    assert found is not None
    assert 0.998 * truth < found <= truth


def test_the_count_of_an_adaptive_clip_is_in_it() -> None:
    still = least_epsilon(plan(0.26, 1.0, 8), 8, 1e-5)
    moving = plan(0.26, 1.0, 8, clipping=AdaptiveQuantile(count_noise=1.0))
    found = least_epsilon(moving, 8, 1e-5)
    assert still is not None
    assert found is not None
    assert found > still
    assert 0.99 * bounds(moving.event, 1e-5).lower < found <= bounds(moving.event, 1e-5).upper


def test_it_says_nothing_about_lots_that_are_cut() -> None:
    assert least_epsilon(plan(0.1, 1.0, 5, sampling=TruncatedPoisson(300)), 5, 1e-5) is None


def test_two_plans_without_sampling_are_one_gaussian_together() -> None:
    # 3 steps at σ = 2 and 5 at σ = 4 tell as much as one with 1/σ² = 3/4 + 5/16.
    one, other = (plan(1.0, sigma, 8, sampling=FullBatch()) for sigma in (2.0, 4.0))
    found = least_together(((one, 3), (other, 5)), 1e-5)
    joint = plan(1.0, (3 / 4 + 5 / 16) ** -0.5, 1, sampling=FullBatch())
    certified = bounds(joint.event, 1e-5)
    assert found is not None
    assert 0.999 * certified.lower < found <= certified.upper


def test_nothing_released_costs_nothing_and_order_makes_no_difference() -> None:
    one, other = plan(0.26, 1.0, 8), plan(0.1, 0.7, 4)
    assert least_together(((one, 0), (other, 0)), 1e-5) == 0.0
    both = [least_together(pair, 1e-5) for pair in (((one, 8), (other, 4)), ((other, 4), (one, 8)))]
    assert both[0] == pytest.approx(both[1])
    assert both[0] > max(least_together(((p, p.steps),), 1e-5) or 0.0 for p in (one, other))
    assert least_together(((one, 5), (one, 3)), 1e-5) == least_epsilon(one, 8, 1e-5)
