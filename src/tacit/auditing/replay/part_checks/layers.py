"""Sums of one batch, of layers of every kind, against autograd; and whole steps of noise."""

from __future__ import annotations

import math
from fractions import Fraction
from unittest.mock import patch

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tacit.auditing.replay.part_checks import models
from tacit.auditing.replay.part_checks.models import CLASSES, ROWS
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.watch import flat
from tacit.training.clipping import clipped_gradients
from tacit.training.clipping.engine import Engine
from tacit.training.clipping.forms.matrix import in_stages
from tacit.training.clipping.sums import BatchSums
from tacit.training.evaluation import accuracy, default_correct, default_loss
from tacit.training.noise import grid_step, rounded_towards_zero
from tacit.training.replace_batchnorm import fix, fixes


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


def once() -> Finding:
    """One batch by itself is clipped as autograd has it, for layers of every kind."""
    return _compared("one batch", models.layers())


def uses() -> Finding:
    """The same for weights by themselves: of sums and products, shared, repeated, recomputed."""
    return _compared("uses of weights", models.uses())


def positions() -> Finding:
    """The same for positions, of which a batch may have as many as rows by chance."""
    return _compared("positions", models.positions())


def _compared(check: str, given: models.Models) -> Finding:
    off: dict[str, float] = {}
    apart: dict[str, float] = {}
    for name, (model, shape) in given.items():
        for rows, views in ((ROWS, 1), (ROWS, 2), (1, 1)):
            case = f"{name}, {rows} rows of {views} views"
            off[case], apart[case] = _off(model, shape, rows, views)
    worst, longest = max(off, key=lambda one: off[one]), max(apart, key=lambda one: apart[one])
    return Finding(
        "clipping",
        check,
        off[worst] < 1e-5 and apart[longest] < 1e-4,
        f"its sum ({worst}) is {off[worst]:.2g} and its norms ({longest}) are "
        f"{apart[longest]:.2g} from those of autograd",
    )


def accuracies() -> Finding:
    """A model is right as often as its highest score is."""
    model, batch = nn.Linear(4, CLASSES), _rows_of((4,))
    right = float((model(batch[0]).argmax(1) == batch[1]).float().mean())
    measured = accuracy(model, TensorDataset(*batch), correct=default_correct)
    said = f"it is {measured:.6g} where {right:.6g} are right"
    return Finding("control flow", "accuracy", abs(measured - right) < 1e-9, said)


def repeated() -> Finding:
    """A batch as it is compiled, with taps from another of its shapes, has the same sums and norms.

    The compiler takes another way through the recorder: here it is walked without one.
    """
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, CLASSES))
    parameters = dict(model.named_parameters())
    engine, (x, y) = Engine(parameters, dict.fromkeys(parameters, 0)), _rows_of((4,))
    ones, mask, found = torch.ones(ROWS), torch.ones(ROWS, dtype=torch.bool), []
    for compiling, batch in ((False, (x.flip(0), y.flip(0))), (True, (x, y)), (False, (x, y))):
        engine.begin(ROWS, signature="a shape")
        engine.enter()
        try:
            with patch.object(torch.compiler, "is_compiling", lambda now=compiling: now):
                losses = default_loss(model, batch)
        finally:
            engine.stop()
        found.append(engine.finish(losses, ones, torch.tensor([0.1]), mask))
    other, compiled, plain = (flat(list(one.sums.values())) for one in found)
    off = max(float((compiled - plain).norm()), float((other - plain).norm()))
    norms = [one.squared_norms for one in found]
    apart = max(float((norms[at] - norms[2]).abs().max()) for at in (1, 2))
    apart = max(apart, float((norms[0].flip(1) - norms[2]).abs().max()))
    said = f"its sum is {off:.2g} and its norms are {apart:.2g} from those of the same rows"
    return Finding("clipping", "compiled", max(off, apart) < 1e-5, said)


def empty() -> Finding:
    """A batch of nobody adds nothing; sums of squares are those of double precision."""
    model = nn.Linear(4, CLASSES)
    none = torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)
    found = clipped_gradients(
        dict(model.named_parameters()), lambda: default_loss(model, none), rows=0, clip=1.0
    )
    added = sum(float(one.abs().sum()) for one in found.sums.values())
    off = 0.0
    for shape in ((3, 4, 5), (300, 4, 5), (7,)):
        values = torch.rand(*shape, generator=torch.Generator().manual_seed(2))
        wanted = values.double().flatten(1).sum(1) if values.ndim > 1 else values.double()
        off = max(off, float((in_stages(values) / wanted - 1.0).abs().max()))
    right = added == 0.0 and not len(found.norms) and off < 1e-5
    return Finding("clipping", "nobody", right, f"{added:.2g} is added; sums are {off:.2g} off")


def _rows_of(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    seed = torch.Generator().manual_seed(5)
    return torch.randn(ROWS, *shape, generator=seed), torch.randint(
        CLASSES, (ROWS,), generator=seed
    )


def _off(model: nn.Module, shape: tuple[int, ...], rows: int, views: int) -> tuple[float, float]:
    """How far sum and norms are from autograd's."""
    x, y = _rows_of(shape)
    batch = x[:rows], y[:rows]
    model(batch[0])  # gives lazy layers their sizes
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
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
