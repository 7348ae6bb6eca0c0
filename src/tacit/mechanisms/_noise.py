"""Events of added noise that meet what was asked, by the accountant's own word."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.accounting.events import DiscreteLaplace, Gaussian, Laplace, distance

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Adjacency, Event
    from tacit.mechanisms._terms import Amount

UP = 1.0 + 2.0**-50
"""Makes up for the roundings of a few float64 operations."""


def apart(adjacency: Adjacency) -> float:
    """The ``replace_distance`` of an event whose unit is the sensitivity under ``adjacency``.

    Removing one record and adding another moves an answer by twice what one does.
    """
    return 1.0 if adjacency == "replace-one" else 2.0


def laplace_event(epsilon: float, replace_distance: float, adjacency: Adjacency) -> Laplace:
    """The least noise that is ``epsilon``-private.

    >>> laplace_event(0.5, 2.0, "replace-one").scale
    4.0
    """
    scale = ratio_for(distance(replace_distance, adjacency), epsilon)
    return Laplace(scale, replace_distance)


def discrete_laplace_event(
    epsilon: float, sensitivity: int, adjacency: Adjacency
) -> DiscreteLaplace:
    """The same on whole numbers, whose unit is the integer."""
    return DiscreteLaplace(ratio_for(float(sensitivity), epsilon), sensitivity, apart(adjacency))


def ratio_for(moved: float, epsilon: float) -> float:
    """The smallest float64 scale with moved/scale ≤ ε, in float64 arithmetic and in truth."""
    scale = moved / epsilon
    while moved / scale > epsilon or _below(moved, scale, epsilon):
        scale = math.nextafter(scale, math.inf)
    return scale


def _below(moved: float, scale: float, epsilon: float) -> bool:
    """Whether scale·ε < moved, exactly."""
    (a, b), (c, d), (e, f) = (one.as_integer_ratio() for one in (moved, scale, epsilon))
    return c * e * b < a * d * f


def calibrated(
    event: Callable[[float], Event],
    asked: Amount,
    adjacency: Adjacency,
    guess: float = 1.0,
    private: float = -1.0,
) -> float:
    """The parameter at which ``event`` meets (ε, δ), also in the last digit of the answer.

    So that a budget of just (ε, δ) holds it. ``private`` is the sign of the way to more privacy.
    """
    from tacit.accounting import calibrate, epsilon  # noqa: PLC0415 - SciPy

    assert asked.epsilon is not None
    assert asked.delta is not None
    found = calibrate(event, asked.epsilon, asked.delta, adjacency=adjacency, guess=guess)
    while epsilon(event(found), asked.delta, adjacency=adjacency) > asked.epsilon:
        found *= 1.0 + private * 1e-12
    return found


def gaussian_event(asked: Amount, replace_distance: float, adjacency: Adjacency) -> Gaussian:
    """The least noise that meets (ε, δ) by the analytic calibration, or ρ-zCDP; or σ as asked."""
    if asked.noise_multiplier is not None:
        return Gaussian(asked.noise_multiplier, replace_distance)
    moved = distance(replace_distance, adjacency)
    if asked.rho is not None:
        return Gaussian(moved / math.sqrt(2.0 * asked.rho) * UP, replace_distance)
    from tacit.accounting import analytic_gaussian_sigma, epsilon  # noqa: PLC0415 - SciPy

    assert asked.epsilon is not None
    assert asked.delta is not None
    sigma = moved * analytic_gaussian_sigma(asked.epsilon, asked.delta) * UP
    event = Gaussian(sigma, replace_distance)
    # So that a budget of just (ε, δ) holds it: the accountant's answer may end an ulp higher.
    while epsilon(event, asked.delta, adjacency=adjacency) > asked.epsilon:
        sigma *= 1.0 + 1e-12
        event = Gaussian(sigma, replace_distance)
    return event
