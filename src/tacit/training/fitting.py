"""``fit``: a whole private training run in one call, written with the session's public names."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import torch
from torch.utils.data import Subset

from tacit import losses
from tacit._validation import open_probability
from tacit.errors import InvalidArgument
from tacit.training.loading import make_loader
from tacit.training.progress import EpochRecord, display
from tacit.training.session import private

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Dataset

    from tacit.ledger import Budget, Reservation
    from tacit.statement import Statement
    from tacit.training.checkpoint import Stateful
    from tacit.training.loading import Collate
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.progress import Display
    from tacit.training.session import Session

RowWise: TypeAlias = "Callable[[nn.Module, Any], torch.Tensor]"

_HELD_OUT_BATCH = 1024


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """What a run leaves: its epochs in public numbers, and what may be claimed of it."""

    history: tuple[EpochRecord, ...]
    statement: Statement


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
) -> Fit:
    """Trains ``model`` with the whole of ``plan``, and says what that gave away.

    Args:
        model: What is trained, in place.
        dataset: The private data; ``plan.examples`` of them.
        plan: The run, as in ``tacit.private``.
        optimizer: Over the parameters that are to be trained; or several, which share them out.
        delta: The δ at which ε is reported.
        loss: ``loss(model, batch)``, one number per row, shape (rows,); ``tacit.losses`` has some.
            Left out, a batch is ``(x, y)`` and the loss the cross entropy of ``model(x)``.
        held_out: Public or held-out data, on which accuracy is measured after every epoch. What is
            measured there is published, so none of it may be in ``dataset``.
        correct: ``correct(model, batch)``, true for each row that is right. Left out, a batch is
            ``(x, y)`` and a row is right where ``model(x)`` is largest at ``y``.
        scheduler: Stepped after every step of the plan, and kept in the checkpoint.
        state: More that joins the checkpoint, by name.
        save: Where to keep a checkpoint, replaced after every epoch.
        resume: A checkpoint to go on from; the history then starts there.
        budget: The budget that the plan is charged to, as in ``tacit.private``.
        groups: The user of every example, if the plan's unit is the user.
        collate: Makes a batch of a list of examples, for both data sets.
        performance: What is not privacy: batch sizes, compilation, workers.
        progress: Whether progress goes to standard error; left out, if that is a terminal. The
            private training loss is shown on a terminal only, and nowhere kept.

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
    delta = open_probability("delta", delta)
    _check_held_out(dataset, held_out)
    with private(
        model, optimizer, plan, dataset, budget,
        groups=groups, state=_with_scheduler(state, scheduler), resume=resume,
        performance=performance, collate=collate,
    ) as dp:  # fmt: skip
        history: list[EpochRecord] = []
        with display(progress, steps=plan.steps, taken=dp.steps_taken, delta=delta) as shown:
            for epoch, seconds in _epochs(dp, loss or default_loss, scheduler, shown, delta):
                right = None
                if held_out is not None:
                    right = accuracy(model, held_out, correct=correct, collate=collate)
                record = EpochRecord(
                    epoch=epoch, steps=dp.steps_taken, held_out_accuracy=right,
                    epsilon=dp.spent(delta), seconds=seconds,
                )  # fmt: skip
                history.append(record)
                shown.epoch(record)
                if save is not None:
                    dp.save(save)
        return Fit(tuple(history), dp.statement(delta))


def _epochs(
    dp: Session,
    loss: RowWise,
    scheduler: LRScheduler | None,
    shown: Display,
    delta: float,
) -> Iterator[tuple[int, float]]:
    """Trains, and stops after each epoch with its number and how long it took."""

    def noted(batch: Any) -> torch.Tensor:
        values = loss(dp.model, batch)
        shown.losses(values)
        return values

    started = time.perf_counter()
    for lot in dp.lots():
        dp.accumulate(lot, noted)
        dp.step()
        if scheduler is not None:
            scheduler.step()
        shown.step(dp.steps_taken, lambda: dp.spent(delta))
        epoch = finished_epoch(dp.plan, dp.steps_taken)
        if epoch is not None:
            yield epoch, time.perf_counter() - started
            started = time.perf_counter()


def default_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """The cross entropy of ``model(x)`` for a batch ``(x, y)``."""
    x, y = _pair(batch, "loss")
    return losses.cross_entropy(model(x), y)


def default_correct(model: nn.Module, batch: Any) -> torch.Tensor:
    """Where ``model(x)`` is largest at ``y``, for a batch ``(x, y)``."""
    x, y = _pair(batch, "correct")
    found: torch.Tensor = model(x).argmax(1) == y
    return found


def accuracy(
    model: nn.Module,
    dataset: Dataset[Any],
    *,
    correct: RowWise | None = None,
    collate: Collate | None = None,
) -> float:
    """The share of rows that ``model`` gets right, in evaluation mode and without gradients.

    It says something of ``dataset``, so that must be public or held out.
    """
    judge = correct or default_correct
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    loader = make_loader(dataset, device, collate, workers=0, pin_memory=False)
    length = len(dataset)  # type: ignore[arg-type]  # a map-style data set has one
    every = np.arange(length, dtype=np.int64)
    parts = (every[start : start + _HELD_OUT_BATCH] for start in range(0, length, _HELD_OUT_BATCH))
    right = rows = 0
    with _evaluating(model):
        for batch in loader.batches(parts):
            found = judge(model, batch)
            right += int(found.sum())
            rows += found.numel()
    if not rows:
        raise InvalidArgument("held_out must hold at least one example, got none")
    return right / rows


def finished_epoch(plan: Plan, steps: int) -> int | None:
    """The number of the epoch that ends with this many steps, if one does; the plan's end is one.

    An epoch is ``examples / lot_size`` steps, the time in which each record is seen once on
    average.
    """
    before, after = (int(count * plan.sample_rate + 1e-9) for count in (steps - 1, steps))
    if after > before:
        return after
    return after + 1 if steps == plan.steps else None


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:  # each its own, for some may be frozen
            module.training = training


def _pair(batch: Any, argument: str) -> tuple[Any, Any]:
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise InvalidArgument(
            f"{argument} must be given when a batch is not a pair (x, y), "
            f"got a batch that is a {type(batch).__name__}: pass {argument}=f, for f(model, batch)"
        )
    return batch[0], batch[1]


def _with_scheduler(
    state: Mapping[str, Stateful] | None, scheduler: LRScheduler | None
) -> dict[str, Stateful]:
    joined = dict(state or {})
    if scheduler is None:
        return joined
    if joined.setdefault("scheduler", scheduler) is not scheduler:
        raise InvalidArgument("state['scheduler'] must be left to scheduler=, got another object")
    return joined


def _check_held_out(dataset: Dataset[Any], held_out: Dataset[Any] | None) -> None:
    remedy = "accuracy on it would give the private data away: hold other examples out"
    if held_out is None:
        return
    if held_out is dataset:
        raise InvalidArgument(f"held_out must not be the private data set itself; {remedy}")
    (base, chosen), (other, trained_on) = _base(held_out), _base(dataset)
    apart = chosen is not None and trained_on is not None and not {*chosen} & {*trained_on}
    if base is other and not apart:
        raise InvalidArgument(f"held_out must not share examples with the private data; {remedy}")


def _base(dataset: Dataset[Any]) -> tuple[Dataset[Any], list[int] | None]:
    """The data set below nested subsets, and which of its examples they choose (None: all)."""
    if not isinstance(dataset, Subset):
        return dataset, None
    base, inner = _base(dataset.dataset)
    return base, [int(i) if inner is None else inner[i] for i in dataset.indices]
