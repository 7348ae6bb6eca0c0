"""Convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.training.clipping.forms import Convolution, Dense, Form
from tacit.training.clipping.recorder import (
    Gradient,
    Rule,
    as_computed,
    channels_last,
    detached,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recorder import Record, Recorder

Sizes = int | tuple[int, ...]


def _record(function: Callable[..., Tensor], dimensions: int) -> Record:
    def convolution(
        recorder: Recorder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Any:
        if recorder.is_weight(input) or input.ndim != dimensions + 2:
            return NotImplemented
        steps, spread = _sizes(stride, dimensions), _sizes(dilation, dimensions)
        x, pads = _padded(as_computed(input), padding, tuple(weight.shape[2:]), spread)
        if channels_last(weight):  # as the convolution would lay it, for itself alone
            x = x.contiguous(memory_format=torch.channels_last)
        result = function(x, weight.detach(), detached(bias), steps, pads, spread, groups)
        settings = (steps, pads, spread, groups)
        return recorder.use(CONVOLUTION, (weight, bias), (x,), settings, result)

    return convolution


def _record_transposed(function: Callable[..., Tensor], dimensions: int) -> Record:
    def transposed(
        recorder: Recorder,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Any:
        if recorder.is_weight(input) or input.ndim != dimensions + 2:
            return NotImplemented
        x = as_computed(input)
        result = function(
            x, weight.detach(), detached(bias), stride, padding, output_padding, groups, dilation
        )
        sizes = tuple(_sizes(one, dimensions) for one in (stride, padding, dilation))
        return recorder.use(TRANSPOSED, (weight, bias), (x,), (*sizes, groups), result)

    return transposed


def _sizes(value: Sizes, dimensions: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * dimensions
    sizes = tuple(value)
    return sizes * dimensions if len(sizes) == 1 else sizes


def _padded(
    x: Tensor, padding: Sizes | str, kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...]]:
    """Padding "same" may differ at the two ends, so it is done beforehand."""
    if not isinstance(padding, str):
        return x, _sizes(padding, len(kernel))
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        pads = [side for t in reversed(totals) for side in (t // 2, t - t // 2)]
        x = F.pad(x, pads)
    return x, (0,) * len(kernel)


def _bias(of: Gradient) -> Form | None:
    if of.shapes[1] is None:
        return None
    split = of.rows.split(of.grad)  # (units, entries, channels, *space)
    others = tuple(axis for axis in range(split.ndim) if axis not in (0, 2))
    wide = torch.float64 if split.dtype == torch.float64 else torch.float32
    return Dense(split.sum(others, dtype=wide))


def _gradients(of: Gradient) -> tuple[Form | None, ...]:
    stride, padding, dilation, groups = of.settings
    image, grad = of.rows.split(of.saved[0]), of.rows.split(of.grad)
    kernel = None
    if of.shapes[0] is not None:
        kernel = Convolution(image, grad, of.shapes[0], stride, padding, dilation, groups)
    return kernel, _bias(of)


def _transposed_gradients(of: Gradient) -> tuple[Form | None, ...]:
    """The transposed map's result plays the image, and its input the output gradient."""
    stride, padding, dilation, groups = of.settings
    image, grad = of.rows.split(of.grad), of.rows.split(of.saved[0]).to(of.grad.dtype)
    kernel = None
    if of.shapes[0] is not None:
        kernel = Convolution(image, grad, of.shapes[0], stride, padding, dilation, groups)
    return kernel, _bias(of)


CONVOLUTION = Rule("conv", _gradients)
TRANSPOSED = Rule("conv_transpose", _transposed_gradients)
RECORDS: dict[Callable[..., Any], Record] = {
    F.conv1d: _record(F.conv1d, 1),
    F.conv2d: _record(F.conv2d, 2),
    F.conv3d: _record(F.conv3d, 3),
    F.conv_transpose1d: _record_transposed(F.conv_transpose1d, 1),
    F.conv_transpose2d: _record_transposed(F.conv_transpose2d, 2),
    F.conv_transpose3d: _record_transposed(F.conv_transpose3d, 3),
}
