"""Sums and means of bounded records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.mechanisms._bounds import intervals
from tacit.mechanisms._columns import columns_for
from tacit.mechanisms._kinds import like_columns, number_rows, numbers
from tacit.mechanisms._terms import agreed, amount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency
    from tacit.ledger import Budget
    from tacit.mechanisms.released import Released
    from tacit.randomness import Stream


def sum(  # noqa: A001 - the name that NumPy and pandas have for it
    values: Any,
    *,
    bounds: Sequence[Any],
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
        float64, is clipped. Nothing in the data is refused, and nothing in them decides the shape
        of the answer: the type of ``values`` and the bounds do.

    Args:
        values: A 1-D array, list or pandas Series, which gives one number; a 2-D array or
            DataFrame, which gives one per column, and so does a list if the bounds name columns.
        bounds: The public least and largest entry, for all columns or one each.
        epsilon: The ε asked for.
        delta: The δ asked for with it.
        rho: The ρ of zCDP asked for, instead.
        adjacency: As in ``laplace``.
        unit: As in ``laplace``; a user is one row.
        budget: As in ``laplace``.
        label: As in ``laplace``.
        stream: As in ``laplace``.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> released = sum([30, 41, 250], bounds=(0, 100), epsilon=1, stream=UnsafeSeededStream(0, "t"))
    >>> round(released.value, 3), released.event
    (179.222, Laplace(scale=1.0, replace_distance=1.0))
    """
    terms = agreed("sum", adjacency, unit, budget, label, stream)
    asked = amount(epsilon, delta, rho)
    rows, dimensions = _rows(values, bounds)
    ends = intervals("bounds", bounds, rows.shape[1])
    columns = columns_for(*ends, asked, terms.adjacency)
    event = columns.event(asked, terms.adjacency)
    grant = terms.charge(event, asked.delta)
    sums = columns.noisy_sums(rows, np.zeros(rows.shape[1]), event, grant.stream)
    return grant.release(like_columns(values, dimensions)(sums))


def mean(
    values: Any,
    *,
    bounds: Sequence[Any],
    count: int | None = None,
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

    Guarantee:
        As for ``sum``. An entry that is missing or no number counts as the middle of the bounds.
        What is released lies within the bounds. The number of records is protected under
        ``"add-remove"`` without ``count``, and public otherwise.

    Args:
        values: As in ``sum``.
        bounds: As in ``sum``.
        count: A public number to divide by.
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
    rows, dimensions = _rows(values, bounds)
    lower, upper = intervals("bounds", bounds, rows.shape[1])
    reach = 0.5 * (upper - lower)
    number = _public_count(count, len(rows), terms.adjacency)
    columns = columns_for(-reach, reach, asked, terms.adjacency, counted=number is None)
    event = columns.event(asked, terms.adjacency)
    grant = terms.charge(event, asked.delta)
    sums = columns.noisy_sums(rows, lower + reach, event, grant.stream)
    divisor = max(1.0, float(sums[-1])) if number is None else float(number)
    means = np.clip(lower + reach + sums[: len(reach)] / divisor, lower, upper)
    return grant.release(like_columns(values, dimensions)(means))


def _public_count(count: int | None, rows: int, adjacency: Adjacency) -> int | None:
    """The number to divide by, if it is public."""
    if count is not None:
        return whole("count", count)
    return None if adjacency == "add-remove" else max(rows, 1)


def _rows(values: Any, bounds: Sequence[Any]) -> tuple[NDArray[np.float64], int]:
    """The records as rows, and whether they are numbers (1) or rows (2).

    An array and a DataFrame have their shape. What a list holds is declared by the bounds, not by
    what is in it.
    """
    columns = _declared(bounds)
    if columns is not None and isinstance(values, list | tuple):
        return number_rows(values, columns), 2
    found = numbers("values", values)
    if found.ndim not in (1, 2):
        raise InvalidArgument(
            f"values must be one number per record or rows of them, got {found.ndim} dimensions"
        )
    return (found[:, None], 1) if found.ndim == 1 else (found, 2)


def _declared(bounds: Sequence[Any]) -> int | None:
    """How many columns the bounds name; None if they are two numbers."""
    try:
        shape = np.broadcast_shapes(*(np.shape(end) for end in bounds))
    except (TypeError, ValueError):  # refused with the bounds
        return None
    return shape[0] if len(shape) == 1 else None
