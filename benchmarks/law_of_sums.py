# ruff: noqa: ARG005, B023, E501, PLC0415 - a law is one line, acts have one form, and tacit
# is imported in the process of its mutant
# fmt: off
"""Experiments on sums: one record moves them by no more than the clip, whatever it is.

The models are of every kind that clipping has a rule or a form for; see ``release_law``.
"""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from release_law import (
    EXPERIMENTS,
    QUIET,
    Experiment,
    Notes,
    Rows,
    dense,
    experiment,
    numbers,
    plan_of,
    repeatable,
    row_loss,
    seeded,
    table,
    trained,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# ---- sensitivity: one record moves the sum by no more than the clip


@dataclass(frozen=True)
class Setting:
    """A model with its data, and how it is run; ``unit`` finds a unit's rows."""

    build: Callable[[], nn.Module] = dense
    shape: tuple[int, ...] = (5,)
    count: int = 10
    plan: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    wrap: Callable[..., Any] = TensorDataset
    loss: Callable[..., Tensor] = row_loss
    inputs: Callable[[int], Tensor] | None = None
    rows_of: Callable[[int], list[int]] = lambda unit: [unit]
    units: int = 10
    slack: float = 1e-3
    loop: str = "accumulate"
    split: bool = False
    spoil: bool = True


def row_free(losses: Tensor) -> Tensor:
    """The losses at a moderate size, each by itself."""
    return torch.where(losses.abs() < 50, losses, 0.0 * losses.clamp(-1, 1).nan_to_num())


def sensitivity(setting: Setting, notes: Notes) -> None:
    """Zero-out neighbours of several hostile kinds, each with everybody in the lot."""
    sizes = {"examples": setting.units, "lot_size": setting.units, "steps": 2}
    plan = plan_of(**(sizes | dict(setting.plan)))
    taken = [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        # The engine looks at its first batch itself: that one is harmless.
        return setting.loss(model, batch) if taken[0] else 1e-4 * row_free(setting.loss(model, batch))

    def released(factors: Tensor, change: tuple[int, float] | None = None) -> np.ndarray:
        x, y, _ = table(setting.count, *setting.shape)
        if setting.inputs is not None:
            x = setting.inputs(setting.count)
        if change is not None:
            x[setting.rows_of(change[0])] = change[1]
        model = seeded(setting.build)
        torch.manual_seed(5)
        taken[0] = 0
        with repeatable("neighbours"):  # the same choice of a user's examples
            run = trained(
                model, setting.wrap(x, y, factors), plan, loss=loss, loop=setting.loop,
                split=setting.split, on_step=lambda dp: taken.__setitem__(0, 1), **setting.options,
            )
        return run.sums[1]

    entries = sum(p.numel() for p in seeded(setting.build).parameters())
    bound = plan.clip * (1.0 + setting.slack) + 10 * QUIET * plan.clip * math.sqrt(entries)
    if plan.noise != "fast":
        bound += plan.clip * 2.0**-9
    last = setting.units - 1
    for unit in (0, last):
        rows, without = setting.rows_of(unit), torch.ones(setting.count)
        without[rows] = 0.0
        base = released(without)
        notes.fact(f"sum without {unit}", base)
        notes.law("no sum is a number", np.isfinite(base).all(), "not finite")
        for factor in (1.0, 1e4, -30.0, math.nan) if unit == last else (1.0, 1e4):
            factors = torch.ones(setting.count)
            factors[rows] = factor
            other = released(factors)
            notes.fact(f"sum with {unit} times {factor}", other)
            moved = float(np.linalg.norm(np.nan_to_num(other, nan=1e9) - base))
            notes.law("one record moves the sum", moved <= bound, f"{moved / plan.clip:.4g} clips")
    if setting.spoil and setting.inputs is None:
        everybody = torch.ones(setting.count)
        for value in (math.inf, 1e18):
            other = released(everybody, (last, value))
            moved = float(np.linalg.norm(np.nan_to_num(other, nan=1e9) - base))
            notes.fact(f"sum with an input of {value}", other)
            notes.law("a spoilt record moves it", moved <= bound, f"{moved / plan.clip:.4g} clips")


def tokens_of(count: int) -> Tensor:
    return torch.randint(9, (count, 6), generator=torch.Generator().manual_seed(4))


class Tied(nn.Module):
    """A small language model that uses its embedding twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.mixing = nn.Linear(4, 4)
        self.head = nn.Linear(4, 9)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mixing(self.embedding(tokens))))


class Sequence(nn.Module):
    """Recurrence, attention and normalisation over a sequence, and a classifier."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layer: nn.Module = {
            "lstm": lambda: nn.LSTM(4, 4, batch_first=True),
            "gru": lambda: nn.GRU(4, 4, batch_first=True),
            "attention": lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True),
        }[kind]()
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        out = out[0] if isinstance(out, tuple) else out
        return self.head(self.norm(out).mean(1))


def _next_token(model: nn.Module, batch: Any) -> Tensor:
    tokens, _, factor = batch
    scores = model(tokens)[:, :-1].transpose(1, 2)
    return functional.cross_entropy(scores, tokens[:, 1:], reduction="none").mean(1) * factor


def _images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.ReLU(),
        nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(36, 3),
    )


def _frozen() -> nn.Module:
    model = dense()
    model[0].weight.requires_grad_(requires_grad=False)
    return model


def _collated(rows: list[Any]) -> Any:
    return [torch.stack(column) for column in zip(*rows, strict=True)]


class _OutOfMemory:
    """A loss that runs out of memory at its first batches of more than a few rows."""

    def __init__(self) -> None:
        self.left = 3

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        losses = row_loss(model, batch)
        if self.left and len(losses) > 2:
            self.left -= 1
            raise torch.OutOfMemoryError("made up")
        return losses


def performance_of(**given: Any) -> dict[str, Any]:
    import tacit

    return {"performance": tacit.training.Performance(**given)}


def _lazily(make: Callable[[], Setting]) -> Experiment:
    return lambda notes: sensitivity(make(), notes)


def style_of(name: str, *arguments: Any, **given: Any) -> Any:
    import tacit

    return getattr(tacit.training, name)(*arguments, **given)


def _users(noise: str = "fast", views: int = 1) -> Setting:
    owners = np.repeat(np.arange(10), 3)[:27]  # the last has none over the cap
    return Setting(
        count=27, units=9, plan={"unit": "user", "examples_per_user": 2, "noise": noise, "views": views},
        options={"groups": owners}, rows_of=lambda unit: [3 * unit + at for at in range(3)],
    )


_SETTINGS: dict[str, Callable[[], Setting]] = {
    "dense": Setting,
    "dense, rows": lambda: Setting(wrap=Rows, loop="batches"),
    "dense, batches of 3": lambda: Setting(options=performance_of(batch=3)),
    "dense, single rows": lambda: Setting(options=performance_of(batch=1)),
    "dense, collate": lambda: Setting(wrap=Rows, options={"collate": _collated}),
    "per layer": lambda: Setting(plan={"clipping": style_of("PerLayer")}),
    "per group": lambda: Setting(
        plan={"clipping": style_of("PerGroup", {"0": 0.3, "": 0.4}), "clip": None}
    ),
    "automatic": lambda: Setting(plan={"clipping": style_of("Automatic")}),
    "automatic, wide": lambda: Setting(plan={"clipping": style_of("Automatic", 1.0)}),
    "adaptive": lambda: Setting(plan={"clipping": style_of("AdaptiveQuantile", count_noise=1e-3)}),
    "secure": lambda: Setting(plan={"noise": "secure"}),
    "exact": lambda: Setting(plan={"noise": "exact"}),
    "exact, per layer": lambda: Setting(plan={"noise": "exact", "clipping": style_of("PerLayer")}),
    "views": lambda: Setting(plan={"views": 3}, wrap=Rows),
    "views, batches": lambda: Setting(plan={"views": 2}, options=performance_of(batch=5)),
    "users": _users,
    "users, secure": lambda: _users("secure"),
    "users, views": lambda: _users(views=2),
    "bfloat16": lambda: Setting(options=performance_of(precision="bfloat16"), slack=0.05),
    "float16": lambda: Setting(options=performance_of(precision="float16"), slack=0.02),
    "images": lambda: Setting(build=_images, shape=(1, 9, 9)),
    "images, exact": lambda: Setting(build=_images, shape=(1, 9, 9), plan={"noise": "exact"}),
    "tied": lambda: Setting(build=Tied, inputs=tokens_of, loss=_next_token),
    "tied, per layer": lambda: Setting(
        build=Tied, inputs=tokens_of, loss=_next_token, plan={"clipping": style_of("PerLayer")}
    ),
    "lstm": lambda: Setting(build=partial(Sequence, "lstm"), shape=(5, 4)),
    "gru": lambda: Setting(build=partial(Sequence, "gru"), shape=(5, 4)),
    "attention": lambda: Setting(build=partial(Sequence, "attention"), shape=(5, 4)),
    "frozen": lambda: Setting(build=_frozen),
    "two optimizers": lambda: Setting(split=True),
    "double": lambda: Setting(
        build=lambda: dense().double(), wrap=lambda x, y, f: TensorDataset(x.double(), y, f)
    ),
    "out of memory": lambda: Setting(loss=_OutOfMemory(), loop="accumulate", spoil=False),
    "no padding": lambda: Setting(options=performance_of(batch=8), plan={}),
    "larger": lambda: Setting(
        build=lambda: nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3)), shape=(40,)
    ),
    "long rows": lambda: Setting(build=partial(Sequence, "attention"), shape=(40, 4)),
}


for _name, _make in _SETTINGS.items():
    EXPERIMENTS[f"sum: {_name}"] = _lazily(_make)


@experiment("sum: in workers")
def _in_workers(notes: Notes) -> None:
    """What worker processes load is what is loaded without them."""
    plan, found = plan_of(examples=24, lot_size=8, steps=3), []
    for workers in (0, 1):
        with repeatable("workers"):
            data = Rows(*table(24))
            options = performance_of(workers=workers, batch=4)
            found.append(trained(seeded(dense), data, plan, **options).sums)
    gc.collect()  # ends the workers
    notes.fact("sums", found)
    notes.law("workers change nothing", np.allclose(found[0], found[1], atol=1e-4))


# ---- every kind of operation: the table of the clipping tests


def _cases() -> list[Any]:
    from tests.training.clipping.cases import TABLE

    return list(TABLE)


def one_case(notes: Notes, number: int) -> None:
    """Clipped sums of a model of the table: of everybody, and without each of two units."""
    from tests.training.clipping.oracle import trainable

    from tacit.errors import TacitError
    from tacit.training.clipping import clipped_gradients

    case = _cases()[number]
    inputs = case.batch()
    rows = len(inputs[0])
    slack = 0.05 if case.autocast is not None else 1e-3

    def total(factors: Tensor, clip: float) -> Tensor:
        model = case.model()
        found = clipped_gradients(
            trainable(model), lambda: case.call(model, inputs) * factors, rows=rows, clip=clip,
            views=case.views,
        )
        return torch.cat([found.sums[name].double().flatten() for name in sorted(found.sums)])

    for clip in (0.05, 50.0):
        for unit in {0, rows // case.views - 1}:
            place = slice(unit * case.views, (unit + 1) * case.views)
            sums = {}
            for factor in (0.0, 1.0, 1e3):
                factors = torch.ones(rows)
                factors[place] = factor
                try:
                    sums[factor] = total(factors, clip)
                except TacitError as error:
                    notes.fact(f"{clip} {unit} {factor}", type(error).__name__)
                    return
                notes.fact(f"{clip} {unit} {factor}", sums[factor])
            for factor in (1.0, 1e3):
                if sums[factor].shape != sums[0.0].shape:
                    continue
                moved = float((sums[factor] - sums[0.0]).nan_to_num(nan=1e9).norm())
                notes.law("one unit moves the sum", moved <= clip * (1 + slack), moved / clip)


def add_cases() -> None:
    try:
        count = len(_cases())
    except ImportError:
        return
    for at in range(count):
        EXPERIMENTS[f"case {at}: {_cases()[at].name}"] = partial(one_case, number=at)


def _masked(causal: bool) -> Callable[[], nn.Module]:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            out, _ = self.attention(x, x, x, attn_mask=mask, is_causal=causal, need_weights=not causal)
            return self.head(out.mean(1))

    return Masked


class _Relative(nn.Module):
    """Attention with a learned bias of relative positions."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.Linear(4, 12)
        self.bias = nn.Parameter(torch.zeros(5, 5))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mixing(x).chunk(3, -1)
        return self.head(functional.scaled_dot_product_attention(q, k, v, self.bias).mean(1))


class _Weights(nn.Module):
    """Weights used in odd ways: subtracted from, in an einsum of its own letter, in views."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(numbers(5, seed=11))
        self.b = nn.Parameter(numbers(5, 3, 2, seed=12))
        self.table = nn.EmbeddingBag(6, 5, mode="sum")

    def forward(self, x: Tensor) -> Tensor:
        ids = torch.arange(3).repeat(len(x))
        bags = self.table(ids, torch.arange(len(x)) * 3, per_sample_weights=x[:, :3].reshape(-1))
        y = torch.rsub(x + bags, self.a, alpha=0.5) + torch.sub(x, self.a, alpha=2)
        return torch.einsum("ni,ijk->nj", y, self.b)


def _wide_images() -> nn.Module:
    """Few positions and many channels: norms by Gram matrices."""
    return nn.Sequential(nn.Conv2d(12, 24, 3, dilation=2), nn.Flatten(), nn.Linear(24 * 9, 3))


for _name, _make in {
    "masked attention": lambda: Setting(build=_masked(False), shape=(5, 4)),
    "causal attention": lambda: Setting(build=_masked(True), shape=(5, 4)),
    "relative positions": lambda: Setting(build=_Relative, shape=(5, 4)),
    "odd weights": lambda: Setting(build=_Weights),
    "wide images": lambda: Setting(build=_wide_images, shape=(12, 7, 7)),
    "wide sequences": lambda: Setting(
        build=lambda: nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Flatten(), nn.Linear(120, 3)),
        shape=(3, 30)),
    "weight norm": lambda: Setting(
        build=lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 6)), nn.Linear(6, 3))),
    "transposed weights": lambda: Setting(build=_Transposed),
    "kernels as large as images": lambda: Setting(
        build=lambda: nn.Sequential(nn.Conv2d(24, 64, 3), nn.Flatten(), nn.Linear(256, 3)), shape=(24, 4, 4)),
    "masks by row and head": lambda: Setting(build=_MaskedByHead, shape=(5, 4)),
    "half-frozen norms": lambda: Setting(build=_half_frozen, shape=(4, 5)),
    "nothing but NaN": lambda: Setting(loss=_root, plan={"noise": "exact"}, spoil=False),
}.items():
    EXPERIMENTS[f"sum: {_name}"] = _lazily(_make)


class _MaskedByHead(nn.Module):
    """A mask for every row and head, padding, and a learned key."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        count, time = x.shape[:2]
        mask = torch.zeros(2 * count, time, time).masked_fill(torch.ones(time, time).triu(2) > 0, -1e4)
        padding = torch.zeros(count, time, dtype=torch.bool)
        padding[:, -1] = True
        out, _ = self.attention(x, x, x, attn_mask=mask, key_padding_mask=padding.float() * -1e4)
        return self.head(out.mean(1))


def _half_frozen() -> nn.Module:
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.LayerNorm(5), nn.InstanceNorm1d(4, affine=True),
                          nn.Flatten(), nn.Linear(20, 3))
    model[0].weight.requires_grad_(requires_grad=False)
    model[1].bias.requires_grad_(requires_grad=False)
    model[2].weight.requires_grad_(requires_grad=False)
    return model


def _root(model: nn.Module, batch: Any) -> Tensor:
    """A loss whose gradient is NaN where it is 0, as it is for a record of factor 0."""
    x, _, factor = batch
    return (model(x).square().sum(1) * factor).clamp(min=0).sqrt()


class _Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(numbers(6, 5, seed=13).T)
        self.v = nn.Parameter(numbers(6, 4, seed=14)[:, :3])

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x @ self.w, self.v.T) + x @ self.w[:, :3]


@experiment("explained")
def _explained(notes: Notes) -> None:
    for build in (_Weights, dense, lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 6)), nn.Linear(6, 3))):
        said: list[str] = []
        trained(seeded(build), TensorDataset(*table(10)), plan_of(), after=lambda dp: said.append(dp.explain()))
        notes.fact("said", said)
