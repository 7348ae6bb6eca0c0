"""Carrying out a run: from a recipe to its result, kept in a folder or not."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import torch

from tacit._validation import check_delta
from tacit.errors import InvalidArgument
from tacit.runs import record as records
from tacit.runs import results
from tacit.runs.account import RunAccount
from tacit.runs.folder import RECORD, Folder
from tacit.runs.interruption import Interrupted, Interruption
from tacit.runs.job import Job, RunTerms, Surroundings
from tacit.runs.kept import Kept
from tacit.training.distributed.world import joined, launch
from tacit.training.performance import Performance
from tacit.training.progress import waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tacit.ledger import Budget
    from tacit.runs.recipe import Recipe, Task
    from tacit.runs.record import RunRecord
    from tacit.runs.results import Trained
    from tacit.training.distributed.world import World
    from tacit.training.progress import EpochRecord, StepRecord


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Where a run is kept and charged, and who looks on; the same for every kind of run.

    Args:
        folder: Where to keep the run while it goes, and its results; None keeps nothing.
        resume: Whether to go on with the run that ``folder`` holds.
        opening: Opens the budget that is charged; called when it is first needed.
        stop: Ends the run when it is asked to.
        progress: As in ``tacit.fit``.
        on_epoch: As in ``tacit.fit``.
        on_step: As in ``tacit.fit``.
        on_secret_loss: As in ``tacit.fit``.
        command: The command line that started the run, to be kept with it.
        looked_in: Where the data were looked for first.
        request: The number of the approved request that the run draws on.
    """

    folder: Path | None = None
    resume: bool = False
    opening: Callable[[], Budget] | None = None
    stop: Interruption
    progress: bool | None = None
    on_epoch: Callable[[EpochRecord], None] | None = None
    on_step: Callable[[StepRecord], None] | None = None
    on_secret_loss: Callable[[float], None] | None = None
    command: tuple[str, ...] = ()
    looked_in: Path | None = None
    request: int | None = None


def carried_out(recipe: Recipe, task: Task, place: Place) -> Trained:
    """Runs a recipe whose task is checked and whose data are loaded."""
    check_delta(task.delta, len(task.data.train), "example")  # also where no plan asks for it
    terms = RunTerms(name=recipe.name, epsilon=task.epsilon, delta=task.delta, tuning=recipe.tuning)
    record = None
    if place.folder is not None:
        record = records.of_recipe(recipe, task, folder=_text(place.looked_in),
                                   command=place.command)  # fmt: skip

    def train(around: Surroundings) -> Trained:
        with seeded(task.seed):
            return trained(recipe, task, Job(terms, around, task))

    return kept_run(f"recipe {recipe.name}", record, place, train, device=task.device)


def trained(recipe: Recipe, task: Task, job: Job) -> Trained:
    """The recipe's result: by its plan, or as it releases by itself."""
    if recipe.train is not None:
        if not job.world.is_alone:
            raise InvalidArgument(
                f"recipe {recipe.name} trains by itself, in one process; start it without torchrun"
            )
        return recipe.train(job)
    assert recipe.outline is not None
    assert recipe.prepare is not None
    with waiting(job.progress, f"{recipe.name}: finding the noise for the plan"):
        plan = job.reserve(recipe.outline(task))
    with waiting(job.progress, f"{recipe.name}: preparing the data and the model"):
        prepared = recipe.prepare(task, plan, job.release)
    return job.fit(prepared)


def kept_run(
    title: str,
    record: RunRecord | None,
    place: Place,
    train: Callable[[Surroundings], Trained],
    *,
    device: torch.device,
) -> Trained:
    """What ``train`` gives, written to the folder if there is one; nothing is left of nothing.

    A reservation is given up if the run fails before anything was taken of it. Of several processes
    that train together, rank 0 keeps and charges.
    """
    world = joined(device, Performance().patience)
    try:
        return _kept_run(title, record, place, train, world)
    except BaseException as error:
        world.failed(error)
        raise


def _kept_run(
    title: str,
    record: RunRecord | None,
    place: Place,
    train: Callable[[Surroundings], Trained],
    world: World,
) -> Trained:
    if place.folder is None or record is None or not world.leads:
        opening, request = (place.opening, place.request) if world.leads else (None, None)
        account = RunAccount(opening, f"{title}, run {secrets.token_hex(8)}", request)
        kept = Kept(resumed=place.resume, world=world)
        return _unless_it_fails(train, _around(kept, account, place))
    folder, own = Folder(place.folder), replace(record, launch=launch())
    resume = place.resume or is_restarted(folder)
    record = _opened(folder, own, resume=resume)
    kept = Kept((folder, record), resumed=resume, world=world)
    account = RunAccount(place.opening, f"{title}, run {record.run}", place.request)
    try:
        if resume:
            _check_budget(account, record.budget)
        done = _unless_it_fails(train, _around(kept, account, place))
        with place.stop.deferred():
            return results.write(folder, kept.record, done)
    except BaseException as error:
        raise _left(kept, error) from None
    finally:
        folder.close()


def _around(kept: Kept, account: RunAccount, place: Place) -> Surroundings:
    progress = place.progress if kept.world.leads else False
    return Surroundings(
        kept=kept, account=account, stop=place.stop, progress=progress,
        on_epoch=place.on_epoch, on_step=place.on_step, on_secret_loss=place.on_secret_loss,
    )  # fmt: skip


def _unless_it_fails(train: Callable[[Surroundings], Trained], around: Surroundings) -> Trained:
    try:
        return train(around)
    except BaseException:
        if around.kept.nothing_kept:  # no later run could use its reservation
            around.account.abandon()
        raise


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Inside, PyTorch's own generator starts from ``seed``; outside it is as it was.

    It draws first weights. Samples, noise, and what private steps draw for dropout and augmentation
    come from the operating system's entropy, whatever the seed.
    """
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


# ---- a folder, at the beginning and at the end


def _opened(folder: Folder, record: RunRecord, *, resume: bool) -> RunRecord:
    """The record to go by, the folder checked; locked if it holds a run."""
    if not resume:
        folder.check_new()
        return record
    folder.check_run()
    folder.begin()
    try:
        before = records.read(folder)
        if before.finished:
            results.clear(folder)
            raise InvalidArgument(
                f"the run in {folder.path} is finished; start another in a new folder"
            )
        return records.resumed(record, before)
    except BaseException:
        folder.close()
        raise


def is_restarted(folder: Folder) -> bool:
    """Whether the folder holds a run of this very torchrun, which has started its ranks again."""
    if not folder.holds(RECORD) or (now := launch()) is None:
        return False
    return records.read(folder).launch == now


def _check_budget(account: RunAccount, before: Mapping[str, str] | None) -> None:
    """Refuses to go on with another budget than the run began with.

    A ledger goes by its id: in another folder its path is another one, and its path another's.
    """
    place = account.place
    other = "ledger" if "id" in (before or {}) else "id"  # which runs of tacit 0.1 do not have
    known, found = (
        None if one is None else {name: value for name, value in one.items() if name != other}
        for one in (before, place)
    )
    if known != found:
        raise InvalidArgument(
            f"budget must be the one that the run began with, {before}, got {place}"
        )


def _left(kept: Kept, error: BaseException) -> BaseException:
    """What becomes of a run that did not end: nothing is left behind if nothing was begun."""
    folder = kept.folder
    assert folder is not None
    if not kept.nothing_kept:
        if isinstance(error, KeyboardInterrupt) and folder.holds(RECORD):
            return Interrupted("stopped", resumable=True)
        return error
    folder.leave([RECORD])
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return Interrupted("stopped before anything was released; nothing is kept",
                           resumable=False)  # fmt: skip
    return error


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
