"""The small networks of the table that are more than one layer of PyTorch's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable


class Bare(nn.Module):
    """A function of one input and of parameters that belong to no layer."""

    def __init__(self, function: Callable[..., Tensor], **shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


class Through(nn.Module):
    """Layers, and how they are put together."""

    def __init__(self, function: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


# --- layers of PyTorch with more than one input or output


class Attention(nn.Module):
    """MultiheadAttention that takes and gives rows first, whatever the layer's own order is."""

    def __init__(self, *, need_weights: bool = False, **options: object) -> None:
        super().__init__()
        self.need_weights = need_weights
        self.layer = nn.MultiheadAttention(8, 2, **options)  # type: ignore[arg-type]

    def forward(self, query: Tensor, other: Tensor | None = None, hidden: Tensor | None = None,
                value: Tensor | None = None) -> Tensor:  # fmt: skip
        key = query if other is None else other
        value = key if value is None else value
        if not self.layer.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        out, _ = self.layer(
            query, key, value, key_padding_mask=hidden, need_weights=self.need_weights
        )
        return out if self.layer.batch_first else out.transpose(0, 1)


class TimeMajor(nn.Module):
    """A module that wants (time, rows, width), given rows first."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(*(x.transpose(0, 1) for x in inputs)).transpose(0, 1)


class Recurrent(nn.Module):
    """A recurrent layer whose outputs and last states both reach the loss, or the states alone."""

    def __init__(self, layer: nn.RNNBase, *, states_only: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.states_only = states_only

    def forward(self, x: Tensor) -> Tensor:
        rows_first = self.layer.batch_first
        out, states = self.layer(x if rows_first else x.transpose(0, 1))
        out = out if rows_first else out.transpose(0, 1)
        states = states if isinstance(states, tuple) else (states,)
        parts = [state.transpose(0, 1).flatten(1) for state in states]
        return torch.cat(parts if self.states_only else [out.flatten(1), *parts], dim=1)


class PackedLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        return self.layer(packed)[1][0][-1]


class LearnedStart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, 1, 4))
        self.layer = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, self.start.expand(1, len(x), 4).contiguous())[0]


class CellLoop(nn.Module):
    """A recurrent cell called once per time step."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state: Tensor | tuple[Tensor, Tensor] | None = None
        for part in x.unbind(1):
            state = self.cell(part, state)
        assert state is not None
        return torch.cat(state, dim=1) if isinstance(state, tuple) else state


class RaggedBag(nn.Module):
    """EmbeddingBag on one flat list of ids with offsets: rows of different lengths."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.layer = nn.EmbeddingBag(7, 3, mode=mode)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        kept = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        return self.layer(ids[kept], lengths.cumsum(0) - lengths)


class HuggingFaceConv1D(nn.Module):
    """The layer of GPT-2 in transformers.pytorch_utils: weight (in, out), all rows in one addmm."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf) / nx**0.5)
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        size_out = (*x.size()[:-1], self.nf)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(size_out)


def evaluated_batch_norm() -> nn.Module:
    """A network whose BatchNorm keeps its statistics: trainable scale and shift only."""
    norm = nn.BatchNorm2d(3)
    with torch.no_grad():
        norm.running_mean.normal_()  # type: ignore[union-attr]
        norm.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return nn.Sequential(nn.Conv2d(2, 3, 3), norm.eval(), nn.Tanh())


# --- tied, reused and derived weights


class TiedLanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 9, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.middle(self.embedding(ids))))


class TiedAutoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 6) / 2)
        self.b = nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(F.linear(x, self.w)) @ self.w + self.b


class Sliced(nn.Module):
    """One weight whose parts serve different calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4) / 2)
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.weight.chunk(3)
        first = F.linear(x, q, self.bias[:2]) * torch.sigmoid(F.linear(x, k, self.bias[2:4]))
        return torch.cat([first, F.linear(x, v), F.linear(x, self.weight[:3])], dim=-1)


class Symmetric(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).mT


def symmetric() -> nn.Module:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


def weight_norm(layer: nn.Module) -> nn.Module:
    return parametrizations.weight_norm(layer)


# --- adapters and frozen parts


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(requires_grad=False)


class Lora(nn.Module):
    """A frozen layer and a low-rank update: by two parameters, or by two layers as PEFT has it."""

    def __init__(self, *, zero: bool, layers: bool) -> None:
        super().__init__()
        self.base = frozen(nn.Linear(6, 5))
        self.layers = layers
        if layers:
            self.lora_a = nn.Linear(6, 2, bias=False)
            self.lora_b = nn.Linear(2, 5, bias=False)
            b = self.lora_b.weight
        else:
            self.a = nn.Parameter(torch.randn(2, 6))
            self.b = b = nn.Parameter(torch.randn(5, 2))
        if zero:
            nn.init.zeros_(b)

    def forward(self, x: Tensor) -> Tensor:
        update = self.lora_b(self.lora_a(x)) if self.layers else x @ self.a.T @ self.b.T
        return self.base(x) + 2.0 * update


# --- whole networks


class Block(nn.Module):
    """A pre-norm transformer block with scaled_dot_product_attention."""

    def __init__(self, width: int, heads: int = 2, *, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        rows, time, width = x.shape
        split = self.attend(self.norm1(x)).view(rows, time, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.project(mixed.transpose(1, 2).reshape(rows, time, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary: int = 11, width: int = 8, time: int = 6) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(time, width)
        self.block, self.norm = Block(width), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.block(x)))


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, *, inplace: bool) -> None:
        super().__init__()
        self.inplace = inplace
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(2, outputs), nn.GroupNorm(2, outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm1(self.conv1(x)), inplace=self.inplace)
        hidden = self.norm2(self.conv2(hidden))
        if self.inplace:
            hidden += self.shortcut(x)
        else:
            hidden = hidden + self.shortcut(x)
        return F.relu(hidden, inplace=self.inplace)


def resnet(width: int = 4, *, inplace: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        ResidualBlock(width, width, 1, inplace=inplace),
        ResidualBlock(width, 2 * width, 2, inplace=inplace),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 5),
    )


class Vit(nn.Module):
    """Patches by a convolution, a class token, and a feed-forward part on (rows·time, width)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, stride=2)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 12, width))
        self.block = Block(width, causal=False)
        self.up, self.down = nn.Linear(width, 6), nn.Linear(6, width)
        self.head = nn.Linear(width, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        x = self.block(x + self.positions[:, : x.shape[1]])
        rows, time, width = x.shape
        flat = self.down(F.relu(self.up(x.reshape(rows * time, width))))
        return self.head((x + flat.view(rows, time, width))[:, 0])


class Unet(nn.Module):
    """Down, up, and a skip connection past both."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1)
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([x, F.silu(self.up(F.silu(self.down(x))))], dim=1))


# --- rows that move about inside the model, without ever mixing


class Experts(nn.Module):
    """Each row goes to one of two experts: a layer sees some of the rows only."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        goes_left = x[:, 0] > 0
        out = x.new_zeros(len(x), 3)
        out[goes_left] = self.left(x[goes_left])
        out[~goes_left] = self.right(x[~goes_left])
        return out


class StackedPair(nn.Module):
    """A siamese network that runs its tower once, on both inputs stacked along the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        first, second = self.tower(torch.cat([left, right])).chunk(2)
        return first * second


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


class Mixture(nn.Module):
    """Architecture weights: a softmax over parameters mixes three branches."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(3))
        self.branch = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        shares = self.weights.softmax(0)
        return shares[0] * x + shares[1] * torch.tanh(x) + shares[2] * self.branch(x)
