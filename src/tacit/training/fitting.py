"""``fit``: a whole private training run in one call, written with the session's public names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.training.averaging import Averaging, averaged
from tacit.training.judging import (
    accuracy,
    check_held_out,
    check_judge,
    default_correct,
    default_loss,
)
from tacit.training.plan import check_delta
from tacit.training.preflight import check_place, check_scheduler
from tacit.training.progress import EpochRecord, display
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
    from tacit.training.judging import RowWise
    from tacit.training.loaders import Collate
    from tacit.training.lot import Lot
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.progress import Display
    from tacit.training.session import Session

__all__ = [
    "Fit",
    "accuracy",
    "averaged",
    "default_correct",
    "default_loss",
    "finished_epoch",
    "fit",
]


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """What a run leaves: its epochs in public numbers, and what may be claimed of it.

    ``stopped`` says that ``stop`` ended it before its plan was spent.
    """

    history: tuple[EpochRecord, ...]
    statement: Statement
    stopped: bool = False


def fit(
    model: nn.Module,
    dataset: Dataset[Any],
    plan: Plan,
    *,
    optimizer: Optimizer | Sequence[Optimizer],
    delta: float,
    loss: RowWise | None = None,
    held_out: Dataset[Any] | None = None,
    correct: RowWise | None = None,
    scheduler: LRScheduler | None = None,
    state: Mapping[str, Stateful] | None = None,
    save: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    budget: Budget | Reservation | None = None,
    groups: Sequence[int] | NDArray[np.int64] | None = None,
    collate: Collate | None = None,
    performance: Performance | None = None,
    progress: bool | None = None,
    average: AveragedModel | None = None,
    average_from: int = 0,
    stop: Callable[[], bool] | None = None,
    also: Event | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
) -> Fit:
    """Trains ``model`` with the whole of ``plan``, and says what that gave away.

    Args:
        model: What is trained, in place.
        dataset: The private data; ``plan.examples`` of them.
        plan: The run, as in ``tacit.private``.
        optimizer: Over the parameters that are to be trained; or several, which share them out.
        delta: The δ at which ε is reported; below 1/``plan.examples``.
        loss: ``loss(model, batch)``, one number per row, shape (rows,); ``tacit.losses`` has some.
            Left out, a batch is ``(x, y)`` and the loss the cross entropy of ``model(x)``.
        held_out: Public or held-out data, on which accuracy is measured after every epoch. What is
            measured there is published, so none of it may be in ``dataset``.
        correct: ``correct(model, batch)``, true for each row that is right. Left out, a batch is
            ``(x, y)`` and a row is right where ``model(x)`` is largest at ``y``; a model with one
            output, or real labels, needs its own.
        scheduler: Stepped after every step of the plan, and kept in the checkpoint. One that
            follows a metric (``ReduceLROnPlateau``) is refused.
        state: More that joins the checkpoint, by name.
        save: Where to keep a checkpoint, replaced after every epoch; its folder is made if needed.
        resume: A checkpoint to go on from; the history then starts there.
        budget: The budget that the plan is charged to, as in ``tacit.private``.
        groups: The user of every example, if the plan's unit is the user.
        collate: Makes a batch of a list of examples, for both data sets.
        performance: What is not privacy: batch sizes, compilation, workers.
        progress: Whether progress goes to standard error; left out, if that is a terminal. The
            private training loss is shown on a terminal only, and nowhere kept.
        average: An average of the weights over the steps (``torch.optim.swa_utils``), which is
            updated after every step and joins the checkpoint. Once it holds something, held-out
            accuracy is the average's. It is computed from the released weights only, so it costs
            nothing.
        average_from: The first step that is averaged; steps are counted from 1.
        stop: Asked after every step but the last; if it is true, the run ends there, with a
            checkpoint if ``save`` is given. The whole plan stays charged.
        also: What else was released of the same data: every ε that is shown or recorded counts
            it. The statement is of the plan alone; ``tacit.statement.extended`` adds the rest.
        on_epoch: Told every epoch's record, before the checkpoint is written.

    Guarantee:
        The trained model, the history and the statement together give away what the statement says,
        provided that ``held_out`` is independent of ``dataset``.

    >>> import tacit, torch
    >>> x = torch.randn(300, 4)
    >>> data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    >>> train, test = (torch.utils.data.Subset(data, r) for r in (range(200), range(200, 300)))
    >>> model = torch.nn.Linear(4, 2)
    >>> plan = tacit.Plan.for_budget(
    ...     epsilon=3, delta=1e-4, examples=200, lot_size=20, epochs=2, clip=1.0
    ... )
    >>> done = tacit.fit(
    ...     model, train, plan, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), delta=1e-4,
    ...     held_out=test,
    ... )
    >>> [record.steps for record in done.history], round(done.statement.epsilon, 3)
    ([10, 20], 3.0)
    """
    delta = check_delta(delta, plan.examples, plan.unit)
    optimizers = (optimizer,) if isinstance(optimizer, torch.optim.Optimizer) else tuple(optimizer)
    check_scheduler(scheduler, optimizers)
    check_place("save", save)
    check_held_out(dataset, held_out)
    check_judge(model, held_out, correct, collate)
    averaging = Averaging(model, average, whole("average_from", average_from, at_least=0))
    with private(
        model, optimizers, plan, dataset, budget,
        groups=groups, state=_joined(state, scheduler=scheduler, average=average), resume=resume,
        performance=performance, collate=collate,
    ) as dp:  # fmt: skip
        history: list[EpochRecord] = []
        spent = _spending(dp, delta, also)
        stopped = _Stopping(dp, stop)
        with display(progress, steps=plan.steps, taken=dp.steps_taken, delta=delta) as shown:
            for epoch in _epochs(
                dp, loss or default_loss, scheduler, averaging, shown, spent, stopped
            ):
                right = None
                if held_out is not None:
                    right = accuracy(averaging.best, held_out, correct=correct, collate=collate)
                record = EpochRecord(
                    epoch=epoch, steps=dp.steps_taken, held_out_accuracy=right, epsilon=spent()
                )  # fmt: skip
                history.append(record)
                if on_epoch is not None:
                    on_epoch(record)
                if save is not None:
                    dp.save(save)
                shown.epoch(record)  # last: a crash cannot rewind what was told
        if stopped.early and save is not None:
            dp.save(save)
        return Fit(tuple(history), dp.statement(delta), stopped.early)


def _epochs(
    dp: Session,
    loss: RowWise,
    scheduler: LRScheduler | None,
    averaging: Averaging,
    shown: Display,
    spent: Callable[[], float],
    stopped: _Stopping,
) -> Iterator[int]:
    """Trains, and stops after each epoch with its number."""

    def noted(lot: Lot, batch: Any) -> torch.Tensor:
        values = loss(dp.model, batch)
        if not lot.is_rehearsal:
            shown.losses(values)
        return values

    for lot in dp.lots():
        dp.accumulate(lot, partial(noted, lot))
        dp.step()
        if scheduler is not None:
            scheduler.step()
        averaging.after(dp.steps_taken)
        shown.step(dp.steps_taken, spent)
        epoch = finished_epoch(dp.plan, dp.steps_taken)
        if epoch is not None:
            yield epoch
        if stopped.now():
            return


@final
class _Stopping:
    """Whether the run was asked to stop before its end."""

    def __init__(self, dp: Session, stop: Callable[[], bool] | None) -> None:
        self._dp, self._stop = dp, stop
        self.early = False

    def now(self) -> bool:
        """Asks; after the last step there is nothing to stop."""
        left = self._dp.steps_taken < self._dp.plan.steps
        self.early = left and self._stop is not None and self._stop()
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
    before, after = (int(count * plan.sample_rate + 1e-9) for count in (steps - 1, steps))
    if after > before:
        return after
    return after + 1 if steps == plan.steps else None


def _joined(
    state: Mapping[str, Stateful] | None,
    *,
    scheduler: LRScheduler | None,
    average: AveragedModel | None,
) -> dict[str, Stateful]:
    """``state`` with what has an argument of its own."""
    joined = dict(state or {})
    own: dict[str, Stateful | None] = {"scheduler": scheduler, "average": average}
    for name, item in own.items():
        if item is not None and joined.setdefault(name, item) is not item:
            raise InvalidArgument(f"state[{name!r}] must be left to {name}=, got another object")
    return joined
