"""What theory promises: excess risk and gradient calls of each method, for given n, d, ε, λ, β, L.

The tables of Yu-Xiang Wang's lecture 13, with the constants that the proofs give. The risk is the
expected *mean* loss of the released point above the best one within a distance D of the start; the
lecture's λ is that of the sum of the losses, n times the one here. ρ is the zero-concentrated
privacy that gives (ε, δ): ρ + 2·√(ρ·ln(1/δ)) = ε (Bun & Steinke 2016, Proposition 1.3). One example
moves a sum of gradients by s·L: s is 1 for add-remove and 2 for replace-one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

import numpy as np

from tacit._validation import open_probability, positive, whole
from tacit.accounting.events import check_adjacency
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency

Case: TypeAlias = Literal["convex", "smooth", "strongly-convex", "non-convex", "glm"]

# Rényi divergence of a Poisson-sampled ρ₀-zCDP release: 13·γ²·ρ₀·α for α ≤ ln(1/γ)/4ρ₀
# (Bun, Dwork, Rothblum & Steinke 2018, Theorem 11).
_AMPLIFIED = 13.0


@final
@dataclass(frozen=True, slots=True)
class Rate:
    """One entry of the lecture's tables.

    Args:
        method: ``"output"``, ``"objective"``, ``"noisy-gd"`` or ``"noisy-sgd"``.
        case: What is known of the loss, which is always Lipschitz; ``"glm"`` is smooth and convex
            with scores x·θ. For ``"non-convex"`` the risk is the expected squared gradient.
        formula: The leading term, constants left out.
        excess_risk: The bound, with its constants; for ``"objective"`` outside of generalised
            linear models its leading term alone.
        steps: After how many steps the bound is within a constant of its limit; none for methods
            that solve for a minimum.
        gradient_calls: How many gradients of one example that takes.
        sample_rate: NoisySGD's γ.
        constraint: What NoisySGD's sampling rate demands of the number of steps.
    """

    method: str
    case: Case
    formula: str
    excess_risk: float
    steps: float | None
    gradient_calls: float
    sample_rate: float | None = None
    constraint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The public numbers, and what follows from them: ρ, and v, the noise's variance a step."""

    examples: int
    parameters: int
    epsilon: float
    delta: float
    lipschitz: float
    smoothness: float
    strong_convexity: float
    distance: float
    sides: float

    @property
    def rho(self) -> float:
        return concentrated(self.epsilon, self.delta)

    @property
    def noise(self) -> float:
        """The variance of a mean gradient over T steps is T times this."""
        moved = self.sides * self.lipschitz / self.examples
        return self.parameters * moved**2 / (2.0 * self.rho)

    @property
    def gap(self) -> float:
        """f(θ₁) - f*, at most L·D."""
        return self.lipschitz * self.distance


def concentrated(epsilon: float, delta: float) -> float:
    """The ρ of zero-concentrated privacy that gives (ε, δ).

    >>> rho = concentrated(1.0, 1e-5)
    >>> round(rho + 2 * math.sqrt(rho * math.log(1e5)), 12)
    1.0
    """
    log_term = math.log(1.0 / open_probability("delta", delta))
    root = math.sqrt(log_term + positive("epsilon", epsilon)) - math.sqrt(log_term)
    return root * root


def rates(
    *,
    examples: int,
    parameters: int,
    epsilon: float,
    delta: float,
    lipschitz: float = 1.0,
    smoothness: float = 1.0,
    strong_convexity: float = 0.01,
    distance: float = 1.0,
    adjacency: Adjacency = "add-remove",
    sample_rate: float | None = None,
) -> tuple[Rate, ...]:
    """The rates of all methods, for n ``examples`` and d ``parameters``.

    Args:
        examples: n.
        parameters: d.
        epsilon: ε.
        delta: δ.
        lipschitz: L, the largest norm of one example's gradient.
        smoothness: β, the largest second derivative of one example.
        strong_convexity: λ of the mean loss, for the strongly convex case.
        distance: D, from the start to the solution.
        adjacency: ``"add-remove"`` or ``"replace-one"``.
        sample_rate: NoisySGD's γ; left out, the one with the fewest gradient calls.

    >>> found = rates(examples=10_000, parameters=10, epsilon=1.0, delta=1e-5)
    >>> gd = next(one for one in found if (one.method, one.case) == ("noisy-gd", "convex"))
    >>> gd.formula, round(gd.excess_risk, 5), round(gd.steps)
    ('√d·L·D·√ln(1/δ)/(nε)', 0.00219, 416399)
    """
    given = _Given(
        examples=whole("examples", examples),
        parameters=whole("parameters", parameters),
        epsilon=positive("epsilon", epsilon),
        delta=open_probability("delta", delta),
        lipschitz=positive("lipschitz", lipschitz),
        smoothness=positive("smoothness", smoothness),
        strong_convexity=positive("strong_convexity", strong_convexity),
        distance=positive("distance", distance),
        sides=2.0 if check_adjacency(adjacency) == "replace-one" else 1.0,
    )
    rate = None if sample_rate is None else open_probability("sample_rate", sample_rate)
    return (*_output(given), *_objective(given), *_gd(given), *_sgd(given, rate))


def descent_risk(
    case: Case,
    *,
    steps: float,
    variance: float,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    distance: float,
) -> float:
    """The bound for gradient descent on a mean loss whose gradients have this variance.

    - convex: D·√((L² + V)/T) for the average point, step D/√(T(L² + V));
    - smooth: βD²/2T + D·√(V/T), step min(1/β, D/√(TV));
    - strongly convex: 2(L² + V)/λ(T + 1), steps 2/λ(t + 1), points weighted by t
      (Lacoste-Julien, Schmidt & Bach 2012);
    - not convex: 2βG/T + 2·√(2βGV/T) for the mean squared gradient, G = L·D (Ghadimi & Lan 2013).
    """
    match case:
        case "convex":
            return distance * math.sqrt((lipschitz**2 + variance) / steps)
        case "smooth" | "glm":
            return 0.5 * smoothness * distance**2 / steps + distance * math.sqrt(variance / steps)
        case "strongly-convex":
            if strong_convexity <= 0.0:
                raise InvalidArgument("strong_convexity must be positive in this case, got 0")
            return 2.0 * (lipschitz**2 + variance) / (strong_convexity * (steps + 1.0))
        case "non-convex":
            gap = smoothness * lipschitz * distance
            return 2.0 * gap / steps + 2.0 * math.sqrt(2.0 * gap * variance / steps)


def _output(given: _Given) -> tuple[Rate, ...]:
    """Noise of variance w/λ² on the minimum of a λ-strongly convex loss, w = d(sL/n)²/2ρ."""
    n, lips, beta, dist = given.examples, given.lipschitz, given.smoothness, given.distance
    noise = given.noise
    # λD²/2 + L√w/λ and λD²/2 + βw/2λ², each at its best λ.
    plain = math.sqrt(2.0 * lips * math.sqrt(noise)) / dist
    smooth = (2.0 * beta * noise / dist**2) ** (1.0 / 3.0)
    strong = given.strong_convexity
    strong_risk = min(lips * math.sqrt(noise) / strong, 0.5 * beta * noise / strong**2)
    return (
        Rate("output", "convex", "d^¼·L·D·ln(1/δ)^¼/(nε)^½", plain * dist**2, None, 4.0 * n**3),
        Rate(
            "output",
            "smooth",
            "d^⅓·β^⅓·L^⅔·D^(4/3)·ln(1/δ)^⅓/(nε)^⅔",
            0.75 * smooth * dist**2,
            None,
            _solver_calls(given, smooth),
        ),
        Rate(
            "output",
            "strongly-convex",
            "d·β·L²·ln(1/δ)/(λ²n²ε²)",
            strong_risk,
            None,
            _solver_calls(given, strong),
        ),
    )


def _objective(given: _Given) -> tuple[Rate, ...]:
    """(ΛD²/2 + dσ²/2Λ)/n with Λ = σ√d/D, raised until the determinant takes half of ε at most."""
    size, n = given.parameters, given.examples
    least = given.smoothness / math.expm1(0.5 * given.epsilon)
    ridge, sigma = least, 0.0
    for _ in range(50):
        left = given.epsilon - math.log1p(given.smoothness / ridge)
        sigma = given.sides * given.lipschitz / math.sqrt(2.0 * concentrated(left, given.delta))
        ridge = max(least, sigma * math.sqrt(size) / given.distance)
    risk = (0.5 * ridge * given.distance**2 + 0.5 * size * sigma**2 / ridge) / n
    calls = _solver_calls(given, ridge / n)
    any_smooth = given.distance * size * sigma / n
    return (
        Rate("objective", "smooth", "d·L·D·√ln(1/δ)/(nε)", any_smooth, None, calls),
        Rate("objective", "glm", "√d·L·D·√ln(1/δ)/(nε)", risk, None, calls),
    )


def _gd(given: _Given) -> tuple[Rate, ...]:
    noise = given.noise
    steps: dict[Case, tuple[float, str]] = {
        "convex": (given.lipschitz**2 / noise, "√d·L·D·√ln(1/δ)/(nε)"),
        "smooth": (
            0.5 * given.smoothness * given.distance / math.sqrt(noise),
            "√d·L·D·√ln(1/δ)/(nε)",
        ),
        "strongly-convex": (given.lipschitz**2 / noise, "d·L²·ln(1/δ)/(λn²ε²)"),
        "non-convex": (
            math.sqrt(0.5 * given.smoothness * given.gap / noise),
            "L·√(β·G·d·ln(1/δ))/(nε)",
        ),
    }
    return tuple(
        Rate(
            "noisy-gd",
            case,
            formula,
            _risk(given, case, taken, noise * taken),
            taken,
            given.examples * taken,
        )
        for case, (wanted, formula) in steps.items()
        for taken in (max(1.0, wanted),)
    )


def _sgd(given: _Given, sample_rate: float | None) -> tuple[Rate, ...]:
    found = []
    for plain in _gd(given):
        if sample_rate is not None:
            rate = sample_rate
        else:
            tried = np.geomspace(1.0 / given.examples, 0.5, 2000)
            calls = [q * _sgd_steps(given, plain.case, q) for q in tried]
            rate = float(tried[int(np.argmin(calls))])
        steps = _sgd_steps(given, plain.case, rate)
        variance = _AMPLIFIED * given.noise * steps + _sampling_variance(given, rate)
        least = _privacy_steps(given, rate)
        found.append(
            Rate(
                "noisy-sgd",
                plain.case,
                plain.formula,
                _risk(given, plain.case, steps, variance),
                steps,
                rate * given.examples * steps,
                rate,
                f"T ≥ {least:.3g}, for the amplification to hold at γ = {rate:.3g}",
            )
        )
    return tuple(found)


def _sgd_steps(given: _Given, case: Case, rate: float) -> float:
    """Enough steps for noise to dominate the start and the sampling, and for the amplification."""
    noise = _AMPLIFIED * given.noise
    match case:
        case "smooth" | "glm":
            start = 0.5 * given.smoothness * given.distance / math.sqrt(noise)
        case "non-convex":
            start = math.sqrt(0.5 * given.smoothness * given.gap / noise)
        case _:
            start = given.lipschitz**2 / noise
    sampling = _sampling_variance(given, rate) / noise
    return max(1.0, start, sampling, _privacy_steps(given, rate))


def _privacy_steps(given: _Given, rate: float) -> float:
    """The least T at which α* = 1 + √(ln(1/δ)/ρ) is within the theorem's ln(1/γ)/4ρ₀.

    T steps with 13·T·γ²·ρ₀ = ρ; a larger T makes each step's ρ₀ smaller.
    """
    order = 1.0 + math.sqrt(math.log(1.0 / given.delta) / given.rho)
    return 4.0 * given.rho * order / (_AMPLIFIED * rate**2 * math.log(1.0 / rate))


def _sampling_variance(given: _Given, rate: float) -> float:
    return given.lipschitz**2 * (1.0 - rate) / (rate * given.examples)


def _risk(given: _Given, case: Case, steps: float, variance: float) -> float:
    return descent_risk(
        case,
        steps=steps,
        variance=variance,
        lipschitz=given.lipschitz,
        smoothness=given.smoothness,
        strong_convexity=given.strong_convexity,
        distance=given.distance,
    )


def _solver_calls(given: _Given, strong: float) -> float:
    """Accelerated descent until the solution's error is below one example's influence."""
    condition = 1.0 + given.smoothness / strong
    accuracy = condition * (1.0 + (given.examples * strong * given.distance / given.lipschitz) ** 2)
    return given.examples * math.sqrt(condition) * math.log(math.e + accuracy)
