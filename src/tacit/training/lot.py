"""A lot: what noise is added to. It is computed in batches, of whatever size fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from tacit.training.computation import Computation
    from tacit.training.plan import Plan


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """What the session knows of the batch at hand, beside the data."""

    units: NDArray[np.int64]  # the real ones; padding follows them
    rows: NDArray[np.int64]
    weights: NDArray[np.float32]
    per_unit: int
    padded_units: int  # with padding
    replaced: tuple[int, ...] = ()  # in a repetition for verification: units that are others now
    only: int | None = None  # in such a repetition: the one unit that counts, where it does

    def rows_of(self, unit: int) -> slice:
        """Where the rows of one of the units are."""
        return slice(unit * self.per_unit, (unit + 1) * self.per_unit)

    def replacing(self, others: Mapping[int, NDArray[np.int64]]) -> Batch:
        """The same batch with other rows for some units; as many as they had."""
        changed = self.rows.copy()
        for unit, rows in others.items():
            changed[self.rows_of(unit)] = np.resize(rows, self.per_unit)
        return replace(self, rows=changed, replaced=tuple(others))

    def counting_only(self, unit: int) -> Batch:
        """The same batch, in which the rows of one unit count and the others only keep company."""
        weights = np.zeros_like(self.weights)
        weights[self.rows_of(unit)] = self.weights[self.rows_of(unit)]
        return replace(self, weights=weights, only=unit)

    def alone(self, unit: int) -> Batch:
        """One unit without its company: a batch of it and of a copy that counts for nothing."""
        rows, weights = self.rows[self.rows_of(unit)], self.weights[self.rows_of(unit)]
        return replace(
            self,
            units=self.units[unit : unit + 1],
            rows=np.concatenate([rows, rows]),
            weights=np.concatenate([weights, np.zeros_like(weights)]),
            padded_units=2,
            only=0,
        )

    @property
    def repeats(self) -> bool:
        """Whether this is a repetition of a batch, which adds nothing to the sums."""
        return bool(self.replaced) or self.only is not None

    @property
    def kept_rows(self) -> NDArray[np.int64]:
        """Where the rows of real units are that were not replaced."""
        units = np.setdiff1d(np.arange(len(self.units)), self.replaced)
        return (units[:, None] * self.per_unit + np.arange(self.per_unit)).ravel()


@final
class Lot:
    """One sampled lot; iterating over it yields its physical batches.

    ``step`` counts from 0, ``epoch`` is ``step`` in passes over the data: both serve schedulers.
    A loop that was left early (out of memory, say) may be started again: it goes on with what has
    not been passed to ``dp.backward``. How many units were drawn is secret.

    The first lot of a run begins with a rehearsal: a few records of the data set pass through the
    loop, and nothing of them is kept. Only then is the step charged, and its lot sampled.
    """

    def __init__(
        self,
        computation: Computation,
        plan: Plan,
        step: int,
        units: NDArray[np.int64],
        sample: Callable[[], NDArray[np.int64]] | None = None,
    ) -> None:
        self._computation = computation
        self._plan = plan
        self._left = units
        self._sample = sample  # if given, ``units`` rehearse, and the lot is sampled afterwards
        self.step = step

    @property
    def epoch(self) -> float:
        """How many passes over the data the steps before this lot amount to."""
        plan = self._plan
        return self.step * plan.lot_size / plan.examples

    def __iter__(self) -> Iterator[Any]:
        return self._computation.batches(self)

    @property
    def is_done(self) -> bool:
        """Whether every batch has been passed to ``dp.backward``."""
        return len(self._left) == 0 and self._sample is None

    @property
    def is_rehearsal(self) -> bool:
        """Whether the batch at hand serves a check and adds nothing: its rows are none of the lot.

        A loop that counts rows or adds up losses for its own use leaves such batches out.
        """
        return self._sample is not None or self._computation.repeats

    def _begin(self) -> None:
        """Samples the lot, after the rehearsal."""
        sample, self._sample = self._sample, None
        if sample is None:
            raise ProtocolError("the lot was sampled already; iterate over it with one loop")
        self._left = sample()

    def _take(self, count: int) -> NDArray[np.int64]:
        return self._left[:count]

    def _drop(self, count: int) -> None:
        self._left = self._left[count:]
