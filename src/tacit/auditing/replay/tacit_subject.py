"""tacit itself as a subject: ``tacit.private``, and ``tacit.fit`` where a run is to be kept.

Beside the two usual ways there are others, for what only tacit has: each trains by a task in a way
that a user may choose, and must come to the same.
"""

from __future__ import annotations

import io
import math
import os
import signal
import warnings
from contextlib import redirect_stderr, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, final
from unittest.mock import patch

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from tacit._workers import fork
from tacit.auditing.replay.reference import is_noisy
from tacit.auditing.replay.subject import Outcome
from tacit.auditing.replay.watch import flat
from tacit.randomness import GaussianSource
from tacit.training import checkpoint
from tacit.training.fit import Keeping, Prepared, Schedule, Watch, carry_out
from tacit.training.session import private
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn
    from torch.utils.data import Dataset

    from tacit.accounting.events import Event
    from tacit.auditing.replay.subject import Task
    from tacit.training.progress import EpochRecord
    from tacit.training.session import Session


@final
class Tacit:
    """Runs tasks as users do, in one process: tacit refuses several."""

    name = "tacit"
    ranks = (1,)
    keeps_ledger = True
    resumes = True

    def train(self, task: Task) -> Outcome:
        """See ``Subject``."""
        return _by_loop(task) if task.save is None else _by_fit(task)


def _session(task: Task, **further: Any) -> Session:
    return private(
        task.model, task.optimizer, task.plan, task.dataset, task.budget,
        groups=task.groups, resume=task.resume, performance=task.performance, collate=task.collate,
        lengths=task.lengths, **further,
    )  # fmt: skip


def _by_loop(task: Task, **further: Any) -> Outcome:
    model, loss = task.model, task.loss
    with _session(task, **further) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: loss(model, batch))
            dp.step()
    return _outcome(dp, task)


def _outcome(dp: Session, task: Task) -> Outcome:
    if isinstance(task.plan.clipping, AdaptiveQuantile) and not is_noisy(task.plan):
        return Outcome(math.inf, {})  # to account for it takes longer than to make it
    statement = dp.statement(task.delta)
    return Outcome(statement.epsilon, {"statement": asdict(statement)})


def _prepared(task: Task) -> Prepared:
    return Prepared(
        model=task.model, optimizer=task.optimizer, plan=task.plan, dataset=task.dataset,
        loss=task.loss, groups=task.groups, lengths=task.lengths, collate=task.collate,
        performance=task.performance,
    )  # fmt: skip


def _by_fit(task: Task) -> Outcome:
    assert task.save is not None
    taken = 0

    def stop() -> bool:
        nonlocal taken
        taken += 1
        return task.stop_at is not None and taken >= task.stop_at

    done = carry_out(
        _prepared(task), delta=task.delta, budget=task.budget,
        keeping=Keeping(save=task.save, resume=task.resume),
        watch=Watch(progress=False, stop=stop),
    )  # fmt: skip
    published = {
        "history": [asdict(record) for record in done.history],
        "statement": asdict(done.statement),
        "checkpoint": asdict(checkpoint.read(task.save)),
    }
    return Outcome(done.statement.epsilon, published)


TACIT = Tacit()


# ---- ends


def left_behind(task: Task) -> Outcome:
    """What is claimed of a run that an error of the loss has ended."""
    try:
        with _session(task) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: task.loss(task.model, batch))
                dp.step()
    except Exception as error:
        if type(error).__name__ != "Crash":
            raise
    return _outcome(dp, task)


def stopped_in_advance(task: Task) -> Outcome:
    """A run whose end, before that of its plan, is fixed beforehand."""
    return _by_loop(task, stop_after=task.stop_at)


# ---- options


class NotingSchedule(LambdaLR):
    """A scheduler that changes nothing, and notes what it is given."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.given: list[tuple[Any, ...]] = []
        self.kept = (math.inf, torch.float32, np.arange(3))  # kinds of what a checkpoint may hold
        super().__init__(optimizer, lambda _: 1.0)
        self.given.clear()

    def step(self, *args: Any, **kwargs: Any) -> None:
        """One step."""
        self.given.append((*args, *kwargs.items()))
        with warnings.catch_warnings():  # the hooks of the watch hide that the optimizer stepped
            warnings.simplefilter("ignore")
            super().step()


@final
class Screen(io.StringIO):
    """Where progress is shown, and nobody looks."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Whether it takes itself for a terminal."""
        return self._terminal


@final
@dataclass
class Fitted:
    """``tacit.fit`` with all its options, and what they were given."""

    held_out: Dataset[Any]
    correct: Callable[[nn.Module, Any], Tensor]
    average_from: int
    also: Event | None = None
    terminal: bool = False
    given: list[tuple[Any, ...]] = field(default_factory=list)
    epochs: list[EpochRecord] = field(default_factory=list)
    asked: int = 0
    average: Tensor | None = None

    def __call__(self, task: Task) -> Outcome:
        """Trains by a task."""
        scheduler, average = NotingSchedule(task.optimizer), AveragedModel(task.model)

        def stop() -> bool:
            self.asked += 1
            return task.stop_at is not None and self.asked >= task.stop_at

        with redirect_stderr(Screen(terminal=self.terminal)):
            schedule = Schedule(
                scheduler=scheduler, average=average, average_from=self.average_from
            )
            done = carry_out(
                replace(_prepared(task), held_out=self.held_out, correct=self.correct,
                        schedule=schedule),
                delta=task.delta, budget=task.budget, also=self.also,
                keeping=Keeping(save=task.save, resume=task.resume,
                                state={"more": NotingSchedule(task.optimizer)}),
                watch=Watch(progress=True, stop=stop, on_epoch=self.epochs.append),
            )  # fmt: skip
        self.given = scheduler.given
        if task.save is not None:
            checkpoint.read(task.save)
        held = {id(p) for group in task.optimizer.param_groups for p in group["params"]}
        pairs = zip(task.model.parameters(), average.module.parameters(), strict=True)
        self.average = flat([mean for own, mean in pairs if id(own) in held])
        published = {
            "history": [asdict(record) for record in done.history],
            "statement": asdict(done.statement),
            "stopped": done.stopped,
        }
        return Outcome(done.statement.epsilon, published)


CHECKED = (2, 3)  # the steps of ``by_hand`` for which losses of others are computed as well
RECHECKED = 4  # from this step on every lot of ``by_hand`` is checked, as some are at random


def by_hand(task: Task) -> Outcome:
    """A loop of the user's own: with evaluations, public work and checks between the lots.

    Raises:
        Moved: if what must release nothing has changed something.
    """
    held = [p for group in task.optimizer.param_groups for p in group["params"]]

    def losses(batch: Any) -> Tensor:
        return task.loss(task.model, batch)

    with _session(task, state={"scheduler": NotingSchedule(task.optimizer)}) as dp:
        explained = [dp.explain()]
        for lot in dp.lots():
            for batch in lot:
                with torch.no_grad():
                    task.loss(task.model, batch)
                dp.backward(task.loss(task.model, batch))
            dp.step()
            task.optimizer.zero_grad()
            before, taken = flat(held), dp.steps_taken
            explained.append(dp.explain())
            if lot.step == CHECKED[0] - 1:
                dp.verify()
            elif lot.step == CHECKED[1] - 1:
                dp.verify(losses)
            elif lot.step == CHECKED[1]:
                with dp.public():
                    pass
            if lot.step + 1 >= RECHECKED:
                _check_next(dp)
            if not torch.equal(before, flat(held)) or dp.steps_taken != taken:
                raise Moved(f"the parameters moved after step {taken}, without a step")
    outcome = _outcome(dp, task)
    return Outcome(
        outcome.epsilon, {**outcome.published, "explained": explained[0], "epoch": lot.epoch}
    )


def _check_next(dp: Session) -> None:
    """Lets chance, and the time that checks may take, choose the next lot for one."""
    schedule = dp._verifier._schedule
    if schedule is not None and schedule._since is not None:
        schedule._wait, schedule._since = 1, -math.inf


class Moved(Exception):
    """Something changed that must not."""


def seeded_run(task: Task) -> Outcome:
    """A run that can be repeated, and says so."""
    return _by_loop(task, unsafe_seed=7)


def seeded_without_kernels(task: Task) -> Outcome:
    """The same, with independent noise from the device's own generator, step by step.

    Kernels that draw it in one pass with the means make other numbers of a seed; correlated noise
    is mixed of the generator's.
    """
    plainly = replace(task.performance, capture=False)
    with patch.object(GaussianSource, "serves", lambda *_: False):
        return seeded_run(replace(task, performance=plainly))


# ---- forks


@final
@dataclass
class Forked:
    """A run that is forked between two lots; what the child released, if it could."""

    at: int
    child: Tensor | None = None

    def __call__(self, task: Task) -> Outcome:
        """Trains by a task."""

        def losses(batch: Any) -> Tensor:
            return task.loss(task.model, batch)

        with _session(task) as dp:
            lots = dp.lots()
            for lot in lots:
                dp.accumulate(lot, losses)
                dp.step()
                if lot.step == self.at:
                    self.child = _in_child(lambda: _one_more(dp, task, losses))
        return _outcome(dp, task)


def _one_more(dp: Session, task: Task, losses: Callable[[Any], Tensor]) -> list[Tensor]:
    """The gradient of one more step, taken where nothing may be taken any more."""
    seen: list[Tensor] = []
    held = [p for group in task.optimizer.param_groups for p in group["params"]]

    def note(*_: Any) -> None:
        seen.append(flat([torch.zeros_like(p) if p.grad is None else p.grad for p in held]))

    task.optimizer.register_step_pre_hook(note)
    lot = next(dp.lots())
    dp.accumulate(lot, losses)
    dp.step()
    return seen


def _in_child(work: Callable[[], list[Tensor]]) -> Tensor | None:
    """What a forked child comes to; nothing if it fails, or hangs."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(10)
        with suppress(BaseException), os.fdopen(writing, "wb") as pipe:
            for gradient in work():  # if it fails, whatever it is, nothing was released
                pipe.write(gradient.double().numpy().tobytes())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        sent = bytearray(pipe.read())
    os.waitpid(child, 0)
    return torch.frombuffer(sent, dtype=torch.float64) if sent else None
