"""Clipping is not blamed for gradients that are rough."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tacit.auditing.replay import TACIT
from tacit.auditing.replay.checks import clipping
from tacit.auditing.replay.experiments import Experiments
from tacit.auditing.replay.laboratory import Laboratory

from ..sum_engine import Summing
from ..test_self_test import DATA, setting

if TYPE_CHECKING:
    from pathlib import Path


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
