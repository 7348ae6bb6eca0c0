"""Where teachers are trained: here, or on a Ray cluster (the extra ``[cluster]``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit import _workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tacit.transfer.teachers.records import Part
    from tacit.transfer.teachers.trained import Trained, Work

    Records = Callable[[Sequence[int]], Part]


def carried_out(
    work: Work, pieces: Sequence[Sequence[int]], records: Records, cluster: str | None
) -> Iterator[Trained]:
    """Trains the teachers of each piece, and gives each piece when it is done."""
    if cluster is None:
        return (work.train(records(piece)) for piece in pieces)
    parts = (records(piece).to("cpu") for piece in pieces)
    address = None if cluster == "local" else cluster
    there = _workers.RayCluster(address, gpus=float(work.device != "cpu"))
    done = _workers.carried_out(_train, work, enumerate(parts), there)
    return (trained for _, trained in done)


def _train(work: Work, part: Part) -> Trained:
    return work.train(part)
