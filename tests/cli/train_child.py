"""``tacit train`` in a process of its own, with a slow recipe in the place of ``digits``.

It works through all stages: preprocessing, a charged release, steps. What it does is told on
standard error, and each release that is really drawn leaves a line in a log. With ``HOLD`` it takes
so many steps, and waits in the next one until the file ``GATE`` is there: whatever is to happen to
it before it ends happens then, however busy the machine is.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.swa_utils import AveragedModel

from tacit import losses
from tacit.accounting import Gaussian
from tacit.cli import main
from tacit.mechanisms import gaussian
from tacit.recipes import Recipe, digits
from tacit.training import Prepared, Schedule

if TYPE_CHECKING:
    from torch import nn

    from tacit.ledger import Budget
    from tacit.mechanisms import Released
    from tacit.runs import Outline, Releasing, Task
    from tacit.training import Plan


@dataclass(frozen=True, kw_only=True)
class Settings:
    steps: int = 20
    lot: int = 720
    clip: float = 0.3
    lr: float = 130.0
    before: float = 0.1  # seconds of preprocessing
    each: float = 0.02  # seconds of a step


def tell(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def linger(seconds: float) -> None:
    """What makes the recipe slow, so that a signal comes in the middle of something."""
    time.sleep(seconds)


def hold(steps: int) -> None:
    """Waits if so many steps are as many as may be taken."""
    if "HOLD" in os.environ and steps >= int(os.environ["HOLD"]):
        tell("holding")
        while not Path(os.environ["GATE"]).exists():
            time.sleep(0.01)


def outline(task: Task) -> Outline:
    chosen = task.settings
    tell("preprocessing")
    linger(chosen.before)
    return task.plan(lot=chosen.lot, steps=chosen.steps, clip=chosen.clip, also=(Gaussian(20.0),))


def prepare(task: Task, plan: Plan, release: Releasing) -> Prepared:
    chosen, taken = task.settings, 0

    def mechanism(budget: Budget | None) -> Released[Any]:
        linger(chosen.before / 2)
        with Path(os.environ["RELEASES"]).open("a") as log:
            log.write("released\n")
        return gaussian([0.0, 0.0], sensitivity=1.0, noise_multiplier=20.0, budget=budget)

    tell("releasing")
    mean = release("mean", mechanism, what="a mean")
    tell(f"mean {float(mean[0])!r}")

    def rate(steps: int) -> float:
        nonlocal taken
        taken = steps
        return 1.0 / (1.0 + steps)

    def slow(model: nn.Module, batch: Any) -> torch.Tensor:
        hold(taken)
        linger(chosen.each)
        return losses.cross_entropy(model(batch[0]), batch[1])

    model = torch.nn.Linear(65, 10, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=chosen.lr)
    tell("fitting")
    return Prepared(
        model=model, optimizer=optimizer, plan=plan, loss=slow,
        dataset=digits.rows(task.data.train, task.device),
        held_out=digits.rows(task.data.test, task.device),
        schedule=Schedule(
            scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, rate),
            average=AveragedModel(model), average_from=10,
        ),
    )  # fmt: skip


RECIPE = Recipe(
    name="digits", summary="slow", data="digits", settings=lambda _: Settings(),
    outline=outline, prepare=prepare, tuning="none",
)  # fmt: skip


def command(*arguments: str) -> int:
    """``tacit`` with these arguments and the slow recipe, in a process of its own."""
    digits.RECIPE = RECIPE
    sys.argv = ["tacit", *arguments]
    tell("ready")
    return main()


if __name__ == "__main__":
    sys.exit(command(*sys.argv[1:]))
