"""Objective perturbation: the minimum of the losses, a ridge and a random tilt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from tacit.accounting.events import ApproxDp, PureDp
from tacit.convex import objective
from tacit.convex.noise import gamma_vector, gaussian_vector
from tacit.convex.searching import least_at
from tacit.convex.solving import Objective, minimised
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.accounting.events import Event
    from tacit.convex.losses import Array
    from tacit.convex.problem import Problem
    from tacit.convex.task import Task
    from tacit.randomness import Stream

Analysis: TypeAlias = Literal["profile", "redberg", "kifer", "cms"]

_SOLVED = 1e-6  # how exactly the minimum is found, in units of one example's gradient
_ROOM = 1.0 - 1e-6  # of ε, at most, for the determinants: some is left for the noise


@final
@dataclass(frozen=True, slots=True)
class ObjectiveDesign:
    """The minimum of Σ ℓ + Λ/2·|θ|² + b·θ, a sum of losses, with b Gaussian or of Gamma norm.

    Guarantee:
        As ``tacit.convex.objective`` proves for ``analysis``, of the exact minimum under real
        noise. What is released is the minimum under noise on a fine grid (or, if δ is 0, in
        floating point), to a gradient of ``tolerance``: ``AmpDesign`` covers that, this does not.
    """

    task: Task
    analysis: Analysis
    ridge: float
    sigma: float | None
    gamma_scale: float | None

    @property
    def regularization(self) -> float:
        """λ = Λ/n, of the mean loss."""
        return self.ridge / self.task.examples

    @property
    def tolerance(self) -> float:
        """The norm of the gradient at which the minimum is taken to be found."""
        return max(_SOLVED, 4.0 * self.task.rounding) * self.task.lipschitz

    @property
    def event(self) -> Event:
        """What is released."""
        if self.task.delta == 0.0:
            return PureDp(self.task.epsilon)
        return ApproxDp(self.task.epsilon, self.task.delta)

    @property
    def excess_risk(self) -> float:
        """A bound on the expected mean loss above the best within ``task.reach``."""
        return _risk(self.task, self.ridge, self.sigma, self.gamma_scale)


def objective_design(task: Task, analysis: Analysis | None = None) -> ObjectiveDesign:
    """Objective perturbation by one of the theorems; by default the sharpest that applies.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.task import Task
    >>> task = Task(examples=1000, features=2, loss=Logistic(), norm=1.0, epsilon=1.0, delta=1e-5,
    ...     regularization=0.001)
    >>> [round(objective_design(task, name).sigma, 4) for name in ("profile", "redberg", "kifer")]
    [4.6971, 5.3045, 10.0821]
    """
    chosen: Analysis = analysis or ("profile" if task.delta > 0.0 else "cms")
    _check(task, chosen)
    least = _least_ridge(task, chosen)
    ridge = 0.0 if task.regularization is None else task.regularization * task.examples
    if task.regularization is None:

        def risk(value: float) -> float:
            return _risk(task, *_noise(task, chosen, value))

        ridge = least_at(risk, least)
    elif ridge < least and chosen != "cms":  # which raises the ridge by itself
        raise InvalidArgument(
            f"regularization must be at least {least / task.examples:.6g} for {chosen!r} at "
            f"epsilon {task.epsilon!r}, got {task.regularization!r}"
        )
    return ObjectiveDesign(task, chosen, *_noise(task, chosen, ridge))


def release_objective(design: ObjectiveDesign, problem: Problem, stream: Stream) -> Array:
    """The minimum under a random tilt."""
    check_objective(problem)
    size = design.task.parameters
    if design.sigma is not None:
        tilt, _ = gaussian_vector(design.sigma, size, stream)
    else:
        assert design.gamma_scale is not None
        tilt = gamma_vector(design.gamma_scale, size, stream)
    return minimised(Objective(problem, design.ridge, tilt), 0.5 * design.tolerance)


def check_objective(problem: Problem) -> None:
    """Refuses clipped gradients that are those of no function."""
    if not problem.has_objective:
        raise InvalidArgument(
            f"clip {problem.task.clip!r} leaves no objective for several scores an example: "
            "leave it out, or use method='noisy-gd'"
        )


def _noise(
    task: Task, analysis: Analysis, ridge: float
) -> tuple[float, float | None, float | None]:
    """The ridge, raised if the theorem says so, and the Gaussian's σ or the Gamma noise's scale."""
    if analysis == "cms":
        noise = objective.cms_noise(task, ridge)
        return ridge + noise.extra_ridge, None, noise.scale
    if analysis == "kifer":
        return ridge, objective.kifer_sigma(task.epsilon, task.delta, task.lipschitz), None
    if analysis == "profile":
        return ridge, objective.profile_sigma(task, ridge), None
    sigma = objective.redberg_sigma(
        task.epsilon, task.delta, ridge, task.lipschitz, task.smoothness
    )
    return ridge, sigma, None


def _risk(task: Task, ridge: float, sigma: float | None, gamma_scale: float | None) -> float:
    """(ΛD²/2 + E|b|²/2Λ)/n, for the minimum of F + Λ/2|θ|² + b·θ against that of F.

    F(θ̂) - F(θ*) ≤ Λ/2(|θ*|² - |θ̂|²) + b·(θ* - θ̂), of which E b·θ* is 0 and the rest is at most
    |b|²/2Λ.
    """
    size = task.parameters
    square = size * sigma**2 if sigma is not None else size * (size + 1) * (gamma_scale or 0.0) ** 2
    return (0.5 * ridge * task.reach**2 + 0.5 * square / ridge) / task.examples


def _least_ridge(task: Task, analysis: Analysis) -> float:
    if analysis == "kifer":
        return objective.kifer_ridge(task.epsilon, task.smoothness)
    if analysis == "redberg":
        return task.smoothness / -math.expm1(-task.epsilon * _ROOM)
    times = task.distance if analysis == "cms" else 1.0
    low, high = -60.0, 60.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        spent = times * task.loss.log_volume(task.norm**2 * math.exp(-middle))
        low, high = (low, middle) if spent < task.epsilon * _ROOM else (middle, high)
    return math.exp(high)


def _check(task: Task, analysis: str) -> None:
    if analysis not in {"profile", "redberg", "kifer", "cms"}:
        raise InvalidArgument(
            f"analysis must be 'profile', 'redberg', 'kifer' or 'cms', got {analysis!r}"
        )
    if (analysis == "cms") != (task.delta == 0.0):
        raise InvalidArgument(
            f"analysis {analysis!r} does not go with delta {task.delta!r}: 'cms' is the one for "
            "pure differential privacy (delta=0), and only for that"
        )
    if analysis in {"kifer", "redberg"} and (
        task.adjacency != "add-remove" or task.loss.outputs > 1
    ):
        raise InvalidArgument(
            f"analysis {analysis!r} is proved for one score an example and add-remove, got "
            f"{task.loss.outputs} and {task.adjacency!r}; use 'profile'"
        )
