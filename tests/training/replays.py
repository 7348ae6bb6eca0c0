"""Recordings that are replayed without Python on a CPU, as a CUDA graph is on a GPU.

Every operation on tensors is written down with the memory that it reads and writes. A replay
repeats the operations into the same memory: whatever Python would have done otherwise the next
time is not done, and shows as a stale number.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from tacit.randomness.gaussian import GaussianSource
from tacit.training import capture, circumstances, fingerprint, lot, sampling, updates
from tacit.training.clipping import sums
from tacit.training.clipping.forms import matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pytest

_READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "is_nonzero")
_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


class Host:
    """Tensors that stand for those which a program keeps on the host beside its GPU.

    What a device is handed of them is the number that they have at the time.
    """

    def __init__(self) -> None:
        self._places: dict[int, Tensor] = {}

    def tensor(self, value: float) -> Tensor:
        return self.take(torch.tensor(value))

    def take(self, made: Tensor) -> Tensor:
        self._places[made.data_ptr()] = made
        return made

    def holds(self, tensor: Tensor) -> bool:
        return tensor.ndim == 0 and tensor.data_ptr() in self._places

    def computes(self, given: Any) -> bool:
        """Whether an operation is the host's own: all that enters it is there."""
        tensors = _tensors(given)
        return bool(tensors) and all(map(self.holds, tensors))


class Tape(TorchDispatchMode):
    """Writes down what is computed while it is entered."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self._calls: list[Callable[[], None]] = []
        self._own: set[int] = set()  # storages that were made on the way
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        name = func.overloadpacket.__name__
        if self._host.computes((args, kwargs)):
            made = func(*args, **(kwargs or {}))
            for one in _tensors(made):
                self._host.take(one)
            return made
        if name in _READS:
            raise RuntimeError(f"a recording cannot wait for {name}")
        given = tree_map_only(Tensor, self._laid, (args, kwargs or {}))
        self._keep(func, args, kwargs or {})
        read = set(map(_storage, _tensors(given)))
        made = func(*args, **(kwargs or {}))
        results = _tensors(made)
        fresh = [_storage(one) not in read for one in results]
        self._own.update(_storage(one) for one, new in zip(results, fresh, strict=True) if new)
        if (any(fresh) or func._schema.is_mutable) and name not in _EMPTY:
            laid = [one.detach() if new else None for one, new in zip(results, fresh, strict=True)]
            self._calls.append(lambda: _again(func, given, laid))
        return made

    def launch(self, work: Callable[[], None]) -> None:
        """Writes down a kernel, which is not run meanwhile."""
        self._calls.append(work)

    def replay(self) -> None:
        plain = torch.autocast("cpu", enabled=False)
        with torch.no_grad(), plain, torch._C._AutoDispatchBelowADInplaceOrView():
            for call in self._calls:
                call()

    def undo(self) -> None:
        """Brings back what was there before: while a GPU records, nothing is computed."""
        for storage, before in self._before.values():
            storage.copy_(before)

    def _laid(self, tensor: Tensor) -> Tensor:
        """The memory of a tensor, whatever becomes of the tensor; of one on the host the number."""
        return tensor.detach().clone() if self._host.holds(tensor) else tensor.detach()

    def _keep(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        for at, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[at] if at < len(args) else kwargs.get(argument.name)
            for one in tree_leaves(value):
                if isinstance(one, Tensor) and _storage(one) not in {*self._own, *self._before}:
                    storage = one.untyped_storage()
                    self._before[_storage(one)] = (storage, storage.clone())


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() or -id(tensor)


def _again(func: Any, given: Any, results: list[Tensor | None]) -> None:
    args, kwargs = given
    for old, new in zip(results, _tensors(func(*args, **kwargs)), strict=True):
        if old is not None:
            old.copy_(new)


def _tensors(made: Any) -> list[Tensor]:
    return [one for one in tree_leaves(made) if isinstance(one, Tensor)]


class _NoReads(TorchDispatchMode):
    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func.overloadpacket.__name__ in _READS and not self._host.computes((args, kwargs)):
            raise capture.HostRead("somewhere")
        return func(*args, **(kwargs or {}))


class Replays:
    """``capture.Graphs`` whose replays call no Python of the work."""

    runs_python = False
    now: Tape | None = None  # the recording that is under way

    def __init__(self, host: Host) -> None:
        self._host = host
        self.recorded = self.replays = 0

    @contextmanager
    def without_host_reads(self) -> Iterator[None]:
        with _NoReads(self._host):
            yield

    def record_batch(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        return self._recorded(work)

    def record_update(
        self, work: Callable[[], None], generators: Sequence[torch.Generator]
    ) -> Callable[[], None]:
        assert not generators  # on a CPU noise comes from the host
        replay, _ = self._recorded(work)
        return replay

    def _recorded(self, work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        tape = Replays.now = Tape(self._host)
        state = torch.get_rng_state()
        try:
            with tape:
                made = work()
        finally:
            Replays.now = None
            tape.undo()
            torch.set_rng_state(state)
        self.recorded += 1

        def replay() -> None:
            self.replays += 1
            tape.replay()

        return replay, made


def _as_kernel(method: Callable[..., None]) -> Callable[..., None]:
    """What is the host's work on a CPU, and a kernel's launch on a GPU."""

    def launched(*given: Any, **named: Any) -> None:
        if Replays.now is None:
            method(*given, **named)
            return
        laid = [one.detach() if isinstance(one, Tensor) else one for one in given]
        Replays.now.launch(lambda: method(*laid, **named))

    return launched


def installed(monkeypatch: pytest.MonkeyPatch) -> tuple[Replays, Host]:
    """Recordings on the CPU are replayed without Python from now on."""
    host = Host()
    graphs = Replays(host)
    monkeypatch.setattr(capture, "Reruns", lambda: graphs)
    for module in (circumstances, updates):
        monkeypatch.setattr(module, "is_of_host", host.holds)
    for module, name in ((sums, "_all_finite"), (matrix, "all_count")):
        monkeypatch.setattr(module, name, lambda _: False)  # shortcuts where nobody has to wait
    on_the_host = (
        capture.host_randomness
    )  # its last part is of torch's generator, here the device's
    monkeypatch.setattr(lot, "host_randomness", lambda: on_the_host()[:-1])
    kernels = ((fingerprint._Tags, "note"), (fingerprint._Tags, "compare"))
    for owner, name in (*kernels, (GaussianSource, "normal_")):
        monkeypatch.setattr(owner, name, _as_kernel(getattr(owner, name)))
    monkeypatch.setattr(sampling, "_MOST_LOTS", 1)  # a seed gives the same lots without recordings
    devices = lambda supports_xla=True: ["cpu"]  # noqa: E731, ARG005
    adam = importlib.import_module("torch.optim.adam")
    monkeypatch.setattr(adam, "_get_capturable_supported_devices", devices)
    return graphs, host
