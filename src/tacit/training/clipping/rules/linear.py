"""Linear maps: F.linear, addmm, x @ w, w @ x, bilinear maps and einsum with one weight.

Their gradients are outer products of input and gradient wherever these split.
"""

from __future__ import annotations

import math
import string
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.training.clipping.forms import Dense, Form, Outer
from tacit.training.clipping.forms.matrix import for_kernels, squared_sum, summed
from tacit.training.clipping.recorder import Gradient, Rule, detached, reduced, wide

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recorder import Record, Recorder


# ---- x·Wᵀ + b


def linear(recorder: Recorder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """x ↦ x·Wᵀ + b with any leading dimensions."""
    if recorder.is_weight(input) or weight.ndim != 2:
        return NotImplemented
    x = recorder.as_computed(input)
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
    x = recorder.as_computed(mat1)
    result = torch.addmm(input.detach(), x, mat2.detach())
    return recorder.use(ADDMM, (mat2, input), (x,), None, result)


def _linear_gradients(of: Gradient) -> tuple[Form | None, ...]:
    x, grad = of.rows.terms(of.saved[0]), of.rows.terms(of.grad)
    weight, bias = of.shapes
    if weight is None or bias is None or grad.shape[1] != 1:
        return (
            None if weight is None else Outer(grad, x.to(grad.dtype), weight),
            None if bias is None else summed(grad),
        )
    if for_kernels(grad):
        return _both_gradients(grad, x.to(grad.dtype), weight)
    squares = squared_sum(grad)  # of the bias's gradient, which is the weight's left side
    return (
        Outer(grad, x.to(grad.dtype), weight, left_squares=squares),
        Dense(wide(grad[:, 0]), squares[None]),
    )


def _both_gradients(grad: Tensor, x: Tensor, weight: tuple[int, ...]) -> tuple[Form, Form]:
    """Those of a weight and its bias where each row has one term: one launch finds all norms."""
    from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

    product, left = kernels.product_and_left(grad, x)
    return Outer(grad, x, weight, squares=product), Dense(wide(grad[:, 0]), left)


def _addmm_gradients(of: Gradient) -> tuple[Form | None, ...]:
    x, grad = of.rows.terms(of.saved[0]), of.rows.terms(of.grad)
    weight, bias = of.shapes
    return (
        None if weight is None else Outer(x.to(grad.dtype), grad, weight),
        None if bias is None else summed(grad),
    )


# ---- bare products


def matmul(recorder: Recorder, input: Tensor, other: Tensor) -> Any:
    """x @ w with w a matrix or a vector, and w @ x with w a matrix."""
    if recorder.is_weight(input) and recorder.is_weight(other):
        return NotImplemented
    if recorder.is_weight(other) and other.ndim <= 2 and input.ndim >= 2:
        x = recorder.as_computed(input)
        result = torch.matmul(x, other.detach())
        return recorder.use(RIGHT if other.ndim == 2 else VECTOR, (other,), (x,), None, result)
    if recorder.is_weight(other) and other.ndim > 2 and input.ndim >= other.ndim:
        x = recorder.as_computed(input)
        return recorder.use(STACKED, (other,), (x,), None, torch.matmul(x, other.detach()))
    if recorder.is_weight(input) and input.ndim == 2 and other.ndim >= 2:
        x = recorder.as_computed(other)
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
    if of.grad.ndim == 2:  # the columns are the rows of the batch, which zeros alone do not show
        rows = replace(of.rows, layout=replace(of.rows.layout, dim=1))
        return (Outer(rows.terms(grad), rows.terms(x), shape),)
    rows, last = of.rows, of.grad.ndim - 1
    if rows.layout.dim == last:  # as in (time, channels, rows): turned, they come before the last
        rows = replace(rows, layout=replace(rows.layout, dim=last - 1))
    return (Outer(rows.terms(grad.mT), rows.terms(x.mT), shape),)


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
        None if bias is None else summed(grad),
    )


# ---- einsum


def einsum(recorder: Recorder, equation: Any, *operands: Any) -> Any:
    """One weight and any number of data tensors; the result's letters must be given."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    weights = [at for at, one in enumerate(operands) if recorder.is_weight(one)]
    if not isinstance(equation, str) or "->" not in equation or len(weights) != 1:
        return NotImplemented
    *terms, result_term = _spelt_out(equation, [one.ndim for one in operands])
    if any(len(set(term)) != len(term) for term in terms):
        return NotImplemented
    (at,) = weights
    data = [recorder.as_computed(one) for place, one in enumerate(operands) if place != at]
    data_terms = [term for place, term in enumerate(terms) if place != at]
    spelt = f"{','.join([*data_terms, terms[at]])}->{result_term}"
    result = torch.einsum(spelt, *data, operands[at].detach())
    settings = (tuple(data_terms), terms[at], result_term)
    return recorder.use(EINSUM, (operands[at],), tuple(data), settings, result)


def _spelt_out(equation: str, ndims: list[int]) -> list[str]:
    """The terms of the operands and of the result, with letters in place of every ellipsis."""
    operands, _, result = equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    lengths = [n - len(t) + 3 for n, t in zip(ndims, terms, strict=True) if "..." in t]
    longest = free[: max(lengths, default=0)]
    spelt = []
    for ndim, term in zip(ndims, terms, strict=True):
        own = longest[len(longest) - (ndim - len(term) + 3) :] if "..." in term else []
        spelt.append(term.replace("...", "".join(own)))
    return [*spelt, result.replace("...", "".join(longest))]


def _einsum_gradients(of: Gradient) -> tuple[Form | None, ...]:
    data_terms, weight_term, result_term = of.settings
    (shape,) = of.shapes
    assert shape is not None
    row = result_term[of.rows.layout.dim]
    if len(data_terms) > 1 or row not in data_terms[0]:
        return (_written(of, row),)
    (data_term,) = data_terms
    first = [letter for letter in weight_term if letter in data_term]
    second = [letter for letter in weight_term if letter not in data_term]
    shared = [one for one in data_term if one in result_term and one not in (*weight_term, row)]
    left_over = [one for one in data_term if one not in (*first, *shared, row)]
    splits = all(one not in result_term for one in first)
    if not splits or left_over or any(one not in result_term for one in second):
        return (_written(of, row),)
    left = _terms(of, of.saved[0].to(of.grad.dtype), data_term, row, shared, first)
    right = _terms(of, of.grad, result_term, row, shared, second)
    sizes = dict(zip(weight_term, shape, strict=True))
    outer_shape = tuple(sizes[letter] for letter in (*first, *second))
    order = tuple((*first, *second).index(letter) for letter in weight_term)
    return (Outer(left, right, outer_shape, order),)


def _terms(
    of: Gradient, tensor: Tensor, term: str, row: str, shared: list[str], own: list[str]
) -> Tensor:
    """``tensor`` as (units, terms, own letters flattened)."""
    ordered = torch.einsum(f"{term}->{''.join((row, *shared, *own))}", tensor)
    each = math.prod(ordered.shape[: 1 + len(shared)]) // of.rows.units
    return ordered.reshape(of.rows.units, each, math.prod(ordered.shape[1 + len(shared) :]))


def _written(of: Gradient, row: str) -> Form:
    """Every unit's gradient: the weight changes places with the result."""
    data_terms, weight_term, result_term = of.settings
    (shape,) = of.shapes
    assert shape is not None
    known = {row, *result_term, *"".join(data_terms)}
    present = [letter for letter in weight_term if letter in known]
    equation = f"{','.join([*data_terms, result_term])}->{row}{''.join(present)}"
    rows = torch.einsum(equation, *(wide(one) for one in of.saved), wide(of.grad))
    summed = rows.unflatten(0, (of.rows.units, -1)).sum(1)
    for axis, letter in enumerate(weight_term):  # a letter of the weight's alone is summed over
        if letter not in known:
            summed = summed.unsqueeze(axis + 1)
    return Dense(summed.expand(len(summed), *shape))


LINEAR = Rule("linear", _linear_gradients)
ADDMM = Rule("matmul", _addmm_gradients)
RIGHT = Rule("matmul", _right)
STACKED = Rule("matmul", _stacked)
VECTOR = Rule("matmul", _vector)
LEFT = Rule("matmul", _left)
BILINEAR = Rule("bilinear", _bilinear)
EINSUM = Rule("einsum", _einsum_gradients)
_T = torch.Tensor
RECORDS: dict[Callable[..., Any], Record] = {
    F.linear: linear, torch.addmm: addmm,
    torch.matmul: matmul, _T.matmul: matmul, _T.__matmul__: matmul, torch.mm: matmul,
    _T.mm: matmul, torch.mv: matmul, _T.mv: matmul, _T.__rmatmul__: reversed_matmul,
    F.bilinear: bilinear, torch.einsum: einsum,
}  # fmt: skip
