"""Small models of layers of every kind, and weights that are used in every way; each with a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tacit.models.networks import StandardisedConv2d

if TYPE_CHECKING:
    from collections.abc import Callable

Models: TypeAlias = dict[str, tuple[nn.Module, tuple[int, ...]]]  # with the shape of a row
ROWS, CLASSES = 8, 2


def uses() -> Models:
    """Weights that are used in every way but by a layer of their own."""
    return {**_bare_weights(), **_shared_weights()}


@final
class _Way(nn.Module):
    """Some weights, and one way to use them; then a layer of scores."""

    def __init__(self, way: Callable[[Any, Tensor], Tensor], width: int, **held: Any) -> None:
        super().__init__()
        self.way, self.head = way, nn.Linear(width, CLASSES)
        for name, one in held.items():
            setattr(self, name, one)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.tanh(self.way(self, x)))
        return scores.flatten(1, -2).mean(1) if scores.ndim > 2 else scores


@final
class _OwnKind(nn.Parameter):
    """A parameter of somebody's own class."""


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(0.5 + 0.2 * torch.randn(*shape))


def _frozen(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape), requires_grad=False)


def _normed(layer: nn.Module) -> nn.Module:
    """Of other lengths than at first, where a wrong gradient may have the right norm."""
    made: Any = nn.utils.parametrizations.weight_norm(layer)
    lengths = made.parametrizations.weight.original0
    lengths.data *= torch.linspace(0.4, 2.0, lengths.numel()).view_as(lengths)
    return layer


def _standardised(inputs: int, outputs: int) -> nn.Module:
    layer = StandardisedConv2d(inputs, outputs, 3, stride=1)
    layer.gain.data *= torch.linspace(0.4, 2.0, outputs)
    return layer


def _flat(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(CLASSES))


def layers() -> Models:
    """Layers of every kind, small and with one long dimension."""
    return {
        "linear": (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, CLASSES)), (4,)),
        "linear over time": (_flat(nn.Linear(4, 3)), (9, 4)),
        "normed": (_flat(_normed(nn.Linear(4, 3)), nn.LayerNorm(3), nn.PReLU()), (5, 4)),
        "convolution": (_flat(nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)), (2, 7, 6)),
        "dilated": (_flat(nn.Conv1d(2, 3, 2, dilation=2), nn.GroupNorm(1, 3)), (2, 9)),
        "normed convolution": (_flat(_normed(nn.Conv2d(2, 3, 3, padding=1))), (2, 6, 5)),
        "normed, wide": (_flat(_normed(nn.Conv2d(2, 5, 2, stride=2, groups=1))), (2, 12, 12)),
        "normed in groups": (_flat(_normed(nn.Conv1d(4, 4, 3, groups=2, dilation=2))), (4, 11)),
        "standardised": (_flat(_standardised(2, 3)), (2, 6, 5)),
        "standardised, deep": (_flat(_standardised(6, 8)), (6, 2, 2)),
        "transposed": (_flat(nn.ConvTranspose1d(2, 3, 3, stride=2)), (2, 5)),
        "normed, transposed": (_flat(_normed(nn.ConvTranspose2d(2, 3, 2, stride=2))), (2, 4, 3)),
        "volumes": (_flat(nn.Conv3d(1, 2, 2)), (1, 3, 4, 3)),
        "biases of fixed kernels": (_Way(_fixed_kernels, 3, fixed=_frozen(1, 1, 2),
                                         one=_weight(1), other=_weight(1)), (4,)),
        "kernels by hand": (_Way(_kernels, 4, one=_weight(1, 1, 3), other=_weight(1, 1, 3)), (4,)),
        "channels without a shift": (
            _Way(lambda m, x: F.group_norm(x, 2, m.gain).mean(2), 4, gain=_weight(4)), (4, 6)),
    }  # fmt: skip


def _fixed_kernels(model: Any, x: Tensor) -> Tensor:
    one = F.conv1d(x[:, None], model.fixed, model.one)
    other = F.conv_transpose1d(x[:, None], model.fixed, model.other)
    return one[:, 0] + other[:, 0, :3]


def _kernels(model: Any, x: Tensor) -> Tensor:
    one = F.conv1d(x[:, None], model.one, stride=1, padding=1, dilation=1)
    other = F.conv_transpose1d(x[:, None], model.other, stride=1, padding=1, dilation=1)
    return (one + other)[:, 0]


def _bare_weights() -> Models:
    """Weights in sums, quotients and products, from either side."""
    return {
        "one of its own kind": (
            _Way(lambda m, x: x * m.one, 4, one=_OwnKind(torch.rand(4))), (4,)),
        "taken from": (_Way(lambda m, x: torch.rsub(x, m.one), 4, one=_weight(4)), (4,)),
        "divided by rows": (
            _Way(lambda m, x: (x.square() + 1.0).__rtruediv__(m.one), 4, one=_weight(4)), (4,)),
        "columns": (_Way(lambda m, x: (m.one @ x.T).T, 3, one=_weight(3, 4)), (4,)),
        "columns from the right": (
            _Way(lambda m, x: x.T.__rmatmul__(m.one).T, 3, one=_weight(3, 4)), (4,)),
        "copies beside each other": (
            _Way(lambda m, x: m.one.repeat(len(x), 2) * x, 4, one=_weight(1, 2)), (4,)),
        "an expanded weight": (_Way(_joined, 3, start=_weight(1, 1, 3)), (4, 3)),
        "complex": (_Way(_turned, 4, one=_weight(2, 2)), (4,)),
    }  # fmt: skip


def _joined(model: Any, x: Tensor) -> Tensor:
    return torch.cat([model.start.expand(len(x), -1, -1), x], 1).prod(1)


def _turned(model: Any, x: Tensor) -> Tensor:
    """Pairs of numbers taken for complex ones."""
    turned = torch.view_as_complex(x.view(-1, 2, 2)) * torch.view_as_complex(model.one)
    return torch.view_as_real(turned).flatten(1)


def _shared_weights() -> Models:
    """Weights that are used more than once, in whole and in part, or again in the backward pass."""
    spread = nn.Parameter(torch.randn(8, 4)[::2])
    return {
        "whole and part": (_Way(_overlapping, 4, one=_weight(4, 4)), (4,)),
        "not packed": (_Way(_overlapping, 4, one=spread), (4,)),
        "a table and its start": (_Way(_table, 4, one=_weight(6, 4)), (5,)),
        "recomputed": (_Way(
            lambda m, x: checkpoint(lambda y: torch.tanh(m.one(y)), x, use_reentrant=False),
            3, one=nn.Linear(4, 3)), (4,)),
        "standardised, twice": (_Way(_twice, 60, one=_standardised(2, 2)), (2, 6, 5)),
        "standardised, deep, twice": (_Way(_twice, 24, one=_standardised(6, 6)), (6, 2, 2)),
        "used for nothing": (_Way(_in_vain, 3, one=nn.Linear(4, 3)), (4,)),
    }  # fmt: skip


def _overlapping(model: Any, x: Tensor) -> Tensor:
    return F.linear(x, model.one) + F.linear(x, model.one[:3]).sum(1, keepdim=True)


def _table(model: Any, x: Tensor) -> Tensor:
    ids = (3.0 * x.abs()).long().clamp(max=5)
    both = F.embedding(ids, model.one) + F.embedding(ids.clamp(max=2), model.one[:3])
    return both.mean(1)


def _twice(model: Any, x: Tensor) -> Tensor:
    found: Tensor = model.one(torch.tanh(model.one(x)))
    return found.flatten(1)


def _in_vain(model: Any, x: Tensor) -> Tensor:
    model.one(2.0 * x)
    found: Tensor = model.one(x)
    return found


def positions() -> Models:
    """As many positions as a batch has rows, looked up in several ways; and masks over them."""

    def by(ids: Callable[[Tensor], Tensor], row: tuple[int, ...] = (ROWS, 3)) -> Any:
        return _Way(lambda m, x: x + m.table(ids(x)), 3, table=nn.Embedding(17, 3)), row

    return {
        "positions": by(lambda _: torch.arange(ROWS)),
        "positions in a row": by(lambda _: torch.arange(ROWS)[None]),
        "positions of every row": by(lambda x: torch.arange(5).repeat(len(x), 1), (5, 3)),
        "as many positions as rows": by(
            lambda x: torch.arange(ROWS)[None].expand(ROWS, ROWS)[: len(x)]
        ),
        "relative positions": (_Way(_relative, 3, table=nn.Embedding(17, 3)), (ROWS, 3)),
        "masks": (_Way(_masked, 4, one=nn.MultiheadAttention(4, 2, batch_first=True)), (5, 4)),
        "masks by hand": (_Way(_masked_by_hand, 4, one=_weight(12, 4), two=_weight(12),
                               three=_weight(4, 4), four=_weight(4)), (5, 4)),
    }  # fmt: skip


def _relative(model: Any, x: Tensor) -> Tensor:
    places = torch.arange(ROWS)
    between: Tensor = model.table(places[None] - places[:, None] + ROWS).mean(1)
    return x + between


def _masked(model: Any, x: Tensor) -> Tensor:
    """Attention that leaves out what comes later, and would leave out what is no token."""
    none = torch.zeros(x.shape[:2], dtype=torch.bool)
    found: Tensor = model.one(x, x, x, attn_mask=_later(x), key_padding_mask=none)[0]
    return found


def _masked_by_hand(model: Any, x: Tensor) -> Tensor:
    """The same as a function, which is given masks of true and false."""
    turned, none = x.transpose(0, 1), torch.zeros(x.shape[:2], dtype=torch.bool)
    found: Tensor = F.multi_head_attention_forward(
        turned, turned, turned, 4, 2, model.one, model.two, None, None, False, 0.0, model.three,
        model.four, key_padding_mask=none, attn_mask=_later(x),
    )[0].transpose(0, 1)  # fmt: skip
    return found


def _later(x: Tensor) -> Tensor:
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
