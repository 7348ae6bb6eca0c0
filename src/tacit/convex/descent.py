"""Noisy gradient descent, on all examples or on Poisson samples, in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from tacit._validation import positive, whole
from tacit.accounting import analytic_gaussian_sigma, noise_multiplier
from tacit.accounting.events import Gaussian, PoissonSampled, Repeated
from tacit.convex.theory import descent_risk, rates
from tacit.errors import InvalidArgument
from tacit.randomness import grid_gaussian, included

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tacit.accounting.events import Event
    from tacit.convex.losses import Array
    from tacit.convex.problem import ConvexTask
    from tacit.convex.theory import Case, Rate
    from tacit.randomness import Stream

_MOST_STEPS = 500  # where theory asks for more than patience has


class Gradients(Protocol):
    """What descent needs of a problem."""

    def gradient(self, theta: Array, rows: NDArray[np.int64] | None = None) -> Array:
        """The sum of the gradients of all examples, or of those in ``rows``."""


@final
@dataclass(frozen=True, slots=True)
class DescentDesign:
    """Steps along the sum of the gradients with noise: of all examples, or of a Poisson sample.

    Guarantee:
        ``steps`` Gaussian releases of a sum of gradients of norm at most L each, with noise on a
        grid, wide enough for the sums' rounding too. What is learned is computed from those alone.
    """

    task: ConvexTask
    steps: int
    sample_rate: float
    noise_multiplier: float
    case: Case

    @property
    def regularization(self) -> float:
        """λ of the mean loss, 0 if there is none."""
        return self.task.regularization or 0.0

    @property
    def event(self) -> Event:
        """What is released."""
        one: Event = Gaussian(self.noise_multiplier)
        if self.sample_rate < 1.0:
            one = PoissonSampled(self.sample_rate, one)
        return Repeated(one, self.steps)

    @property
    def variance(self) -> float:
        """A bound on the variance of the mean gradient's estimate: noise, and sampling."""
        task, rate = self.task, self.sample_rate
        scale = self.noise_multiplier * task.lipschitz / (rate * task.examples)
        sampling = task.lipschitz**2 * (1.0 - rate) / (rate * task.examples)
        return task.parameters * scale**2 + sampling

    @property
    def excess_risk(self) -> float:
        """A bound on the expected mean loss above the best within ``task.reach``.

        The average over the last half has twice the bound of that over all points, since the
        distance at half time is at most what noise adds to the first (add up the proof's steps).
        With strong convexity: 2ν/(T + 1) for the regularised loss (Bottou, Curtis & Nocedal 2018,
        Theorem 4.7, averaged), and what regularisation itself costs.
        """
        task, strong = self.task, self.regularization
        if self.case != "strongly-convex":
            return 2.0 * descent_risk(
                self.case,
                steps=self.steps,
                variance=self.variance,
                lipschitz=task.lipschitz,
                smoothness=task.smoothness,
                strong_convexity=strong,
                distance=task.reach,
            )
        smoothness = task.smoothness + strong
        start = (2.0 * smoothness / strong + 1.0) * task.lipschitz * task.reach
        settled = max(2.0 * smoothness * self.variance / strong**2, start)
        return 2.0 * settled / (self.steps + 1.0) + 0.5 * strong * task.reach**2


def descent_design(
    task: ConvexTask,
    *,
    steps: int | None = None,
    sample_rate: float = 1.0,
    case: Case | None = None,
) -> DescentDesign:
    """Noisy descent in as many steps as its theory asks for; by default at most 500.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.problem import ConvexTask
    >>> task = ConvexTask(examples=1000, features=2, loss=Logistic(), norm=1.0, epsilon=1.0,
    ...     delta=1e-5)
    >>> design = descent_design(task, steps=100)
    >>> round(design.noise_multiplier, 4), design.event.times
    (37.3063, 100)
    """
    if task.delta == 0.0:
        raise InvalidArgument("delta must be above 0 for Gaussian noise, got 0; use 'objective'")
    rate = positive("sample_rate", sample_rate)
    if rate > 1.0:
        raise InvalidArgument(f"sample_rate must be at most 1, got {sample_rate!r}")
    chosen: Case = case or ("strongly-convex" if task.regularization else "smooth")
    taken = _steps(task, rate, chosen) if steps is None else whole("steps", steps)
    if rate == 1.0:
        alone = task.distance * analytic_gaussian_sigma(task.epsilon, task.delta)
        multiplier = alone * math.sqrt(taken) * (1.0 + 1e-12)
    else:
        multiplier = noise_multiplier(
            task.epsilon, task.delta, rate, taken, adjacency=task.adjacency
        )
    return DescentDesign(task, taken, rate, multiplier, chosen)


def best_sample_rate(task: ConvexTask) -> float:
    """The sampling rate with the fewest gradient calls, by ``tacit.convex.theory``."""
    case: Case = "strongly-convex" if task.regularization else "smooth"
    found = _theory(task, None)
    rate = next(one.sample_rate for one in found if (one.method, one.case) == ("noisy-sgd", case))
    assert rate is not None
    return rate


def release_descent(
    design: DescentDesign, problem: Gradients, stream: Stream, radius: float | None = None
) -> Array:
    """The averaged point of noisy descent, within ``radius`` of 0 if one is given."""
    task, rate = design.task, design.sample_rate
    ridge = design.regularization
    sigma = design.noise_multiplier * task.lipschitz * (1.0 + task.rounding)
    theta = np.zeros(task.parameters)
    average, total = np.zeros_like(theta), 0.0
    for number, step in enumerate(_step_sizes(design), start=1):
        rows = None if rate == 1.0 else included(task.examples, rate, stream)
        summed = problem.gradient(theta, rows)
        noisy = grid_gaussian(summed, sigma, task.lipschitz * (1.0 + task.rounding), stream)
        theta = theta - step * (noisy / (rate * task.examples) + ridge * theta)
        if radius is not None:
            theta *= min(1.0, radius / max(float(np.linalg.norm(theta)), np.finfo(float).tiny))
        weight = _weight(design, number)
        total += weight
        if weight > 0.0:
            average += (weight / total) * (theta - average)
    return average


def _step_sizes(design: DescentDesign) -> Iterator[float]:
    """Steps for the mean loss, by the theorems that ``theory.descent_risk`` names."""
    task, variance = design.task, design.variance
    if design.case == "strongly-convex":
        strong = design.regularization
        # 2/λ(t + 1), begun where it is no longer than 1/(β + λ), as smooth losses allow
        # (Bottou, Curtis & Nocedal 2018, Theorem 4.7).
        first = 2.0 * (task.smoothness + strong) / strong
        for number in range(1, design.steps + 1):
            yield 2.0 / (strong * (number + first))
        return
    if design.case == "convex":
        step = task.reach / math.sqrt(design.steps * (task.lipschitz**2 + variance))
    else:
        longest = 1.0 / task.smoothness if task.smoothness > 0.0 else math.inf
        step = min(longest, task.reach / math.sqrt(design.steps * variance))
    for _ in range(design.steps):
        yield step


def _weight(design: DescentDesign, number: int) -> float:
    """Later points count more: by t when strongly convex, the last half alone otherwise.

    (Lacoste-Julien, Schmidt & Bach 2012; Rakhlin, Shamir & Sridharan 2012.)
    """
    if design.case == "strongly-convex":
        return float(number)
    return 1.0 if 2 * number > design.steps else 0.0


def _steps(task: ConvexTask, sample_rate: float, case: Case) -> int:
    method = "noisy-gd" if sample_rate == 1.0 else "noisy-sgd"
    found = _theory(task, sample_rate if sample_rate < 1.0 else None)
    steps = next(one.steps for one in found if (one.method, one.case) == (method, case))
    assert steps is not None
    return max(1, min(_MOST_STEPS, math.ceil(steps)))


def _theory(task: ConvexTask, sample_rate: float | None) -> tuple[Rate, ...]:
    return rates(
        examples=task.examples,
        parameters=task.parameters,
        epsilon=task.epsilon,
        delta=task.delta,
        lipschitz=task.lipschitz,
        smoothness=max(task.smoothness, 1e-12),
        strong_convexity=task.regularization or 1.0,
        distance=task.reach,
        adjacency=task.adjacency,
        sample_rate=sample_rate,
    )
