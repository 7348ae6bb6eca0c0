"""Private training: one context that samples, clips, adds noise, steps and accounts, by one plan."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import nn
from torch.overrides import _get_current_function_mode

from tacit._validation import open_probability, whole
from tacit.errors import InvalidArgument, ProtocolError
from tacit.randomness import GaussianSource, SystemStream, UnsafeSeededStream
from tacit.training import claim, losses_check
from tacit.training.batching import BatchSizer
from tacit.training.checkpoint import read, restore, write
from tacit.training.clipping.engine import Engine
from tacit.training.explanation import explanation
from tacit.training.grouping import ClipState, parameter_groups
from tacit.training.guards import Guard, check_modules, private_parameters
from tacit.training.loading import check_dataset, make_loader
from tacit.training.lot import Batch, Lot
from tacit.training.noise import noisy_means
from tacit.training.performance import Performance
from tacit.training.sampling import LotSampler
from tacit.training.styles import Automatic
from tacit.training.units import Units
from tacit.training.verification import Verification, Verifier

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
    >>> dp.steps_taken, round(dp.spent(delta=1e-3), 4)
    (5, 0.8112)
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

    The order is enforced: a lot, its batches each with one ``backward``, one ``step``, the next lot.
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
        check_modules(model)
        self.plan, self.model, self.optimizers = plan, model, optimizers
        self.steps_taken = 0
        self._last_step = plan.steps
        if stop_after is not None:
            self._last_step = min(plan.steps, whole("stop_after", stop_after))
        self._parameters = private_parameters(model, optimizers)
        self._state = state
        self._performance = performance
        self._device = next(iter(self._parameters.values())).device
        group, shares = parameter_groups(plan, self._parameters)
        self._clip = ClipState(plan, shares, self._device)
        stability = plan.clipping.stability if isinstance(plan.clipping, Automatic) else None
        on_gpu = self._device.type == "cuda"
        self._compiled = on_gpu if performance.compile is None else performance.compile
        self._engine = Engine(
            self._parameters,
            group,
            stability=stability,
            constants=[buffer for buffer in model.buffers() if buffer is not None],
            compiled=self._compiled,
        )
        self._sizer = BatchSizer(plan, performance.batch, self._device, padded=self._compiled)
        self._loader = make_loader(
            dataset, self._device, collate, performance.workers, performance.pin_memory
        )
        self._sampler = LotSampler(plan, _stream(unsafe_seed, "sampling"))
        self._units = Units(plan, groups, _stream(unsafe_seed, "users"))
        self._source = GaussianSource(self._device, _stream(unsafe_seed, "noise"))
        self._seeded = unsafe_seed is not None
        self._verifier = Verifier(model, self._parameters)
        self._sums: dict[str, Tensor] = {}
        self._guard: Guard | None = None
        self._lot: Lot | None = None
        self._batch: Batch | None = None
        self._leave: ExitStack | None = None
        self._recording = False
        self._masks: dict[Hashable, tuple[Tensor, Tensor]] = {}
        if resume is not None:
            self._resume(resume)

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
        self._end_recording()
        if self._guard is not None:
            self._guard.close()
        unfinished, self._lot = self._lot, None
        self._guard = None
        if kind is None and unfinished is not None:
            raise ProtocolError(f"lot {unfinished.step} was left without dp.step()")

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
        """The lots that are left of the plan, each a fresh sample; it ends when the plan is spent."""
        self._entered()
        while self.steps_taken < self._last_step:
            self._between_lots("a new lot")
            lot = Lot(self, self.steps_taken, self._sampler.draw())
            self._lot, self._sums = lot, {}
            self._clip.begin()
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
        self._stop_recording()
        losses_check.check(losses, len(batch.rows))
        guard.check_buffers()
        guard.check_parameters()
        result = self._clipped(losses, batch)
        self._batch = None
        self._verifier.saw(batch, losses, result, self._engine.structure)
        if batch.probe:
            self._verifier.compare(self._clip.sensitivity)
            return
        self._add(result)
        self._lot._drop(len(batch.units))
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
                if not self._halved():
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
                "dp.step() without a lot: each lot of dp.lots() is stepped once, and none after the "
                "plan is spent"
            )
        self._end_recording()
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
            self._sums,
            self._source,
            scale=self._clip.noise_scale,
            lot_size=self.plan.lot_size,
        )
        self._sums = {}
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
        """The claim: ε of the whole plan, or of ``stop_after`` steps if that was fixed in advance."""
        return claim.statement(
            self.plan, delta, self.steps_taken, self._last_step, unsafe=self._seeded
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
        self._lot = Lot(self, self.steps_taken, np.arange(count, dtype=np.int64))
        try:
            self.accumulate(self._lot, losses)
        finally:
            self._end_recording()
            self._lot, self._sums = None, {}
        return self._verifier.report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes model, optimizers, ``state``, plan and step count, between lots. No noise, no seed."""
        self._between_lots("dp.save()")
        write(
            path,
            model=self.model,
            optimizers=self.optimizers,
            state={**self._state, **self._clip.state()},
            plan_json=self.plan.to_json(),
            steps_taken=self.steps_taken,
        )

    def _resume(self, path: str | os.PathLike[str]) -> None:
        checkpoint = read(path)
        if checkpoint.plan_json != self.plan.to_json():
            raise InvalidArgument(
                f"the checkpoint {path} belongs to another plan; resume with the plan it was "
                "started with"
            )
        restore(
            checkpoint,
            model=self.model,
            optimizers=self.optimizers,
            state={**self._state, **self._clip.state()},
        )
        self.steps_taken = checkpoint.steps_taken

    # ---- batches

    def _batches(self, lot: Lot) -> Iterator[Any]:
        """The batches of ``lot`` that are left; one more, a probe, after the first of the run."""
        self._end_recording()
        if lot is not self._lot:
            raise ProtocolError(f"lot {lot.step} is over; iterate over the lot at hand")
        while not lot.is_done:
            batch = self._next(lot)
            yield from self._one(batch)
            if self._verifier.wants_probe:
                yield from self._one(self._probe(batch))

    def _next(self, lot: Lot) -> Batch:
        """The next physical batch of ``lot``, at the present size."""
        width = self._units.rows(lot._take(1), widest=self._compiled).per_unit
        size = self._sizer.units(width)
        units = lot._take(size)
        return self._made(units, self._sizer.padded_to(len(units), width))

    def _made(self, units: NDArray[np.int64], padded_to: int, *, probe: bool = False) -> Batch:
        padded = max(len(units), padded_to)
        filled = np.concatenate([units, np.repeat(units[:1], padded - len(units))])
        chosen = self._units.rows(filled, widest=self._compiled)
        chosen.weights[len(units) * chosen.per_unit :] = 0.0
        return Batch(units, chosen.rows, chosen.weights, chosen.per_unit, padded, probe)

    def _probe(self, batch: Batch) -> Batch:
        """The same batch with its first unit replaced by another."""
        other = (batch.units[0] + max(1, self.plan.examples // 2)) % self.plan.examples
        units = np.concatenate([[other], batch.units[1:]])
        return self._made(units, batch.padded_units, probe=True)

    def _one(self, batch: Batch) -> Iterator[Any]:
        """Loads one batch and records the forward pass that the caller runs on it."""
        for data in self._loader.batches([batch.rows]):
            self._sizer.before()
            self._begin_recording(batch, data)
            try:
                yield data
            finally:
                self._end_recording()
            if self._batch is not None:
                raise ProtocolError("a batch of the lot was not passed to dp.backward()")

    def _begin_recording(self, batch: Batch, data: Any) -> None:
        self._batch = batch
        settled = self._compiled and not self._verifier.watches
        signature = _signature(data, len(batch.rows), batch.per_unit) if settled else None
        ready = self._engine.begin(len(batch.rows), batch.per_unit, signature)
        self._leave = ExitStack()
        if not ready and "torch._dynamo" in sys.modules:
            self._leave.enter_context(torch.compiler.set_stance("force_eager"))
        if self._performance.precision != "single":
            dtype = getattr(torch, self._performance.precision)
            self._leave.enter_context(torch.autocast(self._device.type, dtype))
        self._leave.enter_context(self._verifier.watching(batch))
        self._engine.recorder.__enter__()
        self._recording = True

    def _stop_recording(self) -> None:
        """Takes the recorder off the stack of modes, unless the caller has put others on top."""
        self._engine.recorder.enabled = False
        if self._recording and _get_current_function_mode() is self._engine.recorder:
            self._recording = False
            self._engine.recorder.__exit__(None, None, None)

    def _end_recording(self) -> None:
        self._stop_recording()
        if self._leave is not None:
            leave, self._leave = self._leave, None
            leave.close()

    def _clipped(self, losses: Tensor, batch: Batch) -> ClippedBatch:
        """The batch's clipped sum; the real units are counted for a clip that adapts."""
        weights, real = self._on_device(batch, losses)
        result = self._engine.finish(losses, weights, self._clip.bounds, real)
        if not batch.probe:
            self._clip.count(result, real)
        return result

    def _on_device(self, batch: Batch, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Row weights and the mask of real units, made without waiting for the device."""
        key = (len(batch.units), batch.padded_units, batch.per_unit, losses.dtype)
        if self.plan.unit == "example" and key in self._masks:
            return self._masks[key]
        weights = torch.from_numpy(batch.weights)
        if losses.is_cuda:
            weights = weights.pin_memory()
        weights = weights.to(losses.device, losses.dtype, non_blocking=True)
        real = torch.arange(batch.padded_units, device=losses.device) < len(batch.units)
        self._masks[key] = (weights, real)
        return weights, real

    def _add(self, result: ClippedBatch) -> None:
        for name, value in result.sums.items():
            if name in self._sums:
                self._sums[name].add_(value)
            else:
                self._sums[name] = value

    def _halved(self) -> bool:
        """After running out of memory: smaller batches from now on, if there are smaller ones."""
        rows = 0 if self._batch is None else len(self._batch.rows)
        self._batch = None
        self._end_recording()
        self._engine.recorder.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return self._sizer.shrink(rows)

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


def _stream(seed: int | None, purpose: str) -> SystemStream | UnsafeSeededStream:
    return SystemStream() if seed is None else UnsafeSeededStream(seed, purpose)


def _signature(data: Any, rows: int, per_unit: int) -> Hashable:
    """What the shapes of everything that is computed from a batch depend on."""
    leaves, spec = torch.utils._pytree.tree_flatten(data)
    shapes = tuple(
        (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else type(leaf)
        for leaf in leaves
    )
    return (str(spec), shapes, rows, per_unit, torch.is_autocast_enabled())
