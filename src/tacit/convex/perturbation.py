"""Perturbing the objective or its minimum: three designs, each with the noise that it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, final

import numpy as np
from scipy.special import gammaincinv, ndtri

from tacit._validation import positive, whole
from tacit.accounting import analytic_gaussian_sigma
from tacit.accounting.events import ApproxDp, Gaussian, PureDp
from tacit.convex import objective
from tacit.convex.solver import Objective, least_at, minimised
from tacit.errors import InvalidArgument
from tacit.randomness import grid_gaussian

if TYPE_CHECKING:
    from tacit.accounting.events import Event
    from tacit.convex.losses import Array
    from tacit.convex.problem import ConvexTask, Problem
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

    task: ConvexTask
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
            return PureDp(self.task.epsilon, self.task.adjacency)
        return ApproxDp(self.task.epsilon, self.task.delta, self.task.adjacency)

    @property
    def excess_risk(self) -> float:
        """A bound on the expected mean loss above the best within ``task.reach``."""
        return _risk(self.task, self.ridge, self.sigma, self.gamma_scale)


def objective_design(task: ConvexTask, analysis: Analysis | None = None) -> ObjectiveDesign:
    """Objective perturbation by one of the theorems; by default the sharpest that applies.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.problem import ConvexTask
    >>> task = ConvexTask(examples=1000, features=2, loss=Logistic(), norm=1.0, epsilon=1.0,
    ...     delta=1e-5, regularization=0.001)
    >>> [round(objective_design(task, name).sigma, 4) for name in ("profile", "redberg", "kifer")]
    [4.6971, 5.3045, 10.0821]
    """
    chosen: Analysis = analysis or ("profile" if task.delta > 0.0 else "cms")
    _check_objective(task)
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
    size = design.task.parameters
    if design.sigma is not None:
        tilt, _ = gaussian_vector(design.sigma, size, stream)
    else:
        assert design.gamma_scale is not None
        tilt = gamma_vector(design.gamma_scale, size, stream)
    return minimised(Objective(problem, design.ridge, tilt), 0.5 * design.tolerance)


def _check_objective(task: ConvexTask) -> None:
    """Refuses clipped gradients that are those of no function, before anything is charged.

    Where they vanish is no minimum: one example may move it by more than L/Λ, so that neither noise
    on it nor a tilt hides that.
    """
    if not task.has_objective:
        raise InvalidArgument(
            f"clip {task.clip!r} leaves no objective for several scores an example: "
            "leave it out, or use method='noisy-gd'"
        )


def _noise(
    task: ConvexTask, analysis: Analysis, ridge: float
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


def _risk(task: ConvexTask, ridge: float, sigma: float | None, gamma_scale: float | None) -> float:
    """(ΛD²/2 + E|b|²/2Λ)/n, for the minimum of F + Λ/2|θ|² + b·θ against that of F.

    F(θ̂) - F(θ*) ≤ Λ/2(|θ*|² - |θ̂|²) + b·(θ* - θ̂), of which E b·θ* is 0 and the rest is at most
    |b|²/2Λ.
    """
    size = task.parameters
    square = size * sigma**2 if sigma is not None else size * (size + 1) * (gamma_scale or 0.0) ** 2
    return (0.5 * ridge * task.reach**2 + 0.5 * square / ridge) / task.examples


def _least_ridge(task: ConvexTask, analysis: Analysis) -> float:
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


def _check(task: ConvexTask, analysis: str) -> None:
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


# ---- output perturbation: noise on the minimum


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

    task: ConvexTask
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
            return PureDp(self.task.epsilon, self.task.adjacency)
        return Gaussian(self.noise_multiplier)

    @property
    def excess_risk(self) -> float:
        """A bound on the expected mean loss above the best within ``task.reach``."""
        return _output_risk(self.task, self.regularization, self.noise_multiplier)


def output_design(task: ConvexTask) -> OutputDesign:
    """Output perturbation with the task's regularisation, or the one of least bound.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.problem import ConvexTask
    >>> task = ConvexTask(examples=1000, features=2, loss=Logistic(), norm=1.0, epsilon=1.0,
    ...     delta=1e-5, regularization=0.01, adjacency="replace-one")
    >>> round(output_design(task).sensitivity, 4)
    0.2
    """
    _check_objective(task)
    multiplier = None
    if task.delta > 0.0:
        multiplier = task.distance * analytic_gaussian_sigma(task.epsilon, task.delta)
    if task.regularization is not None:
        return OutputDesign(task, task.regularization, multiplier)
    return OutputDesign(
        task, least_at(lambda value: _output_risk(task, value, multiplier)), multiplier
    )


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


def _output_risk(task: ConvexTask, regularization: float, multiplier: float | None) -> float:
    """λD²/2 + min(β/2·E|z|², L·E|z|), as for any loss: methods are compared by such bounds."""
    moved = task.lipschitz / (task.examples * regularization)
    size = task.parameters
    if multiplier is None:
        square = size * (size + 1) * (task.distance * moved / task.epsilon) ** 2
    else:
        square = size * (multiplier * moved) ** 2
    smooth = 0.5 * task.smoothness * square if task.smoothness > 0.0 else math.inf
    return 0.5 * regularization * task.reach**2 + min(smooth, task.lipschitz * math.sqrt(square))


# ---- approximate minima perturbation, which trusts no solver


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

    task: ConvexTask
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
        return ApproxDp(self.task.epsilon, self.task.delta, self.task.adjacency)

    @property
    def excess_risk(self) -> float:
        """A bound on the expected mean loss above the best within ``task.reach``."""
        variance = (self.noise_multiplier * self.sensitivity) ** 2
        return self.objective.excess_risk + _noise_risk(self.task, variance)


def amp_design(task: ConvexTask, analysis: Analysis | None = None) -> AmpDesign:
    """Approximate minima perturbation whose second noise is small beside the first.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.problem import ConvexTask
    >>> task = ConvexTask(examples=1000, features=2, loss=Logistic(), norm=1.0, epsilon=1.0,
    ...     delta=1e-5)
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
    task = design.task
    assert design.objective.sigma is not None
    tilt, moved = gaussian_vector(design.objective.sigma, task.parameters, stream)
    room = moved + max(task.rounding, 1e-12) * task.lipschitz
    found = minimised(Objective(problem, design.ridge, tilt), design.tolerance - room)
    sigma = design.noise_multiplier * design.sensitivity
    return grid_gaussian(found, sigma, design.sensitivity, stream)


def _noise_risk(task: ConvexTask, variance: float) -> float:
    """What noise of this variance on each coordinate of a solution adds to the mean loss at most.

    A score x·θ gets noise of variance R² times that, whatever the dimension; of mean 0, it adds at
    most curvature/2 times its square to a smooth loss, and slope times its size to any.
    """
    scores = task.loss.outputs * task.norm**2 * variance
    return min(0.5 * task.loss.curvature * scores, task.loss.slope * math.sqrt(scores))


# ---- noise in every direction alike


_FINENESS = 32  # the grid is 2³² times finer than the noise


def gaussian_vector(sigma: float, size: int, stream: Stream) -> tuple[Array, float]:
    """``size`` Gaussian numbers of at least this σ, rounded to a grid, and how far that moved them.

    Guarantee:
        The vector is a real Gaussian one of independent N(0, s²) numbers, s ≥ sigma, moved by at
        most the second number in norm (see ``tacit.randomness.RoundedGaussian``).

    >>> from tacit.randomness import UnsafeSeededStream
    >>> vector, moved = gaussian_vector(2.0, 3, UnsafeSeededStream(0, "noise"))
    >>> vector.round(3).tolist(), moved < 1e-9
    ([-2.504, -0.157, -1.273], True)
    """
    import torch  # noqa: PLC0415 - the noise is drawn by torch

    from tacit.randomness import RoundedGaussian  # noqa: PLC0415

    step = math.ldexp(1.0, math.frexp(positive("sigma", sigma))[1] - 1 - _FINENESS)
    drawn = torch.empty(whole("size", size), dtype=torch.int64)
    scale = sigma / step * (1.0 + 2.0**-50)
    RoundedGaussian(stream, torch.device("cpu")).integers_(drawn, scale)
    return drawn.numpy() * step, 0.5 * step * math.sqrt(size)


def gamma_vector(scale: float, size: int, stream: Stream) -> Array:
    """A vector with density ∝ exp(-|b|/scale): uniform direction, length Gamma(size, scale).

    The direction is a normalised vector of normal numbers, each the normal quantile of 53 random
    bits, and the length the Gamma quantile of 53 more.

    Guarantee:
        None by itself: float64 numbers are taken for real ones, so that an attacker who reads the
        last bits of what this noise hides may learn more (Mironov 2012). Use Gaussian noise, which
        is on a grid, where that matters.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> gamma_vector(1.0, 2, UnsafeSeededStream(0, "noise")).shape
    (2,)
    """
    count = whole("size", size)
    uniform = _uniform(count + 1, stream)
    direction = ndtri(uniform[:-1])
    length = positive("scale", scale) * float(gammaincinv(count, uniform[-1]))
    return np.asarray(direction * (length / np.linalg.norm(direction)))


def _uniform(count: int, stream: Stream) -> Array:
    """Numbers strictly between 0 and 1, on the middles of 2⁵² cells."""
    words = np.frombuffer(stream.bytes(8 * count), dtype=np.uint64)
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
