"""Exact sums of clipped rows: whole numbers, whose sensitivity no rounding can raise.

A float64 sum depends on the order of its terms, and neighbouring sums can lie further apart than
one clipped row (Casacuberta et al. 2022). Here each entry is first clipped and brought to a whole
number, by itself and so by public rules, and those are added up without rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from tacit.accounting.events import Laplace
from tacit.errors import InvalidArgument
from tacit.mechanisms._noise import UP, gaussian_event, laplace_event
from tacit.randomness import rounded_gaussian, rounded_laplace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.accounting.events import Adjacency, Gaussian
    from tacit.mechanisms._terms import Amount
    from tacit.randomness import Stream

    Reals = NDArray[np.float64]
    Integers = NDArray[np.int64]

_BLOCK = 1 << 16  # rows at a time
_FINE = 32  # an entry is at most 2³², so that 2³¹ rows fit int64
_WIDEST = 40  # the noise is at most 2⁴⁰
_COARSEST = 8


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """Public bounds of the columns of rows, and how finely their entries are told apart.

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
