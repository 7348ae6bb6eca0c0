"""The shadow models of an audit, or none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from tacit.auditing.attacks import Shadows, train_shadows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """How many shadow models are trained, and where.

    Args:
        count: How many.
        seed: For their members and first weights.
        workers: How many processes train them.
        cluster: A Ray cluster that trains them instead: its address, or "local".
        gpus: How many GPUs a model takes there.
        folder: Where finished ones are kept; None keeps none.
        progress: Whether to show how many are trained.
    """

    count: int
    seed: int
    workers: int = 1
    cluster: str | None = None
    gpus: float = 0.0
    folder: Path | None = None
    progress: bool | None = None


def shadows_of(
    train: Callable[[NDArray[np.bool_], int], NDArray[np.float32]],
    labels: NDArray[np.int64],
    crew: Crew,
) -> Shadows | None:
    """Models that ``train`` made of random halves, each asked about all examples with ``labels``.

    None if the crew is to train none.
    """
    if crew.count == 0:
        return None
    logits, members = train_shadows(
        train, examples=len(labels), count=crew.count, seed=crew.seed, workers=crew.workers,
        cluster=crew.cluster, gpus=crew.gpus, folder=crew.folder, progress=crew.progress,
    )  # fmt: skip
    return Shadows(logits, labels, members)


def threads_for(workers: int) -> int | None:
    """How many threads each of several processes may take; alone, as many as PyTorch likes."""
    return None if workers == 1 else max(1, (os.cpu_count() or 1) // workers)
