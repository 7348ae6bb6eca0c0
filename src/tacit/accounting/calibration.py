"""How much noise a guarantee demands: the tight answer, each theorem's, the classical formulas."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from scipy.optimize import brentq

from tacit._validation import open_probability, positive, probability, whole
from tacit.accounting import gaussian_profile
from tacit.accounting.accountants import accountant_named, exact
from tacit.accounting.events import (
    Adjacency,
    Event,
    Gaussian,
    PoissonSampled,
    Repeated,
    check_adjacency,
)
from tacit.accounting.exact.jump_search import enough_for_one, near_sigma
from tacit.errors import InvalidArgument, Uncalibratable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Neighbours

    Measure = Callable[[float], "Probe"]

_TOLERANCE = 1e-11  # relative, in the parameter or in ε
_ON_GRID = 1e-7  # the same where the accountant's own lattice leaves no more digits
_BY_JUMPS = 1e-8  # the same where it takes tens of milliseconds, for as many digits
_ROUGHLY = 1e-4  # the same for a first search
_MARGIN, _STEEPEST = 5e-7, 30.0  # above a σ that is all but right, and ε's slope against it there
_RARELY = 0.2  # steps·rate², below which the central limit's guess is far off
_LEAST_STEP = 1e-11
_STRIDE, _SHORT = 0.02, 3e-5  # of ln x, between the first two that are tried
_MOST_ROUNDS, _FEW_ROUNDS = 100, 5
_FALL, _STEEP = 1.2, 8.0  # of ln ε by ln σ, at first, and of ln δ by ln ε
_MOST_SECANTS, _FARTHEST = 12, 1.5
_CLOSE, _ENOUGH = 1e-10, 1e-8  # of ln ε: below the one asked for, and where digits are few
_APART = 1e-7  # of ln σ


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
    start = math.log(positive("guess", guess))

    def plain(log_x: float) -> Probe:
        found = float(asked.epsilon(make_event(math.exp(log_x)), delta, adjacency))
        return Probe(log_x, _log(found) - goal, _TOLERANCE)

    def rough(log_x: float) -> Probe:
        found = exact.epsilon_interval(make_event(math.exp(log_x)), delta, adjacency, exact.ROUGH)
        return Probe(log_x, _log(found.upper) - goal, _ROUGHLY)

    if accountant == "exact":
        sharp = _by_certificate(make_event, epsilon, delta, adjacency)
        return math.exp(least_private(sharp, start, rough))
    return math.exp(least_private(plain, start))


def _by_certificate(
    make_event: Callable[[float], Event], epsilon: float, delta: float, adjacency: Neighbours
) -> Measure:
    """What the exact accountant proves of a parameter."""
    goal = math.log(epsilon)

    def measure(log_x: float) -> Probe:
        event = make_event(math.exp(log_x))
        found = exact.epsilon_interval(event, delta, adjacency, exact.UPPER_END)
        tolerance = _ON_GRID if found.on_grid else _TOLERANCE
        if found.method == "jumps":
            tolerance = _BY_JUMPS
        return Probe(log_x, _log(found.upper) - goal, tolerance, dear=found.on_grid)

    return measure


def _log(epsilon: float) -> float:
    return math.log(epsilon) if epsilon > 0.0 else -math.inf


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

    def make_event(sigma: float) -> Event:
        return Repeated(PoissonSampled(rate, Gaussian(sigma)), times)

    # The central limit's σ (Bu et al. 2020), or what one step needs: a starting point, no answer.
    guess = 1.0 / math.sqrt(math.log1p((mu / rate) ** 2 / times))
    guess = max(guess, enough_for_one(rate, epsilon, delta / times))
    if accountant != "exact":
        return calibrate(make_event, epsilon, delta, accountant, adjacency, guess)
    place, steepest = None, _STEEPEST
    if times * rate**2 < _RARELY and times > 2 and adjacency != "replace-one":
        close = near_sigma(rate, times, epsilon, delta, guess)
        if close is not None:
            place = math.log(close.sigma) + _MARGIN
            steepest = max(steepest, 2.0 * close.steepness)
    if place is None:
        place = _just_met(_guide(make_event, epsilon, delta, adjacency, times), math.log(guess))
    if place is None:
        return calibrate(make_event, epsilon, delta, accountant, adjacency, guess)
    sharp = _by_certificate(make_event, epsilon, delta, check_adjacency(adjacency))
    for margin in (0.0, _MARGIN):
        tried = sharp(place + margin)
        if -steepest * _MARGIN <= tried.excess <= 0.0:
            return math.exp(tried.place)
    return math.exp(least_private(sharp, tried.place, stride=_SHORT))


def _guide(
    make_event: Callable[[float], Event],
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    steps: int,
) -> Measure:
    """What leads to the noise in half the time: the record that is removed most often counts.

    One step's δ, and that of two, takes no search; it is as smooth in σ as ε is, next to 0 too.
    """
    way: Neighbours = "remove-only" if adjacency == "add-remove" else adjacency
    if steps > 2:
        return _by_certificate(make_event, epsilon, delta, way)

    def measure(log_x: float) -> Probe:
        event = make_event(math.exp(log_x))
        found = exact.delta_interval(event, epsilon, way, exact.UPPER_END).upper
        return Probe(log_x, (_log(found) - math.log(delta)) / _STEEP, _TOLERANCE)

    return measure


def sample_rate(
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    steps: int,
    accountant: str = "exact",
    adjacency: Adjacency = "add-remove",
) -> float:
    """The largest rate at which ``steps`` Poisson-sampled Gaussian steps meet (ε, δ).

    Guarantee:
        As for ``calibrate``. It is 1 if everybody may take part in every step.

    >>> round(sample_rate(epsilon=2, delta=1e-5, noise_multiplier=2.1273754, steps=10_000), 6)
    0.01
    """
    noise, times = Gaussian(noise_multiplier), whole("steps", steps)
    everybody = accountant_named(accountant).epsilon(
        Repeated(noise, times), open_probability("delta", delta), check_adjacency(adjacency)
    )
    if everybody <= positive("epsilon", epsilon):
        return 1.0

    def at(odds: float) -> Event:
        return Repeated(PoissonSampled(_rate(odds), noise), times)

    return _rate(calibrate(at, epsilon, delta, accountant, adjacency, guess=0.01))


def _rate(odds: float) -> float:
    return odds / (1.0 + odds)


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


# ---- where a guarantee is just met, along a family that is monotone in one parameter


class Probe(NamedTuple):
    """What an accountant says of one parameter x.

    Attributes:
        place: ln x.
        excess: The logarithm of its ε over the one that is asked for.
        tolerance: How near to 0 that should be, or how near to each other two places.
        dear: Whether to ask again only a few times.
    """

    place: float
    excess: float
    tolerance: float
    dear: bool = False


def least_private(
    measure: Measure, start: float, rough: Measure | None = None, stride: float = _STRIDE
) -> float:
    """The place, near the last one that meets the guarantee, at which ``measure`` says it is met.

    ``rough``, no less sure than ``measure`` but quicker, only saves time, and so does a ``stride``
    that is about as long as ``start`` is far off.

    Raises:
        Uncalibratable: if no place between ln 1e-12 and ln 1e12 meets it, or all do.
    """
    if rough is None:
        straddle = _straddle(measure, start, stride)
    else:
        straddle = _nearby(measure, rough, start)
    return _narrow(measure, *straddle)[0].place


def _nearby(measure: Measure, rough: Measure, start: float) -> tuple[Probe, Probe]:
    """A straddle whose private side a quicker accountant, no less sure, has found to be close."""
    try:
        private, leaky = _straddle(rough, start)
        private, leaky = _narrow(rough, private, leaky)
    except Uncalibratable:  # as it may seem where rough answers differ by more than they fall
        return _straddle(measure, start)
    private = measure(private.place)
    if private.excess > 0.0:
        return _straddle(measure, private.place)
    return private, leaky


def _straddle(measure: Measure, start: float, stride: float = _STRIDE) -> tuple[Probe, Probe]:
    """Two points, one that meets the guarantee and one that does not."""
    here, there = measure(start), measure(start + stride)
    rising = there.excess > here.excess
    if there.excess == here.excess:
        rising = measure(start + 5.0).excess > measure(start - 5.0).excess
    try:
        return _walk(measure, here, there, rising=rising)
    except Uncalibratable:
        # So near to each other, two upper bounds may lie the wrong way round.
        return _walk(measure, here, there, rising=not rising)


def _walk(measure: Measure, here: Probe, there: Probe, *, rising: bool) -> tuple[Probe, Probe]:
    """Goes up or down in growing strides until the guarantee is met, or is not any more."""
    stride, end = abs(there.place - here.place), math.log(1e12)
    while (here.excess <= 0.0) == (there.excess <= 0.0):
        stride *= 4.0
        toward_more = (there.excess <= 0.0) == rising
        outer = max(here, there) if toward_more else min(here, there)
        place = outer.place + (stride if toward_more else -stride)
        if abs(place) > end:
            raise Uncalibratable(
                "epsilon cannot be met exactly: the guarantee stays on one side of it for every "
                f"parameter between 1e-12 and 1e12 (last tried {math.exp(outer.place):.3g})"
            )
        here, there = outer, measure(place)
    return (here, there) if here.excess <= 0.0 else (there, here)


def _narrow(measure: Measure, private: Probe, leaky: Probe) -> tuple[Probe, Probe]:
    """A straddle whose private side is within its tolerance, or as near to the other as may be."""
    older, newer = leaky, private
    for tried in range(_MOST_ROUNDS):
        near = (
            private.excess >= -private.tolerance
            or abs(private.place - leaky.place) <= private.tolerance
        )
        # Dear answers come from a lattice, and are too uneven for a secant to close in on.
        if near or (tried >= _FEW_ROUNDS and private.dear):
            return private, leaky
        place = _secant(older, newer, -0.5 * private.tolerance)
        if not min(private, leaky).place < place < max(private, leaky).place:
            place = 0.5 * (private.place + leaky.place)
        if abs(place - newer.place) <= _LEAST_STEP:
            break
        older, newer = newer, measure(place)
        private, leaky = (newer, leaky) if newer.excess <= 0.0 else (private, newer)
    shift = math.copysign(_LEAST_STEP, private.place - leaky.place)
    while (place + shift - private.place) * shift < 0.0:
        found = measure(place + shift)
        if found.excess <= 0.0:
            return found, leaky
        shift *= 4.0
    return private, leaky


def _just_met(measure: Measure, start: float) -> float | None:
    """Where ``measure``, which falls, just meets the guarantee; None if secants do not lead there.

    The first has the slope of losses so small and so many that they are like a Gaussian's. Places
    next to each other have no slope: rounding is what tells them apart.
    """
    newer, slope = measure(start), -_FALL
    for tried in range(_MOST_SECANTS):
        enough = _CLOSE if tried < _FEW_ROUNDS else _ENOUGH
        if -enough <= newer.excess <= 0.0:
            return newer.place
        aim = -0.5 * _CLOSE
        if 0.0 < newer.excess < _ENOUGH:
            aim = min(aim, -newer.excess)
        place = newer.place - (newer.excess - aim) / slope
        if not abs(place - start) <= _FARTHEST:
            return None
        older, newer = newer, measure(place)
        if abs(newer.place - older.place) > _APART:
            slope = (newer.excess - older.excess) / (newer.place - older.place)
        if not slope < 0.0:
            return None
    return None


def _secant(older: Probe, newer: Probe, goal: float) -> float:
    """Where the line through both points meets ``goal``."""
    if older.excess == newer.excess or math.isinf(older.excess) or math.isinf(newer.excess):
        return math.nan
    return newer.place - (newer.excess - goal) * (newer.place - older.place) / (
        newer.excess - older.excess
    )
