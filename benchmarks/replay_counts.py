"""Counts the replays of recorded batches and updates: evidence that there were any."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tacit.training import capture


@contextlib.contextmanager
def counted(replays: dict[str, int]) -> Iterator[None]:
    """Counts what is replayed: the recordings of every kind go through here meanwhile."""
    kinds = (capture.CudaGraphs, capture.Reruns)
    known = [(kind, kind.record_batch, kind.record_update) for kind in kinds]

    def counting(replay: Callable[[], None], what: str) -> Callable[[], None]:
        def replayed() -> None:
            replays[what] += 1
            replay()

        return replayed

    def record_batch(self: Any, work: Any, *, record: Any) -> Any:
        replay, made = record(self, work)
        return counting(replay, "batches"), made

    def record_update(self: Any, work: Any, generators: Any, *, record: Any) -> Any:
        return counting(record(self, work, generators), "updates")

    def method(function: Any, record: Any) -> Any:
        return lambda *given: function(*given, record=record)

    for kind, batch, update in known:
        kind.record_batch = method(record_batch, batch)
        kind.record_update = method(record_update, update)
    try:
        yield
    finally:
        for kind, batch, update in known:
            kind.record_batch, kind.record_update = batch, update
