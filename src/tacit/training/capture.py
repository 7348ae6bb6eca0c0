"""Steps recorded once on a GPU and replayed whole, so that it waits for no Python.

A batch from its rows to its clipped sum is one recording; noise and update are another. What is
recorded reads its inputs where they lay at the time: every replay is fed into the same memory.
Whatever cannot be recorded runs as it is, and ``dp.explain()`` says why.
"""

from __future__ import annotations

import functools
import gc
import random
import warnings
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from operator import is_
from pathlib import Path
from traceback import extract_tb
from types import CellType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, final
from weakref import WeakSet

import numpy as np
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from tacit.training.clipping.forms.matrix import has_triton
from tacit.training.loaders import leaves_of, over

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray
    from torch import Tensor
    from torch.optim import Optimizer

    from tacit.training.batches import Batch
    from tacit.training.clipping.sums import BatchSums
    from tacit.training.loaders import OnDevice

Made = TypeVar("Made")
Computed: TypeAlias = "tuple[Tensor, BatchSums]"  # a batch: its losses and its clipped sum
WARM_UP = 3  # runs before a recording: to see the shapes, to compile, and to look for host reads
_MOST_RECORDINGS = 8  # of one kind: each holds memory
_PATIENCE = 8  # lots, after which a shape is recorded though a larger one was not
_MOST_GATHERED = 4  # tensors of a data set whose rows one kernel takes
_STAGED = 16  # lots whose numbers may be on their way to a device
_SYNCHRONIZED = "synchronizing CUDA operation"  # torch has no class of error for it
# How far into what a function goes by is looked: depth, width of lists and objects, parts in all.
_DEPTH, _WIDTH, _MOST_PARTS = 4, 64, 512
_LIBRARIES = frozenset({"torch", "numpy", "functools", "transformers", "peft"})
_DEFAULTS = ("__defaults__", "__kwdefaults__")
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_GLOBAL_HOOKS = nn.modules.module._global_forward_hooks  # torch's own registry, of all modules


class HostRead(Exception):
    """The host asked a device for a number, and waited for it: it says in which line."""


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


# ---- what a recording takes for fixed


@final
class Circumstances:
    """The values that Python code goes by: those of modules, of a function, and torch's switches.

    A recording holds as long as they stay the same. Seen are the attributes and hooks of the
    model's modules, and what ``parts_of`` finds in the function.
    """

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        self._function = function
        walked = list(_walk(function))
        self._parts = [place.part for place in walked if place.counts]
        attributes = [
            (module.__dict__, key, value)
            for module in model.modules()
            for key, value in module.__dict__.items()
            if isinstance(value, (*_SIMPLE, torch.Tensor))
        ]
        self._holders, self._keys, self._values = map(list, zip(*attributes, strict=True))
        self._places: list[tuple[Any, Any, Any]] = []
        for part, holder, key, _ in walked:
            if holder is not None:
                self._places.append((holder, key, part))
            if isinstance(holder, FunctionType) and key == "__code__":
                of_it = ((holder, name, getattr(holder, name)) for name in _DEFAULTS)
                self._places.extend(of_it)
        sized = [_holder(part) for part in self._parts]
        sized += [hooks for module in model.modules() for hooks in _hooks(module)]
        self._sized = [one for one in (*sized, _GLOBAL_HOOKS) if one is not None]
        self._sizes = list(map(len, self._sized))
        self._switches = switches()

    def hold(self, function: Callable[..., Any]) -> bool:
        """Whether ``function`` goes by the same values, which are as they were."""
        if not self._holds_attributes():
            return False
        if self._switches != switches() or self._sizes != list(map(len, self._sized)):
            return False
        if function is self._function and _unchanged(self._places):
            return True
        return _all_same(self._parts, list(parts_of(function)))

    def _holds_attributes(self) -> bool:
        """Of modules there may be thousands of attributes: identity tells most of them at once."""
        if all(map(is_, map(dict.get, self._holders, self._keys), self._values)):
            return True
        return all(map(_same, self._values, map(dict.get, self._holders, self._keys)))


def _unchanged(places: Iterable[tuple[Any, Any, Any]]) -> bool:
    for holder, key, value in places:
        kind = type(holder)
        if kind is dict:
            now = holder.get(key)
        else:
            now = getattr(holder, key) if kind is FunctionType else _held(holder, key)
        if now is not value and not _same(value, now):
            return False
    return True


def switches() -> tuple[object, ...]:
    """What of torch's own state decides how something is computed."""
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        torch._C._get_cublas_allow_tf32(),  # torch.backends reads it through layers of Python
        torch._C._get_cudnn_allow_tf32(),
        torch._C._get_deterministic_algorithms(),
    )


def parts_of(function: Any) -> Iterator[Any]:
    """What a callable goes by: code, globals that it names, what it closes over, its object.

    Functions, lists, dictionaries and plain objects among them are looked into, to some depth and
    for the first few hundred parts. Numbers, texts and flags count by value, all else by identity:
    two callables with the same parts do the same, though a loop may make a new one every time.

    >>> class Options:
    ...     power = 3
    >>> options = Options()
    >>> options.scale = 2.0
    >>> [part for part in parts_of(lambda x, o=options: o.scale * x) if isinstance(part, float)]
    [2.0]
    """
    return (place.part for place in _walk(function) if place.counts)


@final
class _Place(NamedTuple):
    """A part, and where it is held so that another could take its place; nowhere if it could not.

    Of a function its code ``counts``, and of a part that was met before nothing does: there only
    the place is of interest.
    """

    part: Any
    holder: Any = None
    key: Any = None
    counts: bool = True


def _walk(function: Any) -> Iterator[_Place]:
    """What ``parts_of`` returns, and where each part is held."""
    todo: deque[tuple[_Place, int]] = deque([(_Place(function), 0)])
    seen: set[int] = set()
    for _ in range(_MOST_PARTS):
        if not todo:
            return
        place, depth = todo.popleft()
        part = place.part
        if isinstance(part, _SIMPLE):
            yield place
            continue
        met, made = (
            id(part) in seen,
            isinstance(part, (FunctionType, MethodType, functools.partial)),
        )
        yield place._replace(counts=place.counts and not met and not made)
        if met or not place.counts:
            continue
        seen.add(id(part))
        if isinstance(part, FunctionType):
            yield _Place(part.__code__, part, "__code__")
        if depth < _DEPTH:
            todo.extend((inner, depth + 1) for inner in _inner_parts(part))


def _inner_parts(part: Any) -> Iterable[_Place]:
    """What a part is made of. Classes, tensors and modules, torch's and Python's, are whole."""
    if isinstance(part, functools.partial):
        fixed = (_Place(one) for one in (part.func, *part.args))
        return (*fixed, *_entries(part.keywords))
    if isinstance(part, MethodType):
        return (_Place(part.__self__), _Place(part.__func__))
    if isinstance(part, FunctionType):
        cells = (_Place(_held(cell, None), cell) for cell in part.__closure__ or ())
        defaults = (_Place(one) for one in part.__defaults__ or ())
        return (*cells, *defaults, *_entries(part.__kwdefaults__ or {}), *_named_globals(part))
    if isinstance(part, list):
        return (_Place(one, part, at) for at, one in enumerate(part[:_WIDTH]))
    if isinstance(part, tuple):
        return (_Place(one) for one in part[:_WIDTH])
    held = _holder(part)
    return _entries(held) if isinstance(held, dict) else ()


def _holder(part: Any) -> list[Any] | dict[Any, Any] | None:
    """Where the parts of a list, a dictionary or a plain object are held; None of all else."""
    if isinstance(part, (list, dict)):
        return part
    if isinstance(part, (*_SIMPLE, type, ModuleType, FunctionType, nn.Module, torch.Tensor)):
        return None
    held = getattr(part, "__dict__", None)
    return held if isinstance(held, dict) else None


def _entries(held: dict[Any, Any]) -> Iterator[_Place]:
    return (_Place(value, held, key) for key, value in islice(held.items(), _WIDTH))


def _named_globals(function: FunctionType) -> Iterator[_Place]:
    if function.__module__.partition(".")[0] in _LIBRARIES:
        return
    known = function.__globals__
    for name in function.__code__.co_names:
        if name in known:
            whole = isinstance(known[name], ModuleType)
            yield _Place(known[name], known, name, counts=not whole)


def _held(holder: Any, key: Any) -> Any:
    """What lies at a place now."""
    if isinstance(holder, CellType):
        try:
            return holder.cell_contents
        except ValueError:  # not yet assigned
            return None
    if isinstance(holder, FunctionType):
        return getattr(holder, key)
    if isinstance(holder, list):
        return holder[key] if key < len(holder) else None
    return holder.get(key)  # of a subclass of dict


def alike(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two callables are made of the same parts.

    >>> alike(lambda x: x, lambda x: x)
    False
    >>> made = [lambda x: x + 1 for _ in range(2)]
    >>> alike(*made)
    True
    """
    return _all_same(list(parts_of(one)), list(parts_of(other)))


def _all_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return len(first) == len(second) and all(map(_same, first, second))


def _same(one: object, other: object) -> bool:
    if isinstance(one, _SIMPLE) and type(one) is type(other):
        return bool(one == other)
    return one is other


def hindrance(model: nn.Module) -> str:
    """Why a model's forward pass cannot be replayed without its Python, or nothing."""
    hooked = [
        path or "the model"
        for path, module in model.named_modules()
        if not all(_is_fsdps(hook) for hooks in _hooks(module) for hook in hooks.values())
    ]
    if hooked or _GLOBAL_HOOKS:
        return f"a hook would not be called ({hooked[0] if hooked else 'of all modules'})"
    return ""


def _is_fsdps(hook: Any) -> bool:
    """Whether a hook is one by which FSDP2 gathers weights: a recording repeats what it did."""
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed.fsdp._fully_shard")


def _hooks(module: nn.Module) -> Iterable[dict[int, Any]]:
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks


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

    Of a data set on the device it is given the numbers of the rows, else the rows themselves.
    """

    def __init__(
        self, batch: Batch, data: Any, device: torch.device, loader: OnDevice | None, shares: bool
    ) -> None:
        self._loader = loader
        self._rows = len(batch.rows) if loader is not None else 0
        self._whole = loader is not None and loader.is_whole(batch.rows)
        self._units, self._per_unit = batch.padded_units, batch.per_unit
        self._numbers = torch.zeros(self._rows + 1, dtype=torch.int64, device=device)
        self._share = None if shares else torch.zeros(len(batch.weights), device=device)
        self._sent = Staged(self._numbers)
        self._sent_share = None if self._share is None else Staged(self._share)
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
        if self._sent_share is not None:
            self._sent_share.room()[:] = batch.weights
            self._sent_share.send()
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
        if self._counted is not None and self._share is None:
            weights, real = self._counted
            return weights.to(losses.dtype), real
        real = self._places < self._numbers[self._rows]
        if self._share is not None:
            return self._share.to(losses.dtype), real
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
class Batches:
    """The recordings of batches, one for each of their shapes, of one function of losses.

    ``why_not`` says why there are none; once it does, there will be none.
    """

    def __init__(self, graphs: Graphs, model: nn.Module) -> None:
        self._graphs, self._model = graphs, model
        self._circumstances: Circumstances | None = None
        self._shapes: dict[Hashable, Shape] = {}
        self._changes = self._lots = 0
        self.why_not = ""

    def begin(self, function: Callable[..., Any]) -> None:
        """A lot is about to be computed with this function of losses."""
        if self.why_not:
            return
        self._lots += 1
        if self._circumstances is not None and self._circumstances.hold(function):
            return
        if not self._graphs.runs_python and hindrance(self._model):
            self.give_up(hindrance(self._model))
            return
        self._changes += self._circumstances is not None and bool(self._recordings)
        if self._changes > _MOST_RECORDINGS:
            self.give_up("the loss or the model goes by values that change from lot to lot")
            return
        self._shapes = {}
        self._circumstances = Circumstances(self._model, function)

    @property
    def _recordings(self) -> int:
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
        if shape.runs < WARM_UP or shape.inputs is not None:
            return False
        larger = any(one.size > shape.size and one.inputs is None for one in self._shapes.values())
        return not larger or self._lots - shape.since >= _PATIENCE

    def without_host_reads(self) -> AbstractContextManager[None]:
        """See ``Graphs``."""
        return self._graphs.without_host_reads()

    def record(self, shape: Shape, work: Callable[[], Computed], held: object) -> None:
        """Records the batches of a shape, or gives up, and says why; ``held`` is kept with it."""
        if self._recordings >= _MOST_RECORDINGS:
            return
        try:
            replay, (losses, sums) = self._graphs.record_batch(work)
        except Exception as error:  # a true one comes again, without a recording
            self.give_up(_failed(error))
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
        if self._recordings:
            return "Batches are replayed from a recording on the device."
        return "Batches are to be recorded on the device once a few have run."


def _failed(error: Exception) -> str:
    """That a recording failed. Its message may hold sizes and values of private rows."""
    return f"recording failed with {type(error).__name__}, whose message is secret"


# ---- updates


@final
@dataclass(frozen=True)
class Update:
    """A recorded update, and what it took for fixed."""

    replay: Callable[[], None]
    settings: Sequence[dict[str, Any]]  # of each group of parameters
    states: Sequence[object]
    held: list[Tensor] = field(repr=False)  # kept, as the recording writes to their memory


@final
class Updates:
    """The recordings of noise and update, one for each place where the sums may lie.

    An optimizer's step is recorded only if it is torch's own and, as a step has shown, changes
    nothing but numbers on the device.
    """

    def __init__(
        self, graphs: Graphs, optimizers: Sequence[Optimizer], renew: Callable[[], None]
    ) -> None:
        self._graphs, self._optimizers = graphs, tuple(optimizers)
        self._renew = renew  # goes before each replay, so that its noise is fresh
        self._recorded: dict[Hashable, Update] = {}
        self._runs = 0
        self._changes = 0
        self._host: list[object] | None = None
        self.why_not = _foreign(optimizers, hooks=graphs.runs_python)

    def recorded(self, sums: Iterable[Tensor]) -> Update | None:
        """The update for sums that lie where they lay before; None if there is none.

        If the optimizers' settings have changed since, there is none any more.
        """
        known = self._recorded.get(_places(sums))
        if known is None:
            return None
        same = self._same_settings(known.settings) and self._same_states(known.states)
        if same and not _foreign(self._optimizers, hooks=self._graphs.runs_python):
            return known
        self._recorded, self._runs = {}, 1
        self._changes += 1
        if self._changes >= _MOST_RECORDINGS:
            self.why_not = "the optimizer's settings change from step to step"
        return None

    def forget(self) -> None:
        """Lets go of all recordings: weights and their fingerprints may lie elsewhere now."""
        self._recorded = {}

    def before(self) -> None:
        """An update is about to run as it is: notes what it must leave alone."""
        if not self.why_not:
            self._host = [] if self._graphs.runs_python else self._host_state()

    def after(self) -> None:
        """It ran: an optimizer that counts on the host is not recorded."""
        if self.why_not or self._host is None:
            return
        self._runs += 1
        if self._graphs.runs_python or self._runs == 1:  # the first step makes the state
            return
        if self._host != self._host_state():
            self.why_not = (
                "the optimizer counts its steps on the host (pass capturable=True if it takes it)"
            )

    def record(
        self,
        sums: Iterable[Tensor],
        work: Callable[[], None],
        generators: Sequence[torch.Generator],
    ) -> bool:
        """Records and replays an update, if it is time; False if not, and nothing was done."""
        places = list(sums)
        full = len(self._recorded) >= _MOST_RECORDINGS
        if self.why_not or self._runs < WARM_UP or full or not places:
            return False
        settings = [_settings(group) for group in self._groups()]
        states = [optimizer.state for optimizer in self._optimizers]
        held = [*places, *(t for o in self._optimizers for t in _tensors(o.state))]
        try:
            replay = self._graphs.record_update(work, generators)
        except Exception as error:
            self.why_not = _failed(error)
            return False
        update = self._recorded[_places(places)] = Update(replay, settings, states, held)
        self.replay(update)
        return True

    def replay(self, update: Update) -> None:
        """Takes the step: with noise of its own, and what the optimizers do then."""
        self._renew()
        update.replay()

    def describe(self) -> str:
        """How updates are computed, in a line."""
        if self.why_not:
            return f"Noise and update are computed each time, not replayed: {self.why_not}."
        if self._recorded:
            return "Noise and update are replayed from a recording on the device."
        return "Noise and update are to be recorded on the device once a few steps were taken."

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def _same_settings(self, known: Sequence[dict[str, Any]]) -> bool:
        """Whether the settings are those; told by identity first, which takes no time."""
        groups = self._groups()
        if len(groups) != len(known):
            return False
        for group, before in zip(groups, known, strict=True):
            known_all = len(group) == len(before) + 1
            same = known_all and all(map(is_, map(group.get, before), before.values()))
            if not same and _settings(group) != before:
                return False
        return True

    def _same_states(self, states: Sequence[object]) -> bool:
        return all(map(is_, [one.state for one in self._optimizers], states))

    def _host_state(self) -> list[object]:
        """Whatever of the optimizers' state is on the host."""
        return [
            value.tolist() if isinstance(value, torch.Tensor) else value
            for optimizer in self._optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, _SIMPLE) or (isinstance(value, torch.Tensor) and _host(value))
        ]


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """The settings of a group, by value where they can change in their place.

    Schedulers write to a rate that is a tensor. On the device a recording reads it where it lies;
    of one on the host it keeps the number.
    """
    return {name: _fixed(value) for name, value in group.items() if name != "params"}


def _fixed(setting: Any) -> Any:
    if isinstance(setting, torch.Tensor) and _host(setting):
        return setting.tolist()
    return tuple(setting) if isinstance(setting, list) else setting


def _host(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _tensors(state: Any) -> Iterator[Tensor]:
    for values in state.values():
        yield from (one for one in values.values() if isinstance(one, torch.Tensor))


def _places(tensors: Iterable[Tensor]) -> Hashable:
    return tuple([one.data_ptr() for one in tensors])


# Of a function around an optimizer's step: it knows that a replay does not call it.
REPLAYED = "_is_replayed"


def _is_wrapped(optimizer: Optimizer) -> bool:
    """Whether the step is not the optimizer's own: schedulers put one around it that counts."""
    step = vars(optimizer).get("step")
    known = ("_wrapped_by_lr_sched", REPLAYED)
    return step is not None and not any(hasattr(step, mark) for mark in known)


def _foreign(optimizers: Sequence[Optimizer], *, hooks: bool) -> str:
    """Why an optimizer's code must run each time, or nothing; ``hooks`` may be called as ever."""
    for one in optimizers:
        name = type(one).__name__
        if not type(one).__module__.startswith("torch.optim"):
            return f"{name} is not one of torch's own optimizers, and may count on the host"
        if type(one) is torch.optim.LBFGS:
            return f"{name} asks for losses again"
        own = one._optimizer_step_pre_hooks or one._optimizer_step_post_hooks
        if own and not hooks:
            return f"a hook of {name} would not be called"
        if not hooks and _is_wrapped(one):
            return f"what was put around the step of {name} would not be called"
    if torch_optimizer._global_optimizer_post_hooks and not hooks:
        return "a hook of all optimizers would not be called"
    return ""
