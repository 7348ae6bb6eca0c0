"""A user's script: a pandas table, a module of their own, and a run that is kept in a folder.

``python own_data.py DIR [resume]`` trains. With ``HOLD`` it waits after that many steps until it is
killed. ``tacit audit DIR --model own_data.py:prepare`` is given the same model and data.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import Dataset

import tacit

TRAIN, TEST = 240, 120


def table(rows: int, seed: int) -> pd.DataFrame:
    """Visits to a clinic: two numbers, one word, and whether somebody came back."""
    chance = np.random.default_rng(seed)
    age, ward = chance.normal(size=rows), chance.choice(["north", "south"], rows)
    score = chance.normal(size=rows)
    back = (age + score + 0.7 * (ward == "north") + chance.normal(scale=0.5, size=rows)) > 0.3
    return pd.DataFrame({"age": age, "score": score, "ward": ward, "back": back})


class Visits(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The rows of a table."""

    def __init__(self, frame: pd.DataFrame) -> None:
        numbers = frame[["age", "score"]].assign(north=frame["ward"] == "north")
        self.x = torch.tensor(numbers.to_numpy(dtype=np.float32))
        self.y = torch.tensor(frame["back"].to_numpy(dtype=np.int64))

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[row], self.y[row]


class Network(nn.Module):
    """A module of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(torch.tanh(self.hidden(x)))
        return found


def prepare() -> tacit.Prepared:
    model = Network()
    return tacit.Prepared(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        plan=tacit.Plan.for_budget(
            epsilon=4, delta=1e-4, examples=TRAIN, lot_size=40, epochs=4, clip=1.0
        ),
        dataset=Visits(table(TRAIN, 1)),
        held_out=Visits(table(TEST, 2)),
        metrics={"batches": lambda _, batches: len(list(batches))},
        loss=slow_loss,
    )


taken = 0


def slow_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """The cross entropy; waits once enough batches have passed."""
    global taken  # noqa: PLW0603 - the script of a user
    taken += 1
    if taken >= int(os.environ.get("HOLD", "1000000000")):
        sys.stderr.write("holding\n")
        sys.stderr.flush()
        time.sleep(600)
    return tacit.losses.cross_entropy(model(batch[0]), batch[1])


if __name__ == "__main__":
    ready = prepare()
    done = tacit.fit(
        ready.model, ready.optimizer, ready.plan, ready.dataset,
        held_out=ready.held_out, loss=ready.loss, out=sys.argv[1], resume="resume" in sys.argv,
    )  # fmt: skip
    sys.stdout.write(f"{done.statement.epsilon}\n")
