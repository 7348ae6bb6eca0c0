"""PrivateTrainer beside the explicit loop, what it writes, resumes, refuses, and hides."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import tacit
from tacit import losses
from tacit.errors import CheckpointError, InvalidArgument, ProtocolError

from . import tiny

if TYPE_CHECKING:
    from torch import nn

from transformers import TrainerCallback, TrainingArguments

from tacit.hf import PrivateTrainer
from tacit.hf.refusals import SETTINGS

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
ROWS, SEED = 24, 5


def plan(steps: int = 4, **changed: Any) -> tacit.Plan:
    terms = {"lot_size": 8, "noise_multiplier": 0.5, "clip": 0.1, **changed}
    return tacit.Plan(examples=ROWS, steps=steps, **terms)


def arguments(folder: Path, **changed: Any) -> TrainingArguments:
    given = {
        "max_grad_norm": 0.0, "report_to": "none", "save_strategy": "no", "disable_tqdm": True,
        "use_cpu": True, "learning_rate": 0.05, "optim": "adamw_torch", "logging_steps": 1,
        "per_device_train_batch_size": 4, **changed,
    }  # fmt: skip
    return TrainingArguments(output_dir=str(folder), **given)


def trainer_of(case: tiny.Case, folder: Path, **changed: Any) -> PrivateTrainer:
    settings = changed.pop("settings", {})
    given: dict[str, Any] = {
        "model": case.made(), "args": arguments(folder, **settings), "plan": plan(),
        "train_dataset": case.rows(ROWS), "data_collator": case.collate, "unsafe_seed": SEED,
        **changed,
    }  # fmt: skip
    return PrivateTrainer(**given)


def by_hand(case: tiny.Case, steps: int = 4) -> nn.Module:
    """The same training as an explicit loop: AdamW with the trainer's default schedule."""
    model = case.made().train()
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=0.05, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    with tacit.private(
        model, optimizer, plan(steps), case.rows(ROWS), collate=case.collate, unsafe_seed=SEED,
        performance=tacit.Performance(batch=4),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            for batch in lot:
                dp.backward(losses.of(model, batch))
            dp.step()
            schedule.step()
    return model


def apart(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs if a.is_floating_point())


@pytest.mark.parametrize("case", tiny.CASES, ids=str)
def test_it_equals_the_explicit_loop(case: tiny.Case, tmp_path: Path):
    trainer = trainer_of(case, tmp_path)
    done = trainer.train()
    assert done.global_step == 4
    assert apart(trainer.model, by_hand(case)) <= 1e-6
    assert apart(trainer.model, case.made()) > 1e-3
