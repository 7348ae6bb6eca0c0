"""A run that is kept in a folder: begun, cut off, resumed, and brought to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidArgument
from tacit.recipes.running import record as records
from tacit.recipes.running import results
from tacit.recipes.running.account import Account
from tacit.recipes.running.folder import RECORD, Folder
from tacit.recipes.running.interruption import Interrupted
from tacit.recipes.running.job import Job
from tacit.recipes.running.kept import InFolder
from tacit.recipes.running.training import train

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import torch

    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.recipes.recipe import Recipe
    from tacit.recipes.running.interruption import Interruption
    from tacit.recipes.running.trained import Trained


def run_in_folder(
    recipe: Recipe,
    settings: Any,
    data: Split,
    *,
    epsilon: float,
    delta: float,
    device: torch.device,
    seed: int | None,
    opening: Callable[[], Budget] | None,
    folder: str | os.PathLike[str],
    resume: bool,
    progress: bool | None,
    stop: Interruption,
    command: Sequence[str],
    looked_in: Path | None,
) -> Trained:
    """As ``run``; its arguments are checked, and its data loaded."""
    place = Folder(folder)
    record = records.begun(
        recipe, settings, data, epsilon=epsilon, delta=delta, seed=seed, device=str(device),
        command=command, folder=None if looked_in is None else str(looked_in),
    )  # fmt: skip
    record = opened(place, record, resume=resume)
    keeper = InFolder(place, record, resumed=resume)
    account = Account(opening, f"recipe {recipe.name}, run {record.run}")
    job = Job(
        recipe, settings, data, epsilon=epsilon, delta=delta, device=device, seed=seed,
        keeper=keeper, account=account, stop=stop, progress=progress,
    )  # fmt: skip
    try:
        if resume:
            check_budget(account, record.budget)
        trained = train(job, account, lambda: keeper.nothing_kept)
        with stop.deferred():
            trained = results.write(place, keeper.record, trained)
    except BaseException as error:
        raise left(keeper, error) from None
    finally:
        place.close()
    return trained


def check_budget(account: Account, before: Mapping[str, str] | None) -> None:
    """Refuses to go on with another budget than the run began with."""
    if account.place != (None if before is None else dict(before)):
        raise InvalidArgument(
            f"budget must be the one that the run began with, {before}, got {account.place}"
        )


def opened(place: Folder, record: records.Record, *, resume: bool) -> records.Record:
    """The record to go by, the folder checked; locked if it holds a run."""
    if not resume:
        place.check_new()
        return record
    place.check_run()
    place.begin()
    try:
        before = records.read(place)
        if before.finished:
            raise InvalidArgument(
                f"the run in {place.path} is finished; start another in a new folder"
            )
        return records.resumed(record, before)
    except BaseException:
        place.close()
        raise


def left(keeper: InFolder, error: BaseException) -> BaseException:
    """What becomes of a run that did not end: nothing is left behind if nothing was begun."""
    if not keeper.nothing_kept:
        if isinstance(error, KeyboardInterrupt) and not keeper.folder.holds(RECORD):
            return error
        if isinstance(error, KeyboardInterrupt):
            return Interrupted("stopped", resumable=True)
        return error
    keeper.folder.leave([RECORD])
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return Interrupted("stopped before anything was released; nothing is kept",
                           resumable=False)  # fmt: skip
    return error
