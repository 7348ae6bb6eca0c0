"""Tables of bounded numbers, and exact noisy sums of their columns.

A float64 sum depends on the order of its terms, and neighbouring sums can lie further apart than
one clipped row (Casacuberta et al. 2022). Here each entry is first clipped and brought to a whole
number, by itself and so by public rules, and those are added up without rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from tacit._validation import whole
from tacit.accounting.events import Laplace
from tacit.errors import InvalidArgument
from tacit.mechanisms._records import (
    columns_named,
    interval,
    intervals,
    like_columns,
    number_rows,
    numbers,
)
from tacit.mechanisms.release import UP, gaussian_event, laplace_event
from tacit.randomness import rounded_gaussian, rounded_laplace

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Gaussian
    from tacit.mechanisms.release import Amount, Grant, ReleaseTerms
    from tacit.randomness import Stream

    Reals = NDArray[np.float64]
    Integers = NDArray[np.int64]

Bounds: TypeAlias = Sequence[Any] | Mapping[Any, Any]

_BLOCK = 1 << 16  # rows at a time
_FINE = 32  # an entry is at most 2³², so that the sums of a block fit int64
_WIDEST = 40  # the noise is at most 2⁴⁰
_COARSEST = 8


@final
@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Records as rows of numbers, with the public bounds of each column.

    ``form`` makes one number per column into what suits the records.
    """

    rows: Reals
    lower: Reals
    upper: Reals
    form: Callable[[Reals], Any]


def table(values: Any, bounds: Bounds) -> Table:
    """The records as rows.

    An array and a frame have their shape. What a list holds is declared by the bounds, not by what
    is in it. Bounds by name choose columns of a frame, or of a mapping of columns.
    """
    if isinstance(bounds, Mapping):
        ends = np.asarray([interval("bounds", pair) for pair in bounds.values()]).reshape(-1, 2)
        columns = [numbers("values", one) for one in columns_named("bounds", values, bounds)]
        if any(one.shape != (len(columns[0]),) for one in columns):
            raise InvalidArgument("values must have columns of one length, one number per record")
        form = like_columns(values, 2, list(bounds))
        return Table(np.column_stack(columns), ends[:, 0], ends[:, 1], form)
    declared = _declared(bounds)
    if declared is not None and isinstance(values, list | tuple):
        rows, dimensions = number_rows(values, declared), 2
    else:
        found = numbers("values", values)
        if found.ndim not in (1, 2):
            raise InvalidArgument(
                f"values must be one number per record or rows of them, got {found.ndim} dimensions"
            )
        rows, dimensions = (found[:, None], 1) if found.ndim == 1 else (found, 2)
    return Table(
        rows, *intervals("bounds", bounds, rows.shape[1]), like_columns(values, dimensions)
    )


def _declared(bounds: Sequence[Any]) -> int | None:
    """How many columns the bounds name; None if they are two numbers."""
    try:
        shape = np.broadcast_shapes(*(np.shape(end) for end in bounds))
    except (TypeError, ValueError):  # refused with the bounds
        return None
    return shape[0] if len(shape) == 1 else None


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """Public bounds of the columns of rows, and how finely their entries are distinguished.

    Each column is measured in the most that a row adds to it, and its entries are whole numbers of
    2^-bits of that, so that all columns need the same noise: of d columns a row moves the sums by d
    in L1 and √d in L2 at most. ``counted`` adds a column that holds 1 for every row.

    Replacing a row moves each column by its whole width at most. Columns that are functions of one
    another do not do so at once: ``joint`` is then how far, in L1 and L2, real rows move all of
    them, each measured in the most that a row adds.
    """

    lower: Reals
    upper: Reals
    counted: bool
    bits: int
    joint: tuple[float, float] | None = None

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
        step = 2.0**-self.bits
        first, last = self.ends
        widths = np.maximum(last - first, 1.0) * step
        if asked.pure:
            assert asked.epsilon is not None
            moved, shared = float(widths.sum()), float(self.size)
        else:
            moved, shared = math.sqrt(float((widths**2).sum())), math.sqrt(self.size)
        if self.joint is not None:  # a whole number lies within a step of the real one
            moved = min(moved, self.joint[0 if asked.pure else 1] + 2.0 * step * shared)
        apart = moved if self.size == 1 else min(moved / shared * UP, 2.0)
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
        return np.asarray((totals + noise).astype(np.float64) * units)

    def _totals(self, rows: Reals, centre: Reals) -> NDArray[np.object_]:
        """As Python's integers: a sum that wraps around would move by far more than a row."""
        unit, ends = 2.0**self.bits / self.most, self.ends
        nothing = np.clip(0.0, self.lower, self.upper)
        totals = np.zeros(self.size, dtype=np.object_)
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
    lower: Reals,
    upper: Reals,
    asked: Amount,
    adjacency: Adjacency,
    *,
    counted: bool = False,
    joint: tuple[float, float] | None = None,
) -> Columns:
    """Columns as fine as the noise allows: at most 2⁴⁰ of its steps."""
    coarse = Columns(lower, upper, counted, _COARSEST, joint)
    spread = 2.0 * _spread(coarse.event(asked, adjacency), coarse.size)
    bits = min(_FINE, _WIDEST - math.frexp(spread)[1])
    if bits < _COARSEST:
        raise InvalidArgument(
            f"epsilon (or rho) must be larger: noise of {spread:.3g} times the most that a row "
            "adds drowns everything"
        )
    return Columns(lower, upper, counted, bits, joint)


def _spread(event: Laplace | Gaussian, size: int) -> float:
    """The noise's scale, in the most that a row adds to a column."""
    if isinstance(event, Laplace):
        return event.scale * size
    return event.sigma * math.sqrt(size)


# ---- means of entries about the middle of their bounds


@final
@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked of means: the public number to divide by, if any, and whom to leave out."""

    count: int | None
    skip_missing: bool
    amount: Amount
    terms: ReleaseTerms

    def number(self, rows: int) -> int | None:
        """The number to divide by, if it is public; that of present entries never is."""
        if self.count is not None:
            return whole("count", self.count)
        private = self.skip_missing or self.terms.adjacency == "add-remove"
        return None if private else max(rows, 1)


def centred_means(
    features: Sequence[Reals], reaches: Sequence[Reals], joint: tuple[float, float], asking: Asking
) -> tuple[Grant, list[Reals]]:
    """Charges and draws the means of features of each entry, all by one event.

    A feature is a matrix of the shape of the rows, within ±reach, and NaN where the entry is
    missing, which adds nothing. The number to divide by, unless it is public, is a column more: one
    for all rows, or, where missing entries are skipped, one for the entries of each column.

    Args:
        features: One or more functions of the entries.
        reaches: For each feature, the most that an entry of each column adds.
        joint: How far replacing a row moves all features together, in L1 and L2, each measured in
            its reach. It must also cover an entry that is replaced by a missing one; its number is
            then 1 less.
        asking: What is asked.
    """
    rows, size = np.hstack(features), len(reaches[0])
    upper = np.concatenate(reaches)
    lower = -upper
    number = asking.number(len(rows))
    own = number is None and asking.skip_missing
    if own:
        rows = np.hstack([rows, ~np.isnan(features[0])])
        lower, upper = np.append(lower, np.zeros(size)), np.append(upper, np.ones(size))
    adjacency, asked = asking.terms.adjacency, asking.amount
    counted = number is None and not own
    columns = columns_for(lower, upper, asked, adjacency, counted=counted, joint=joint)
    event = columns.event(asked, adjacency)
    grant = asking.terms.charge(event, asked.delta)
    sums = columns.noisy_sums(rows, np.zeros(len(lower)), event, grant.stream)
    divisor = np.maximum(1.0, sums[-size:] if own else sums[-1]) if number is None else number
    return grant, [
        np.clip(sums[size * place : size * (place + 1)] / divisor, -reach, reach)
        for place, reach in enumerate(reaches)
    ]
