"""Language models with LoRA of rank 16 on all linear layers, as a user would write them.

Random weights in the shapes of SmolLM2-135M and GPT-2 large: only time and memory are measured.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RANK = 16


class Lora(nn.Module):
    """A frozen linear map and a trained one of low rank beside it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
        self.down = nn.Linear(inputs, RANK, bias=False)
        self.up = nn.Linear(RANK, outputs, bias=False)
        nn.init.normal_(self.up.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.up(self.down(x))


class Norm(nn.Module):
    """A frozen RMS norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        unit = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * unit.to(x.dtype)


class Llama(nn.Module):
    """SmolLM2-135M: 30 layers, grouped heads, rotary positions, gated feed-forward."""

    WIDTH, LAYERS, HEADS, KEYS, INNER, VOCABULARY = 576, 30, 9, 3, 1536, 49152

    class Block(nn.Module):
        """Attention and feed-forward."""

        def __init__(self) -> None:
            super().__init__()
            width, keys = Llama.WIDTH, Llama.KEYS * (Llama.WIDTH // Llama.HEADS)
            self.first, self.second = Norm(width), Norm(width)
            self.q, self.k, self.v = Lora(width, width), Lora(width, keys), Lora(width, keys)
            self.o = Lora(width, width)
            self.gate, self.wide = Lora(width, Llama.INNER), Lora(width, Llama.INNER)
            self.narrow = Lora(Llama.INNER, width)

        def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
            batch, length, width = x.shape
            h = self.first(x)
            q = self.q(h).view(batch, length, Llama.HEADS, -1).transpose(1, 2)
            k = self.k(h).view(batch, length, Llama.KEYS, -1).transpose(1, 2)
            v = self.v(h).view(batch, length, Llama.KEYS, -1).transpose(1, 2)
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
            k, v = (one.repeat_interleave(Llama.HEADS // Llama.KEYS, 1) for one in (k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, width))
            h = self.second(x)
            return x + self.narrow(F.silu(self.gate(h)) * self.wide(h))

    def __init__(self, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(self.VOCABULARY, self.WIDTH).requires_grad_(False)
        self.blocks = nn.ModuleList(Llama.Block() for _ in range(self.LAYERS))
        self.norm = Norm(self.WIDTH)
        size = self.WIDTH // self.HEADS
        speed = 10000 ** (-torch.arange(0, size, 2).float() / size)
        angle = torch.outer(torch.arange(length).float(), speed).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)[:, -1] @ self.table.weight.T


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Gpt2Large(nn.Module):
    """36 layers of width 1280 with LoRA."""

    WIDTH, LAYERS, HEADS, VOCABULARY = 1280, 36, 20, 50257

    class Block(nn.Module):
        """Attention and feed-forward."""

        def __init__(self) -> None:
            super().__init__()
            width = Gpt2Large.WIDTH
            self.first = nn.LayerNorm(width).requires_grad_(False)
            self.second = nn.LayerNorm(width).requires_grad_(False)
            self.qkv, self.o = Lora(width, 3 * width), Lora(width, width)
            self.wide, self.narrow = Lora(width, 4 * width), Lora(4 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            batch, length, width = x.shape
            qkv = self.qkv(self.first(x)).view(batch, length, 3, Gpt2Large.HEADS, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, width))
            return x + self.narrow(F.gelu(self.wide(self.second(x))))

    def __init__(self, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(self.VOCABULARY, self.WIDTH).requires_grad_(False)
        self.places = nn.Parameter(torch.zeros(length, self.WIDTH), requires_grad=False)
        self.blocks = nn.ModuleList(Gpt2Large.Block() for _ in range(self.LAYERS))
        self.norm = nn.LayerNorm(self.WIDTH).requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, -1] @ self.table.weight.T


LENGTHS = {"smollm2": (Llama, 48), "gpt2-large": (Gpt2Large, 256)}


def task(name, batch, device):
    """The model in bf16, rows of tokens, labels of two classes, and a loss per row."""
    made, length = LENGTHS[name]
    model = made(length).to(device=device, dtype=torch.bfloat16)
    ids = torch.randint(made.VOCABULARY, (batch, length), device=device)
    labels = torch.randint(2, (batch,), device=device)

    def losses(logits, labels):
        return F.cross_entropy(logits[:, :2].float(), labels, reduction="none")

    return model, ids, labels, losses
