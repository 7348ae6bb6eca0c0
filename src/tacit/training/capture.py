"""Steps recorded once on a GPU and replayed whole, so that it waits for no Python.

A batch from its rows to its clipped sum is one recording; noise and update are another, of which
``updates`` takes care. What is recorded reads its inputs where they lay at the time: every replay
is fed into the same memory. Whatever cannot be recorded runs as it is, and ``dp.explain()`` says
why.
"""

from __future__ import annotations

import gc
import random
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, final
from weakref import WeakSet

import numpy as np
import torch

from tacit.training.circumstances import Circumstances
from tacit.training.clipping.forms.matrix import has_triton
from tacit.training.clipping.recorder import HostCopy
from tacit.training.loaders import leaves_of, over

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from tacit.training.batches import Batch
    from tacit.training.clipping.sums import BatchSums
    from tacit.training.loaders import OnDevice

Made = TypeVar("Made")
Computed: TypeAlias = "tuple[Tensor, BatchSums]"  # a batch: its losses and its clipped sum
WARM_UP = 3  # runs before a recording: to see the shapes, to compile, and to look for host reads
MOST_RECORDINGS = 8  # of one kind: each holds memory
_PATIENCE = 8  # lots, after which a shape is recorded though a larger one was not
_MOST_GATHERED = 4  # tensors of a data set whose rows one kernel takes
_STAGED = 16  # lots whose numbers may be on their way to a device
_SYNCHRONIZED = "synchronizing CUDA operation"  # torch has no class of error for it


class HostRead(Exception):
    """The host asked a device for a number, and waited for it: it says in which line.

    Or it sent some: then ``what`` says so.
    """

    def __init__(self, line: str = "", what: str = "reads numbers back from the device") -> None:
        super().__init__(line)
        self.what = what


class Graphs(Protocol):
    """Records work on a device; ``runs_python``: replays call whatever Python the work calls."""

    runs_python: bool

    def without_host_reads(self) -> AbstractContextManager[None]:
        """Raises ``HostRead`` where the host reads a number from the device meanwhile."""

    def record_batch(self, work: Callable[[], Computed]) -> tuple[Callable[[], None], Computed]:
        """What repeats ``work``, and its results, which every repetition writes over.

        They are there after the first repetition.
        """

    def record_update(
        self, work: Callable[[], None], generators: Sequence[torch.Generator]
    ) -> Callable[[], None]:
        """What repeats ``work``, which changes what it reads. Recording it changes nothing.

        ``generators`` are those of which it draws beside the device's own.
        """


@final
class CudaGraphs:
    """Records CUDA graphs, of which one is replayed at a time.

    Those of batches share one pool of memory: what one of them computes on its way, another writes
    over, and its results are read, copied or added up before any other is replayed. A pool hands
    what a recording gave back to another only if that is made on the same stream
    (``torch.cuda.graph``). What an update leaves is of use lots later: each has its own pool.
    """

    runs_python = False

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._batches: WeakSet[torch.cuda.CUDAGraph] = WeakSet()
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def without_host_reads(self) -> Iterator[None]:
        """See ``Graphs``. Libraries that take another way while they are recorded take it here."""
        before = torch.cuda.get_sync_debug_mode()
        try:
            _forbid_waiting("error")
            with _as_if_recording():
                yield
        except HostCopy as error:
            raise HostRead(_line_of(error), "copies numbers from the host") from error
        except RuntimeError as error:
            if _SYNCHRONIZED in str(error):
                raise HostRead(_line_of(error)) from error
            raise
        finally:
            _forbid_waiting(before)

    def record_batch(self, work: Callable[[], Computed]) -> tuple[Callable[[], None], Computed]:
        """See ``Graphs``."""
        gc.collect()  # recordings that were let go
        if not self._batches:  # a pool that no graph uses any more may not be used again
            self._pool = torch.cuda.graph_pool_handle()
        graph, made = self._recorded(work, (), self._pool)
        self._batches.add(graph)
        return graph.replay, made

    def record_update(
        self, work: Callable[[], None], generators: Sequence[torch.Generator]
    ) -> Callable[[], None]:
        """See ``Graphs``."""
        gc.collect()
        graph, _ = self._recorded(work, generators, torch.cuda.graph_pool_handle())
        return graph.replay

    def _recorded(
        self, work: Callable[[], Made], generators: Sequence[torch.Generator], pool: Any
    ) -> tuple[torch.cuda.CUDAGraph, Made]:
        """A graph and the results of ``work``; while it is recorded nothing is computed."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()  # what lies idle there is needed for the recording's own pool
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                made = work()
            except BaseException:
                _abandon(graph)
                self._stream = torch.cuda.Stream(self._device)
                self._pool = torch.cuda.graph_pool_handle()
                raise
            graph.capture_end()
        torch.cuda.synchronize(self._device)
        return graph, made


@final
class Reruns:
    """What a machine without a GPU has: a replay runs the work again, into the same memory.

    Nothing is gained but that code which is to be recorded on a GPU can be tried, and the engine
    tested, anywhere.
    """

    runs_python = True

    @contextmanager
    def without_host_reads(self) -> Iterator[None]:
        """See ``Graphs``: here the host reads its own memory."""
        yield

    def record_batch(self, work: Callable[[], Computed]) -> tuple[Callable[[], None], Computed]:
        """See ``Graphs``."""
        made = work()

        def replay() -> None:
            for old, new in zip(_results(made), _results(work()), strict=True):
                old.copy_(new)

        return replay, made

    def record_update(
        self, work: Callable[[], None], generators: Sequence[torch.Generator]
    ) -> Callable[[], None]:
        """See ``Graphs``."""
        del generators
        return work


def _results(made: Computed) -> list[Tensor]:
    losses, batch = made
    return [losses, batch.squared_norms, batch.scales, *batch.sums.values()]


def _forbid_waiting(mode: int | str) -> None:
    with warnings.catch_warnings():  # torch calls it a prototype, which it has been for years
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)


def _line_of(error: BaseException) -> str:
    """The line of the model or the loss that an error comes from: the last outside of torch.

    A backward pass goes by none of theirs.
    """
    calls = [(Path(one.filename), one.lineno) for one in extract_tb(error.__traceback__)]
    torchs, ours = Path(torch.__file__).parent, Path(__file__).parents[1]
    theirs = [one for one in calls if not any(map(one[0].is_relative_to, (torchs, ours)))]
    path, line = (theirs or calls)[-1]
    if path.is_relative_to(torchs):
        return "in the backward pass of an operation of torch's, as that of prod"
    return f"{path.name}, line {line}"


@contextmanager
def _as_if_recording() -> Iterator[None]:
    """Torch says that a recording is under way: transformers reads no mask then, for example."""
    asked = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: True
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = asked


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """Ends a recording that failed; that it did is told by the error which is on its way."""
    with suppress(RuntimeError):
        graph.capture_end()
    with suppress(RuntimeError):
        graph.reset()


def host_randomness() -> tuple[object, ...]:
    """The states of the random numbers that a host draws: Python's, NumPy's and torch's."""
    kind, keys, at, *rest = np.random.get_state()  # noqa: NPY002 - the one that users' code draws of
    return (
        random.getstate(), kind, np.asarray(keys).tobytes(), at, *rest,
        bytes(torch.get_rng_state().numpy()),
    )  # fmt: skip


# ---- batches


@final
@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of a batch as a function of its data, and who is shown them."""

    of: Callable[[Any], Tensor]
    seen: Callable[[Tensor], None] | None = None


@final
class Staged:
    """Memory of the host from which a tensor is filled, lot after lot, while nobody waits.

    A device reads page-locked memory when its turn comes, perhaps some lots later. So there are
    several pieces of it, and one is written again only once what it held has arrived. To ask for
    that takes time: an event follows half of them, and is waited for before they are used again.
    """

    def __init__(self, target: Tensor) -> None:
        self._target = target
        count, pinned = (_STAGED, True) if target.is_cuda else (2, False)
        memory = torch.zeros(count, *target.shape, dtype=target.dtype, pin_memory=pinned)
        halves = [_pieces(half, torch.cuda.Event() if pinned else None) for half in memory.chunk(2)]
        self._turns = cycle([*halves[0], *halves[1]])
        self._now = halves[0][0]

    def room(self) -> NDArray[Any]:
        """Where the next numbers are to be written; waits if the device is many lots behind."""
        self._now = next(self._turns)
        if self._now.waits_for is not None:
            self._now.waits_for.synchronize()
        return self._now.numbers

    def send(self) -> None:
        """Sends what was written there."""
        self._target.copy_(self._now.memory, non_blocking=True)
        if self._now.is_followed_by is not None:
            self._now.is_followed_by.record()


@final
@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the host's memory, as a tensor and as numbers."""

    memory: Tensor
    numbers: NDArray[Any]
    waits_for: torch.cuda.Event | None  # that its half has arrived, before the first is written
    is_followed_by: torch.cuda.Event | None  # the same, behind the last


def _pieces(memory: Tensor, arrival: torch.cuda.Event | None) -> list[_Piece]:
    """The pieces of one half of the memory, and when its ``arrival`` matters."""
    last = len(memory) - 1
    return [
        _Piece(one, one.numpy(), arrival if at == 0 else None, arrival if at == last else None)
        for at, one in enumerate(memory)
    ]


@final
class Inputs:
    """What a recording of batches of one shape reads; it is fed before every replay.

    Of a data set on the device it is given the numbers of the rows, else the rows themselves. With
    ``same_weights`` every row of a real unit counts alike; else what each counts is fed as well.
    """

    def __init__(
        self,
        batch: Batch,
        data: Any,
        device: torch.device,
        loader: OnDevice | None,
        *,
        same_weights: bool,
    ) -> None:
        self._loader = loader
        self._rows = len(batch.rows) if loader is not None else 0
        self._whole = loader is not None and loader.is_whole(batch.rows)
        self._units, self._per_unit = batch.padded_units, batch.per_unit
        # Of the rows, if the data set has them here; and how many units are real.
        self._numbers = torch.zeros(self._rows + 1, dtype=torch.int64, device=device)
        self._weights = None if same_weights else torch.zeros(len(batch.weights), device=device)
        self._sent = Staged(self._numbers)
        self._sent_weights = None if self._weights is None else Staged(self._weights)
        self._places = torch.arange(self._units, device=device)
        self._counted: tuple[Tensor, Tensor] | None = None  # weights and mask, gathered with data
        self._data = None if loader is not None else over(torch.empty_like, data)
        self._leaves = leaves_of(self._data) if loader is None else []

    def feed(self, batch: Batch, data: Any) -> None:
        """Takes a batch; its ``data`` are looked at only if the data set is not on the device."""
        numbers = self._sent.room()
        if self._rows:
            numbers[:-1] = batch.rows
        numbers[-1] = len(batch.units)
        self._sent.send()
        if self._sent_weights is not None:
            self._sent_weights.room()[:] = batch.weights
            self._sent_weights.send()
        if self._loader is not None:
            self._loader.check_unchanged()
        elif self._leaves:
            torch._foreach_copy_(self._leaves, leaves_of(data))

    def data(self) -> Any:
        """The batch's data, as part of the recording."""
        if self._loader is None:
            return over(lambda one: one, self._data)  # a loss may take entries out of its own
        if self._whole:
            return tuple(tensor.detach() for tensor in self._loader.tensors)
        lines = _in_words(self._loader.tensors)
        if lines is not None:
            return self._gathered(self._loader.tensors, lines)
        where = self._numbers[: self._rows]
        return tuple(tensor.index_select(0, where) for tensor in self._loader.tensors)

    def _gathered(self, tensors: Sequence[Tensor], lines: list[Tensor]) -> tuple[Tensor, ...]:
        """The rows of a data set that lies on the device, and what they count, in one launch."""
        from tacit.training import kernels  # noqa: PLC0415 - needs Triton

        device, rows = self._numbers.device, self._rows
        words = [line.shape[1] for line in lines]
        targets = [torch.empty(rows, n, dtype=torch.int32, device=device) for n in words]
        weights = torch.empty(rows, device=device)
        real = torch.empty(self._units, dtype=torch.bool, device=device)
        fill = _MOST_GATHERED - len(lines)
        block = min(1024, 1 << max(5, (max(words) - 1).bit_length()))
        with torch.cuda.device_of(weights):
            kernels.gathered[(rows, -(-max(words) // block))](
                self._numbers, *lines, *lines[:1] * fill, *targets, *targets[:1] * fill,
                *words, *[0] * fill, weights, real.view(torch.int8), rows, self._per_unit,
                COUNT=len(lines), BLOCK=block, num_warps=1 if block <= 128 else 4,
            )  # fmt: skip
        self._counted = weights, real
        return tuple(
            target.view(tensor.dtype).view(rows, *tensor.shape[1:])
            for target, tensor in zip(targets, tensors, strict=True)
        )

    def weights(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Row weights and the mask of real units, as part of the recording."""
        if self._counted is not None and self._weights is None:
            weights, real = self._counted
            return weights.to(losses.dtype), real
        real = self._places < self._numbers[self._rows]
        if self._weights is not None:
            return self._weights.to(losses.dtype), real
        if self._per_unit == 1:
            return real.to(losses.dtype), real
        rows = real.repeat_interleave(self._per_unit)
        return rows.to(losses.dtype) / self._per_unit, real


def _in_words(tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """Tensors of a device as rows of words of four bytes; None where a kernel does not serve."""
    plain = all(_for_kernel(one) and one.is_contiguous() and one.numel() for one in tensors)
    if not plain or len(tensors) > _MOST_GATHERED:
        return None
    rows = [one.detach().view(len(one), -1) for one in tensors]
    fitting = all(
        row.shape[1] * row.element_size() % 4 == 0 and row.data_ptr() % 4 == 0 for row in rows
    )
    return [row.view(torch.int32) for row in rows] if fitting else None


def _for_kernel(tensor: Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.is_cuda and has_triton()


@final
@dataclass
class Recorded:
    """One recording: what repeats it, and where its results are."""

    replay: Callable[[], None]
    losses: Tensor
    sums: BatchSums
    held: object  # what the recording reads beside its inputs, which must not be given back


@final
@dataclass
class Shape:
    """What is known of batches of one shape: how often they ran, and their recording, if any."""

    size: int  # numbers in a batch
    since: int  # the lot that it was first met in
    runs: int = 0
    inputs: Any = None
    recorded: Recorded | None = None


@final
class BatchRecordings:
    """The recordings of batches, one for each of their shapes, of one function of losses.

    ``why_not`` says why there are none; once it does, there will be none.
    """

    def __init__(self, graphs: Graphs, model: nn.Module) -> None:
        self._graphs, self._model = graphs, model
        self._circumstances: Circumstances | None = None
        self._shapes: dict[Hashable, Shape] = {}
        self._changes = self._lots = 0
        self._waits = 0  # how often something has changed before anything was recorded
        self.why_not = ""

    def begin(self, function: Callable[..., Any]) -> None:
        """A lot is about to be computed with this function of losses."""
        if self.why_not:
            return
        self._lots += 1
        try:
            self._look(function)
        except Exception as error:  # of an object of theirs, that does not like to be looked at
            self.give_up(
                f"what the loss or the model goes by cannot be looked at ({type(error).__name__})"
            )

    def _look(self, function: Callable[..., Any]) -> None:
        """Lets go of recordings if anything has changed that they took for fixed."""
        if self._circumstances is not None and self._circumstances.hold(function):
            return
        replayed = not self._graphs.runs_python
        found = Circumstances(self._model, function, replayed=replayed)
        if replayed and found.hindrance:
            self.give_up(found.hindrance)
            return
        self._changes += self._circumstances is not None and bool(self._count)
        if self._changes > MOST_RECORDINGS:
            self.give_up("the loss or the model goes by values that change from lot to lot")
            return
        self._waits = 0 if self._count else self._waits + 1
        self._shapes, self._circumstances = {}, found

    @property
    def _count(self) -> int:
        return sum(shape.recorded is not None for shape in self._shapes.values())

    def shape(self, key: Hashable, size: int) -> Shape:
        """What is known of batches of this shape, which hold ``size`` numbers."""
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = Shape(size, self._lots)
        return known

    def is_time(self, shape: Shape) -> bool:
        """Whether batches of a shape are to be recorded: those of a larger one go first.

        What they gave back serves the others. The other way round little would: memory is handed
        out in pieces that were as large.
        """
        full = self._count >= MOST_RECORDINGS  # inputs of others would only hold memory
        if full or shape.runs < WARM_UP or shape.inputs is not None:
            return False
        larger = any(one.size > shape.size and one.inputs is None for one in self._shapes.values())
        return not larger or self._lots - shape.since >= _PATIENCE

    def without_host_reads(self) -> AbstractContextManager[None]:
        """See ``Graphs``."""
        return self._graphs.without_host_reads()

    @property
    def changes(self) -> list[int]:
        """How often tensors that the function goes by were written to: a loss must not do it."""
        return [] if self._circumstances is None else self._circumstances.changes

    def record(self, shape: Shape, work: Callable[[], Computed], held: object) -> None:
        """Records the batches of a shape, or gives up, and says why; ``held`` is kept with it."""
        try:
            replay, (losses, sums) = self._graphs.record_batch(work)
        except Exception as error:  # a true one comes again, without a recording
            self.give_up(failure(error))
            return
        shape.recorded = Recorded(replay, losses, sums, (held, self._circumstances))

    def forget(self) -> None:
        """Lets go of all recordings: weights may lie elsewhere from now on."""
        self._shapes = {}

    def give_up(self, reason: str) -> None:
        """Lets go of all recordings: there will be none."""
        self.why_not, self._shapes = reason, {}

    def describe(self) -> str:
        """How batches are computed, in a line."""
        if self.why_not:
            return f"Batches are computed each time, not replayed: {self.why_not}."
        if self._count and self._circumstances is not None and self._circumstances.is_partial:
            return (
                "Batches are replayed from a recording on the device. The loss or the model goes "
                "by more values than are looked at for changes: they must stay as they are."
            )
        if self._count:
            return "Batches are replayed from a recording on the device."
        if self._waits > WARM_UP:
            return (
                "Batches are computed each time, not replayed, as long as the loss or the model "
                "goes by values that change from lot to lot."
            )
        return "Batches are to be recorded on the device once a few have run."


def failure(error: Exception) -> str:
    """That a recording failed. Its message may hold sizes and values of private rows."""
    return f"recording failed with {type(error).__name__}, whose message is secret"
