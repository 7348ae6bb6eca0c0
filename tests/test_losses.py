"""Every loss against torch's own on one example at a time, and what each refuses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

from tacit import losses
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

ROWS, CLASSES, TOKENS = 5, 7, 6


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def scores(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(), dtype=dtype)


def classes(*shape: int, ignored: bool = False) -> torch.Tensor:
    labels = torch.randint(0, CLASSES, shape, generator=generator())
    if ignored:
        labels[1] = -100  # a row of nothing else
        labels[2].view(-1)[1:] = -100
    return labels


def one_text(logits: torch.Tensor, labels: torch.Tensor, reduction: str) -> torch.Tensor:
    if (labels == -100).all():  # torch's mean over no tokens is NaN
        return logits.new_zeros(())
    return functional.cross_entropy(logits[0], labels[0], reduction=reduction)


def one_dense(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if (labels == -100).all():
        return logits.new_zeros(())
    return functional.cross_entropy(logits, labels)


def log_scores(*shape: int) -> torch.Tensor:
    return scores(*shape).log_softmax(1)


CASES: dict[str, tuple[Loss, Loss, torch.Tensor, torch.Tensor]] = {
    "cross entropy": (
        losses.cross_entropy, functional.cross_entropy, scores(ROWS, CLASSES), classes(ROWS)),
    "cross entropy, smoothed": (
        partial(losses.cross_entropy, label_smoothing=0.1),
        partial(functional.cross_entropy, label_smoothing=0.1),
        scores(ROWS, CLASSES), classes(ROWS)),
    "cross entropy, dense": (
        losses.cross_entropy, one_dense,
        scores(ROWS, CLASSES, 3, 4), classes(ROWS, 3, 4, ignored=True)),
    "cross entropy, dense and smoothed": (
        partial(losses.cross_entropy, label_smoothing=0.2),
        partial(functional.cross_entropy, label_smoothing=0.2),
        scores(ROWS, CLASSES, 4), classes(ROWS, 4)),
    "nll": (losses.nll, functional.nll_loss, log_scores(ROWS, CLASSES), classes(ROWS)),
    "nll, dense": (
        losses.nll, functional.nll_loss, log_scores(ROWS, CLASSES, 3), classes(ROWS, 3)),
    "token mean": (
        losses.token_mean, partial(one_text, reduction="mean"),
        scores(ROWS, TOKENS, CLASSES), classes(ROWS, TOKENS, ignored=True)),
    "token sum": (
        losses.token_sum, partial(one_text, reduction="sum"),
        scores(ROWS, TOKENS, CLASSES), classes(ROWS, TOKENS, ignored=True)),
    "mse": (losses.mse, functional.mse_loss, scores(ROWS, 3, 2), torch.ones(ROWS, 3, 2)),
    "mse, one output": (losses.mse, functional.mse_loss, scores(ROWS), torch.ones(ROWS)),
    "l1": (losses.l1, functional.l1_loss, scores(ROWS, 3), torch.ones(ROWS, 3)),
    "huber": (
        partial(losses.huber, delta=0.5), partial(functional.huber_loss, delta=0.5),
        scores(ROWS, 3), torch.ones(ROWS, 3)),
    "bce": (
        losses.bce_with_logits, functional.binary_cross_entropy_with_logits,
        scores(ROWS, 4), (scores(ROWS, 4) > 0.3).double()),
    "bce, weighted": (
        partial(losses.bce_with_logits, positive_weight=3.0),
        partial(functional.binary_cross_entropy_with_logits,
                pos_weight=torch.tensor(3.0, dtype=torch.float64)),
        scores(ROWS), (scores(ROWS) > 0.3).double()),
}  # fmt: skip
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
Case = tuple["Loss", "Loss", torch.Tensor, torch.Tensor]


@cases
def test_each_row_has_the_loss_it_has_alone(case: Case) -> None:
    ours, theirs, outputs, targets = case
    got = ours(outputs, targets)
    expected = [theirs(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(outputs))]
    assert got.shape == (ROWS,)
    torch.testing.assert_close(got, torch.stack(expected), rtol=1e-12, atol=1e-12)


@cases
def test_a_row_has_a_gradient_into_itself_only(case: Case) -> None:
    ours, _, outputs, targets = case
    outputs = outputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(ours(outputs, targets)[0], outputs)
    assert gradient[0].any()
    assert not gradient[1:].any()


@cases
def test_a_row_of_nan_leaves_the_others_alone(case: Case) -> None:
    ours, _, outputs, targets = case
    spoilt = outputs.clone()
    spoilt[3] = torch.nan
    others = [0, 1, 2, 4]
    assert torch.equal(ours(spoilt, targets)[others], ours(outputs, targets)[others])


@cases
def test_no_rows_give_no_losses(case: Case) -> None:
    ours, _, outputs, targets = case
    assert ours(outputs[:0], targets[:0]).shape == (0,)


@cases
def test_half_precision_is_added_up_in_float32(case: Case) -> None:
    ours, _, outputs, targets = case
    targets = targets.bfloat16() if targets.is_floating_point() else targets
    got = ours(outputs.bfloat16(), targets)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), ours(outputs, targets.double().to(case[3].dtype)),
                               rtol=0.03, atol=0.03)  # fmt: skip


def test_narrow_integer_labels_are_taken() -> None:
    logits = scores(ROWS, CLASSES)
    expected = losses.cross_entropy(logits, classes(ROWS))
    assert torch.equal(losses.cross_entropy(logits, classes(ROWS).to(torch.int32)), expected)
    assert torch.equal(losses.cross_entropy(logits, classes(ROWS).to(torch.uint8)), expected)


def test_another_label_may_be_the_ignored_one() -> None:
    logits, labels = scores(2, 3, CLASSES), torch.tensor([[1, 0, 0], [0, 0, 0]])
    got = losses.token_sum(logits, labels, ignore_index=0)
    assert got[0] == pytest.approx(functional.cross_entropy(logits[0, 0], labels[0, 0]).item())
    assert got[1] == 0


def test_texts_of_no_tokens_have_no_loss() -> None:
    empty = losses.token_mean(torch.zeros(2, 0, CLASSES), torch.zeros(2, 0, dtype=torch.int64))
    assert empty.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: losses.cross_entropy(scores(5), classes(5)),
         r"logits must have the shape \(rows, classes\) .*got \(5,\)"),
        (lambda: losses.cross_entropy(scores(5, 7), classes(4)),
         r"labels must have the shape \(5,\) for logits of shape \(5, 7\), got \(4,\)"),
        (lambda: losses.cross_entropy(scores(5, 7), classes(5, 1)),
         r"labels must have the shape \(5,\).*got \(5, 1\); use labels\.squeeze"),
        (lambda: losses.cross_entropy(scores(5, 7), scores(5)),
         r"whole class numbers, got torch.float64: use labels.long\(\).*tacit.losses.mse"),
        (lambda: losses.cross_entropy(scores(5, 7), classes(5), label_smoothing=2),
         r"label_smoothing must lie between 0 and 1, got 2"),
        (lambda: losses.nll(scores(5, 7), classes(5, 2)),
         r"labels must have the shape \(5,\) for log_probabilities"),
        (lambda: losses.token_mean(scores(5, 7), classes(5)),
         r"logits must have the shape \(rows, tokens, vocabulary\), got \(5, 7\)"),
        (lambda: losses.token_sum(scores(5, 6, 7), classes(5, 7)),
         r"labels must have the shape \(5, 6\).*got \(5, 7\)"),
        (lambda: losses.mse(scores(5, 1), scores(5)),
         r"the shape of outputs, \(5, 1\), got \(5,\); use targets\.unsqueeze"),
        (lambda: losses.mse(torch.tensor(1.0), torch.tensor(1.0)),
         r"outputs must have one entry per row, got a single number"),
        (lambda: losses.l1(scores(5, 3), scores(5, 1)), r"targets must have the shape of outputs"),
        (lambda: losses.huber(scores(5), scores(5), delta=0.0), r"delta must be a positive"),
        (lambda: losses.bce_with_logits(scores(5), scores(5, 1)),
         r"targets must have the shape of logits, \(5,\), got \(5, 1\)"),
        (lambda: losses.bce_with_logits(scores(5), scores(5), positive_weight=-1.0),
         r"positive_weight must be a finite number, zero or above"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("loss", [losses.mse, losses.l1, losses.huber, losses.bce_with_logits])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool])
def test_targets_may_have_another_type(loss: Loss, dtype: torch.dtype) -> None:
    outputs = scores(ROWS, 3, dtype=torch.float32).requires_grad_()
    targets = (scores(ROWS, 3) > 0).to(dtype)
    got = loss(outputs, targets)
    (gradient,) = torch.autograd.grad(got.sum(), outputs)
    assert gradient.dtype == torch.float32
    torch.testing.assert_close(got.float(), loss(outputs, targets.float()))
