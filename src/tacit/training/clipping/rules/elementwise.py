"""Bare parameters that meet data entry by entry: sums, differences, products, quotients, PReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.training.clipping.rules.common import reduced, wide
from tacit.training.clipping.uses import Gradient, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.forms import Form
    from tacit.training.clipping.recording import Recorder
    from tacit.training.clipping.uses import Record


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
    return reduced(of, wide(of.grad) * of.saved[0] * of.settings)


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
