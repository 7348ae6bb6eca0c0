"""Laplace and Gaussian noise on real and on whole numbers."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit._validation import positive, whole
from tacit.accounting.events import DiscreteGaussian, Gaussian, PureDp, ZeroConcentrated
from tacit.errors import InvalidArgument
from tacit.mechanisms._races import coins, numbers_below
from tacit.mechanisms._records import (
    MOST,
    clipped,
    finite,
    integers,
    interval,
    like,
    whole_interval,
)
from tacit.mechanisms.release import (
    UP,
    agreed,
    apart,
    calibrated,
    discrete_laplace_event,
    gaussian_event,
    laplace_event,
    pure_amount,
    smooth_amount,
)
from tacit.randomness import discrete_gaussian as gaussian_noise
from tacit.randomness import discrete_laplace as laplace_noise
from tacit.randomness import grid_gaussian, grid_laplace, power_below
from tacit.randomness.discrete import LARGEST_DISCRETE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.mechanisms.release import Amount, Released
    from tacit.randomness import Stream


def laplace(
    value: Any,
    *,
    sensitivity: float | None = None,
    bounds: Sequence[float] | None = None,
    epsilon: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """A number, or each of several, plus Laplace noise (Dwork et al. 2006).

    Guarantee:
        If neighbours move all numbers together by at most ``sensitivity`` in L1, as float64
        numbers, the release is that of ``event``, whose ε is the one asked for. Noise is on a grid
        (``tacit.randomness.grid_laplace``): no low bit tells anything. Numbers beyond 2⁶² steps of
        the grid are clipped to that. A value that is not finite has no sensitivity: it is refused
        before the charge, and the refusal tells just that. With ``bounds`` nothing is refused: what
        is missing or no number counts as their middle.

    Args:
        value: A number, an array, a pandas Series or DataFrame, whose labels are public, and so
            is how many numbers there are.
        sensitivity: How far neighbours move ``value``, in L1, by the adjacency.
        bounds: The public least and largest number; each is clipped to them. Alone, they say that
            neighbours move every number by the whole width.
        epsilon: The ε asked for.
        rho: The ρ of zCDP asked for, instead of ε.
        adjacency: Which data sets are neighbours; the budget's, or ``"add-remove"``.
        unit: Whom it protects; the budget's, or ``"example"``.
        budget: A ``tacit.ledger.Budget``, charged before noise is drawn.
        label: A name for the ledger.
        stream: The random bytes; a fresh secure stream unless a test gives another.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> released = laplace(42, sensitivity=1, epsilon=0.5, stream=UnsafeSeededStream(0, "test"))
    >>> round(released.value, 4), released.event
    (42.0314, Laplace(scale=2.0, replace_distance=2.0))
    """
    terms = agreed("laplace", adjacency, unit, budget, label, stream)
    numbers, moved = _moved(value, sensitivity, bounds, norm=1)
    asked = pure_amount(epsilon, rho).pure_epsilon()
    event = laplace_event(asked, apart(terms.adjacency), terms.adjacency)
    scale = _drawable(event.scale * moved * UP, sys.float_info.max)
    grant = terms.charge(event)
    noisy = grid_laplace(numbers, scale, moved, grant.stream)
    return grant.release(like(value)(noisy))


def gaussian(
    value: Any,
    *,
    sensitivity: float | None = None,
    bounds: Sequence[float] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    noise_multiplier: float | None = None,
    calibration: Literal["analytic", "classical"] = "analytic",
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """A number, or each of several, plus Gaussian noise.

    Guarantee:
        If neighbours move all numbers together by at most ``sensitivity`` in L2, the release is
        that of ``event``, which meets the (ε, δ) or ρ asked for, or is ``Gaussian(σ)`` for the σ
        asked for. ``"analytic"`` noise is the least that does (Balle & Wang 2018); ``"classical"``
        is √(2·ln(1.25/δ))/ε, for ε < 1 (Dwork & Roth 2014). The grid and refusals are as in
        ``laplace``.

    Args:
        value: As in ``laplace``.
        sensitivity: How far neighbours move ``value``, in L2, by the adjacency.
        bounds: As in ``laplace``.
        epsilon: The ε asked for, with ``delta``.
        delta: The δ asked for; a budget whose rule lets one choose is charged at it.
        rho: The ρ of zCDP asked for, instead.
        noise_multiplier: σ asked for, instead: the noise's deviation in units of ``sensitivity``.
        calibration: How (ε, δ) is turned into noise.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> released = gaussian([1.0, 2.0], sensitivity=1, epsilon=1, delta=1e-5,
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> released.value.round(4).tolist(), round(released.event.sigma, 4)
    ([2.6144, -1.5672], 3.7306)
    """
    terms = agreed("gaussian", adjacency, unit, budget, label, stream)
    asked = smooth_amount(epsilon, delta, rho, noise_multiplier)
    numbers, moved = _moved(value, sensitivity, bounds, norm=2)
    event = _gaussian(asked, calibration, terms.adjacency)
    sigma = _drawable(event.sigma * moved * UP, sys.float_info.max)
    grant = terms.charge(event, asked.delta)
    noisy = grid_gaussian(numbers, sigma, moved, grant.stream)
    return grant.release(like(value)(noisy))


def bounded_laplace(
    value: Any,
    *,
    sensitivity: float,
    bounds: Sequence[float],
    epsilon: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """One number plus Laplace noise that leaves it within ``bounds``: drawn again until it does.

    The bounded Laplace mechanism (Holohan, Antonatos, Braghin & Mac Aonghusa 2020). An answer
    beyond the bounds is never seen, and none piles up at their ends; for an answer that may pile up
    there, clip what ``laplace`` releases, which needs less noise.

    Guarantee:
        ε-DP, with no δ: the event is ``PureDp``. Near an end fewer draws are within the bounds, and
        how many tells about the number: noise of scale Δ/ε, as ``laplace`` has it, would be up to
        2ε-DP. The scale is the least b with Δ/b + ln(C(Δ)/C(0)) ≤ ε, where C(x) is the chance that
        noise on a number x above the lower bound stays within the bounds (their main theorem, with
        δ = 0). It is applied to what is drawn, whole numbers of steps of a grid: there C is
        log-concave in x, so that no pair of numbers is worse than the lower bound and Δ above it.
        The value is clipped to the bounds; one that is missing or no number counts as their middle,
        and nothing is refused but more than one number. The law is exact.

    Args:
        value: A number.
        sensitivity: How far neighbours move ``value``, by the adjacency; never more than the width
            of the bounds.
        bounds: The public least and largest answer.
        epsilon: The ε asked for.
        rho: The ρ of zCDP asked for, instead of ε.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> released = bounded_laplace(0.97, sensitivity=0.1, bounds=(0, 1), epsilon=1,
    ...     stream=UnsafeSeededStream(0, "test"))
    >>> round(released.value, 3), released.event
    (0.973, PureDp(epsilon=1.0, adjacency='add-remove'))
    """
    terms = agreed("bounded_laplace", adjacency, unit, budget, label, stream)
    lower, upper = interval("bounds", bounds)
    number = clipped("value", value, lower, upper)
    if number.size != 1:
        raise InvalidArgument(f"value must be one number, got the shape {number.shape}")
    asked = pure_amount(epsilon, rho).pure_epsilon()
    width, moved = upper - lower, min(positive("sensitivity", sensitivity), upper - lower)
    # Rounding moves neighbours by a step further apart, and float64 by half of one at most.
    step = max(power_below(moved / max(asked, 1.0), 20), power_below(width, 50))
    last = math.floor(width / step)
    scale = _bounded_scale(last, min(math.ceil(moved / step) + 2, last), asked)
    grant = terms.charge(PureDp(asked, terms.adjacency))
    place = min(round((number.item() - lower) / step), last)
    drawn = place + _noise_between(scale, -place, last - place, grant.stream)
    answer = np.full(number.shape, min(upper, lower + drawn * step))
    return grant.release(like(value)(answer))


_LARGEST_SCALE = 1e300  # beyond, its inverse is 0


def _bounded_scale(last: int, moved: int, epsilon: float) -> float:
    """The least scale at which noise on 0 … last, drawn again until it stays there, is ε-DP.

    With r = e^{-1/scale} the weight of all outcomes around x is C(x) = Σ_k r^{abs(k - x)}, which is
    (1 + r - r^{x+1} - r^{last-x+1})/(1 - r): concave in x, so that C(x + moved)/C(x) is largest at
    x = 0. As C(moved) ≤ r^{-moved}·C(0), twice the scale of ``laplace`` always suffices.
    """

    def loss(scale: float) -> float:
        rate = 1.0 / scale
        around = math.exp(-rate) * math.expm1((moved - last) * rate) + math.expm1(
            -(moved + 1) * rate
        )
        return moved * rate + math.log(around / math.expm1(-(last + 1) * rate))

    low, high = moved / epsilon, 2.0 * moved / epsilon * UP
    if not high < _LARGEST_SCALE:
        raise InvalidArgument(f"epsilon (or rho) must be larger, got an epsilon of {epsilon!r}")
    for _ in range(60):
        middle = 0.5 * (low + high)
        if loss(middle) + 1e-14 <= epsilon * (1.0 - 1e-12):  # above what float64 rounds
            high = middle
        else:
            low = middle
    return high


def _noise_between(scale: float, first: int, last: int, stream: Stream) -> int:
    """A discrete Laplace number, drawn again until it lies between ``first`` ≤ 0 and ``last`` ≥ 0.

    Where the scale is wide, numbers between the two are drawn, and kept with the law's chance.
    """
    if last - first > 2.0 * scale:
        while True:
            drawn = laplace_noise(scale, 8, stream)
            inside = drawn[(drawn >= first) & (drawn <= last)]
            if len(inside):
                return int(inside[0])
    while True:
        tried = first + int(numbers_below(last - first + 1, 1, stream)[0])

        def chance(intervals: Any, tried: int = tried) -> Any:
            return intervals.exp(-intervals.mpf(abs(tried)) / intervals.mpf(scale))

        if coins(math.exp(-abs(tried) / scale), chance, 1, stream)[0]:
            return tried


def _gaussian(asked: Amount, calibration: str, adjacency: Adjacency) -> Gaussian:
    if calibration == "analytic":
        return gaussian_event(asked, apart(adjacency), adjacency)
    if calibration != "classical":
        raise InvalidArgument(f"calibration must be 'analytic' or 'classical', got {calibration!r}")
    if asked.epsilon is None or asked.delta is None:
        raise InvalidArgument("epsilon and delta must be given with calibration='classical'")
    from tacit.accounting import classical_gaussian_sigma  # noqa: PLC0415 - SciPy

    return Gaussian(classical_gaussian_sigma(asked.epsilon, asked.delta) * UP, apart(adjacency))


def _moved(
    value: Any, sensitivity: float | None, bounds: Sequence[float] | None, *, norm: int
) -> tuple[NDArray[np.float64], float]:
    """The numbers, clipped if there are bounds, and how far neighbours move them."""
    if bounds is None:
        if sensitivity is None:
            raise InvalidArgument("sensitivity must be given, or bounds; none is taken from data")
        return finite("value", value), positive("sensitivity", sensitivity)
    lower, upper = interval("bounds", bounds)
    numbers = clipped("value", value, lower, upper)
    if sensitivity is not None:
        return numbers, positive("sensitivity", sensitivity)
    spread = float(numbers.size) if norm == 1 else math.sqrt(numbers.size)
    return numbers, (upper - lower) * max(spread, 1.0) * UP


def _drawable(scale: float, most: float) -> float:
    """The noise's scale, which is refused before the charge where none can be drawn of it."""
    if not scale <= most:
        raise InvalidArgument(
            f"sensitivity must be less, or epsilon (or rho) larger: noise of scale {scale:.3g} "
            f"cannot be drawn, {most:.3g} is the most"
        )
    return scale


# ---- whole numbers


# Beyond, the exact accountant takes seconds for a lattice that hardly differs from the line.
_LARGEST_EXACT = 256.0
# How much more noise than the real Gaussian's is tried, until the accountant agrees.
_MORE = (0.0, 1e-5, 1e-4, 1e-3, 4e-3, 0.015, 0.06)


def discrete_laplace(
    value: Any,
    *,
    sensitivity: int = 1,
    bounds: Sequence[int] | None = None,
    epsilon: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """A whole number, or each of several, plus noise k with P(k) ∝ exp(-abs(k)/scale).

    The geometric mechanism (Ghosh, Roughgarden & Sundararajan 2009), also to be had as
    ``geometric``; with ``bounds`` the truncated one.

    Guarantee:
        If neighbours move all numbers together by at most ``sensitivity`` in L1, the release is
        that of ``event``, with the ε asked for. The law is exact. The event is about one number
        that moves, and holds for several that share the move: of two shifted laws the best tests
        are by thresholds, whichever the shift, so that the trade-off of a shift by a + b is that
        of a shift by a followed by one by b; and a test of both at once does no better than one
        after the other. Clipping the answer to ``bounds`` looks at nothing else, and leaves the
        event as it is. Values of another than an integer type are refused; those beyond 2⁶² are
        clipped to it.

    Args:
        value: A whole number, an integer array, a pandas Series or DataFrame.
        sensitivity: How far neighbours move ``value``, in L1, by the adjacency.
        bounds: The public least and largest whole number; values and answers are clipped to them.
        epsilon: The ε asked for.
        rho: The ρ of zCDP asked for, instead of ε.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> discrete_laplace(12, epsilon=0.5, stream=UnsafeSeededStream(0, "test")).value
    12
    """
    terms = agreed("discrete_laplace", adjacency, unit, budget, label, stream)
    numbers, moved = integers("value", value), whole("sensitivity", sensitivity)
    least, most = (-MOST, MOST) if bounds is None else whole_interval("bounds", bounds)
    asked = pure_amount(epsilon, rho).pure_epsilon()
    event = discrete_laplace_event(asked, moved, terms.adjacency)
    scale = _drawable(event.scale, LARGEST_DISCRETE)
    grant = terms.charge(event)
    noise = laplace_noise(scale, numbers.size, grant.stream).reshape(numbers.shape)
    noisy = np.clip(numbers, least, most) + noise
    return grant.release(like(value)(noisy if bounds is None else np.clip(noisy, least, most)))


geometric = discrete_laplace  # its name in the literature


def discrete_gaussian(
    value: Any,
    *,
    sensitivity: float = 1,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """A whole number, or each of several, plus noise k with P(k) ∝ exp(-k²/(2σ²)).

    The mechanism of Canonne, Kamath & Steinke (2020).

    Guarantee:
        If neighbours move all numbers together by at most ``sensitivity`` in L2, the release is
        that of ``event``, which meets the (ε, δ) or ρ asked for. The law is exact. For one number,
        or a sensitivity of 1, the event is ``DiscreteGaussian``; for several that move together, or
        a σ above 256, it is ``ZeroConcentrated`` (their Theorem 14), which needs somewhat more
        noise for (ε, δ): ``gaussian`` does without. Refusals are as in ``discrete_laplace``.

    Args:
        value: As in ``discrete_laplace``.
        sensitivity: How far neighbours move ``value``, in L2, by the adjacency.
        epsilon: The ε asked for, with ``delta``.
        delta: The δ asked for.
        rho: The ρ of zCDP asked for, instead.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> released = discrete_gaussian(12, rho=0.125, stream=UnsafeSeededStream(0, "test"))
    >>> released.value, round(released.event.sigma, 4)
    (12, 2.0)
    """
    terms = agreed("discrete_gaussian", adjacency, unit, budget, label, stream)
    numbers, moved = integers("value", value), positive("sensitivity", sensitivity)
    asked = smooth_amount(epsilon, delta, rho)

    def lattice(sigma: float) -> Event:
        return DiscreteGaussian(sigma, int(moved), apart(terms.adjacency))

    exact = lattice if _alone(numbers.size, moved) else None
    sigma, event = gaussian_design(asked, moved, terms.adjacency, exact)
    sigma = _drawable(sigma, LARGEST_DISCRETE)
    grant = terms.charge(event, asked.delta)
    noise = gaussian_noise(sigma, numbers.size, grant.stream).reshape(numbers.shape)
    return grant.release(like(value)(numbers + noise))


def _alone(size: int, moved: float) -> bool:
    """Whether neighbours move one number at most, and by whole steps."""
    return moved == 1 or (size == 1 and float(moved).is_integer())


def gaussian_design(
    asked: Amount, moved: float, adjacency: Adjacency, lattice: Callable[[float], Event] | None
) -> tuple[float, Event]:
    """σ and the event for numbers that move by ``moved`` in L2; ``lattice`` is the exact event."""
    if asked.rho is not None:
        sigma = moved / math.sqrt(2.0 * asked.rho) * UP
        if lattice is not None and sigma <= _LARGEST_EXACT:
            return sigma, lattice(sigma)
        return sigma, ZeroConcentrated(asked.rho, adjacency)
    sigma = gaussian_event(asked, 1.0, adjacency).sigma * moved
    if lattice is not None and sigma <= _LARGEST_EXACT:
        found = _met(lattice, sigma, asked, adjacency)
        if found is not None:
            return found, lattice(found)
    rho = calibrated(ZeroConcentrated, asked, adjacency, guess=0.5 * (moved / sigma) ** 2)
    return moved / math.sqrt(2.0 * rho) * UP, ZeroConcentrated(rho, adjacency)


def _met(
    event: Callable[[float], Event], sigma: float, asked: Amount, adjacency: Adjacency
) -> float | None:
    """The first σ, from the real Gaussian's up, at which the accountant proves (ε, δ)."""
    from tacit.accounting import epsilon  # noqa: PLC0415 - SciPy

    assert asked.epsilon is not None
    assert asked.delta is not None
    for more in _MORE:
        tried = sigma * (1.0 + more)
        if epsilon(event(tried), asked.delta, adjacency=adjacency) <= asked.epsilon:
            return tried
    return None
