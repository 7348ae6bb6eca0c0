"""From a Rényi curve to (ε, δ), with the order chosen by optimisation.

If every Rényi divergence of order α is at most D, then for every ε ≥ 0 (Canonne, Kamath & Steinke
2020, Proposition 12; Balle et al. 2020, Theorem 21)

    ln δ = (α-1)·(D - ε + ln(1 - 1/α)) - ln α.

Each order gives a valid answer and the best one counts. For a true curve (α-1)·D is convex in α,
so both the ε of a given δ and the ln δ of a given ε have a single minimum; a curve of upper bounds
may have more, which can only cost tightness.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.renyi.curves import Curve

    Array = NDArray[np.float64]

_SMALLEST, _LARGEST = 1e-9, 1e15  # of α - 1


def epsilon_of_curve(curve: Curve, delta: float) -> float:
    """The smallest ε ≥ 0 that ``curve`` proves at ``delta``; infinite if it proves none.

    >>> round(epsilon_of_curve(lambda orders: 0.5 * orders, 1e-5), 6)
    4.728387
    """
    if _releases_nothing(curve):
        return 0.0
    if not delta > 0.0:
        return math.inf

    def objective(orders: Array) -> Array:
        kept = np.log1p(-1.0 / orders)
        return curve(orders) + kept - (math.log(delta) + np.log(orders)) / (orders - 1.0)

    return max(0.0, least_over_orders(objective))


def delta_of_curve(curve: Curve, epsilon: float) -> float:
    """The smallest δ that ``curve`` proves at ``epsilon``; 1 if it proves none.

    >>> round(delta_of_curve(lambda orders: 0.5 * orders, 4.728387), 9)
    1e-05
    """
    return math.exp(min(0.0, log_delta_of_curve(curve, epsilon)))


def log_delta_of_curve(curve: Curve, epsilon: float) -> float:
    """The logarithm of ``delta_of_curve``, without underflow."""
    if _releases_nothing(curve) or math.isinf(epsilon):
        return -math.inf

    def objective(orders: Array) -> Array:
        gain = curve(orders) - epsilon + np.log1p(-1.0 / orders)
        return (orders - 1.0) * gain - np.log(orders)

    return min(0.0, least_over_orders(objective))


def _releases_nothing(curve: Curve) -> bool:
    """Whether the divergence vanishes at some order, hence at all: the laws are equal."""
    return float(curve(np.asarray([1.5]))[0]) == 0.0


def least_over_orders(objective: Callable[[Array], Array]) -> float:
    """The smallest value of ``objective`` found over the orders, closing in from a wide grid.

    Whole orders next to the best one are tried as well: curves that are interpolated between whole
    orders have their minimum there.
    """
    grid, values = _bracketed(objective)
    best = float(np.min(values))
    if math.isinf(best):
        return best
    for _ in range(10):
        grid = _between_neighbours(grid, values)
        values = _values(objective, grid)
        best = min(best, float(np.min(values)))
        if float(np.max(values)) - best < 1e-3 * abs(best):
            break
    grid = _around_vertex(grid, values)
    values = _values(objective, grid)
    best = min(best, float(np.min(values)))
    order = 1.0 + grid[int(np.argmin(values))]
    whole = np.asarray([math.floor(order), math.ceil(order)]) - 1.0
    return min(best, float(np.min(_values(objective, whole[whole >= 1.0]), initial=math.inf)))


def _bracketed(objective: Callable[[Array], Array]) -> tuple[Array, Array]:
    """A grid whose smallest value is not at its end, as far as the permitted range allows."""
    grid = np.geomspace(1e-3, 1e3, 25)
    values = _values(objective, grid)
    while int(np.argmin(values)) == 0 and grid[0] > 2.0 * _SMALLEST:
        more = np.geomspace(grid[0] * 1e-3, grid[0], 13)[:-1]
        grid = np.concatenate([more, grid])
        values = np.concatenate([_values(objective, more), values])
    while int(np.argmin(values)) == grid.size - 1 and grid[-1] < 0.5 * _LARGEST:
        more = np.geomspace(grid[-1], grid[-1] * 1e3, 13)[1:]
        grid = np.concatenate([grid, more])
        values = np.concatenate([values, _values(objective, more)])
    return grid, values


def _between_neighbours(grid: Array, values: Array) -> Array:
    """Nine points between the neighbours of the best one."""
    found = int(np.argmin(values))
    return np.geomspace(grid[max(found - 1, 0)], grid[min(found + 1, grid.size - 1)], 9)


def _around_vertex(grid: Array, values: Array) -> Array:
    """The vertex of the parabola through the best point and its neighbours, if there is one."""
    found = min(max(int(np.argmin(values)), 1), grid.size - 2)
    left, right = values[found - 1] - values[found], values[found + 1] - values[found]
    if not (left >= 0.0 and right >= 0.0 and 0.0 < left + right < math.inf):
        return grid
    step = math.log(grid[found + 1] / grid[found])
    return np.asarray([grid[found] * math.exp(0.5 * step * (left - right) / (left + right))])


def _values(objective: Callable[[Array], Array], grid: Array) -> Array:
    values = objective(1.0 + grid)
    return np.where(np.isnan(values), np.inf, values)
