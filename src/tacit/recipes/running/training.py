"""Calling a recipe: its first weights seeded, its reservation given up if it never began."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tacit.recipes.running.account import Account
    from tacit.recipes.running.job import Job
    from tacit.recipes.running.trained import Trained


def train(job: Job, account: Account, unbegun: Callable[[], bool]) -> Trained:
    """Runs the recipe. If it fails and is ``unbegun``, no later run could use its reservation."""
    try:
        with seeded(job.seed):
            return job.recipe.train(job)
    except BaseException:
        if unbegun():
            account.abandon()
        raise


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Inside, PyTorch's own generator starts from ``seed``; outside it is as it was.

    It draws first weights and the order of augmentations. Samples and noise are drawn from the
    operating system's entropy, whatever the seed.
    """
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
