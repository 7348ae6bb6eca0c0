"""How a run is watched from outside: what is read, computed, released and printed.

Wherever it can, a run gets the user's own kind of data set, loader and workers, and rows are known
by what is in them. Elsewhere the data set is wrapped, and every reading is numbered.
"""

from __future__ import annotations

import logging
import random
import re
import sys
import threading
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeAlias, cast, final
from unittest.mock import patch

import numpy as np
import torch
from torch.optim import optimizer as hooks
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from tacit.training import verification
from tacit.training.updates import REPLAYED
from tacit.training.verification import random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from tacit.auditing.replay.setting import Loss, Records

Resolve: TypeAlias = "Callable[[Sequence[int]], list[int]]"  # marks of rows to their readings
_KEPT = 24  # steps of which the parameters are kept
_NEVER = 1e-15  # of a run's time that may go into checks; 0 would forbid those asked for, too


class Read(NamedTuple):
    """One reading of a record: its place in the run's data, which of its views, and the example."""

    place: int
    view: int
    example: Any


@final
@dataclass(frozen=True, eq=False)
class Step:
    """What was seen of one step of the optimizer, and since the one before.

    Attributes:
        rows: The reads (places in ``Trace.reads``) whose losses were computed.
        batches: How many of them at a time.
        gradient: What the optimizer was given: all private parameters, one after the other.
        before: The parameters when the optimizer's step began.
        after: The parameters when it ended; of later steps neither is kept, to save memory.
        others: The model's other numbers at that time: buffers, and what is not trained.
        charged_at_read: How many steps were in the ledger when the lot's first record was read; of
            the first step, its last one, since an engine may rehearse with records before.
        charged_at_step: How many were when the optimizer's step began.
    """

    rows: NDArray[np.int64]
    batches: tuple[int, ...]
    gradient: Tensor
    before: Tensor | None
    after: Tensor | None
    others: Tensor
    charged_at_read: int | None
    charged_at_step: int | None


@final
class Kept:
    """Copies that a recording makes: every replay writes them over."""

    def __init__(self) -> None:
        self._copies: dict[str, Tensor] = {}
        self.rows: Resolve | None = None  # what its marks stand for

    def put(self, name: str, tensor: Tensor) -> None:
        """Keeps a copy, in the memory of the one before."""
        if name in self._copies:
            self._copies[name].copy_(tensor.detach())
        else:
            self._copies[name] = tensor.detach().clone()

    def get(self, name: str) -> Tensor:
        """The copy, on the host."""
        return self._copies[name].to("cpu", copy=True)


@final
class Watch:
    """Notes the events of one run, in their order, on one timeline.

    ``charged`` says how many steps are in the ledger; ``stepped`` is called after every step. What
    it notes changes from lot to lot, and no loss that holds it goes by that.
    """

    _only_looks_on = True  # see ``tacit.training.dependencies.LOOKS_ON``

    __slots__ = (
        "_batches", "_charged", "_first_charge", "_keeping", "_model", "_open", "_optimizer",
        "_replicas", "_rows", "_stepped", "lots_begun", "other_ranks", "parameters", "reads",
        "steps",
    )  # fmt: skip

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        charged: Callable[[], int] | None,
        stepped: Callable[[], None] | None = None,
    ) -> None:
        self._model, self._optimizer, self._charged = model, optimizer, charged
        self._stepped = stepped
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.reads: list[Read] = []
        self.steps: list[Step] = []
        self.other_ranks: list[list[Tensor]] = []
        self.lots_begun = 0
        self._rows: list[int] = []
        self._batches: list[int] = []
        self._first_charge: int | None = None
        self._open: dict[str, Any] | None = None
        self._replicas: dict[int, list[Tensor]] = {}
        self._keeping: Kept | None = None  # of the recording that is made or replayed

    def read(self, read: Read) -> int:
        """A record was read; returns the number of the reading."""
        if (self._first_charge is None or not self.steps) and self._charged is not None:
            self._first_charge = self._charged()
        self.reads.append(read)
        return len(self.reads) - 1

    def loss(self, rows: Sequence[int]) -> None:
        """The loss of these readings is about to be computed."""
        if not self._rows:
            self.lots_begun += 1
        self._rows.extend(rows)
        self._batches.append(len(rows))

    def losses_of(self, marks: Tensor, rows: Resolve) -> None:
        """The loss of the rows with these marks is about to be computed, or recorded."""
        if self._keeping is None:
            self.loss(rows(marks.tolist()))
        else:
            self._keeping.put("marks", marks)
            self._keeping.rows = rows

    def computed(self, kept: Kept) -> None:
        """A batch was computed whose marks were kept; nothing if it knows its rows otherwise."""
        if kept.rows is not None:
            self.loss(kept.rows(kept.get("marks").tolist()))

    @contextmanager
    def keeping(self, kept: Kept) -> Iterator[None]:
        """What is seen meanwhile is kept where it is, and nothing is read from a device."""
        before, self._keeping = self._keeping, kept
        try:
            yield
        finally:
            self._keeping = before

    @property
    def in_lot(self) -> set[int]:
        """The places whose losses were computed since the last step."""
        return {self.reads[row].place for row in self._rows}

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Listens to every optimizer of the process."""
        handles = [
            hooks.register_optimizer_step_pre_hook(self._before),
            hooks.register_optimizer_step_post_hook(self._after),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Listens to the run's own optimizer, as schedulers do: its steps can still be recorded."""
        own = self._optimizer.step

        def step(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            self._before(optimizer, args, kwargs)
            found = own(*args, **kwargs)
            self._after(optimizer, args, kwargs)
            return found

        setattr(step, REPLAYED, True)
        watched = MethodType(step, self._optimizer)
        with patch.object(self._optimizer, "step", watched):
            yield

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if optimizer is not self._optimizer:
            self._replica(optimizer)
        elif self._keeping is not None:
            self._keeping.put("gradient", joined(_gradients(self.parameters)))
            self._keeping.put("before", joined(self.parameters))
        else:
            self.begin_step()
            assert self._open is not None
            self._open |= {
                "gradient": flat(_gradients(self.parameters)), "before": self._parameters_now(),
            }  # fmt: skip

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if optimizer is not self._optimizer:
            return
        if self._keeping is not None:
            self._keeping.put("after", joined(self.parameters))
            self._keeping.put("others", joined(self._others()))
        elif self._open is not None:
            self._add_step({"after": self._parameters_now(), "others": flat(self._others())})

    def begin_step(self) -> None:
        """A step of the optimizer begins: of the lot that was computed since the one before."""
        self._open = {
            "rows": np.array(self._rows, dtype=np.int64),
            "batches": tuple(self._batches),
            "charged_at_read": self._first_charge,
            "charged_at_step": None if self._charged is None else self._charged(),
        }
        self._rows, self._batches, self._first_charge = [], [], None

    def end_step(self, kept: Kept) -> None:
        """The step was a replay: what its recording has kept is what was seen of it."""
        early = len(self.steps) < _KEPT
        seen: dict[str, Any] = {name: kept.get(name) for name in ("gradient", "others")}
        self._add_step(
            seen | {name: kept.get(name) if early else None for name in ("before", "after")}
        )

    def _add_step(self, seen: dict[str, Any]) -> None:
        assert self._open is not None
        step, self._open = self._open | seen, None
        self.steps.append(Step(**step))
        if self._stepped is not None:
            self._stepped()

    def _others(self) -> list[Tensor]:
        mine = {id(p) for p in self.parameters}
        held = [*self._model.buffers(), *self._model.parameters()]
        return [tensor for tensor in held if tensor is not None and id(tensor) not in mine]

    def _parameters_now(self) -> Tensor | None:
        return flat(self.parameters) if len(self.steps) < _KEPT else None

    def _replica(self, optimizer: Optimizer) -> None:
        """Another rank's optimizer, if it has parameters of the same shapes."""
        held = [p for group in optimizer.param_groups for p in group["params"]]
        mine = {id(p) for p in self.parameters}
        same = [p.shape for p in held] == [p.shape for p in self.parameters]
        if same and not any(id(p) in mine for p in held):
            self._replicas.setdefault(id(optimizer), []).append(flat(_gradients(held)))
            self.other_ranks = list(self._replicas.values())


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors as one vector on the host, in a precision that holds them exactly."""
    return joined(tensors).to("cpu")


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """The same vector, a copy, where the tensors are."""
    if not tensors:
        return torch.empty(0)
    double = any(t.dtype in {torch.float64, torch.int64} for t in tensors)
    kind = torch.float64 if double else torch.float32
    return torch.cat([t.detach().to(kind, copy=True).reshape(-1) for t in tensors])


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]


# ---- data and a loss that show whose losses are computed


class Crash(Exception):
    """What the test raises, through the loss, to see what an engine leaves behind."""


@final
class WatchedData(Dataset[Any]):
    """Some records of a data set; every reading is noted and numbered.

    ``views`` keeps the views of data that differ at every reading (None: they do not). A
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
    """``count`` views of every record of a data set that draws random numbers when it is read."""

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


@contextmanager
def rarely_checked() -> Iterator[None]:
    """No lot of tacit's own runs is checked again because a machine is slow.

    When checks are due follows the clock, and the rows of a lot that is checked are read more than
    once. Runs that look at such lots ask for the check themselves.
    """
    with patch.object(verification, "SHARE", _NEVER):
        yield


@contextmanager
def unrehearsed() -> Iterator[None]:
    """Runs of tacit neither rehearse nor check a batch: they begin with their first lot.

    A rehearsal takes longer than a step, and shows the same again in every run of a setting. What
    it refuses is seen in those that do rehearse; what it would hide shows in those that do not.
    """
    with patch.object(verification.Verifier, "watches", new=False):
        yield


# ---- what a run prints: the numbers in it, by the words that stand before them


_NUMBER = re.compile(
    r"([^\W\d]\w*)\b[\"']?\s*[=:]?\s*([-+]?\b(?:nan\b|inf\b|\d+\.?\d*(?:e[-+]?\d+)?))", re.I
)


@final
class Tee:
    """A stream that notes what its own thread writes to it, and passes everything on."""

    def __init__(self, stream: TextIO, heard: list[str]) -> None:
        self._stream, self._heard, self._thread = stream, heard, threading.get_ident()

    def write(self, text: str) -> int:
        """Writes and notes."""
        if threading.get_ident() == self._thread:
            self._heard.append(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@final
class Ear(logging.Handler):
    """Notes what is logged, at whatever level."""

    def __init__(self, heard: list[str]) -> None:
        super().__init__(logging.NOTSET)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        """Notes a message."""
        self._heard.append(f"{record.getMessage()}\n")


@contextmanager
def printed(*, logs: bool) -> Iterator[list[str]]:
    """All that is printed meanwhile, to either stream, or logged; piece by piece.

    Without ``logs`` for runs with a ledger, whose data base would log every statement.
    """
    heard: list[str] = []
    out, err = (cast("TextIO", Tee(stream, heard)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err), _logged(heard) if logs else nullcontext():
        yield heard


@contextmanager
def _logged(heard: list[str]) -> Iterator[None]:
    """Also what would be logged if anybody asked for more; others' handlers get no more of it."""
    root, ear = logging.getLogger(), Ear(heard)
    level, others = root.level, list(root.handlers)

    def as_before(record: logging.LogRecord) -> bool:
        return record.levelno >= level

    for handler in others:
        handler.addFilter(as_before)
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(ear)
        for handler in others:
            handler.removeFilter(as_before)


def numbers_in(text: str) -> dict[str, float]:
    """The numbers of a text, by the word before each and how often it came already.

    >>> numbers_in("step 1: loss=0.25, step 2: loss=0.5 (3.1 it/s)")
    {'step': 1.0, 'loss': 0.25, 'step 2': 2.0, 'loss 2': 0.5}
    """
    found: dict[str, float] = {}
    times: dict[str, int] = {}
    for word, number in _NUMBER.findall(text):
        times[word] = times.get(word, 0) + 1
        found[word if times[word] == 1 else f"{word} {times[word]}"] = float(number)
    return found
