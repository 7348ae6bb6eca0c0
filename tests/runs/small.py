"""A small data set and recipes on it, for tests of running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

from tacit.accounting import Gaussian
from tacit.data import Examples, Split
from tacit.mechanisms import gaussian
from tacit.runs import Recipe
from tacit.training import Prepared, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.runs import Job, Outline, Releasing, Task
    from tacit.training import Plan

TRAIN, TEST = 300, 100
MEAN_NOISE = 20.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    lot: int = 60
    steps: int = 10
    clip: float = 1.0
    lr: float = 0.5
    head: Literal["linear", "deep"] = "linear"
    averaged: bool = True
    note: str = ""


def split() -> Split:
    """Two classes, well apart."""
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 2, TRAIN + TEST)
    inputs = chance.normal(size=(TRAIN + TEST, 3)) + 2.0 * np.eye(3)[labels]
    parts = [Examples(inputs[rows], labels[rows]) for rows in (slice(0, TRAIN), slice(TRAIN, None))]
    return Split("small", *parts, ("a", "b"), {"small.csv": "sha256:00"})


def dataset(examples: Examples) -> TensorDataset:
    inputs = torch.as_tensor(np.asarray(examples.inputs), dtype=torch.float32)
    return TensorDataset(inputs, torch.as_tensor(examples.labels))


def mean_of(calls: list[str]) -> Callable[[Budget | None], Released[Any]]:
    def mechanism(budget: Budget | None) -> Released[Any]:
        calls.append("drawn")
        return gaussian(np.zeros(3), sensitivity=1.0, noise_multiplier=MEAN_NOISE, budget=budget)

    return mechanism


def prepared(task: Task, plan: Plan) -> Prepared:
    chosen = task.settings
    model = torch.nn.Linear(3, 2)
    return Prepared(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=chosen.lr), plan=plan,
        dataset=dataset(task.data.train), held_out=dataset(task.data.test),
        schedule=Schedule(
            average=AveragedModel(model) if chosen.averaged else None, average_from=6
        ),
        notes=(chosen.note,) if chosen.note else (),
    )  # fmt: skip


def recipe(calls: list[str] | None = None, *, also: bool = True) -> Recipe:
    """One that releases a mean first (``calls`` counts how often it is drawn), and then fits."""
    drawn = [] if calls is None else calls

    def outline(task: Task) -> Outline:
        chosen = task.settings
        return task.plan(
            lot=chosen.lot, steps=chosen.steps, clip=chosen.clip,
            also=(Gaussian(MEAN_NOISE),) if also else (),
        )  # fmt: skip

    def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
        if also:
            release("mean", mean_of(drawn), what="the mean")
        return prepared(task, plan)

    return Recipe(
        name="small", summary="two clouds", data="small", settings=lambda _: Settings(),
        outline=outline, prepare=prepare, tuning="by hand, not charged",
    )  # fmt: skip


def unplanned(train: Callable[[Job], Any]) -> Recipe:
    """One without a plan."""
    return Recipe(
        name="small", summary="two clouds", data="small", settings=lambda _: Settings(),
        train=train, tuning="by hand, not charged",
    )  # fmt: skip


class StopAfter:
    """Says stop once it was asked so often."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0
