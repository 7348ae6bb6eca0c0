"""Bugs of several ranks, in the data-parallel engine beside this file."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

from . import parallel_engine, settings
from .mutant import Mutant
from .parallel_engine import DataParallel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from .parallel_engine import Rank


def _alike() -> Any:
    """Makes the generator of rank 0, and for the others copies of it."""
    seed = 0

    def generator(number: int) -> np.random.Generator:
        nonlocal seed
        if number == 0:
            seed = int(np.random.default_rng().integers(2**63))
        return np.random.default_rng(seed)

    return generator


@contextmanager
def _everybody_everywhere() -> Iterator[None]:
    """No rank has records of its own, and all draw the same lot."""

    def share(number: int, count: int, examples: int) -> NDArray[np.int64]:
        del number, count
        return np.arange(examples)

    with patch.multiple(parallel_engine, share=share, lots_of=_alike()):
        yield


def _same_noise() -> Any:
    return patch.object(parallel_engine, "noise_of", _alike())


def _standard_deviations_add() -> Any:
    def noise_scale(plan: Any, count: int) -> float:
        return plan.noise_scale / count

    return patch.object(parallel_engine, "noise_scale", noise_scale)


def _empty_rank_is_silent() -> Any:
    def silent(rank: Rank, task: Any) -> Tensor:
        before = rank.lots.bit_generator.state
        anybody = bool((rank.lots.random(len(rank.records)) < task.plan.sample_rate).any())
        rank.lots.bit_generator.state = before
        if anybody:
            return noisy(rank, task)
        rank.lots.random(len(rank.records))
        return torch.zeros(sum(p.numel() for p in rank.parameters), dtype=torch.float64)

    noisy = parallel_engine.noisy_sum
    return patch.object(parallel_engine, "noisy_sum", silent)


MUTANTS = (
    Mutant(
        name="examples doubled on two ranks",
        says="both ranks compute the same examples, which are added twice",
        components=("ranks", "sampling", "clipping"),
        setting=settings.linear,
        patch=_everybody_everywhere,
        subject=DataParallel,
    ),
    Mutant(
        name="same noise on all ranks",
        says="all ranks draw their shares of the noise from one seed",
        components=("ranks", "noise"),
        setting=settings.linear,
        patch=_same_noise,
        subject=DataParallel,
    ),
    Mutant(
        name="noise divided by ranks",
        says="a rank's noise is the plan's over the number of ranks, not over its root",
        components=("ranks", "noise"),
        setting=settings.linear,
        patch=_standard_deviations_add,
        subject=DataParallel,
    ),
    Mutant(
        name="silent rank",
        says="a rank whose part of the lot is empty adds no noise",
        components=("ranks", "noise", "control flow"),
        setting=settings.small_lots,
        patch=_empty_rank_is_silent,
        subject=DataParallel,
    ),
)
