"""A whole private training run: a prepared model and data, carried out by the session's names.

``tacit.fit`` (in ``tacit.runs``) is what users call; recipes, searches and audits hand the same
``Prepared`` value to ``carry_out``.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch

from tacit._validation import check_delta, whole
from tacit.errors import InvalidArgument
from tacit.statement import extended
from tacit.training.evaluation import (
    accuracy,
    check_held_out,
    check_judge,
    default_loss,
    measured,
    scores_classes,
)
from tacit.training.preflight import check_loss, check_place, check_rates, check_scheduler
from tacit.training.progress import EpochRecord, StepRecord, display
from tacit.training.session import private

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.optim.swa_utils import AveragedModel
    from torch.utils.data import Dataset

    from tacit.accounting.events import Event
    from tacit.ledger import Budget, Reservation
    from tacit.statement import Statement
    from tacit.training.checkpoint import Stateful
    from tacit.training.evaluation import Metric, RowWise
    from tacit.training.loaders import Collate
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.progress import Display
    from tacit.training.session import Session


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """What changes with the steps: the learning rate, and an average of the weights.

    Args:
        scheduler: Stepped after every step of the plan, and kept in the checkpoint. One that
            follows a metric (``ReduceLROnPlateau``) is refused.
        average: An average of the weights over the steps (``torch.optim.swa_utils``), which is
            updated after every step and joins the checkpoint. Once it holds something, held-out
            accuracy is the average's, and it is what is released. It is computed from the released
            weights only, so it costs nothing.
        average_from: The first step that is averaged; steps are counted from 1.
    """

    scheduler: LRScheduler | None = None
    average: AveragedModel | None = None
    average_from: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """Everything that a training run needs, as one value.

    Args:
        model: What is trained, in place.
        optimizer: Over the parameters that are to be trained; or several, which share them out.
        plan: The run, as in ``tacit.private``.
        dataset: The private data; ``plan.examples`` of them.
        loss: ``loss(model, batch)``, one number per row, shape (rows,), such as
            ``lambda model, batch: tacit.losses.mse(model(batch[0]), batch[1])``. Left out, a batch
            is ``(x, y)`` and the loss the cross entropy of ``model(x)``.
        held_out: Public or held-out data, on which accuracy is measured after every epoch. What is
            measured there is published, so none of it may be in ``dataset``.
        correct: ``correct(model, batch)``, true for each row that is right. Left out, a batch is
            ``(x, y)`` and a row is right where ``model(x)`` is largest at ``y``; a model with one
            output, or real labels, needs its own, or ``metrics``.
        metrics: What else is measured on ``held_out`` after every epoch, by name:
            ``metric(model, batches)``, a number, for all of its batches in their order.
        collate: Makes a batch of a list of examples, for both data sets.
        groups: The user of every example, if the plan's unit is the user.
        lengths: How long each example is, as in ``tacit.private``.
        schedule: The learning rate and the average of the weights.
        performance: What is not privacy: batch sizes, compilation, workers.
        tf32: Whether a GPU multiplies in TF32, which is faster, or in full single precision; left
            out, as PyTorch is set.
        unit_in_words: What one example, or one user, is, for the claim: ``"one speech of a play"``.
        notes: What a reader of the result should know beside the statement.
        public: What went into the run and is the same whatever the private data are, such as the
            weights it began with. The statement lists it at no cost, and that as an assumption.
    """

    model: nn.Module
    optimizer: Optimizer | Sequence[Optimizer]
    plan: Plan
    dataset: Dataset[Any] = field(repr=False)  # a list's text would be its rows
    loss: RowWise | None = None
    held_out: Dataset[Any] | None = None
    correct: RowWise | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    collate: Collate | None = None
    # Of every example, and so secret: not for a notebook's screen.
    groups: Sequence[int] | NDArray[np.int64] | None = field(default=None, repr=False)
    lengths: Sequence[int] | NDArray[np.int64] | None = field(default=None, repr=False)
    schedule: Schedule = field(default_factory=Schedule)
    performance: Performance | None = None
    tf32: bool | None = None
    unit_in_words: str = ""
    notes: tuple[str, ...] = ()
    public: tuple[str, ...] = ()

    @property
    def released(self) -> nn.Module:
        """The model that is released: the average of its weights, if there is one."""
        average = self.schedule.average
        return self.model if average is None else average.module

    @property
    def final(self) -> nn.Module:
        """The same, but for an average that holds no step yet."""
        return self.released if averaged(self.schedule.average) else self.model

    def accuracy(self, model: nn.Module) -> float | None:
        """The share of held-out rows that ``model`` gets right, if that can be said of them."""
        if self.held_out is None or not self.judges(model):
            return None
        return accuracy(model, self.held_out, correct=self.correct, collate=self.collate)

    def judges(self, model: nn.Module) -> bool:
        """Whether held-out rows are right or wrong; beside metrics, they need not be."""
        if self.held_out is None or self.correct is not None or not self.metrics:
            return self.held_out is not None
        return scores_classes(model, self.held_out, self.collate)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Keeping:
    """What a run keeps so that it can go on.

    Args:
        save: Where to keep a checkpoint, replaced after every epoch; its folder is made if needed.
        resume: A checkpoint to go on from; the history then starts there.
        state: More that joins the checkpoint, by name.
        note: Called with every epoch's record before the checkpoint is written, so that what joins
            it can hold the epoch. It must not release it: a crash may still undo the epoch.
    """

    save: str | os.PathLike[str] | None = None
    resume: str | os.PathLike[str] | None = None
    state: Mapping[str, Stateful] = field(default_factory=dict)
    note: Callable[[EpochRecord], None] | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Watch:
    """Who looks on.

    Args:
        progress: Whether progress goes to standard error: a bar on a terminal, elsewhere a line per
            epoch. The secret training loss is shown on a terminal only, and kept nowhere.
        on_epoch: Called with every epoch's record, once the checkpoint is written: an epoch that a
            crash undid is trained again, and must not have been seen before.
        on_step: Called with every step's record.
        on_secret_loss: Called after every step with the mean loss of its lot, which is secret.
        stop: Asked after every step but the last; if it is true, the run ends there, with a
            checkpoint if one is kept. The whole plan stays charged.
    """

    progress: bool | None = None
    on_epoch: Callable[[EpochRecord], None] | None = None
    on_step: Callable[[StepRecord], None] | None = None
    on_secret_loss: Callable[[float], None] | None = None
    stop: Callable[[], bool] | None = None


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """What a run leaves: its epochs in public numbers, and what may be claimed of it.

    ``stopped`` says that it was stopped before its plan was spent.
    """

    history: tuple[EpochRecord, ...]
    statement: Statement
    stopped: bool = False


_KEEPING, _WATCH = Keeping(), Watch()


def carry_out(
    prepared: Prepared,
    *,
    delta: float | None = None,
    budget: Budget | Reservation | None = None,
    keeping: Keeping = _KEEPING,
    watch: Watch = _WATCH,
    also: Event | None = None,
) -> Fit:
    """Trains with the whole of the plan, and says what that gave away.

    Args:
        prepared: What is trained, and on what.
        delta: The δ at which ε is reported, below 1/``plan.examples``; left out, the plan's own.
        budget: The budget that the plan is charged to, as in ``tacit.private``.
        keeping: What is kept so that it can go on.
        watch: Who looks on.
        also: What else was released of the same data: every ε that is shown or recorded counts
            it. The statement is of the plan alone; ``tacit.statement.extended`` adds the rest.

    Guarantee:
        The trained model, the history and the statement together give away what the statement says,
        provided that ``held_out`` is independent of ``dataset``.
    """
    plan, schedule = prepared.plan, prepared.schedule
    delta = check_delta(plan.delta_or(delta), plan.examples, plan.unit)
    averaging = _checked(prepared, keeping)
    state = _joined(keeping.state, scheduler=schedule.scheduler, average=schedule.average)
    with arithmetic(tf32=prepared.tf32), private(
        prepared.model, prepared.optimizer, plan, prepared.dataset, budget,
        groups=prepared.groups, lengths=prepared.lengths, state=state, resume=keeping.resume,
        performance=prepared.performance, collate=prepared.collate,
    ) as dp:  # fmt: skip
        history: list[EpochRecord] = []
        spent = _spending(dp, delta, also)
        stopped = _Stopping(dp, watch.stop)
        progress = watch.progress if dp.world.leads else False
        with display(progress, steps=plan.steps, taken=dp.steps_taken, delta=delta) as shown:
            seen = _Seen(prepared, watch, shown)
            begun = _keeping_groups(dp, keeping)
            for epoch in _epochs(dp, prepared, averaging, seen, spent, stopped, begun):
                record = EpochRecord(
                    epoch=epoch, steps=dp.steps_taken, epsilon=spent(),
                    held_out_accuracy=prepared.accuracy(averaging.best),
                    metrics=_measured(prepared, averaging.best),
                )  # fmt: skip
                history.append(record)
                if keeping.note is not None:
                    keeping.note(record)
                if keeping.save is not None:
                    dp.save(keeping.save)
                shown.epoch(record)  # after saving: a crash cannot rewind what was shown
                if watch.on_epoch is not None:
                    watch.on_epoch(record)
        if stopped.early and keeping.save is not None:
            dp.save(keeping.save)
        statement = with_unit(dp.statement(delta), prepared.unit_in_words)
        return Fit(tuple(history), statement, stopped.early)


def with_unit(statement: Statement, in_words: str) -> Statement:
    """The claim, which then also says what its unit is."""
    if not in_words:
        return statement
    return extended(statement, assumptions=f"one {statement.unit} is {in_words}")


def _checked(prepared: Prepared, keeping: Keeping) -> _Averaging:
    """Refuses what cannot be carried out, before anything is charged."""
    schedule = prepared.schedule
    _check_parts(prepared)
    check_place("save", keeping.save)
    check_held_out(prepared.dataset, prepared.held_out)
    check_judge(
        prepared.model, prepared.held_out, prepared.correct, prepared.collate, prepared.metrics
    )
    first = whole("average_from", schedule.average_from, at_least=0)
    return _Averaging(prepared.model, schedule.average, first)


def check_trainable(prepared: Prepared) -> None:
    """Refuses a loss, a schedule or a learning rate that cannot teach, before a user's run.

    ``carry_out`` takes a rate of 0, by which audits keep the weights where they are.
    """
    _check_parts(prepared)
    check_rates(_optimizers(prepared), prepared.schedule.scheduler)


def _check_parts(prepared: Prepared) -> None:
    """Refuses a loss or a schedule that is none."""
    schedule = prepared.schedule
    if not isinstance(schedule, Schedule):
        raise InvalidArgument(
            f"schedule must be a tacit.Schedule, got a {type(schedule).__name__}; a scheduler of "
            "PyTorch's goes into tacit.Schedule(scheduler=...)"
        )
    check_loss(prepared.loss)
    check_scheduler(schedule.scheduler, _optimizers(prepared))


def _optimizers(prepared: Prepared) -> tuple[Optimizer, ...]:
    given = prepared.optimizer
    return (given,) if isinstance(given, torch.optim.Optimizer) else tuple(given)


def _measured(prepared: Prepared, model: nn.Module) -> dict[str, float | None]:
    if prepared.held_out is None:
        return {}
    return measured(model, prepared.held_out, prepared.metrics, collate=prepared.collate)


@final
class _Seen:
    """Passes on what is seen of a step: losses where they were asked for, else public numbers."""

    def __init__(self, prepared: Prepared, watch: Watch, shown: Display) -> None:
        self._optimizers, self._watch, self._shown = _optimizers(prepared), watch, shown
        self._sum: torch.Tensor | None = None
        self._rows = 0

    def losses(self, values: torch.Tensor) -> None:
        """Takes a batch's losses, which are secret."""
        self._shown.losses(values)
        if self._watch.on_secret_loss is not None:
            total = values.detach().double().sum()
            self._sum = total if self._sum is None else self._sum + total
            self._rows += values.numel()

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates of the step that is about to be made."""
        return tuple(float(one["lr"]) for each in self._optimizers for one in each.param_groups)

    def step(self, dp: Session, rates: tuple[float, ...], spent: Callable[[], float]) -> None:
        """Takes a step, which is made."""
        steps, watch = dp.steps_taken, self._watch
        self._shown.step(steps, spent)
        if watch.on_step is not None:
            epoch = dp.plan.epochs_in(steps)
            watch.on_step(StepRecord(steps=steps, epoch=epoch, learning_rates=rates))
        if watch.on_secret_loss is not None:
            mean = math.nan if self._sum is None else self._sum.item() / max(self._rows, 1)
            self._sum, self._rows = None, 0
            watch.on_secret_loss(mean)


def _epochs(
    dp: Session,
    prepared: Prepared,
    averaging: _Averaging,
    seen: _Seen,
    spent: Callable[[], float],
    stopped: _Stopping,
    begun: Callable[[], None] | None,
) -> Iterator[int]:
    """Trains, and stops after each epoch with its number; ``begun`` comes after the first step."""
    losses = partial(prepared.loss or default_loss, dp.model)
    scheduler = prepared.schedule.scheduler
    for lot in dp.lots():
        dp.accumulate(lot, losses, seen=seen.losses)
        rates = seen.rates
        dp.step()
        if scheduler is not None:
            scheduler.step()
        averaging.after(dp.steps_taken)
        if begun is not None:
            begun()
            begun = None
        seen.step(dp, rates, spent)
        epoch = finished_epoch(dp.plan, dp.steps_taken)
        if epoch is not None:
            yield epoch
        if stopped.now():
            return


def _keeping_groups(dp: Session, keeping: Keeping) -> Callable[[], None] | None:
    """What keeps the groups that take turns from the first step on, if there are any.

    Without them a run that is charged cannot go on: a crash would cost all of it.
    """
    if keeping.save is None or dp.plan.groups == 1 or dp.steps_taken:
        return None
    return partial(dp.save, keeping.save)


@final
class _Stopping:
    """Whether the run was asked to stop before its end."""

    def __init__(self, dp: Session, stop: Callable[[], bool] | None) -> None:
        self._dp, self._stop = dp, stop
        self.early = False

    def now(self) -> bool:
        """Asks; after the last step there is nothing to stop."""
        left = self._dp.steps_taken < self._dp.plan.steps
        if left and self._stop is not None:
            self.early = self._dp.world.any("whether to stop", self._stop())
        return self.early


def _spending(dp: Session, delta: float, also: Event | None) -> Callable[[], float]:
    """Tells ε so far, with what else was released."""
    if also is None:
        return lambda: dp.spent(delta)

    def spent() -> float:
        from tacit.accounting import Composed, epsilon  # noqa: PLC0415 - SciPy only when asked

        steps = dp.steps_taken + dp.steps_lost
        event = Composed(also, dp.plan.event_after(steps))
        return epsilon(event, delta, adjacency=dp.plan.adjacency)

    return spent


def finished_epoch(plan: Plan, steps: int) -> int | None:
    """The number of the epoch that ends with this many steps, if one does; the plan's end is one.

    An epoch is ``examples / lot_size`` steps, the time in which each record is seen once on
    average.
    """
    before, after = plan.epochs_in(steps - 1), plan.epochs_in(steps)
    if after > before:
        return after
    return after + 1 if steps == plan.steps else None


# ---- an average of the weights over the steps: computed from what is released, and so free


@final
class _Averaging:
    """The average of the weights, if one is kept."""

    def __init__(self, model: nn.Module, average: AveragedModel | None, first: int) -> None:
        self._model, self._average, self._first = model, average, first
        if average is not None and _shapes(average.module) != _shapes(model):
            raise InvalidArgument(
                "average must be an average of this model, as AveragedModel(model), got one whose "
                "parameters have other names or shapes"
            )

    def after(self, steps: int) -> None:
        """Takes the weights after this many steps in."""
        if self._average is not None and steps >= self._first:
            self._average.update_parameters(self._model)

    @property
    def best(self) -> nn.Module:
        """What is to be judged: the average once it holds something, else the model."""
        return self._model if not averaged(self._average) else self._average.module  # type: ignore[union-attr]


def averaged(average: AveragedModel | None) -> bool:
    """Whether an average was given, and holds the weights of at least one step."""
    return average is not None and int(average.n_averaged) > 0


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in model.named_parameters()}


@contextmanager
def arithmetic(*, tf32: bool | None) -> Iterator[None]:
    """Products on a GPU in TF32 for a while, which is faster, or in full single precision.

    None leaves PyTorch as it is; its own default is TF32 for convolutions.
    """
    if tf32 is None:
        yield
        return
    matrices, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        torch.backends.cudnn.allow_tf32 = convolutions


def _joined(
    state: Mapping[str, Stateful],
    *,
    scheduler: LRScheduler | None,
    average: AveragedModel | None,
) -> dict[str, Stateful]:
    """``state`` with what has an argument of its own."""
    joined = dict(state)
    own: dict[str, Stateful | None] = {"scheduler": scheduler, "average": average}
    for name, item in own.items():
        if item is not None and joined.setdefault(name, item) is not item:
            raise InvalidArgument(f"state[{name!r}] must be left to {name}=, got another object")
    return joined
