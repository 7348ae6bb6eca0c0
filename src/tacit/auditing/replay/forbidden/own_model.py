"""The same acts on the user's own model and data."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)

from tacit.auditing.replay.subject import Outcome
from tacit.randomness import GaussianSource, SystemStream, fresh_stream
from tacit.training.session import Session, private

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.auditing.replay.subject import Task


_NOTHING = Outcome(0.0, {})
_ALIKE = 0.02  # a difference of weights that is too small to be seen


def _session_of(task: Task, **changed: Any) -> Session:
    given: dict[str, Any] = {
        "model": task.model, "optimizer": task.optimizer, "plan": task.plan,
        "dataset": task.dataset, "groups": task.groups, "performance": task.performance,
        "collate": task.collate,
    }  # fmt: skip
    return private(**(given | changed))


def _looped(task: Task, dp: Session, losses: Callable[[Any], Tensor] | None = None) -> Outcome:
    with dp:
        for lot in dp.lots():
            dp.accumulate(lot, losses or (lambda batch: task.loss(task.model, batch)))
            dp.step()
    return _NOTHING


def _with_losses(change: Callable[[Tensor], Tensor]) -> Callable[[Task], Outcome]:
    """A run whose losses are not what they should be."""

    def attempt(task: Task) -> Outcome:
        return _looped(task, _session_of(task), lambda batch: change(task.loss(task.model, batch)))

    return attempt


def _between(change: Callable[[Task, Session], object]) -> Callable[[Task], Outcome]:
    """A run in which something is done after the first step."""

    def attempt(task: Task) -> Outcome:
        with _session_of(task) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: task.loss(task.model, batch))
                dp.step()
                change(task, dp)
        return _NOTHING

    return attempt


def _within(change: Callable[[Task, Session, Tensor], object]) -> Callable[[Task], Outcome]:
    """A run in which something is done to the losses of a batch, beside passing them on."""

    def attempt(task: Task) -> Outcome:
        with _session_of(task) as dp:
            for lot in dp.lots():
                for batch in lot:
                    change(task, dp, task.loss(task.model, batch))
                dp.step()
        return _NOTHING

    return attempt


def _weights(task: Task) -> list[nn.Parameter]:
    return [p for group in task.optimizer.param_groups for p in group["params"]]


def _mixing(task: Task) -> Outcome:
    """Rows that see each other: through the model's results, centred over the batch."""
    return _looped(task, _session_of(task), lambda batch: _centred(task.loss(task.model, batch)))


def _centred(losses: Tensor) -> Tensor:
    return losses * (1.0 + losses.mean())


def _weighed(task: Task) -> Outcome:
    """Rows that are weighed by others, in a way through which no gradient passes."""
    weights: list[float] = []

    def losses(batch: Any) -> Tensor:
        found = task.loss(task.model, batch)
        sizes = found.detach().abs()
        weights.append(float(sizes.mean() / sizes.max().clamp_min(1e-30)))
        return found * weights[-1]

    done = _looped(task, _session_of(task), losses)
    if max(weights, default=1.0) - min(weights, default=1.0) < _ALIKE:
        raise RuntimeError("all losses are alike: nothing was mixed")
    return done


def _counted(task: Task) -> Outcome:
    """A buffer that is changed by the forward pass."""
    task.model.register_buffer("seen", torch.zeros(()))

    def losses(batch: Any) -> Tensor:
        found = task.loss(task.model, batch)
        with torch.no_grad():
            task.model.get_buffer("seen").add_(found.detach().sum())
        return found

    return _looped(task, _session_of(task), losses)


def _changed_weights(task: Task, _: Session) -> None:
    with torch.no_grad():
        _weights(task)[0].mul_(1.01)


def _edited_gradient(task: Task, _: Session) -> None:
    weight = _weights(task)[0]
    weight.grad = torch.ones_like(weight)


def _batch_twice(_: Task, dp: Session, losses: Tensor) -> None:
    for _again in range(2):
        dp.backward(losses)


def _stepped_twice(task: Task) -> Outcome:
    with _session_of(task) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: task.loss(task.model, batch))
            dp.step()
            dp.step()
    return _NOTHING


def _left_over(task: Task) -> Outcome:
    with _session_of(task) as dp:
        for lot in dp.lots():
            if not lot.is_done:
                dp.step()
    return _NOTHING


def _frozen_out(task: Task) -> Outcome:
    """A trainable parameter that no optimizer holds."""
    task.model.register_parameter("stray", nn.Parameter(torch.zeros(2)))
    return _looped(task, _session_of(task))


def _normalised(task: Task) -> Outcome:
    task.model.add_module("mixing", nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)
    return _looped(task, _session_of(task, optimizer=optimizer))


def _copied_noise(task: Task) -> Outcome:
    del task
    source = GaussianSource(torch.device("cpu"), SystemStream())
    for duplicate in (copy.copy, pickle.dumps):
        try:
            duplicate(source)
            duplicate(fresh_stream("noise"))
        except Exception:
            continue
        return _NOTHING
    raise RuntimeError("refused, as it should be")


def _iterated(task: Task) -> Outcome:
    loader = DataLoader(TensorDataset(torch.zeros(task.plan.examples, 1)), batch_size=2)
    return _looped(task, _session_of(task, dataset=loader))


def _shortened(task: Task) -> Outcome:
    short = TensorDataset(torch.zeros(task.plan.examples // 2, 1))
    groups = None if task.groups is None else task.groups[: task.plan.examples // 2]
    return _looped(task, _session_of(task, dataset=short, groups=groups))


TASKS: dict[str, Callable[[Task], Outcome]] = {
    "a mean loss": _with_losses(lambda losses: losses.mean()),
    "a column of losses": _with_losses(lambda losses: losses.unsqueeze(1)),
    "whole numbers as losses": _with_losses(lambda losses: losses.long()),
    "losses without a gradient": _with_losses(lambda losses: losses.detach()),
    "rows that are mixed": _mixing,
    "rows that are weighed by others": _weighed,
    "a buffer of the data": _counted,
    "loss.backward()": _within(lambda _task, _dp, losses: losses.sum().backward()),
    "a batch passed on twice": _within(_batch_twice),
    "a batch that is left out": _within(lambda _task, _dp, losses: losses),
    "a step of the optimizer's own": _between(lambda task, _dp: task.optimizer.step()),
    "weights changed by hand": _between(_changed_weights),
    "an edited gradient": _between(_edited_gradient),
    "a second step for one lot": _stepped_twice,
    "a step without the lot's batches": _left_over,
    "a parameter that no optimizer holds": _frozen_out,
    "batch normalisation": _normalised,
    "noise that is copied": _copied_noise,
    "a loader's own batches": _iterated,
    "fewer examples than planned": _shortened,
}  # fmt: skip
