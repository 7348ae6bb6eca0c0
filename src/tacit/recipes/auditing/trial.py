"""One model of an audit, trained by a recipe's own code, and what it answers when it is asked.

The recipe is given other data than its own: training examples of which some are members, and, in
place of the held-out examples, those that the audit asks about. The recipe itself turns them into
what its model takes.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np
import torch

from tacit.errors import InvalidArgument
from tacit.recipes.auditing.answers import answers
from tacit.recipes.auditing.leaving_out import without
from tacit.recipes.running.account import Account
from tacit.recipes.running.interruption import Interruption
from tacit.recipes.running.job import Job
from tacit.recipes.running.keeping import Forgetful
from tacit.recipes.running.training import seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tacit.accounting.events import Event
    from tacit.data import Examples, Split
    from tacit.recipes.recipe import Recipe
    from tacit.recipes.running.lesson import Lesson
    from tacit.recipes.running.trained import Trained
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

    It knows nothing of them: not even that there are so many.
    """
    kept = np.flatnonzero(_members(trial, rows, coins))
    data = replace(trial.data, train=rows_of(trial.data.train, kept))
    return _asked(trial, data, seed, lambda lesson: lesson)


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
    return _asked(trial, trial.data, seed, lambda lesson: without(lesson, left_out))


def _members(trial: Trial, rows: NDArray[np.int64], coins: NDArray[np.bool_]) -> NDArray[np.bool_]:
    members = np.ones(len(trial.data.train), dtype=np.bool_)
    members[rows] = coins
    return members


def _asked(
    trial: Trial, data: Split, seed: int, change: Callable[[Lesson], Lesson]
) -> NDArray[np.float32]:
    seen: list[Lesson] = []

    def watch(lesson: Lesson) -> Lesson:
        seen.append(lesson)
        return replace(change(lesson), held_out=None)  # nothing is asked on the way

    with threads(trial.threads):
        trained = carried_out(trial, data, seed, watch, Forgetful())
        if not seen or not isinstance(trained.model, torch.nn.Module):
            raise unfitted(trial.recipe)
        return answers(trained.model, seen[0], trial.views)


def carried_out(
    trial: Trial,
    data: Split,
    seed: int,
    watch: Callable[[Lesson], Lesson],
    keeper: Forgetful,
) -> Trained:
    """Runs the recipe once, silently and charged to nobody."""
    job = Job(
        trial.recipe, trial.settings, data, epsilon=trial.epsilon, delta=trial.delta,
        device=torch.device(trial.device), seed=seed, keeper=keeper, account=Account(None, ""),
        stop=Interruption(), progress=False, watch=watch,
    )  # fmt: skip
    with seeded(seed):
        return trial.recipe.train(job)


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


# ---- the plan, without training


def planned(trial: Trial) -> tuple[Plan, tuple[Event, ...]]:
    """The plan that the recipe makes, and what else it would release. Nothing is released."""
    try:
        carried_out(trial, trial.data, 0, lambda lesson: lesson, _Planning())
    except _Planned as found:
        return found.plan, found.also
    except _Unplanned:
        pass
    raise unfitted(trial.recipe)


class _Planned(Exception):
    def __init__(self, plan: Plan, also: tuple[Event, ...]) -> None:
        super().__init__()
        self.plan, self.also = plan, also


class _Unplanned(Exception):
    pass


@final
class _Planning(Forgetful):
    """Stops a job as soon as it has planned, or is about to release something without a plan."""

    def same_plan(self, plan: Plan, also: Sequence[Event]) -> NoReturn:
        """Tells the plan."""
        raise _Planned(plan, tuple(also))

    def begin(self, budget: object) -> None:
        """There is no plan."""
        del budget
        raise _Unplanned
