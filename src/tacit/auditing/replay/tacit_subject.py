"""tacit itself as a subject: ``tacit.private``, and ``tacit.fit`` where a run is to be kept."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, final

from tacit.auditing.replay.subject import Outcome
from tacit.training import checkpoint
from tacit.training.fitting import fit
from tacit.training.session import private

if TYPE_CHECKING:
    from tacit.auditing.replay.subject import Task


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


def _by_loop(task: Task) -> Outcome:
    with private(
        task.model, task.optimizer, task.plan, task.dataset, task.budget,
        groups=task.groups, resume=task.resume, performance=task.performance, collate=task.collate,
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: task.loss(task.model, batch))
            dp.step()
    statement = dp.statement(task.delta)
    return Outcome(statement.epsilon, {"statement": asdict(statement)})


def _by_fit(task: Task) -> Outcome:
    assert task.save is not None
    taken = 0

    def stop() -> bool:
        nonlocal taken
        taken += 1
        return task.stop_at is not None and taken >= task.stop_at

    done = fit(
        task.model, task.dataset, task.plan, optimizer=task.optimizer, delta=task.delta,
        loss=task.loss, save=task.save, resume=task.resume, budget=task.budget, groups=task.groups,
        collate=task.collate, performance=task.performance, progress=False, stop=stop,
    )  # fmt: skip
    published = {
        "history": [asdict(record) for record in done.history],
        "statement": asdict(done.statement),
        "checkpoint": asdict(checkpoint.read(task.save)),
    }
    return Outcome(done.statement.epsilon, published)


TACIT = Tacit()
