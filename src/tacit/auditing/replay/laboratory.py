"""Runs: one engine, one setting, and whatever is varied from run to run."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import default_collate

from tacit.auditing.replay.feeding import Collated, Views, WatchedData, WatchedLoss, seeded
from tacit.auditing.replay.listening import listening
from tacit.auditing.replay.records import Records, chosen
from tacit.auditing.replay.subject import Task
from tacit.auditing.replay.trace import Trace
from tacit.auditing.replay.watching import Watch, flat
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch.optim import Optimizer

    from tacit.auditing.replay.setting import Setting
    from tacit.auditing.replay.subject import Subject
    from tacit.auditing.replay.trace import Variation
    from tacit.ledger import Budget

DELTA = 1e-5


@final
class Laboratory:
    """Runs an engine on a setting, always from the same weights and the same global seeds."""

    def __init__(self, setting: Setting, subject: Subject, folder: Path) -> None:
        self.setting, self.subject, self.folder = setting, subject, folder
        with seeded(0):
            self._model = quiet(setting.model())
        self._weights = {k: v.clone() for k, v in self._model.state_dict().items()}
        self._views = None if _is_steady(setting) else Views(setting.plan.views)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the private parameters, in the order of the released vectors."""
        model, optimizer = self.made(still=True)
        names = {id(p): name for name, p in model.named_parameters()}
        held = [p for group in optimizer.param_groups for p in group["params"]]
        return tuple(names.get(id(p), f"parameter {at}") for at, p in enumerate(held))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many entries each of them has."""
        _, optimizer = self.made(still=True)
        return tuple(p.numel() for group in optimizer.param_groups for p in group["params"])

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each of them."""
        _, optimizer = self.made(still=True)
        held = [p for group in optimizer.param_groups for p in group["params"]]
        return tuple(tuple(p.shape) for p in held)

    @property
    def entries(self) -> int:
        """How many numbers a step releases."""
        return sum(self.sizes)

    def records(self, most: int) -> Records:
        """The first units of the setting."""
        found = chosen(self.setting, most)
        if found.count < 4:
            raise InvalidArgument(
                f"setting.dataset must have at least 4 units to replay, got {found.count}"
            )
        return found

    def made(self, *, still: bool, rate: float = 1.0) -> tuple[nn.Module, Optimizer]:
        """The model with its first weights, and a new optimizer of its trainable parameters.

        ``rate`` is a factor on the optimizer's learning rates, which are 0 if it is ``still``.
        """
        model = quiet(self.setting.model())
        model.load_state_dict(self._weights)
        optimizer = self.setting.optimizer([p for p in model.parameters() if p.requires_grad])
        for group in optimizer.param_groups:
            group["lr"] = 0.0 if still else group["lr"] * rate
        return model, optimizer

    def precision(self, *, own: bool) -> AbstractContextManager[object]:
        """Autocast as in the setting's runs, or nothing if its ``own`` precision is not wanted."""
        kind = self.setting.performance.precision
        if not own or kind == "single":
            return nullcontext()
        return torch.autocast("cpu", getattr(torch, kind))

    def run(self, variation: Variation) -> Trace:
        """Runs the engine; what it raises is part of what is seen.

        Global seeds are always the same: what must be random must not depend on them.
        """
        with seeded(1):
            return self._run(variation)

    def _run(self, variation: Variation) -> Trace:
        model, optimizer = self.made(still=variation.still, rate=variation.rate)
        charges = variation.ledger is not None and self.subject.keeps_ledger
        budget = self._budget(variation) if charges else None
        charged = None if budget is None else lambda: _granted(budget)
        watch = Watch(model, optimizer, charged)
        task = self._task(variation, model, optimizer, budget, watch)
        start = flat(watch.parameters)
        outcome, error = None, None
        with watch.hooked(), listening(logs=budget is None) as heard:
            try:
                outcome = self.subject.train(task)
            except Exception as raised:
                error = raised
        epsilon = None if budget is None else budget.spent().epsilon
        granted = None if budget is None else _granted(budget)
        if budget is not None:
            budget.ledger.close()
        return Trace(
            variation, tuple(watch.steps), tuple(watch.reads), start, flat(watch.parameters),
            tuple(map(tuple, watch.other_ranks)), watch.lots_begun, outcome, error, granted,
            epsilon, "".join(heard), copy.deepcopy(optimizer.state_dict()),
        )  # fmt: skip

    def _task(
        self,
        variation: Variation,
        model: nn.Module,
        optimizer: Optimizer,
        budget: Budget | None,
        watch: Watch,
    ) -> Task:
        setting, records = self.setting, variation.records
        batch = setting.performance.batch if variation.batch is None else variation.batch
        return Task(
            model=model,
            optimizer=optimizer,
            plan=variation.plan,
            dataset=WatchedData(setting.dataset, records, watch, self._views),
            loss=WatchedLoss(
                setting.loss,
                records,
                watch,
                scale=variation.scale,
                factors=variation.factors,
                crash_at=variation.crash_at,
            ),
            collate=Collated(setting.collate),
            groups=None if setting.groups is None else records.units,
            delta=DELTA,
            performance=replace(setting.performance, batch=batch, lease=variation.lease, workers=0),
            budget=budget,
            save=variation.save,
            resume=variation.resume,
            stop_at=variation.stop_at,
            ranks=variation.ranks,
        )

    def _budget(self, variation: Variation) -> Budget:
        """The budget of a run, in a ledger that has its name."""
        from tacit.ledger import Ledger  # noqa: PLC0415 - SQLAlchemy only for those who keep one

        plan, path = variation.plan, self.folder / f"{variation.ledger}.db"
        ledger = Ledger(f"sqlite:///{path}")
        return ledger.open(
            "replay", variation.limit, DELTA, unit=plan.unit, adjacency=plan.adjacency
        )


def quiet(model: nn.Module) -> nn.Module:
    """``model`` without dropout, whose random numbers would differ from run to run."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0
    return model


def _is_steady(setting: Setting) -> bool:
    """Whether reading an example twice gives the same numbers."""
    collate = setting.collate or default_collate
    one, other = (tree_leaves(collate([setting.dataset[0]])) for _ in range(2))
    return len(one) == len(other) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)
        for a, b in zip(one, other, strict=True)
    )


def _granted(budget: Budget) -> int:
    return budget.ledger.refresh().budgets[budget.name].granted
