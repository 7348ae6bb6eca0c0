"""Private training: one context that samples, clips, adds noise, steps and accounts by a plan."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np
import torch
from torch import nn

from tacit._validation import open_probability
from tacit.errors import LedgerError, ProtocolError
from tacit.training import checkpoint_file, claim, preflight
from tacit.training.assembly import Setup, assembled
from tacit.training.capture import Losses
from tacit.training.checkpoint import packed
from tacit.training.distributed.sharded import at_rest, is_sharded
from tacit.training.distributed.shares import Wrapper
from tacit.training.distributed.world import World, joined
from tacit.training.lot import Draw, Lot, Lots
from tacit.training.performance import Performance
from tacit.training.plan import Plan, check_delta

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from types import TracebackType

    from numpy.typing import NDArray
    from torch import Tensor
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.ledger import Budget, Reservation
    from tacit.statement import Statement
    from tacit.training.checkpoint import Stateful
    from tacit.training.guards import Guard
    from tacit.training.loaders import Collate
    from tacit.training.updates import Updates
    from tacit.training.verification import SensitivityCheck


def private(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    plan: Plan,
    dataset: Dataset[Any],
    budget: Budget | Reservation | None = None,
    *,
    groups: Sequence[int] | NDArray[np.int64] | None = None,
    lengths: Sequence[int] | NDArray[np.int64] | None = None,
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
        lengths: How long each example is, where they differ: the number of its tokens, or better of
            those that ``collate`` pads or shortens it to. Rows of like length then share a batch,
            which holds more of them the shorter they are. Like ``performance``, it only serves
            speed.
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
    preflight.check_roles(model, optimizer, plan)
    optimizers = (optimizer,) if isinstance(optimizer, torch.optim.Optimizer) else tuple(optimizer)
    return Session(
        Setup(
            model,
            optimizers,
            plan,
            dataset,
            budget,
            groups=groups,
            lengths=lengths,
            state=dict(state or {}),
            resume=resume,
            performance=performance or Performance(),
            collate=collate,
            stop_after=stop_after,
            unsafe_seed=unsafe_seed,
        )
    )


@final
class Session:
    """A private training run; made by ``tacit.private``.

    The order is enforced: a lot, its batches with one ``backward`` each, one ``step``, and again.
    """

    def __init__(self, setup: Setup) -> None:
        world = joined(_device_of(setup.model), setup.performance.patience)
        try:
            inner = preflight.unwrapped(setup.model)
            self._wrapper = None if inner is setup.model else Wrapper(setup.model)
            self._prepare(world, replace(setup, model=inner))
        except BaseException as error:
            world.failed(error)
            raise

    def _prepare(self, world: World, setup: Setup) -> None:
        self.world, self.plan, self._state = world, setup.plan, setup.state
        self.model, self.optimizers = setup.model, setup.optimizers
        parts = assembled(world, setup)
        self._custody, self._run_state = parts.custody, parts.run_state
        self._weights, self._parameters = parts.weights, parts.weights.parameters
        self._charges, self._clip = parts.run_state.charges, parts.run_state.clip
        self._verifier, self._noise, self._sampler = parts.verifier, parts.noise, parts.sampler
        self._updates, self._computation = parts.updates, parts.computation
        self._rehearsing: NDArray[np.int64] | None = parts.rehearsing  # until the first lot

    # ---- the context

    def __enter__(self) -> Session:
        self._custody.check_enterable()
        try:
            self._run_state.begin()
            self._start_alike()
        except BaseException as error:
            self.world.failed(error)
            raise
        self._forget_recordings()
        if self._wrapper is not None:
            self._wrapper.enter()
        self._custody.enter()
        self._computation.chance.enter()
        return self

    def _start_alike(self) -> None:
        """Replicas start from the weights and buffers of rank 0."""
        if self.world.is_alone:
            return
        at_rest(self.model)
        tensors = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        tensors |= self._parameters
        self.world.broadcast_({n: one for n, one in tensors.items() if not is_sharded(one)})
        if self._weights.sharded is not None:
            self._weights.sharded.start_alike()
        self._custody.seal_again()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        at_home = self._custody.is_at_home
        self._computation.chance.leave()
        if error is not None and at_home:
            self.world.failed(error)
        unfinished = self._computation.draw
        self._computation.leave()
        if self._wrapper is not None:
            self._wrapper.leave()
        self._custody.leave()
        if not at_home:  # neither the ledger nor the weights are the child's
            if kind is None:
                self._custody.check_process()
            return
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
        self._custody.check()

    def __reduce__(self) -> NoReturn:
        raise ProtocolError(
            "a private session cannot be copied or pickled: the copy would take its plan's steps a "
            "second time, uncharged; use dp.save(path) and tacit.private(..., resume=path)"
        )

    @contextmanager
    def public(self) -> Iterator[None]:
        """Ordinary autograd and optimizer steps on public data: nothing is recorded or charged.

        What is computed here from private data is not protected, and so the statement says as an
        assumption that there was none.
        """
        guard = self._custody.inside()
        self._between_lots("dp.public()")
        guard.check_all()
        self._run_state.run.in_public = True
        self._forget_recordings()
        guard.allow(allowed=True)
        modules = guard.modules
        try:
            yield
        finally:
            guard.allow(allowed=False)
            guard.clear_gradients()
            guard.note_all()
            if guard.modules != modules:
                self._verifier.forget()

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
        return max(0, self._run_state.run.last_step - self.steps_taken - self.steps_lost)

    def _drawn(self) -> Generator[Lot, None, None]:
        while self.steps_taken < self._run_state.run.last_step:
            guard = self._custody.inside()
            guard.check_before_lot()
            self._verifier.meet(guard.modes)
            if self._verifier.watches:
                preflight.check_modules(self.model)
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
        if self._sampler.keeps_place:
            self._sampler.go_to(self._run_state.position)
        drawn = self._sampler.draw()
        return drawn if self.world.is_alone else self.world.share(drawn)

    def backward(self, losses: Tensor) -> None:
        """Takes one loss per row of the current batch; clips and adds up their gradients.

        Guarantee:
            No unit adds more than the plan's clip to the sum, whatever its loss is.
        """
        guard = self._custody.inside()
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
        ``Performance(capture=False)``); ``seen`` is called with those of each batch's rows, which
        are secret, save in rehearsals. Values that the function or the model goes by may change
        between lots, as far as its code shows where they are: no file, clock or name that is put
        together on the way. ``dp.explain()`` says what is replayed.
        """
        self._custody.inside()
        computation = self._computation
        try:
            computation.by_function(Losses(losses, seen))
            while not lot.is_done:
                try:
                    for batch in lot:
                        computation.run(batch, self.backward)
                except torch.OutOfMemoryError:
                    # Halved as the loop starts again: its traceback no longer holds activations.
                    if not computation.can_shrink:
                        raise
        finally:
            computation.by_function(None)

    def step(self) -> None:
        """Adds the noise, hands the mean gradient to the optimizers, and lets them step.

        Guarantee:
            The step is counted before its noise is drawn. The noise is fresh, and covers every
            entry of every private parameter, whether or not the lot touched it.
        """
        guard = self._at_the_end_of_a_lot("dp.step()")
        if self._updates is not None and guard.is_recordable and not guard.freezes:
            self._recorded_step(self._updates, guard)
            return
        means = self._released(guard)
        with self._custody.still:
            self._update(means, guard)

    def release(self) -> None:
        """Adds the noise and leaves the mean gradient in ``.grad``, for others to step.

        In place of ``dp.step()`` where a trainer calls ``optimizer.step()`` itself. What ``.grad``
        holds is private and may be looked at; each optimizer must step it once, as it is, before
        the next lot. Of several processes each has the mean of all, and steps it.

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
        guard = self._at_the_end_of_a_lot("dp.release()")
        self._hand_over(self._released(guard))
        guard.expect_step()

    def _at_the_end_of_a_lot(self, what: str) -> Guard:
        guard, draw = self._custody.inside(), self._computation.draw
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
        self._count_step()
        means = self._means(sums)
        self._clip.end(self._noise)
        return means

    def _count_step(self) -> None:
        if self._run_state.memory is not None:
            self._run_state.follow()
        self._run_state.steps_taken += 1

    def _recorded_step(self, updates: Updates, guard: Guard) -> None:
        """Replays noise and update; runs them, and in time records them, where there is no replay.

        A recording begins and ends with the looks at the weights that come before and after a step.
        """
        sums = self._computation.sums
        known = updates.recorded(sums.values())
        guard.check_before_step(compare=known is None)
        self._computation.finished()
        self._count_step()

        def work() -> None:
            guard.compare_values()
            self._update(self._means(sums), guard)

        with self._custody.still:
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
            clip=self._clip.sensitivity,
            scale=self._clip.noise_scale,
            lot_size=self.plan.lot_size,
        )
        sharded, shares = self._weights.sharded, self._weights.shares
        if shares is None:
            if sharded is None:
                return release(self._parameters, sums)
            means = release(*sharded.released_alone(self._parameters, sums))
            return means | sharded.gradients(means)
        stretches, totals = dict(shares.stretches), shares.totals(sums)
        if sharded is not None:
            stretches |= sharded.stretches
            totals |= sharded.totals()
        own = release(self._parameters, totals, stretches=stretches)
        means = shares.means(own)
        return means if sharded is None else means | sharded.gradients(own)

    def _hand_over(self, means: dict[str, Tensor]) -> None:
        """Leaves the means in ``.grad``; a parameter that is frozen by now would move by noise."""
        for name, parameter in self._parameters.items():
            parameter.grad = means[name] if parameter.requires_grad else None

    def _update(self, means: dict[str, Tensor], guard: Guard) -> None:
        self._hand_over(means)
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
        return self._run_state.steps_taken

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
        self._custody.check()
        return claim.statement(
            self.plan,
            check_delta(self.plan.delta_or(delta), self.plan.examples, self.plan.unit),
            self.steps_taken,
            self._run_state.run,
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
        updates = self._updates_in_words()
        replayed = "\n".join(way for way in (self._computation.explain(), updates) if way)
        world = self._world_in_words()
        return "\n\n".join(part for part in (self.plan.describe(), world, rules, replayed) if part)

    def _updates_in_words(self) -> str:
        if self._updates is not None:
            return self._updates.describe()
        if self.plan.correlation is None or not self._computation.records:
            return ""
        return (
            "Noise and update are computed each time, not replayed: correlated noise is mixed with "
            "that of earlier steps."
        )

    def _world_in_words(self) -> str:
        sharded = self._weights.sharded
        if self.world.is_alone and sharded is None:
            return ""
        spread = "replicas" if sharded is None else sharded.describe()
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
        self._custody.inside()
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
        self._custody.check()
        pack = partial(
            packed,
            model=self.model,
            optimizers=self.optimizers,
            state={**self._state, **self._run_state.state()},
            plan_json=self.plan.to_json(),
            steps_taken=self.steps_taken,
        )
        memory = self._run_state.memory
        spread = memory is not None and memory.is_spread
        gathered = pack() if spread or self._weights.sharded is not None else None  # by all ranks
        self.world.said(
            f"dp.save() after {self.steps_taken} steps",
            lambda: checkpoint_file.write(Path(path), *(gathered or pack())),
        )

    # ---- order

    def _lot(
        self, units: NDArray[np.int64], sample: Callable[[], NDArray[np.int64]] | None = None
    ) -> Lot:
        """A lot of these units, as the current one; with ``sample``, they only rehearse."""
        draw = Draw(self.steps_taken, units, sample)
        self._computation.begin(draw)
        return Lot(draw, self.plan, self._computation)

    def _between_lots(self, what: str) -> None:
        draw = self._computation.draw
        if draw is not None:
            raise ProtocolError(f"{what} comes between lots; lot {draw.step} waits for dp.step()")


def _device_of(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _is_of_grad_scaler(error: BaseException | None) -> bool:
    """Whether torch's GradScaler gave up, as it does where it finds no gradients to unscale."""
    if not isinstance(error, AssertionError):
        return False
    frames = [frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1:] == ["torch.amp.grad_scaler"]
