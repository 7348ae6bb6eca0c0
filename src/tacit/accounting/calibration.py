"""How much noise a guarantee demands: the tight answer, each theorem's, the classical formulas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from tacit._validation import open_probability, positive, probability, whole
from tacit.accounting import gaussian_profile
from tacit.accounting.accountants import accountant_named
from tacit.accounting.events import (
    Adjacency,
    Event,
    Gaussian,
    PoissonSampled,
    Repeated,
    check_adjacency,
)
from tacit.errors import InvalidArgument, Uncalibratable

if TYPE_CHECKING:
    from collections.abc import Callable

_TOLERANCE = 1e-11  # relative, in the parameter


def calibrate(
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    accountant: str = "exact",
    adjacency: Adjacency = "add-remove",
    guess: float = 1.0,
) -> float:
    """The parameter x > 0 at which ``make_event(x)`` just meets (ε, δ).

    The family must be monotone in x, either way; ``guess`` only saves time.

    Guarantee:
        The accountant proves ε for ``make_event(x)`` at the x returned.

    Raises:
        Uncalibratable: if no x between 1e-12 and 1e12 meets the guarantee, or all do.

    >>> round(calibrate(Gaussian, epsilon=1, delta=1e-5), 7)
    3.7306316
    """
    goal = math.log(positive("epsilon", epsilon))
    open_probability("delta", delta)
    check_adjacency(adjacency)
    asked = accountant_named(accountant)

    def excess(log_x: float) -> float:
        found = float(asked.epsilon(make_event(math.exp(log_x)), delta, adjacency))
        return (math.log(found) if found > 0.0 else -math.inf) - goal

    private, leaky = _straddle(excess, math.log(positive("guess", guess)))
    return math.exp(_narrow(excess, private, leaky))


def noise_multiplier(
    epsilon: float,
    delta: float,
    sample_rate: float,
    steps: int,
    accountant: str = "exact",
    adjacency: Adjacency = "add-remove",
) -> float:
    """The noise multiplier σ at which ``steps`` Poisson-sampled Gaussian steps meet (ε, δ).

    Guarantee:
        As for ``calibrate``.

    >>> round(noise_multiplier(epsilon=2, delta=1e-5, sample_rate=0.01, steps=10_000), 7)
    2.1273754
    """
    rate = probability("sample_rate", sample_rate)
    if rate == 0.0:
        raise InvalidArgument("sample_rate must be above 0: nothing is released at 0")
    times = whole("steps", steps)
    mu = 1.0 / analytic_gaussian_sigma(epsilon, delta)
    # The central limit's σ (Bu et al. 2020): a starting point, not an answer.
    guess = 1.0 / math.sqrt(math.log1p((mu / rate) ** 2 / times))
    return calibrate(
        lambda sigma: Repeated(PoissonSampled(rate, Gaussian(sigma)), times),
        epsilon,
        delta,
        accountant,
        adjacency,
        guess,
    )


_Point = tuple[float, float]


def _straddle(excess: Callable[[float], float], start: float) -> tuple[_Point, _Point]:
    """Two points (ln x, excess), one that meets the guarantee and one that does not."""
    here = (start, excess(start))
    there = (start + 0.02, excess(start + 0.02))
    rising = there[1] > here[1]
    if there[1] == here[1]:
        rising = excess(start + 5.0) > excess(start - 5.0)
    try:
        return _walk(excess, here, there, rising=rising)
    except Uncalibratable:
        # So near to each other, two upper bounds may lie the wrong way round.
        return _walk(excess, here, there, rising=not rising)


def _walk(
    excess: Callable[[float], float], here: _Point, there: _Point, *, rising: bool
) -> tuple[_Point, _Point]:
    """Goes up or down in growing strides until the guarantee is met, or is not any more."""
    stride, end = 0.02, math.log(1e12)
    while (here[1] <= 0.0) == (there[1] <= 0.0):
        stride *= 4.0
        toward_more = (there[1] <= 0.0) == rising
        outer = max(here, there) if toward_more else min(here, there)
        place = outer[0] + (stride if toward_more else -stride)
        if abs(place) > end:
            raise Uncalibratable(
                "epsilon cannot be met exactly: the guarantee stays on one side of it for every "
                f"parameter between 1e-12 and 1e12 (last tried {math.exp(outer[0]):.3g})"
            )
        here, there = outer, (place, excess(place))
    return (here, there) if here[1] <= 0.0 else (there, here)


def _narrow(excess: Callable[[float], float], private: _Point, leaky: _Point) -> float:
    """The private side of the root: secants inside the straddle, then a step that is checked."""
    older, newer = leaky, private
    for _ in range(100):
        place = _secant(older, newer)
        if not min(private, leaky)[0] < place < max(private, leaky)[0]:
            place = 0.5 * (private[0] + leaky[0])
        if abs(place - newer[0]) <= _TOLERANCE:
            break
        older, newer = newer, (place, excess(place))
        private, leaky = (newer, leaky) if newer[1] <= 0.0 else (private, newer)
    shift = math.copysign(_TOLERANCE, private[0] - leaky[0])
    while (place + shift - private[0]) * shift < 0.0:
        if excess(place + shift) <= 0.0:
            return place + shift
        shift *= 4.0
    return private[0]


def _secant(older: _Point, newer: _Point) -> float:
    """Where the line through both points meets 0."""
    if older[1] == newer[1] or math.isinf(older[1]) or math.isinf(newer[1]):
        return math.nan
    return newer[0] - newer[1] * (newer[0] - older[0]) / (newer[1] - older[1])


def analytic_gaussian_sigma(epsilon: float, delta: float) -> float:
    """The smallest σ at which one Gaussian of sensitivity 1 is (ε, δ)-private.

    The analytic calibration (Balle & Wang 2018, Theorem 8), valid for every ε > 0.

    Guarantee:
        Gaussian noise of this σ is (ε, δ)-differentially private.

    >>> round(analytic_gaussian_sigma(1, 1e-5), 10)
    3.7306316348
    """
    positive("epsilon", epsilon)
    goal = math.log(open_probability("delta", delta))

    def excess(log_mu: float) -> float:
        return gaussian_profile.log_delta(math.exp(log_mu), epsilon) - goal

    log_mu = float(brentq(excess, -60.0, 12.0, xtol=1e-15, rtol=1e-14, maxiter=300))
    # Above the errors of the profile, so that the exact accountant agrees to the last digit.
    return math.exp(-log_mu) * (1.0 + 2e-12)


def classical_gaussian_sigma(epsilon: float, delta: float) -> float:
    """σ = √(2·ln(1.25/δ))/ε, the classical sufficient noise, proved for ε < 1 only.

    Guarantee:
        For 0 < ε < 1 Gaussian noise of this σ is (ε, δ)-differentially private (Dwork & Roth 2014,
        Theorem A.1). Other ε are refused: the formula is no bound there.

    >>> round(classical_gaussian_sigma(0.5, 1e-5), 4)
    9.6896
    """
    open_probability("delta", delta)
    if not 0.0 < positive("epsilon", epsilon) < 1.0:
        raise InvalidArgument(
            f"epsilon must be below 1 for the classical formula, got {epsilon!r}; "
            "use analytic_gaussian_sigma"
        )
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def classical_gaussian_delta(epsilon: float, sigma: float) -> float:
    """δ = (4/5)·exp(-(σε)²/2), what the classical formula proves for a given σ and ε < 1.

    Guarantee:
        As for ``classical_gaussian_sigma``.

    >>> round(classical_gaussian_delta(0.5, 10.0), 9)
    2.981e-06
    """
    positive("sigma", sigma)
    if not 0.0 < positive("epsilon", epsilon) < 1.0:
        raise InvalidArgument(
            f"epsilon must be below 1 for the classical formula, got {epsilon!r}; "
            "use delta(Gaussian(sigma), epsilon)"
        )
    return 0.8 * math.exp(-0.5 * (sigma * epsilon) ** 2)
