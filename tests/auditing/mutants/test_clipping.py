"""Each bug of the clipping is there: shown by how far one record moves the sum."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.data import TensorDataset

from tacit.training import lot
from tacit.training.clipping.sums import BatchSums
from tacit.training.noise import grid_step

from .watching import moved, of_everybody, run, shows

if TYPE_CHECKING:
    from .mutant import Mutant


@shows(
    "clipping the batch mean",
    "clipping per micro-batch",
    "clip ignored",
    "per-layer bound taken as global",
    "ghost norm of a tied weight",
    "ghost norm of a bias",
    "ghost norm of an embedding",
    "half-precision norms",
    "kernel offsets as channels",
    "kernel with sides swapped",
    "clip from the data",
    "a user's records apart",
    "users taken for sorted",
    "views as examples",
)
def test_one_record_moves_the_sum_by_more_than_the_clip(mutant: Mutant) -> None:
    setting = mutant.setting()
    with mutant.patch():
        assert max(moved(setting, record) for record in range(4)) > 1.05
    assert max(moved(setting, record) for record in range(4)) < 1.0001


@shows("NaN example")
def test_one_example_poisons_the_sum(mutant: Mutant) -> None:
    setting = of_everybody(mutant.setting())
    x, y = (copy.deepcopy(tensor) for tensor in setting.dataset.tensors)  # type: ignore[attr-defined]
    x[0, 0] = float("nan")
    poisoned = replace(setting, dataset=TensorDataset(x, y))
    with mutant.patch():
        assert run(poisoned, steps=1).sums()[0].isnan().any()
    assert run(poisoned, steps=1).sums()[0].isfinite().all()


@shows("adaptive clip without noise")
def test_the_clip_is_the_same_in_every_run(mutant: Mutant) -> None:
    setting = of_everybody(mutant.setting())
    with mutant.patch():
        first, second = (run(setting, steps=1).session._clip.sensitivity for _ in range(2))
    assert first == second != setting.plan.clip
    assert run(setting, steps=1).session._clip.sensitivity != pytest.approx(first, rel=1e-12)


@shows("whole steps beyond the clip")
def test_a_gradient_in_whole_steps_is_longer_than_the_clip(mutant: Mutant) -> None:
    one = torch.linspace(0.5, 1.5, 1000, dtype=torch.float64)
    given = {"a": 1.0005 * one / one.norm()}
    batch = BatchSums(torch.ones(1, 1), torch.ones(1, 1), given)

    def length() -> float:
        steps = lot.rounded_towards_zero(batch, 1.0, 1000).sums["a"]
        return float(steps.double().norm()) * grid_step(1.0, 1000)

    with mutant.patch():
        assert length() > 1.0
    assert 0.999 < length() <= 1.0
