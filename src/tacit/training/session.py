"""Private training: one context that samples, clips, adds noise, steps and accounts by a plan."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np
import torch
from torch import nn

from tacit._validation import open_probability, whole
from tacit.errors import InvalidArgument, LedgerError, ProtocolError, TacitError
from tacit.losses import advice
from tacit.randomness import fresh_stream, subset, this_process
from tacit.training import capture, charging, checkpoint_file, claim, preflight
from tacit.training.batches import WATCHED_UNITS, Cutter, Units
from tacit.training.capture import Batches, Losses, Updates
from tacit.training.checkpoint import packed, read, restore
from tacit.training.clipping.engine import Engine
from tacit.training.distributed import agreement
from tacit.training.distributed.sharded import Sharded, at_rest, check_placements, is_sharded
from tacit.training.distributed.shares import Shares, Wrapper
from tacit.training.distributed.world import World, joined
from tacit.training.guards import Guard, Seal
from tacit.training.loaders import check_dataset, make_loader
from tacit.training.lot import Computation, Draw, Lot, Lots
from tacit.training.noise import (
    ClipState,
    check_noise,
    entries_of,
    memory_of,
    noise_for,
    parameter_groups,
)
from tacit.training.performance import Performance
from tacit.training.plan import Plan, check_delta
from tacit.training.preflight import check_modules, private_parameters
from tacit.training.sampling import Allocation, Groups, LotSampler, RunningEpoch
from tacit.training.styles import Automatic
from tacit.training.verification import CheckSchedule, SensitivityCheck, Verifier

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from numpy.typing import NDArray
    from torch import Tensor
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.ledger import Budget, Reservation
    from tacit.randomness import Stream
    from tacit.statement import Statement
    from tacit.training.checkpoint import Stateful
    from tacit.training.loaders import Collate


def private(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    plan: Plan,
    dataset: Dataset[Any],
    budget: Budget | Reservation | None = None,
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
        budget: A budget of a ledger: the plan is reserved in it whole, after the loop has been
            rehearsed and before the first lot is sampled, and every step is charged before its
            lot is sampled. Or one of its reservations, to go on with
            after a crash that came before the first checkpoint.
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
        independently, which is checked before the first lot and at random later, and refused
        otherwise. With a budget,
        no step is taken that is not in the ledger, over all crashes and resumed runs.

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
    optimizers = (optimizer,) if isinstance(optimizer, torch.optim.Optimizer) else tuple(optimizer)
    return Session(
        model,
        optimizers,
        plan,
        dataset,
        budget,
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
        budget: Budget | Reservation | None,
        *,
        groups: Sequence[int] | NDArray[np.int64] | None,
        state: dict[str, Stateful],
        resume: str | os.PathLike[str] | None,
        performance: Performance,
        collate: Collate | None,
        stop_after: int | None,
        unsafe_seed: int | None,
    ) -> None:
        world = joined(_device_of(model), performance.patience)
        try:
            inner = preflight.unwrapped(model)
            self._wrapper = None if inner is model else Wrapper(model)
            self._prepare(
                world, inner, optimizers, plan, dataset, budget,
                groups=groups, state=state, resume=resume, performance=performance,
                collate=collate, stop_after=stop_after, unsafe_seed=unsafe_seed,
            )  # fmt: skip
        except BaseException as error:
            world.failed(error)
            raise

    def _prepare(
        self,
        world: World,
        model: nn.Module,
        optimizers: tuple[Optimizer, ...],
        plan: Plan,
        dataset: Dataset[Any],
        budget: Budget | Reservation | None,
        *,
        groups: Sequence[int] | NDArray[np.int64] | None,
        state: dict[str, Stateful],
        resume: str | os.PathLike[str] | None,
        performance: Performance,
        collate: Collate | None,
        stop_after: int | None,
        unsafe_seed: int | None,
    ) -> None:
        self.world, self.plan, self.model, self.optimizers = world, plan, model, optimizers
        self._state = state
        self._steps_taken = 0
        with world.checking("the first checks"):
            _check_data(dataset, groups, plan)
            self._parameters = _checked(world, model, optimizers, state)
            _check_seed(budget, unsafe_seed)
            check_noise(plan, entries_of(self._parameters))
            _check_alone(world, plan)
            last_step = _last_step(plan, stop_after)
            lease = None if performance.lease == "auto" else performance.lease
            self._charges = charging.charges_of(world, budget, lease)
        self._run = claim.Run(last_step, unsafe=unsafe_seed is not None)
        self._sharded, self._shares = _spread(world, model, self._parameters, plan)
        self._home_device = next(iter(self._parameters.values())).device
        self._device = self._home_device if self._sharded is None else self._sharded.device
        self._group, shares = parameter_groups(plan, self._parameters)
        self._clip = ClipState(plan, shares, self._device)
        self._begin_course(_groups(world, plan, unsafe_seed), resumed=resume is not None)
        if resume is not None:
            with world.checking("the checkpoint"):
                self._resume(resume, stop_after, budget)
        if self._memory is not None:
            self._memory.steps = self._run.last_step
        if not world.is_alone:
            agreement.check(world, agreement.facts(
                plan, dataset, groups, self._parameters, optimizers, performance,
                last_step=self._run.last_step, steps_taken=self.steps_taken, seed=unsafe_seed,
            ))  # fmt: skip
        self._prepare_lots(dataset, groups, performance, collate, unsafe_seed)

    def _prepare_lots(
        self,
        dataset: Dataset[Any],
        groups: Sequence[int] | NDArray[np.int64] | None,
        performance: Performance,
        collate: Collate | None,
        unsafe_seed: int | None,
    ) -> None:
        """Samples, batches, noise and what computes them, once all processes agree."""
        plan, model = self.plan, self.model
        # A resumed run draws other numbers; a seed must not bring the first draws back either.
        seed = None if unsafe_seed is None else (unsafe_seed, self.steps_taken)
        streams = self.world.streams(seed)
        # What is checked follows the clock, by which a seeded run must not differ from another.
        again = CheckSchedule(fresh_stream("verification")) if seed is None else None
        self._verifier = Verifier(model, self._parameters, again, self.world.size)
        self._rehearsing: NDArray[np.int64] | None = _few(plan, streams("rehearsal"))
        loader = make_loader(
            dataset, self._device, collate, performance.workers, performance.pin_memory
        )
        units = Units(plan, groups, streams("users"))
        compiled = _compiled(plan, performance)
        self._noise = noise_for(plan.noise, streams("noise"), self._home_device, self._memory)
        graphs = _graphs(plan, performance, self._device) if self._sharded is None else None
        # A model that the user compiled, and what is recorded, need few shapes.
        on_gpu = self._device.type == "cuda" and plan.noise != "exact"
        padded = compiled or graphs is not None or on_gpu
        self._sampler = LotSampler(
            plan,
            streams("sampling"),
            ahead=graphs is not None,
            epoch=self._epoch,
            groups=self._groups,
        )
        self._updates: Updates | None = None
        recorded = (
            self._noise.generators is not None and not self._clip.moves and self._shares is None
        )
        if graphs is not None and recorded:
            self._updates = Updates(graphs, self.optimizers, self._noise.renew)
        self._computation = Computation(
            plan,
            _engine(
                plan, model, self._computed(), self._group, few_shapes=padded, compiled=compiled
            ),
            self._verifier,
            self._clip,
            Cutter(plan, units, loader, performance, self._device, padded=padded),
            performance.precision,
            self._device,
            None if graphs is None else Batches(graphs, model),
            advice(model),
            self._sharded,
        )

    def _begin_course(self, groups: Groups | None, *, resumed: bool) -> None:
        """What goes on from step to step, beside the weights."""
        self._memory = memory_of(self.plan)  # of correlated noise, which goes on where it was
        self._groups = groups  # the same in a whole run
        self._same_groups = resumed  # as all steps before had
        self._epoch = RunningEpoch(self.plan)
        self._guard: Guard | None = None
        self._seal: Seal | None = None  # of the weights, while the context is not entered
        self._spoiled: TacitError | None = None  # why nothing can be claimed any more
        self._home = this_process()
        self._still = RLock()  # nobody looks at weights that are being stepped

    def _computed(self) -> dict[str, nn.Parameter]:
        """The parameters as the model computes with them: whole, where they are in pieces."""
        gathered = {} if self._sharded is None else self._sharded.gathered
        return {name: gathered.get(name, p) for name, p in self._parameters.items()}

    # ---- the context

    def __enter__(self) -> Session:
        if self._guard is not None:
            raise ProtocolError("this private context is already entered; make a new one")
        self._check_claimable()
        try:
            self._charges.begin(self.plan, self._run.last_step, self.steps_taken)
            self._leave_broken_epoch()
            self._go_behind_lost_steps()
            self._start_alike()
        except BaseException as error:
            self.world.failed(error)
            raise
        self._forget_recordings()
        if self._wrapper is not None:
            self._wrapper.enter()
        self._guard = Guard(self.model, self._parameters, self.optimizers)
        return self

    def _go_behind_lost_steps(self) -> None:
        """Lost steps may have been seen: a group's turn and a column of noise are not used again.

        Raises:
            ProtocolError: if nobody knows which groups took those turns.
        """
        position = self.steps_taken + self.steps_lost
        if self._groups is not None and self.steps_lost and not self._same_groups:
            raise ProtocolError(
                f"{self.steps_lost} steps were lost and no checkpoint says which groups of records "
                "took their turns: a run with groups goes on from a checkpoint; or reserve again"
            )
        self._same_groups = True
        self._sampler.go_to(position)
        if self._memory is not None:
            self._memory.begin(position)

    def _start_alike(self) -> None:
        """Replicas start from the weights and buffers of rank 0."""
        if self.world.is_alone:
            return
        at_rest(self.model)
        tensors = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        tensors |= self._parameters
        self.world.broadcast_({n: one for n, one in tensors.items() if not is_sharded(one)})
        if self._sharded is not None:
            self._sharded.start_alike()
        if self._seal is not None:
            self._seal = Seal(self.model, self._parameters)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._home == this_process():
            self.world.failed(error)
        guard, unfinished = self._guard, self._computation.draw
        self._guard = None
        self._computation.leave()
        if self._wrapper is not None:
            self._wrapper.leave()
        if self._home != this_process():  # neither the ledger nor the weights are the child's
            if kind is None:
                self._check_process()
            return
        if guard is not None:
            self._close(guard)
        if kind is not None:
            with suppress(LedgerError):  # what is not given back stays charged; ``error`` matters
                self._charges.close()
            if _is_of_grad_scaler(error):
                raise ProtocolError(
                    "scaler.step(optimizer) was called inside the private context; leave the "
                    "GradScaler out and call dp.step(), which adds the noise and steps"
                ) from error
            return
        self._charges.close()
        if unfinished is not None:
            raise ProtocolError(f"lot {unfinished.step} was left without dp.step()")
        self._check_claimable()

    def _close(self, guard: Guard) -> None:
        """Ends the watch; what it finds last spoils the claim, whatever else ended the context."""
        guard.close()
        try:
            guard.check_all()
            guard.check_finite(wait=True)
        except TacitError as error:
            self._spoiled = error
        self._seal = Seal(self.model, self._parameters)

    def _check_claimable(self) -> None:
        """Raises unless the weights are those that private steps led to, in this process."""
        self._check_process()
        if self._spoiled is not None:
            raise self._spoiled
        if self._guard is not None:
            with self._still:
                self._guard.check_all()
                self._guard.check_finite(wait=True)
        elif self._seal is not None:
            self._seal.check()

    def _check_process(self) -> None:
        if self._home != this_process():
            raise ProtocolError(
                "a private session belongs to the process that made it: a forked child would "
                "release its lots a second time, uncharged; train in one process"
            )

    def __reduce__(self) -> NoReturn:
        raise ProtocolError(
            "a private session cannot be copied or pickled: the copy would take its plan's steps a "
            "second time, uncharged; use dp.save(path) and tacit.private(..., resume=path)"
        )

    @contextmanager
    def public(self) -> Iterator[None]:
        """Ordinary autograd and optimizer steps on public data: nothing is recorded or charged.

        What is computed here from private data is not protected.
        """
        guard = self._entered()
        self._between_lots("dp.public()")
        guard.check_all()
        self._forget_recordings()
        guard.allow(allowed=True)
        try:
            yield
        finally:
            guard.allow(allowed=False)
            guard.clear_gradients()
            guard.note_all()

    def _leave_broken_epoch(self) -> None:
        """Charges the rest of an epoch of ``Allocation`` of which steps were lost, and leaves it.

        Its lots may have been released already. To release them again, with other noise, is no
        step of that epoch: the next lot is the first of another one.
        """
        if isinstance(self.plan.sampling, Allocation) and self._charges.lost != self._epoch.lost:
            charged = self.steps_taken + self._charges.lost
            self._charges.forgo(-charged % self.plan.steps_per_epoch)
            self._epoch.drop()
            self._epoch.lost = self._charges.lost

    def _forget_recordings(self) -> None:
        """Recordings read weights and fingerprints where they lay, which is about to change."""
        self._computation.forget_recordings()
        if self._updates is not None:
            self._updates.forget()

    # ---- a step

    def lots(self) -> Lots:
        """The lots that are left of the plan, each a fresh sample; ends when the plan is spent.

        ``len(dp.lots())`` is how many are left.

        The first one begins with a rehearsal: the loop is run on a few records of the data set,
        and on repetitions of them, of which nothing is kept (``lot.is_rehearsal``). An error in the
        loop shows there, before anything is reserved or charged.

        Guarantee:
            With a budget, the step is in the ledger before its lot is sampled. What a crashed or
            rewound run was granted counts: the lots end that many steps early.
        """
        return Lots(self._drawn(), self._left)

    def _left(self) -> int:
        """How many lots are still to come."""
        return max(0, self._run.last_step - self.steps_taken - self.steps_lost)

    def _drawn(self) -> Iterator[Lot]:
        while self.steps_taken < self._run.last_step:
            self._entered().check_before_lot()
            if self._verifier.watches:
                check_modules(self.model)
            self._between_lots("a new lot")
            if self._verifier.watches and self._rehearsing is not None and self._charges.has_more:
                lot = self._lot(self._rehearsing, self._first_sample)
            elif self._charges.take():
                self._verifier.count_lot()
                lot = self._lot(self._sampled())
            else:
                return
            draw = self._computation.draw
            yield lot
            if self._computation.draw is draw:
                raise ProtocolError(f"lot {lot.step} was left without dp.step()")

    def _first_sample(self) -> NDArray[np.int64]:
        """The first lot, once the rehearsal is over: reserved and charged, then sampled."""
        self._rehearsing = None
        if not self._charges.take():
            raise LedgerError(
                "no step of the run's reservation is left: another process went on with it"
            )
        return self._sampled()

    def _sampled(self) -> NDArray[np.int64]:
        """A sample, or this process's part of it."""
        drawn = self._sampler.draw()
        return drawn if self.world.is_alone else self.world.share(drawn)

    def backward(self, losses: Tensor) -> None:
        """Takes one loss per row of the current batch; clips and adds up their gradients.

        Guarantee:
            No unit adds more than the plan's clip to the sum, whatever its loss is.
        """
        guard = self._entered()
        self._computation.backward(losses, guard)

    def accumulate(
        self,
        lot: Lot,
        losses: Callable[[Any], Tensor],
        *,
        seen: Callable[[Tensor], None] | None = None,
    ) -> None:
        """Runs ``losses`` on every batch of ``lot`` and passes them to ``backward``.

        Where memory runs out the batch is done again in halves: nothing of it had been added.

        On a GPU the function is recorded after a few lots, and what the device did is replayed from
        then on: its Python is no longer run. So it should do nothing but compute losses (or pass
        ``Performance(capture=False)``); ``seen`` is called with those of each batch, which are
        secret, save in rehearsals. ``dp.explain()`` says what is replayed.
        """
        self._entered()
        computation = self._computation
        with computation.by_function(Losses(losses, seen)):
            while not lot.is_done:
                try:
                    for batch in lot:
                        computation.run(batch, self.backward)
                except torch.OutOfMemoryError:
                    # Halved as the loop starts again: its traceback no longer holds activations.
                    if not computation.can_shrink:
                        raise

    def step(self) -> None:
        """Adds the noise, hands the mean gradient to the optimizers, and lets them step.

        Guarantee:
            The step is counted before its noise is drawn. The noise is fresh, and covers every
            entry of every private parameter, whether or not the lot touched it.
        """
        guard = self._at_the_end_of_a_lot("dp.step()")
        if self._updates is not None and guard.is_recordable:
            self._recorded_step(self._updates, guard)
            return
        means = self._released(guard)
        with self._still:
            self._update(means, guard)

    def release(self) -> None:
        """Adds the noise and leaves the mean gradient in ``.grad``, for others to step.

        In place of ``dp.step()`` where a trainer calls ``optimizer.step()`` itself. What ``.grad``
        holds is private and may be looked at; each optimizer must step it once, as it is, before
        the next lot.

        Guarantee:
            As for ``step``. An optimizer that would step another gradient, or this one twice, is
            refused.

        >>> import tacit, torch
        >>> data = torch.utils.data.TensorDataset(torch.randn(9, 3))
        >>> model = torch.nn.Linear(3, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> plan = tacit.Plan(examples=9, lot_size=9, steps=1, noise_multiplier=2.0, clip=1.0)
        >>> with tacit.private(model, optimizer, plan, data) as dp:
        ...     for lot in dp.lots():
        ...         for (x,) in lot:
        ...             dp.backward(model(x).square().squeeze(1))
        ...         dp.release()
        ...         optimizer.step()
        >>> dp.steps_taken
        1
        """
        if not self.world.is_alone:
            raise ProtocolError(
                f"dp.release() is for one process, and this is one of {self.world.size}; use "
                "dp.step(), or start one process"
            )
        guard = self._at_the_end_of_a_lot("dp.release()")
        means = self._released(guard)
        for name, parameter in self._parameters.items():
            parameter.grad = means[name]
        guard.expect_step()

    def _at_the_end_of_a_lot(self, what: str) -> Guard:
        guard, draw = self._entered(), self._computation.draw
        if draw is None:
            raise ProtocolError(
                f"{what} without a lot: each lot of dp.lots() is stepped once, and none after "
                "the plan is spent"
            )
        self._computation.stop()
        if not draw.is_done:
            raise ProtocolError(
                f"lot {draw.step} has batches that were not passed to dp.backward(); iterate over "
                f"the whole lot before {what}"
            )
        return guard

    def _released(self, guard: Guard) -> dict[str, Tensor]:
        """The lot's mean gradient with its noise; the step is counted first."""
        guard.check_before_step()
        draw = self._computation.draw
        assert draw is not None
        sums = self._computation.finished()
        if not self.world.is_alone:
            counts = self.world.all_say(f"the end of lot {draw.step}", self._clip.centred)
            self._clip.count_all(counts)
        self._steps_taken += 1
        means = self._means(sums)
        self._clip.end(self._noise)
        return means

    def _recorded_step(self, updates: Updates, guard: Guard) -> None:
        """Replays noise and update; runs them, and in time records them, where there is no replay.

        A recording begins and ends with the looks at the weights that come before and after a step.
        """
        sums = self._computation.sums
        known = updates.recorded(sums.values())
        guard.check_before_step(compare=known is None)
        self._computation.finished()
        self._steps_taken += 1

        def work() -> None:
            guard.compare_values()
            self._update(self._means(sums), guard)

        with self._still:
            if known is not None:
                updates.replay(known)
            elif not (
                self._computation.stays
                and updates.record(sums.values(), work, self._noise.generators or ())
            ):
                updates.before()
                self._update(self._means(sums), guard)
                updates.after()

    def _means(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        release = partial(
            self._noise.means,
            self._parameters,
            clip=self._clip.sensitivity,
            scale=self._clip.noise_scale,
            lot_size=self.plan.lot_size,
        )
        if self._shares is None:
            return release(sums)
        stretches, totals = dict(self._shares.stretches), self._shares.totals(sums)
        if self._sharded is not None:
            stretches |= self._sharded.stretches
            totals |= self._sharded.totals()
        own = release(totals, stretches=stretches)
        means = self._shares.means(own)
        return means if self._sharded is None else means | self._sharded.gradients(own)

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
            guard.note_step()

    # ---- what is known of the run

    @property
    def steps_taken(self) -> int:
        """Steps of the plan that led to the weights, each with its own noise."""
        return self._steps_taken

    @property
    def steps_lost(self) -> int:
        """Steps that were charged to attempts whose results are gone; 0 without a budget."""
        return self._charges.lost

    def spent(self, delta: float | None = None) -> float:
        """ε of the steps taken so far, as if their number had been fixed in advance.

        Steps that were lost in a crash count; those that are only leased do not. ``delta`` may be
        left out if the plan was made for a budget.
        """
        delta = self.plan.delta_or(delta)
        steps = self.steps_taken + self.steps_lost
        if steps == 0:
            open_probability("delta", delta)
            return 0.0
        return claim.epsilon(self.plan, steps, delta)

    def statement(self, delta: float | None = None) -> Statement:
        """The claim: ε of the whole plan, or of ``stop_after`` steps if fixed in advance.

        ``delta`` may be left out if the plan was made for a budget.

        Guarantee:
            It is refused if the weights are not those that private steps led to, or if they are not
            finite numbers; and at a δ under which somebody's record may be published (1/n or more).
        """
        self._check_claimable()
        return claim.statement(
            self.plan,
            check_delta(self.plan.delta_or(delta), self.plan.examples, self.plan.unit),
            self.steps_taken,
            self._run,
            lost=self.steps_lost,
            ledger=self._charges.describe(),
            charge=self._charges.charge(),
            ranks=self.world.size,
        )

    def explain(self) -> str:
        """Which rule serves each operation, how its norms are found, and with what memory.

        The memory is that of the rehearsal, for a few records; it follows their length where rows
        have different ones.
        """
        seen = self._computation.rehearsed
        if seen is None:
            rules = "No batch has been computed yet, so no rule has been chosen."
        else:
            rules = seen.describe(self.plan.unit)
        updates = "" if self._updates is None else self._updates.describe()
        replayed = "\n".join(way for way in (self._computation.explain(), updates) if way)
        world = self._world_in_words()
        return "\n\n".join(part for part in (self.plan.describe(), world, rules, replayed) if part)

    def _world_in_words(self) -> str:
        if self._shares is None:
            return ""
        spread = "replicas" if self._sharded is None else self._sharded.describe()
        return f"World: {self.world.describe()}; {spread}."

    def verify(self, losses: Callable[[Any], Tensor] | None = None) -> SensitivityCheck | None:
        """Replaces one example and checks that only its own, bounded, contribution changes.

        With ``losses``, a function of a batch, it does so now on a few examples, and charges and
        releases nothing. Without, the next batch of a lot is checked; that happens by itself before
        the first lot, and in others at random.

        The result is SECRET: its ``moved`` was computed from private data without noise.
        """
        if losses is None:
            self._verifier.arm()
            return self._verifier.report
        self._entered()
        self._between_lots("dp.verify(losses)")
        self._verifier.arm()
        count = min(self.plan.examples, 8)
        none = np.empty(0, dtype=np.int64)
        lot = self._lot(np.arange(count, dtype=np.int64), lambda: none)
        try:
            self.accumulate(lot, losses)
        finally:
            self._computation.leave()
            if self._rehearsing is not None:
                self._verifier.arm()  # the loop itself has not been seen yet
        return self._verifier.report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes model, optimizers, ``state``, plan and step count, between lots; no seed.

        With a budget it also writes where the charge is, and the newest entry of the ledger. Of
        several processes all call it, and rank 0 writes.

        Within an epoch of ``Allocation`` it also writes who is in which of its lots, and with
        correlated noise, before the last step, what the steps to come need of the noise so far.
        Such a file is SECRET, as private data are. After the last step, or an epoch's last step, it
        holds nothing of the kind.
        """
        self._between_lots("dp.save()")
        self._check_claimable()
        pack = partial(
            packed,
            model=self.model,
            optimizers=self.optimizers,
            state={**self._state, **self._own_state()},
            plan_json=self.plan.to_json(),
            steps_taken=self.steps_taken,
        )
        gathered = None if self._sharded is None else pack()  # by all ranks
        self.world.said(
            f"dp.save() after {self.steps_taken} steps",
            lambda: checkpoint_file.write(Path(path), *(gathered or pack())),
        )

    def _own_state(self) -> dict[str, Stateful]:
        own: dict[str, Stateful] = {"tacit run": self._run}
        if isinstance(self.plan.sampling, Allocation):
            own["tacit epoch"] = self._epoch
        if self._memory is not None:
            own["tacit noise"] = self._memory
        if self._groups is not None:
            own["tacit groups"] = self._groups
        return {**own, **self._clip.state(), **self._charges.state()}

    def _resume(self, path: str | os.PathLike[str], stop_after: int | None, budget: object) -> None:
        checkpoint = read(path)
        if checkpoint.plan_json != self.plan.to_json():
            raise InvalidArgument(
                f"the checkpoint {path} belongs to another plan; resume with the plan it was "
                "started with"
            )
        if self.world.leads:
            held = checkpoint.state.get(charging.STATE)
            charging.check_resumable(None if held is None else held.values, budget, path)
        else:  # the ledger is rank 0's
            others = {n: one for n, one in checkpoint.state.items() if n != charging.STATE}
            checkpoint = replace(checkpoint, state=others)
        run = checkpoint.state.get("tacit run")
        last = None if run is None else run.values.get("last_step")
        claim.check_steps(checkpoint.steps_taken, last, self.plan, path)
        if stop_after is not None and last is not None and last != stop_after:
            raise InvalidArgument(
                f"stop_after={stop_after} was not fixed before the first step: the checkpoint "
                f"{path} is of a run to step {last}; leave stop_after out"
            )
        if self._memory is not None:
            self._memory.steps = last if isinstance(last, int) else self.plan.steps
        restore(
            checkpoint,
            model=self.model,
            optimizers=self.optimizers,
            state={**self._state, **self._own_state()},
        )
        self._steps_taken = checkpoint.steps_taken
        self._seal = Seal(self.model, self._parameters)

    # ---- order

    def _lot(
        self, units: NDArray[np.int64], sample: Callable[[], NDArray[np.int64]] | None = None
    ) -> Lot:
        """A lot of these units, as the current one; with ``sample``, they only rehearse."""
        draw = Draw(self.steps_taken, units, sample)
        self._computation.begin(draw)
        return Lot(draw, self.plan, self._computation)

    def _entered(self) -> Guard:
        if self._guard is None:
            raise ProtocolError("use the session inside `with tacit.private(...) as dp:`")
        self._check_process()
        return self._guard

    def _between_lots(self, what: str) -> None:
        draw = self._computation.draw
        if draw is not None:
            raise ProtocolError(f"{what} comes between lots; lot {draw.step} waits for dp.step()")


def _checked(
    world: World, model: nn.Module, optimizers: Sequence[Optimizer], state: Mapping[str, Stateful]
) -> dict[str, nn.Parameter]:
    """The private parameters, of a model and optimizers that can be trained."""
    preflight.check_optimizers(optimizers)
    preflight.check_states(state)
    check_modules(model)
    at_rest(model)
    parameters = private_parameters(model, optimizers)
    preflight.check_device(parameters)
    check_placements(world, model, parameters)
    return parameters


def _check_seed(budget: object, unsafe_seed: int | None) -> None:
    if budget is not None and unsafe_seed is not None:
        raise InvalidArgument(
            f"unsafe_seed={unsafe_seed!r} voids the guarantee, so nothing can be charged for "
            "it; leave out the seed or the budget"
        )


def _spread(
    world: World, model: nn.Module, parameters: Mapping[str, nn.Parameter], plan: Plan
) -> tuple[Sharded | None, Shares | None]:
    """Who holds and who releases which entries; None where one process does it all."""
    exact, sharded = plan.noise == "exact", None
    if any(map(is_sharded, parameters.values())):
        sharded = Sharded(world, model, parameters, whole_numbers=exact)
    if world.is_alone and sharded is None:
        return None, None
    plain = {n: p for n, p in parameters.items() if not is_sharded(p)}
    return sharded, Shares(world, plain, whole_numbers=exact)


def _device_of(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _check_data(
    dataset: Dataset[Any], groups: Sequence[int] | NDArray[np.int64] | None, plan: Plan
) -> None:
    check_dataset(dataset, plan.examples, counts_users=plan.unit == "user")
    if plan.unit == "user" and (groups is None or len(groups) != len(dataset)):  # type: ignore[arg-type]
        raise InvalidArgument(
            "groups must name the user of every example: the plan's unit is a user"
        )


def _is_of_grad_scaler(error: BaseException | None) -> bool:
    """Whether torch's GradScaler gave up, as it does where it finds no gradients to unscale."""
    if not isinstance(error, AssertionError):
        return False
    frames = [frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1:] == ["torch.amp.grad_scaler"]


def _engine(
    plan: Plan,
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    group: Mapping[str, int],
    *,
    few_shapes: bool,
    compiled: bool,
) -> Engine:
    return Engine(
        parameters,
        group,
        stability=plan.clipping.stability if isinstance(plan.clipping, Automatic) else None,
        constants=[buffer for buffer in model.buffers() if buffer is not None],
        few_shapes=few_shapes,
        compiled=compiled,
    )


def _compiled(plan: Plan, performance: Performance) -> bool:
    if plan.noise == "exact":
        return False  # compiled code rounds in another way than the first, uncompiled unit
    return bool(performance.compile)


def _graphs(plan: Plan, performance: Performance, device: torch.device) -> capture.Graphs | None:
    """What records whole steps; integers are added up one unit at a time, each by itself."""
    if plan.noise == "exact":
        return None
    on_gpu = device.type == "cuda"
    if not (on_gpu if performance.capture is None else performance.capture):
        return None
    return capture.CudaGraphs(device) if on_gpu else capture.Reruns()


def _last_step(plan: Plan, stop_after: int | None) -> int:
    if stop_after is None:
        return plan.steps
    last = whole("stop_after", stop_after)
    if last > plan.steps:
        raise InvalidArgument(f"stop_after must be at most {plan.steps} steps, got {stop_after!r}")
    return last


def _check_alone(world: World, plan: Plan) -> None:
    if plan.correlation is not None and not world.is_alone:
        raise InvalidArgument(
            f"correlation must be left out with several processes (these are {world.size}): each "
            "would keep the noise of the last steps by itself; or start one process"
        )


def _groups(world: World, plan: Plan, seed: int | None) -> Groups | None:
    """Groups of records that take turns, if the plan has them; dealt before the first step."""
    if plan.groups == 1:
        return None
    streams = world.streams(None if seed is None else (seed, 0))
    return Groups(plan.examples, plan.groups, streams("groups"))


def _few(plan: Plan, stream: Stream) -> NDArray[np.int64]:
    """A few units of the data set, chosen at random whatever they are."""
    everybody = np.arange(plan.examples, dtype=np.int64)
    return subset(everybody, min(plan.examples, WATCHED_UNITS), stream)
