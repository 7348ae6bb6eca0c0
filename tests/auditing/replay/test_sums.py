"""Faults between a lot and its noisy sum are found, by the checks of sums and by their words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tacit.auditing.replay import TACIT, replay
from tacit.auditing.replay.checks import clipping
from tacit.auditing.replay.experiments import Experiments
from tacit.auditing.replay.laboratory import Laboratory

from .sum_engine import Summing
from .test_running import DATA, setting

if TYPE_CHECKING:
    from pathlib import Path

QUICK = {
    "the easier half left out": ("gradients", "count 0 times, the 6 others once"),
    "norms kept": ("clipping", "the gradients are right, but units count"),
    "left over by empty lots": ("update", "is the sum of step"),
}
SLOW = {
    "the third unit twice": ("gradients", "unit 2 counts 2 times, the 11 others once"),
    "losses as weights": ("clipping", "the gradients are right, but units count"),
    "gradients kept": ("gradients", "it is that of the parameters before step 1"),
    "unclipped after resuming": ("resuming", "before and after resuming"),
    "noise by the sum": ("noise", "what comes again on sums of"),
    "no noise along long sums": ("noise", "the direction of the sum on sums of"),
    "the best is handed over": ("update", "other parameters than its last step"),
}


@pytest.mark.slow
def test_an_honest_engine_passes() -> None:
    report = replay(setting(), subject=Summing(), seconds=600)
    assert report.passed, report.describe()


def found(fault: str, component: str, words: str) -> None:
    report = replay(setting(), subject=Summing(fault), stop_at_first=True)
    assert report.at_fault == (component,), report.describe()
    assert words in report.describe()


@pytest.mark.parametrize(("fault", "told"), QUICK.items())
def test_a_fault_is_found_and_told(fault: str, told: tuple[str, str]) -> None:
    found(fault, *told)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "told"), SLOW.items())
def test_more_faults_are_found_and_told(fault: str, told: tuple[str, str]) -> None:
    found(fault, *told)


def certain() -> nn.Module:
    """A model whose losses are almost nothing: few digits of its gradients are right."""
    made = nn.Linear(6, 3)
    with torch.no_grad():
        made.weight.copy_(20.0 * torch.eye(3, 6))
        made.bias.zero_()
    return made


@pytest.mark.parametrize(("fault", "passes"), [("", True), ("losses as weights", False)])
def test_a_rough_gradient_is_no_fault_of_the_clipping(
    fault: str, passes: bool, tmp_path: Path
) -> None:
    x, _ = DATA.tensors
    data = TensorDataset(x, certain()(x).argmax(1))
    sure = replace(setting(), model=certain, dataset=data)
    subject = Summing(fault) if fault else TACIT
    finding = clipping.by_definition(Experiments(Laboratory(sure, subject, tmp_path)))
    assert finding.passed == passes, finding.describe()
