"""Variances and standard deviations of bounded records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import flag
from tacit.errors import InvalidArgument
from tacit.mechanisms._columns import Asking, centred_means, table
from tacit.mechanisms.release import agreed, amount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.mechanisms._columns import Bounds, Table
    from tacit.mechanisms.release import Grant, Released
    from tacit.randomness import Stream

    Reals = NDArray[np.float64]

# How far (t, 2t² - 1) moves when t in [-1, 1] becomes s: abs(t - s)·(1 + 2·abs(t + s)) in L1, which
# is largest from 1 to -1/4, and abs(t - s)·√(1 + 4(t + s)²) in L2, largest from 1 to (√½ - 1)/2.
# From t to nothing it is 2 and √2 at most, and 3 and √3 with the number.
_APART_L1 = 25.0 / 8.0
_APART_L2 = 2.26818


def variance(
    values: Any,
    *,
    bounds: Bounds,
    count: int | None = None,
    skip_missing: bool = False,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """The mean squared distance from the mean, of the records or of each of their columns.

    Of each entry, clipped to ``bounds``, the distance x from their middle and its square are summed
    up by one release, which is divided by the number of records as in ``mean``; E[x²] - E[x]²
    follows from it. It is the variance of these records (NumPy's): that of the population they were
    drawn from is n/(n-1) times as large.

    Guarantee:
        As for ``mean``. An entry that is missing or no number adds nothing to either sum, but
        counts as a record; with ``skip_missing`` it does not count. What is released lies between
        0 and the largest variance of numbers within the bounds, a quarter of their width squared;
        for few records or a small ε it is therefore biased. Laplace noise for ε alone, Gaussian
        noise for (ε, δ) or ρ.

    Args:
        values: As in ``sum``.
        bounds: As in ``sum``.
        count: As in ``mean``.
        skip_missing: As in ``mean``.
        epsilon: The ε asked for.
        delta: The δ asked for with it.
        rho: The ρ of zCDP asked for, instead.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one row.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> ages = np.arange(20_000) % 80
    >>> released = variance(ages, bounds=(0, 100), epsilon=1, stream=UnsafeSeededStream(0, "t"))
    >>> round(released.value), round(ages.var())
    (533, 533)
    """
    terms = agreed("variance", adjacency, unit, budget, label, stream)
    asked = amount(epsilon, delta, rho)
    data = table(values, bounds)
    asking = Asking(count, flag("skip_missing", skip_missing), asked, terms)
    grant, found = _variances(data, asking)
    return grant.release(data.form(found))


def standard_deviation(
    values: Any,
    *,
    bounds: Bounds,
    count: int | None = None,
    skip_missing: bool = False,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    adjacency: Adjacency | None = None,
    unit: str | None = None,
    budget: Budget | None = None,
    label: str = "",
    stream: Stream | None = None,
) -> Released[Any]:
    """The square root of ``variance``.

    Guarantee:
        As for ``variance``, of which it is a function. What is released lies between 0 and half the
        width of the bounds.

    Args:
        values: As in ``sum``.
        bounds: As in ``sum``.
        count: As in ``mean``.
        skip_missing: As in ``mean``.
        epsilon: As in ``variance``.
        delta: As in ``variance``.
        rho: As in ``variance``.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one row.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> ages = np.arange(20_000) % 80
    >>> known = UnsafeSeededStream(0, "t")
    >>> released = standard_deviation(ages, bounds=(0, 100), epsilon=1, stream=known)
    >>> round(released.value, 1), float(ages.std().round(1))
    (23.1, 23.1)
    """
    terms = agreed("standard_deviation", adjacency, unit, budget, label, stream)
    asked = amount(epsilon, delta, rho)
    data = table(values, bounds)
    asking = Asking(count, flag("skip_missing", skip_missing), asked, terms)
    grant, found = _variances(data, asking)
    return grant.release(data.form(np.sqrt(found)))


def _variances(data: Table, asking: Asking) -> tuple[Grant, Reals]:
    """One variance per column, between 0 and the largest that there is."""
    reach = 0.5 * (data.upper - data.lower)
    with np.errstate(over="ignore", under="ignore"):
        largest = reach * reach
    if not np.all((largest > 0.0) & np.isfinite(largest)):
        raise InvalidArgument(
            "bounds must be such that float64 holds the square of their width; change the unit"
        )
    with np.errstate(over="ignore"):
        along = np.clip((data.rows - (data.lower + reach)) / reach, -1.0, 1.0)
    size = len(reach)
    joint = (_APART_L1 * size, _APART_L2 * math.sqrt(size))
    ones = np.ones(size)
    grant, (means, squares) = centred_means(
        [along, 2.0 * along * along - 1.0], [ones, ones], joint, asking
    )
    return grant, largest * np.clip(0.5 * (squares + 1.0) - means * means, 0.0, 1.0)
