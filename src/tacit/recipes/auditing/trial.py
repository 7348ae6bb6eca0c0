"""One model of an audit, trained by a recipe's own code, and what it answers when it is asked.

The recipe is given other data than its own: training examples of which some are members, and, in
place of the held-out examples, those that the audit asks about. The recipe itself turns them into
what its model takes.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from tacit.errors import InvalidArgument
from tacit.recipes.auditing.answers import answers
from tacit.recipes.auditing.leaving_out import without
from tacit.runs.recipe import Task, free
from tacit.runs.run import seeded
from tacit.training.fit import Watch, carry_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tacit.accounting.events import Event
    from tacit.data import Examples, Split
    from tacit.runs.recipe import Outline, Recipe, Releasing
    from tacit.training.fit import Prepared
    from tacit.training.plan import Plan


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trial:
    """What all models of an audit have in common.

    Args:
        recipe: Trains them.
        settings: Its settings.
        data: ``data.train`` is what models are trained on; ``data.test`` what they are asked about,
            all views of an example one after the other.
        views: How many views there are of each.
        epsilon: What each model may spend.
        delta: Its δ.
        device: Where to compute.
        threads: How many threads a model may take; None for as many as PyTorch likes.
    """

    recipe: Recipe
    settings: Any
    data: Split
    views: int = 1
    epsilon: float
    delta: float
    device: str = "cpu"
    threads: int | None = None


def trained_on_members(
    trial: Trial, rows: NDArray[np.int64], coins: NDArray[np.bool_], seed: int
) -> NDArray[np.float32]:
    """The logits of a model that was trained without those of ``rows`` whose coin is false.

    It knows nothing of them: not even how many there are.
    """
    kept = np.flatnonzero(_members(trial, rows, coins))
    data = replace(trial.data, train=rows_of(trial.data.train, kept))
    return _asked(trial, data, seed, lambda prepared: prepared)


def trained_with_members(
    trial: Trial, rows: NDArray[np.int64], coins: NDArray[np.bool_], seed: int
) -> NDArray[np.float32]:
    """The same, but for the plan: of ``rows`` whose coin is false the loss is taken times 0.

    Guarantee:
        Number of examples, sampling rate, lot size and noise are those of the whole, whatever the
        coins; a record whose coin is false adds exactly nothing. So being in and being out are
        neighbours under add-remove.
    """
    left_out = ~_members(trial, rows, coins)
    return _asked(trial, trial.data, seed, lambda prepared: without(prepared, left_out))


def _members(trial: Trial, rows: NDArray[np.int64], coins: NDArray[np.bool_]) -> NDArray[np.bool_]:
    members = np.ones(len(trial.data.train), dtype=np.bool_)
    members[rows] = coins
    return members


def _asked(
    trial: Trial, data: Split, seed: int, change: Callable[[Prepared], Prepared]
) -> NDArray[np.float32]:
    with threads(trial.threads), seeded(seed):
        prepared = prepared_by(trial, data, seed, free)
        silent = replace(change(prepared), held_out=None)  # nothing is asked on the way
        carry_out(silent, delta=trial.delta, watch=Watch(progress=False))
        return answers(prepared.final, prepared, trial.views)


def prepared_by(trial: Trial, data: Split, seed: int, release: Releasing) -> Prepared:
    """What the recipe prepares of ``data``."""
    if trial.recipe.prepare is None:
        raise unfitted(trial.recipe)
    task = _task(trial, data, seed)
    return trial.recipe.prepare(task, outline_of(trial, data).plan, release)


def outline_of(trial: Trial, data: Split) -> Outline:
    """What a run of the recipe on ``data`` would release; nothing is released."""
    if trial.recipe.outline is None:
        raise unfitted(trial.recipe)
    return trial.recipe.outline(_task(trial, data, 0))


def _task(trial: Trial, data: Split, seed: int) -> Task:
    """A lot of all records stays one where some are left out."""
    settings = trial.settings
    lot = getattr(settings, "lot", None)
    if lot is not None and lot > len(data.train):
        settings = replace(settings, lot=len(data.train))
    return Task(
        settings=settings, data=data, epsilon=trial.epsilon, delta=trial.delta,
        device=torch.device(trial.device), seed=seed,
    )  # fmt: skip


def rows_of(examples: Examples, rows: NDArray[np.int64]) -> Examples:
    """Some of the examples."""
    inputs = examples.inputs
    chosen = tuple(inputs[row] for row in rows) if isinstance(inputs, tuple) else inputs[rows]
    return replace(examples, inputs=chosen, labels=examples.labels[rows])


def unfitted(recipe: Recipe) -> InvalidArgument:
    """A recipe that trains no network by a plan."""
    return InvalidArgument(
        f"the recipe {recipe.name!r} fits no network by a plan, and an audit asks one; audit "
        "another recipe"
    )


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Inside, PyTorch takes so many threads; None leaves it as it is."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def planned(trial: Trial) -> tuple[Plan, tuple[Event, ...]]:
    """The plan that the recipe makes, and what else it would release. Nothing is released."""
    found = outline_of(trial, trial.data)
    return found.plan, found.also
