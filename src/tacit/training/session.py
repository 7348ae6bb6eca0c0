"""Private training: one context that samples, clips, adds noise, steps and accounts by a plan."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import nn

from tacit._validation import open_probability, whole
from tacit.errors import InvalidArgument, ProtocolError
from tacit.randomness import GaussianSource, SystemStream, UnsafeSeededStream
from tacit.training import claim, losses_check
from tacit.training.accumulation import Accumulator
from tacit.training.batching import BatchSizer
from tacit.training.checkpoint import read, restore, write
from tacit.training.clipping.engine import Engine
from tacit.training.cutting import Cutter
from tacit.training.explanation import explanation
from tacit.training.forward import Forward
from tacit.training.grouping import ClipState, parameter_groups
from tacit.training.guards import (
    Guard,
    check_modules,
    check_one_process,
    private_parameters,
)
from tacit.training.loading import check_dataset, make_loader
from tacit.training.lot import Batch, Lot
from tacit.training.noise import noisy_means
from tacit.training.performance import Performance
from tacit.training.sampling import LotSampler
from tacit.training.styles import Automatic
from tacit.training.units import Units
from tacit.training.verification import (
    Verification,
    Verifier,
    copied,
    random_state,
    set_random_state,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from numpy.typing import NDArray
    from torch import Tensor
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.statement import Statement
    from tacit.training.checkpoint import Stateful
    from tacit.training.clipping.clipped import ClippedBatch
    from tacit.training.loading import Collate
    from tacit.training.plan import Plan

_MOST_TRIES = 3  # of a batch of one unit that a loop leaves without backward


def private(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    plan: Plan,
    dataset: Dataset[Any],
    budget: None = None,
    *,
    groups: Sequence[int] | NDArray[np.int64] | None = None,
    state: Mapping[str, Stateful] | None = None,
    resume: str | os.PathLike[str] | None = None,
    performance: Performance | None = None,
    collate: Collate | None = None,
    stop_after: int | None = None,
    unsafe_seed: int | None = None,
) -> Session:
    """Trains ``model`` on ``dataset`` by ``plan``: use it as a context manager.

    Args:
        model: Any module; it is neither wrapped nor changed. The lots come to its device.
        optimizer: One or several first-order optimizers; their parameters are the private ones.
        plan: What is sampled, clipped, noised and charged.
        dataset: Map-style, with as many examples as the plan says.
        budget: A budget of the ledger, which is charged before anything is released.
        groups: The user of each example, for a plan with ``unit="user"``.
        state: What else belongs into a checkpoint: schedulers, averages of the weights.
        resume: A checkpoint of ``dp.save`` to go on from.
        performance: How lots are computed; it has no influence on privacy.
        collate: Makes a batch of a list of examples; PyTorch's default if left out.
        stop_after: A number of steps, fixed now, after which training ends; the statement then
            charges only these.
        unsafe_seed: Makes sampling and noise reproducible, and so voids the guarantee: whoever
            knows the seed can take the noise off. For tests only.

    Guarantee:
        What leaves through the parameters is the plan's event, as long as the model treats rows
        independently, which is checked on the first batch and refused otherwise.

    >>> import tacit, torch
    >>> data = torch.utils.data.TensorDataset(torch.randn(100, 3), torch.randint(2, (100,)))
    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> plan = tacit.Plan(examples=100, lot_size=10, steps=5, noise_multiplier=2.0, clip=1.0)
    >>> with tacit.private(model, optimizer, plan, data) as dp:
    ...     for lot in dp.lots():
    ...         for x, y in lot:
    ...             losses = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    ...             dp.backward(losses)
    ...         dp.step()
    >>> dp.steps_taken, round(dp.spent(delta=1e-3), 3)
    (5, 0.31)
    """
    if budget is not None:
        raise InvalidArgument(f"budget must be None until there is a ledger, got {budget!r}")
    optimizers = (optimizer,) if isinstance(optimizer, torch.optim.Optimizer) else tuple(optimizer)
    return Session(
        model,
        optimizers,
        plan,
        dataset,
        groups=groups,
        state=dict(state or {}),
        resume=resume,
        performance=performance or Performance(),
        collate=collate,
        stop_after=stop_after,
        unsafe_seed=unsafe_seed,
    )


@final
class Session:
    """A private training run; made by ``tacit.private``.

    The order is enforced: a lot, its batches with one ``backward`` each, one ``step``, and again.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: tuple[Optimizer, ...],
        plan: Plan,
        dataset: Dataset[Any],
        *,
        groups: Sequence[int] | NDArray[np.int64] | None,
        state: dict[str, Stateful],
        resume: str | os.PathLike[str] | None,
        performance: Performance,
        collate: Collate | None,
        stop_after: int | None,
        unsafe_seed: int | None,
    ) -> None:
        check_dataset(dataset, plan.examples, counts_users=plan.unit == "user")
        if plan.unit == "user" and (groups is None or len(groups) != len(dataset)):  # type: ignore[arg-type]
            raise InvalidArgument(
                "groups must name the user of every example: the plan's unit is a user"
            )
        check_one_process(model)
        check_modules(model)
        self.plan, self.model, self.optimizers = plan, model, optimizers
        self.steps_taken = 0
        self._run = claim.Run(_last_step(plan, stop_after), unsafe=unsafe_seed is not None)
        self._parameters = private_parameters(model, optimizers)
        self._state = state
        self._device = next(iter(self._parameters.values())).device
        group, shares = parameter_groups(plan, self._parameters)
        self._clip = ClipState(plan, shares, self._device)
        stability = plan.clipping.stability if isinstance(plan.clipping, Automatic) else None
        on_gpu = self._device.type == "cuda"
        compiled = on_gpu if performance.compile is None else performance.compile
        self._engine = Engine(
            self._parameters,
            group,
            stability=stability,
            constants=[buffer for buffer in model.buffers() if buffer is not None],
            compiled=compiled,
        )
        self._sizer = BatchSizer(plan, performance.batch, self._device, padded=compiled)
        self._loader = make_loader(
            dataset, self._device, collate, performance.workers, performance.pin_memory
        )
        self._verifier = Verifier(model, self._parameters)
        self._forward = Forward(
            self._engine, self._verifier, performance, self._device, compiled=compiled
        )
        self._total = Accumulator(self._engine, same_weights=plan.unit == "example")
        self._guard: Guard | None = None
        self._lot: Lot | None = None
        self._batch: Batch | None = None  # the one that waits for dp.backward()
        self._tried: Batch | None = None  # the one that is being loaded or computed
        self._stuck = 0
        if resume is not None:
            self._resume(resume, stop_after)
        # A resumed run draws anew; a seed must not bring the first draws back either.
        seed = None if unsafe_seed is None else (unsafe_seed, self.steps_taken)
        self._sampler = LotSampler(plan, _stream(seed, "sampling"))
        units = Units(plan, groups, _stream(seed, "users"))
        self._cutter = Cutter(units, self._sizer, plan.examples, compiled=compiled)
        self._source = GaussianSource(self._device, _stream(seed, "noise"))

    # ---- the context

    def __enter__(self) -> Session:
        if self._guard is not None:
            raise ProtocolError("this private context is already entered; make a new one")
        self._guard = Guard(self.model, self._parameters, self.optimizers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._forward.end()
        self._engine.recorder.clear()
        guard, unfinished = self._guard, self._lot
        self._guard = self._lot = self._batch = self._tried = None
        self._total.clear()
        if guard is not None:
            guard.close()
        if kind is not None:
            return
        if unfinished is not None:
            raise ProtocolError(f"lot {unfinished.step} was left without dp.step()")
        if guard is not None:
            guard.check_parameters()

    @contextmanager
    def public(self) -> Iterator[None]:
        """Ordinary autograd and optimizer steps on public data: nothing is recorded or charged.

        What is computed here from private data is not protected.
        """
        guard = self._entered()
        self._between_lots("dp.public()")
        guard.allow(allowed=True)
        try:
            yield
        finally:
            guard.allow(allowed=False)
            for parameter in self._parameters.values():
                parameter.grad = None
            guard.note_parameters()
            guard.note_buffers()

    # ---- a step

    def lots(self) -> Iterator[Lot]:
        """The lots that are left of the plan, each a fresh sample; ends when the plan is spent."""
        while self.steps_taken < self._run.last_step:
            self._entered().check_parameters()
            if self._verifier.watches:
                check_modules(self.model)
            self._between_lots("a new lot")
            lot = Lot(self, self.steps_taken, self._sampler.draw())
            self._begin(lot)
            yield lot
            if self._lot is lot:
                raise ProtocolError(f"lot {lot.step} was left without dp.step()")

    def backward(self, losses: Tensor) -> None:
        """Takes one loss per row of the batch at hand; clips and adds up their gradients.

        Guarantee:
            No unit adds more than the plan's clip to the sum, whatever its loss is.
        """
        guard, batch = self._entered(), self._batch
        if batch is None or self._lot is None:
            raise ProtocolError(
                "dp.backward() belongs into `for batch in lot`, once for each batch"
            )
        losses_check.check(losses, len(batch.rows))
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
        if not batch.replaced:
            self._sizer.after(len(batch.rows))

    def accumulate(self, lot: Lot, losses: Callable[[Any], Tensor]) -> None:
        """Runs ``losses`` on every batch of ``lot`` and passes them to ``backward``.

        Where memory runs out the batch is done again in halves: nothing of it had been added.
        """
        while not lot.is_done:
            try:
                for batch in lot:
                    self.backward(losses(batch))
            except torch.OutOfMemoryError:
                # Halved as the loop starts again, when the traceback no longer holds activations.
                if self._tried is None or len(self._tried.units) == 1:
                    raise

    def step(self) -> None:
        """Adds the noise, hands the mean gradient to the optimizers, and lets them step.

        Guarantee:
            The step is counted before its noise is drawn. The noise is fresh, and covers every
            entry of every private parameter, whether or not the lot touched it.
        """
        guard, lot = self._entered(), self._lot
        if lot is None:
            raise ProtocolError(
                "dp.step() without a lot: each lot of dp.lots() is stepped once, and none after "
                "the plan is spent"
            )
        self._forward.end()
        if not lot.is_done:
            raise ProtocolError(
                f"lot {lot.step} has batches that were not passed to dp.backward(); iterate over "
                "the whole lot before dp.step()"
            )
        guard.check_parameters()
        self._lot = None
        self.steps_taken += 1
        means = noisy_means(
            self._parameters,
            self._total.sums,
            self._source,
            scale=self._clip.noise_scale,
            lot_size=self.plan.lot_size,
        )
        self._total.clear()
        self._clip.end(self._source)
        self._update(means, guard)

    def _update(self, means: dict[str, Tensor], guard: Guard) -> None:
        for name, parameter in self._parameters.items():
            parameter.grad = means[name]
        guard.allow(allowed=True)
        try:
            for optimizer in self.optimizers:
                optimizer.step()
        finally:
            guard.allow(allowed=False)
            for parameter in self._parameters.values():
                parameter.grad = None
            guard.note_parameters()

    # ---- what is known of the run

    def spent(self, delta: float) -> float:
        """ε of the steps taken so far, as if their number had been fixed in advance."""
        if self.steps_taken == 0:
            open_probability("delta", delta)
            return 0.0
        return claim.epsilon(self.plan, self.steps_taken, delta)

    def statement(self, delta: float) -> Statement:
        """The claim: ε of the whole plan, or of ``stop_after`` steps if fixed in advance."""
        return claim.statement(
            self.plan, delta, self.steps_taken, self._run.last_step, unsafe=self._run.unsafe
        )

    def explain(self) -> str:
        """Which rule serves each operation, how its norms are found, and with what memory."""
        return explanation(self.plan, self._engine)

    def verify(self, losses: Callable[[Any], Tensor] | None = None) -> Verification | None:
        """Replaces one example and checks that only its own, bounded, contribution changes.

        With ``losses``, a function of a batch, it does so now on a few examples, and charges and
        releases nothing. Without, the next batch of a lot is checked, as the first one always is.
        """
        if losses is None:
            self._verifier.arm()
            return self._verifier.report
        self._entered()
        self._between_lots("dp.verify(losses)")
        self._verifier.arm()
        count = min(self.plan.examples, 8)
        lot = Lot(self, self.steps_taken, np.arange(count, dtype=np.int64))
        self._begin(lot)
        try:
            self.accumulate(lot, losses)
        finally:
            self._forward.end()
            self._lot = self._batch = self._tried = None
            self._total.clear()
        return self._verifier.report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes model, optimizers, ``state``, plan and step count, between lots; no seed."""
        self._between_lots("dp.save()")
        if self._guard is not None:
            self._guard.check_parameters()
        write(
            path,
            model=self.model,
            optimizers=self.optimizers,
            state={**self._state, **self._own_state()},
            plan_json=self.plan.to_json(),
            steps_taken=self.steps_taken,
        )

    def _own_state(self) -> dict[str, Stateful]:
        return {"tacit run": self._run, **self._clip.state()}

    def _resume(self, path: str | os.PathLike[str], stop_after: int | None) -> None:
        checkpoint = read(path)
        if checkpoint.plan_json != self.plan.to_json():
            raise InvalidArgument(
                f"the checkpoint {path} belongs to another plan; resume with the plan it was "
                "started with"
            )
        run = checkpoint.state.get("tacit run")
        last = None if run is None else run.values.get("last_step")
        if stop_after is not None and last is not None and last != stop_after:
            raise InvalidArgument(
                f"stop_after={stop_after} was not fixed before the first step: the checkpoint "
                f"{path} is of a run to step {last}; leave stop_after out"
            )
        restore(
            checkpoint,
            model=self.model,
            optimizers=self.optimizers,
            state={**self._state, **self._own_state()},
        )
        self.steps_taken = checkpoint.steps_taken

    # ---- batches

    def _begin(self, lot: Lot) -> None:
        self._lot = lot
        self._total.clear()
        self._batch = self._tried = None
        self._clip.begin()

    def _batches(self, lot: Lot) -> Iterator[Any]:
        """The batches of ``lot`` that are left; one that is watched is repeated as a probe."""
        self._forward.end()
        self._after_leaving_early()
        verifier, cutter = self._verifier, self._cutter
        while not lot.is_done:
            size = cutter.size(lot, watched=verifier.watches)
            batches = cutter.cut(lot, watched=verifier.watches)
            before = random_state() if verifier.watches else None
            loads = self._loader.batches([batch.rows for batch in batches])
            for batch in batches:
                self._tried = batch
                data = next(loads)
                kept = copied(data) if verifier.watches else None
                yield from self._one(lot, batch, data)
                if verifier.wants_probe:
                    set_random_state(before)
                    for probe, changed in cutter.probes(batch, kept, self._loader):
                        self._tried = probe
                        yield from self._one(lot, probe, changed)
                if cutter.size(lot, watched=verifier.watches) != size:
                    break  # what is left is cut anew

    def _one(self, lot: Lot, batch: Batch, data: Any) -> Iterator[Any]:
        """Yields one batch and records the forward pass that the caller runs on it."""
        if lot is not self._lot:
            raise ProtocolError(f"lot {lot.step} is over; iterate over the lot at hand")
        self._sizer.before()
        self._batch = batch
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
        verifier, clip = self._verifier, self._clip.sensitivity
        if not batch.replaced:
            verifier.first(batch, losses, result, self._engine.structure, clip)
            if not verifier.wants_probe:
                self._count_in(batch, result)
                if self._sizer.units(self.plan.views) == 1:
                    verifier.rest()  # no batch will ever hold two units
        elif verifier.compare(batch, losses, result, clip):
            self._count_in(*verifier.passed())

    def _count_in(self, batch: Batch, result: ClippedBatch) -> None:
        """Adds a batch to the sums and takes it off the lot, or neither if memory runs out."""
        lot, units = self._lot, len(batch.units)
        assert lot is not None
        centred = self._clip.counted(result, units)
        self._total.add(result, last=len(lot._take(units + 1)) == units)
        self._clip.keep(centred)
        lot._drop(units)

    # ---- order

    def _entered(self) -> Guard:
        if self._guard is None:
            raise ProtocolError("use the session inside `with tacit.private(...) as dp:`")
        return self._guard

    def _between_lots(self, what: str) -> None:
        if self._lot is not None:
            raise ProtocolError(
                f"{what} comes between lots; lot {self._lot.step} waits for dp.step()"
            )


def _last_step(plan: Plan, stop_after: int | None) -> int:
    if stop_after is None:
        return plan.steps
    if whole("stop_after", stop_after) > plan.steps:
        raise InvalidArgument(f"stop_after must be at most {plan.steps} steps, got {stop_after!r}")
    return stop_after


def _stream(seed: tuple[int, int] | None, purpose: str) -> SystemStream | UnsafeSeededStream:
    if seed is None:
        return SystemStream()
    number, steps = seed
    return UnsafeSeededStream(number, f"{purpose} from step {steps}" if steps else purpose)
