"""The models that engines are timed on: plain PyTorch, which every engine's worker reads."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp() -> nn.Module:
    """The lectures' network on 60 principal components of MNIST."""
    return nn.Sequential(nn.Linear(60, 1000), nn.ReLU(), nn.Linear(1000, 10))


def cnn() -> nn.Module:
    """The convolutional network of Opacus's CIFAR-10 tutorial, with group norm."""

    def block(channels_in: int, channels_out: int, pool: nn.Module) -> list[nn.Module]:
        convolution = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        return [convolution, nn.GroupNorm(8, channels_out), nn.ReLU(), pool]

    return nn.Sequential(
        *block(3, 32, nn.AvgPool2d(2)),
        *block(32, 64, nn.AvgPool2d(2)),
        *block(64, 64, nn.AvgPool2d(2)),
        *block(64, 128, nn.AdaptiveAvgPool2d(1)),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


class GptBlock(nn.Module):
    """Causal self-attention and a two-layer network, each after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """GPT-2's shape in small, with an untied head."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        at = torch.arange(ids.shape[1]).expand_as(ids).contiguous()  # as Opacus needs it
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(at))))


def losses(logits: Tensor, targets: Tensor) -> Tensor:
    """One loss per row; of a sequence, the mean over its tokens."""
    if logits.ndim == 2:
        return F.cross_entropy(logits, targets, reduction="none")
    each = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return each.view_as(targets).mean(1)


@dataclass(frozen=True)
class Task:
    """A model and how its made-up data looks."""

    title: str
    batch: int
    model: Callable[[], nn.Module]
    features: tuple[int, ...]  # of a row; for text, its length
    classes: int = 10
    text: bool = False

    def data(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one batch."""
        generator = torch.Generator().manual_seed(0)
        if self.text:
            (length,) = self.features
            ids = torch.randint(self.classes, (self.batch, length + 1), generator=generator)
            return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        targets = torch.randint(self.classes, (self.batch,), generator=generator)
        return torch.randn(self.batch, *self.features, generator=generator), targets


TASKS = {
    "mlp": Task("MLP 60-1000-10", 600, mlp, (60,)),
    "cnn": Task("CNN, 4 convolutions with GroupNorm, 3×32×32", 256, cnn, (3, 32, 32)),
    "gpt": Task(
        "GPT, 3 layers, d=128, T=128, vocabulary 1000",
        16,
        lambda: Gpt(vocabulary=1000, width=128, heads=4, layers=3, length=128),
        (128,),
        classes=1000,
        text=True,
    ),
}
