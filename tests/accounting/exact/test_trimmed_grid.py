"""Lattices whose tails are drawn in: bounds still, and narrow where sampling is rare."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tacit.accounting import Gaussian, PoissonSampled, Repeated, bounds, epsilon
from tacit.accounting.exact.grid import _trimmed_down, _trimmed_up, grid_down, grid_up
from tacit.accounting.exact.pairs import atoms

if TYPE_CHECKING:
    from tacit.accounting.exact.grid import Gridded
    from tacit.accounting.exact.transforms import Floats


def _twice(losses: Floats, masses: Floats, infinite: float, eps: float) -> float:
    """δ(ε) of two steps, by all pairs of losses."""
    total = np.add.outer(losses, losses)
    weight = np.multiply.outer(masses, masses)
    finite = float((weight * -np.expm1(np.minimum(eps - total, 0.0))).sum())
    return finite + 1.0 - (1.0 - infinite) ** 2


def _of_lattice(found: Gridded, eps: float) -> float:
    return _twice(found.loss.losses, found.loss.masses[found.loss.support], found.infinite, eps)


@pytest.mark.parametrize("mass", [1e-9, 1e-4, 0.02])
def test_tails_are_drawn_in_on_the_safe_side(mass: float) -> None:
    source = np.random.default_rng(8)
    p = source.dirichlet(np.full(60, 0.1))
    q = source.dirichlet(np.full(60, 0.1))
    p, q = np.append(p * 0.999, [1e-3, 0.0]), np.append(q * 0.999, [0.0, 1e-3])
    cells = atoms(p, q)
    seen = (p > 0.0) & (q > 0.0)
    losses, infinite = np.log(p[seen] / q[seen]), float(p[q == 0.0].sum())
    up, down = (
        move(trim(cells, mass), 0.01)
        for move, trim in ((grid_up, _trimmed_up), (grid_down, _trimmed_down))
    )
    for eps in np.linspace(0.0, 1.5 * float(losses.max()), 30):
        truth = _twice(losses, p[seen], infinite, eps)
        assert _of_lattice(up, eps) >= truth * (1.0 - 1e-9)
        assert _of_lattice(down, eps) <= truth * (1.0 + 1e-9)
    # What is drawn in counts, or there would be nothing to prove.
    if mass > 1e-3:
        high = 0.9 * float(losses.max())
        assert _of_lattice(up, high) > 1.0001 * _of_lattice(grid_up(cells, 0.01), high)
        assert _of_lattice(down, high) < 0.9999 * _of_lattice(grid_down(cells, 0.01), high)


def _by_convolution(rate: float, sigma: float, steps: int, target: float) -> float:
    """About ε of replace-one: a quadrature over outputs, losses split onto 2⁻²² and a power."""
    spacing, size = 2.0**-22, 2**19
    edge = 13.0 * sigma + 1.0
    x, width = np.linspace(-edge, edge, 400_001, retstep=True)
    plain = np.exp(-0.5 * (x / sigma) ** 2) * width / (sigma * math.sqrt(2.0 * math.pi))
    above = np.log1p(rate * np.expm1((x - 0.5) / sigma**2))
    below = np.log1p(rate * np.expm1((-x - 0.5) / sigma**2))
    mass, place = plain * np.exp(above), (above - below) / spacing
    seen = np.abs(place) < size // 2 - 1
    mass, place = mass[seen], place[seen]
    index = np.floor(place).astype(np.int64)
    law = np.bincount(index % size, mass * (1.0 - place + index), size)
    law += np.bincount((index + 1) % size, mass * (place - index), size)
    total = np.fft.irfft(np.fft.rfft(law) ** steps, size)
    loss = spacing * np.arange(1, size // 2)
    low, high = 0.0, 0.06
    for _ in range(40):
        middle = 0.5 * (low + high)
        found = float((total[1 : size // 2] * -np.expm1(np.minimum(middle - loss, 0.0))).sum())
        low, high = (middle, high) if found > target else (low, middle)
    return low


def test_replace_one_where_sampling_is_rare() -> None:
    run = Repeated(PoissonSampled(1.8e-5, Gaussian(1.19)), 1495)
    found = bounds(run, 1e-6, adjacency="replace-one")
    truth = _by_convolution(1.8e-5, 1.19, 1495, 1e-6)
    assert found.lower <= truth * (1.0 + 1e-5)
    assert found.upper >= truth * (1.0 - 1e-5)
    assert found.width <= 0.005 * truth


def test_less_noise_there() -> None:
    run = Repeated(PoissonSampled(1.8e-5, Gaussian(0.8)), 1495)
    assert epsilon(run, 1e-6, adjacency="replace-one") < 0.007  # 0.0121 on a lattice of all losses
