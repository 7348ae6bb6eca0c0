"""Rényi curves, and the (ε, δ) that they convert to with the order chosen by optimisation.

A curve is a function from orders α > 1 to upper bounds D on the Rényi divergence. Then for every
ε ≥ 0 (Canonne, Kamath & Steinke 2020, Proposition 12; Balle et al. 2020, Theorem 21)

    ln δ = (α-1)·(D - ε + ln(1 - 1/α)) - ln α.

Each order gives a valid answer and the best one counts. For a true curve (α-1)·D is convex in α,
so both the ε of a given δ and the ln δ of a given ε have a single minimum; a curve of upper bounds
may have more, which can only cost tightness.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tacit.accounting.renyi.pairs import Nodes, log_moments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import RenyiCurve
    from tacit.accounting.renyi.pairs import Pair, Reading

    Array = NDArray[np.float64]

Curve = Callable[["Array"], "Array"]
"""Maps an array of orders, all above 1, to an upper bound at each; inf where none is known."""

# Quadrature errors are below 1e-20; this covers the rounding of the sums and logarithms.
_ROUND_UP = 1.0 + 1e-12
_CHUNK = 64


def linear(rho: float, below: float = math.inf, xi: float = 0.0) -> Curve:
    """The curve ξ + ρα for orders under ``below``: zero- or truncated concentrated privacy."""

    def curve(orders: Array) -> Array:
        return np.where(orders < below, xi + rho * orders, np.inf)

    return curve


def laplace(distance: float) -> Curve:
    """Laplace noise of scale 1 around points at ``distance`` (Mironov 2017, Proposition 6).

    (α-1)·D = ln(1 + (α·g((α-1)·d) + (α-1)·g(-α·d))/(2α-1)) with g(x) = e^x - 1 - x ≥ 0, which is
    the published form without its cancellation; e^{(α-1)·d} is taken out of the logarithm.
    """

    def curve(orders: Array) -> Array:
        kappa = orders - 1.0
        rise, fall = kappa * distance, -orders * distance
        small = rise < 30.0
        with np.errstate(over="ignore"):
            gain = orders * _bend(np.where(small, rise, 0.0)) + kappa * _bend(fall)
        near = np.log1p(gain / (orders + kappa))
        ratio = (orders + kappa * np.exp(fall - rise)) / (orders + kappa)
        return np.where(small, near, rise + np.log(ratio)) / kappa * _ROUND_UP

    return curve


def _bend(x: Array) -> Array:
    """e^x - 1 - x, by its series where it is small."""
    series = 0.5 * x * x * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0))))
    return np.where(np.abs(x) < 2e-3, series, np.expm1(x) - x)


def bounded_range(epsilon: float) -> Curve:
    """The worst choice of bounded range ε at each order (Dong, Durfee & Rogers 2020).

    If the privacy loss spans [t - ε, t], the two-point pair on its ends dominates. Its moment is
    largest at e^t = (α-1)/α · (e^{αε} - 1)/(e^{(α-1)ε} - 1). The result is at most αε²/8.
    """

    def curve(orders: Array) -> Array:
        if epsilon == 0.0:
            return np.zeros_like(orders)
        kappa = orders - 1.0
        gap = np.log(-np.expm1(-kappa * epsilon)) - np.log(-np.expm1(-orders * epsilon))
        gap -= np.log1p(-1.0 / orders)  # ε - t, which is tiny at large orders
        known = (gap > 0.0) & (gap < epsilon)
        inner = np.where(known, gap, 0.5 * epsilon)
        high = log_expm1(inner) - log_expm1(epsilon)
        low = inner + log_expm1(epsilon - inner) - log_expm1(epsilon)
        nodes = Nodes(np.stack([epsilon - inner, -inner], 1), np.stack([high, low], 1))
        found = log_moments(nodes, orders, "forward") / kappa * _ROUND_UP
        return np.where(known, found, epsilon)

    return curve


def log_expm1(x: Array | float) -> Array:
    """ln(e^x - 1), without overflow; -inf at 0."""
    with np.errstate(divide="ignore"):
        result: Array = x + np.log(-np.expm1(-np.asarray(x)))
    return result


def tabulated(event: RenyiCurve) -> Curve:
    """A curve known at some orders only.

    D_α rises with α, so below the first order its value serves, and no value need exceed a later
    one. (α-1)·D_α is convex in α (van Erven & Harremoës 2014, Corollary 2), so between two orders
    its linear interpolation is an upper bound. Above the last order nothing is known.
    """
    known = np.asarray(event.orders)
    values = np.minimum.accumulate(np.asarray(event.values)[::-1])[::-1]

    def curve(orders: Array) -> Array:
        inner = np.interp(orders, known, (known - 1.0) * values) / (orders - 1.0)
        return np.where(orders <= known[0], values[0], np.where(orders <= known[-1], inner, np.inf))

    return curve


def of_pair(pair: Pair, reading: Reading, otherwise: Curve) -> Curve:
    """The curve of a dominating pair; ``otherwise`` where the pair has too many nodes."""

    def curve(orders: Array) -> Array:
        result = np.empty_like(orders)
        # Nodes must serve the largest order of their group, so groups hold orders of like size.
        group = np.floor(np.log2(orders) / 4.0)
        for label in np.unique(group):
            (found,) = np.nonzero(group == label)
            for start in range(0, found.size, _CHUNK):
                some = found[start : start + _CHUNK]
                result[some] = _of_group(pair, reading, otherwise, orders[some])
        return result

    return curve


def _of_group(pair: Pair, reading: Reading, otherwise: Curve, orders: Array) -> Array:
    nodes = pair.nodes(float(np.max(orders)), reading)
    if nodes is None and orders.size > 1:
        half = orders.size // 2
        return np.concatenate(
            [_of_group(pair, reading, otherwise, some) for some in (orders[:half], orders[half:])]
        )
    if nodes is None:
        return otherwise(orders)
    return log_moments(nodes, orders, reading) / (orders - 1.0) * _ROUND_UP


def largest(*curves: Curve) -> Curve:
    """The pointwise maximum."""

    def curve(orders: Array) -> Array:
        result: Array = np.maximum.reduce([one(orders) for one in curves])
        return result

    return curve


def smallest(*curves: Curve) -> Curve:
    """The pointwise minimum, for different upper bounds on the same divergence."""

    def curve(orders: Array) -> Array:
        result: Array = np.minimum.reduce([one(orders) for one in curves])
        return result

    return curve


def rising(bound: Curve) -> Curve:
    """The least that ``bound`` says at an order or, divergences rising with it, at a larger one.

    Larger orders are tried on a fixed grid, once.
    """
    later = 1.0 + np.geomspace(1e-2, 1e5, 141)
    found: list[Array] = []

    def curve(orders: Array) -> Array:
        if not found:
            values = np.where(np.isnan(bound(later)), np.inf, bound(later))
            found.append(np.append(np.minimum.accumulate(values[::-1])[::-1], np.inf))
        return np.minimum(bound(orders), found[0][np.searchsorted(later, orders)])

    return curve


def total(curves: tuple[tuple[Curve, int], ...]) -> Curve:
    """The curve of a composition: divergences of one order add up (Mironov 2017, Proposition 1)."""

    def curve(orders: Array) -> Array:
        result = np.zeros_like(orders)
        for one, times in curves:
            result += times * one(orders)
        return result

    return curve


# ---- conversion to (ε, δ)

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
