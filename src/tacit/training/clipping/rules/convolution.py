"""Convolutions and transposed convolutions in one, two and three dimensions.

A convolution by standardised filters has a rule of its own: to the recorder the filters are derived
from parameters, and what they were made of is noted with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.models.filters import OPERATION, standardisation
from tacit.training.clipping.forms import Convolution, Dense, Form, Projected
from tacit.training.clipping.recorder import (
    Gradient,
    Rule,
    channels_last,
    detached,
    rows_first,
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
        x, pads = _padded(recorder.as_computed(input), padding, tuple(weight.shape[2:]), spread)
        made = recorder.note_of(weight)
        if channels_last(weight if made is None else made[0]):  # as the convolution would lay it
            x = x.contiguous(memory_format=torch.channels_last)
        result = function(x, weight.detach(), detached(bias), steps, pads, spread, groups)
        settings = (steps, pads, spread, groups)
        if made is None:
            return recorder.use(CONVOLUTION, (weight, bias), (x,), settings, result)
        own, gain, *parts = made
        return recorder.use(STANDARDISED, (own, bias, gain), (x, *parts), settings, result)

    return convolution


def _standardised(recorder: Recorder, weight: Tensor, gain: Tensor | None, floor: float) -> Tensor:
    """Filters that a convolution's rule knows again; to any other operation a derived weight."""
    made = standardisation(weight, gain, floor)
    # Of weights that are small beside their mean, rounding leaves some of the mean at first.
    normal = made.normal.detach()
    normal = normal - normal.mean(tuple(range(1, normal.ndim)), keepdim=True)
    parts = (normal, made.rate.detach(), made.divided.detach())
    recorder.derive(made.filters, (weight, gain, *parts))
    return made.filters


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
        x = recorder.as_computed(input)
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
    rows_first(of, "a convolution")
    stride, padding, dilation, groups = of.settings
    image, grad = of.rows.split(of.saved[0]), of.rows.split(of.grad)
    kernel = None
    if of.shapes[0] is not None:
        kernel = Convolution(image, grad, of.shapes[0], stride, padding, dilation, groups)
    return kernel, _bias(of)


def _transposed_gradients(of: Gradient) -> tuple[Form | None, ...]:
    """The transposed map's result plays the image, and its input the output gradient."""
    rows_first(of, "a transposed convolution")
    stride, padding, dilation, groups = of.settings
    image, grad = of.rows.split(of.grad), of.rows.split(of.saved[0]).to(of.grad.dtype)
    kernel = None
    if of.shapes[0] is not None:
        kernel = Convolution(image, grad, of.shapes[0], stride, padding, dilation, groups)
    return kernel, _bias(of)


def _standardised_gradients(of: Gradient) -> tuple[Form | None, ...]:
    """The convolution's own gradients are those of the filters: see ``forms.Projected``."""
    rows_first(of, "a convolution")
    stride, padding, dilation, groups = of.settings
    image, normal, rate, divided = of.saved
    images, grad = of.rows.split(image), of.rows.split(of.grad)
    settings = (tuple(normal.shape), stride, padding, dilation, groups)
    form = Projected(Convolution(images, grad, *settings), normal, rate, divided)
    weight, _, gain = of.shapes
    gains = None if gain is None else Dense(form.along_filters().reshape(-1, *gain))
    return None if weight is None else form, _bias(of), gains


CONVOLUTION = Rule("conv", _gradients)
STANDARDISED = Rule("standardised conv", _standardised_gradients)
TRANSPOSED = Rule("conv_transpose", _transposed_gradients)
RECORDS: dict[Callable[..., Any], Record] = {
    F.conv1d: _record(F.conv1d, 1),
    F.conv2d: _record(F.conv2d, 2),
    F.conv3d: _record(F.conv3d, 3),
    F.conv_transpose1d: _record_transposed(F.conv_transpose1d, 1),
    F.conv_transpose2d: _record_transposed(F.conv_transpose2d, 2),
    F.conv_transpose3d: _record_transposed(F.conv_transpose3d, 3),
}
# Of weights alone.
DERIVED_RECORDS: dict[Callable[..., Any], Record] = {OPERATION: _standardised}
