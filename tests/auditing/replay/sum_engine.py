"""A third engine, whose faults lie between a lot and its noisy sum; it keeps no ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import default_collate

from tacit.auditing.replay import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from tacit.auditing.replay import Task


@dataclass(frozen=True)
class Summing:
    """An honest engine if ``fault`` is empty."""

    fault: str = ""
    ranks: tuple[int, ...] = (1,)
    name = "summing"
    keeps_ledger = False
    resumes = True

    def train(self, task: Task) -> Outcome:
        run = _Run(self.fault, task)
        planned = task.plan.steps if task.stop_at is None else task.stop_at
        while run.taken < planned:
            run.step()
        if self.fault == "the best is handed over":
            run.put(min(run.seen, key=lambda pair: pair[0])[1])
        if task.save is not None:
            run.save(task.save)
        return Outcome(task.plan.epsilon(task.delta), {})


class _Run:
    def __init__(self, fault: str, task: Task) -> None:
        self.fault, self.task, self.taken = fault, task, 0
        self.parameters: list[Tensor] = [
            p for group in task.optimizer.param_groups for p in group["params"]
        ]
        self.draw = np.random.default_rng()
        self.last = torch.zeros(sum(p.numel() for p in self.parameters), dtype=torch.float64)
        self.seen: list[tuple[float, Tensor]] = []
        self.norms: dict[int, float] = {}
        self.gradients: dict[int, Tensor] = {}
        if task.resume is not None:
            held = torch.load(task.resume, weights_only=True)
            self.put(held["weights"])
            task.optimizer.load_state_dict(held["optimizer"])
            self.taken = held["taken"]

    def step(self) -> None:
        plan = self.task.plan
        lot = np.flatnonzero(self.draw.random(plan.examples) < plan.sample_rate)
        released = self.sum(lot)
        released = (released + self.noise(released)) / plan.lot_size
        sizes = [p.numel() for p in self.parameters]
        for parameter, part in zip(self.parameters, released.split(sizes), strict=True):
            parameter.grad = part.view(parameter.shape).to(parameter.dtype)
        self.task.optimizer.step()
        self.taken += 1

    def sum(self, lot: np.ndarray) -> Tensor:
        """The sum of a lot's clipped gradients."""
        if self.fault == "left over by empty lots" and not len(lot):
            return self.last
        found = [self.gradient(int(unit)) for unit in lot]
        total = torch.zeros_like(self.last)
        for at, (unit, (loss, gradient)) in enumerate(zip(lot, found, strict=True)):
            total += self.weight(at, loss, found) * self.clipped(int(unit), gradient)
        self.seen.append((sum(loss for loss, _ in found), self.flat()))
        self.last = total.clone()
        return total

    def gradient(self, unit: int) -> tuple[float, Tensor]:
        """The loss and the gradient of a unit."""
        task = self.task
        (loss,) = task.loss(task.model, (task.collate or default_collate)([task.dataset[unit]]))
        parts = torch.autograd.grad(loss, self.parameters)
        gradient = torch.cat([part.double().flatten() for part in parts])
        if self.fault == "gradients kept":
            gradient = self.gradients.setdefault(unit, gradient)
        return float(loss.detach()), gradient

    def weight(self, at: int, loss: float, found: list[tuple[float, Tensor]]) -> float:
        """How often a unit counts."""
        if self.fault == "the easier half left out":
            return float(loss >= np.median([one for one, _ in found]))
        if self.fault == "the third unit twice":
            return 2.0 if at == 2 else 1.0
        if self.fault == "losses as weights":
            return 0.5 + abs(loss) / (abs(loss) + 1.0)
        return 1.0

    def clipped(self, unit: int, gradient: Tensor) -> Tensor:
        clip, norm = self.task.plan.clip, float(gradient.norm())
        if not np.isfinite(norm):
            return torch.zeros_like(gradient)
        if self.fault == "norms kept":
            norm = self.norms.setdefault(unit, norm)
        if self.fault == "unclipped after resuming" and self.task.resume is not None:
            return gradient
        return gradient * min(1.0, clip / max(norm, 1e-30))

    def noise(self, total: Tensor) -> Tensor:
        draw = self.draw
        if self.fault == "noise by the sum" and total.any():
            draw = np.random.default_rng(list(float(total.square().sum()).hex().encode()))
        noise = self.task.plan.noise_scale * torch.from_numpy(draw.standard_normal(len(total)))
        along = total / total.norm().clamp_min(1e-300)
        if self.fault == "no noise along long sums" and float(total.norm()) > self.task.plan.clip:
            noise = noise - (noise @ along) * along
        return noise

    def save(self, path: Path) -> None:
        state = self.task.optimizer.state_dict()
        torch.save({"weights": self.flat(), "optimizer": state, "taken": self.taken}, path)

    def flat(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.parameters])

    def put(self, weights: Tensor) -> None:
        sizes = [p.numel() for p in self.parameters]
        with torch.no_grad():
            for parameter, part in zip(self.parameters, weights.split(sizes), strict=True):
                parameter.copy_(part.view(parameter.shape))
