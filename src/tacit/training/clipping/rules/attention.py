"""Multi-head attention, taken apart: its projections are linear maps, its core has no weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from tacit.training.clipping.rules.elementwise import as_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from tacit.training.clipping.recorder import Record, Recorder


def multi_head_attention_forward(
    recorder: Recorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """F.multi_head_attention_forward on (time, batch, width), as nn.MultiheadAttention calls it."""
    del embed_dim_to_check
    query, key, value = (as_data(recorder, one) for one in (query, key, value))
    if query.ndim != 3 or static_k is not None or static_v is not None:
        return NotImplemented
    if use_separate_proj_weight:
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        weights = recorder.call(torch.Tensor.chunk, in_proj_weight, 3)
    biases: Any = (None,) * 3
    if in_proj_bias is not None:
        biases = recorder.call(torch.Tensor.chunk, in_proj_bias, 3)
    q, k, v = (
        recorder.call(F.linear, x.transpose(0, 1), weight, bias)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    mask = _additive_mask(attn_mask, q, num_heads, k.shape[1], is_causal)
    padding = _additive(key_padding_mask, q)
    extra = int(bias_k is not None) + int(add_zero_attn)
    if bias_k is not None and bias_v is not None:
        k, v = (_with_token(recorder, one, token) for one, token in ((k, bias_k), (v, bias_v)))
    if add_zero_attn:
        k, v = (torch.cat([one, one.new_zeros(len(one), 1, one.shape[2])], 1) for one in (k, v))
    bias = _combined(mask, padding, extra)
    q, k, v = (one.unflatten(2, (num_heads, -1)).transpose(1, 2) for one in (q, k, v))
    rate = dropout_p if training else 0.0
    mixed, attention = _attend(q, k, v, bias, rate, need_weights)
    joined = mixed.transpose(1, 2).flatten(2)
    result = recorder.call(F.linear, joined, out_proj_weight, out_proj_bias).transpose(0, 1)
    if not need_weights or attention is None:
        return result, None
    return result, attention.mean(1) if average_attn_weights else attention


def scaled_dot_product_attention(
    recorder: Recorder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """A bias made from weights (relative positions) is repeated for every row: then it is data."""
    others = (query, key, value)
    if attn_mask is None or any(recorder.is_weight(one) for one in others):
        return NotImplemented
    scores = (*query.shape[:-1], key.shape[-2])
    bias = as_data(recorder, recorder.call(torch.Tensor.expand, attn_mask, scores))
    return F.scaled_dot_product_attention(query, key, value, bias, *args, **kwargs)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, rate: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    if not need_weights:
        return F.scaled_dot_product_attention(q, k, v, bias, rate), None
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    attention = (scores if bias is None else scores + bias).softmax(-1)
    attention = F.dropout(attention, rate) if rate > 0 else attention
    return attention @ v, attention


def _with_token(recorder: Recorder, sequence: Tensor, token: Tensor) -> Tensor:
    """``sequence`` (batch, time, width) with the (1, 1, width) ``token`` after its last entry."""
    zeros = sequence.new_zeros(len(sequence), 1, sequence.shape[2])
    last = recorder.call(torch.add, zeros, token)
    return torch.cat([sequence, last], 1)


def _additive(mask: Tensor | None, like: Tensor) -> Tensor | None:
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, float("-inf"))


def _additive_mask(
    mask: Tensor | None, like: Tensor, heads: int, keys: int, causal: bool
) -> Tensor | None:
    """The attention mask as numbers to add, for (batch, heads, queries, keys)."""
    if mask is None and causal:
        square = torch.ones(like.shape[1], keys, dtype=torch.bool, device=like.device)
        mask = square.triu(1)
    additive = _additive(mask, like)
    if additive is None or additive.ndim == 2:
        return additive
    by_head: Tensor = additive.unflatten(0, (-1, heads))
    return by_head


def _combined(mask: Tensor | None, padding: Tensor | None, extra: int) -> Tensor | None:
    if mask is not None and extra:
        mask = F.pad(mask, (0, extra))
    if padding is None:
        return mask
    padding = F.pad(padding, (0, extra))[:, None, None, :]
    return padding if mask is None else mask + padding


RECORDS: dict[Callable[..., Any], Record] = {
    F.multi_head_attention_forward: multi_head_attention_forward,
    F.scaled_dot_product_attention: scaled_dot_product_attention,
}
