"""tacit on several ranks as a subject: real processes, of which this one is rank 0.

The others are forked from it for every run, with the same task, and send what they saw when the run
is over: whose losses they computed, and which gradients their optimizers were given.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
from torch import distributed

from tacit._workers import fork
from tacit.auditing.replay.tacit_subject import TACIT
from tacit.auditing.replay.watch import Read, WatchedLoss
from tacit.errors import InvalidArgument
from tacit.training import checkpoint_file
from tacit.training.checkpoint_file import Packer, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tacit.auditing.replay.subject import Outcome, Task
    from tacit.auditing.replay.watch import Watch

_SECONDS = 60  # that ranks wait for each other: a run has a few hundred small steps


@final
@dataclass(frozen=True, slots=True)
class TacitRanks:
    """Runs tasks in one process, and in ``most`` that train together."""

    most: int = 2
    name = "tacit"
    keeps_ledger = True
    resumes = True

    def __post_init__(self) -> None:
        if not hasattr(os, "fork"):
            raise InvalidArgument("ranks are forked, which this system cannot; use Linux or macOS")

    @property
    def ranks(self) -> tuple[int, ...]:
        """See ``Subject``."""
        return (1, self.most)

    def train(self, task: Task) -> Outcome:
        """See ``Subject``."""
        if task.ranks == 1:
            return TACIT.train(task)
        port, pipes = free_port(), []
        others: list[int] = []
        for rank in range(1, task.ranks):
            reading, writing = os.pipe()
            others.append(_forked(rank, task, port, writing))
            os.close(writing)
            pipes.append(reading)
        try:
            join(0, task.ranks, port)
            return _quick(task)
        finally:
            leave()
            seen = [_received(pipe) for pipe in pipes]
            for pid in others:
                os.waitpid(pid, 0)
            _merge(_watch_of(task), [one for one in seen if one is not None])


def _quick(task: Task) -> Outcome:
    """A run whose ranks do not wait for one another for long."""
    return TACIT.train(replace(task, performance=replace(task.performance, patience=_SECONDS)))


def join(rank: int, size: int, port: int, patience: float = _SECONDS) -> None:
    """Makes this process one of ``size`` that find each other at a port of this machine."""
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size,
        timeout=timedelta(seconds=patience),
    )  # fmt: skip


def leave() -> None:
    """Leaves them again."""
    with suppress(Exception):  # whatever state a failed run has left it in
        distributed.destroy_process_group()


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# ---- another rank


def _forked(rank: int, task: Task, port: int, writing: int) -> int:
    child = fork()
    if child:
        return child
    signal.alarm(4 * _SECONDS)
    with suppress(BaseException), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        sys.stdout = sys.stderr = nowhere
        with suppress(Exception):  # rank 0 fails as well, and its error is what counts
            join(rank, task.ranks, port)
            _quick(replace(task, budget=None, save=None))
        leave()
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(_packed(_watch_of(task)))
    os._exit(0)


def _watch_of(task: Task) -> Watch:
    assert isinstance(task.loss, WatchedLoss)
    return task.loss.watch


_Seen: TypeAlias = "list[tuple[list[Read], Tensor]]"


def _packed(watch: Watch) -> bytes:
    """Of every step, the readings whose losses were computed, and the gradient."""
    packer = Packer()
    seen = [[[tuple(watch.reads[row]) for row in step.rows], step.gradient] for step in watch.steps]
    document = {"seen": packer.pack(seen, "seen")}
    return checkpoint_file.to_bytes(document, packer.tensors)


def _received(pipe: int) -> _Seen | None:
    with os.fdopen(pipe, "rb") as file:
        sent = file.read()
    if not sent:
        return None
    document, tensors = checkpoint_file.from_bytes(sent, "another rank")
    return [
        ([Read(*read) for read in reads], gradient)
        for reads, gradient in unpack(document["seen"], tensors)
    ]


def _merge(watch: Watch, others: Sequence[_Seen]) -> None:
    """Puts what other ranks saw beside what this one saw, step by step."""
    for steps in others:
        watch.other_ranks.append([gradient for _, gradient in steps])
        for at, (reads, _) in enumerate(steps[: len(watch.steps)]):
            rows = np.arange(len(watch.reads), len(watch.reads) + len(reads), dtype=np.int64)
            watch.reads.extend(reads)
            step = watch.steps[at]
            watch.steps[at] = replace(
                step, rows=np.concatenate([step.rows, rows]),
                batches=(*step.batches, len(reads)) if reads else step.batches,
            )  # fmt: skip
