"""Norms within one example: the affine part's gradients are sums of (normalised) · (gradient)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

import torch
import torch.nn.functional as F

from tacit.errors import UnsupportedModel
from tacit.training.clipping.forms import Dense, Form
from tacit.training.clipping.forms.matrix import CACHED, accumulator, for_kernels, in_parts
from tacit.training.clipping.recorder import Gradient, Rule, detached, rows_first, wide

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recorder import Record, Recorder

_WIDEST = 8192  # what is normalised together, if one program of a kernel is to hold it,
_MOST_CHANNELS = 1024  # or the channels of a group, a few pixels at a time


def layer_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Normalises the last dimensions."""
    if recorder.is_weight(input):
        return NotImplemented
    shape = tuple(normalized_shape)
    result = F.layer_norm(input, shape, detached(weight), detached(bias), eps)
    return recorder.use(LAYER_NORM, (weight, bias), (input,), (shape, eps), result)


def rms_norm(
    recorder: Recorder,
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:
    """Divides the last dimensions by their root mean square."""
    if recorder.is_weight(input):
        return NotImplemented
    shape = tuple(normalized_shape)
    result = F.rms_norm(input, shape, detached(weight), eps)
    return recorder.use(RMS_NORM, (weight,), (input,), (shape, eps), result)


def group_norm(
    recorder: Recorder,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Normalises groups of channels.

    The tap is a row of weights and biases for each entry of the first dimension. Their gradients
    are added up as the backward pass goes by, so that neither the input nor the result's gradient
    is kept for them: both are as large as the activation.
    """
    if recorder.is_weight(input):
        return NotImplemented
    result = F.group_norm(input, num_groups, detached(weight), detached(bias), eps)
    kind = accumulator(result.dtype)
    none = torch.zeros(len(input), 2, input.shape[1], dtype=kind, device=input.device)
    rows = recorder.use(GROUP_NORM, (weight, bias), (), None, none)
    added = _ByEntry.apply(rows, input.detach(), result.detach(), num_groups, eps)  # type: ignore[no-untyped-call]
    return result + added if torch.compiler.is_compiling() else result.add_(added)


def instance_norm(
    recorder: Recorder,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalises every channel of every example: a group norm with a group per channel."""
    del momentum
    if not use_input_stats:
        return batch_norm(recorder, input, running_mean, running_var, weight, bias, False, 0.0, eps)
    if running_mean is not None or running_var is not None:
        raise UnsupportedModel(
            "InstanceNorm with track_running_stats keeps statistics of private data; "
            "set track_running_stats=False or use tacit.training.fix(model)"
        )
    return group_norm(recorder, input, input.shape[1], weight, bias, eps)


def batch_norm(
    recorder: Recorder,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Batch norm with frozen statistics is an affine map; with a batch's own it mixes examples."""
    del momentum
    if training or running_mean is None or running_var is None:
        raise UnsupportedModel(
            "BatchNorm in training mode mixes examples; replace it, for instance by "
            "tacit.training.fix(model), or put it into eval mode"
        )
    result = F.batch_norm(
        input, running_mean, running_var, detached(weight), detached(bias), False, 0.0, eps
    )
    saved = (input, running_mean, running_var)
    return recorder.use(BATCH_NORM, (weight, bias), saved, eps, result)


def _last_dimensions(
    of: Gradient, kind: Literal["layer", "rms"], shape: tuple[int, ...], eps: float
) -> tuple[Form | None, ...]:
    """Of a norm of the last dimensions: Σ_t grad_t·x̂_t for its weight, Σ_t grad_t for its bias."""
    skip = of.grad.ndim - len(shape)
    x, grad = of.rows.terms(of.saved[0].flatten(skip)), of.rows.terms(of.grad.flatten(skip))
    if for_kernels(x, grad) and 0 < grad.shape[2] <= _WIDEST:
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        pairs = kernels.normalised_sums(x, grad, eps, kind)
        found = [Dense(values.unflatten(1, shape), squares) for values, squares in pairs]
        each = zip(of.shapes, found, strict=False)
        return tuple(None if slot is None else form for slot, form in each)
    normalise = F.layer_norm if kind == "layer" else F.rms_norm
    weighted = wide(grad) * normalise(wide(x), (x.shape[2],), eps=eps)
    values = zip(of.shapes, (weighted, grad), strict=False)
    return tuple(
        None if slot is None else Dense(_sum(one, 1).unflatten(1, shape)) for slot, one in values
    )


def _sum(values: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    return values.sum(dim, dtype=torch.float64 if values.dtype == torch.float64 else torch.float32)


def _layer_norm_gradients(of: Gradient) -> tuple[Form | None, ...]:
    shape, eps = of.settings
    return _last_dimensions(of, "layer", shape, eps)


def _rms_norm_gradients(of: Gradient) -> tuple[Form | None, ...]:
    shape, eps = of.settings
    small = torch.finfo(of.saved[0].dtype).eps if eps is None else eps
    return _last_dimensions(of, "rms", shape, small)


def _channels(of: Gradient, weighted: Tensor) -> tuple[Form | None, ...]:
    """From normalised · gradient. Channels lie in the dimension after the rows'."""
    rows_first(of, "a batch norm")
    forms: list[Form | None] = []
    for slot, values in zip(of.shapes, (weighted, of.grad), strict=True):
        if slot is None:
            forms.append(None)
            continue
        split = of.rows.split(values)  # (units, entries, channels, *space)
        others = tuple(axis for axis in range(split.ndim) if axis not in (0, 2))
        forms.append(Dense(_sum(split, others)))
    return tuple(forms)


@final
class _ByEntry(torch.autograd.Function):
    """Zeros in the shape of a group norm's result; their gradient is added up by entry and channel.

    The gradient of ``rows`` holds Σ grad·x̂ and Σ grad over the pixels of every channel.
    """

    @staticmethod
    def forward(rows: Tensor, x: Tensor, result: Tensor, groups: int, eps: float) -> Tensor:  # noqa: ARG004 - some are for the backward pass
        return result.new_zeros(()).expand(result.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        _, x, _, ctx.groups, ctx.eps = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (grad,) = gradients
        (x,) = ctx.saved_tensors
        both = torch.stack(_sums_by_entry(x, grad, ctx.groups, ctx.eps), 1)
        return both, None, None, None, None


def _sums_by_entry(x: Tensor, grad: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    """Σ grad·x̂ and Σ grad over the pixels of every channel: (entries, channels) each."""
    if torch.compiler.is_compiling():  # what the backward pass computes anyway is fused with it
        return _plain_sums(x, grad, groups, eps)
    if for_kernels(x, grad) and grad.numel() > 0 and x.shape[1] // groups <= _MOST_CHANNELS:
        from tacit.training.clipping import kernels  # noqa: PLC0415 - needs Triton

        (weights, _), (biases, _) = kernels.grouped_sums(_pixels(x), _pixels(grad), groups, eps)
        return weights, biases
    if x.device.type != "cpu":
        return _plain_sums(x, grad, groups, eps)
    parts = [(x[a:b], grad[a:b]) for a, b in in_parts(len(x), x[:1].numel(), CACHED)]
    sums = [_plain_sums(some, grads, groups, eps) for some, grads in parts]
    return torch.cat([one for one, _ in sums]), torch.cat([one for _, one in sums])


def _plain_sums(x: Tensor, grad: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    weighted = wide(grad) * F.group_norm(wide(x), groups, eps=eps)
    return _sum(weighted.unsqueeze(-1).flatten(2), 2), _sum(grad.unsqueeze(-1).flatten(2), 2)


def _group_norm_gradients(of: Gradient) -> tuple[Form | None, ...]:
    rows_first(of, "a group norm")
    split = of.rows.split(of.grad)  # (units, entries, weight and bias, channels)
    sums = split[:, 0] if split.shape[1] == 1 else split.sum(1)
    return tuple(None if slot is None else Dense(sums[:, at]) for at, slot in enumerate(of.shapes))


def _pixels(image: Tensor) -> Tensor:
    """(rows, channels, *space) as (rows, channels, pixels), a view wherever there can be one."""
    last: Tensor = image.unsqueeze(-1).movedim(1, -1)
    if not image.is_contiguous() and last.is_contiguous():
        return last.flatten(1, -2).mT
    return image.unsqueeze(-1).flatten(2).contiguous()


def _batch_norm_gradients(of: Gradient) -> tuple[Form | None, ...]:
    x, mean, variance = (wide(one) for one in of.saved)
    return _channels(of, wide(of.grad) * F.batch_norm(x, mean, variance, eps=of.settings))


LAYER_NORM = Rule("layer_norm", _layer_norm_gradients)
RMS_NORM = Rule("rms_norm", _rms_norm_gradients)
GROUP_NORM = Rule("group_norm", _group_norm_gradients)
BATCH_NORM = Rule("batch_norm", _batch_norm_gradients)
RECORDS: dict[Callable[..., Any], Record] = {
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.group_norm: group_norm,
    F.instance_norm: instance_norm,
    F.batch_norm: batch_norm,
}
