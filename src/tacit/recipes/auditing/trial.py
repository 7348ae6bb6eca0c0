"""One model of an audit, trained by a recipe's own code, and what it answers when it is asked.

The recipe is given other data than its own: training examples of which some are members, and, in
place of the held-out examples, those that the audit asks about. The recipe itself turns them into
what its model takes.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset, default_collate

from tacit._workers import RayCluster
from tacit.auditing.attacks import Shadows, train_shadows
from tacit.errors import InvalidArgument
from tacit.runs.recipe import Task, free
from tacit.runs.run import seeded
from tacit.training.evaluation import default_loss
from tacit.training.fit import Watch, carry_out
from tacit.training.loaders import make_loader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit._workers import Workers
    from tacit.accounting.events import Event
    from tacit.data import Examples, Split
    from tacit.runs.recipe import Outline, Recipe, Releasing
    from tacit.training.evaluation import RowWise
    from tacit.training.fit import Prepared
    from tacit.training.loaders import Collate
    from tacit.training.plan import Plan


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AttackChoice:
    """Which attacks an audit makes.

    Args:
        names: Some of ``tacit.auditing.attacks.ATTACKS``; left out, LiRA, or the loss where one
            model is all that is trained.
        shadows: How many shadow models to train, 0 for attacks that need none; left out, 16, or
            none where one model is all that is trained.
        views: How many views of each image to ask about: as it is, and moved by a pixel.
    """

    names: Sequence[str] | None = None
    shadows: int | None = None
    views: int = 1


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Where and how an audit is carried out; none of it changes what is found.

    Args:
        device: Where to train a recipe's models.
        workers: How many processes train shadow models; or a ``tacit.selection.RayCluster``.
        out: A folder for ``audit.json``, and for finished models until the audit ends; left out,
            the folder of the run that is audited, if there is one.
        progress: Whether to show progress on standard error; left out, if it is a terminal.
        command: The command line that started it.
    """

    device: str = "cpu"
    workers: Workers = 1
    out: str | os.PathLike[str] | None = None
    progress: bool | None = None
    command: Sequence[str] = ()


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
        silent = replace(change(prepared), held_out=None, metrics={})  # nothing is asked meanwhile
        carry_out(silent, delta=trial.delta, watch=Watch(progress=False))
        return answers(prepared.final, prepared, trial.views)


def prepared_by(trial: Trial, data: Split, seed: int, release: Releasing) -> Prepared:
    """What the recipe prepares of ``data``."""
    if trial.recipe.prepare is None:
        raise unfitted(trial.recipe)
    plan = _outline(trial, data).plan
    return trial.recipe.prepare(_task(trial, data, seed), plan, release)


def _outline(trial: Trial, data: Split) -> Outline:
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
    """Inside, PyTorch takes ``count`` threads; None leaves it as it is."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def planned(trial: Trial) -> tuple[Plan, tuple[Event, ...]]:
    """The plan that the recipe makes, and what else it would release. Nothing is released."""
    found = _outline(trial, trial.data)
    return found.plan, found.also


# ---- what a model answers

_BATCH = 1024


def answers(model: nn.Module, prepared: Prepared, views: int = 1) -> NDArray[np.float32]:
    """The logits of ``model`` on the held-out examples: (examples, views, classes).

    All views of an example come one after the other. A recipe that has its own rule for what is
    right hands several views of each example itself, along the second axis of ``x``; they are asked
    as views, too.
    """
    assert prepared.held_out is not None
    length = len(prepared.held_out)  # type: ignore[arg-type]  # a map-style data set has one
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    loader = make_loader(prepared.held_out, device, prepared.collate, workers=0, pin_memory=False)
    every = np.arange(length, dtype=np.int64)
    parts = [every[start : start + _BATCH] for start in range(0, length, _BATCH)]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = [_logits(model, batch, prepared.correct is not None)
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


def without(prepared: Prepared, left_out: NDArray[np.bool_]) -> Prepared:
    """``prepared`` in which these rows of the data set count nothing.

    >>> from tacit.training import Plan, Prepared
    >>> data = TensorDataset(torch.eye(2), torch.tensor([0, 1]))
    >>> model = torch.nn.Linear(2, 2)
    >>> plan = Plan(examples=2, lot_size=1, steps=1, noise_multiplier=1.0, clip=1.0)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    >>> prepared = Prepared(model=model, optimizer=optimizer, plan=plan, dataset=data)
    >>> changed = without(prepared, np.array([False, True]))
    >>> batch = changed.dataset[:2]
    >>> [value > 0 for value in changed.loss(model, batch).tolist()]
    [True, False]
    """
    counted = torch.from_numpy(np.where(left_out, 0.0, 1.0).astype(np.float32))
    loss = prepared.loss or default_loss
    if type(prepared.dataset) is TensorDataset and prepared.collate is None:
        # Stays a data set of tensors, which is indexed on its device.
        tensors = prepared.dataset.tensors
        marked = TensorDataset(*tensors, counted.to(tensors[0].device))
        return replace(prepared, dataset=marked, loss=_Counted(loss, flat=True))
    return replace(
        prepared,
        dataset=_Marked(prepared.dataset, counted),
        loss=_Counted(loss, flat=False),
        collate=_Apart(prepared.collate or default_collate),
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
        workers: How many processes train them; or a Ray cluster.
        folder: Where finished ones are kept; None keeps none.
        progress: Whether to show how many are trained.
    """

    count: int
    seed: int
    workers: Workers = 1
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
        folder=crew.folder, progress=crew.progress,
    )  # fmt: skip
    return Shadows(logits, labels, members)


def threads_for(workers: Workers) -> int | None:
    """How many threads each of several processes may take; alone, as many as PyTorch likes."""
    if isinstance(workers, RayCluster):
        return None  # Ray sees to it
    return None if workers == 1 else max(1, (os.cpu_count() or 1) // workers)
