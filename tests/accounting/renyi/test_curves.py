"""From a Rényi curve to (ε, δ): the formula, the search for the order, and hopeless curves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tacit.accounting import gaussian_profile
from tacit.accounting.renyi.curves import (
    delta_of_curve,
    epsilon_of_curve,
    linear,
    log_delta_of_curve,
)


def converted(order: float, divergence: float, delta: float) -> float:
    return (
        divergence
        + math.log((order - 1) / order)
        - (math.log(delta) + math.log(order)) / (order - 1)
    )


@pytest.mark.parametrize("rho", [1e-12, 1e-4, 0.5, 1e4, 1e7])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-5, 0.1])
def test_the_best_of_a_million_orders_is_not_better(rho: float, delta: float) -> None:
    found = epsilon_of_curve(linear(rho), delta)
    excess = np.geomspace(1e-9, 1e15, 200_001)
    orders = 1.0 + excess
    values = rho * orders + np.log(excess / orders) - (math.log(delta) + np.log(orders)) / excess
    best = max(0.0, float(values.min()))
    assert found == pytest.approx(best, rel=1e-7, abs=1e-12)
    assert found >= best * (1 - 1e-7) - 1e-15


def test_the_two_questions_are_inverse() -> None:
    curve = linear(0.3)
    for delta in (1e-200, 1e-12, 1e-3):
        epsilon = epsilon_of_curve(curve, delta)
        assert log_delta_of_curve(curve, epsilon) == pytest.approx(math.log(delta), rel=1e-8)


def test_it_stays_above_the_exact_gaussian() -> None:
    for mu in (0.01, 0.5, 3.0):
        for delta in (1e-12, 1e-5, 0.01):
            found = epsilon_of_curve(linear(0.5 * mu * mu), delta)
            exact = gaussian_profile.epsilon(mu, delta)
            assert exact <= found
            assert found <= exact + 1.5 * mu


def test_nothing_released_and_nothing_known() -> None:
    assert epsilon_of_curve(linear(0.0), 1e-5) == 0.0
    assert delta_of_curve(linear(0.0), 0.0) == 0.0
    assert epsilon_of_curve(linear(math.inf), 1e-5) == math.inf
    assert delta_of_curve(linear(math.inf), 3.0) == 1.0
    assert epsilon_of_curve(linear(1.0), 0.0) == math.inf
    assert delta_of_curve(linear(1.0), math.inf) == 0.0


def test_orders_near_a_truncation_are_reached() -> None:
    omega = 3.0
    limit = converted(omega, 0.01 * omega, 1e-5)
    assert epsilon_of_curve(linear(0.01, below=omega), 1e-5) == pytest.approx(limit, rel=1e-3)
    assert epsilon_of_curve(linear(0.01, below=omega), 1e-5) >= limit
