"""Runs: one engine, one setting, and whatever is varied from run to run."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import TensorDataset, default_collate

from tacit.auditing.replay.recordings import (
    Marked,
    MarkedLoss,
    PlacesRead,
    as_they_are,
    marked_tensors,
    recorded,
)
from tacit.auditing.replay.setting import Records, chosen
from tacit.auditing.replay.subject import Task
from tacit.auditing.replay.trace import Account, Trace
from tacit.auditing.replay.watch import (
    Collated,
    Recognition,
    Stranger,
    Views,
    Watch,
    WatchedData,
    WatchedLoss,
    flat,
    own_data,
    printed,
    rarely_checked,
    seeded,
    unrehearsed,
)
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch import Tensor
    from torch.optim import Optimizer
    from torch.utils.data import Dataset

    from tacit.auditing.replay.coverage import Tracer
    from tacit.auditing.replay.setting import Loss, Setting
    from tacit.auditing.replay.subject import Outcome, Subject
    from tacit.auditing.replay.trace import Variation
    from tacit.ledger import Budget

Train: TypeAlias = "Callable[[Task], Outcome]"
_Data: TypeAlias = "tuple[Dataset[Any], Callable[[list[Any]], Any] | None, Loss]"
DELTA = 1e-5


@final
class Laboratory:
    """Runs an engine on a setting, always from the same weights and the same global seeds."""

    def __init__(
        self,
        setting: Setting,
        subject: Subject,
        folder: Path,
        tracer: Tracer | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.setting, self.subject, self.folder = setting, subject, folder
        self._device = torch.device("cpu") if device is None else device
        self._tracer = tracer
        with seeded(0):
            self._model = quiet(setting.model())
        self._weights = {k: v.clone() for k, v in self._model.state_dict().items()}
        self._views = None if _is_steady(setting) else Views(setting.plan.views)
        plain = type(setting.dataset) is TensorDataset and setting.collate is None
        self.plain = plain and self._views is None

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

    @cached_property
    def kinds(self) -> tuple[torch.dtype, ...]:
        """The type of each of them."""
        _, optimizer = self.made(still=True)
        return tuple(p.dtype for group in optimizer.param_groups for p in group["params"])

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

    def made(
        self, *, still: bool, rate: float = 1.0, device: torch.device | None = None
    ) -> tuple[nn.Module, Optimizer]:
        """The model with its first weights, and a new optimizer of its trainable parameters.

        ``rate`` is a factor on the optimizer's learning rates, which are 0 if it is ``still``. It
        is on the host if no ``device`` is named.
        """
        model = quiet(self.setting.model())
        model.load_state_dict(self._weights)
        if device is not None:
            model.to(device)
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

    def run(self, variation: Variation, train: Train | None = None) -> Trace:
        """Runs the engine; what it raises is part of what is seen.

        ``train`` is a way to run it other than the subject's. Global seeds are always the same:
        what must be random must not depend on them.
        """
        rehearsals = nullcontext() if variation.rehearsed else unrehearsed()
        with seeded(1), rarely_checked(), rehearsals:
            return self._run(variation, train or self.subject.train)

    def _run(self, variation: Variation, train: Train) -> Trace:
        model, optimizer = self.made(
            still=variation.still, rate=variation.rate, device=self._device
        )
        charges = variation.ledger is not None and self.subject.keeps_ledger
        budget = self._budget(variation) if charges else None
        charged = None if budget is None else lambda: _granted(budget)
        stepped = None if self._tracer is None else self._tracer.look_again
        watch = Watch(model, optimizer, charged, stepped)
        task = self._task(variation, model, optimizer, budget, watch)
        start = flat(watch.parameters)
        outcome, error = None, None
        with recorded(self._records_steps(variation), watch), printed(logs=budget is None) as heard:
            try:
                with self._traced(variation, train):
                    outcome = train(task)
            except Exception as raised:
                error = raised
        account = None if budget is None else _account(budget)
        if budget is not None:
            budget.ledger.close()
        state = tree_map_only(torch.Tensor, _on_host, optimizer.state_dict())
        return Trace(
            variation, tuple(watch.steps), tuple(watch.reads), start, flat(watch.parameters),
            tuple(map(tuple, watch.other_ranks)), watch.lots_begun, outcome, error, account,
            "".join(heard), copy.deepcopy(state),
        )  # fmt: skip

    def _records_steps(self, variation: Variation) -> bool:
        """Whether the run's steps may be recorded: not where the loss is to raise, in Python."""
        raises = variation.crash_at is not None or variation.full_above is not None
        return bool(self.setting.performance.capture) and not raises

    def _traced(self, variation: Variation, train: Train) -> AbstractContextManager[object]:
        way = getattr(train, "__qualname__", type(train).__name__)
        return self._tracer.run((way, variation.kind)) if self._tracer else nullcontext()

    def _task(
        self,
        variation: Variation,
        model: nn.Module,
        optimizer: Optimizer,
        budget: Budget | None,
        watch: Watch,
    ) -> Task:
        setting, records = self.setting, variation.records
        lengths = setting.lengths
        batch = setting.performance.batch if variation.batch is None else variation.batch
        dataset, collate, loss = self._data(variation, watch)
        performance = replace(
            setting.performance,
            batch=batch,
            lease=variation.lease,
            workers=setting.performance.workers if variation.own else 0,
        )
        if performance.capture and not self._records_steps(variation):
            performance = replace(performance, capture=False)
        return Task(
            model=model,
            optimizer=optimizer,
            plan=variation.plan,
            dataset=dataset,
            loss=loss,
            collate=collate,
            groups=None if setting.groups is None else records.units,
            delta=DELTA,
            performance=performance,
            lengths=None if lengths is None else np.asarray(lengths)[records.examples],
            budget=budget,
            save=variation.save,
            resume=variation.resume,
            stop_at=variation.stop_at,
            ranks=variation.ranks,
        )

    def _data(self, variation: Variation, watch: Watch) -> _Data:
        """The data set of a run, how its batches are made, and a loss that knows their rows.

        With a ledger every reading is to be seen: it must not come before the charge.
        """
        setting, records = self.setting, variation.records
        if variation.own:
            recognition = self.recognition(records)
            loss = self._watched_loss(variation, watch, recognition)
            return own_data(setting.dataset, records), setting.collate, loss
        plain = self.plain and variation.ledger is None and not variation.wrapped
        if plain:
            return self._plain_data(variation, watch)
        data = WatchedData(setting.dataset, records, watch, self._views)
        if not self._records_steps(variation):
            return data, Collated(setting.collate), self._watched_loss(variation, watch, None)
        marked = Marked(setting.collate, records, watch, variation.factors)
        return data, marked, MarkedLoss(setting.loss, watch, as_they_are, variation.scale)

    def _plain_data(self, variation: Variation, watch: Watch) -> _Data:
        """A data set of tensors, where the model is."""
        setting, records = self.setting, variation.records
        examples = records.of(setting.dataset)
        if self._records_steps(variation):
            marked = marked_tensors(examples, records, variation.factors, self._device)
            rows = PlacesRead(examples, watch)
            return marked, None, MarkedLoss(setting.loss, watch, rows, variation.scale)
        tensors = (tensor.to(self._device) for tensor in default_collate(examples))
        loss = self._watched_loss(variation, watch, Recognition(examples, None))
        return TensorDataset(*tensors), None, loss

    def _watched_loss(
        self, variation: Variation, watch: Watch, recognition: Recognition | None
    ) -> WatchedLoss:
        return WatchedLoss(
            self.setting.loss,
            variation.records,
            watch,
            recognition,
            scale=variation.scale,
            factors=variation.factors,
            crash_at=variation.crash_at,
            full_above=variation.full_above,
        )

    def recognition(self, records: Records) -> Recognition:
        """Knows records by what is in them; see ``recognises``."""
        return Recognition(records.of(self.setting.dataset), self.setting.collate)

    def collated(self, examples: list[Any], *, numbered: bool) -> Any:
        """A batch as a run's come: with the numbers of readings, if those are ``numbered``."""
        own = Collated(self.setting.collate) if numbered else self.setting.collate
        return (own or default_collate)(examples)

    def recognises(self, records: Records) -> bool:
        """Whether these rows look the same whenever they are read, and whatever is beside them."""
        if self._views is not None:
            return False
        examples = records.of(self.setting.dataset)
        batch = (self.setting.collate or default_collate)(examples)
        try:
            reads = self.recognition(records).reads(batch, ())
        except (Stranger, ValueError):
            return False
        return len(reads) == len(examples)

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


def _on_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu")


def _account(budget: Budget) -> Account:
    """What the ledger says, and the pairs that its own entries say."""
    spent = budget.spent()
    books = budget.ledger.refresh()
    charges = [one.charge for one in books.of(budget.name) if one.granted or not one.ended]
    pairs = tuple((charge.epsilon, charge.delta) for charge in charges)
    return Account(spent.epsilon, spent.delta, _granted(budget), pairs)


def _granted(budget: Budget) -> int:
    return budget.ledger.refresh().budgets[budget.name].granted
