"""Losses with one number per row, as ``dp.backward`` takes them.

torch's own losses average over the batch, which mixes the examples; these never do. Each returns
shape (rows,), and what a row has several of (tokens, pixels, outputs) is averaged within the row.

Guarantee: entry i of every result depends on row i of the arguments and on nothing else, whatever
the other rows hold. Half-precision results are added up and returned in float32.

>>> import torch
>>> logits = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
>>> cross_entropy(logits, torch.tensor([0, 1]))
tensor([0.1269, 0.6931])
"""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

from tacit._validation import non_negative, positive, probability
from tacit.errors import InvalidArgument

__all__ = [
    "bce_with_logits",
    "cross_entropy",
    "huber",
    "l1",
    "mse",
    "nll",
    "token_mean",
    "token_sum",
]

IGNORED = -100  # torch's own mark of a label that does not count


def cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    ignore_index: int = IGNORED,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Cross entropy of each row; for dense labels the mean over the row's own positions.

    Args:
        logits: unnormalised scores, shape (rows, classes) or (rows, classes, positions…).
        labels: class numbers, shape (rows,) or (rows, positions…).
        ignore_index: a label that does not count; a row of only such labels has the loss 0.
        label_smoothing: how much of the target is spread evenly over all classes.

    >>> cross_entropy(torch.zeros(2, 4, 3), torch.zeros(2, 3, dtype=torch.int64))
    tensor([1.3863, 1.3863])
    """
    _check_classes("logits", logits, labels)
    smoothing = probability("label_smoothing", label_smoothing)
    losses = functional.cross_entropy(
        logits, labels.long(), reduction="none", ignore_index=ignore_index,
        label_smoothing=smoothing,
    )  # fmt: skip
    return _mean_where(losses, labels != ignore_index)


def nll(
    log_probabilities: torch.Tensor, labels: torch.Tensor, *, ignore_index: int = IGNORED
) -> torch.Tensor:
    """Negative log-likelihood of each row: ``cross_entropy`` of what is normalised already.

    Args:
        log_probabilities: shape (rows, classes) or (rows, classes, positions…).
        labels: class numbers, shape (rows,) or (rows, positions…).
        ignore_index: a label that does not count; a row of only such labels has the loss 0.

    >>> nll(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([1]))
    tensor([0.2877])
    """
    _check_classes("log_probabilities", log_probabilities, labels)
    losses = functional.nll_loss(
        log_probabilities, labels.long(), reduction="none", ignore_index=ignore_index
    )
    return _mean_where(losses, labels != ignore_index)


def token_mean(
    logits: torch.Tensor, labels: torch.Tensor, *, ignore_index: int = IGNORED
) -> torch.Tensor:
    """Cross entropy of each text: the mean over its own tokens that count.

    The labels are taken as they are: to predict the next token, pass ``logits[:, :-1]`` and
    ``labels[:, 1:]``.

    Args:
        logits: shape (rows, tokens, vocabulary).
        labels: token numbers, shape (rows, tokens).
        ignore_index: the label of padding; a row of nothing else has the loss 0.

    >>> logits = torch.zeros(2, 3, 8)
    >>> token_mean(logits, torch.tensor([[1, 2, 3], [4, -100, -100]]))
    tensor([2.0794, 2.0794])
    """
    return _mean_where(_token_losses(logits, labels, ignore_index), labels != ignore_index)


def token_sum(
    logits: torch.Tensor, labels: torch.Tensor, *, ignore_index: int = IGNORED
) -> torch.Tensor:
    """Cross entropy of each text, added up over its own tokens: minus its log-likelihood.

    Args:
        logits: shape (rows, tokens, vocabulary).
        labels: token numbers, shape (rows, tokens).
        ignore_index: the label of padding; a row of nothing else has the loss 0.

    >>> token_sum(torch.zeros(2, 3, 8), torch.tensor([[1, 2, 3], [4, -100, -100]]))
    tensor([6.2383, 2.0794])
    """
    return _row_sum(_token_losses(logits, labels, ignore_index))


def mse(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Squared error of each row, the mean over its outputs.

    >>> mse(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.zeros(2, 2))
    tensor([5., 0.])
    """
    outputs, targets = _alike("outputs", outputs, targets)
    return _row_mean(functional.mse_loss(outputs, targets, reduction="none"))


def l1(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Absolute error of each row, the mean over its outputs.

    >>> l1(torch.tensor([[1.0, -3.0]]), torch.zeros(1, 2))
    tensor([2.])
    """
    outputs, targets = _alike("outputs", outputs, targets)
    return _row_mean(functional.l1_loss(outputs, targets, reduction="none"))


def huber(outputs: torch.Tensor, targets: torch.Tensor, *, delta: float = 1.0) -> torch.Tensor:
    """Huber's loss of each row (squared up to ``delta``, linear beyond), the mean over outputs.

    >>> huber(torch.tensor([0.5, 3.0]), torch.zeros(2))
    tensor([0.1250, 2.5000])
    """
    outputs, targets = _alike("outputs", outputs, targets)
    losses = functional.huber_loss(
        outputs, targets, reduction="none", delta=positive("delta", delta)
    )
    return _row_mean(losses)


def bce_with_logits(
    logits: torch.Tensor, targets: torch.Tensor, *, positive_weight: float = 1.0
) -> torch.Tensor:
    """Binary cross entropy of each row, the mean over its labels.

    Args:
        logits: scores of shape (rows,) or (rows, labels…).
        targets: 0, 1 or a probability, of the same shape.
        positive_weight: how many times a positive label counts. It is public: computing it from
            the private labels is a release of its own.

    >>> bce_with_logits(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor([0.6931, 0.6931])
    """
    logits, targets = _alike("logits", logits, targets)
    weight = logits.new_tensor(non_negative("positive_weight", positive_weight))
    losses = functional.binary_cross_entropy_with_logits(
        logits, targets, reduction="none", pos_weight=weight
    )
    return _row_mean(losses)


def _token_losses(logits: torch.Tensor, labels: torch.Tensor, ignore_index: int) -> torch.Tensor:
    if logits.ndim != 3:
        raise InvalidArgument(
            f"logits must have the shape (rows, tokens, vocabulary), got {tuple(logits.shape)}"
        )
    _check_labels("logits", logits, labels, expected=tuple(logits.shape[:2]))
    # Flat rows of the vocabulary: the class dimension stays last, and nothing is transposed.
    losses = functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten().long(), reduction="none", ignore_index=ignore_index
    )
    return losses.view(labels.shape)


def _mean_where(losses: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """The mean over a row's counted positions; the others are 0 in ``losses`` already."""
    return _row_sum(losses) / _row_sum(counted).clamp(min=1)


def _row_mean(losses: torch.Tensor) -> torch.Tensor:
    per_row = losses[0].numel() if len(losses) else 1
    return _row_sum(losses) / max(per_row, 1)


def _row_sum(values: torch.Tensor) -> torch.Tensor:
    dtype = None if values.dtype == torch.float64 else torch.float32
    return values.flatten(1).sum(1, dtype=dtype) if values.ndim > 1 else values.to(dtype)


def _check_classes(
    name: Literal["logits", "log_probabilities"], scores: torch.Tensor, labels: torch.Tensor
) -> None:
    if scores.ndim < 2:
        raise InvalidArgument(
            f"{name} must have the shape (rows, classes) or (rows, classes, positions…), "
            f"got {tuple(scores.shape)}"
        )
    _check_labels(name, scores, labels, expected=(scores.shape[0], *scores.shape[2:]))


def _check_labels(
    name: str, scores: torch.Tensor, labels: torch.Tensor, *, expected: tuple[int, ...]
) -> None:
    if tuple(labels.shape) != expected:
        raise InvalidArgument(
            f"labels must have the shape {expected} for {name} of shape {tuple(scores.shape)}, "
            f"got {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InvalidArgument(f"labels must be whole class numbers, got {labels.dtype}")


def _alike(
    name: str, outputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in the wider of their types, if they have one shape."""
    if outputs.ndim < 1:
        raise InvalidArgument(f"{name} must have one entry per row, got a single number")
    if outputs.shape != targets.shape:
        # torch would broadcast (rows, 1) against (rows,) into (rows, rows) and mix the examples.
        raise InvalidArgument(
            f"targets must have the shape of {name}, {tuple(outputs.shape)}, "
            f"got {tuple(targets.shape)}"
        )
    dtype = torch.promote_types(outputs.dtype, targets.dtype)
    return outputs.to(dtype), targets.to(dtype)
