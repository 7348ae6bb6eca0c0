"""What must be the same in every process before anything is sampled: plan, data, model, code.

Data sets that differ are no small matter: where two processes have them in another order, a record
has two places, and may join a lot twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset, Subset, TensorDataset

import tacit
from tacit.errors import InvalidArgument
from tacit.training.verification import random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from torch.optim import Optimizer

    from tacit.training.distributed.world import World
    from tacit.training.performance import Performance
    from tacit.training.plan import Plan

_RECORDS = 64  # of a data set that are read and compared, where it is not compared whole
_DEPTH = 4  # of data sets in data sets
_PLAIN = (bool, int, float, str, bytes, np.generic)
_REMEDIES = {
    "the plan": "make it from the same numbers on every rank",
    "the version of tacit": "install the same one everywhere",
    "the version of PyTorch": "install the same one everywhere",
    "the data set": "every rank holds the whole of it, in the same order: seed random_split, sort "
    "lists of files, and use no DistributedSampler",
    "groups": "name the users in the same order everywhere",
    "the parameters": "build the same model on every rank; other layers on each, as in pipeline "
    "parallelism, are not supported",
    "the optimizers": "make them with the same options on every rank",
    "stop_after": "fix it before the run, for all ranks",
    "the step to go on from": "give every rank the same checkpoint",
    "unsafe_seed": "give every rank the same one, or none",
    "performance": "give every rank the same precision and capture",
}


def check(world: World, facts: Mapping[str, str]) -> None:
    """Refuses processes that do not agree on every fact; all of them with the same line."""
    if world.is_alone:
        return
    heard = world.all_say("what all ranks must agree on", dict(facts))
    for name in facts:
        for rank, theirs in enumerate(heard):
            if theirs.get(name) != heard[0].get(name):
                raise InvalidArgument(
                    f"{name} must be the same on every rank, but that of rank {rank} is not that "
                    f"of rank 0; {_REMEDIES[name]}. Nothing was charged"
                )


def facts(
    plan: Plan,
    dataset: Dataset[Any],
    groups: Sequence[int] | NDArray[np.int64] | None,
    parameters: Mapping[str, Tensor],
    optimizers: Sequence[Optimizer],
    performance: Performance,
    *,
    last_step: int,
    steps_taken: int,
    seed: int | None,
) -> dict[str, str]:
    """What has to agree, each as a short text: hashes of what is secret or long."""
    shapes = [(n, tuple(p.shape), str(p.dtype), str(type(p).__name__)) for n, p in
              parameters.items()]  # fmt: skip
    owners = None if groups is None else np.asarray(groups)
    return {
        "the plan": _hash(plan.to_json().encode()),
        "the version of tacit": f"{tacit.__version__} {code_hash()}",
        "the version of PyTorch": str(torch.__version__).partition("+")[0],
        "the data set": data_hash(dataset),
        "groups": "none" if owners is None else _hash(repr(owners.dtype).encode(), _raw(owners)),
        "the parameters": _hash(json.dumps(shapes).encode()),
        "the optimizers": _hash(*map(_options, optimizers)),
        "stop_after": str(last_step),
        "the step to go on from": str(steps_taken),
        "unsafe_seed": str(seed),
        "performance": f"{performance.precision} {performance.capture}",
    }


def code_hash() -> str:
    """A hash of tacit's own source, so that a changed checkout is noticed, too."""
    root = Path(tacit.__file__).parent
    files = sorted(root.rglob("*.py"))
    return _hash(*(part for path in files for part in (_name(root, path), path.read_bytes())))


def _name(root: Path, path: Path) -> bytes:
    return path.relative_to(root).as_posix().encode()


def _options(optimizer: Optimizer) -> bytes:
    """The kind of an optimizer and its numbers."""
    groups = [
        {key: repr(value) for key, value in group.items() if key != "params"}
        | {"params": len(group["params"])}
        for group in optimizer.param_groups
    ]
    return json.dumps([type(optimizer).__qualname__, groups]).encode()


# ---- data sets


def order_of(dataset: Dataset[Any], groups: Sequence[int] | NDArray[np.int64] | None) -> str:
    """A hash of which record, and which user's, is in which place: as secret as the records."""
    owners = None if groups is None else np.asarray(groups)
    return _hash(data_hash(dataset).encode(), b"" if owners is None else _raw(owners))


def data_hash(dataset: Dataset[Any]) -> str:
    """A hash of a data set: whole where it consists of tensors, else of what it is made of.

    The order of a ``Subset`` counts whole, and so does what a data set holds for each of its
    records: a list of files, labels, an order. Of the records themselves 64 are read, twice, with
    the same global random numbers: what differs, because it is drawn otherwise, is left out.
    """
    if isinstance(dataset, Subset):
        places = np.asarray(dataset.indices, dtype=np.int64)
        return _hash(_raw(places), data_hash(dataset.dataset).encode())
    if type(dataset) is TensorDataset:
        return _hash(*(part for one in dataset.tensors for part in _tensor(one)))
    length = len(dataset)  # type: ignore[arg-type]  # a map-style data set has one
    if not length:
        return _hash(b"")
    places = np.unique(np.linspace(0, length - 1, _RECORDS).astype(np.int64)).tolist()
    before = random_state()
    try:
        first, second = (_read(dataset, places) for _ in range(2))
    finally:
        set_random_state(before)
    widest = max(map(len, (*first, *second)))
    steady = [
        at
        for at in range(widest)
        if all(_leaf(a, at) == _leaf(b, at) for a, b in zip(first, second, strict=True))
    ]
    held = (part.encode() for part in _held_by_record(dataset))
    return _hash(str(length).encode(), *held, *(_leaf(one, at) for one in first for at in steady))


def _held_by_record(dataset: Dataset[Any], depth: int = _DEPTH) -> Iterator[str]:
    """Hashes of what a data set, or one inside it, holds that is as long as itself.

    Where files lie may differ from machine to machine: the folder that all texts begin with is left
    out. A list with anything but numbers and texts in it may be a cache, which every rank fills for
    itself.
    """
    size = None
    with suppress(Exception):  # one that nobody asks for its length need not have one
        size = len(dataset)  # type: ignore[arg-type]
    for name, value in sorted(getattr(dataset, "__dict__", {}).items()):
        inner = value if isinstance(value, (list, tuple)) else (value,)
        if inner and all(isinstance(one, Dataset) for one in inner):
            for one in inner if depth else ():
                yield from _held_by_record(one, depth - 1)
        elif size is not None and _length(value) == size and (parts := _parts(value)):
            yield _hash(name.encode(), *parts)


def _length(value: Any) -> int | None:
    """Of a list or an array in memory; None of anything else."""
    if isinstance(value, torch.Tensor) and (value.layout != torch.strided or value.is_meta):
        return None
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return len(value) if value.ndim and not isinstance(value, np.memmap) else None
    return len(value) if isinstance(value, (list, tuple)) else None


def _parts(value: Any) -> list[bytes | memoryview] | None:
    """A list or an array in bytes; None if anything but numbers and texts is in it."""
    if isinstance(value, torch.Tensor):
        return list(_tensor(value))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return [f"{value.dtype} {value.shape}".encode(), _raw(value)]
    flat = not any(isinstance(one, (list, tuple, dict)) for one in value)
    leaves = [os.fspath(one) if isinstance(one, os.PathLike) else one
              for one in (value if flat else tree_leaves(list(value)))]  # fmt: skip
    if not all(isinstance(one, _PLAIN) for one in leaves):
        return None
    texts = [one for one in leaves if isinstance(one, str)]
    shared = os.path.commonprefix(texts)  # noqa: RUF071 - of texts, which need not be paths
    start = shared.rfind(os.sep) + 1
    plain = [one[start:] if isinstance(one, str) else one for one in leaves]
    return [repr(plain).encode()]


def _read(dataset: Dataset[Any], places: Sequence[int]) -> list[list[bytes]]:
    torch.default_generator.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - it is the global state that data sets draw from
    return [[_hash(*_content(leaf)).encode() for leaf in tree_leaves(dataset[at])] for at in places]


def _leaf(leaves: Sequence[bytes], at: int) -> bytes:
    return leaves[at] if at < len(leaves) else b""


def _content(leaf: Any) -> tuple[bytes | memoryview, ...]:
    if isinstance(leaf, torch.Tensor):
        return _tensor(leaf)
    if isinstance(leaf, (bool, int, float, str, bytes, type(None))):
        return (repr(leaf).encode(),)
    if isinstance(leaf, np.ndarray | np.generic) or hasattr(leaf, "__array_interface__"):
        array = np.asarray(leaf)
        return (f"{array.dtype} {array.shape}".encode(), _raw(array))
    return (type(leaf).__qualname__.encode(),)


def _tensor(tensor: Tensor) -> tuple[bytes | memoryview, ...]:
    plain = tensor.detach().cpu().contiguous()
    content = plain.view(-1).view(torch.uint8).numpy().data  # no copy: it may be large
    return f"{plain.dtype} {tuple(plain.shape)}".encode(), content


def _raw(array: NDArray[Any]) -> bytes:
    if array.dtype.hasobject:
        return json.dumps([str(one) for one in array.ravel()]).encode()
    return np.ascontiguousarray(array).tobytes()


def _hash(*parts: bytes | memoryview) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()
