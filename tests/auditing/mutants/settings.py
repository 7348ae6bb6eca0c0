"""Where users meet the bugs: small models and data, as they would be given to ``tacit.private``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import tacit
from tacit.auditing.replay import Setting
from tacit.training.sampling import FullBatch
from tacit.training.styles import AdaptiveQuantile, PerLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

EXAMPLES, WIDTH, CLASSES = 48, 6, 3
WORDS = 12


# ---- pieces


def plan(**changed: Any) -> tacit.Plan:
    given: dict[str, Any] = {
        "examples": EXAMPLES, "lot_size": 12, "steps": 6, "noise_multiplier": 1.0, "clip": 1.0,
    }  # fmt: skip
    return tacit.Plan(**given | changed)


def vectors(scale: float = 2.0) -> TensorDataset:
    draw = torch.Generator().manual_seed(1)
    x = scale * torch.randn(EXAMPLES, WIDTH, generator=draw)
    return TensorDataset(x, torch.randint(CLASSES, (EXAMPLES,), generator=draw))


def sentences() -> TensorDataset:
    """Few different words a sentence, so that most come twice."""
    draw = torch.Generator().manual_seed(1)
    pair = torch.randint(WORDS, (EXAMPLES, 2), generator=draw)
    labels = torch.randint(CLASSES, (EXAMPLES,), generator=draw)
    return TensorDataset(pair[:, [0, 1, 0, 0, 1]], labels)


def seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """The same first weights at every call."""

    def made() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return make()

    return made


def cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    x, y = batch
    return functional.cross_entropy(model(x), y, reduction="none")


def next_word(model: nn.Module, batch: Any) -> Tensor:
    """The mean loss over a sentence's own positions: each word predicts itself."""
    ids = batch[0]
    scores = model(ids)
    return functional.cross_entropy(scores.mT, ids, reduction="none").mean(1)


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.1)


def with_momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


# ---- models


class Tied(nn.Module):
    """A table of words that is also the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, 4)
        self.head = nn.Linear(4, WORDS)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids))


class Bag(nn.Module):
    """The sum of a sentence's words, classified. The first table is small, as usual."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, 4)
        nn.init.normal_(self.table.weight, std=0.02)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids).sum(1))


class Centred(nn.Module):
    """Keeps a running mean of what it has seen, as input normalisation often does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean += 0.1 * (x.mean(0) - self.mean)
        return self.head(x)


def _mlp(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 6), *between, nn.Tanh(), nn.Linear(6, CLASSES))


def _normed_kernel() -> nn.Module:
    """A kernel with lengths of its own, which training has moved away from what they were."""
    kernel: Any = nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 3, 2))
    lengths = kernel.parametrizations.weight.original0
    lengths.data *= torch.tensor([0.05, 1.0, 20.0]).view_as(lengths)
    return nn.Sequential(nn.Unflatten(1, (2, 3)), kernel, nn.Flatten(), nn.Linear(6, CLASSES))


def _frozen() -> nn.Module:
    model = _mlp()
    model[0].requires_grad_(False)  # type: ignore[index]
    return model


# ---- settings


def linear(**changed: Any) -> Setting:
    """A linear classifier."""
    given: dict[str, Any] = {
        "model": seeded(lambda: nn.Linear(WIDTH, CLASSES)),
        "loss": cross_entropy,
        "dataset": vectors(),
        "plan": plan(),
        "optimizer": sgd,
    }
    return Setting(**given | changed)


def mlp(**changed: Any) -> Setting:
    """Two layers."""
    return linear(model=seeded(_mlp), **changed)


def normed_kernel() -> Setting:
    """A convolution whose kernel is made of directions and lengths."""
    return linear(model=seeded(_normed_kernel))


def exact() -> Setting:
    """Noise on a grid, on gradients in whole steps of it."""
    return linear(plan=plan(noise="exact"))


def small_batches() -> Setting:
    """A lot that does not fit into memory: it is computed four examples at a time."""
    return linear(performance=tacit.Performance(batch=4))


def step_by_step() -> Setting:
    """A budget that is charged one step at a time."""
    return linear(performance=tacit.Performance(lease=1))


def small_lots() -> Setting:
    """Lots of one example on average, a third of which are empty."""
    return linear(plan=plan(lot_size=1))


def full_batch() -> Setting:
    """No sampling at all."""
    return linear(plan=plan(lot_size=EXAMPLES, sampling=FullBatch()))


def replace_one() -> Setting:
    """Neighbours that differ in one record's value."""
    return linear(plan=plan(adjacency="replace-one"))


def per_layer() -> Setting:
    """Each layer clipped by itself."""
    return mlp(plan=plan(clipping=PerLayer()))


def adaptive() -> Setting:
    """A clip that follows the median norm."""
    return linear(plan=plan(clipping=AdaptiveQuantile(count_noise=0.6)))


def secure() -> Setting:
    """Noise on a grid."""
    return linear(plan=plan(noise="secure"))


def momentum() -> Setting:
    """SGD with momentum."""
    return linear(optimizer=with_momentum)


def frozen() -> Setting:
    """A first layer that is not trained."""
    return linear(model=seeded(_frozen))


def tied() -> Setting:
    """A language model whose table of words is its output layer."""
    return linear(model=seeded(Tied), loss=next_word, dataset=sentences(), plan=plan(clip=0.1))


def bag_of_words() -> Setting:
    """Sentences in which words come again."""
    return linear(model=seeded(Bag), dataset=sentences(), plan=plan(clip=0.2))


def tiny_inputs() -> Setting:
    """Inputs near zero, so that the bias has most of a gradient's norm."""
    return linear(dataset=vectors(scale=0.05), plan=plan(clip=0.1))


def tiny_losses() -> Setting:
    """Losses of a ten-thousandth, as in a mean over very long rows, and a clip to go with them."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        return 1e-4 * cross_entropy(model, batch)

    return linear(loss=loss, plan=plan(clip=1e-4))


def centred() -> Setting:
    """A model that keeps a running mean of its inputs."""
    return linear(model=seeded(Centred))


def batch_norm() -> Setting:
    """A model with a batch norm."""
    norm = nn.BatchNorm1d(6, affine=False, track_running_stats=False)
    return linear(model=seeded(lambda: _mlp(norm)))


def users() -> Setting:
    """Sixteen users with three examples each."""
    ids = np.repeat(np.arange(16), 3)
    return linear(groups=ids, plan=plan(examples=16, lot_size=4, unit="user", examples_per_user=3))


def users_in_no_order() -> Setting:
    """The same, each user's examples far apart."""
    return replace(users(), groups=np.arange(EXAMPLES) % 16)


def views() -> Setting:
    """Four views of each example."""
    return linear(plan=plan(views=4))


def _wide() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 200), nn.Tanh(), nn.Linear(200, CLASSES))


def correlated() -> Setting:
    """Noise of three bands, and as many groups that take turns."""
    return linear(model=seeded(_wide), plan=plan(correlation=tacit.Banded(3)))
