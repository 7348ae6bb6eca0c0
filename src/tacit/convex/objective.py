"""Objective perturbation: how much noise in the objective which guarantee takes.

The minimum of Σ ℓ(θ; zᵢ) + Λ/2·|θ|² + b·θ is released, with b random. All formulas are about the
sum of the losses; a regularisation λ of the mean loss is Λ = nλ here. L bounds the norm of one
example's gradient, β its second derivative. Three published theorems, and a sharper form of the
third (``profile_delta``), are given; each says which neighbours it is about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from scipy.optimize import brentq

from tacit._validation import non_negative, open_probability, positive
from tacit.accounting import gaussian_profile
from tacit.errors import InvalidArgument, Uncalibratable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.convex.losses import Loss
    from tacit.convex.problem import ConvexTask


def kifer_sigma(epsilon: float, delta: float, lipschitz: float = 1.0) -> float:
    """σ = L·√(8 ln(2/δ) + 4ε)/ε of the Gaussian b (Kifer, Smith & Thakurta 2012, Theorem 2).

    Guarantee:
        For generalised linear models with Λ ≥ ``kifer_ridge`` the minimum is (ε, δ)-differentially
        private under add-remove.

    >>> round(kifer_sigma(1, 1e-5), 3)
    10.082
    """
    eps = positive("epsilon", epsilon)
    log_term = 8.0 * math.log(2.0 / open_probability("delta", delta)) + 4.0 * eps
    return positive("lipschitz", lipschitz) * math.sqrt(log_term) / eps


def kifer_ridge(epsilon: float, smoothness: float) -> float:
    """The least Λ = 2β/ε of Kifer, Smith & Thakurta (2012)."""
    return 2.0 * non_negative("smoothness", smoothness) / positive("epsilon", epsilon)


def redberg_delta(
    epsilon: float, sigma: float, ridge: float, lipschitz: float = 1.0, smoothness: float = 0.25
) -> float:
    """δ(ε) of the minimum with Gaussian b, by its privacy profile (Redberg, Koskela & Wang 2023).

    With a = |ln(1 - β/Λ)| and h = L²/2σ²: if ε ≥ a + h, δ = 2·δ_G(ε - a); else, with ε̂ = ε - a - h,
    δ = 1 - e^ε̂ + 2·e^ε̂·δ_G(h), where δ_G is the profile of a Gaussian of distance L/σ.

    Guarantee:
        For generalised linear models with Λ > β the minimum is (ε, δ)-differentially private under
        add-remove.

    >>> f"{redberg_delta(1.0, sigma=5.0, ridge=1.0):.5e}"
    '2.59818e-05'
    """
    eps, ratio = non_negative("epsilon", epsilon), positive("lipschitz", lipschitz)
    beta = non_negative("smoothness", smoothness)
    if positive("ridge", ridge) <= beta:
        raise InvalidArgument(f"ridge must be above the smoothness {beta!r}, got {ridge!r}")
    mu = ratio / positive("sigma", sigma)
    shift, half = -math.log1p(-beta / ridge), 0.5 * mu * mu
    if eps >= shift + half:
        return min(1.0, 2.0 * gaussian_profile.delta(mu, eps - shift))
    rest = math.exp(eps - shift - half)
    return min(1.0, 1.0 - rest + 2.0 * rest * gaussian_profile.delta(mu, half))


def redberg_sigma(
    epsilon: float,
    delta: float,
    ridge: float,
    lipschitz: float = 1.0,
    smoothness: float = 0.25,
) -> float:
    """The least σ at which ``redberg_delta`` is at most δ.

    Guarantee:
        As for ``redberg_delta``.

    >>> [round(redberg_sigma(1, 1e-5, ridge), 4) for ridge in (0.5, 1, 2.5, 10, 100)]
    [11.5414, 5.3045, 4.3018, 3.9765, 3.8931]
    """
    return _least_sigma(
        lambda sigma: redberg_delta(epsilon, sigma, ridge, lipschitz, smoothness),
        open_probability("delta", delta),
    )


def profile_delta(task: ConvexTask, sigma: float, ridge: float) -> float:
    """δ at the task's ε of the minimum with Gaussian b: Redberg's profile, with two slacks removed.

    Guarantee:
        The exact minimum is (ε, δ)-differentially private under ``task.adjacency``, for losses of
        one score and of several. Proof: with H the second derivative of the rest of the objective
        and g = s⊗x the gradient of the example that makes the difference, at the released θ, the
        privacy loss is ±[ln det(H + H_x) - ln det H] + |g|²/2σ² ± b·g/σ², where b is N(0, σ²I).
        (1) As H ⪰ ΛI, the determinants differ by at most a = ``loss.log_volume(R²/Λ)``: for one
        score ln(1 + β/Λ), not |ln(1 - β/Λ)|. (2) s lies in the convex hull of 0 and of m corners,
        and |g|²/2σ² ± b·g/σ² is convex in s for given b and x, so that it is at most its largest
        value at a corner, each of which is N(μ²/2, μ²) with μ ≤ L/σ. Hence for ε ≥ a the loss
        exceeds what m Gaussian mechanisms would have only if one of them does, and
        δ(ε) ≤ m·δ_G(ε - a; L/σ): m = 1 for a logistic loss, whose derivative has one sign, 2 for a
        regression, K - 1 for K classes. When an example is replaced, only one of the two changes
        the determinant in either direction, so that a is the same, and the corners are those of
        either example (distance L) and the pairs of both (at most 2L, see ``_pairs``).

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.problem import ConvexTask
    >>> task = ConvexTask(examples=100, features=2, loss=Logistic(), norm=1.0, epsilon=1.0,
    ...     delta=1e-5)
    >>> profile_delta(task, 5.0, 1.0) < redberg_delta(1.0, 5.0, 1.0)
    True
    """
    shift = task.loss.log_volume(task.norm**2 / positive("ridge", ridge))
    left = task.epsilon - shift
    if left < 0.0:
        return 1.0
    mu = task.lipschitz / positive("sigma", sigma)
    moves: tuple[tuple[float, float], ...] = ((task.loss.corners, 1.0),)
    if task.adjacency == "replace-one":
        moves = ((2.0 * task.loss.corners, 1.0), *_pairs(task.loss))
    total = sum(count * gaussian_profile.delta(far * mu, left) for count, far in moves)
    return min(1.0, total)


def _pairs(loss: Loss) -> tuple[tuple[float, float], ...]:
    """How many pairs of two examples' corners are at most how many L apart.

    s⊗x and s′⊗x′ have squared distance |s|²|x|² + |s′|²|x′|² - 2(s·s′)(x·x′). With one corner that
    is (2L)² at most. With the corners ±1, x·x′ ≥ 0 puts two pairs within √2·L, and x·x′ ≤ 0 the
    other two. With corners e_k - e_y the inner product s·s′ is 2 for K - 1 pairs and 1 for the
    others if both labels are equal; if not, it is ±2 for one pair and ±1 or 0 for the others, all
    of which are then matched by pairs that are as far apart or farther in the first case.
    """
    corners = loss.corners
    if loss.outputs == 1:
        return ((1.0, 2.0),) if corners == 1 else ((2.0, 2.0), (2.0, math.sqrt(2.0)))
    return (corners, 2.0), (corners * (corners - 1.0), math.sqrt(3.0))


def profile_sigma(task: ConvexTask, ridge: float) -> float:
    """The least σ at which ``profile_delta`` is at most the task's δ.

    Guarantee:
        As for ``profile_delta``.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.problem import ConvexTask
    >>> task = ConvexTask(examples=100, features=2, loss=Logistic(), norm=1.0, epsilon=1.0,
    ...     delta=1e-5)
    >>> [round(profile_sigma(task, ridge), 4) for ridge in (0.5, 1, 100)]
    [5.9997, 4.6971, 3.7391]
    """
    if task.loss.log_volume(task.norm**2 / positive("ridge", ridge)) >= task.epsilon:
        raise Uncalibratable(
            f"regularization must be larger at epsilon {task.epsilon!r}: with a ridge of {ridge!r} "
            "no amount of noise suffices"
        )
    return _least_sigma(lambda sigma: profile_delta(task, sigma, ridge), task.delta)


@final
@dataclass(frozen=True, slots=True)
class GammaNoise:
    """b with density ∝ exp(-|b|/scale), and what is added to the ridge."""

    scale: float
    extra_ridge: float


def cms_noise(task: ConvexTask, ridge: float) -> GammaNoise:
    """The noise of pure differential privacy (Chaudhuri, Monteleoni & Sarwate 2011, Algorithm 2).

    Theirs is about the mean loss and examples of norm 1 that are replaced: ε′ = ε - ln(1 + 2c/nλ +
    c²/(nλ)²), and if that is not positive the ridge is raised by c/(e^{ε/4} - 1) - nλ and ε′ = ε/2;
    b has the density exp(-ε′|b|/2). For examples of norm R the smoothness is β = c·R², not c, and
    the density exp(-ε′|b|/2L) with L = R.

    Guarantee:
        The exact minimum is (ε, 0)-differentially private under ``task.adjacency``. For add-remove
        one determinant in place of two and one gradient in place of two give ε′ = ε - v and
        exp(-ε′|b|/L), v = ``loss.log_volume(R²/Λ)``; of several scores v is the sum over the
        eigenvalues of an example's second derivative. b is drawn in floating point.

    >>> from tacit.convex.losses import Logistic
    >>> from tacit.convex.problem import ConvexTask
    >>> task = ConvexTask(examples=1000, features=2, loss=Logistic(), norm=2.0, epsilon=1.0,
    ...     delta=0.0, adjacency="replace-one")
    >>> noise = cms_noise(task, ridge=10.0)
    >>> round(noise.scale, 6) == round(4.0 / (1.0 - math.log(1 + 2 / 10 + 1 / 100)), 6)
    True
    """
    times = task.distance  # determinants and gradients: one for add-remove, two for replace-one

    def spent(total: float) -> float:
        return times * task.loss.log_volume(task.norm**2 / total)

    left = task.epsilon - spent(positive("ridge", ridge))
    extra = 0.0
    if left <= 0.0:
        # Half of ε for the determinants; for one score this is β/(e^{ε/4} - 1), the paper's choice.
        goal = 0.5 * task.epsilon
        total = math.exp(_where(lambda log_total: spent(math.exp(log_total)) - goal))
        extra, left = total - ridge, goal
    return GammaNoise(times * task.lipschitz / left, extra)


def _least_sigma(delta: Callable[[float], float], goal: float) -> float:
    """The σ at which a falling ``delta`` reaches the goal, on the private side."""
    log_sigma = _where(lambda log_sigma: delta(math.exp(log_sigma)) - goal)
    sigma = math.exp(log_sigma)
    while delta(sigma) > goal:
        sigma *= 1.0 + 1e-12
    return sigma


def _where(falling: Callable[[float], float]) -> float:
    """Where a falling function of a logarithm crosses 0."""
    low, high = -60.0, 60.0
    if falling(high) > 0.0:
        raise Uncalibratable("epsilon cannot be met by any amount of noise below e^60")
    return float(brentq(falling, low, high, xtol=1e-14, rtol=1e-14, maxiter=300))
