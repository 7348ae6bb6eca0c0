"""Sums of one batch, of layers of every kind, against autograd; and whole steps of noise."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.watch import flat
from tacit.training.clipping import clipped_gradients
from tacit.training.clipping.sums import BatchSums
from tacit.training.evaluation import accuracy, default_correct, default_loss
from tacit.training.noise import grid_step, rounded_towards_zero
from tacit.training.replace_batchnorm import fix, fixes

if TYPE_CHECKING:
    from collections.abc import Callable


def whole_steps() -> Finding:
    """A gradient in whole steps is as long as the clip at most, exactly, whatever it was before."""
    clip, seed = 0.7, torch.Generator().manual_seed(9)
    wrong: list[str] = []
    for entries in (1, 3, 40, 1_000):
        one = torch.randn(entries, generator=seed, dtype=torch.float64)
        for name, factor in (
            ("below", 0.5), ("at", 1.0), ("just above", 1.0 + 1e-4), ("a little above", 1.0 + 5e-4),
            ("above", 1.0 + 2e-3), ("far above", 40.0), ("nowhere", math.nan),
            ("infinite", math.inf),
        ):  # fmt: skip
            given = {"a": factor * clip * one / one.norm(), "b": torch.zeros(2)}
            batch = BatchSums(torch.ones(1, 1), torch.ones(1, 1), given)
            steps = rounded_towards_zero(batch, clip, entries + 2).sums
            whole, step = [int(number) for number in steps["a"]], grid_step(clip, entries + 2)
            if Fraction(clip) ** 2 < Fraction(step) ** 2 * sum(number**2 for number in whole):
                wrong.append(f"one {name} the clip is longer than it")
            near = torch.as_tensor(whole).double() * step - min(factor, 1.0) * given["a"] / factor
            if math.isfinite(factor) and not float(near.norm()) <= 2e-3 * clip:
                wrong.append(f"one {name} the clip is {float(near.norm()):.2g} from it")
            if not math.isfinite(factor) and any(whole):
                wrong.append(f"one {name} adds something")
    return Finding("clipping", "whole steps", not wrong, "; ".join(wrong[:3]) or "it is")


def batch_norm() -> Finding:
    """A model whose layers mixed rows does not after ``fix``: each row's result is its own."""
    model = nn.Sequential(
        nn.Conv2d(2, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.InstanceNorm2d(16, affine=True, track_running_stats=True), nn.Flatten(),
        nn.Linear(16 * 16, 32), nn.BatchNorm1d(32), nn.Linear(32, 2),
    )  # fmt: skip
    advised, fixed = fixes(model), fix(model)
    x = torch.randn(6, 2, 4, 4, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        together, alone = fixed(x), torch.cat([fixed(row[None]) for row in x])
    off = float((together - alone).abs().max())
    single = isinstance(fix(nn.BatchNorm2d(8)), nn.GroupNorm) and len(str(advised[0])) > 0
    return Finding(
        "gradients",
        "fix",
        off < 1e-4 and len(advised) == 3 and single,
        f"{len(advised)} layers are replaced; a row's result moves by {off:.2g} with the others",
    )


class _Positions(nn.Module):
    """A table of positions, as many as a batch has rows, looked up in one of several ways."""

    def __init__(self, ids: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.table, self.head, self.ids = nn.Embedding(16, 3), nn.Linear(3, 2), ids

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.table(self.ids(x))
        places = places.mean(-2) if places.ndim == 3 and len(places) == places.shape[1] else places
        result: torch.Tensor = self.head(torch.tanh(x + places)).mean(1)
        return result


class _Expanded(nn.Module):
    """A weight that is written once for every row."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.head = nn.Parameter(torch.randn(1, 1, 3)), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.cat([self.start.expand(len(x), -1, -1), x], 1)
        result: torch.Tensor = self.head(torch.tanh(both)).prod(1)
        return result


def _layers() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """A model of every kind of layer, small and with one long dimension, and a row's shape."""

    def normed(layer: nn.Module) -> nn.Module:
        """Of other lengths than at first, where a wrong gradient may have the right norm."""
        made: Any = nn.utils.parametrizations.weight_norm(layer)
        lengths = made.parametrizations.weight.original0
        lengths.data *= torch.linspace(0.4, 2.0, lengths.numel()).view_as(lengths)
        return layer

    def flat(*layers: nn.Module) -> nn.Module:
        return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(2))

    return {
        "linear": (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), (4,)),
        "linear over time": (flat(nn.Linear(4, 3)), (9, 4)),
        "normed": (flat(normed(nn.Linear(4, 3)), nn.LayerNorm(3), nn.PReLU()), (5, 4)),
        "convolution": (flat(nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2)), (2, 7, 6)),
        "dilated": (flat(nn.Conv1d(2, 3, 2, dilation=2), nn.GroupNorm(1, 3)), (2, 9)),
        "normed convolution": (flat(normed(nn.Conv2d(2, 3, 3, padding=1))), (2, 6, 5)),
        "normed, wide": (flat(normed(nn.Conv2d(2, 5, 2, stride=2, groups=1))), (2, 12, 12)),
        "normed in groups": (flat(normed(nn.Conv1d(4, 4, 3, groups=2, dilation=2))), (4, 11)),
        "transposed": (flat(nn.ConvTranspose1d(2, 3, 3, stride=2)), (2, 5)),
        "normed, transposed": (flat(normed(nn.ConvTranspose2d(2, 3, 2, stride=2))), (2, 4, 3)),
        "positions": (_Positions(lambda _: torch.arange(8)), (8, 3)),
        "positions in a row": (_Positions(lambda _: torch.arange(8)[None]), (8, 3)),
        "an expanded weight": (_Expanded(), (4, 3)),
        "volumes": (flat(nn.Conv3d(1, 2, 2)), (1, 3, 4, 3)),
    }


def once() -> Finding:
    """One batch by itself is clipped as autograd has it, for layers of every kind; so judged."""
    off: dict[str, float] = {}
    apart: dict[str, float] = {}
    for name, (model, shape) in _layers().items():
        for rows, views in ((8, 1), (8, 2), (1, 1)):
            case = f"{name}, {rows} rows of {views} views"
            off[case], apart[case] = _off(model, shape, rows, views)
    model = nn.Linear(4, 2)
    batch = _rows_of((4,))
    right = float((model(batch[0]).argmax(1) == batch[1]).float().mean())
    measured = accuracy(model, TensorDataset(*batch), correct=default_correct)
    worst, longest = max(off, key=lambda one: off[one]), max(apart.values())
    return Finding(
        "clipping",
        "one batch",
        off[worst] < 1e-5 and longest < 1e-4 and abs(measured - right) < 1e-9,
        f"its sum ({worst}) is {off[worst]:.2g}, its norms are {longest:.2g} and its accuracy is "
        f"{abs(measured - right):.2g} from those of autograd",
    )


def _rows_of(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    seed = torch.Generator().manual_seed(5)
    return torch.randn(8, *shape, generator=seed), torch.randint(2, (8,), generator=seed)


def _off(model: nn.Module, shape: tuple[int, ...], rows: int, views: int) -> tuple[float, float]:
    """How far sum and norms are from autograd's."""
    x, y = _rows_of(shape)
    batch = x[:rows], y[:rows]
    model(batch[0])  # gives lazy layers their sizes
    parameters = dict(model.named_parameters())
    losses = default_loss(model, batch).view(-1, views).mean(1)
    total, norms = torch.zeros(sum(p.numel() for p in parameters.values())), []
    for loss in losses:
        gradient = flat(list(torch.autograd.grad(loss, [*parameters.values()], retain_graph=True)))
        norms.append(float(gradient.norm()))
        total += gradient * min(1.0, 0.1 / norms[-1])
    found = clipped_gradients(
        parameters, lambda: default_loss(model, batch), rows=rows, clip=0.1, views=views
    )
    off = float((flat([found.sums[name] for name in parameters]) - total).norm())
    return off, float((found.norms - torch.tensor(norms)).abs().max())
