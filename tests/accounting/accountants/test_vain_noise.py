"""Noise that hides next to nothing still gets an answer, and a bound: a plan may have any σ > 0."""

from __future__ import annotations

import math

import pytest

from tacit.accounting import (
    Composed,
    Gaussian,
    PoissonSampled,
    Repeated,
    bounds,
    delta,
    epsilon,
    gaussian_profile,
)


@pytest.mark.parametrize("steps", [1, 10, 10_000])
@pytest.mark.parametrize("sigma", [0.0349, 0.02, 0.01, 1e-3, 1e-6])
def test_tiny_noise_is_bounded_by_the_run_without_sampling(sigma: float, steps: int) -> None:
    run = Repeated(PoissonSampled(0.01, Gaussian(sigma)), steps)
    found = bounds(run, 1e-5)
    assert found.upper <= epsilon(Repeated(Gaussian(sigma), steps), 1e-5)
    assert not found.two_sided
    # One step at least is seen with probability 0.01 > δ, and by δ₁(ε) = δ/q, up to ln q, at
    # this loss; more of them only add to it.
    assert math.isfinite(found.upper)
    seen = gaussian_profile.epsilon(1.0 / sigma, 1e-5 / 0.01)
    assert found.upper >= (seen + math.log(0.01)) * (1 - 1e-9)


def test_less_noise_never_costs_less() -> None:
    answers = [
        epsilon(Repeated(PoissonSampled(0.01, Gaussian(sigma)), 100), 1e-5)
        for sigma in (0.06, 0.036, 0.035, 0.0349, 0.03, 0.01)
    ]
    assert answers == sorted(answers)


def test_other_parts_of_a_run_keep_their_sampling() -> None:
    ordinary = Repeated(PoissonSampled(0.01, Gaussian(2.0)), 100)
    tiny = PoissonSampled(0.01, Gaussian(0.01))
    both = epsilon(Composed(ordinary, tiny), 1e-5)
    assert both <= epsilon(Composed(ordinary, Gaussian(0.01)), 1e-5)
    assert both > epsilon(ordinary, 1e-5)
    assert both < epsilon(Composed(Repeated(Gaussian(2.0), 100), Gaussian(0.01)), 1e-5)


def test_delta_is_bounded_too() -> None:
    run = PoissonSampled(0.5, Gaussian(0.03))
    assert 0.0 < delta(run, 500.0) <= 1.0
    # Seen with probability ½, it is worth ½·δ₁ at the loss that sampling turns into 500.
    least = 0.5 * delta(Gaussian(0.03), 500.0 + math.log(2.0))
    assert least * (1 - 1e-9) <= delta(run, 500.0) <= delta(Gaussian(0.03), 500.0)
