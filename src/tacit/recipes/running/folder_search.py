"""A private search that is kept in a folder: the winner's model, with the search's statement."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit.recipes.running import claims, results
from tacit.recipes.running import record as records
from tacit.recipes.running.account import Account
from tacit.recipes.running.folder import Folder
from tacit.recipes.running.folder_run import check_budget, left, opened
from tacit.recipes.running.interruption import Interrupted
from tacit.recipes.running.kept import InFolder
from tacit.recipes.running.searching import Searching
from tacit.recipes.running.settings import as_plain, changed
from tacit.recipes.running.trained import Trained
from tacit.statement import extended, rounded_up

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import torch

    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.recipes.recipe import Recipe
    from tacit.recipes.running.interruption import Interruption
    from tacit.recipes.running.search_file import Search
    from tacit.selection import Found

_JOURNAL = "search"


def search_in_folder(
    recipe: Recipe,
    settings: Any,
    data: Split,
    search: Search,
    *,
    epsilon: float,
    delta: float,
    device: torch.device,
    seed: int | None,
    opening: Callable[[], Budget] | None,
    folder: str | os.PathLike[str],
    resume: bool,
    stop: Interruption,
    command: Sequence[str],
    looked_in: Path | None,
) -> Trained:
    """Searches settings privately; the whole search is (ε, δ)-private, its winner is kept."""
    place = Folder(folder)
    record = records.begun(
        recipe, settings, data, epsilon=epsilon, delta=delta, seed=seed, device=str(device),
        command=command, folder=None if looked_in is None else str(looked_in),
        search=search.as_plain(),
    )  # fmt: skip
    record = opened(place, record, resume=resume)
    keeper = InFolder(place, record, resumed=resume)
    account = Account(opening, f"recipe {recipe.name}, run {record.run}")
    searching = Searching(
        recipe, settings, data, search, epsilon=epsilon, delta=delta, device=device, seed=seed,
        stop=stop,
    )  # fmt: skip
    try:
        if resume:
            check_budget(account, record.budget)
        keeper.begin(account.place)
        found = searching.run(account.budget, account.label, place.inner(_JOURNAL))
        trained = _winner(found, search, keeper.record)
        ended = replace(
            keeper.record,
            winner=as_plain(changed(settings, found.candidate)),
            plan=found.model.statement.plan,
        )
        with stop.deferred():
            trained = results.write(place, ended, trained)
            shutil.rmtree(place.path / _JOURNAL, ignore_errors=True)
    except BaseException as error:
        # What a run of the search left is in the journal, whatever the run itself says.
        cut = Interrupted("stopped during the search", resumable=True)
        raise left(keeper, cut if isinstance(error, Interrupted) else error) from None
    finally:
        place.close()
    return trained


def _winner(found: Found, search: Search, record: records.Record) -> Trained:
    """The winner's model; every figure of ε is that of the whole search."""
    inner: Trained = found.model
    chosen = ", ".join(f"{name}={value}" for name, value in found.candidate.items())
    statement = extended(
        found.statement(),
        releases=("the winner's model", "its settings", "its accuracy on held-out data"),
        tuning=(
            f"covered for {', '.join(search.candidates)}: a private search chose among "
            f"{search.count} candidates, at a cost of ε = {rounded_up(found.tuning_cost, 4)} which "
            f"is part of the whole; not covered for the others: {record.tuning}"
        ),
        versions=claims.versions(),
        configuration=record.configuration,
    )
    notes = [f"the search chose {chosen}"]
    if search.score == "held-out":
        notes.append(
            "the winner was chosen by its accuracy on the held-out examples, which therefore "
            "flatters it a little"
        )
    return Trained(
        model=inner.model,
        history=tuple(replace(one, epsilon=found.epsilon) for one in inner.history),
        statement=statement,
        accuracy=inner.accuracy,
        notes=(*inner.notes, *notes),
    )
