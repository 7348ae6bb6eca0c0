"""Where teachers are trained: here, or on a Ray cluster (the extra ``[cluster]``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.errors import InvalidArgument

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
    return _on_ray(work, pieces, records, cluster)


def _on_ray(
    work: Work, pieces: Sequence[Sequence[int]], records: Records, cluster: str
) -> Iterator[Trained]:
    """A worker is sent its teachers' records and no others; as many pieces are out as fit."""
    try:
        import ray  # noqa: PLC0415 - of the extra [cluster]
    except ImportError:
        raise InvalidArgument(
            f"cluster={cluster!r} needs Ray: pip install 'tacit[cluster]'"
        ) from None
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=None if cluster == "local" else cluster, log_to_driver=False)
    try:
        gpus = float(work.device != "cpu")
        remote = ray.remote(num_cpus=1, num_gpus=gpus)(_train)
        shared = ray.put(work)
        has = ray.cluster_resources()
        slots = max(1, int(has.get("GPU" if gpus else "CPU", 1.0)))
        waiting = list(reversed(pieces))
        running: list[Any] = []
        while waiting or running:
            while waiting and len(running) < slots:
                running.append(remote.remote(shared, records(waiting.pop()).to("cpu")))
            ended, running = ray.wait(running, num_returns=1)
            yield ray.get(ended[0])
    finally:
        if ours:
            ray.shutdown()


def _train(work: Work, part: Part) -> Trained:
    return work.train(part)
