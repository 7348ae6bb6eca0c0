"""What a run is fed with: data and a loss that tell whose losses are computed.

Wherever it can, a run gets the user's own kind of data set, loader and workers, and rows are known
by what is in them. Elsewhere the data set is wrapped, and every reading is numbered.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from tacit.auditing.replay.watching import Read
from tacit.training.verification import random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

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
class Recognition:
    """Knows the records of a run by their content: whatever became of them on the way to the loss.

    Records that are alike are taken for one another at random, each at most once in a lot.
    """

    def __init__(self, examples: Sequence[Any], collate: Callable[[list[Any]], Any] | None) -> None:
        self._examples = examples
        self._places: dict[bytes, list[int]] = {}
        for place, example in enumerate(examples):
            (key,) = _keys((collate or default_collate)([example]))
            self._places.setdefault(key, []).append(place)
        self._random = random.Random(0)

    @property
    def distinct(self) -> int:
        """How many different records there are."""
        return len(self._places)

    def reads(self, batch: Any, taken: Container[int]) -> list[Read]:
        """The records that a batch consists of; ``taken`` are those that the lot has already.

        Raises:
            Stranger: if a row is none of the run's records.
        """
        found: list[int] = []
        for key in _keys(batch):
            alike = self._places.get(key)
            if alike is None:
                raise Stranger("a row came into the loss that is no record of the data set")
            free = [place for place in alike if place not in taken and place not in found]
            found.append(alike[0] if len(alike) == 1 else self._random.choice(free or alike))
        return [Read(place, 0, self._examples[place]) for place in found]


def own_data(dataset: Dataset[Any], records: Records) -> Dataset[Any]:
    """The user's data set itself, or a part of it that is of the same kind where there can be."""
    every = np.arange(len(dataset))  # type: ignore[arg-type]  # a map-style data set has a length
    if np.array_equal(records.examples, every):
        return dataset
    if type(dataset) is TensorDataset:
        return TensorDataset(*(tensor[records.examples] for tensor in dataset.tensors))
    return Subset(dataset, records.examples.tolist())


class Stranger(Exception):
    """A row that nobody knows."""


def _keys(batch: Any) -> list[bytes]:
    """The content of every row, in bytes."""
    leaves = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.ndim]
    rows = len(leaves[0]) if leaves else 0
    flat = [leaf.detach().cpu().reshape(rows, -1) for leaf in leaves if len(leaf) == rows]
    arrays = [leaf.contiguous().view(torch.uint8).numpy() for leaf in flat]
    return [b"|".join([array[row].tobytes() for array in arrays]) for row in range(rows)]


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

    Batches of a wrapped data set come with numbers of readings, others are recognised.
    ``crash_at`` is the number of a lot in which the loss raises instead; of more rows than
    ``full_above`` at a time it raises that there is no memory for them.
    """

    loss: Loss
    records: Records
    watch: Watch
    recognition: Recognition | None
    scale: float = 1.0
    factors: Mapping[int, float] = field(default_factory=dict)
    crash_at: int | None = None
    full_above: int | None = None

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """The losses of the batch's rows, times their factors."""
        if self.recognition is None:
            inner, numbers = batch
            rows = numbers.tolist()
        else:
            inner, reads = batch, self.recognition.reads(batch, self.watch.in_lot)
            rows = [self.watch.read(read) for read in reads]
        self.watch.loss(rows)
        if self.full_above is not None and len(rows) > self.full_above:
            raise torch.OutOfMemoryError("raised by the self-test")
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
