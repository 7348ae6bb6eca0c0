"""What the benchmark of teachers trains: MNIST, its data-free features, models and settings.

Nothing here looks at MNIST's test images: teachers learn from the first training images, and are
asked about the last ones.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit import data, models
from tacit.randomness import UnsafeSeededStream
from tacit.transfer.teachers import Teachers, views

CLASSES = 10
SYNTHETIC = 20_000  # images whose features are whitened by
BLOCK = 4096  # images at a time

How = Literal["loop", "batched", "gemm"]


@dataclass(frozen=True, eq=False)
class Split:
    """Private training images, and held-out ones that the teachers are asked about."""

    inputs: torch.Tensor
    labels: NDArray[np.int64]
    queries: torch.Tensor
    truth: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of teacher: its model and how it is trained."""

    name: str
    make: Callable[[], nn.Module]
    epochs: int
    lr: float
    batch_size: int
    weight_decay: float = 0.0
    hows: tuple[How, ...] = ("loop", "batched")
    views: int = 1
    features: bool = False


def cnn() -> nn.Sequential:
    """Two convolutions and two dense layers, like the PATE papers' teachers, but narrower."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def linear() -> nn.Linear:
    """Softmax regression, from 0."""
    model = nn.Linear(KEPT, CLASSES)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


KEPT = 1500  # directions of the whitened features
ALL: tuple[How, ...] = ("loop", "batched", "gemm")
KINDS = {
    "cnn": Kind(name="CNN on pixels", make=cnn, epochs=30, lr=0.05, batch_size=32),
    "cnn-views": Kind(
        name="CNN on pixels, 16 views", make=cnn, epochs=8, lr=0.05, batch_size=64,
        hows=("batched",), views=16,
    ),
    "linear": Kind(
        name="softmax regression on scattering", make=linear, epochs=40, lr=3.0, batch_size=64,
        hows=ALL, features=True,
    ),
    "linear-views": Kind(
        name="softmax regression on scattering, 16 views", make=linear, epochs=12, lr=5.0,
        batch_size=64, weight_decay=1e-4, hows=("gemm",), views=16, features=True,
    ),
}  # fmt: skip


class Features:
    """Scattering at two scales, whitened by synthetic images: as in the recipe mnist-scatter."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._scattering = models.MultiScale(28, scales=(2, 3), groups=31).to(device)
        kinds: tuple[Literal["strokes"], Literal["blobs"]] = ("strokes", "blobs")
        public = np.concatenate(
            [
                models.synthetic_images(SYNTHETIC // 2, kind=kind, seed=seed)
                for seed, kind in enumerate(kinds)
            ]
        )
        rows = models.batched(self._scattering, public, device=device)
        self._whitening = models.Whitening.of(rows, power=1.0, ridge=1e-3, keep=KEPT)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """One row for each image, on the device."""
        found = [
            self._whitening(models.batched(self._scattering, some, device=self._device))
            for some in images.split(BLOCK)
        ]
        return torch.cat(found)


def mnist(folder: Path | None, private: int, queries: int) -> Split:
    """The first ``private`` training images, and the last ``queries``."""
    train = data.load("mnist", folder, download=False).train
    if private + queries > len(train):
        raise SystemExit(f"{private} + {queries} images are more than the {len(train)} there are")
    inputs, labels = torch.tensor(np.asarray(train.inputs)), np.asarray(train.labels)
    return Split(inputs[:private], labels[:private], inputs[-queries:], labels[-queries:])


def inputs(kind: Kind, split: Split, features: Features | None, device: str) -> dict[str, Any]:
    """The records and queries as this kind of teacher takes them, and how long that took."""
    start = time.perf_counter()
    found = []
    for block in split.inputs.split(BLOCK):
        shown = views(block.to(device), kind.views).flatten(0, 1)
        found.append(features(shown) if features else shown)
    asked = features(split.queries) if features else split.queries
    if device != "cpu":
        torch.cuda.synchronize()
    return {
        "dataset": (torch.cat(found), np.repeat(split.labels, kind.views)),
        "groups": np.repeat(np.arange(len(split.inputs)), kind.views),
        "queries": asked,
        "seconds": time.perf_counter() - start,
    }


def train(kind: Kind, made: dict[str, Any], count: int, how: str, device: str) -> Teachers:
    """Teachers of this kind; the stream is seeded so that all ways have the same assignment."""
    return Teachers(
        kind.make, made["dataset"], count, classes=CLASSES, epochs=kind.epochs, lr=kind.lr,
        batch_size=kind.batch_size, weight_decay=kind.weight_decay, how=how, device=device,  # type: ignore[arg-type]
        stream=UnsafeSeededStream(0, "benchmark"), seed=0, groups=made["groups"], progress=False,
    )  # fmt: skip


def counted(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many teachers gave each class to each query, shape (queries, classes)."""
    return np.stack([(labels == one).sum(axis=0) for one in range(CLASSES)], axis=1)


def judged(labels: NDArray[np.int64], truth: NDArray[np.int64]) -> dict[str, float]:
    """How right teachers are, alone and by their votes, and how much they agree."""
    counts = counted(labels)
    ranked = np.sort(counts, axis=1)
    return {
        "teacher_accuracy": float((labels == truth).mean()),
        "vote_accuracy": float((counts.argmax(axis=1) == truth).mean()),
        "top_count": float(ranked[:, -1].mean()),
        "gap": float((ranked[:, -1] - ranked[:, -2]).mean()),
        "small_gap": float(np.percentile(ranked[:, -1] - ranked[:, -2], 5)),
    }
