"""Where shadow models are trained: in this process, in several, or on a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit import _workers
from tacit._workers import RayCluster
from tacit.errors import WorkerDied

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Train = Callable[[NDArray[np.bool_], int], ArrayLike]
    Done = Generator[tuple[int, ArrayLike], None, None]


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

    def executor(self) -> _workers.Workers:
        """The same in one value."""
        if self.cluster is None:
            return self.workers
        return RayCluster(None if self.cluster == "local" else self.cluster, gpus=self.gpus)


def carried_out(train: Train, pieces: Sequence[Piece], where: Where) -> Done:
    """Trains each piece, and gives its model's number and logits when it is done."""
    numbered = ((piece.model, piece) for piece in pieces)
    try:
        yield from _workers.carried_out(_trained, train, numbered, where.executor(), names="train")
    except WorkerDied:
        raise WorkerDied(
            "a process that trained shadow models was killed or could not start: call again, "
            "which goes on from the folder (a script must do its work under "
            "if __name__ == '__main__')"
        ) from None


def _trained(train: Train, piece: Piece) -> ArrayLike:
    return train(piece.members, piece.seed)
