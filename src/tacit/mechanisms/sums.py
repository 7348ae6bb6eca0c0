"""Sums and means of bounded records."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import flag
from tacit.mechanisms._columns import Asking, centred_means, columns_for, table
from tacit.mechanisms.release import agreed, amount

if TYPE_CHECKING:
    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.mechanisms._columns import Bounds
    from tacit.mechanisms.release import Released
    from tacit.randomness import Stream


def noisy_sum(
    values: Any,
    *,
    bounds: Bounds,
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
    """The sum of the records, or of each of their columns, every entry clipped to ``bounds``.

    Guarantee:
        Each record is one row. The release is that of ``event``, with what was asked for: Laplace
        noise for ε alone, Gaussian noise for (ε, δ) or ρ. Entries are clipped and rounded one by
        one, to 2⁻³² of the bounds or finer than the noise, and added up exactly: no floating-point
        rounding adds to the sensitivity. An entry is read by itself: one that is missing or no
        number counts as the number nearest 0 within the bounds; an infinite one, or one beyond
        float64, is clipped. With ``skip_missing`` a missing one adds nothing, which is paid for
        where 0 is outside of the bounds: a record that is replaced by a missing one moves the sum
        by all of it. Nothing in the data is refused, and nothing in them decides the shape of the
        answer: the type of ``values`` and the bounds do.

    Args:
        values: A 1-D array, list, pandas or Polars Series, which gives one number; a 2-D array or
            DataFrame, which gives one per column, and so does a list if the bounds are rows. A
            pandas DataFrame gives a Series, a Polars one a dictionary.
        bounds: The public least and largest entry, for all columns or one each; or, by the name of
            a column, ``{"age": (0, 120)}``, which columns of a DataFrame (or of a mapping of
            columns) to take, and within which bounds.
        skip_missing: Whether an entry that is missing or no number is left out.
        epsilon: The ε asked for.
        delta: The δ asked for with it.
        rho: The ρ of zCDP asked for, instead.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one row.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> known = UnsafeSeededStream(0, "t")
    >>> released = noisy_sum([30, 41, 250], bounds=(0, 100), epsilon=1, stream=known)
    >>> round(released.value, 3), released.event
    (179.222, Laplace(scale=1.0, replace_distance=1.0))
    """
    terms = agreed("sum", adjacency, unit, budget, label, stream)
    asked = amount(epsilon, delta, rho)
    data = table(values, bounds)
    rows, lower, upper = data.rows, data.lower, data.upper
    if flag("skip_missing", skip_missing):  # clipped here, so that 0 can be an end as well
        rows = np.clip(rows, lower, upper)
        lower, upper = np.minimum(lower, 0.0), np.maximum(upper, 0.0)
    columns = columns_for(lower, upper, asked, terms.adjacency)
    event = columns.event(asked, terms.adjacency)
    grant = terms.charge(event, asked.delta)
    sums = columns.noisy_sums(rows, np.zeros(len(lower)), event, grant.stream)
    return grant.release(data.form(sums))


def mean(
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
    """The mean of the records, or of each of their columns, every entry clipped to ``bounds``.

    The sum is taken about the middle of the bounds, where a record weighs least, and divided by the
    number of records. Under ``"replace-one"`` and ``"zero-out"`` neighbours have equally many, so
    that it is public. Under ``"add-remove"`` it is private unless you give ``count``: then it is
    released too, with noise, from the same budget (one more column of the sum).

    How many entries are present is private under every adjacency: with ``skip_missing`` and without
    ``count`` it is released in the same way, for each column.

    Guarantee:
        As for ``sum``. An entry that is missing or no number counts as the middle of the bounds;
        with ``skip_missing`` it counts neither in the sum nor in the number. What is released lies
        within the bounds. The number of records is protected under ``"add-remove"``, or with
        ``skip_missing``, unless you give ``count``, and public otherwise.

    Args:
        values: As in ``sum``.
        bounds: As in ``sum``.
        count: A public number to divide by; with ``skip_missing``, that of present entries.
        skip_missing: As in ``sum``.
        epsilon: As in ``sum``.
        delta: As in ``sum``.
        rho: As in ``sum``.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one row.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> ages = np.arange(20_000) % 80
    >>> released = mean(ages, bounds=(0, 100), epsilon=1, stream=UnsafeSeededStream(0, "t"))
    >>> round(released.value, 2)
    39.5
    """
    terms = agreed("mean", adjacency, unit, budget, label, stream)
    asked = amount(epsilon, delta, rho)
    data = table(values, bounds)
    lower, upper = data.lower, data.upper
    reach = 0.5 * (upper - lower)
    with np.errstate(over="ignore"):
        centred = data.rows - (lower + reach)
    joint = (2.0 * len(reach), 2.0 * math.sqrt(len(reach)))
    asking = Asking(count, flag("skip_missing", skip_missing), asked, terms)
    grant, (means,) = centred_means([centred], [reach], joint, asking)
    return grant.release(data.form(np.clip(lower + reach + means, lower, upper)))
