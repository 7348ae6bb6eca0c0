"""Bare parameters that meet data entry by entry, or that are repeated for every row.

Sums, differences, products, quotients and PReLU; and a weight that is spread over the rows of a
batch (a class token), which is data from there on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.training.clipping.forms import Dense
from tacit.training.clipping.recorder import Gradient, Rule, reduced, wide

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.forms import Form
    from tacit.training.clipping.recorder import Record, Recorder


def add(recorder: Recorder, input: Any, other: Any, *, alpha: float = 1) -> Any:
    """x + w."""
    return _shifted(recorder, input, other, 1.0, float(alpha))


def subtract(recorder: Recorder, input: Any, other: Any, *, alpha: float = 1) -> Any:
    """x - w."""
    return _shifted(recorder, input, other, 1.0, -float(alpha))


def subtract_from(recorder: Recorder, input: Any, other: Any, *, alpha: float = 1) -> Any:
    """other - input."""
    return _shifted(recorder, other, input, 1.0, -float(alpha))


def multiply(recorder: Recorder, input: Any, other: Any) -> Any:
    """x · w."""
    weight, data = _one_weight(recorder, input, other)
    if weight is None:
        return NotImplemented
    result = weight.detach() * data
    return recorder.use(SCALED, (weight,), (data,), 1.0, result)


def divide(recorder: Recorder, input: Any, other: Any, *, rounding_mode: Any = None) -> Any:
    """x / w, or w / x."""
    weight, data = _one_weight(recorder, input, other)
    if weight is None or rounding_mode is not None:
        return NotImplemented
    if weight is input:
        inverse = data.reciprocal()
        return recorder.use(SCALED, (weight,), (inverse,), 1.0, weight.detach() * inverse)
    divisor = weight.detach()
    result = data / divisor
    return recorder.use(SCALED, (weight,), (result / divisor,), -1.0, result)


def divide_from(recorder: Recorder, input: Any, other: Any) -> Any:
    """other / input: what ``1 / x`` and ``x.__rtruediv__(w)`` call."""
    return divide(recorder, other, input)


def prelu(recorder: Recorder, input: Tensor, weight: Tensor) -> Any:
    """max(0, x) + w·min(0, x): a product with the negative part."""
    if recorder.is_weight(input):
        return NotImplemented
    shaped = weight
    if weight.numel() > 1 and input.ndim > 1:
        shaped = recorder.call(torch.Tensor.view, weight, -1, *[1] * (input.ndim - 2))
    return input.clamp(min=0) + multiply(recorder, shaped, input.clamp(max=0))


def _in_place(record: Record) -> Record:
    """The same, written into the first operand: aliases of it see the change, as they should."""

    def in_place(recorder: Recorder, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if recorder.is_weight(input):
            return NotImplemented
        result = record(recorder, input.clone(), *args, **kwargs)
        return result if result is NotImplemented else input.copy_(result)

    return in_place


def _one_weight(recorder: Recorder, left: Any, right: Any) -> tuple[Tensor | None, Any]:
    """(the weight, the data) of two operands, if one is each."""
    for weight, data in ((left, right), (right, left)):
        is_data = isinstance(data, torch.Tensor) and not recorder.is_weight(data)
        if recorder.is_weight(weight) and is_data and data.ndim > 0:
            plain = not (weight.is_complex() or data.is_complex())
            return (weight, data) if plain else (None, None)
    return None, None


def _shifted(recorder: Recorder, left: Any, right: Any, first: float, second: float) -> Any:
    weight, data = _one_weight(recorder, left, right)
    if weight is None:
        return NotImplemented
    own, others = (first, second) if weight is left else (second, first)
    result = own * weight.detach() + others * data if others != 1 else data + own * weight.detach()
    return recorder.use(SHIFTED, (weight,), (), own, result)


def _shifted_gradients(of: Gradient) -> tuple[Form | None, ...]:
    return reduced(of, of.grad * of.settings if of.settings != 1 else of.grad)


def _scaled_gradients(of: Gradient) -> tuple[Form | None, ...]:
    if of.settings == 1:
        return reduced(of, of.grad, of.saved[0])
    return reduced(of, wide(of.grad) * of.saved[0] * of.settings)


# ---- repeated for every row


def _record(function: Callable[..., Tensor]) -> Record:
    def expanded(recorder: Recorder, weight: Any, *args: Any, **kwargs: Any) -> Any:
        if not recorder.is_weight(weight):
            return NotImplemented
        result = function(weight.detach(), *args, **kwargs)
        if not _makes_rows(weight, result, recorder.rows):
            return NotImplemented
        return recorder.use(EXPANDED, (weight,), (), None, result.clone())

    return expanded


def as_data(recorder: Recorder, value: Any) -> Any:
    """A weight that enters a composite operation where data is due (a batch of one row)."""
    if not recorder.is_weight(value):
        return value
    return recorder.use(EXPANDED, (value,), (), None, value.detach().clone())


def concatenated(recorder: Recorder, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Weights joined to the only row there is; where there are more, a weight is expanded first."""
    if recorder.rows != 1:
        return NotImplemented
    return torch.cat([as_data(recorder, one) for one in tensors], *args, **kwargs)


def _makes_rows(weight: Tensor, result: Tensor, rows: int) -> bool:
    """Whether one of the first two dimensions is spread over the rows of the batch."""
    aligned = (1,) * (result.ndim - weight.ndim) + tuple(weight.shape)
    spread = [size for size, before in zip(result.shape[:2], aligned, strict=False) if before == 1]
    return rows > 1 and any(size > 1 and size % rows == 0 for size in spread)


def _expanded_gradients(of: Gradient) -> tuple[Form | None, ...]:
    (shape,) = of.shapes
    assert shape is not None
    if of.rows.count == 1:
        return reduced(of, of.grad)
    dim = of.rows.layout.dim
    aligned = (1,) * (of.grad.ndim - len(shape)) + shape
    rest = aligned[:dim] + aligned[dim + 1 :]
    split = of.rows.split(of.grad).sum(1)  # (units, *rest of the result)
    for axis, size in enumerate(rest, start=1):
        if split.shape[axis] != size:  # copies of the weight one after another
            split = split.unflatten(axis, (-1, size)).sum(axis)
    return (Dense(split.reshape(len(split), *shape)),)


SHIFTED = Rule("elementwise", _shifted_gradients)
SCALED = Rule("elementwise", _scaled_gradients)
_T = torch.Tensor
RECORDS: dict[Callable[..., Any], Record] = {
    torch.add: add, _T.add: add, _T.__add__: add, _T.__radd__: add,
    _T.__iadd__: _in_place(add), _T.add_: _in_place(add),
    torch.sub: subtract, _T.sub: subtract, _T.__sub__: subtract,
    _T.__isub__: _in_place(subtract), _T.sub_: _in_place(subtract),
    torch.subtract: subtract, _T.subtract: subtract,
    torch.rsub: subtract_from, _T.__rsub__: subtract_from,
    torch.mul: multiply, _T.mul: multiply, _T.__mul__: multiply, _T.__rmul__: multiply,
    torch.multiply: multiply, _T.multiply: multiply,
    _T.__imul__: _in_place(multiply), _T.mul_: _in_place(multiply),
    torch.div: divide, _T.div: divide, _T.__truediv__: divide,
    _T.__itruediv__: _in_place(divide), _T.div_: _in_place(divide),
    torch.divide: divide, torch.true_divide: divide, _T.__rtruediv__: divide_from,
    _T.__rdiv__: divide_from,
    F.prelu: prelu, torch.prelu: prelu, _T.prelu: prelu,
}  # fmt: skip
EXPANDED = Rule("expand", _expanded_gradients)
EXPANSION_RECORDS: dict[Callable[..., Any], Record] = {
    _T.expand: _record(_T.expand),
    _T.expand_as: _record(_T.expand_as),
    torch.broadcast_to: _record(torch.broadcast_to),
    _T.broadcast_to: _record(_T.broadcast_to),
    _T.repeat: _record(_T.repeat),
    torch.tile: _record(torch.tile),
    _T.tile: _record(_T.tile),
}
JOINING_RECORDS: dict[Callable[..., Any], Record] = {
    torch.cat: concatenated,
    torch.concat: concatenated,
}
