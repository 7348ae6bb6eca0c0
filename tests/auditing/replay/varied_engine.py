"""The simple engine with other faults: in the law of all its noise, over runs, and in what it says.

Each is a few lines over the honest engine's own.
"""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit.accounting import epsilon
from tacit.auditing.replay import Outcome, Task

from .naive_engine import _Run


@dataclass(frozen=True)
class Varied:
    """An honest engine if ``fault`` is empty."""

    fault: str = ""
    ranks: tuple[int, ...] = (1,)
    name = "varied"
    keeps_ledger = True
    resumes = True

    def train(self, task: Task) -> Outcome:
        run = _VariedRun(self.fault, task)
        run.steps()
        if task.save is not None:
            run.save()
        plan, taken = task.plan, run.taken
        if self.fault == "ε since resumed":
            taken = max(1, taken - run.before)
        claimed = epsilon(plan.event_after(taken), task.delta, adjacency=plan.adjacency)
        return Outcome(claimed, {"steps": run.taken, **run.published})


class _VariedRun(_Run):
    def __init__(self, fault: str, task: Task) -> None:
        super().__init__("", task)
        self.fault = fault
        self.before, self.drawn = self.taken, 0
        self.earlier: list[torch.Tensor] | None = None
        self.losses: dict[int, float] = {}
        if fault == "free the second time" and self._known():
            self.reservation = None

    def _known(self) -> bool:
        budget = self.task.budget
        return budget is not None and budget.state.granted > 0

    # ---- noise

    def _noises(self) -> list[torch.Tensor]:
        noises, scale = super()._noises(), self.task.plan.noise_scale
        flat = torch.cat([noise.flatten() for noise in noises])
        match self.fault:
            case "one length":
                flat *= scale * math.sqrt(len(flat)) / flat.norm()
            case "a shared scale":
                flat *= math.sqrt(self.noise.gamma(4.0, 0.25))
            case "centred":
                flat -= flat.mean()
            case "linked steps":
                last = torch.zeros_like(flat) if self.earlier is None else self.earlier[0]
                self.earlier = [flat.clone()]
                flat = flat if not last.any() else (flat + 0.3 * last) / math.sqrt(1.09)
            case "away from the last":
                if self.earlier is not None:
                    last = self.earlier[0] / self.earlier[0].norm()
                    flat -= (flat @ last) * last
                self.earlier = [flat.clone()]
            case "never against the sum":
                assert self.carried is not None
                along = float(flat @ torch.cat([part.flatten() for part in self.carried]))
                flat = -flat if along < 0.0 else flat
            case _:
                pass
        parts = flat.split([p.numel() for p in self.parameters])
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    # ---- lots

    def _lot(self) -> np.ndarray:
        plan, own = self.task.plan, self.task.plan.sample_rate
        self.drawn += 1
        coins = self.sampling.random(plan.examples)
        match self.fault:
            case "lots grow" if own < 1.0:
                return np.flatnonzero(coins < own * (0.6 + 0.8 * self.taken / plan.steps))
            case "two by two":
                return np.flatnonzero(np.repeat(coins, 2)[: plan.examples] < own)
            case "never two in a row" if own < 1.0:
                again = np.isin(np.arange(plan.examples), self.kept)
                self.kept = np.flatnonzero((coins < own / (1.0 - own)) & ~again)
                return self.kept
            case "the hard ones" if own < 1.0 and len(self.losses) > 1:
                losses = np.array([self.losses.get(at, 0.0) for at in range(plan.examples)])
                rates = own * (1.0 + 0.4 * np.sign(losses - np.median(losses)))
                return np.flatnonzero(coins < rates)
            case _:
                return super()._lot()

    def _sums(self, lot: np.ndarray) -> list[torch.Tensor] | None:
        plan, loss = self.task.plan, self.task.loss
        seen: list[float] = []

        def noted(model: Any, batch: Any) -> torch.Tensor:
            losses = loss(model, batch)
            seen.extend(losses.detach().tolist())
            return losses

        object.__setattr__(self.task, "loss", noted)
        sums = super()._sums(lot)
        object.__setattr__(self.task, "loss", loss)
        self.losses.update(zip(lot.tolist(), seen, strict=True))
        match self.fault:
            case "prints the loss":
                sys.stdout.write(f"step {self.taken}: loss={np.mean(seen or [0.0]):.6f}\n")
            case "logs the loss":
                logging.getLogger("varied").debug("loss %.6f", np.mean(seen or [0.0]))
            case "tells the lot" if len(lot) < plan.examples:
                self.published["last lot"] = lot.tolist()
            case "tells sizes":
                self.published.setdefault("sizes", []).append(len(lot))
            case "counts NaN":
                self.published["skipped"] = int(np.isnan(seen).sum())
            case _:
                pass
        return sums
