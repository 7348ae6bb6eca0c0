"""Laplace and Gaussian noise on real numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from tacit._validation import positive
from tacit.accounting.events import Gaussian
from tacit.errors import InvalidArgument
from tacit.mechanisms._bounds import interval
from tacit.mechanisms._kinds import clipped, finite, like
from tacit.mechanisms._noise import UP, apart, gaussian_event, laplace_event
from tacit.mechanisms._terms import agreed, pure_amount, smooth_amount
from tacit.randomness import grid_gaussian, grid_laplace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.mechanisms._terms import Amount
    from tacit.mechanisms.released import Released
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
    grant = terms.charge(event)
    noisy = grid_laplace(numbers, event.scale * moved * UP, moved, grant.stream)
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
    ([0.9466, 1.0628], 3.7306)
    """
    terms = agreed("gaussian", adjacency, unit, budget, label, stream)
    asked = smooth_amount(epsilon, delta, rho, noise_multiplier)
    numbers, moved = _moved(value, sensitivity, bounds, norm=2)
    event = _gaussian(asked, calibration, terms.adjacency)
    grant = terms.charge(event, asked.delta)
    noisy = grid_gaussian(numbers, event.sigma * moved * UP, moved, grant.stream)
    return grant.release(like(value)(noisy))


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
