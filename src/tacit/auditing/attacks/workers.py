"""Where shadow models are trained: in this process, in several, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit._clusters import on_cluster
from tacit.errors import InvalidArgument, TacitError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Train = Callable[[NDArray[np.bool_], int], ArrayLike]
    Done = Generator[tuple[int, ArrayLike], None, None]


@final
class WorkerDied(TacitError, RuntimeError):
    """A process that trained shadow models ended before its time."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One model to be trained: its number, its members and its seed."""

    model: int
    members: NDArray[np.bool_]
    seed: int


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where to train: in ``workers`` processes, or on Ray with ``gpus`` for each model."""

    workers: int = 1
    cluster: str | None = None
    gpus: float = 0.0


def carried_out(train: Train, pieces: Sequence[Piece], where: Where) -> Done:
    """Trains each piece, and gives its model's number and logits when it is done."""
    if where.cluster is not None:
        return _on_ray(train, pieces, where.cluster, where.gpus)
    if where.workers > 1:
        return _in_processes(train, pieces, where.workers)
    return ((piece.model, train(piece.members, piece.seed)) for piece in pieces)


def _in_processes(train: Train, pieces: Sequence[Piece], workers: int) -> Done:
    _check_picklable(train)
    threads = max(1, (os.cpu_count() or 1) // workers)
    with _pool(min(workers, len(pieces))) as pool:
        running = {pool.submit(_trained, train, piece, threads): piece.model for piece in pieces}
        while running:
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            # Finished models first: they are kept, whatever became of the others.
            for one in sorted(ended, key=lambda ended: ended.exception() is not None):
                try:
                    yield running.pop(one), one.result()
                except BrokenProcessPool:
                    raise WorkerDied(
                        "a process that trained shadow models was killed or could not start: "
                        "call again, which goes on from the folder (a script must do its work "
                        "under if __name__ == '__main__')"
                    ) from None


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes: a fork would copy locks that PyTorch's threads hold.

    Whatever ends it early, Ctrl-C or a failed training, ends the processes too.
    """
    before = multiprocessing.active_children()
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_subordinate
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


def _subordinate() -> None:
    """In a process of the pool: it ends with the one that started it, and says nothing.

    Ctrl-C reaches all processes of a terminal. A parent that was killed cannot end the others, and
    they would wait for it for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None  # this process was started by another
    parent.join()
    os._exit(1)


def _trained(train: Train, piece: Piece, threads: int = 1) -> ArrayLike:
    if torch := sys.modules.get("torch"):  # the processes share the cores
        torch.set_num_threads(threads)
    return train(piece.members, piece.seed)


def _check_picklable(train: Train) -> None:
    try:
        pickle.dumps(train)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidArgument(
            "train must be a function at the top of a module, or functools.partial of one, to be "
            f"sent to other processes: {error}"
        ) from None


def _on_ray(train: Train, pieces: Sequence[Piece], cluster: str, gpus: float) -> Done:
    for place, logits in on_cluster(_trained, train, pieces, cluster=cluster, gpus=gpus):
        yield pieces[place].model, logits
