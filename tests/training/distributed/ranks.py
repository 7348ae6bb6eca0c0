"""Several ranks of one test: processes that are forked from this one and find each other.

What they need is imported already, so that a rank takes a few milliseconds to start.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import socket
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

import tacit
from tacit._workers import fork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = 100  # after which a rank that hangs is killed, and the test fails


class Killed(Exception):
    """A rank that ended without a result."""


def together(
    size: int, work: Callable[[int], Any], *, expect: type[BaseException] | None = None
) -> list[Any]:
    """What ``work(rank)`` returns or raises on each of ``size`` ranks, in their order.

    Raises:
        Exception: what any rank raised, unless it is ``expect``ed.
    """
    _warm()
    with tempfile.TemporaryDirectory() as folder:
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = [_started(rank, size, work, Path(folder), environment) for rank in range(size)]
        for pid in ranks:
            os.waitpid(pid, 0)
        results = [_read(Path(folder) / str(rank)) for rank in range(size)]
    for one in results:
        if isinstance(one, BaseException) and not (expect and isinstance(one, (expect, Killed))):
            raise one
    return results


@functools.cache
def _warm() -> None:
    """Trains a little before any fork, so that all is imported once."""
    model = torch.nn.Linear(2, 1)
    plan = tacit.Plan(examples=4, lot_size=2, steps=1, noise_multiplier=1.0, clip=1.0)
    data = torch.utils.data.TensorDataset(torch.ones(4, 2))
    with tempfile.TemporaryDirectory() as name:
        budget = tacit.Ledger(f"sqlite:///{name}/a.db", anchor=f"{name}/a").open(
            "warm", epsilon=1e5, delta=0.1
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with tacit.private(model, optimizer, plan, data, budget) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: model(batch[0])[:, 0])
                dp.step()
            dp.save(f"{name}/c")
        dp.statement(1e-3)
        budget.ledger.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _started(
    rank: int, size: int, work: Callable[[int], Any], folder: Path, environment: Mapping[str, str]
) -> int:
    pid = fork()
    if pid == 0:
        signal.alarm(SECONDS)
        os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
        try:
            result = work(rank)
        except BaseException as error:
            error.add_note(traceback.format_exc())
            result = error
        _write(folder / str(rank), result)
        if distributed.is_initialized():
            distributed.destroy_process_group()
        os._exit(0)
    return pid


def _write(path: Path, result: Any) -> None:
    try:
        data = pickle.dumps(result)
    except Exception as error:
        data = pickle.dumps(RuntimeError(f"{result!r} cannot be sent: {error}"))
    path.write_bytes(data)


def _read(path: Path) -> Any:
    return pickle.loads(path.read_bytes()) if path.exists() else Killed(f"rank {path.name}")
