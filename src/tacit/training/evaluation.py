"""How well a model does on held-out data, and which data are held out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from tacit import losses
from tacit.errors import InvalidArgument
from tacit.training.loaders import keys_of, make_loader
from tacit.training.progress import checked_metric_name
from tacit.training.verification import random_state, set_random_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import nn
    from torch.utils.data import Dataset

    from tacit.training.loaders import Collate

RowWise: TypeAlias = "Callable[[nn.Module, Any], torch.Tensor]"
Metric: TypeAlias = "Callable[[nn.Module, Iterable[Any]], float]"

_HELD_OUT_BATCH = 1024


def default_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """The cross entropy of ``model(x)`` for a batch ``(x, y)``."""
    return losses.cross_entropy(*_scored(model, batch, "loss"))


def default_correct(model: nn.Module, batch: Any) -> torch.Tensor:
    """Where ``model(x)`` is largest at ``y``, for a batch ``(x, y)``."""
    scores, y = _scored(model, batch, "correct")
    if not _are_classes(scores, y):
        raise InvalidArgument(
            "correct must be given with held_out for a model that does not score classes: its "
            "output is not (rows, 2 or more), or labels are real numbers; pass correct=f, for "
            "f(model, batch) that is true for each row that is right, or metrics={'name': f}"
        )
    found: torch.Tensor = scores.argmax(1) == y
    return found


def accuracy(
    model: nn.Module,
    dataset: Dataset[Any],
    *,
    correct: RowWise | None = None,
    collate: Collate | None = None,
) -> float:
    """The share of rows that ``model`` gets right, in evaluation mode and without gradients.

    It says something of ``dataset``, so that must be public or held out.
    """
    right, judged = counted(model, dataset, correct=correct, collate=collate)
    if not judged:
        raise InvalidArgument("held_out must hold at least one example, got none")
    return right / judged


def counted(
    model: nn.Module,
    dataset: Dataset[Any],
    *,
    correct: RowWise | None = None,
    collate: Collate | None = None,
) -> tuple[int, int]:
    """How many numbers of ``correct`` are true, and how many it gave: one for each row, or more."""
    judge = correct or default_correct
    right = judged = 0
    with _evaluating(model):
        for batch in _batches(model, dataset, collate):
            found = judge(model, batch)
            right += int(found.sum())
            judged += found.numel()
    return right, judged


def judges_rows(
    model: nn.Module, held_out: Dataset[Any], correct: RowWise, collate: Collate | None
) -> bool:
    """Whether ``correct`` gives one number for each row: tried with two, which are public."""
    few = _few(held_out)
    return counted(model, few, correct=correct, collate=collate)[1] == len(few)


def measured(
    model: nn.Module,
    dataset: Dataset[Any],
    metrics: Mapping[str, Metric],
    *,
    collate: Collate | None = None,
) -> dict[str, float | None]:
    """What each metric says of ``model`` on ``dataset``; None for what is not a finite number.

    As of ``accuracy``, ``dataset`` must be public or held out.
    """
    found: dict[str, float | None] = {}
    for name, metric in metrics.items():
        if not callable(metric):
            raise InvalidArgument(
                f"metrics[{name!r}] must be a function of model and batches, got {metric!r}"
            )
        with _evaluating(model):
            value = metric(model, _batches(model, dataset, collate))
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"metrics[{name!r}] must give a number, got a {type(value).__name__}"
            ) from None
        found[name] = number if math.isfinite(number) else None
    return found


def scores_classes(model: nn.Module, dataset: Dataset[Any], collate: Collate | None) -> bool:
    """Whether ``default_correct`` can judge: by two examples."""
    with _evaluating(model):
        batch = next(iter(_batches(model, _few(dataset), collate)))
        return _is_pair(batch) and _are_classes(model(batch[0]), batch[1])


def check_judge(
    model: nn.Module,
    held_out: Dataset[Any] | None,
    correct: RowWise | None,
    collate: Collate | None,
    metrics: Mapping[str, Metric],
) -> None:
    """Judges before training, so that an error there costs nothing.

    Two held-out examples do for accuracy. A metric sees all of them, for few may have none: of the
    area under a curve, say, if both are of one class.
    """
    for name in metrics:
        checked_metric_name(name)
    if held_out is None:
        if metrics:
            raise InvalidArgument(
                f"metrics need held_out= to be measured on, got {', '.join(metrics)} without it"
            )
        return
    state = random_state()
    try:
        if not metrics or correct is not None:
            accuracy(model, _few(held_out), correct=correct, collate=collate)
        measured(model, held_out, metrics, collate=collate)
    finally:
        set_random_state(state)


def _few(dataset: Dataset[Any]) -> Subset[Any]:
    return Subset(dataset, range(min(2, len(dataset))))  # type: ignore[arg-type]


def _batches(model: nn.Module, dataset: Dataset[Any], collate: Collate | None) -> Iterator[Any]:
    """All of ``dataset`` in its order, on the model's device."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    loader = make_loader(dataset, device, collate, workers=0, pin_memory=False)
    length = len(dataset)  # type: ignore[arg-type]  # a map-style data set has one
    every = np.arange(length, dtype=np.int64)
    parts = (every[start : start + _HELD_OUT_BATCH] for start in range(0, length, _HELD_OUT_BATCH))
    return iter(loader.batches(parts))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:  # each its own, for some may be frozen
            module.training = training


def _pair(batch: Any, argument: str) -> tuple[Any, Any]:
    if not _is_pair(batch):
        raise InvalidArgument(
            f"{argument} must be given when a batch is not a pair (x, y), "
            f"got a batch that is a {type(batch).__name__}: pass {argument}=f, for f(model, batch)"
        )
    return batch[0], batch[1]


def _scored(model: nn.Module, batch: Any, argument: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What the model makes of x, and y, where both are tensors."""
    x, y = _pair(batch, argument)
    if not isinstance(y, torch.Tensor):
        raise InvalidArgument(
            f"labels must be numbers of classes (0, 1, …), got a {type(y).__name__} for a batch of "
            f"them; number the classes in the data set, or pass {argument}=f, for f(model, batch)"
        )
    try:
        scores = model(x)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        _check_types(model, x, error)
        raise
    if not isinstance(scores, torch.Tensor):
        raise InvalidArgument(
            f"{argument} must be given for a model whose output is no tensor, got a "
            f"{type(scores).__name__}: pass {argument}=f, for f(model, batch)"
        )
    return scores, y


def _check_types(model: nn.Module, x: Any, error: RuntimeError) -> None:
    """Names the likely reason for an error: numbers of NumPy or pandas are of double precision."""
    kinds = {one.dtype for one in model.parameters() if one.is_floating_point()}
    if isinstance(x, torch.Tensor) and x.is_floating_point() and kinds and x.dtype not in kinds:
        own = " and ".join(sorted(map(str, kinds)))
        raise InvalidArgument(
            f"inputs must be of the model's type, {own}, got {x.dtype}, and the model answers: "
            f"{error}; convert the data, as by x.float(), or the model"
        ) from error


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, list | tuple) and len(batch) == 2


def _are_classes(scores: Any, labels: Any) -> bool:
    """Whether there is a score for each class, and a class for each row."""
    tensors = isinstance(scores, torch.Tensor) and isinstance(labels, torch.Tensor)
    return tensors and scores.ndim == 2 and scores.shape[1] >= 2 and not labels.is_floating_point()


def check_held_out(dataset: Dataset[Any], held_out: Dataset[Any] | None) -> None:
    """Refuses held-out data that share examples with the private ones."""
    remedy = "accuracy on it would give the private data away: hold other examples out"
    if held_out is None:
        return
    if isinstance(held_out, DataLoader):
        raise InvalidArgument(
            "held_out is a DataLoader; pass loader.dataset, and collate=loader.collate_fn if there "
            "is one"
        )
    if held_out is dataset:
        raise InvalidArgument(f"held_out must not be the private data set itself; {remedy}")
    if _selected(held_out, dataset) or _overlap(held_out, dataset):
        raise InvalidArgument(f"held_out must not share examples with the private data; {remedy}")


def _selected(one: object, other: object) -> bool:
    """Whether ``Subset`` and ``ConcatDataset`` take the same row for both."""
    if not (isinstance(one, Sized) and isinstance(other, Sized)):
        return False  # which is refused elsewhere
    ours, theirs = keys_of(one, other)
    return len(np.intersect1d(ours, theirs)) > 0


def _overlap(one: object, other: object) -> bool:
    """Whether two data sets hold the same rows, as far as memory tells: not where they are copies.

    Of tensors that skip rows, such as ``x[::2]``, only the first is looked at.
    """
    if isinstance(one, list) and isinstance(other, list):
        known = {id(row) for row in one if isinstance(row, (Mapping, tuple, list, torch.Tensor))}
        return any(id(row) in known for row in other)
    if not (isinstance(one, TensorDataset) and isinstance(other, TensorDataset)):
        return False
    (first, *_), (second, *_) = one.tensors, other.tensors
    if first.device != second.device or 0 in (first.numel(), second.numel()):
        return False
    lower, upper = sorted((first, second), key=torch.Tensor.data_ptr)
    if not (lower.is_contiguous() and upper.is_contiguous()):
        return lower.data_ptr() == upper.data_ptr()
    return lower.data_ptr() + lower.nbytes > upper.data_ptr()
