"""Discrete Laplace and discrete Gaussian noise on whole numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tacit._validation import positive, whole
from tacit.accounting.events import DiscreteGaussian, ZeroConcentrated
from tacit.mechanisms import _noise
from tacit.mechanisms._kinds import integers, like
from tacit.mechanisms._noise import UP, apart, calibrated
from tacit.mechanisms._terms import agreed, pure_amount, smooth_amount
from tacit.randomness import discrete_gaussian as gaussian_noise
from tacit.randomness import discrete_laplace as laplace_noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.accounting.events import Adjacency, Event
    from tacit.ledger import Budget
    from tacit.mechanisms._terms import Amount
    from tacit.mechanisms.released import Released
    from tacit.randomness import Stream

# Beyond, the exact accountant takes seconds for a lattice that hardly differs from the line.
_LARGEST_EXACT = 256.0
# How much more noise than the real Gaussian's is tried, until the accountant agrees.
_MORE = (0.0, 1e-5, 1e-4, 1e-3, 4e-3, 0.015, 0.06)


def discrete_laplace(
    value: Any,
    *,
    sensitivity: int = 1,
    epsilon: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """A whole number, or each of several, plus noise k with P(k) ∝ exp(-abs(k)/scale).

    The geometric mechanism (Ghosh, Roughgarden & Sundararajan 2009).

    Guarantee:
        If neighbours move all numbers together by at most ``sensitivity`` in L1, the release is
        that of ``event``, with the ε asked for. The law is exact. The event is about one number
        that moves, and holds for several that share the move: of two shifted laws the best tests
        are by thresholds, whichever the shift, so that the trade-off of a shift by a + b is that
        of a shift by a followed by one by b; and a test of both at once does no better than one
        after the other. Values of another than an integer type are refused; those beyond 2⁶² are
        clipped to it.

    Args:
        value: A whole number, an integer array, a pandas Series or DataFrame.
        sensitivity: How far neighbours move ``value``, in L1, by the adjacency.
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
    asked = pure_amount(epsilon, rho).pure_epsilon()
    event = _noise.discrete_laplace_event(asked, moved, terms.adjacency)
    grant = terms.charge(event)
    noise = laplace_noise(event.scale, numbers.size, grant.stream).reshape(numbers.shape)
    return grant.release(like(value)(numbers + noise))


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
        return sigma, ZeroConcentrated(asked.rho)
    sigma = _noise.gaussian_event(asked, 1.0, adjacency).sigma * moved
    if lattice is not None and sigma <= _LARGEST_EXACT:
        found = _met(lattice, sigma, asked, adjacency)
        if found is not None:
            return found, lattice(found)
    rho = calibrated(ZeroConcentrated, asked, adjacency, guess=0.5 * (moved / sigma) ** 2)
    return moved / math.sqrt(2.0 * rho) * UP, ZeroConcentrated(rho)


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
