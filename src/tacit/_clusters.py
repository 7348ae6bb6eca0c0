"""Work on a Ray cluster (the extra ``[cluster]``)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import ModuleType

_CALLS = 60
_Shared = TypeVar("_Shared")
_Piece = TypeVar("_Piece")
_Result = TypeVar("_Result")


def on_cluster(
    function: Callable[[_Shared, _Piece], _Result],
    shared: _Shared,
    pieces: Iterable[_Piece],
    *,
    cluster: str,
    gpus: float = 0.0,
) -> Generator[tuple[int, _Result], None, None]:
    """Gives ``function(shared, piece)`` with the piece's number, as the pieces are done.

    A worker is sent what all share and its own piece, no others; a piece is taken from ``pieces``
    when there is room for it. Whoever stops asking ends what is still running.

    Args:
        function: At the top of a module.
        shared: Sent once to each worker.
        pieces: One after the other.
        cluster: ``"local"``, or the address of a cluster; one that is connected already is used.
        gpus: For each piece.
    """
    with _connected(cluster) as ray:
        remote = ray.remote(num_cpus=1, num_gpus=gpus)(function)
        kept = ray.put(shared)
        slots = max(1, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1.0)))
        waiting = enumerate(pieces)
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < slots and (one := next(waiting, None)) is not None:
                    running[remote.remote(kept, one[1])] = one[0]
                if not running:
                    return
                ended = ray.wait(list(running), num_returns=1)[0][0]
                yield running.pop(ended), ray.get(ended)
        finally:
            _end(ray, list(running))  # left if the work was cut off


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
def _connected(cluster: str) -> Iterator[ModuleType]:
    """Ray, connected; a connection of ours is ended again."""
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
        yield ray
    finally:
        if ours:
            ray.shutdown()
