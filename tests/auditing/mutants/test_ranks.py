"""Each bug of several ranks is there, and the engine without them is right."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import tacit
from tacit.auditing.replay import Task
from tacit.training.sampling import FullBatch

from . import parallel_engine, settings
from .watching import moved, run, shows

if TYPE_CHECKING:
    from .mutant import Mutant


def _task(plan: tacit.Plan, *, ranks: int = 2) -> Task:
    setting = settings.linear()
    model = setting.model()
    return Task(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        plan=plan,
        dataset=setting.dataset,
        loss=setting.loss,
        collate=default_collate,
        groups=None,
        delta=1e-5,
        performance=tacit.Performance(),
        ranks=ranks,
    )


def _sum(task: Task) -> torch.Tensor:
    """What one step releases, times the lot size."""
    before = [p.detach().clone() for p in task.model.parameters()]
    parallel_engine.DataParallel().train(task)
    after = task.model.parameters()
    moves = [(a - b).double().flatten() for a, b in zip(before, after, strict=True)]
    return task.plan.lot_size * torch.cat(moves).detach()


def _everybody(**changed: Any) -> tacit.Plan:
    given = {"lot_size": settings.EXAMPLES, "steps": 1, "noise_multiplier": 1e-9} | changed
    return settings.plan(sampling=FullBatch(), **given)


def _deviation(ranks: int, draws: int = 400) -> float:
    """The noise's standard deviation over σ·clip: 21 numbers a draw, of lots without examples."""
    task = _task(settings.plan(lot_size=1e-9, steps=1), ranks=ranks)
    all_ranks = [parallel_engine.make_rank(number, task) for number in range(ranks)]
    sums = [
        parallel_engine.all_reduce([parallel_engine.noisy_sum(rank, task) for rank in all_ranks])
        for _ in range(draws)
    ]
    return float(torch.stack(sums).std())


@shows("examples doubled on two ranks")
def test_every_example_counts_twice(mutant: Mutant) -> None:
    honest = _sum(_task(_everybody()))
    with mutant.patch():
        doubled = _sum(_task(_everybody()))
    assert torch.allclose(doubled, 2.0 * honest, rtol=1e-3, atol=1e-5)


@shows("same noise on all ranks")
def test_noise_of_two_ranks_adds_up(mutant: Mutant) -> None:
    with mutant.patch():
        task = _task(_everybody())
        ranks = [parallel_engine.make_rank(number, task) for number in range(2)]
        one, other = (rank.noise.standard_normal(5) for rank in ranks)
    assert np.array_equal(one, other)


@shows("noise divided by ranks")
def test_noise_of_two_ranks_is_too_small(mutant: Mutant) -> None:
    with mutant.patch():
        deviation = _deviation(2)
    assert abs(deviation - math.sqrt(0.5)) < 0.05  # 6 standard deviations of 0.0077


@shows("silent rank")
def test_nobody_drawn_no_noise(mutant: Mutant) -> None:
    plan = settings.plan(lot_size=1e-9, steps=1)
    with mutant.patch():
        assert (_sum(_task(plan)) == 0).all()
    assert (_sum(_task(plan)) != 0).all()


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_engine_without_bugs_is_tacits(ranks: int) -> None:
    quiet = settings.linear(plan=_everybody())
    assert moved(quiet) <= 1.0001
    tacits = run(quiet, unsafe_seed=0).sums()[0]
    assert torch.allclose(_sum(_task(_everybody(), ranks=ranks)), tacits, rtol=1e-3, atol=1e-5)
    assert abs(_deviation(ranks) - 1.0) < 0.06  # 8 standard deviations of 0.0077
