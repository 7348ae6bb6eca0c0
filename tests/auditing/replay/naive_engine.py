"""A second engine, as simple as can be, and the ways in which it can be broken.

It shares nothing with tacit's but the ledger: one example at a time, plain autograd, Flat clipping.
"""

from __future__ import annotations

import copy
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from tacit.auditing.replay import Outcome, Task
from tacit.ledger import Release


@dataclass(frozen=True)
class Naive:
    """An honest engine if ``fault`` is empty."""

    fault: str = ""
    ranks: tuple[int, ...] = (1,)
    name = "naive"
    keeps_ledger = True
    resumes = True

    def train(self, task: Task) -> Outcome:
        run = _Run(self.fault, task)
        try:
            run.steps()
        except BaseException:
            if self.fault == "gives back after a crash" and run.reservation is not None:
                run.reservation.give_back(1)
            raise
        if task.save is not None:
            run.save()
        epsilon = task.plan.epsilon(task.delta)
        if self.fault == "claims too little":
            epsilon *= 0.99
        return Outcome(epsilon, {"steps": run.taken, **run.published})


class _Run:
    def __init__(self, fault: str, task: Task) -> None:
        self.fault, self.task = fault, task
        self.parameters = [p for g in task.optimizer.param_groups for p in g["params"]]
        seed: Any = secrets.randbits(128)
        if fault == "fixed seed":
            seed = 5
        if fault == "global seed":
            seed = int(torch.randint(2**31, ()))
        self.sampling = np.random.default_rng(secrets.randbits(128))
        self.noise = np.random.default_rng(seed)
        self.taken, self.seed = 0, seed
        self.published: dict[str, Any] = {}
        self.reservation = None
        self.kept: list[np.ndarray] = []
        self.carried: list[torch.Tensor] | None = None
        number = self._load() if task.resume is not None else None
        uncharged = fault == "resumed uncharged" and task.resume is not None
        if task.budget is not None and fault != "not charged" and not uncharged:
            release = Release(task.plan.event, task.plan.adjacency, task.plan.unit)
            budget = task.budget
            if number is not None:
                self.reservation = budget.reservation(number)
            elif fault == "ignores the limit" and not budget.affordable(release):
                self.reservation = None
            else:
                self.reservation = budget.reserve(release, steps=task.plan.steps)

    # ---- steps

    def steps(self) -> None:
        task, plan = self.task, self.task.plan
        left = plan.steps if task.stop_at is None else task.stop_at
        while self.taken < left:
            if self.fault != "charged late" and not self._charge():
                return
            lot = self._lot()
            if self.fault == "empty lots skipped" and not len(lot):
                self.taken += 1
                continue
            sums = self._sums(lot)
            if self.fault == "stops at NaN" and sums is None:
                return
            assert sums is not None
            size = max(1, len(lot)) if self.fault == "realised lot" else plan.lot_size
            noises = self._noises()
            late = self.fault == "noise after the step"
            for p, total, noise in zip(self.parameters, sums, noises, strict=True):
                p.grad = (total + (0.0 if late else 1.0) * noise) / size
            task.optimizer.step()
            if late:
                with torch.no_grad():
                    for p, noise in zip(self.parameters, noises, strict=True):
                        p.sub_(task.optimizer.param_groups[0]["lr"] * noise / size)
            self.taken += 1
            if self.fault == "charged late" and not self._charge():
                return

    def _charge(self) -> bool:
        return self.reservation is None or self.reservation.lease(1) == 1

    def _lot(self) -> np.ndarray:
        plan = self.task.plan
        rate = plan.sample_rate * (1.25 if self.fault == "wrong rate" else 1.0)
        if rate >= 1.0:
            return np.arange(plan.examples)
        if self.fault == "fixed size":
            size = round(plan.lot_size)
            return np.sort(self.sampling.choice(plan.examples, size, replace=False))
        if self.fault == "shuffled":
            if not len(self.kept):
                order = self.sampling.permutation(plan.examples)
                self.kept = np.array_split(order, round(1.0 / rate))
            lot, self.kept = self.kept[0], self.kept[1:]
            return np.sort(lot)
        return np.flatnonzero(self.sampling.random(plan.examples) < rate)

    def _sums(self, lot: np.ndarray) -> list[torch.Tensor] | None:
        task, clip = self.task, self.task.plan.clip
        sums = [torch.zeros_like(p) for p in self.parameters]
        if self.fault == "sums not cleared" and self.carried is not None:
            sums = self.carried
        shares = np.array_split(lot, task.ranks)
        if self.fault == "doubled on ranks":
            shares = [lot] * task.ranks
        losses = []
        for share in shares:
            for at in share:
                batch = (task.collate or default_collate)([task.dataset[int(at)]])
                loss = task.loss(task.model, batch).sum()
                losses.append(float(loss.detach()))
                if self.fault == "stops at NaN" and not np.isfinite(losses[-1]):
                    return None
                gradients = torch.autograd.grad(loss, self.parameters)
                for total, one in zip(sums, self._clipped(gradients, clip), strict=True):
                    total.add_(one)
        if self.fault == "clips the sum":
            sums = self._clipped(tuple(sums), clip * task.plan.lot_size)
        if self.fault == "loss published":
            self.published["loss"] = float(np.mean(losses)) if losses else 0.0
        if self.fault == "mixes units" and len(lot) > 1:
            sums[0] = sums[0] - sums[0].mean()
        self.carried = [total.clone() for total in sums]
        return sums

    def _clipped(self, gradients: tuple[torch.Tensor, ...], clip: float) -> list[torch.Tensor]:
        if self.fault == "half norms":
            norm = torch.stack([g.half().square().sum() for g in gradients]).sum().sqrt().float()
        else:
            norm = torch.stack([g.double().square().sum() for g in gradients]).sum().sqrt().float()
        if self.fault == "only the weights' norm":
            norm = torch.stack([g.square().sum() for g in gradients if g.ndim > 1]).sum().sqrt()
        if not torch.isfinite(norm) and self.fault not in ("NaN passes", "half norms"):
            return [torch.zeros_like(g) for g in gradients]
        if self.fault in ("not clipped", "clips the sum"):
            return list(gradients)
        bound = clip * (1.05 if self.fault == "clip 5 % wide" else 1.0)
        factor = torch.clamp(bound / norm, max=1.0)
        return [g * factor for g in gradients]

    # ---- noise

    def _noises(self) -> list[torch.Tensor]:
        plan = self.task.plan
        scale = plan.noise_scale * (0.95 if self.fault == "95 % noise" else 1.0)
        if self.fault == "noise fades":
            scale *= 0.99**self.taken
        noises = []
        for at, p in enumerate(self.parameters):
            if self.fault == "noise comes again":
                self.noise = np.random.default_rng(self.seed)
            drawn = self.noise.standard_normal(tuple(p.shape))
            if self.fault == "Laplace noise":
                drawn = self.noise.laplace(size=tuple(p.shape)) / 2**0.5
            if self.fault == "bounded noise":
                drawn = np.clip(drawn, -3.0, 3.0)
            if self.fault == "no noise on biases" and p.ndim == 1:
                drawn = np.zeros(tuple(p.shape))
            if self.fault == "noise shuffled" and len(self.kept) == len(self.parameters):
                drawn = self.noise.permutation(self.kept[at].ravel()).reshape(tuple(p.shape))
            elif self.fault == "noise shuffled":
                self.kept = [*self.kept, drawn]
            if self.task.ranks > 1:
                drawn = self._over_ranks(drawn)
            noises.append(torch.from_numpy(scale * drawn).to(p.dtype))
        return noises

    def _over_ranks(self, first: np.ndarray) -> np.ndarray:
        ranks = self.task.ranks
        if self.fault == "same noise on ranks":
            return first * ranks / ranks**0.5
        others = [self.noise.standard_normal(first.shape) for _ in range(ranks - 1)]
        return (first + np.sum(others, axis=0)) / ranks**0.5

    # ---- checkpoints

    def save(self) -> None:
        kept = {
            "model": self.task.model.state_dict(),
            "optimizer": copy.deepcopy(self.task.optimizer.state_dict()),
            "taken": self.taken,
            "reservation": None if self.reservation is None else self.reservation.number,
            "noise": self.seed,
        }
        torch.save(kept, self.task.save)

    def _load(self) -> int | None:
        held = torch.load(self.task.resume, weights_only=True)
        self.task.model.load_state_dict(held["model"])
        if self.fault != "momentum forgotten":
            self.task.optimizer.load_state_dict(held["optimizer"])
        self.taken = 0 if self.fault == "starts again" else held["taken"]
        if self.fault == "noise again after resuming":
            self.noise = np.random.default_rng(held["noise"])
        number: int | None = held["reservation"]
        return number
