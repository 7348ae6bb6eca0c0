"""Opacus's ghost clipping put to tacit's self-test, with losses of shape (B,) and of shape (B, 1).

Writes one report for each shape. It needs the repository's `src` on its path.
"""

import json
import math
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

import tacit
from tacit.auditing.replay import Outcome, Report, Setting, Task, replay

SHAPES = ("(B,)", "(B, 1)")


class PerRow:
    """The criterion that ghost clipping asks for one loss per row; they are computed already."""

    reduction = "mean"

    def __call__(self, losses: Tensor) -> Tensor:
        """What it is given."""
        return losses


class GhostClipping:
    """Runs tasks with `PrivacyEngine.make_private(grad_sample_mode="ghost")`.

    Lots come from Opacus's own Poisson sampler. `make_private` would take the rate for one over a
    whole number of batches, so sampler and expected size are given the plan's here.
    """

    ranks = (1,)
    keeps_ledger = False
    resumes = False

    def __init__(self, shape: str) -> None:
        self.name = f"Opacus {version('opacus')}, ghost clipping, losses of shape {shape}"
        self._column = shape == "(B, 1)"

    def train(self, task: Task) -> Outcome:
        """See `tacit.auditing.replay.Subject`."""
        plan = task.plan
        module, optimizer, criterion, _ = PrivacyEngine().make_private(
            module=task.model,
            optimizer=task.optimizer,
            criterion=PerRow(),
            data_loader=DataLoader(task.dataset),
            noise_multiplier=plan.noise_multiplier,
            max_grad_norm=plan.clip,
            poisson_sampling=False,
            grad_sample_mode="ghost",
        )
        optimizer.expected_batch_size = plan.lot_size
        sampler = UniformWithReplacementSampler(
            num_samples=plan.examples, sample_rate=plan.sample_rate, steps=plan.steps
        )
        for lot in sampler:
            for batch, is_last in self._batches(lot, task):
                if batch:
                    losses = task.loss(
                        module, (task.collate or default_collate)([task.dataset[i] for i in batch])
                    )
                    criterion(losses.unsqueeze(1) if self._column else losses).backward()
                else:  # what its own loader does with tensors of no rows
                    for parameter in optimizer.params:
                        parameter.grad = torch.zeros_like(parameter)
                optimizer.signal_skip_step(do_skip=not is_last)
                optimizer.step()
                optimizer.zero_grad()
        module.to_standard_module()
        return Outcome(claimed(task), {})

    def _batches(self, lot: list[int], task: Task) -> list[tuple[list[int], bool]]:
        """As `BatchMemoryManager` cuts a lot; one of no examples is one batch."""
        size = task.performance.batch
        step = max(1, len(lot)) if size == "auto" else size
        parts = [lot[at : at + step] for at in range(0, len(lot), step)] or [[]]
        return [(part, at == len(parts) - 1) for at, part in enumerate(parts)]


def claimed(task: Task) -> float:
    """ε by its default accountant; next to no noise, as some checks ask for, is beyond its grid."""
    plan = task.plan
    if plan.noise_multiplier < 0.3:
        return math.inf
    accountant = PRVAccountant()
    accountant.history = [(plan.noise_multiplier, plan.sample_rate, plan.steps)]
    return float(accountant.get_epsilon(task.delta))


def setting() -> Setting:
    """A logistic regression, as whoever has losses of shape (B, 1) trains."""
    draw = torch.Generator().manual_seed(0)
    x = 3.0 * torch.randn(60, 8, generator=draw)
    y = (x[:, :1] > 0).float()
    plan = tacit.Plan(examples=60, lot_size=15, steps=100, noise_multiplier=1.0, clip=1.0)
    return Setting(model=model, loss=loss, dataset=TensorDataset(x, y), plan=plan)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 1))


def loss(network: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return nn.functional.binary_cross_entropy_with_logits(network(x), y, reduction="none")[:, 0]


def as_dict(report: Report, seconds: float) -> dict[str, Any]:
    findings = [
        {"component": f.component, "check": f.check, "passed": f.passed, "evidence": f.evidence}
        for f in report.findings
    ]
    return {"at_fault": report.at_fault, "findings": findings, "seconds": seconds}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Opacus warns of hooks and of missing secure mode
    reports = {}
    for shape in SHAPES:
        started = time.perf_counter()
        report = replay(setting(), subject=GhostClipping(shape))
        reports[shape] = as_dict(report, time.perf_counter() - started)
    versions = {name: version(name) for name in ("opacus", "torch", "numpy")}
    json.dump({"versions": versions, "reports": reports}, sys.stdout)


if __name__ == "__main__":
    main()
