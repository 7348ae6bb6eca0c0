"""Pieces of work carried out here, in several processes, or on a Ray cluster.

Whoever stops asking for results, by an error or Ctrl-C, ends what is still running.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, final

from tacit._validation import non_negative, positive, whole
from tacit.errors import InvalidArgument, WorkerDied

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import ModuleType

    Results: TypeAlias = Generator[tuple["_Key", "_Result"], None, None]

_CALLS = 60
_Shared = TypeVar("_Shared")
_Piece = TypeVar("_Piece")
_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


@final
@dataclass(frozen=True, slots=True)
class RayCluster:
    """A Ray cluster (the extra ``[cluster]``); one that is connected already is used as it is.

    Args:
        address: As ``ray.init`` takes it, such as ``"auto"``; None is a cluster on this machine.
        cpus: How many processors each piece of work is given.
        gpus: How many GPUs each piece of work is given.

    >>> RayCluster(gpus=1)
    RayCluster(address=None, cpus=1.0, gpus=1.0)
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "cpus", positive("cpus", self.cpus))
        object.__setattr__(self, "gpus", non_negative("gpus", self.gpus))


Workers: TypeAlias = int | RayCluster
"""How many processes, 1 for this one; or a cluster."""


def check_workers(workers: Workers) -> Workers:
    """Returns ``workers`` if it is a number of processes or a cluster."""
    return workers if isinstance(workers, RayCluster) else whole("workers", workers)


def for_device(workers: Workers, device: str) -> Workers:
    """``workers`` for work on ``device``: a cluster gives each piece a GPU, unless it is the CPU.

    >>> for_device(RayCluster(), "cuda"), for_device(4, "cuda")
    (RayCluster(address=None, cpus=1.0, gpus=1.0), 4)
    """
    if isinstance(workers, RayCluster) and not workers.gpus and device != "cpu":
        return replace(workers, gpus=1.0)
    return workers


def carried_out(
    function: Callable[[_Shared, _Piece], _Result],
    shared: _Shared,
    pieces: Iterable[tuple[_Key, _Piece]],
    workers: Workers,
    *,
    names: str = "the work",
) -> Results[_Key, _Result]:
    """Gives ``function(shared, piece)`` with the piece's key, as the pieces are done.

    A worker is sent what all share once, and its own pieces, no others; a piece is taken from
    ``pieces`` when there is room for it.

    Args:
        function: At the top of a module.
        shared: Sent once to each worker.
        pieces: Each with a key that stays here.
        workers: Where.
        names: What ``shared`` is made of, for the message if it cannot be sent to a process.

    Raises:
        InvalidArgument: if ``shared`` cannot be sent, or Ray is not installed.
        WorkerDied: if a process was killed.

    >>> list(carried_out(pow, 2, enumerate([3, 5]), 1))
    [(0, 8), (1, 32)]
    """
    if isinstance(workers, RayCluster):
        return _on_ray(function, shared, pieces, workers)
    if workers > 1:
        return _in_processes(function, _pickled(shared, names, workers), pieces, workers)
    return ((key, function(shared, piece)) for key, piece in pieces)


# ---- processes


def fork() -> int:
    """``os.fork``, for a child that ends by ``os._exit``.

    The parent's garbage is not collected there: it may hold a group of ranks, whose threads a child
    has not, and to end one without them is a crash.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of those threads
        child = os.fork()
    if child == 0:
        gc.freeze()
    return child


def _in_processes(
    function: Callable[[_Shared, _Piece], _Result],
    shared: bytes,
    pieces: Iterable[tuple[_Key, _Piece]],
    workers: int,
) -> Results[_Key, _Result]:
    waiting = iter(pieces)
    running: dict[Future[_Result], _Key] = {}
    with _pool(workers, shared) as pool:
        while True:
            while len(running) < workers and (one := next(waiting, None)) is not None:
                running[pool.submit(_run, function, one[1])] = one[0]
            if not running:
                return
            ended = wait(running, return_when=FIRST_COMPLETED).done
            # In the order in which they began; what succeeded first, whatever became of others.
            for future in sorted(
                (one for one in running if one in ended),
                key=lambda one: one.exception() is not None,
            ):
                try:
                    yield running.pop(future), future.result()
                except BrokenProcessPool:
                    raise WorkerDied(
                        "a worker process was killed or could not start: call again (a script "
                        "must do its work under if __name__ == '__main__')"
                    ) from None


def _pickled(shared: object, names: str, workers: int) -> bytes:
    try:
        return pickle.dumps(shared)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidArgument(
            f"{names} must be picklable with workers={workers!r}: {error}; define functions at "
            "the top of a module, or take workers=1"
        ) from None


@contextmanager
def _pool(workers: int, shared: bytes) -> Iterator[ProcessPoolExecutor]:
    """New processes, not forked ones: they share no random state, lock or GPU with this one.

    Whatever ends it early, Ctrl-C or a failed piece, ends the processes too.
    """
    before = multiprocessing.active_children()
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare,
        initargs=(shared, threads),
    )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in before:
                child.terminate()
        raise
    finally:
        pool.shutdown()


# What a worker process was given when it started; in the parent it stays empty.
_given: list[Any] = []


def _prepare(shared: bytes, threads: int) -> None:
    """In a process of the pool: it ends with the one that started it, and says nothing.

    Ctrl-C reaches all processes of a terminal. A parent that was killed cannot end the others, and
    they would wait for it for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _given[:] = [pickle.loads(shared)]
    if torch := sys.modules.get("torch"):  # the processes share the cores
        torch.set_num_threads(threads)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this process was started by another
    parent.join()
    os._exit(1)


def _run(function: Callable[[Any, _Piece], _Result], piece: _Piece) -> _Result:
    return function(_given[0], piece)


# ---- Ray


def _on_ray(
    function: Callable[[_Shared, _Piece], _Result],
    shared: _Shared,
    pieces: Iterable[tuple[_Key, _Piece]],
    cluster: RayCluster,
) -> Results[_Key, _Result]:
    with _connected(cluster) as ray:
        kept = ray.put(shared)
        remote = ray.remote(num_cpus=cluster.cpus, num_gpus=cluster.gpus)(function)
        slots = _slots(ray, cluster)
        waiting = iter(pieces)
        running: dict[Any, _Key] = {}
        try:
            while True:
                while len(running) < slots and (one := next(waiting, None)) is not None:
                    running[remote.remote(kept, one[1])] = one[0]
                if not running:
                    return
                ended = ray.wait(list(running), num_returns=1)[0][0]
                yield running.pop(ended), ray.get(ended)
        finally:
            _end(ray, list(running))  # some are left if nobody asked to the end


def _slots(ray: ModuleType, cluster: RayCluster) -> int:
    """How many pieces the cluster has room for at once."""
    there = ray.cluster_resources()
    rooms = [there.get("CPU", 1.0) // cluster.cpus]
    if cluster.gpus:
        rooms.append(there.get("GPU", 0.0) // cluster.gpus)
    return max(1, int(min(rooms)))


def _end(ray: ModuleType, running: list[Any]) -> None:
    """Ends work that is going on, and sees that it did.

    A piece that is just being handed to a worker does not hear the first call.
    """
    for _ in range(_CALLS):
        if not running:
            return
        for one in running:
            ray.cancel(one, force=True)
        running = ray.wait(running, num_returns=len(running), timeout=1.0)[1]


@contextmanager
def _connected(cluster: RayCluster) -> Iterator[ModuleType]:
    """Ray, connected; a connection that is made here is ended again."""
    try:
        import ray  # noqa: PLC0415 - of the extra [cluster]
    except ImportError:
        raise InvalidArgument(
            "workers=RayCluster() needs Ray: pip install 'tacit[cluster]'"
        ) from None
    connects = not ray.is_initialized()
    if connects:
        ray.init(address=cluster.address, log_to_driver=False)
    try:
        yield ray
    finally:
        if connects:
            ray.shutdown()
