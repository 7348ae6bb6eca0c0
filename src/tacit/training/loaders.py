"""From indices to batches: any map-style data set, in process, in workers, or on the device."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
)
from torch.utils.data import Sampler as TorchSampler

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Collate = Callable[[list[Any]], Any]


class Loader(Protocol):
    """Fetches batches of rows by their indices."""

    def batches(self, indices: Iterable[NDArray[np.int64]]) -> Iterator[Any]:
        """One batch for each array of indices, in order."""


def check_dataset(dataset: object, examples: int, *, counts_users: bool) -> None:
    """Refuses what could not be sampled as the plan says."""
    if isinstance(dataset, DataLoader):
        raise InvalidArgument(
            "dataset is a DataLoader, which draws its own batches (shuffled ones are not Poisson "
            "samples); pass loader.dataset, and collate=loader.collate_fn if it has one"
        )
    if type(dataset).__name__ == "DataFrame":
        raise InvalidArgument(
            "dataset is a DataFrame, whose dataset[i] is a column: make rows of it, such as "
            "TensorDataset(torch.tensor(frame[columns].to_numpy(), dtype=torch.float32), "
            "torch.tensor(labels))"
        )
    if isinstance(dataset, TorchSampler):
        raise InvalidArgument("dataset is a sampler; the plan's own sampler must draw the lots")
    sized = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if isinstance(dataset, IterableDataset) or not sized:
        raise InvalidArgument(
            f"dataset must be map-style (len() and dataset[i]), got {type(dataset).__name__}: "
            "examples of a stream cannot be sampled independently; pass a list of them"
        )
    if isinstance(dataset, tuple) and any(
        isinstance(one, torch.Tensor | np.ndarray) for one in dataset
    ):
        raise InvalidArgument(
            "dataset is a tuple of tensors or arrays, whose dataset[i] is a whole one: make rows "
            "of it by TensorDataset(*tensors)"
        )
    named = isinstance(dataset, Mapping) and 0 not in dataset
    if named or isinstance(dataset, str | bytes):
        raise InvalidArgument(
            f"dataset is a {type(dataset).__name__}, which has no row 0: pass the rows themselves, "
            "such as a TensorDataset of inputs and labels"
        )
    length = len(dataset)  # type: ignore[arg-type]
    if not counts_users and length != examples:
        raise InvalidArgument(
            f"the plan is for examples={examples}, but the data set has {length}; the number of "
            "examples is public and part of the plan: make it for the data, with "
            "examples=len(dataset)"
        )


def check_once(dataset: Any, groups: Sequence[Any] | NDArray[Any] | None) -> None:
    """Refuses a selection that names an example more than once, for other users or without any.

    ``Subset`` and ``ConcatDataset`` tell what they select; other data sets are taken at their word.
    """
    if not isinstance(dataset, Subset | ConcatDataset):
        return
    (keys,) = keys_of(dataset)
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    again = first[same] != np.arange(len(keys))
    if groups is not None:
        owners = np.asarray(groups)
        again &= owners[first[same]] != owners
    if again.any():
        raise InvalidArgument(
            f"dataset must hold every example once, got a {type(dataset).__name__} that names one "
            "again: each copy would be protected by itself, and its person less than is claimed; "
            "name each once (a loss may weigh it), or give all copies one user by groups="
        )


def keys_of(*datasets: Any) -> list[NDArray[np.int64]]:
    """A number for every row of each: the same where it is one row of one data set, or of memory.

    >>> whole = TensorDataset(torch.arange(4))
    >>> some, every = keys_of(Subset(whole, [3, 1]), whole)
    >>> bool((some == every[[3, 1]]).all()), len({*every.tolist()})
    (True, 4)
    """
    read = [_read_from(one, np.arange(len(one))) for one in datasets]
    sources, places = (np.concatenate(each) for each in zip(*read, strict=True))
    _, numbers = np.unique(sources, return_inverse=True)
    keys = numbers * (places.max(initial=0) + 1) + places
    return np.split(keys, np.cumsum([len(one) for one in datasets])[:-1])


def _read_from(
    dataset: Any, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each of these rows, by number, the data set that it is read from, and its place there."""
    if isinstance(dataset, Subset):
        return _read_from(dataset.dataset, np.asarray(dataset.indices, dtype=np.int64)[rows])
    if not isinstance(dataset, ConcatDataset):
        counted = rows if rows.min(initial=0) >= 0 else rows % len(dataset)
        source, start, step = _memory_of(dataset)
        return np.full(len(rows), source), start + step * counted
    ends = np.asarray(dataset.cumulative_sizes)
    rows = rows % ends[-1]
    parts, sources, places = np.searchsorted(ends, rows, side="right"), rows.copy(), rows.copy()
    for at, part in enumerate(dataset.datasets):
        mine = parts == at
        start = int(ends[at - 1]) if at else 0
        sources[mine], places[mine] = _read_from(part, rows[mine] - start)
    return sources, places


def _memory_of(dataset: Any) -> tuple[int, int, int]:
    """Where rows lie: whose memory it is, where the first begins, and how far it is to the next.

    Of tensors, so that slices of one are known for what they are; other data sets are their own.
    """
    if type(dataset) is TensorDataset:
        first = dataset.tensors[0]
        if first.layout == torch.strided and first.numel() and first.stride(0):
            size, memory = first.element_size(), first.untyped_storage().data_ptr()
            return memory, int(first.storage_offset()) * size, first.stride(0) * size
    return id(dataset), 0, 1


def make_loader(
    dataset: Dataset[Any],
    device: torch.device,
    collate: Collate | None,
    workers: int,
    pin_memory: bool,
) -> Loader:
    """The loader that suits a data set: indexing on the device, worker processes, or neither."""
    # A class made of it may choose or change its rows: those of its tensors are others then.
    if type(dataset) is TensorDataset and collate is None:
        tensors = dataset.tensors
        if all(_same_device(tensor.device, device) for tensor in tensors):
            return OnDevice(tensors)
    plain = InProcess(dataset, device, collate or stacked, pin_memory)
    return plain if workers == 0 else InWorkers(plain, workers)


def stacked(examples: list[Any]) -> Any:
    """PyTorch's default collation; rows that cannot be stacked are refused without their sizes."""
    try:
        return default_collate(examples)
    except (RuntimeError, TypeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        kinds = sorted({type(leaf).__name__ for one in examples for leaf in tree_leaves(one)})
        raise InvalidArgument(
            "collate must be given: the rows of a batch have different shapes, or types that "
            f"PyTorch cannot stack (they hold {', '.join(kinds)}); pad them, for instance with "
            "torch.nn.utils.rnn.pad_sequence, and mask the padding"
        ) from None


def _same_device(first: torch.device, second: torch.device) -> bool:
    return first.type == second.type and (first.index or 0) == (second.index or 0)


@final
class OnDevice:
    """Tensors that already are where the model is: indexed there, and not at all if whole."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tuple(tensors)
        self._length = len(self.tensors[0])
        self._versions = self._as_they_are()

    def batches(self, indices: Iterable[NDArray[np.int64]]) -> Iterator[Any]:
        """See ``Loader``."""
        for rows in indices:
            self.check_unchanged()
            yield self._batch(rows)

    def check_unchanged(self) -> None:
        """Raises if the data set was changed, as far as autograd counts."""
        if self._versions != self._as_they_are():
            raise InvalidArgument(
                "the data set was changed in place, perhaps through a full batch, which is no "
                "copy of it; change a copy"
            )

    def _as_they_are(self) -> list[tuple[int, int]]:
        """How often each tensor was changed, and where it lies, which is where recordings read."""
        return [(tensor._version, tensor.data_ptr()) for tensor in self.tensors]

    def is_whole(self, rows: NDArray[np.int64]) -> bool:
        """Whether these rows are all of the data set, in its order."""
        return len(rows) == self._length and bool((rows == np.arange(self._length)).all())

    def _batch(self, rows: NDArray[np.int64]) -> tuple[torch.Tensor, ...]:
        if self.is_whole(rows):
            return tuple(tensor.detach() for tensor in self.tensors)
        where = torch.from_numpy(rows)
        if self.tensors[0].is_cuda:  # from page-locked memory the copy waits for nothing
            where = where.pin_memory().to(self.tensors[0].device, non_blocking=True)
        return tuple(tensor[where] for tensor in self.tensors)


@final
class InProcess:
    """Fetches examples one by one (or many at once, where the data set can) and collates them."""

    def __init__(
        self, dataset: Dataset[Any], device: torch.device, collate: Collate, pin_memory: bool
    ) -> None:
        self.dataset = dataset
        self.collate = collate
        self._device = device
        self._pin = pin_memory and device.type == "cuda"

    def batches(self, indices: Iterable[NDArray[np.int64]]) -> Iterator[Any]:
        """See ``Loader``."""
        for rows in indices:
            yield self.to_device(self._fetched(rows.tolist()))

    def _fetched(self, rows: list[int]) -> Any:
        many = getattr(self.dataset, "__getitems__", None)
        examples = many(rows) if many is not None else [self.dataset[row] for row in rows]
        return self.collate(examples)

    def to_device(self, batch: Any) -> Any:
        """``batch`` with every tensor in it moved to the model's device."""
        return tree_map(self._moved, batch)

    def _moved(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):  # batches of other libraries move themselves
            return leaf.to(self._device) if callable(getattr(leaf, "to", None)) else leaf
        if self._pin and leaf.device.type == "cpu":
            leaf = leaf.pin_memory()
        return leaf.to(self._device, non_blocking=self._pin)


@final
class InWorkers:
    """Worker processes fetch the batches of a lot ahead; they live from lot to lot."""

    def __init__(self, plain: InProcess, workers: int) -> None:
        self._plain = plain
        self._feed = _Feed()
        self._loader: DataLoader[Any] = DataLoader(
            plain.dataset,
            batch_sampler=self._feed,
            num_workers=workers,
            collate_fn=plain.collate,
            persistent_workers=True,
        )

    def batches(self, indices: Iterable[NDArray[np.int64]]) -> Iterator[Any]:
        """See ``Loader``."""
        self._feed.lists = [rows.tolist() for rows in indices]
        if self._feed.lists:
            for batch in self._loader:
                yield self._plain.to_device(batch)


@final
class _Feed(TorchSampler[list[int]]):
    """Hands the index lists of the current lot to the DataLoader."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.lists)

    def __len__(self) -> int:
        return len(self.lists)


def leaves_of(data: Any) -> list[Any]:
    """What a batch holds, in other libraries' mappings too: torch takes those for leaves."""
    found: list[Any] = []
    for leaf in tree_leaves(data):
        found += leaves_of(dict(leaf)) if isinstance(leaf, Mapping) else [leaf]
    return found


def over(function: Callable[..., Any], data: Any, *others: Any) -> Any:
    """``data`` with ``function`` of each of its leaves, and of those of ``others`` at its place."""

    def leaf(one: Any, *rest: Any) -> Any:
        alike = all(isinstance(other, Mapping) and {*other} == {*one} for other in rest)
        if not isinstance(one, Mapping) or not alike:
            return function(one, *rest)
        made = copy(one) if isinstance(one, MutableMapping) else dict(one)
        for key, value in one.items():
            made[key] = over(function, value, *(other[key] for other in rest))
        return made

    return tree_map(leaf, data, *others)


def shapes(data: Any) -> tuple[type, Hashable]:
    """The kind of a batch, and the shapes and types of its tensors."""
    leaves = tree_leaves(data)
    return type(data), tuple(_shape(leaf) for leaf in leaves)


def _shape(leaf: Any) -> Hashable:
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.dtype
    if isinstance(leaf, Mapping):  # what tokenizers return: a mapping, but no dictionary
        return tuple((key, _shape(value)) for key, value in leaf.items())
    return type(leaf).__qualname__
