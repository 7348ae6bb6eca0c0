"""Tables: F.embedding, F.embedding_bag, table[ids] and index_select."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.errors import UnsupportedModel
from tacit.training.clipping.forms import Form, OneHot
from tacit.training.clipping.recorder import Gradient, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recorder import Record, Recorder


def embedding(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table."""
    del norm_type, sparse
    _refuse(max_norm, scale_grad_by_freq)
    result = F.embedding(input, weight.detach())
    return recorder.use(EMBEDDING, (weight,), (input,), _row(padding_idx, weight), result)


def positions(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Constant ids, the same for every row: a weight. Positions 0, 1, 2, … make it a view."""
    del norm_type, sparse
    _refuse(max_norm, scale_grad_by_freq)
    if torch.compiler.is_compiling() or padding_idx is not None or not input.numel():
        return NotImplemented
    count, first = input.numel(), recorder.range_of(input)
    if first is None:
        ids = input.flatten()
        first = int(ids[0])
        if not torch.equal(ids, torch.arange(first, first + count, device=ids.device)):
            return NotImplemented
    rows = recorder.call(torch.Tensor.__getitem__, weight, slice(first, first + count))
    return recorder.call(torch.Tensor.view, rows, *input.shape, *weight.shape[1:])


def index(recorder: Recorder, table: Tensor, where: Any) -> Any:
    """table[ids]; slices and numbers make a derived weight instead."""
    if not isinstance(where, torch.Tensor) or where.dtype not in (torch.int64, torch.int32):
        return NotImplemented
    if recorder.is_weight(where) or not recorder.is_weight(table) or where.ndim == 0:
        return NotImplemented
    result = table.detach()[where]
    ids = where.remainder(table.shape[0])  # counted from the end, the same row has another number
    return recorder.use(EMBEDDING, (table,), (ids,), None, result)


def index_select(recorder: Recorder, input: Tensor, dim: int, index: Tensor) -> Any:
    """Rows of a table, by another name."""
    if dim != 0 or not recorder.is_weight(input):
        return NotImplemented
    result = torch.index_select(input.detach(), 0, index)
    return recorder.use(EMBEDDING, (input,), (index,), None, result)


def embedding_bag(
    recorder: Recorder,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Sums or means of rows of a table: looked up one by one here, then added up per bag."""
    del norm_type, sparse
    _refuse(max_norm, scale_grad_by_freq)
    if mode == "max" or recorder.is_weight(per_sample_weights):
        return NotImplemented
    ids, weights = input, per_sample_weights
    if ids.ndim == 1:
        if offsets is None:
            return NotImplemented
        ids, present = _padded_bags(input, offsets, include_last_offset)
        weights = present if weights is None else _pad_like(weights, present)
    rows = recorder.call(F.embedding, ids, weight, padding_idx)
    counted = torch.ones_like(ids, dtype=weight.dtype) if weights is None else weights
    if padding_idx is not None:
        counted = counted * (ids != _row(padding_idx, weight))
    if mode == "mean":
        counted = counted / counted.sum(1, keepdim=True).clamp(min=1)
    return (rows * counted.unsqueeze(-1)).sum(1)


def _padded_bags(ids: Tensor, offsets: Tensor, last: bool) -> tuple[Tensor, Tensor]:
    """Bags of a flat list as a rectangle of ids, with ones where an id is."""
    ends = offsets[1:] if last else torch.cat([offsets[1:], offsets.new_tensor([len(ids)])])
    starts = offsets[:-1] if last else offsets
    lengths = ends - starts
    longest = max(1, int(lengths.max())) if len(lengths) else 1
    column = torch.arange(longest, device=ids.device)
    present = column < lengths[:, None]
    flat = (starts[:, None] + column).clamp(max=max(0, len(ids) - 1))
    return torch.where(present, ids[flat], ids.new_zeros(())), present.to(torch.float32)


def _pad_like(weights: Tensor, present: Tensor) -> Tensor:
    padded = weights.new_zeros(present.shape)
    padded[present > 0] = weights
    return padded


def _row(index: int | None, table: Tensor) -> int | None:
    return None if index is None else index % table.shape[0]


def _refuse(max_norm: float | None, scale_grad_by_freq: bool) -> None:
    if max_norm is not None:
        raise UnsupportedModel("an embedding with max_norm changes its table; set max_norm=None")
    if scale_grad_by_freq:
        raise UnsupportedModel(
            "an embedding with scale_grad_by_freq mixes examples; set scale_grad_by_freq=False"
        )


def _gradients(of: Gradient) -> tuple[Form | None, ...]:
    (shape,) = of.shapes
    assert shape is not None
    extra = len(shape) - 1
    grad = of.grad.flatten(of.grad.ndim - extra) if extra else of.grad.unsqueeze(-1)
    ids, grads = of.rows.terms(of.saved[0].unsqueeze(-1))[..., 0], of.rows.terms(grad)
    if of.settings is not None:
        grads = torch.where((ids == of.settings).unsqueeze(-1), 0, grads)
    return (OneHot(ids.long(), grads, shape),)


EMBEDDING = Rule("embedding", _gradients)
RECORDS: dict[Callable[..., Any], Record] = {
    F.embedding: embedding,
    F.embedding_bag: embedding_bag,
    torch.Tensor.__getitem__: index,
    torch.index_select: index_select,
    torch.Tensor.index_select: index_select,
}
CONSTANT_RECORDS: dict[Callable[..., Any], Record] = {F.embedding: positions}
