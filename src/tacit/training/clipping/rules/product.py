"""Bare matrix products: x @ w, w @ x, matrix times vector, and bilinear maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.training.clipping.forms import Dense, Form, Outer
from tacit.training.clipping.rules.common import as_computed, detached, reduced, wide
from tacit.training.clipping.rules.linear import row_sum
from tacit.training.clipping.uses import Gradient, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recording import Recorder
    from tacit.training.clipping.uses import Record


def matmul(recorder: Recorder, input: Tensor, other: Tensor) -> Any:
    """x @ w with w a matrix or a vector, and w @ x with w a matrix."""
    if recorder.is_weight(input) and recorder.is_weight(other):
        return NotImplemented
    if recorder.is_weight(other) and other.ndim <= 2 and input.ndim >= 2:
        x = as_computed(input)
        result = torch.matmul(x, other.detach())
        return recorder.use(RIGHT if other.ndim == 2 else VECTOR, (other,), (x,), None, result)
    if recorder.is_weight(other) and other.ndim > 2 and input.ndim >= other.ndim:
        x = as_computed(input)
        return recorder.use(STACKED, (other,), (x,), None, torch.matmul(x, other.detach()))
    if recorder.is_weight(input) and input.ndim == 2 and other.ndim >= 2:
        x = as_computed(other)
        return recorder.use(LEFT, (input,), (x,), None, torch.matmul(input.detach(), x))
    return NotImplemented


def reversed_matmul(recorder: Recorder, input: Tensor, other: Tensor) -> Any:
    """``other @ input``, as ``Tensor.__rmatmul__`` has it."""
    return matmul(recorder, other, input)


def bilinear(
    recorder: Recorder, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Any:
    """x₁ᵀ W_k x₂ + b_k."""
    if recorder.is_weight(input1) or recorder.is_weight(input2):
        return NotImplemented
    result = F.bilinear(input1, input2, weight.detach(), detached(bias))
    return recorder.use(BILINEAR, (weight, bias), (input1, input2), None, result)


def _right(of: Gradient) -> tuple[Form | None, ...]:
    (shape,) = of.shapes
    assert shape is not None
    x, grad = of.rows.terms(of.saved[0]), of.rows.terms(of.grad)
    return (Outer(x.to(grad.dtype), grad, shape),)


def _vector(of: Gradient) -> tuple[Form | None, ...]:
    x, grad = of.rows.terms(of.saved[0]), of.rows.terms(of.grad.unsqueeze(-1))
    return (Dense((wide(x) * wide(grad)).sum(1)),)


def _left(of: Gradient) -> tuple[Form | None, ...]:
    """(p, q) @ (…, q, columns): every column is a term."""
    (shape,) = of.shapes
    assert shape is not None
    x, grad = of.saved[0].to(of.grad.dtype), of.grad
    if of.grad.ndim == 2 and of.rows.count == 1:  # all columns belong to the only row
        return (Outer(grad.mT.unsqueeze(0), x.mT.unsqueeze(0), shape),)
    if of.grad.ndim == 2:  # the columns are the rows of the batch: dimension 1 is theirs
        return (Outer(of.rows.terms(grad), of.rows.terms(x), shape),)
    return (Outer(of.rows.terms(grad.mT), of.rows.terms(x.mT), shape),)


def _stacked(of: Gradient) -> tuple[Form | None, ...]:
    """x @ w with a stack of matrices (one a head, say): x.mT @ gradient, added up over the rest."""
    return reduced(of, wide(of.saved[0]).mT @ wide(of.grad))


def _bilinear(of: Gradient) -> tuple[Form | None, ...]:
    grad = of.rows.terms(of.grad)
    first, second = (of.rows.terms(one).to(grad.dtype) for one in of.saved)
    weight, bias = of.shapes
    pairs = (first.unsqueeze(-1) * second.unsqueeze(-2)).flatten(2)
    return (
        None if weight is None else Outer(grad, pairs, weight),
        None if bias is None else Dense(row_sum(grad)),
    )


RIGHT = Rule("matmul", _right)
STACKED = Rule("matmul", _stacked)
VECTOR = Rule("matmul", _vector)
LEFT = Rule("matmul", _left)
BILINEAR = Rule("bilinear", _bilinear)
_T = torch.Tensor
RECORDS: dict[Callable[..., Any], Record] = {
    torch.matmul: matmul, _T.matmul: matmul, _T.__matmul__: matmul, torch.mm: matmul,
    _T.mm: matmul, torch.mv: matmul, _T.mv: matmul, _T.__rmatmul__: reversed_matmul,
    F.bilinear: bilinear,
}  # fmt: skip
