"""Data, units, optimizers, schedules and bounds that must be refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from tacit.auditing.replay.forbidden.small_run import (
    DELTA,
    ROWS,
    WIDTH,
    Counter,
    Model,
    Small,
    rows,
    small_plan,
)
from tacit.training.fit import Keeping, Prepared, Schedule, Watch, carry_out
from tacit.training.performance import Performance
from tacit.training.styles import PerGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


class DataFrame:
    """What has the name, and the manners, of a table by columns."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, name: object) -> object:
        return name


class _Ragged(Dataset[Any]):
    """Rows of different lengths."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.ones(1 + index), 0


def _from(data: Callable[[], Any]) -> Small:
    return Small(data=data)


def by_user(**options: Any) -> Small:
    """A small run whose units are users."""
    plan = small_plan(examples=4, lot_size=4, unit="user", examples_per_user=2)
    return Small(plan=plan, options=options)


def _environment(**variables: str) -> Callable[[], object]:
    def attempt() -> object:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            return Small()()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

    return attempt


DATA: dict[str, Callable[[], object]] = {
    "a data loader": _from(lambda: DataLoader(TensorDataset(*rows()), batch_size=2)),
    "a stream": _from(_Stream),
    "a sampler": _from(lambda: SequentialSampler(range(ROWS))),
    "a table by columns": _from(DataFrame),
    "an iterator": _from(lambda: iter(rows())),
    "rows of different lengths": _from(_Ragged),
    "fewer examples than planned": _from(lambda: Subset(TensorDataset(*rows()), range(ROWS - 1))),
    "more examples than planned": _from(lambda: TensorDataset(*rows(ROWS + 1))),
    "data changed between lots": Small(
        moment="between lots", act=lambda s: s.data.tensors[0].mul_(2.0)),
    "data changed in a batch": Small(
        moment="in a batch", act=lambda s: s.data.tensors[0].mul_(2.0),
        options={"performance": Performance(batch=4)}),
    "users without names": by_user(),
    "users of too few examples": by_user(groups=np.arange(ROWS - 1)),
    "users of too many examples": by_user(groups=np.arange(ROWS + 1)),
    "fewer users than planned": by_user(groups=np.zeros(ROWS, dtype=np.int64)),
    "more users than planned": by_user(groups=np.arange(ROWS)),
    "groups of examples": Small(options={"groups": np.arange(ROWS)}),
    "one of several processes": _environment(RANK="0", WORLD_SIZE="2"),
}  # fmt: skip


# ---- optimizers, schedules and bounds


def _with(optimizer: Callable[[Any], Any], **options: Any) -> Small:
    return Small(optimizer=optimizer, options=options)


def _accelerated(model: Any) -> Any:
    made = type("AcceleratedOptimizer", (Counter,), {"__module__": "accelerate.optimizer"})
    return made(model.parameters())


def _frozen() -> nn.Module:
    return Model().requires_grad_(False)


def _plateau(model: Any) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(Counter(model.parameters()))


_KEEPING = Keeping()


def fitted(
    held_out: Callable[[Any], Any] = lambda _: None,
    scheduler: Callable[[Any], Any] = lambda _: None,
    delta: float = DELTA,
    build: Callable[[], nn.Module] = Model,
    loss: Callable[[Any, Any], Any] | None = None,
    average: Any = None,
    keeping: Keeping = _KEEPING,
) -> Callable[[], object]:
    """A small run by ``tacit.fit``."""

    def attempt() -> object:
        model, data = build(), TensorDataset(*rows(2 * ROWS))
        optimizer, mine = Counter(model.parameters()), Subset(data, range(ROWS))
        prepared = Prepared(
            model=model, optimizer=optimizer, plan=small_plan(), dataset=mine, loss=loss,
            held_out=held_out(mine),
            schedule=Schedule(scheduler=scheduler(optimizer), average=average),
        )  # fmt: skip
        return carry_out(prepared, delta=delta, keeping=keeping, watch=Watch(progress=False))

    return attempt


HELD: dict[str, Callable[[], object]] = {
    "LBFGS": _with(lambda m: torch.optim.LBFGS(m.parameters())),
    "SparseAdam": _with(lambda m: torch.optim.SparseAdam(list(m.parameters()))),
    "what is no optimizer": _with(lambda _: [object()]),
    "a wrapped optimizer": _with(_accelerated),
    "no optimizer": _with(lambda _: []),
    "a parameter twice": _with(lambda m: [Counter(m.parameters()), Counter(m.parameters())]),
    "a trainable parameter left out": _with(lambda m: Counter(m.first.parameters())),
    "nothing to train": Small(_frozen),
    "a schedule by the loss": _with(
        lambda m: Counter(m.parameters()), state={"schedule": _plateau(Model())}),
    "bounds that miss a parameter": Small(
        plan=small_plan(clipping=PerGroup({"first": 1.0}), clip=None)),
    "bounds for no parameter": Small(
        plan=small_plan(clipping=PerGroup({"": 1.0, "third": 1.0}), clip=None)),
    "noise too wide for its grid": Small(plan=small_plan(noise_multiplier=1e12, noise="secure")),
    "a seed beside a budget": Small(options={"unsafe_seed": 1, "budget": object()}),
    "a budget that is none": Small(options={"budget": object()}),
    "an end beyond the plan": Small(options={"stop_after": 4}),
    "an end before the start": Small(options={"stop_after": 0}),
    "private data held out": fitted(lambda mine: mine),
    "the same data held out": fitted(lambda mine: Subset(mine.dataset, range(ROWS))),
    "some private data held out": fitted(
        lambda mine: Subset(mine.dataset, range(ROWS - 1, 2 * ROWS))),
    "all data held out": fitted(lambda mine: mine.dataset),
    "nobody held out": fitted(lambda mine: Subset(mine.dataset, [])),
    "a score that is none": fitted(
        lambda _: TensorDataset(*rows()), build=lambda: nn.Linear(WIDTH, 1),
        loss=lambda model, batch: model(batch[0])[:, 0].square()),
    "two schedules": fitted(
        scheduler=lambda one: torch.optim.lr_scheduler.StepLR(one, 1),
        keeping=Keeping(state={
            "scheduler": torch.optim.lr_scheduler.StepLR(Counter(Model().parameters()), 1)})),
    "weights that are not finite": Small(
        optimizer=lambda m: Counter(m.parameters(), lr=1e38), late=1,
        plan=small_plan(noise_multiplier=1e4)),
    "what cannot be judged": fitted(lambda _: TensorDataset(rows()[0])),
    "a schedule by the loss in fit": fitted(
        scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau),
    "a schedule of another optimizer": fitted(scheduler=lambda _: torch.optim.lr_scheduler.StepLR(
        Counter(Model().parameters()), 1)),
    "a δ that allows to publish one": fitted(delta=0.9),
    "an average of another model": fitted(average=torch.optim.swa_utils.AveragedModel(
        nn.Linear(2, 2))),
    "a folder as a file": fitted(keeping=Keeping(save=os.curdir)),
    "a file in a file": fitted(
        keeping=Keeping(save=os.path.join(__file__, "checkpoint"))),
}  # fmt: skip
