"""Minimising a strongly convex function until its gradient is provably small enough.

The guarantee of a perturbed minimum rests on how near the minimum one is, and no solver's own word
is taken for it: quasi-Newton steps do the work, the norm of the gradient is computed at the end,
and a method whose number of steps is known beforehand finishes what the quick ones left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse.linalg import LinearOperator, cg

from tacit.errors import TacitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.convex.losses import Array
    from tacit.convex.problem import Problem


_QUASI_NEWTON_STEPS = 300
_NEWTON_STEPS = 60


@final
@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """F(θ) = Σ ℓ + ridge/2·|θ|² + tilt·θ, a ridge-strongly convex function."""

    problem: Problem
    ridge: float
    tilt: Array

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """F(θ) and its gradient."""
        value, gradient = self.problem.value_and_gradient(theta)
        pull = self.ridge * theta + self.tilt
        return value + float((pull - 0.5 * self.ridge * theta) @ theta), gradient + pull

    def gradient(self, theta: Array) -> Array:
        """Its gradient."""
        return self.problem.gradient(theta) + self.ridge * theta + self.tilt

    def curved(self, theta: Array, direction: Array) -> Array:
        """Its second derivative times a direction."""
        return self.problem.curved(theta, direction) + self.ridge * direction

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue of its second derivative."""
        return self.problem.task.examples * self.problem.task.smoothness + self.ridge


def minimised(objective: Objective, tolerance: float) -> Array:
    """A θ at which the norm of the gradient, as computed, is at most ``tolerance``.

    Guarantee:
        θ lies within (tolerance + rounding)/ridge of the minimum, by strong convexity; the callers
        leave room for the rounding of the gradient (``Task.rounding``).
    """
    theta = _quasi_newton(objective, np.zeros(objective.problem.task.parameters), tolerance)
    if _norm(objective, theta) > tolerance:
        theta = _newton(objective, theta, tolerance)
    if _norm(objective, theta) > tolerance:
        theta = _accelerated(objective, theta, tolerance)
    return theta


def _norm(objective: Objective, theta: Array) -> float:
    return float(np.linalg.norm(objective.gradient(theta)))


def _quasi_newton(objective: Objective, start: Array, tolerance: float) -> Array:
    """L-BFGS, which is fastest while the tolerance is far."""
    found = minimize(
        objective.value_and_gradient,
        start,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": _QUASI_NEWTON_STEPS,
            "maxcor": 20,
            "ftol": 0.0,
            "gtol": tolerance / math.sqrt(len(start)),
        },
    )
    return np.asarray(found.x)


def _newton(objective: Objective, theta: Array, tolerance: float) -> Array:
    """Newton's steps by conjugate gradients, shortened until the gradient falls."""
    size = len(theta)
    gradient = objective.gradient(theta)
    norm = float(np.linalg.norm(gradient))
    for _ in range(_NEWTON_STEPS):
        if norm <= tolerance:
            break
        here = theta
        hessian = LinearOperator(
            (size, size), matvec=lambda v, here=here: objective.curved(here, np.ravel(v))
        )
        step, _ = cg(hessian, -gradient, rtol=min(0.1, math.sqrt(norm) * 1e-2), maxiter=200)
        share = 1.0
        while share > 1e-6:
            trial = theta + share * step
            after = objective.gradient(trial)
            if float(np.linalg.norm(after)) < (1.0 - 0.1 * share) * norm:
                break
            share *= 0.5
        else:
            break
        theta, gradient = trial, after
        norm = float(np.linalg.norm(gradient))
    return theta


def _accelerated(objective: Objective, theta: Array, tolerance: float) -> Array:
    """Nesterov's method for strongly convex functions, with the count of steps that suffices.

    F falls to its minimum by the factor (1 - 1/√κ) a step, from at most |∇F|²/2·ridge above it, and
    |∇F|² ≤ 2·smoothness·(F - F*) (Nesterov 2018, Theorem 2.2.1 and Lemma 1.2.3).
    """
    smoothness, ridge = objective.smoothness, objective.ridge
    condition = smoothness / ridge
    rate = 1.0 / math.sqrt(condition)
    start = _norm(objective, theta)
    reduction = 4.0 * condition * (start / tolerance) ** 2
    momentum = (1.0 - rate) / (1.0 + rate)
    ahead = theta
    for _ in range(math.ceil(math.log(reduction) / rate) + 1):
        gradient = objective.gradient(ahead)
        if float(np.linalg.norm(gradient)) <= tolerance:
            return ahead
        after = ahead - gradient / smoothness
        ahead = after + momentum * (after - theta)
        theta = after
    raise TacitError(
        f"the gradient cannot be brought below {tolerance:.3g} in floating point; "
        "give a larger regularization, or use method='noisy-gd'"
    )


# ---- the regularisation of least risk


_LEAST, _WIDTH, _TRIED = 1e-12, 60.0, 61


def least_at(risk: Callable[[float], float], at_least: float = _LEAST) -> float:
    """The x ≥ ``at_least`` where a positive function is least: on a grid, then near its best.

    >>> round(least_at(lambda x: x + 4 / x), 4)
    2.0
    """
    start = math.log(max(at_least, _LEAST))
    places = [start + _WIDTH * number / (_TRIED - 1) for number in range(_TRIED)]
    heights = [math.log(risk(math.exp(place))) for place in places]
    best = heights.index(min(heights))
    found = minimize_scalar(
        lambda log_x: math.log(risk(math.exp(log_x))),
        bounds=(places[max(best - 1, 0)], places[min(best + 1, _TRIED - 1)]),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return max(at_least, math.exp(float(found.x)))
