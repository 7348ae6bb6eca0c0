"""What a run is fed with, in the place of the user's: data, collate function and loss that tell."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate

from tacit.auditing.replay.watching import Read
from tacit.training.verification import random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

    from tacit.auditing.replay.records import Records
    from tacit.auditing.replay.setting import Loss
    from tacit.auditing.replay.watching import Watch


class Crash(Exception):
    """What the test raises, through the loss, to see what an engine leaves behind."""


@final
class WatchedData(Dataset[Any]):
    """Some records of a data set; every reading is noted and numbered.

    ``views`` keeps the views of data that come out anew at every reading (None: they do not). A
    record then has ``count`` views, which come in turns, the same ones in every run.
    """

    def __init__(
        self, base: Dataset[Any], records: Records, watch: Watch, views: Views | None
    ) -> None:
        self._base, self._records, self._watch, self._views = base, records, watch, views
        self._turns: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._records.examples)

    def __getitem__(self, place: int) -> tuple[int, Any]:
        records, place = self._records, int(place)
        index, view = int(records.examples[place]), 0
        if self._views is None:
            example = self._base[index]
        else:
            view = self._turns.get(place, 0)
            self._turns[place] = (view + 1) % self._views.count
            example = self._views.of(self._base, index, view)
        change = records.changes.get(int(records.units[place]))
        if change is not None:
            example = change(example)
        return self._watch.read(Read(place, view, example)), example


@final
class Views:
    """So many views of every record of a data set that draws random numbers when it is read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._kept: dict[tuple[int, int], Any] = {}

    def of(self, base: Dataset[Any], index: int, view: int) -> Any:
        """One of the views; the same whenever it is asked for."""
        key = index, view
        if key not in self._kept:
            with seeded(self.count * index + view):
                self._kept[key] = base[index]
        return self._kept[key]


@final
@dataclass(frozen=True, slots=True)
class Collated:
    """The user's collate function, with the numbers of the readings beside the batch."""

    collate: Callable[[list[Any]], Any] | None

    def __call__(self, numbered: list[tuple[int, Any]]) -> tuple[Any, Tensor]:
        """The batch, and which readings its rows are."""
        batch = (self.collate or default_collate)([example for _, example in numbered])
        return batch, torch.tensor([number for number, _ in numbered], dtype=torch.int64)


@final
@dataclass(frozen=True, eq=False)
class WatchedLoss:
    """The user's loss, times a factor for every unit; it notes whose losses are computed.

    ``crash_at`` is the number of a lot in which the loss raises instead.
    """

    loss: Loss
    records: Records
    watch: Watch
    scale: float = 1.0
    factors: Mapping[int, float] = field(default_factory=dict)
    crash_at: int | None = None

    def __call__(self, model: nn.Module, batch: tuple[Any, Tensor]) -> Tensor:
        """The losses of the batch's rows, times their factors."""
        inner, numbers = batch
        rows = numbers.tolist()
        self.watch.loss(rows)
        if self.crash_at is not None and self.watch.lots_begun > self.crash_at:
            raise Crash("raised by the self-test")
        losses = self.loss(model, inner)
        units = self.records.units[[self.watch.reads[row].place for row in rows]]
        factors = [self.scale * self.factors.get(int(unit), 1.0) for unit in units]
        weights = torch.tensor(factors, dtype=losses.dtype, device=losses.device)
        return losses * weights.reshape(-1, *[1] * (losses.ndim - 1))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Global random numbers from a seed; afterwards they go on as before."""
    before = random_state()
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - it is the global state that data sets draw from
    try:
        yield
    finally:
        set_random_state(before)
