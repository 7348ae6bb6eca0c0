"""F.linear, and addmm as Hugging Face's Conv1D uses it: outer products of input and gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.training.clipping.forms import Dense, Form, Outer
from tacit.training.clipping.rules.common import as_computed, detached
from tacit.training.clipping.uses import Gradient, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recording import Recorder
    from tacit.training.clipping.uses import Record


def linear(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """x ↦ x·Wᵀ + b with any leading dimensions."""
    if recorder.is_weight(input) or weight.ndim != 2:
        return NotImplemented
    x = as_computed(input)
    result = F.linear(x, weight.detach(), detached(bias))
    return recorder.use(LINEAR, (weight, bias), (x,), None, result)


def addmm(
    recorder: Recorder,
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Any:
    """b + x·W."""
    if recorder.is_weight(mat1) or beta != 1 or alpha != 1 or input.ndim != 1:
        return NotImplemented
    x = as_computed(mat1)
    result = torch.addmm(input.detach(), x, mat2.detach())
    return recorder.use(ADDMM, (mat2, input), (x,), None, result)


def _linear_gradients(of: Gradient) -> tuple[Form | None, ...]:
    x, grad = of.rows.terms(of.saved[0]), of.rows.terms(of.grad)
    weight, bias = of.shapes
    return (
        None if weight is None else Outer(grad, x.to(grad.dtype), weight),
        None if bias is None else Dense(row_sum(grad)),
    )


def _addmm_gradients(of: Gradient) -> tuple[Form | None, ...]:
    x, grad = of.rows.terms(of.saved[0]), of.rows.terms(of.grad)
    weight, bias = of.shapes
    return (
        None if weight is None else Outer(x.to(grad.dtype), grad, weight),
        None if bias is None else Dense(row_sum(grad)),
    )


def row_sum(grad: Tensor) -> Tensor:
    """Σ_t of (units, terms, d), in at least single precision."""
    wide = grad.dtype if grad.dtype == torch.float64 else torch.float32
    return grad[:, 0].to(wide) if grad.shape[1] == 1 else grad.sum(1, dtype=wide)


LINEAR = Rule("linear", _linear_gradients)
ADDMM = Rule("matmul", _addmm_gradients)
RECORDS: dict[Callable[..., Any], Record] = {F.linear: linear, torch.addmm: addmm}
