"""Noise is found within few and cheap questions, whatever the rate, the steps and the budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accounting import (
    Gaussian,
    PoissonSampled,
    Repeated,
    analytic_gaussian_sigma,
    bounds,
    epsilon,
    noise_multiplier,
)
from tacit.accounting.exact import grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.exact.grid import Gridded
    from tacit.accounting.exact.pairs import Cells

DELTA = 1e-5


def _delta_of_two_steps(rate: float, sigma: float, epsilon: float) -> float:
    """δ(ε) = E_P[δ₁(ε - L(x))] by quadrature over the first step; the second in closed form."""
    x = np.linspace(-12.0 * sigma, 1.0 + 12.0 * sigma, 400_001)
    density = (1.0 - rate) * _bell(x, sigma) + rate * _bell(x - 1.0, sigma)
    left = epsilon - np.log1p(rate * np.expm1((x - 0.5) / sigma**2))
    # The second step's loss exceeds `left` above this x, always so below ln(1 - rate).
    ratio = np.maximum(np.exp(left) - (1.0 - rate), 0.0) / rate
    with np.errstate(divide="ignore"):
        cut = 0.5 + sigma**2 * np.log(ratio)
    q = ndtr(-cut / sigma)
    p = (1.0 - rate) * q + rate * ndtr((1.0 - cut) / sigma)
    return float(np.trapezoid(density * (p - np.exp(left) * q), x))


def _bell(x: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    bell: NDArray[np.float64] = np.exp(-0.5 * (x / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    return bell


@pytest.mark.parametrize(("rate", "sigma"), [(0.5, 22.0), (0.5, 1200.0), (0.5, 3.0), (0.1, 10.0)])
def test_two_steps_at_a_high_rate_are_summed_sharply(rate: float, sigma: float) -> None:
    found = bounds(Repeated(PoissonSampled(rate, Gaussian(sigma)), 2), DELTA)
    assert found.method == ("contour" if rate > 0.3 else "closed form")
    assert found.upper - found.lower <= 1e-9 * found.upper
    assert _delta_of_two_steps(rate, sigma, found.upper) == pytest.approx(DELTA, rel=1e-7)


@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 0.7), (0.01, 0.35), (0.001, 0.45)])
def test_two_steps_on_a_lattice_are_enclosed(rate: float, sigma: float) -> None:
    found = bounds(Repeated(PoissonSampled(rate, Gaussian(sigma)), 2), DELTA)
    assert found.upper - found.lower <= 1e-3 * found.upper
    assert _delta_of_two_steps(rate, sigma, found.upper) <= DELTA * (1.0 + 1e-9)
    assert _delta_of_two_steps(rate, sigma, found.lower) >= DELTA * (1.0 - 1e-9)


@pytest.fixture
def gridded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many cells were moved onto lattices."""
    counts: list[int] = []
    for name in ("grid_up", "grid_down"):
        move = getattr(grid, name)

        def counted(cells: Cells, spacing: float, move: grid.Move = move) -> Gridded:
            counts.append(len(cells.p))
            return move(cells, spacing)

        monkeypatch.setattr(grid, name, counted)
    return counts


@pytest.mark.parametrize(
    ("target", "rate", "steps"),
    [
        (2.93, 0.01024, 9),
        pytest.param(1.0, 0.01, 2, marks=pytest.mark.slow),
        pytest.param(8.0, 0.001, 5, marks=pytest.mark.slow),
    ],
)
def test_few_steps_at_a_low_rate_cost_little(
    gridded: list[int], target: float, rate: float, steps: int
) -> None:
    sigma = noise_multiplier(target, DELTA, rate, steps)
    assert sum(gridded) < 2_500_000
    found = epsilon(Repeated(PoissonSampled(rate, Gaussian(sigma)), steps), DELTA)
    assert target * (1.0 - 1e-5) <= found <= target


@pytest.mark.parametrize("target", [1e-9, 1e-3, 0.1, 1.0, 100.0])
def test_high_rates_and_few_steps_need_hardly_a_lattice(gridded: list[int], target: float) -> None:
    sigma = noise_multiplier(target, DELTA, 720 / 1437, 2)
    assert sum(gridded) < 200_000
    found = epsilon(Repeated(PoissonSampled(720 / 1437, Gaussian(sigma)), 2), DELTA)
    assert target - 1e-6 * max(target, 1e-6) <= found <= target  # as many digits as δ(0) leaves


@pytest.mark.parametrize(("rate", "steps"), [(0.01, 3), (0.5, 2), (0.9, 3)])
def test_a_budget_next_to_nothing_is_met_as_by_a_gaussian(rate: float, steps: int) -> None:
    """So much noise makes the losses Gaussian, with μ = rate·√steps/σ (this once never ended)."""
    found = noise_multiplier(1e-9, 1e-9, rate, steps)
    truth = rate * math.sqrt(steps) * analytic_gaussian_sigma(1e-9, 1e-9)
    assert found == pytest.approx(truth, rel=1e-3)


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "target"),
    [(1e-7, 5.0, 2, 1e-8), (4e-5, 0.5, 2, 1e-12), (1e-3, 0.8, 1, 1e-5), (0.1, 2.0, 100, 1e-6)],
)
def test_noise_is_the_least_to_a_millionth(
    rate: float, sigma: float, steps: int, target: float
) -> None:
    """Next to ε = 0, too, where ε itself falls steeply: one or two steps are led to by their δ."""

    def cost(noise: float) -> float:
        return epsilon(Repeated(PoissonSampled(rate, Gaussian(noise)), steps), target)

    asked = cost(sigma)
    found = noise_multiplier(asked, target, rate, steps)
    assert cost(found) <= asked < cost(found * (1.0 - 1e-6))
    assert found == pytest.approx(sigma, rel=1e-6)
