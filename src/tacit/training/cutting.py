"""Cutting a lot into physical batches, and a batch with some of its units replaced."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tacit.training.loading import shapes
from tacit.training.lot import Batch
from tacit.training.verification import (
    WATCHED_UNITS,
    chosen_rows,
    copied,
    row_shapes,
    spliced,
    twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tacit.training.batching import BatchSizer
    from tacit.training.loading import Loader
    from tacit.training.lot import Lot
    from tacit.training.units import Units


@final
class Cutter:
    """Makes batches of units: as many as fit, padded to few shapes where code is compiled."""

    def __init__(self, units: Units, sizer: BatchSizer, examples: int, *, compiled: bool) -> None:
        self._units = units
        self._sizer = sizer
        self._examples = examples
        self._compiled = compiled

    def size(self, lot: Lot, *, watched: bool) -> int:
        """The most units of the next batch; few, while batches are watched."""
        most = self._sizer.units(self._width(lot))
        return min(most, WATCHED_UNITS) if watched else most

    def cut(self, lot: Lot, *, watched: bool) -> list[Batch]:
        """The rest of ``lot`` in physical batches of the present size; a watched one by itself."""
        size = self.size(lot, watched=watched)
        if watched:
            units = lot._take(size)
            return [self._made(units, len(units))]
        width, left = self._width(lot), lot._take(sys.maxsize)
        parts = [left[at : at + size] for at in range(0, len(left), size)]
        return [self._made(part, self._sizer.padded_to(len(part), width)) for part in parts]

    def probes(
        self, batch: Batch, data: Any, loader: Loader, *, strangers: bool
    ) -> Iterator[tuple[Batch, Any]]:
        """The batch with its last unit replaced, and with all but its first; one of them alone.

        A batch that is padded to its longest row may change shape with one of its rows, and random
        numbers with it: then units of the batch itself stand in, of which one choice always fits.
        Without ``strangers`` they do so in any case.
        """
        units, last = batch.units, len(batch.units) - 1
        one = [{last: units[0]}, {0: units[last]}]
        rest = range(1, len(units))
        most = [{at: units[at + 1 if at < last else 1] for at in rest}]
        if strangers:
            others = (units + max(1, self._examples // 2)) % self._examples
            one.insert(0, {last: others[last]})
            most.insert(0, {at: others[at] for at in rest})
        for choices in (one, most):
            yield self._probe(batch, data, choices, loader)
        unit, alone = self._alone(batch, data, loader)
        if alone is not None:
            yield batch.counting_only(unit), copied(data)
            yield batch.alone(unit), alone

    def _alone(self, batch: Batch, data: Any, loader: Loader) -> tuple[int, Any]:
        """A unit and the data of its rows alone: shorter ones than in its batch, if it has any.

        A data set that draws random numbers would give other rows: then the batch's own serve, if
        they can be told apart, at the batch's length.
        """
        rows, two = len(batch.rows), 2 * batch.per_unit
        unit, alone = 0, None
        for unit in range(len(batch.units)):
            alone = next(loader.batches([batch.alone(unit).rows]))
            if not twins(alone, two):
                where = np.resize(np.arange(batch.per_unit), two)
                return 0, chosen_rows(data, where, rows)
            if row_shapes(alone, two) != row_shapes(data, rows):
                break
        return unit, alone

    def _probe(
        self, batch: Batch, data: Any, choices: Sequence[Mapping[int, int]], loader: Loader
    ) -> tuple[Batch, Any]:
        probe, loaded = batch, data
        for choice in choices:
            rows = {
                at: self._units.rows(np.array([unit]), widest=False).rows
                for at, unit in choice.items()
            }
            probe = batch.replacing(rows)
            loaded = next(loader.batches([probe.rows]))
            if shapes(loaded) == shapes(data):
                break
        return probe, spliced(data, loaded, probe)

    def _width(self, lot: Lot) -> int:
        return self._units.width(lot._take(sys.maxsize), widest=self._compiled)

    def _made(self, units: NDArray[np.int64], padded: int) -> Batch:
        filled = units
        if padded > len(units):
            filled = np.concatenate([units, np.repeat(units[:1], padded - len(units))])
        chosen = self._units.rows(filled, widest=self._compiled)
        chosen.weights[len(units) * chosen.per_unit :] = 0.0
        return Batch(units, chosen.rows, chosen.weights, chosen.per_unit, padded)
