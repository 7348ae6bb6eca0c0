"""Small networks that together use every kind of operation that the engine has a rule for.

Each rule has several ways to its gradients, by the shapes of what it is given: a network has layers
for all of them. What a network computes makes no sense; that it depends on all of its parameters,
and on nothing but its own row, is what matters.
"""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CLASSES = 3
TOKENS, LENGTH = 11, 5


@final
class Images(nn.Module):
    """Convolutions of one to three dimensions, norms of channels; for (1, 8, 8) images."""

    def __init__(self) -> None:
        super().__init__()
        self.padded = nn.Conv2d(1, 4, 3, dilation=2, padding="same")
        self.plain = nn.Conv2d(4, 8, 3, stride=(2, 1), padding="valid", groups=2)
        self.upwards = nn.ConvTranspose2d(8, 4, (3, 2), stride=2, padding=1, bias=False)
        self.group, self.bare = nn.GroupNorm(2, 8), nn.GroupNorm(2, 4, affine=False)
        self.instance = nn.InstanceNorm2d(4, affine=True)
        self.frozen = nn.BatchNorm2d(4).eval()
        self.settled = nn.InstanceNorm2d(4, affine=True, track_running_stats=True).eval()
        self.line = nn.Conv1d(4, 2, 3, bias=False)
        self.lines = nn.ConvTranspose1d(2, 2, 3, dilation=2)
        self.volume = nn.Conv3d(1, 2, 2, stride=2)
        self.volumes = nn.ConvTranspose3d(2, 1, 2)
        self.head = nn.LazyLinear(CLASSES)
        with torch.no_grad():
            self(torch.zeros(2, 1, 8, 8))

    def train(self, mode: bool = True) -> Images:
        """Its norms of batches stay as they are: with statistics that are fixed."""
        super().train(mode)
        self.frozen.eval()
        self.settled.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.settled(self.instance(self.padded(x)))
        x = self.group(self.plain(torch.tanh(x)))
        x = self.frozen(self.bare(self.upwards(torch.relu(x))))
        flat = self.lines(self.line(x.flatten(2)))
        deep = self.volumes(torch.tanh(self.volume(x.unsqueeze(1))))
        scores: Tensor = self.head(torch.cat([flat.flatten(1), deep.flatten(1)], 1))
        return scores


@final
class Channels(nn.Module):
    """Kernels that are larger than their small images; for (1, 8, 8) images."""

    def __init__(self) -> None:
        super().__init__()
        self.gram = nn.Conv2d(16, 64, 2, dilation=2)  # 4x4, to 2x2
        self.offsets = nn.Conv2d(16, 48, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(16, 96, 3, padding=2, dilation=2, groups=2)
        self.norm = nn.GroupNorm(4, 64)
        self.head = nn.Linear(64 + 48 + 96, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = x.view(len(x), 4, 4, 4).repeat(1, 4, 1, 1)
        parts = self.norm(self.gram(x)), self.offsets(x), self.grouped(x)
        pooled = [torch.tanh(part).mean((2, 3)) for part in parts]
        scores: Tensor = self.head(torch.cat(pooled, 1))
        return scores


@final
class Recurrences(nn.Module):
    """RNN, GRU, LSTM and their cells; for (5, 4) sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2, bidirectional=True, proj_size=3, batch_first=True)
        self.gru = nn.GRU(6, 4, bias=False)
        self.tanh = nn.RNN(4, 3, bidirectional=True)
        self.relu = nn.RNN(6, 3, nonlinearity="relu", batch_first=True)
        self.cells = nn.ModuleList(
            [nn.LSTMCell(3, 4), nn.GRUCell(4, 3), nn.RNNCell(3, 3, nonlinearity="relu"),
             nn.RNNCell(3, 3, bias=False)]
        )  # fmt: skip
        self.start = nn.Parameter(torch.randn(1, 1, 4))
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x, _ = self.lstm(x[:, :3])
        first = self.start.expand(1, len(x), 4).contiguous()
        time_major, _ = self.gru(x.transpose(0, 1), first)
        x = self.tanh(time_major)[0].transpose(0, 1)
        x = self.relu(x)[0][:, -1]
        x = self.cells[0](x)[0]
        for cell in self.cells[1:]:
            x = cell(x)
        scores: Tensor = self.head(x)
        return scores


@final
class Attentions(nn.Module):
    """Attention of all kinds, with norms, positions, a class token; for (5, 4) sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.positions = nn.Embedding(LENGTH + 1, 4)
        self.one = nn.MultiheadAttention(4, 2, batch_first=True)
        self.two = nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True, bias=False)
        self.three = nn.MultiheadAttention(4, 1, kdim=6, vdim=6, batch_first=True)
        self.norm, self.rms = nn.LayerNorm(4), nn.RMSNorm(4)
        self.bare = nn.LayerNorm((LENGTH + 1, 4), bias=False)
        self.wide = nn.Linear(4, 6)
        self.relative = nn.Parameter(torch.randn(2, LENGTH + 1, LENGTH + 1))
        self.mixed, self.shift = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        count, length = len(x), LENGTH + 1
        x = torch.cat([self.token.expand(count, 1, 4), x], 1)
        x = x + self.positions(torch.arange(length, device=x.device))
        causal = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        x = self.norm(x + self.one(x, x, x, attn_mask=causal)[0])
        by_head = torch.zeros(count * 2, length, length, dtype=x.dtype, device=x.device)
        padding = torch.zeros(count, length, dtype=x.dtype, device=x.device)
        padding[:, -1] = -torch.inf
        turned = x.transpose(0, 1)
        y, _ = self.two(
            turned, turned, turned, key_padding_mask=padding, attn_mask=by_head,
            average_attn_weights=False,
        )  # fmt: skip
        x = self.rms(x + y.transpose(0, 1))
        wide = self.wide(x)
        x = x + self.three(x, wide, wide, need_weights=False)[0]
        x = x + self.three(x, wide, wide, need_weights=False, key_padding_mask=padding)[0]
        heads = self.bare(x).view(count, length, 2, 2).transpose(1, 2)
        x = F.scaled_dot_product_attention(heads, heads, heads, self.relative)
        x = torch.addmm(self.shift, x.transpose(1, 2).reshape(-1, 4), self.mixed)
        scores: Tensor = self.head(x.view(count, length, 4).mean(1))
        return scores


@final
class Bare(nn.Module):
    """Bare parameters in sums, products, quotients and matrix products; for (12,) vectors."""

    def __init__(self) -> None:
        super().__init__()

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(0.5 + 0.2 * torch.randn(*shape))

        self.shift, self.scale, self.divisor = weight(12), weight(12), weight(12)
        self.single, self.steps = weight(1), weight(3, 1)
        self.right, self.left, self.vector = weight(12, 8), weight(5, 4), weight(2)
        self.stack = weight(2, 4, 3)
        self.bilinear = nn.Bilinear(8, 6, 4)
        self.unequal = nn.PReLU(8)
        self.equal = nn.PReLU()
        self.head = nn.Linear(9, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.shift + x * self.scale - self.single
        x = (self.single - x) / self.divisor + self.scale / (2.0 + x.square())
        x = torch.add(x, self.shift, alpha=2.0)
        x = x.clone()
        x += self.shift
        x -= self.single
        x *= self.scale
        x /= self.divisor
        y = self.unequal(x @ self.right)
        matrix = x.view(-1, 4, 3)
        left = self.left @ matrix  # (rows, 5, 3)
        z = self.equal(left @ self.steps).squeeze(-1)  # (rows, 5)
        pairs = y.view(-1, 4, 2) @ self.vector  # (rows, 4)
        stacked = torch.matmul(y.view(-1, 2, 1, 4), self.stack).flatten(1)  # (rows, 6)
        both = self.bilinear(y, stacked)
        scores: Tensor = self.head(torch.cat([z, torch.tanh(pairs + both)], 1))
        return scores


@final
class Contractions(nn.Module):
    """einsum of all kinds, and operations without a rule; for (12,) vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.split = nn.Parameter(torch.randn(3, 2, 4))
        self.order = nn.Parameter(torch.randn(5, 4))
        self.weighted = nn.Parameter(torch.randn(4, 3))
        self.pooled = nn.Parameter(torch.randn(4, 2))
        self.limit = nn.Parameter(torch.rand(4))
        self.head = nn.Linear(17, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = x.view(-1, 4, 3)
        one = torch.einsum("btc,chd->bthd", x, self.split).flatten(1).mean(1, keepdim=True)
        two = torch.einsum("...tc,dt->...d", [x, self.order])  # c is summed over
        three = torch.einsum("btc,tc->bt", x, self.weighted)
        four = torch.einsum("bt,bt,te->be", x[..., 0], x[..., 1], self.pooled)
        five = torch.einsum("bt,te->b", x[..., 2], self.pooled).unsqueeze(1)
        above = x[..., 0] > self.limit  # no gradient passes
        six = torch.maximum(x[..., 1], self.limit) * above
        joined = torch.cat([one, two, three, four, five, six], 1)
        scores: Tensor = self.head(torch.tanh(joined))
        return scores


@final
class Tables(nn.Module):
    """Embeddings, bags of them, tables indexed by hand; for tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(TOKENS, 4, padding_idx=-1)
        self.mean = nn.EmbeddingBag(TOKENS, 3, mode="mean", padding_idx=0)
        self.sum = nn.EmbeddingBag(TOKENS, 2, mode="sum")
        self.flat = nn.EmbeddingBag(TOKENS, 2, mode="mean")
        self.ends = nn.EmbeddingBag(TOKENS, 2, mode="sum", include_last_offset=True)
        self.table = nn.Parameter(torch.randn(TOKENS, 3))
        self.cube = nn.Parameter(torch.randn(TOKENS, 2, 2))
        self.column = nn.Parameter(torch.randn(TOKENS))
        self.head = nn.Linear(4 + 3 + 2 + 2 + 2 + 3 + 4 + 1, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the classes."""
        count, length = tokens.shape
        starts = torch.arange(0, count * length, length, device=tokens.device)
        ends = torch.arange(0, count * length + 1, length, device=tokens.device)
        weights = torch.linspace(0.5, 1.5, length, device=tokens.device, dtype=self.table.dtype)
        weighed = self.sum(tokens, per_sample_weights=weights.expand(count, length).contiguous())
        parts = [
            self.words(tokens).mean(1), self.mean(tokens), weighed,
            self.flat(tokens.flatten(), starts),
            self.ends(tokens.flatten(), ends, weights.repeat(count)),
            torch.index_select(self.table, 0, tokens[:, 0]), self.cube[tokens[:, 1]].flatten(1),
            self.column[tokens].sum(1, keepdim=True),
        ]  # fmt: skip
        scores: Tensor = self.head(torch.cat(parts, 1))
        return scores


@final
class Derived(nn.Module):
    """Weights made from weights, tied, reused, in views that overlap; for (12,) vectors."""

    constant: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.big = nn.Parameter(torch.randn(24, 12))
        self.length = nn.Parameter(torch.rand(8))
        self.direction = nn.Parameter(torch.randn(8, 12))
        self.again = nn.Linear(8, 8)
        self.tied, self.bias = nn.Parameter(torch.randn(8, 4)), nn.Parameter(torch.randn(8))
        self.kernel = nn.Conv1d(1, 1, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, CLASSES)
        self.register_buffer("constant", torch.linspace(-1.0, 1.0, 12))
        self.fixed = nn.Parameter(torch.randn(8, 8), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = x + self.constant
        one, two, _ = self.big.chunk(3)
        normed = self.length.unsqueeze(1) * F.normalize(self.direction, dim=1)
        y = F.linear(x, one) + F.linear(x, two) + F.linear(x, self.big[4:12])  # rows 4-11 twice
        y = y + F.linear(x, normed) @ self.fixed
        y = self.again(torch.tanh(self.again(torch.tanh(y))))  # twice
        z = F.linear(torch.tanh(y) @ self.tied, self.tied, self.bias) + self.bias
        z = self.kernel(self.kernel(z.unsqueeze(1))).squeeze(1)
        z = self.norm(checkpoint(self._recomputed, z, use_reentrant=False))
        scores: Tensor = self.head(torch.tanh(z))
        return scores

    def get_extra_state(self) -> Tensor:
        """What its ``state_dict`` holds beside parameters and buffers."""
        return torch.ones(1)

    def set_extra_state(self, state: Tensor) -> None:
        """It is always the same."""

    def _recomputed(self, z: Tensor) -> Tensor:
        again: Tensor = self.again(torch.tanh(z))
        return again


@final
class Shuffled(nn.Module):
    """Rows that lie elsewhere than in the first dimension; for (5, 4) sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.minor = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.bias = nn.Parameter(torch.randn(4))
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        count, length, width = x.shape
        x = torch.tanh(self.flat(x.reshape(-1, width)).view(count, length, width))
        minor = x.transpose(0, 1).reshape(-1, width)  # all rows' first entries come first
        x = self.norm(self.minor(minor) + self.bias).view(length, count, width)
        scores: Tensor = self.head(x.sum(0))
        return scores


@final
class LongText(nn.Module):
    """A table that is looked up, and written to, hundreds of times a row; for long texts."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(TOKENS, 2)
        self.head = nn.Linear(2, TOKENS)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the classes."""
        scores: Tensor = self.head(torch.tanh(self.words(tokens))).mean(1)[:, :CLASSES]
        return scores
