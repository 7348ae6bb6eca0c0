"""Pieces of work in processes of their own: one that crashes, or takes too long, costs only itself.

A process does one piece after the other, so that a GPU's libraries are loaded once. It is replaced
after an error that it did not answer for itself: a device may be in any state then.
"""

import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

_SPAWN = multiprocessing.get_context("spawn")  # CUDA does not outlive a fork
_TURN = 0.5  # seconds between looks at the clock

Work = Callable[[Any], dict[str, Any]]


@dataclass
class _Worker:
    """A process, and what it is at."""

    process: BaseProcess
    link: Connection
    piece: Any = None
    since: float = 0.0

    def take(self, piece: Any) -> None:
        self.piece, self.since = piece, time.monotonic()
        self.link.send(piece)

    def end(self) -> None:
        self.link.close()
        self.process.kill()
        self.process.join()


def carried_out(
    work: Work, pieces: Sequence[Any], processes: int, *, limit: float, seconds: float
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each piece with its answer, as they come; none begins or ends after ``seconds``.

    A piece that fails, crashes or takes longer than ``limit`` seconds has ``{"error": …}``.
    """
    end = time.monotonic() + seconds
    todo, workers = deque(pieces), list[_Worker]()
    try:
        while (todo or workers) and time.monotonic() < end:
            while todo and len(workers) < processes:
                workers.append(_started(work))
                workers[-1].take(todo.popleft())
            for one in list(workers):
                answer = _answer(one, limit)
                if answer is None:
                    continue
                yield one.piece, answer
                if "error" in answer or not todo:
                    workers.remove(one)
                    one.end()
                else:
                    one.take(todo.popleft())
            wait([one.link for one in workers], timeout=_TURN)
    finally:
        for one in workers:
            one.end()


def _started(work: Work) -> _Worker:
    here, there = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_serve, args=(work, there))
    process.start()
    there.close()
    return _Worker(process, here)


def _answer(worker: _Worker, limit: float) -> dict[str, Any] | None:
    """What came of the worker's piece; None if it is still at it."""
    try:
        if worker.link.poll():
            answer: dict[str, Any] = worker.link.recv()
            return answer
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return {"error": f"its process ended with {worker.process.exitcode}"}
    if time.monotonic() - worker.since > limit:
        return {"error": f"not done after {limit:.0f} s"}
    return None


def _serve(work: Work, link: Connection) -> None:
    """Does pieces until there are none, or one fails."""
    while True:
        try:
            piece = link.recv()
        except EOFError:
            return
        try:
            answer = work(piece)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.name}, line {place.lineno} of {place.filename.rpartition('/')[2]}"
            answer = {"error": f"{type(error).__name__}: {error} ({where})"}
        link.send(answer)
