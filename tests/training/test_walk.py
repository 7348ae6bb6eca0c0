"""How many files a reader of one private step has to open."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

import tacit
from tacit.training import Plan

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(tacit.__file__).parent
MOST = 20


def test_a_private_step_passes_few_files() -> None:
    """From the next lot to the end of its step, once the run is past its rehearsal."""
    x, y = torch.randn(64, 8), torch.randint(2, (64,))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    plan = Plan(examples=64, lot_size=16, steps=6, noise_multiplier=2.0, clip=1.0, noise="secure")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    passed: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            passed.add(path.relative_to(ROOT).as_posix())

    data = torch.utils.data.TensorDataset(x, y)
    before = sys.getprofile()
    with tacit.private(model, optimizer, plan, data) as dp:
        try:
            for lot in dp.lots():
                for inputs, labels in lot:
                    logits = model(inputs)
                    dp.backward(functional.cross_entropy(logits, labels, reduction="none"))
                dp.step()
                if lot.step == 0:
                    dp._verifier._schedule._wait = plan.steps  # no check that comes at random
                    sys.setprofile(note)
        finally:
            sys.setprofile(before)
    files = sorted(passed)
    assert {"training/session.py", "training/clipping/engine.py", "training/noise.py"} <= passed
    assert len(files) <= MOST, files
