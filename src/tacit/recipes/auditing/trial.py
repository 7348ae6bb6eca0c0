"""One model of an audit, trained by a recipe's own code, and what it answers when it is asked.

The recipe is given other data than its own: training examples of which some are members, and, in
place of the held-out examples, those that the audit asks about. The recipe itself turns them into
what its model takes.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset, default_collate

from tacit.auditing.attacks import Shadows, train_shadows
from tacit.errors import InvalidArgument
from tacit.recipes.running.account import Account
from tacit.recipes.running.interruption import Interruption
from tacit.recipes.running.job import Job
from tacit.recipes.running.keeping import Forgetful
from tacit.recipes.running.training import seeded
from tacit.training.judging import default_loss
from tacit.training.loaders import make_loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.accounting.events import Event
    from tacit.data import Examples, Split
    from tacit.recipes.recipe import Recipe
    from tacit.recipes.running.lesson import Lesson
    from tacit.recipes.running.trained import Trained
    from tacit.training.judging import RowWise
    from tacit.training.loaders import Collate
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


# ---- what a model answers

_BATCH = 1024


def answers(model: nn.Module, lesson: Lesson, views: int = 1) -> NDArray[np.float32]:
    """The logits of ``model`` on the lesson's held-out examples: (examples, views, classes).

    All views of an example come one after the other. A recipe that has its own rule for what is
    right hands several views of each example itself, along the second axis of ``x``; they are asked
    as views, too.
    """
    assert lesson.held_out is not None
    length = len(lesson.held_out)  # type: ignore[arg-type]  # a map-style data set has one
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    loader = make_loader(lesson.held_out, device, lesson.collate, workers=0, pin_memory=False)
    every = np.arange(length, dtype=np.int64)
    parts = [every[start : start + _BATCH] for start in range(0, length, _BATCH)]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = [_logits(model, batch, lesson.correct is not None)
                     for batch in loader.batches(parts)]  # fmt: skip
    finally:
        model.train(training)
    logits = torch.cat(found).float().cpu().numpy()
    return np.ascontiguousarray(logits.reshape(length // views, -1, logits.shape[-1]))


def _logits(model: nn.Module, batch: Any, has_views: bool) -> Tensor:
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise InvalidArgument(
            "an audit asks models whose batches are pairs (x, y), got a batch that is a "
            f"{type(batch).__name__}; audit another recipe"
        )
    x = batch[0]
    if has_views:
        return torch.stack([model(x[:, view]) for view in range(x.shape[1])], dim=1)
    return model(x)[:, None]  # type: ignore[no-any-return]


# ---- records left out of a training run whose numbers stay what they are
#
# A record that is left out is sampled like any other, and its loss is taken times 0: its gradient
# is 0, whatever clipping does, and nothing of it reaches the sum that noise is added to.


def without(lesson: Lesson, left_out: NDArray[np.bool_]) -> Lesson:
    """``lesson`` in which these rows of the data set count nothing.

    >>> from tacit.recipes.running.lesson import Lesson
    >>> data = TensorDataset(torch.eye(2), torch.tensor([0, 1]))
    >>> model = torch.nn.Linear(2, 2)
    >>> lesson = Lesson(
    ...     model=model, dataset=data, loss=None, held_out=None, correct=None, collate=None
    ... )
    >>> changed = without(lesson, np.array([False, True]))
    >>> batch = changed.dataset[:2]
    >>> [value > 0 for value in changed.loss(model, batch).tolist()]
    [True, False]
    """
    counted = torch.from_numpy(np.where(left_out, 0.0, 1.0).astype(np.float32))
    loss = lesson.loss or default_loss
    if isinstance(lesson.dataset, TensorDataset) and lesson.collate is None:
        # Stays a data set of tensors, which is indexed on its device.
        tensors = lesson.dataset.tensors
        marked = TensorDataset(*tensors, counted.to(tensors[0].device))
        return replace(lesson, dataset=marked, loss=_Counted(loss, flat=True))
    return replace(
        lesson,
        dataset=_Marked(lesson.dataset, counted),
        loss=_Counted(loss, flat=False),
        collate=_Apart(lesson.collate or default_collate),
    )


@final
class _Counted:
    """A loss times the mark of each row: the batch's last entry."""

    def __init__(self, loss: RowWise, *, flat: bool) -> None:
        self._loss, self._flat = loss, flat

    def __call__(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        rest, counted = (tuple(batch[:-1]), batch[-1]) if self._flat else batch
        losses: torch.Tensor = self._loss(model, rest) * counted
        return losses


@final
class _Marked(Dataset[Any]):
    """Examples with their marks."""

    def __init__(self, dataset: Dataset[Any], counted: torch.Tensor) -> None:
        self._dataset, self._counted = dataset, counted

    def __len__(self) -> int:
        return len(self._counted)

    def __getitem__(self, row: int) -> tuple[Any, torch.Tensor]:
        return self._dataset[row], self._counted[row]


@final
class _Apart:
    """Collates examples and marks apart."""

    def __init__(self, collate: Collate) -> None:
        self._collate = collate

    def __call__(self, rows: list[Any]) -> tuple[Any, torch.Tensor]:
        return self._collate([row for row, _ in rows]), torch.stack([mark for _, mark in rows])


# ---- shadow models


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """How many shadow models are trained, and where.

    Args:
        count: How many.
        seed: For their members and first weights.
        workers: How many processes train them.
        cluster: A Ray cluster that trains them instead: its address, or "local".
        gpus: How many GPUs a model takes there.
        folder: Where finished ones are kept; None keeps none.
        progress: Whether to show how many are trained.
    """

    count: int
    seed: int
    workers: int = 1
    cluster: str | None = None
    gpus: float = 0.0
    folder: Path | None = None
    progress: bool | None = None


def shadows_of(
    train: Callable[[NDArray[np.bool_], int], NDArray[np.float32]],
    labels: NDArray[np.int64],
    crew: Crew,
) -> Shadows | None:
    """Models that ``train`` made of random halves, each asked about all examples with ``labels``.

    None if the crew is to train none.
    """
    if crew.count == 0:
        return None
    logits, members = train_shadows(
        train, examples=len(labels), count=crew.count, seed=crew.seed, workers=crew.workers,
        cluster=crew.cluster, gpus=crew.gpus, folder=crew.folder, progress=crew.progress,
    )  # fmt: skip
    return Shadows(logits, labels, members)


def threads_for(workers: int) -> int | None:
    """How many threads each of several processes may take; alone, as many as PyTorch likes."""
    return None if workers == 1 else max(1, (os.cpu_count() or 1) // workers)
