"""``run``: a recipe from its data to its result, kept in a folder or not."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit._validation import open_probability, positive, whole
from tacit.errors import InvalidArgument
from tacit.models.devices import device_named
from tacit.recipes.catalogue import find
from tacit.recipes.running import settings as settings_of
from tacit.recipes.running.account import Account
from tacit.recipes.running.interruption import Interruption
from tacit.recipes.running.job import Job
from tacit.recipes.running.keeping import Forgetful
from tacit.recipes.running.training import train

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from tacit.data import Split
    from tacit.ledger import Budget
    from tacit.recipes.recipe import Recipe
    from tacit.recipes.running.trained import Trained


def run(
    recipe: Recipe | str,
    *,
    epsilon: float,
    delta: float = 1e-5,
    settings: Any = None,
    data: str | os.PathLike[str] | Split | None = None,
    device: str | torch.device = "cpu",
    folder: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    budget: Budget | None = None,
    resume: bool = False,
    progress: bool | None = None,
    stop: Callable[[], bool] | None = None,
    command: Sequence[str] = (),
) -> Trained:
    """Carries ``recipe`` out: its model, how well it does, and what it gave away.

    Args:
        recipe: A recipe, or the name of one.
        epsilon: The ε of everything that is released.
        delta: Its δ.
        settings: The recipe's settings; or some of them by name, instead of the defaults.
        data: A folder where the data lie; or the data. Left out, they are looked for and
            downloaded, as ``tacit.data.load`` does.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or ``"auto"``.
        folder: Where to keep the run while it goes, and its results; a new or empty folder. Left
            out, nothing is kept.
        seed: For the first weights. Sampling and noise are never seeded.
        budget: A budget of a ledger, which is charged before anything is released.
        resume: Whether to go on with the run that ``folder`` holds.
        progress: As in ``tacit.fit``.
        stop: Asked after every step: true ends the run there. An ``Interruption`` may also end it
            elsewhere.
        command: The command line that started it, to be kept with it.

    Guarantee:
        Everything that is returned or written to results is (ε, δ)-differentially private, as the
        statement says and under what it assumes.

    Raises:
        Interrupted: if ``stop`` ended it.
    """
    chosen = find(recipe) if isinstance(recipe, str) else recipe
    limit, failure = positive("epsilon", epsilon), open_probability("delta", delta)
    own = _settings(chosen, limit, settings)
    place = device_named(device)
    number = None if seed is None else whole("seed", seed, at_least=0)
    looked_in = Path(data) if isinstance(data, str | os.PathLike) else None
    split = _data(chosen, data)
    interruption = stop if isinstance(stop, Interruption) else Interruption(stop)
    if resume and folder is None:
        raise InvalidArgument("resume needs the folder of the run, got folder=None")
    opening = None if budget is None else lambda: budget
    if folder is not None:
        from tacit.recipes.running.folder_run import run_in_folder  # noqa: PLC0415

        return run_in_folder(
            chosen, own, split, epsilon=limit, delta=failure, device=place, seed=number,
            opening=opening, folder=folder, resume=resume, progress=progress, stop=interruption,
            command=command, looked_in=looked_in,
        )  # fmt: skip
    label = f"recipe {chosen.name}, run {secrets.token_hex(8)}"
    account = Account(opening, label)
    job = Job(
        chosen, own, split, epsilon=limit, delta=failure, device=place, seed=number,
        keeper=Forgetful(), account=account, stop=interruption, progress=progress,
    )  # fmt: skip
    return train(job, account, lambda: True)


def _settings(recipe: Recipe, epsilon: float, given: Any) -> Any:
    default = recipe.settings(epsilon)
    if given is None:
        return default
    if isinstance(given, Mapping):
        return settings_of.changed(default, given)
    if type(given) is not type(default):
        raise InvalidArgument(
            f"settings must be a {type(default).__name__}, or some of its fields by name, "
            f"got {given!r}"
        )
    return given


def _data(recipe: Recipe, data: str | os.PathLike[str] | Split | None) -> Split:
    if data is not None and not isinstance(data, str | os.PathLike):
        return data
    folder = None if data is None else Path(data)
    from tacit.data import load  # noqa: PLC0415 - only where data are read

    return load(recipe.data, folder)
