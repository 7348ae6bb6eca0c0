"""A lot: what noise is added to. It is computed in batches, of whatever size fits.

A batch is yielded to the caller's loop, which runs the model on it; it is recorded, verified,
clipped and added up.
"""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import CheckpointError

from tacit.errors import InvalidArgument, ProtocolError, UnsupportedModel
from tacit.training.batches import copied, lies_end_to_end
from tacit.training.capture import WARM_UP, HostRead, Inputs, host_randomness
from tacit.training.clipping.engine import Rehearsed
from tacit.training.loaders import leaves_of, shapes
from tacit.training.noise import entries_of, rounded_towards_zero
from tacit.training.verification import random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor
    from torch.autograd.graph import Node

    from tacit.training.batches import Batch, Cutter
    from tacit.training.capture import BatchRecordings, Losses, Shape
    from tacit.training.clipping.engine import Engine
    from tacit.training.clipping.sums import BatchSums, Sink
    from tacit.training.distributed.sharded import Sharded
    from tacit.training.guards import Guard
    from tacit.training.noise import ClipState
    from tacit.training.performance import Precision
    from tacit.training.plan import Plan
    from tacit.training.verification import Chance, Verifier

_REPLAY_TOLERANCE = 2**-7  # of a replay's sums beside those that were computed
_MOST_TRIES = 3  # of a batch of one unit that a loop leaves without backward
_MOST_LOTS_WITHOUT_GRADIENTS = 4  # of some weight, after which no recording is waited for
_NOT_KNOWN = "a weight is served by the fallback, or its uses overlap (see the table)"


@final
class Draw:
    """The units of one lot that are still to be added to its sums.

    With ``sample``, the ``units`` only rehearse, and the lot is sampled afterwards. How many units
    were drawn is secret.
    """

    def __init__(
        self,
        step: int,
        units: NDArray[np.int64],
        sample: Callable[[], NDArray[np.int64]] | None = None,
    ) -> None:
        self.step = step
        self.left = units
        self.awaits = False  # other ranks go on with batches, and need this one's company
        self._sample = sample

    @property
    def rehearses(self) -> bool:
        """Whether nothing of the units is kept: the lot is yet to be sampled."""
        return self._sample is not None

    @property
    def is_done(self) -> bool:
        """Whether every unit of the lot has been added."""
        return self._sample is None and not self.awaits and len(self.left) == 0

    def sample(self) -> None:
        """Samples the lot, after the rehearsal."""
        sample, self._sample = self._sample, None
        if sample is None:
            raise ProtocolError("the lot was sampled already; iterate over it with one loop")
        self.left = sample()

    def drop(self, count: int) -> None:
        """Takes the first ``count`` units off: they have been added."""
        self.left = self.left[count:]


@final
class Lot:
    """One sampled lot; iterating over it yields its physical batches.

    ``step`` counts from 0, and so does ``epoch``, in passes over the data: both serve schedulers.
    A loop that was left early (out of memory, say) may be started again: it goes on with what has
    not been passed to ``dp.backward``. How many units were drawn is secret.

    The first lot of a run begins with a rehearsal: a few records of the data set pass through the
    loop, and nothing of them is kept. Only then is the step charged, and its lot sampled.
    """

    def __init__(self, draw: Draw, plan: Plan, computation: Computation) -> None:
        self._draw = draw
        self._plan = plan
        self._computation = computation
        self.step = draw.step

    @property
    def epoch(self) -> int:
        """How many passes over the data the steps before this lot amount to, rounded down."""
        return self._plan.epochs_in(self.step)

    def __iter__(self) -> Iterator[Any]:
        return self._computation.batches(self._draw)

    @property
    def is_done(self) -> bool:
        """Whether every batch has been passed to ``dp.backward``."""
        return self._draw.is_done

    @property
    def is_rehearsal(self) -> bool:
        """Whether the current batch serves a check and adds nothing: its rows are none of the lot.

        A loop that counts rows or adds up losses for its own use leaves such batches out.
        """
        return self._draw.rehearses or self._computation.repeats


@final
class Lots:
    """The lots that are left of a plan, one after the other.

    ``len`` is how many are still to come; a progress bar such as ``tqdm(dp.lots())`` asks for it.
    """

    def __init__(self, drawn: Generator[Lot, None, None], left: Callable[[], int]) -> None:
        self._drawn, self._left = drawn, left

    def __iter__(self) -> Lots:
        return self

    def __next__(self) -> Lot:
        return next(self._drawn)

    def __len__(self) -> int:
        return self._left()

    def close(self) -> None:
        """No lot follows, as with a generator."""
        self._drawn.close()


@final
class Accumulator:
    """Adds up the clipped sums of batches. They are private: nothing has been added to them yet."""

    def __init__(self, *, same_weights: bool) -> None:
        self._same_weights = same_weights  # batches of one size have one set of row weights
        self._masks: dict[Hashable, tuple[Tensor, Tensor]] = {}
        self._room: dict[str, Tensor] = {}  # where borrowed sums are added up, lot after lot
        self.sums: dict[str, Tensor] = {}

    @property
    def same_weights(self) -> bool:
        """Whether every row of a batch counts alike, save for padding."""
        return self._same_weights

    def clear(self) -> None:
        """Starts a new lot."""
        self.sums = {}

    def taken(self, names: frozenset[str]) -> dict[str, Tensor]:
        """The sums of these parameters, which are handed over."""
        found = {name: value for name, value in self.sums.items() if name in names}
        self.sums = {name: value for name, value in self.sums.items() if name not in names}
        return found

    def add(self, result: BatchSums, *, last: bool) -> None:
        """Adds a batch to the sums of its lot, all of it or nothing; ``last``: no other follows."""
        if last and not self.sums:
            self.sums = dict(result.sums)
            return
        new = {name: value for name, value in result.sums.items() if name not in self.sums}
        if result.borrowed and new:
            new = self._copied(new)  # here memory may run out, so nothing is added before
        both = [name for name in self.sums if name in result.sums]
        if both:
            torch._foreach_add_(
                [self.sums[name] for name in both], [result.sums[name] for name in both]
            )
        self.sums.update(new)

    def _copied(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        missing = {
            name: torch.empty_like(v) for name, v in values.items() if name not in self._room
        }
        self._room.update(missing)
        room = {name: self._room[name] for name in values}
        torch._foreach_copy_(list(room.values()), list(values.values()))
        return room

    def on_device(self, batch: Batch, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Row weights and the mask of real units, made without waiting for the device."""
        key = (len(batch.units), batch.padded_units, batch.per_unit, losses.dtype)
        same_weights = self._same_weights and batch.only is None
        if same_weights and key in self._masks:
            return self._masks[key]
        weights = torch.tensor(batch.weights)
        if losses.is_cuda:
            weights = weights.pin_memory()
        weights = weights.to(losses.device, losses.dtype, non_blocking=True)
        real = torch.arange(batch.padded_units, device=losses.device) < len(batch.units)
        if same_weights:
            self._masks[key] = (weights, real)
        return weights, real


@final
class Computation:
    """Computes one lot after the other, in batches that the caller's loop runs the model on.

    ``draw`` is that of the current lot, from ``begin`` to ``finished`` or ``leave``. What it holds
    is private: nothing has been added to the sums yet.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        verifier: Verifier,
        clip: ClipState,
        cutter: Cutter,
        precision: Precision,
        device: torch.device,
        chance: Chance,
        recordings: BatchRecordings | None = None,
        advice: str = "",
        sharded: Sharded | None = None,
    ) -> None:
        self._plan, self._engine, self._verifier, self._clip = plan, engine, verifier, clip
        self._cutter, self._precision, self._device = cutter, precision, device
        self._recordings, self._sharded = recordings, sharded
        self._with_others = sharded is not None and sharded.has_others  # in every pass
        self._advice = advice  # which loss the model has, for whoever passes another
        self.chance = chance
        self._losses: Losses | None = None  # as a function, while a lot is computed by one
        self._total = Accumulator(same_weights=plan.unit == "example")
        self._entered: ExitStack | None = None  # what the current forward pass has entered
        self.draw: Draw | None = None
        self._batch: Batch | None = None  # the one that waits for dp.backward()
        self._tried: Batch | None = None  # the one that is being loaded or computed
        self._watched = False  # whether its pass is compared: a check may be asked for meanwhile
        self._stuck = 0
        self._without_gradients: set[int] = set()  # steps in which some weight had none
        self._turn = 0  # of the loops over lots, the one that has begun last
        self.rehearsed: Rehearsed | None = None
        self._finite: list[Tensor] = []  # of each unit that rehearsed: is its gradient?
        self.repeats = False  # whether the batch that was yielded last repeats another
        self.stays = False  # whether the lot's sums lie where those of other lots do

    # ---- a lot

    def begin(self, draw: Draw) -> None:
        """Takes up the lot of these units."""
        self.draw = draw
        self._total.clear()
        self._batch = self._tried = None
        self._finite, self.repeats, self.stays = [], False, True
        self._clip.begin()
        self._cutter.begin()
        if self._sharded is not None:
            self._sharded.begin()
        draw.awaits = self._with_others

    def stop(self) -> None:
        """Ends the current forward pass, if there is one."""
        self._engine.stop()
        if self._entered is not None:
            entered, self._entered = self._entered, None
            entered.close()

    def _abandon_pass(self) -> None:
        """Ends the current forward pass, of which nothing is kept."""
        self.stop()
        self._engine.recorder.clear()

    @property
    def sums(self) -> dict[str, Tensor]:
        """The sums of the current lot so far."""
        return self._total.sums

    def forget_recordings(self) -> None:
        """Lets go of recordings: weights may lie elsewhere from now on."""
        if self._recordings is not None:
            self._recordings.forget()

    @property
    def records(self) -> bool:
        """Whether batches are to be recorded."""
        return self._recordings is not None

    def explain(self) -> str:
        """How lots are cut where lengths are known, and whether batches are replayed, in lines."""
        replayed = "" if self._recordings is None else self._recordings.describe()
        return "\n".join(way for way in (self._cutter.explain(), replayed) if way)

    def finished(self) -> dict[str, Tensor]:
        """Hands over the sums of the lot, which is over."""
        sums = self._total.sums
        self.draw = None
        self._total.clear()
        return sums

    def leave(self) -> None:
        """Forgets the current lot."""
        self._abandon_pass()
        self.draw = self._batch = self._tried = None
        self._total.clear()

    @property
    def can_shrink(self) -> bool:
        """Whether the batch that was left, out of memory, can be done again in halves."""
        several = self._tried is not None and self._tried.padded_units > 1  # padding takes memory
        return several and self._sharded is None  # other ranks are in the middle of the pass

    # ---- its batches

    def batches(self, draw: Draw) -> Iterator[Any]:
        """The batches of ``draw`` that are left; before them the rehearsal, if it has one."""
        self.stop()
        self._after_leaving_early()
        self.chance.begin()
        self._turn += 1
        turn = self._turn
        if draw.rehearses:
            yield from self._rehearsal(draw, turn)
        yield from self._batches(draw, turn)

    def _rehearsal(self, draw: Draw, turn: int) -> Iterator[Any]:
        """Passes a few records through the loop; whatever is wrong shows before it is charged."""
        before = random_state()
        yield from self._batches(draw, turn)
        self._check_turn(turn)
        set_random_state(before)
        finite, self._finite = self._finite, []
        if finite and not bool(torch.cat(finite).any()):
            raise InvalidArgument(
                "dataset must have finite losses: those of all records that were tried, or their "
                "gradients, are NaN or infinite, and such records add nothing; look for missing "
                "values, for inputs out of range, and at the model's weights. Nothing was charged"
            )
        draw.sample()

    def _check_turn(self, turn: int) -> None:
        """Of several loops over a lot, only the last one may go on: no batch counts twice."""
        if turn != self._turn:
            raise ProtocolError(
                "another loop over the lot has begun since; iterate over a lot with one loop at a "
                "time"
            )

    def _check_current(self, draw: Draw) -> None:
        if draw is not self.draw:
            raise ProtocolError(f"lot {draw.step} is over; iterate over the current lot")

    def _batches(self, draw: Draw, turn: int) -> Iterator[Any]:
        """The batches of ``draw`` that are left; one that is watched is repeated as a probe."""
        verifier, cutter = self._verifier, self._cutter
        while len(draw.left):
            watched = verifier.watches
            draw.left = (cutter.spread if watched else cutter.ordered)(draw.left)
            batches = cutter.cut(draw.left, watched=watched)
            before = random_state() if watched else None
            resident = cutter.resident is not None
            loads = iter(()) if resident else cutter.loaded(batches)
            for at, batch in enumerate(batches):
                size = cutter.size(draw.left, watched=verifier.watches)
                if at and (verifier.watches or size != batch.cut_to):
                    break  # what is left is cut again
                self._check_turn(turn)
                self._tried = batch
                data = None
                if not resident:
                    data = next(loads)
                    self.chance.begin()
                if self._replayed(draw, batch, data):
                    continue
                data = next(cutter.loaded([batch])) if resident else data
                kept = copied(data) if verifier.watches else None
                yield from self._handed_out(draw, batch, data)
                self._check_turn(turn)
                if verifier.wants_probe:
                    yield from self._probed(draw, turn, batch, kept, before)
        if self._with_others:
            yield from self._keeping_company(draw)

    def _probed(self, draw: Draw, turn: int, batch: Batch, data: Any, before: Any) -> Iterator[Any]:
        """Repeats a watched batch with some of its units replaced: it counts if they agree.

        A repetition draws the random numbers that the batch drew, from the state ``before`` it.
        """
        after = random_state()
        set_random_state(before)
        for probe, changed in self._cutter.probes(batch, data, strangers=draw.rehearses):
            self._tried = probe
            loaded = next(self._cutter.loaded([probe])) if changed is None else changed
            yield from self._handed_out(draw, probe, loaded)
            self._check_turn(turn)
        set_random_state(after)
        self._tried = batch
        self._count_in(*self._verifier.passed())
        self._tried = None

    def _keeping_company(self, draw: Draw) -> Iterator[Any]:
        """Goes through the passes that other ranks still have, with a batch that counts nothing.

        Weights are gathered from all ranks in every pass.
        """
        while self._meet_others(batch=False):
            company = self._cutter.company()
            self._tried = company
            yield from self._handed_out(draw, company, next(self._cutter.loaded([company])))
            self._tried = None
        draw.awaits = draw.rehearses

    def _meet_others(self, *, batch: bool) -> bool:
        """Meets the other ranks before a pass; the sums that are there are added up into pieces."""
        assert self._sharded is not None
        return self._sharded.meet(batch=batch, sums=self._total.taken(self._sharded.names))

    # ---- recordings of batches, where the losses are known as a function

    def by_function(self, losses: Losses | None) -> None:
        """Computes lots by a function of losses from now on, or by the caller's loop again.

        The function is recorded where possible.
        """
        self._losses = losses
        if losses is not None and self._recordings is not None:
            self._recordings.begin(losses.of)

    def _replayed(self, draw: Draw, batch: Batch, data: Any) -> bool:
        """Computes a batch from a recording, if there is one or it is time for one."""
        losses = self._losses
        if losses is None or self._recordings is None or self._verifier.watches:
            return False
        shape = self._shape_of(batch, data)
        if shape is None:
            return False
        if self._recordings.is_time(shape):
            self._record_shape(shape, batch, data, losses)
        if shape.recorded is None:
            return False
        self._check_current(draw)
        stays = self.stays
        shape.inputs.feed(batch, data)
        shape.recorded.replay()
        if losses.seen is not None:
            losses.seen(shape.recorded.losses[batch.real_rows].clone())
        self._count_in(batch, shape.recorded.sums)
        self._tried, self.stays = None, stays
        return True

    def _shape_of(self, batch: Batch, data: Any) -> Shape | None:
        """What is known of batches of this shape; None where none is recorded."""
        recordings = self._recordings
        if recordings is None or recordings.why_not or not self._cutter.sizer.is_settled:
            return None
        loader, size = self._cutter.resident, len(batch.rows)
        if loader is not None:
            kind: Hashable = loader.is_whole(batch.rows)
        else:
            leaves = leaves_of(data)
            if not all(map(self._is_here, leaves)):
                recordings.give_up("a batch holds something beside tensors of the device")
                return None
            kind = (shapes(data), str(tree_flatten(data)[1]))
            size = sum(one.numel() for one in leaves)
        return recordings.shape((kind, len(batch.rows), batch.per_unit), size)

    def _is_here(self, leaf: object) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.device == self._device

    def _record_shape(self, shape: Shape, batch: Batch, data: Any, losses: Losses) -> None:
        """Records batches of a shape; if memory runs out, nothing has been added."""
        assert self._recordings is not None
        loader = self._cutter.resident
        sample = data if loader is None else next(self._cutter.loaded([batch]))
        if not self._engine.knows(self._signature(batch, sample)):
            self._recordings.give_up(_NOT_KNOWN)
            return
        shape.inputs = Inputs(
            batch, sample, self._device, loader, same_weights=self._total.same_weights
        )
        shape.inputs.feed(batch, sample)  # what is recorded is a batch like others

        def work() -> tuple[Tensor, BatchSums]:
            own = shape.inputs.data()
            self._begin_pass(batch, own)
            try:
                values = losses.of(own)
                _check_losses(values, len(batch.rows), self._advice)
                self._engine.stop()
                result = self._clipped(batch, values, shape.inputs.weights(values))
            finally:
                self._abandon_pass()
            return values.detach(), replace(result, borrowed=True)

        before = random_state()
        expected = copied(work()[1].sums)  # first: a recording keeps its memory
        set_random_state(before)
        self._recordings.record(shape, work, self._engine.known(self._signature(batch, sample)))
        self._recover()
        self._check_recording(shape, expected, before)

    def _check_recording(self, shape: Shape, expected: dict[str, Tensor], before: Any) -> None:
        """Lets go of recordings unless a replay gives the sums that were computed without it.

        Both draw the same random numbers. Nothing is counted, and nobody is shown any of it.
        """
        assert self._recordings is not None
        if shape.recorded is None:
            return
        set_random_state(before)
        shape.recorded.replay()
        set_random_state(before)
        if not _agree(shape.recorded.sums.sums, expected, self._clip.sensitivity):
            shape.recorded = None
            self._recordings.give_up("a replay gave other sums than the loop itself")

    def run(self, data: Any, backward: Callable[[Tensor], None]) -> None:
        """Computes the batch that was yielded last by the function of losses."""
        losses, batch = self._losses, self._batch
        assert losses is not None
        assert batch is not None
        shape = None if self._verifier.watches else self._shape_of(batch, data)
        if shape is not None and shape.runs == WARM_UP - 1:
            values = self._watched_run(losses, batch, data, backward)
        else:
            values = losses.of(data)
            backward(values)
        if shape is not None and not self._awaits_gradients(batch):
            shape.runs += 1
        if losses.seen is not None and not (batch.repeats or self._rehearses):
            losses.seen(values.detach()[batch.real_rows])

    def _awaits_gradients(self, batch: Batch) -> bool:
        """Whether no loss has shown yet where rows lie in some result: each batch looks for it.

        An adapter begins with a matrix of zeros, behind which nothing has a gradient in the first
        lot. What is looked for is read back from the device, and cannot be recorded.
        """
        structure, recordings = self._engine.structure, self._recordings
        assert recordings is not None
        if len(batch.rows) < 2 or structure is None or structure.settled:
            return False
        if self.draw is not None:
            self._without_gradients.add(self.draw.step)
        if len(self._without_gradients) > _MOST_LOTS_WITHOUT_GRADIENTS:
            recordings.give_up("no loss reaches some weight that the model uses")
        return True

    @property
    def _rehearses(self) -> bool:
        return self.draw is not None and self.draw.rehearses

    def _watched_run(
        self, losses: Losses, batch: Batch, data: Any, backward: Callable[[Tensor], None]
    ) -> Tensor:
        """The last run before a recording.

        Host reads and the host's random numbers forbid one, and so does whatever else is another
        after a run: to record takes runs that do not count.
        """
        recordings = self._recordings
        assert recordings is not None
        kept, before, changes = copied(data), host_randomness(), recordings.changes
        try:
            with recordings.without_host_reads():
                values = losses.of(data)
                backward(values)
        except HostRead as read:
            why = f"the model or the loss {read.what} ({read})"
            known = self._engine.knows(self._signature(batch, kept))  # else the fallback does
            recordings.give_up(why if known else _NOT_KNOWN)
            self._abandon_pass()
            self._recover()
            self._batch = self._tried = batch
            self._begin_pass(batch, kept)
            values = losses.of(kept)
            backward(values)
        if host_randomness() != before:
            recordings.give_up("the model or the loss draws random numbers on the host")
        elif recordings.changes != changes:
            recordings.give_up("the model or the loss changes a tensor that it goes by")
        return values

    def _recover(self) -> None:
        """Lets go of gathered weights after a recording, or a pass that was left in its middle."""
        if self._sharded is not None:
            self._sharded.recover()

    def _handed_out(self, draw: Draw, batch: Batch, data: Any) -> Iterator[Any]:
        """Yields one batch and records the forward pass that the caller runs on it."""
        self._check_current(draw)
        self._cutter.sizer.before()
        if self._with_others and not batch.is_company:
            self._meet_others(batch=True)
        self._batch, self.repeats = batch, batch.repeats
        self._begin_pass(batch, data)
        try:
            yield data
        finally:
            self.stop()
        if self._batch is not None:
            raise ProtocolError("a batch of the lot was not passed to dp.backward()")

    def _begin_pass(self, batch: Batch, data: Any) -> None:
        """Records what is computed until ``stop`` as the forward pass of ``batch``."""
        rows, watched = len(batch.rows), self._verifier.watches
        self._watched = watched
        signature = None if watched else self._signature(batch, data)
        may_run_compiled = self._engine.begin(
            rows, batch.per_unit, signature, end_to_end=lies_end_to_end(data, rows)
        )
        self._entered = ExitStack()
        if self._sharded is not None:
            self._entered.enter_context(self._sharded.unrecorded(self._engine.recorder))
        if not may_run_compiled and "torch._dynamo" in sys.modules:
            # Compiled code needs its taps beforehand: a first batch of its shape shows them.
            self._entered.enter_context(torch.compiler.set_stance("force_eager"))
        if self._precision != "single":
            dtype = getattr(torch, self._precision)
            self._entered.enter_context(torch.autocast(self._device.type, dtype))
        if watched:
            self._entered.enter_context(self._verifier.watching(batch))
        self._engine.enter()

    @staticmethod
    def _signature(batch: Batch, data: Any) -> Hashable:
        return (*shapes(data), len(batch.rows), batch.per_unit)

    def _after_leaving_early(self) -> None:
        """A loop that starts again, with a batch left over, goes on with smaller batches."""
        if self._verifier.watches:
            self._verifier.arm()
        tried, self._tried, self._batch = self._tried, None, None
        if tried is None:
            return
        self.forget_recordings()  # of batches that were larger: they hold memory
        self._engine.recorder.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if not self._cutter.sizer.shrink(tried):
            self._stuck += 1
        if self._stuck > _MOST_TRIES:
            raise ProtocolError(
                "a batch of one unit was left again and again without dp.backward(); if memory "
                "ran out, it is too small for this model"
            )

    # ---- its sums

    def backward(self, losses: Tensor, guard: Guard) -> None:
        """Clips the batch that was yielded last and adds it up, once its losses are there."""
        batch = self._batch
        if batch is None or self.draw is None:
            raise ProtocolError(
                "dp.backward() belongs into `for batch in lot`, once for each batch"
            )
        with torch._C.DisableTorchFunction():  # to the recorder every look at a tensor is a call
            _check_losses(losses, len(batch.rows), self._advice)
        if self._watched:
            _check_graph(losses)
        self._engine.stop()
        guard.check_buffers()
        guard.check_parameters()
        result = self._clipped(batch, losses, self._total.on_device(batch, losses))
        if batch.is_company:
            self._batch = self._tried = None
            return
        if self._watched:
            self._verify(batch, losses, result)
        else:
            self._count_in(batch, result)
        self._batch = self._tried = None
        self._stuck = 0
        if not batch.repeats:
            self._cutter.sizer.after(batch)

    def _clipped(self, batch: Batch, losses: Tensor, given: tuple[Tensor, Tensor]) -> BatchSums:
        """The batch's clipped sum; weights that are in pieces are gathered meanwhile."""
        if self._sharded is None:
            return self._summed(losses, *given)
        streams = self._counts_at_once(batch)
        with self._sharded.finishing(self._engine.needs_weights, streams=streams) as sink:
            return self._summed(losses, *given, sink)

    def _counts_at_once(self, batch: Batch) -> bool:
        """Whether a batch's sums are sent as they are: no check, rounding or compiler waits."""
        waits = batch.is_company or self._watched or self._rehearses
        return self._with_others and not (
            waits or self._plan.noise == "exact" or self._engine.compiles
        )

    def _summed(
        self, losses: Tensor, weights: Tensor, real: Tensor, sink: Sink | None = None
    ) -> BatchSums:
        """The batch's clipped sum. Autocast is for the forward pass: it would round the sums."""
        kind = losses.device.type
        casting = torch.is_autocast_enabled(kind)
        try:
            with torch.autocast(kind, enabled=False) if casting else nullcontext():
                return self._engine.finish(losses, weights, self._clip.bounds, real, sink)
        except CheckpointError:  # torch's, of many lines
            raise UnsupportedModel(
                "a layer under gradient checkpointing computes other tensors the second time than "
                "the first, as those of DoRA do: leave gradient checkpointing out "
                "(gradient_checkpointing=False), or take another layer (LoRA without use_dora)"
            ) from None

    def _verify(self, batch: Batch, losses: Tensor, result: BatchSums) -> None:
        """A watched batch counts once its repetition has agreed with it."""
        verifier, clip, draw = self._verifier, self._clip.sensitivity, self.draw
        if not batch.repeats:
            structure = self._engine.structure
            if draw is not None and draw.rehearses and structure is not None:
                verifier.check_reached(result)
                self.rehearsed = Rehearsed(
                    len(batch.units), self._engine.reports, structure.entangled
                )
            always_one = not self._cutter.sizer.may_hold_two(self._plan.views)
            verifier.first(batch, losses, result, structure, clip, always_one=always_one)
            if not verifier.wants_probe:
                self._count_in(batch, result)
        else:
            verifier.compare(batch, losses, result, clip)

    def _count_in(self, batch: Batch, result: BatchSums) -> None:
        """Adds a batch to the sums and takes it off the lot, or neither if memory runs out."""
        draw, units = self.draw, len(batch.units)
        assert draw is not None
        self.stays = False
        if draw.rehearses:
            self._finite.append(result.squared_norms.isfinite().all(0))
            draw.drop(units)
            return
        if self._plan.noise == "exact":
            clip, entries = self._clip.sensitivity, entries_of(self._engine.parameters)
            result = rounded_towards_zero(result, clip, entries)
        centred = self._clip.counted(result, units)
        left = draw.left
        draw.drop(units)  # first: whoever interrupts the rest may lose a batch, not add it twice
        try:
            self._total.add(result, last=len(left) == units)
        except Exception:
            draw.left = left
            raise
        self._clip.keep(centred)


def _agree(replayed: Mapping[str, Tensor], computed: Mapping[str, Tensor], clip: float) -> bool:
    """Whether two sums of a batch are the same, but for the order in which a device adds up."""
    if replayed.keys() != computed.keys():
        return False
    apart = sum(float((replayed[n].double() - computed[n]).square().sum()) for n in computed)
    size = sum(float(one.double().square().sum()) for one in computed.values())
    return math.sqrt(apart) <= _REPLAY_TOLERANCE * (math.sqrt(size) + clip)


# ---- the losses of a batch: no message says how many rows there are, which is how many were drawn


def _check_losses(losses: Tensor, rows: int, advice: str) -> None:
    """Refuses losses of any shape but (rows,), and losses that lead to no parameter."""
    if not isinstance(losses, torch.Tensor):
        raise InvalidArgument(
            f"losses must be a tensor with one number per row, got {type(losses).__name__}"
        )
    shape = tuple(losses.shape)
    if shape != (rows,):
        raise InvalidArgument(
            f"losses must be a vector with one number per row, got {_kind(shape)}: "
            f"{_remedy(shape, rows, advice)}"
        )
    if not losses.is_floating_point():
        raise InvalidArgument(f"losses must be real numbers, got {losses.dtype}")
    if not losses.requires_grad:
        raise InvalidArgument(
            "losses do not depend on any private parameter: compute them inside `for batch in lot` "
            "with gradients enabled"
        )


def _check_graph(losses: Tensor) -> None:
    """Refuses what hides uses of parameters from the recorder, where it can be named."""
    seen: set[Node] = set()
    todo = [losses.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            raise UnsupportedModel(
                "the model uses reentrant checkpointing, which hides its parameters from the "
                "losses; pass use_reentrant=False to torch.utils.checkpoint (Hugging Face: "
                "gradient_checkpointing_enable({'use_reentrant': False}))"
            )
        seen.add(node)
        todo += [following for following, _ in node.next_functions]


def _kind(shape: tuple[int, ...]) -> str:
    if not shape:
        return "a single number"
    return f"a tensor of {len(shape)} dimensions" if len(shape) > 1 else "one of another length"


def _remedy(shape: tuple[int, ...], rows: int, advice: str) -> str:
    if shape == () and advice:
        return (
            f"model(**batch).loss is an average over the batch; use the loss of each row, {advice}"
        )
    if shape == ():
        return (
            "use reduction='none', so that every row keeps its own loss (of a Hugging Face model: "
            "tacit.losses.of(model, batch))"
        )
    if shape == (rows, 1):
        return "use losses.squeeze(1)"
    if len(shape) > 1 and shape[0] == rows:
        return "average over a row's own entries, as tacit.losses.token_mean does"
    return "return one loss for each row of the batch that the lot yielded"
