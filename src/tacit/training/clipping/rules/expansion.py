"""A weight repeated for every row of the batch (a class token): from there on it is data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tacit.training.clipping.forms import Dense, Form
from tacit.training.clipping.rules.common import reduced
from tacit.training.clipping.uses import Gradient, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recording import Recorder
    from tacit.training.clipping.uses import Record


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


def _gradients(of: Gradient) -> tuple[Form | None, ...]:
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


EXPANDED = Rule("expand", _gradients)
_T = torch.Tensor
RECORDS: dict[Callable[..., Any], Record] = {
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
