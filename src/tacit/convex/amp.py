"""Approximate minima perturbation: objective perturbation that trusts no solver."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from tacit.accounting import analytic_gaussian_sigma
from tacit.accounting.events import ApproxDp
from tacit.convex.noise import gaussian_vector
from tacit.convex.perturbed import check_objective, objective_design
from tacit.convex.solving import Objective, minimised
from tacit.errors import InvalidArgument
from tacit.randomness import grid_gaussian

if TYPE_CHECKING:
    from tacit.accounting.events import Event
    from tacit.convex.losses import Array
    from tacit.convex.perturbed import Analysis, ObjectiveDesign
    from tacit.convex.problem import Problem
    from tacit.convex.task import Task
    from tacit.randomness import Stream

_SHARE = 0.02  # of ε and of δ, for the noise on the approximate minimum
_WORSE = 0.01  # what that noise may add to the risk, as a share of it
_SPREAD = 0.03  # and the most that its norm may be, as a share of the expected solution's


@final
@dataclass(frozen=True, slots=True)
class AmpDesign:
    """Approximate minima perturbation (Iyengar et al. 2019, Algorithm 1).

    Objective perturbation (of a sum of losses) with most of ε and δ, and with the rest Gaussian
    noise on whatever point the solver reached with a gradient of at most ``tolerance``.

    Guarantee:
        (ε, δ)-differential privacy without trust in the solver or in floating point. Let θ* be the
        exact minimum under a real Gaussian tilt, which ``objective`` makes (ε₁, δ₁)-private. The
        point found has a gradient of at most γ, counting the rounding of the tilt to its grid and
        that of the gradient, so that it lies within γ/Λ of θ*. For given θ*, neighbouring data move
        it by at most 2γ/Λ, which noise on the grid hides at (ε - ε₁, δ - δ₁); both releases
        compose. A solver that stops early is followed by one that is known to arrive.
    """

    task: Task
    objective: ObjectiveDesign
    tolerance: float
    noise_multiplier: float

    @property
    def ridge(self) -> float:
        """Λ, of the sum of the losses."""
        return self.objective.ridge

    @property
    def regularization(self) -> float:
        """λ = Λ/n, of the mean loss."""
        return self.objective.regularization

    @property
    def sensitivity(self) -> float:
        """How far apart two points within γ/Λ of one minimum are."""
        return 2.0 * self.tolerance / self.ridge

    @property
    def event(self) -> Event:
        """What is released."""
        return ApproxDp(self.task.epsilon, self.task.delta)

    @property
    def excess_risk(self) -> float:
        """A bound on the expected mean loss above the best within ``task.reach``."""
        variance = (self.noise_multiplier * self.sensitivity) ** 2
        return self.objective.excess_risk + _noise_risk(self.task, variance)


def amp_design(task: Task, analysis: Analysis | None = None) -> AmpDesign:
    """Approximate minima perturbation whose second noise is small beside the first.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.task import Task
    >>> task = Task(examples=1000, features=2, loss=Logistic(), norm=1.0, epsilon=1.0, delta=1e-5)
    >>> design = amp_design(task)
    >>> design.objective.task.epsilon, design.sensitivity * design.noise_multiplier < 0.2
    (0.98, True)
    """
    if task.delta == 0.0:
        raise InvalidArgument("delta must be above 0 for method 'amp', got 0; use 'objective'")
    share = 1.0 - _SHARE
    main = objective_design(
        replace(task, epsilon=share * task.epsilon, delta=share * task.delta), analysis
    )
    assert main.sigma is not None
    multiplier = analytic_gaussian_sigma(
        task.epsilon - main.task.epsilon, task.delta - main.task.delta
    )
    root = math.sqrt(task.parameters)
    sigma = _SPREAD * task.reach / root
    if task.smoothness > 0.0:
        worth = 2.0 * _WORSE * main.excess_risk / (task.loss.outputs * task.smoothness)
        sigma = min(sigma, math.sqrt(worth))
    wanted = 0.5 * sigma * main.ridge / multiplier
    # Twice what the gradient and the tilt may be off by in floating point.
    floor = 2.0 * (max(task.rounding, 1e-12) * task.lipschitz + main.sigma * root * 2.0**-32)
    return AmpDesign(task, main, max(wanted, 2.0 * floor), multiplier)


def release_amp(design: AmpDesign, problem: Problem, stream: Stream) -> Array:
    """A point near the minimum under a random tilt, with noise."""
    check_objective(problem)
    task = design.task
    assert design.objective.sigma is not None
    tilt, moved = gaussian_vector(design.objective.sigma, task.parameters, stream)
    room = moved + max(task.rounding, 1e-12) * task.lipschitz
    found = minimised(Objective(problem, design.ridge, tilt), design.tolerance - room)
    sigma = design.noise_multiplier * design.sensitivity
    return grid_gaussian(found, sigma, design.sensitivity, stream)


def _noise_risk(task: Task, variance: float) -> float:
    """What noise of this variance on each coordinate of a solution adds to the mean loss at most.

    A score x·θ gets noise of variance R² times that, whatever the dimension; of mean 0, it adds at
    most curvature/2 times its square to a smooth loss, and slope times its size to any.
    """
    scores = task.loss.outputs * task.norm**2 * variance
    return min(0.5 * task.loss.curvature * scores, task.loss.slope * math.sqrt(scores))
