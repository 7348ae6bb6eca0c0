"""Running and loading a recipe, by its name or as a value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit._validation import open_probability, positive, whole
from tacit.data import Split
from tacit.data import load as load_data
from tacit.errors import InvalidArgument
from tacit.models.devices import device_named
from tacit.recipes.catalogue import find, names
from tacit.runs import results
from tacit.runs import settings as settings_of
from tacit.runs.folder import Folder
from tacit.runs.interruption import Interruption
from tacit.runs.kept import read_released, released_file
from tacit.runs.recipe import Task
from tacit.runs.run import Place, carried_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import nn

    from tacit.ledger import Budget
    from tacit.runs.recipe import Recipe, Releasing
    from tacit.runs.record import RunRecord
    from tacit.runs.results import Finished, Trained
    from tacit.runs.search import Search


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
    search: Search | None = None,
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
        search: Searches settings privately, in a folder: ε is then that of the whole search.
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
    task = Task(
        settings=_settings(chosen, limit, settings), epsilon=limit, delta=failure,
        device=device_named(device),
        seed=None if seed is None else whole("seed", seed, at_least=0),
        data=_data(chosen, data),
    )  # fmt: skip
    if folder is None and (resume or search is not None):
        what = "resume" if resume else "search"
        raise InvalidArgument(f"{what} needs the folder of the run, got folder=None")
    place = Place(
        folder=None if folder is None else Path(folder), resume=resume, progress=progress,
        opening=None if budget is None else lambda: budget, command=tuple(command),
        stop=stop if isinstance(stop, Interruption) else Interruption(stop),
        looked_in=Path(data) if isinstance(data, str | os.PathLike) else None,
    )  # fmt: skip
    if search is None:
        return carried_out(chosen, task, place)
    from tacit.runs.search import searched  # noqa: PLC0415 - only where there is one

    return searched(chosen, task, search, place)


def load(
    folder: str | os.PathLike[str],
    *,
    model: nn.Module | None = None,
    data: str | os.PathLike[str] | Split | None = None,
) -> Finished:
    """The finished run in ``folder``: its model, its statement and its history.

    Args:
        folder: What ``tacit.fit(..., out=...)`` or ``tacit train --out`` left.
        model: The network to load the weights into, as it was given to ``tacit.fit``. Left out, a
            recipe's run has its own, which the recipe makes of its data and settings; any other
            has ``.weights`` and no ``.model``.
        data: Where the recipe's data lie, if not where the run found them; or the data.

    Guarantee:
        Nothing in the folder is run. A model file other than the one that the statement names is
        refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = run("digits", epsilon=3, folder=f"{folder}/run")
    ...     found = load(f"{folder}/run")
    >>> found.statement.epsilon == done.statement.epsilon, type(found.model).__name__
    (True, 'Linear')
    """
    found = results.load(folder)
    if model is not None:
        return found.in_model(model)
    named = found.record.kind == "recipe" and found.record.recipe in names()
    if not named or find(found.record.recipe).prepare is None:
        return found
    return found.in_model(_network(found.record, folder, data))


def _network(
    record: RunRecord, folder: str | os.PathLike[str], data: str | os.PathLike[str] | Split | None
) -> nn.Module:
    """The network that the run's recipe prepares: nothing is trained or released."""
    recipe = find(record.recipe)
    assert recipe.outline is not None
    assert recipe.prepare is not None
    looked = record.folder if data is None and record.folder is not None else data
    task = Task(
        settings=settings_of.changed(
            recipe.settings(record.epsilon), dict(record.winner or record.settings)
        ),
        data=_data(recipe, looked), epsilon=record.epsilon, delta=record.delta,
        device=device_named("cpu"), seed=record.seed,
    )  # fmt: skip
    return recipe.prepare(task, recipe.outline(task).plan, released_by(folder, recipe)).released


def released_by(folder: str | os.PathLike[str], recipe: Recipe) -> Releasing:
    """Gives what a run released beside its model, and releases nothing more."""
    place = Folder(folder)

    def release(name: str, mechanism: object, *, what: str) -> Any:
        del mechanism, what
        path = released_file(place, name)
        if not path.is_file():
            raise InvalidArgument(
                f"the model in {place.path} cannot be put together: {recipe.name} released its "
                f"{name} beside it, and the folder does not keep it ({path.name})"
            )
        return read_released(path)[0]

    return release


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
    return load_data(recipe.data, None if data is None else Path(data))
