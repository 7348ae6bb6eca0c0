"""A small honest data-parallel DP-SGD: each rank has a share of the records and of the noise.

tacit refuses several processes, so that its own ranks cannot be tested. Here the ranks of one run
take turns in one process and meet where real ones would call ``all_reduce``: the self-test watches
through the data set, the loss and the optimizer, which processes of their own would not share.

A rank draws from the records that are its own, clips, and adds N(0, (σC)²/ranks) from a generator
that no other rank has. The sum over ranks then has the plan's noise, and no record adds more than
C: the same event as in one process.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import default_collate

from tacit.auditing.replay import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.auditing.replay import Task


class DataParallel:
    """Runs tasks on one or two ranks. It keeps no ledger and writes no checkpoints."""

    name = "data-parallel DP-SGD"
    ranks = (1, 2)
    keeps_ledger = False
    resumes = False

    def train(self, task: Task) -> Outcome:
        """See ``Subject``."""
        ranks = [make_rank(number, task) for number in range(task.ranks)]
        for _ in range(task.plan.steps):
            mean = all_reduce([noisy_sum(rank, task) for rank in ranks]) / task.plan.lot_size
            for rank in ranks:
                _update(rank, mean)
        return Outcome(task.plan.epsilon(task.delta), {})


@dataclass
class Rank:
    """One of several processes, with a replica of the model and randomness of its own."""

    number: int
    count: int
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    records: NDArray[np.int64]
    lots: np.random.Generator
    noise: np.random.Generator

    @property
    def parameters(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]


def make_rank(number: int, task: Task) -> Rank:
    own = (task.model, task.optimizer)
    model, optimizer = own if number == 0 else copy.deepcopy(own)
    records = share(number, task.ranks, task.plan.examples)
    return Rank(number, task.ranks, model, optimizer, records, lots_of(number), noise_of(number))


def share(number: int, count: int, examples: int) -> NDArray[np.int64]:
    """The records of one rank: no other has them."""
    return np.arange(number, examples, count)


def lots_of(number: int) -> np.random.Generator:
    """What a rank draws its lots from."""
    del number
    return np.random.default_rng()


def noise_of(number: int) -> np.random.Generator:
    """What a rank draws its noise from."""
    del number
    return np.random.default_rng()


def noise_scale(plan: Any, count: int) -> float:
    """A rank's share of the noise: variances add up."""
    return plan.noise_scale / math.sqrt(count)


def noisy_sum(rank: Rank, task: Task) -> Tensor:
    """A rank's part of the sum, which it noises before anybody else sees it."""
    lot = rank.records[rank.lots.random(len(rank.records)) < task.plan.sample_rate]
    total = clipped_sum(rank, task, lot)
    noise = rank.noise.standard_normal(len(total)) * noise_scale(task.plan, rank.count)
    return total + torch.from_numpy(noise)


def clipped_sum(rank: Rank, task: Task, lot: NDArray[np.int64]) -> Tensor:
    """Σ g·min(1, C/‖g‖) over a rank's part of the lot.

    Each example is a batch of its own: in a larger one 0·NaN would carry one example's infinities
    into the gradients of the others.
    """
    total = torch.zeros(sum(p.numel() for p in rank.parameters), dtype=torch.float64)
    for index in lot:
        (loss,) = task.loss(
            rank.model, (task.collate or default_collate)([task.dataset[int(index)]])
        )
        found = torch.autograd.grad(loss, rank.parameters)
        gradient = torch.cat([one.double().flatten() for one in found])
        if gradient.isfinite().all():
            total += gradient * min(1.0, task.plan.clip / max(float(gradient.norm()), 1e-30))
    return total


def all_reduce(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0)


def _update(rank: Rank, mean: Tensor) -> None:
    sizes = [p.numel() for p in rank.parameters]
    for parameter, part in zip(rank.parameters, mean.split(sizes), strict=True):
        parameter.grad = part.view(parameter.shape).to(parameter.dtype)
    rank.optimizer.step()
    rank.optimizer.zero_grad()
