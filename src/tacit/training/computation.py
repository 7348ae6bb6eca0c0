"""From a lot to its clipped sums: batches are yielded, recorded, verified, clipped and added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from tacit.errors import InvalidArgument, ProtocolError
from tacit.training import losses_check
from tacit.training.accumulation import Accumulator
from tacit.training.batching import BatchSizer
from tacit.training.cutting import Cutter
from tacit.training.explanation import Rehearsed
from tacit.training.forward import Forward
from tacit.training.grid import rounded_towards_zero
from tacit.training.noise import entries_of
from tacit.training.verification import copied, random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from tacit.training.clipping.clipped import ClippedBatch
    from tacit.training.clipping.engine import Engine
    from tacit.training.grouping import ClipState
    from tacit.training.guards import Guard
    from tacit.training.loading import Loader
    from tacit.training.lot import Batch, Lot
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.units import Units
    from tacit.training.verification import Verifier

_MOST_TRIES = 3  # of a batch of one unit that a loop leaves without backward


@final
class Computation:
    """Computes one lot after the other, in batches that the caller's loop runs the model on.

    ``lot`` is the one at hand, from ``begin`` to ``finished`` or ``leave``. What it holds is
    private: nothing has been added to the sums yet.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        verifier: Verifier,
        clip: ClipState,
        loader: Loader,
        units: Units,
        performance: Performance,
        device: torch.device,
        *,
        compiled: bool,
    ) -> None:
        self._plan, self._engine, self._verifier, self._clip = plan, engine, verifier, clip
        self._loader, self._device = loader, device
        # Integer sums are the same however they are added up; gradients are, if each is computed
        # by itself.
        rows = plan.views if plan.noise == "exact" else performance.batch
        self._sizer = BatchSizer(plan, rows, device, padded=compiled)
        self._cutter = Cutter(units, self._sizer, plan.examples, compiled=compiled)
        self._forward = Forward(engine, verifier, performance, device, compiled=compiled)
        self._total = Accumulator(engine, same_weights=plan.unit == "example")
        self.lot: Lot | None = None
        self._batch: Batch | None = None  # the one that waits for dp.backward()
        self._tried: Batch | None = None  # the one that is being loaded or computed
        self._stuck = 0
        self._turn = 0  # of the loops over lots, the one that has begun last
        self.rehearsed: Rehearsed | None = None
        self._finite: list[Tensor] = []  # of each unit that rehearsed: is its gradient?
        self.repeats = False  # whether the batch that was yielded last repeats another

    # ---- a lot

    def begin(self, lot: Lot) -> None:
        """Takes up ``lot``."""
        self.lot = lot
        self._total.clear()
        self._batch = self._tried = None
        self._finite, self.repeats = [], False
        self._clip.begin()

    def stopped(self, lot: Lot) -> bool:
        """Ends the forward pass at hand; whether every batch of ``lot`` has been added."""
        self._forward.end()
        return lot.is_done

    def finished(self) -> dict[str, Tensor]:
        """Hands over the sums of the lot, which is over."""
        sums = self._total.sums
        self.lot = None
        self._total.clear()
        return sums

    def leave(self) -> None:
        """Forgets the lot at hand."""
        self._forward.end()
        self._engine.recorder.clear()
        self.lot = self._batch = self._tried = None
        self._total.clear()

    @property
    def can_shrink(self) -> bool:
        """Whether the batch that was left, out of memory, can be done again in halves."""
        return self._tried is not None and len(self._tried.units) > 1

    # ---- its batches

    def batches(self, lot: Lot) -> Iterator[Any]:
        """The batches of ``lot`` that are left; before them the rehearsal, if it has one."""
        self._forward.end()
        self._after_leaving_early()
        self._turn += 1
        turn = self._turn
        if lot._sample is not None:
            yield from self._rehearsal(lot, turn)
        yield from self._batches(lot, turn)

    def _rehearsal(self, lot: Lot, turn: int) -> Iterator[Any]:
        """Passes a few records through the loop; whatever is wrong shows before it is charged."""
        before = random_state()
        yield from self._batches(lot, turn)
        self._check_turn(turn)
        set_random_state(before)
        finite, self._finite = self._finite, []
        if finite and not bool(torch.cat(finite).any()):
            raise InvalidArgument(
                "dataset must have finite losses: those of all records that were tried, or their "
                "gradients, are NaN or infinite, and such records add nothing; look for missing "
                "values, for inputs out of range, and at the model's weights. Nothing was charged"
            )
        lot._begin()

    def _check_turn(self, turn: int) -> None:
        """Of several loops over a lot, only the last one may go on: no batch counts twice."""
        if turn != self._turn:
            raise ProtocolError(
                "another loop over the lot has begun since; iterate over a lot with one loop at a "
                "time"
            )

    def _batches(self, lot: Lot, turn: int) -> Iterator[Any]:
        """The batches of ``lot`` that are left; one that is watched is repeated as a probe."""
        verifier, cutter = self._verifier, self._cutter
        while len(lot._left):
            size = cutter.size(lot, watched=verifier.watches)
            batches = cutter.cut(lot, watched=verifier.watches)
            before = random_state() if verifier.watches else None
            loads = self._loader.batches([batch.rows for batch in batches])
            for batch in batches:
                self._check_turn(turn)
                self._tried = batch
                data = next(loads)
                kept = copied(data) if verifier.watches else None
                yield from self._one(lot, batch, data)
                self._check_turn(turn)
                if verifier.wants_probe:
                    after = random_state()
                    set_random_state(before)
                    for probe, changed in cutter.probes(
                        batch, kept, self._loader, strangers=lot._sample is not None
                    ):
                        self._tried = probe
                        yield from self._one(lot, probe, changed)
                        self._check_turn(turn)
                    set_random_state(after)
                    self._tried = batch
                    self._count_in(*verifier.passed())
                    self._tried = None
                if cutter.size(lot, watched=verifier.watches) != size:
                    break  # what is left is cut anew

    def backward(self, losses: Tensor, guard: Guard) -> None:
        """Clips the batch that was yielded last and adds it up, once its losses are there."""
        batch = self._batch
        if batch is None or self.lot is None:
            raise ProtocolError(
                "dp.backward() belongs into `for batch in lot`, once for each batch"
            )
        losses_check.check(losses, len(batch.rows))
        if self._verifier.watches:
            losses_check.check_graph(losses)
        self._forward.stop()
        guard.check_buffers()
        guard.check_parameters()
        result = self._total.clipped(losses, batch, self._clip.bounds)
        if self._verifier.watches:
            self._verify(batch, losses, result)
        else:
            self._count_in(batch, result)
        self._batch = self._tried = None
        self._stuck = 0
        if not batch.repeats:
            self._sizer.after(len(batch.rows))

    def _one(self, lot: Lot, batch: Batch, data: Any) -> Iterator[Any]:
        """Yields one batch and records the forward pass that the caller runs on it."""
        if lot is not self.lot:
            raise ProtocolError(f"lot {lot.step} is over; iterate over the lot at hand")
        self._sizer.before()
        self._batch, self.repeats = batch, batch.repeats
        self._forward.begin(batch, data)
        try:
            yield data
        finally:
            self._forward.end()
        if self._batch is not None:
            raise ProtocolError("a batch of the lot was not passed to dp.backward()")

    def _after_leaving_early(self) -> None:
        """A loop that starts again, with a batch left over, goes on with smaller batches."""
        if self._verifier.watches:
            self._verifier.arm()
        tried, self._tried, self._batch = self._tried, None, None
        if tried is None:
            return
        self._engine.recorder.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if not self._sizer.shrink(tried.padded_units, tried.per_unit):
            self._stuck += 1
        if self._stuck > _MOST_TRIES:
            raise ProtocolError(
                "a batch of one unit was left again and again without dp.backward(); if memory "
                "ran out, it is too small for this model"
            )

    def _verify(self, batch: Batch, losses: Tensor, result: ClippedBatch) -> None:
        """A watched batch counts once its repetition has agreed with it."""
        verifier, clip, lot = self._verifier, self._clip.sensitivity, self.lot
        if not batch.repeats:
            structure = self._engine.structure
            if lot is not None and lot._sample is not None and structure is not None:
                self.rehearsed = Rehearsed(
                    len(batch.units), self._engine.reports, structure.entangled
                )
            verifier.first(batch, losses, result, structure, clip)
            if not verifier.wants_probe:
                self._count_in(batch, result)
                if self._sizer.units(self._plan.views) == 1:
                    verifier.rest()  # no batch will ever hold two units
        else:
            verifier.compare(batch, losses, result, clip)

    def _count_in(self, batch: Batch, result: ClippedBatch) -> None:
        """Adds a batch to the sums and takes it off the lot, or neither if memory runs out."""
        lot, units = self.lot, len(batch.units)
        assert lot is not None
        if lot._sample is not None:
            self._finite.append(result.squared_norms.isfinite().all(0))
            lot._drop(units)
            return
        if self._plan.noise == "exact":
            clip, entries = self._clip.sensitivity, entries_of(self._engine.parameters)
            result = rounded_towards_zero(result, clip, entries)
        centred = self._clip.counted(result, units)
        self._total.add(result, last=len(lot._take(units + 1)) == units)
        self._clip.keep(centred)
        lot._drop(units)
