"""Sums and means of bounded records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit._validation import whole
from tacit.accounting.events import Laplace
from tacit.errors import InvalidArgument
from tacit.mechanisms._records import intervals, like_columns, number_rows, numbers
from tacit.mechanisms.release import UP, agreed, amount, gaussian_event, laplace_event
from tacit.randomness import rounded_gaussian, rounded_laplace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Gaussian
    from tacit.ledger import Budget
    from tacit.mechanisms.release import Amount, Released
    from tacit.randomness import Stream

    Reals = NDArray[np.float64]
    Integers = NDArray[np.int64]


def noisy_sum(
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
    >>> known = UnsafeSeededStream(0, "t")
    >>> released = noisy_sum([30, 41, 250], bounds=(0, 100), epsilon=1, stream=known)
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


# ---- exact sums of clipped rows
#
# A float64 sum depends on the order of its terms, and neighbouring sums can lie further apart than
# one clipped row (Casacuberta et al. 2022). Here each entry is first clipped and brought to a whole
# number, by itself and so by public rules, and those are added up without rounding.


_BLOCK = 1 << 16  # rows at a time
_FINE = 32  # an entry is at most 2³², so that 2³¹ rows fit int64
_WIDEST = 40  # the noise is at most 2⁴⁰
_COARSEST = 8


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """Public bounds of the columns of rows, and how finely their entries are distinguished.

    Each column is measured in the most that a row adds to it, and its entries are whole numbers of
    2^-bits of that, so that all columns need the same noise: of d columns a row moves the sums by d
    in L1 and √d in L2 at most. ``counted`` adds a column that holds 1 for every row.
    """

    lower: Reals
    upper: Reals
    counted: bool
    bits: int

    @property
    def most(self) -> Reals:
        """The most that a row adds to each column."""
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    @property
    def size(self) -> int:
        """How many sums there are."""
        return len(self.lower) + self.counted

    @property
    def ends(self) -> tuple[Reals, Reals]:
        """The least and the largest whole number of each column, rounded inwards."""
        unit, full = 2.0**self.bits / self.most, 2.0**self.bits
        first = np.clip(np.ceil(self.lower * unit), -full, full)
        return first, np.maximum(first, np.clip(np.floor(self.upper * unit), -full, full))

    def event(self, asked: Amount, adjacency: Adjacency) -> Laplace | Gaussian:
        """Laplace noise for ε alone, Gaussian noise for (ε, δ) or ρ."""
        first, last = self.ends
        widths = np.maximum(last - first, 1.0) * 2.0**-self.bits
        if self.size == 1:
            apart = float(widths[0])
        elif asked.pure:
            apart = min(float(widths.sum()) / self.size * UP, 2.0)
        else:
            apart = min(math.sqrt(float((widths**2).sum()) / self.size) * UP, 2.0)
        if asked.pure:
            assert asked.epsilon is not None
            return laplace_event(asked.epsilon, apart, adjacency)
        return gaussian_event(asked, apart, adjacency)

    def noisy_sums(
        self, rows: Reals, centre: Reals, event: Laplace | Gaussian, stream: Stream
    ) -> Reals:
        """The sums of the rows less ``centre``, clipped, with the event's noise.

        An entry that is missing counts as the number nearest 0 within the bounds. The count, if it
        is asked for, comes last.

        Guarantee:
            Under the event's adjacencies the release is that of ``event``: a row adds a whole
            number of at most 2^bits to each sum, sums of whole numbers are exact, and a rounded
            real noise added to them is the real mechanism's output, rounded.
        """
        totals = self._totals(rows, centre)
        draw = rounded_laplace if isinstance(event, Laplace) else rounded_gaussian
        noise = draw(math.ldexp(_spread(event, self.size) * UP, self.bits), self.size, stream)
        units = np.append(self.most, 1.0)[: self.size] * 2.0**-self.bits
        return np.asarray((totals + noise) * units, dtype=np.float64)

    def _totals(self, rows: Reals, centre: Reals) -> Integers:
        unit, ends = 2.0**self.bits / self.most, self.ends
        nothing = np.clip(0.0, self.lower, self.upper)
        totals = np.zeros(self.size, dtype=np.int64)
        for start in range(0, len(rows), _BLOCK):
            with np.errstate(over="ignore"):
                block = rows[start : start + _BLOCK] - centre
            block = np.where(np.isnan(block), nothing, block)
            steps = np.rint(np.clip(block, self.lower, self.upper) * unit)
            totals[: len(self.lower)] += np.clip(steps, *ends).astype(np.int64).sum(axis=0)
        if self.counted:
            totals[-1] = len(rows) << self.bits
        return totals


def columns_for(
    lower: Reals, upper: Reals, asked: Amount, adjacency: Adjacency, *, counted: bool = False
) -> Columns:
    """Columns as fine as the noise allows: at most 2⁴⁰ of its steps."""
    coarse = Columns(lower, upper, counted, _COARSEST)
    spread = 2.0 * _spread(coarse.event(asked, adjacency), coarse.size)
    bits = min(_FINE, _WIDEST - math.frexp(spread)[1])
    if bits < _COARSEST:
        raise InvalidArgument(
            f"epsilon (or rho) must be larger: noise of {spread:.3g} times the most that a row "
            "adds drowns everything"
        )
    return Columns(lower, upper, counted, bits)


def _spread(event: Laplace | Gaussian, size: int) -> float:
    """The noise's scale, in the most that a row adds to a column."""
    if isinstance(event, Laplace):
        return event.scale * size
    return event.sigma * math.sqrt(size)
