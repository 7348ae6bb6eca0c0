"""Output perturbation: noise on the minimum of the regularised loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from tacit.accounting import analytic_gaussian_sigma
from tacit.accounting.events import Gaussian, PureDp
from tacit.convex.noise import gamma_vector
from tacit.convex.searching import least_at
from tacit.convex.solving import Objective, minimised
from tacit.randomness import grid_gaussian

if TYPE_CHECKING:
    from tacit.accounting.events import Event
    from tacit.convex.losses import Array
    from tacit.convex.problem import Problem
    from tacit.convex.task import Task
    from tacit.randomness import Stream

_SOLVED = 1e-6  # how exactly the minimum is found, in units of one example's gradient


@final
@dataclass(frozen=True, slots=True)
class OutputDesign:
    """Noise on the minimum of (1/n)·Σ ℓ + λ/2·|θ|², a mean loss.

    The minimum of a λ-strongly convex mean of n L-Lipschitz losses moves by at most 2L/nλ when an
    example is replaced (Chaudhuri et al. 2011, Corollary 8), and by L/nλ when one is added to the
    sum, whose ridge nλ is public and stays. A solution that was found with a gradient of γ or less
    lies within γ/nλ of the minimum, and moves by 2γ/nλ more.

    Guarantee:
        Gaussian noise, on a grid, of ``noise_multiplier`` times what one example moves; or, if δ is
        0, noise of density ∝ exp(-ε|z|/Δ), Δ the sensitivity, in floating point, which is taken for
        the real one.
    """

    task: Task
    regularization: float
    noise_multiplier: float | None

    @property
    def ridge(self) -> float:
        """Λ = nλ, of the sum of the losses."""
        return self.regularization * self.task.examples

    @property
    def tolerance(self) -> float:
        """γ: the gradient at which the solver stops, and its rounding."""
        return max(_SOLVED, 4.0 * self.task.rounding) * self.task.lipschitz

    @property
    def sensitivity(self) -> float:
        """How far a neighbouring data set moves the solution, in norm."""
        return (self.task.distance * self.task.lipschitz + 2.0 * self.tolerance) / self.ridge

    @property
    def event(self) -> Event:
        """What is released."""
        if self.noise_multiplier is None:
            return PureDp(self.task.epsilon)
        return Gaussian(self.noise_multiplier)

    @property
    def excess_risk(self) -> float:
        """A bound on the expected mean loss above the best within ``task.reach``."""
        return _risk(self.task, self.regularization, self.noise_multiplier)


def output_design(task: Task) -> OutputDesign:
    """Output perturbation with the task's regularisation, or the one of least bound.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.task import Task
    >>> task = Task(examples=1000, features=2, loss=Logistic(), norm=1.0, epsilon=1.0, delta=1e-5,
    ...     regularization=0.01, adjacency="replace-one")
    >>> round(output_design(task).sensitivity, 4)
    0.2
    """
    multiplier = None
    if task.delta > 0.0:
        multiplier = task.distance * analytic_gaussian_sigma(task.epsilon, task.delta)
    if task.regularization is not None:
        return OutputDesign(task, task.regularization, multiplier)
    return OutputDesign(task, least_at(lambda value: _risk(task, value, multiplier)), multiplier)


def release_output(design: OutputDesign, problem: Problem, stream: Stream) -> Array:
    """The minimum, with noise."""
    size = design.task.parameters
    objective = Objective(problem, design.ridge, np.zeros(size))
    found = minimised(objective, 0.5 * design.tolerance)
    if design.noise_multiplier is None:
        scale = design.sensitivity / design.task.epsilon
        return found + gamma_vector(scale, size, stream)
    sigma = design.noise_multiplier * design.sensitivity / design.task.distance
    return grid_gaussian(found, sigma, design.sensitivity, stream)


def _risk(task: Task, regularization: float, multiplier: float | None) -> float:
    """λD²/2 + min(β/2·E|z|², L·E|z|), as for any loss: methods are compared by such bounds."""
    moved = task.lipschitz / (task.examples * regularization)
    size = task.parameters
    if multiplier is None:
        square = size * (size + 1) * (task.distance * moved / task.epsilon) ** 2
    else:
        square = size * (multiplier * moved) ** 2
    smooth = 0.5 * task.smoothness * square if task.smoothness > 0.0 else math.inf
    return 0.5 * regularization * task.reach**2 + min(smooth, task.lipschitz * math.sqrt(square))
