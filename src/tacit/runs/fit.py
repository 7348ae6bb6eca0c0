"""``tacit.fit``: a whole private training run of your own model and data, in one call."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from tacit._validation import check_delta
from tacit.errors import InvalidArgument
from tacit.runs import claims
from tacit.runs.interruption import Interrupted, stoppable
from tacit.runs.job import Job, RunTerms, Surroundings
from tacit.runs.recipe import Outline
from tacit.runs.record import RunRecord
from tacit.runs.run import Place, kept_run
from tacit.training.fit import Fit, Prepared, Schedule, Watch, carry_out, check_trainable
from tacit.training.preflight import check_roles

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.ledger import Budget, Reservation
    from tacit.runs.results import Trained
    from tacit.training.evaluation import Metric, RowWise
    from tacit.training.loaders import Collate
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan
    from tacit.training.progress import EpochRecord, StepRecord

_TUNING: Final = "not known: settings that were chosen with the same data are not covered"
_SCHEDULE: Final = Schedule()
_NONE: Final[Mapping[str, Metric]] = {}


def fit(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    plan: Plan,
    dataset: Dataset[Any],
    budget: Budget | Reservation | None = None,
    *,
    loss: RowWise | None = None,
    held_out: Dataset[Any] | None = None,
    correct: RowWise | None = None,
    metrics: Mapping[str, Metric] = _NONE,
    collate: Collate | None = None,
    groups: Sequence[int] | NDArray[np.int64] | None = None,
    lengths: Sequence[int] | NDArray[np.int64] | None = None,
    schedule: Schedule = _SCHEDULE,
    performance: Performance | None = None,
    delta: float | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    on_secret_loss: Callable[[float], None] | None = None,
) -> Fit:
    """Trains ``model`` by the whole ``plan``, and says how much that gives away.

    Args:
        model: What is trained, in place.
        optimizer: Over the parameters that are to be trained; or several, which share them out.
        plan: The run, as in ``tacit.private``.
        dataset: The private data; ``plan.examples`` of them.
        budget: The budget that the plan is charged to, as in ``tacit.private``.
        loss: ``loss(model, batch)``, one number per row, shape (rows,), such as
            ``lambda model, batch: tacit.losses.mse(model(batch[0]), batch[1])``. Left out, a batch
            is ``(x, y)`` and the loss the cross entropy of ``model(x)``.
        held_out: Public or held-out data, on which accuracy is measured after every epoch. What is
            measured there is published, so none of it may be in ``dataset``.
        correct: ``correct(model, batch)``, true for each row that is right. Left out, a batch is
            ``(x, y)`` and a row is right where ``model(x)`` is largest at ``y``; a model with one
            output, or real labels, needs its own, or ``metrics`` instead.
        metrics: What else is measured on ``held_out`` after every epoch, by name:
            ``metrics={"auc": f}``, for ``f(model, batches)`` that gives a number, where ``batches``
            are all of the held-out data in their order. Each is called once before the first step,
            so that an error costs nothing. Its values are recorded and published.
        collate: Makes a batch of a list of examples, for both data sets.
        groups: The user of every example, if the plan's unit is the user.
        lengths: How long each example is, as in ``tacit.private``: rows of like length share a
            batch. It only serves speed.
        schedule: The learning rate over the steps, and an average of the weights.
        performance: What is not privacy: batch sizes, compilation, workers.
        delta: The δ at which ε is reported, below 1/``plan.examples``; left out, the one that the
            plan was made for.
        out: A new or empty folder for the run: its checkpoint while it goes, then the model, its
            history, its statement and its record, as ``tacit train`` leaves them. ``tacit report``,
            ``tacit audit`` and ``tacit.load`` read it. Ctrl-C saves before it is raised.
        resume: Whether to go on with the run that ``out`` holds, given the same arguments.
        progress: Whether progress goes to standard error: a bar on a terminal, elsewhere (in a log
            or a notebook) a line per epoch; False shows nothing. The secret training loss is shown
            on a terminal only, and kept nowhere.
        on_epoch: Called with every epoch's record, once the epoch is saved; after a crash it is not
            called again for an epoch that was saved. ``record.numbers()`` is what a logger takes.
            When it is called is not protected: a logger that notes the time publishes it.
        on_step: Called after every step with its ``StepRecord``: counters and learning rates, which
            are the same whatever the data are. After a crash it is called again for steps that were
            not saved, so weights and what is computed from them are published in ``on_epoch``.
        on_secret_loss: Called after every step with the mean loss of its lot (of this process's
            part of it). It was computed from the private data without noise, and no statement
            covers it: look at it, and write it nowhere that others can read.

    Guarantee:
        The trained model, the history and the statement together give away what the statement says,
        provided that ``held_out`` is independent of ``dataset``. What ``on_secret_loss`` is given
        is not among them.

    >>> import tacit, torch
    >>> x = torch.randn(300, 4)
    >>> data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
    >>> train, test = (torch.utils.data.Subset(data, r) for r in (range(200), range(200, 300)))
    >>> model = torch.nn.Linear(4, 2)
    >>> plan = tacit.Plan.for_budget(
    ...     epsilon=3, delta=1e-4, examples=200, lot_size=20, epochs=2, clip=1.0
    ... )
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    >>> done = tacit.fit(model, optimizer, plan, train, held_out=test)
    >>> [record.steps for record in done.history], round(done.statement.epsilon, 3)
    ([10, 20], 3.0)
    """
    check_roles(model, optimizer, plan)
    prepared = Prepared(
        model=model, optimizer=optimizer, plan=plan, dataset=dataset, loss=loss,
        held_out=held_out, correct=correct, metrics=metrics, collate=collate, groups=groups,
        lengths=lengths, schedule=schedule, performance=performance,
    )  # fmt: skip
    if out is None:
        if resume:
            raise InvalidArgument("resume needs the folder of the run, got out=None")
        watch = Watch(
            progress=progress, on_epoch=on_epoch, on_step=on_step, on_secret_loss=on_secret_loss
        )
        check_trainable(prepared)
        return carry_out(prepared, delta=delta, budget=budget, watch=watch)
    try:
        with stoppable(quiet=True) as stop:
            place = Place(
                folder=Path(out), resume=resume, stop=stop, progress=progress, on_epoch=on_epoch,
                on_step=on_step, on_secret_loss=on_secret_loss, opening=_opening(budget),
            )  # fmt: skip
            done = fit_in_folder(prepared, place, delta=delta)
    except Interrupted as error:
        on = "; resume=True goes on" if error.resumable else ""
        raise KeyboardInterrupt(f"{error}{on}") from None
    return Fit(done.history, done.statement)


def _opening(budget: Budget | Reservation | None) -> Callable[[], Budget] | None:
    if budget is None:
        return None
    from tacit.ledger import Budget  # noqa: PLC0415 - only those who keep a ledger

    if not isinstance(budget, Budget):
        raise InvalidArgument(
            f"budget must be a budget with out=, for such a run reserves by itself, got a "
            f"{type(budget).__name__}"
        )
    return lambda: budget


def fit_in_folder(prepared: Prepared, place: Place, *, delta: float | None = None) -> Trained:
    """Trains what is prepared, and keeps it; ``fit`` has the arguments one by one.

    Raises:
        Interrupted: if ``place.stop`` ended it.
    """
    plan = prepared.plan
    failure = check_delta(plan.delta_or(delta), plan.examples, plan.unit)
    limit = plan.epsilon(failure)
    if plan.made_for is not None and plan.made_for[1] == failure:
        limit = max(limit, plan.made_for[0])
    name = type(prepared.model).__qualname__
    terms = RunTerms(name=name, epsilon=limit, delta=failure, tuning=_TUNING)

    def train(around: Surroundings) -> Trained:
        job = Job(terms, around)
        return job.fit(replace(prepared, plan=job.reserve(Outline(plan))))

    device = next((p.device for p in prepared.model.parameters()), torch.device("cpu"))
    record = _record(prepared, terms, place)
    return kept_run(f"fit of {name}", record, place, train, device=device)


def _record(prepared: Prepared, terms: RunTerms, place: Place) -> RunRecord:
    """What is known of a run of one's own: nothing of it was computed from the data."""
    model, dataset, held_out = prepared.model, prepared.dataset, prepared.held_out
    given = prepared.optimizer
    optimizers = (given,) if isinstance(given, torch.optim.Optimizer) else tuple(given)
    parameters = list(model.parameters())
    return RunRecord(
        run=secrets.token_hex(8),
        recipe=terms.name,
        summary="a model and data of its user's own (tacit.fit)",
        settings={
            "parameters": sum(one.numel() for one in parameters),
            "optimizer": ", ".join(type(one).__qualname__ for one in optimizers),
        },
        epsilon=terms.epsilon,
        delta=terms.delta,
        seed=None,
        data={
            "name": type(dataset).__qualname__,
            "files": {},
            "train": prepared.plan.examples,
            "test": 0 if held_out is None else len(held_out),  # type: ignore[arg-type]
        },
        folder=None,
        search=None,
        device=str(parameters[0].device) if parameters else "cpu",
        versions=claims.versions(),
        command=place.command,
        anchors=(),
        tuning=terms.tuning,
        budget=None,
        kind="own",
    )
