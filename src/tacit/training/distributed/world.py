"""The processes that train together, and what they say to each other.

What is said here is small and goes by a gloo group of the run's own: keys, charges, failures. Sums
go by `shares`.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import time
import uuid
import weakref
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, final

import torch
from torch import distributed

from tacit import errors
from tacit.errors import LostRank, ProtocolError, TacitError, UnsupportedModel
from tacit.randomness import SharedStream, UnsafeSeededStream, fresh_stream
from tacit.randomness.streams import one_time_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.randomness import Share, Stream

_stores: Any = distributed  # which does not say that it exports them
_INLINE = 504  # bytes of a message that go with its length
_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_SHARED = "TORCHELASTIC_USE_AGENT_STORE"
_PATIENCE = timedelta(seconds=60)  # with the launcher
_PAUSE = 0.02  # seconds between looks at what the launcher's store holds
_NEVER_COUNTED = 2**32  # groups of one process


@final
class World:
    """The processes of one run; ``rank`` is this one's number, of ``size``.

    One process alone is a world too, in which there is nobody to wait for.

    Guarantee:
        Words are said in the order of the run, each with its name. A process that ends, hangs
        longer than the patience, or is somewhere else in the run, ends the others at the next word,
        with one line.
    """

    def __init__(self, rank: int, size: int, group: Any = None) -> None:
        self.rank, self.size = rank, size
        self.is_alone = size == 1
        self.leads = rank == 0  # it writes: the ledger, checkpoints, what a person sees
        self._group = group
        self._prefix = getattr(group, "group_name", "")
        self._close = weakref.finalize(self, _destroyed, group)

    @property
    def backend(self) -> str:
        """By what sums go, in torch's words."""
        return "" if self.is_alone else str(distributed.get_backend())

    def describe(self) -> str:
        """The world in a line."""
        if self.is_alone:
            return "one process"
        return (
            f"{self.size} processes of torch.distributed ({self.backend}), of which this is rank "
            f"{self.rank}"
        )

    def share(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """This process's units of a lot: every size-th, so that nobody has two more than another.

        Guarantee:
            Every unit is one process's, whole.
        """
        return units[self.rank :: self.size]

    # ---- words

    def said(self, what: str, say: Callable[[], Any]) -> Any:
        """What the leading process says; the others wait for it. Called by all, for ``what``.

        ``say`` runs in the leading process alone. If it fails with one of tacit's errors, all fail
        with the same.
        """
        if self.is_alone:
            return say()
        if self.leads:
            return self._say(what, say)
        message = json.loads(self._broadcast(what, b""))
        if message["what"] != what:
            raise ProtocolError(
                f"rank 0 is at {message['what']} and rank {self.rank} at {what}: every rank must "
                "run the same script, with dp.lots(), dp.step() and dp.save() on all of them"
            )
        if message["error"] is not None:
            kind, text = message["error"]
            raise _again(kind, text)
        return message["value"]

    def _say(self, what: str, say: Callable[[], Any]) -> Any:
        try:
            value = say()
        except TacitError as error:
            failure = [type(error).__name__, str(error)]
            self._broadcast(what, _packed({"what": what, "error": failure, "value": None}))
            raise
        self._broadcast(what, _packed({"what": what, "error": None, "value": value}))
        return value

    def all_say(self, what: str, message: Any) -> list[Any]:
        """What every process says, by rank. Called by all, for ``what``."""
        if self.is_alone:
            return [message]
        own = _packed({"what": what, "value": message})
        heard = [json.loads(one) for one in self._gathered(what, own)]
        for rank, one in enumerate(heard):
            if one["what"] != what:
                raise ProtocolError(
                    f"rank {rank} is at {one['what']} and rank {self.rank} at {what}: every rank "
                    "must run the same script, with dp.lots(), dp.step() and dp.save() on all of "
                    "them"
                )
        return [one["value"] for one in heard]

    def any(self, what: str, wish: bool) -> bool:
        """Whether any process wishes so."""
        return any(self.all_say(what, wish))

    def streams(self, seed: tuple[int, int] | None) -> Callable[[str], Stream]:
        """Streams by their purpose, from which all processes draw the same.

        A run with a seed has those of the seed, whatever the number of processes. The key of other
        runs is drawn by the leading process and sent to the others.
        """
        if seed is not None:
            number, steps = seed
            later = f" from step {steps}" if steps else ""
            return lambda purpose: UnsafeSeededStream(number, f"{purpose}{later}")
        if self.is_alone:
            return fresh_stream
        key = bytes.fromhex(self.said("the key", lambda: one_time_key(fresh_stream("run")).hex()))
        return lambda purpose: SharedStream(key, purpose)

    # ---- failures

    @contextmanager
    def checking(self, what: str) -> Iterator[None]:
        """Checks that every process makes by itself: if one fails, all do, and know why."""
        if self.is_alone:
            yield
            return
        own: BaseException | None = None
        try:
            yield
        except Exception as error:
            own = error
        heard = self.all_say(what, None if own is None else _in_words(own))
        if own is not None:
            raise own
        if any(heard):
            said = {rank: text for rank, text in enumerate(heard) if text}
            raise self._lost(what, said)

    def failed(self, error: BaseException) -> None:
        """Lets the others know that this process takes no further part, and why."""
        if self.is_alone:
            return
        with suppress(Exception):  # the store may be gone with the process that kept it
            _store().set(f"tacit/{self._prefix}/{self.rank}", _in_words(error))
        self._close()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Work with the others: if it fails, one of them is gone."""
        try:
            yield
        except RuntimeError as error:
            raise self._lost(what, self._left_words()) from error

    def _left_words(self) -> dict[int, str]:
        """What other processes left when they failed, by rank."""
        keys = {r: f"tacit/{self._prefix}/{r}" for r in range(self.size) if r != self.rank}
        with suppress(Exception):
            store = _store()
            return {r: store.get(k).decode() for r, k in keys.items() if store.check([k])}
        return {}

    def _lost(self, what: str, said: Mapping[int, str]) -> LostRank:
        first = {r: text for r, text in said.items() if not text.startswith(LostRank.__name__)}
        found = "; ".join(f"rank {r} ended with {text}" for r, text in (first or said).items())
        return LostRank(
            f"rank {self.rank} of {self.size} stops at {what}: "
            f"{found or 'another rank was killed, hangs, or ended without a word'}. Steps that are "
            "charged stay charged; start all ranks again, with resume= if there is a checkpoint"
        )

    # ---- bytes

    def _broadcast(self, what: str, data: bytes) -> bytes:
        head = _letter(data)
        with self.waiting(what):
            distributed.broadcast(head, 0, group=self._group)
            length = int(head[:8].view(torch.int64))
            if length <= _INLINE:
                return bytes(head[8 : 8 + length].numpy())
            body = torch.zeros(length, dtype=torch.uint8)
            if self.leads:
                body.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            distributed.broadcast(body, 0, group=self._group)
        return bytes(body.numpy())

    def _gathered(self, what: str, data: bytes) -> list[bytes]:
        heads = [torch.zeros(8 + _INLINE, dtype=torch.uint8) for _ in range(self.size)]
        with self.waiting(what):
            distributed.all_gather(heads, _letter(data), group=self._group)
            lengths = [int(head[:8].view(torch.int64)) for head in heads]
            bodies = [head[8:] for head in heads]
            if max(lengths) > _INLINE:
                own = torch.zeros(max(lengths), dtype=torch.uint8)
                own[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
                bodies = [torch.zeros_like(own) for _ in range(self.size)]
                distributed.all_gather(bodies, own, group=self._group)
        return [bytes(one[:n].numpy()) for one, n in zip(bodies, lengths, strict=True)]

    # ---- tensors of the whole world

    def broadcast_(self, tensors: Mapping[str, Tensor]) -> None:
        """Gives every process the leading one's numbers."""
        if self.is_alone:
            return
        with self.waiting("the first weights"), torch.no_grad():
            for tensor in tensors.values():
                distributed.broadcast(tensor.detach(), 0, group=self.group_for(tensor.device))

    def gathered(self, piece: Tensor, share: Share) -> Tensor:
        """The whole of what every process has a share of, on the leading one's CPU; all call it.

        The others are given nothing.
        """
        if self.is_alone:
            return piece
        places = self.all_say("a share of the noise", share.stretches)
        own = torch.zeros(max(sum(b - a for a, b in each) for each in places), dtype=piece.dtype)
        own[: len(piece)] = piece.cpu()
        parts = [torch.zeros_like(own) for _ in places] if self.leads else None
        with self.waiting("the noise of all ranks"):
            distributed.gather(own, parts, 0, group=self._group)
        found = torch.zeros(share.of if self.leads else 0, dtype=piece.dtype)
        for part, stretches in zip(parts or [], places, strict=False):
            at = 0
            for start, stop in stretches:
                found[start:stop] = part[at : at + stop - start]
                at += stop - start
        return found

    def group_for(self, device: torch.device) -> Any:
        """The group by which tensors of a device go: the run's own, or torch's for a device."""
        return self._group if device.type == "cpu" else distributed.group.WORLD


def _in_words(error: BaseException) -> str:
    """Why a process fails, for the others. A foreign error's text may hold private data."""
    kind = type(error).__name__
    return (f"{kind}: {error}" if isinstance(error, TacitError) else kind)[:2000]


def _again(kind: str, text: str) -> TacitError:
    """The error of another process."""
    known = getattr(errors, kind, TacitError)
    return TacitError(text) if known is errors.UnsupportedEvent else known(text)  # it has parts


def _packed(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()


def _letter(data: bytes) -> Tensor:
    """The length of a message, and the message itself if it is short."""
    head = bytearray(8 + _INLINE)
    head[:8] = len(data).to_bytes(8, "little")
    if len(data) <= _INLINE:
        head[8 : 8 + len(data)] = data
    return torch.frombuffer(head, dtype=torch.uint8)


def _store() -> Any:
    return distributed.distributed_c10d._get_default_store()


def _destroyed(group: Any) -> None:
    if group is not None and distributed.is_initialized():
        with suppress(Exception):
            distributed.destroy_process_group(group)


# ---- joining


def joined(device: torch.device, patience: float) -> World:
    """The world that this process belongs to: torch's process group, or itself alone.

    Where torchrun or the like started several processes and none has made a group, it is made.
    """
    if not distributed.is_available():
        return World(0, 1)
    if not distributed.is_initialized():
        if not launched(os.environ):
            return World(0, 1)
        _initialise(device, patience)
    else:
        _name_groups_apart(patience)
    size = distributed.get_world_size()
    if size == 1:
        return World(0, 1)
    rank = distributed.get_rank()
    try:
        group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=patience))
    except RuntimeError as error:
        raise _alone(rank, size) from error
    return World(rank, size, group)


def launched(environment: Mapping[str, str]) -> bool:
    """Whether this is one of several processes that torchrun, or a launcher like it, started.

    Raises:
        UnsupportedModel: if they cannot find each other: each would train and spend by itself.
    """
    world = environment.get("WORLD_SIZE", "1")
    if "RANK" not in environment or not world.isdecimal() or int(world) <= 1:
        return False
    missing = [name for name in _ADDRESS if name not in environment]
    if missing:
        raise UnsupportedModel(
            f"this is one of WORLD_SIZE={world} processes, which cannot find each other without "
            f"{' and '.join(missing)}: each would train and spend by itself; start them with "
            "torchrun, or one process with python"
        )
    return True


def leads() -> bool:
    """Whether this process is the one that writes, among those that were started together."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() == 0
    return not launched(os.environ) or os.environ["RANK"] == "0"


def _initialise(device: torch.device, patience: float) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    given: dict[str, Any] = {}
    if (store := _launchers_store()) is not None:
        name = _met(store, rank, size, patience)
        given = {"store": _stores.PrefixStore(f"tacit/{name}", store), "rank": rank,
                 "world_size": size}  # fmt: skip
    if device.type == "cuda":
        torch.cuda.set_device(device)
        distributed.init_process_group("cpu:gloo,cuda:nccl", **given)
    else:
        distributed.init_process_group("gloo", **given)
    atexit.register(_left)


def _left() -> None:
    if distributed.is_initialized():
        with suppress(Exception):
            distributed.destroy_process_group()


# ---- one launch, several attempts


def launch() -> str | None:
    """A name that all attempts of one torchrun share, and no other has; None if there is none.

    It is drawn at random by whoever asks first, and lies with the launcher, which outlives the
    processes that it starts again (``--max-restarts``). A launcher that keeps no store for them has
    drawn one itself (``--standalone``), or its user has named the run, which others may be, too.
    """
    try:
        store = _launchers_store()
        if store is None:
            return _random_name(os.environ.get("TORCHELASTIC_RUN_ID", ""))
        return str(store.compare_set("tacit/launch", "", secrets.token_hex(16)).decode())
    except RuntimeError:  # it is gone: what it began looks like what others began
        return None


def _random_name(name: str) -> str | None:
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return None


def _launchers_store() -> Any:
    """The store that torchrun keeps for all attempts to start the processes; None without one."""
    if not distributed.is_available() or os.environ.get(_SHARED) != "True":
        return None
    host, port = (os.environ[name] for name in _ADDRESS)
    return _stores.TCPStore(host, int(port), is_master=False, timeout=_PATIENCE)


def _name_groups_apart(patience: float) -> None:
    """Groups get names that no attempt before had: torch counts them, every time from 0 on."""
    groups: Any = distributed.distributed_c10d._world
    if groups.group_count >= _NEVER_COUNTED or os.environ.get(_SHARED) != "True":
        return
    name = _met(_store(), distributed.get_rank(), distributed.get_world_size(), patience)
    groups.group_count = _NEVER_COUNTED + int(name, 16)


def _met(store: Any, rank: int, size: int, patience: float) -> str:
    """A name that the processes of this attempt share, and those of no attempt before.

    A launcher's store still holds what earlier attempts wrote there, and torch takes it for new: it
    then waits for processes that have ended (PyTorch, issue 135712). So rank 0 answers a random
    word of each of the others, under that very word, until all have confirmed its answer.
    """
    end = time.monotonic() + patience
    place, own = _stores.PrefixStore("tacit/meeting", store), secrets.token_hex(8)
    if rank == 0:
        missing = set(range(1, size))
        while missing:
            for other in missing:
                if place.check([f"{other}"]):
                    place.set(place.get(f"{other}").decode(), own)
            missing = {other for other in missing if not place.check([f"{own}/{other}"])}
            if time.monotonic() > end:
                raise _alone(rank, size)
            time.sleep(_PAUSE)
        return own
    while not place.check([own]):
        place.set(f"{rank}", own)  # again and again: an earlier attempt's may have come later
        if time.monotonic() > end:
            raise _alone(rank, size)
        time.sleep(_PAUSE)
    name: str = place.get(own).decode()
    place.set(f"{name}/{rank}", "here")
    return name


def _alone(rank: int, size: int) -> LostRank:
    return LostRank(
        f"rank {rank} of {size} stops at the start: not all ranks have come, or one has ended; see "
        "what the others say. Nothing was charged"
    )
