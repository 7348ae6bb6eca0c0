# ruff: noqa: ARG001, ARG005, B008, B023, E501, E731, PLC0415, PLR0915 - a law is one line, acts have one form, and tacit
# is imported in the process of its mutant
# fmt: off
"""The law of what a run releases and is charged for, measured from outside with closed expectations.

An oracle for mutants, which shares nothing with the self-test. Each experiment trains, charges or
draws on a small scale under fixed random bytes. It notes *facts*, which a mutant has in common with
the correct engine as long as nothing it touches changes, and *faults*, where a law is broken: one
record moves the sum by more than the clip, noise is narrower than planned, repeated or correlated,
a record is sampled too often, less is charged or claimed than was released, something that must be
refused is not, or private data reach what is not protected by noise.

``observe`` runs one experiment; ``classify`` compares what it saw with what was seen of the correct
engine. What differs in nothing is *equivalent* on everything that is run here; what differs and
keeps every law is *harmless*; what breaks one is *relevant*.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import hashlib
import io
import itertools
import json
import logging
import math
import os
import pickle
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

QUIET = 1e-7  # a noise multiplier that leaves the sum to be seen
CLIP = 0.5
DELTA = 1e-5
_VERIFIER = ("moved the sum by", "UnsupportedModel: replacing")
RARE = 1e-7  # how often a law of chance may fail on a correct engine


@dataclass
class Notes:
    """What an experiment saw: facts to compare, and laws that were broken."""

    folder: Path
    facts: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    error: str | None = None

    def fact(self, name: str, value: object) -> None:
        name = name if name not in self.facts else f"{name} ({len(self.facts)})"
        self.facts[name] = _print_of(value)

    def law(self, what: str, holds: object, seen: object = "") -> None:
        if not bool(holds):
            self.faults.append(f"{what}: {seen}" if seen != "" else what)


Experiment = Callable[[Notes], None]
EXPERIMENTS: dict[str, Experiment] = {}


def experiment(name: str) -> Callable[[Experiment], Experiment]:
    def keep(made: Experiment) -> Experiment:
        EXPERIMENTS[name] = made
        return made

    return keep


def observe(name: str) -> dict[str, Any]:
    """Runs one experiment, whatever it raises."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    logging.disable(logging.NOTSET)
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="law-", dir=where))
    notes = Notes(folder)
    try:
        with repeatable(name), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            EXPERIMENTS[name](notes)
    except Exception as error:  # whatever a mutant raises
        notes.error = f"{type(error).__name__}: {error}"[:300].replace(str(folder), "…")
        if any(words in notes.error for words in _VERIFIER):
            # Only because this very batch was looked at: on other data the sum is released.
            notes.faults.append(f"the engine's own check of a sum fails: {notes.error[:120]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"facts": notes.facts, "faults": notes.faults[:8], "error": notes.error}


def classify(
    right: Mapping[str, Mapping[str, Any]], seen: Mapping[str, Mapping[str, Any]]
) -> tuple[str, list[str]]:
    """The class of a mutant, and why: from what was seen of the correct engine and of it."""
    faults = [f"{name}: {fault}" for name, one in seen.items() for fault in one["faults"]]
    if faults:
        return "relevant", faults[:6]
    reasons = []
    for name, one in seen.items():
        known = right[name]
        if one["error"] != known["error"]:
            reasons.append(f"{name}: ends with {one['error']}")
        elif one["facts"] != known["facts"]:
            differing = [key for key, value in one["facts"].items() if known["facts"].get(key) != value]
            reasons.append(f"{name}: another {', '.join(differing[:3]) or 'set of facts'}")
    return ("harmless", reasons[:6]) if reasons else ("equivalent", [])


@contextlib.contextmanager
def repeatable(name: str) -> Iterator[None]:
    """The system's random bytes follow from ``name``; a forked child has others."""
    real, home, calls = os.urandom, os.getpid(), [0]

    def fixed(count: int) -> bytes:
        if "tacit" not in sys._getframe(1).f_code.co_filename:
            return real(count)  # of a library, at its import perhaps
        calls[0] += 1
        child = b"" if os.getpid() == home else b"child"
        return hashlib.shake_256(b"%d:%b:%b" % (calls[0], child, name.encode())).digest(count)

    os.urandom = fixed
    try:
        yield
    finally:
        os.urandom = real


def _print_of(value: object) -> str:
    digest = hashlib.sha256()
    _digest(value, digest)
    return digest.hexdigest()[:16]


def _digest(value: object, digest: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.float().numpy() if value.dtype == torch.bfloat16 else value.numpy()
    if isinstance(value, np.ndarray):
        digest.update(str((value.shape, value.dtype)).encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key in value:
            digest.update(repr(key).encode())
            _digest(value[key], digest)
    elif isinstance(value, list | tuple):
        for one in value:
            _digest(one, digest)
        digest.update(b";")
    else:
        digest.update(repr(value).encode())


# ---- runs, seen from outside


class Witness(torch.optim.SGD):
    """An optimizer that keeps what it is given, which is all that a step releases."""

    def __init__(self, parameters: Any, lr: float = 0.0, **options: Any) -> None:
        super().__init__(parameters, lr=lr, **options)
        self.given: list[np.ndarray] = []
        self.on_step: Callable[[], None] = lambda: None

    def step(self, closure: Any = None) -> Any:
        self.on_step()
        held = [p for group in self.param_groups for p in group["params"]]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in held]
        self.given.append(torch.cat([g.detach().double().flatten() for g in grads]).numpy())
        return super().step(closure)


class Rows(Dataset[Any]):
    """(x, y, factor) by index: no tensor data set, so that rows are collated."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)


def row_loss(model: nn.Module, batch: Any) -> Tensor:
    x, y, factor = batch
    return functional.cross_entropy(model(x).float(), y, reduction="none") * factor


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build()


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels(count: int, classes: int = 3) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(2))


def table(count: int = 10, *shape: int, factors: Tensor | None = None) -> tuple[Tensor, ...]:
    ones = torch.ones(count) if factors is None else factors
    return numbers(count, *(shape or (5,))), labels(count), ones


def plan_of(**changed: Any) -> Any:
    import tacit

    given = {"examples": 10, "lot_size": 10, "steps": 1, "noise_multiplier": QUIET, "clip": CLIP}
    return tacit.Plan(**(given | changed))


@dataclass
class Run:
    """What a run gave away: what every step released, times the lot size, and what it said."""

    sums: np.ndarray
    dp: Any
    model: nn.Module
    optimizers: list[Witness]


def trained(
    model: nn.Module, data: Any, plan: Any, *, loss: Any = row_loss, lr: float = 0.0,
    loop: str = "accumulate", on_step: Callable[[Any], None] | None = None, split: bool = False,
    steps: int | None = None, after: Callable[[Any], None] | None = None, **options: Any,
) -> Run:
    """A run of a plan, to its end or so many steps."""
    import tacit

    held = [p for p in model.parameters() if p.requires_grad]
    parts = [held[: len(held) // 2], held[len(held) // 2 :]] if split else [held]
    optimizers = [Witness(part, lr=lr) for part in parts]
    with tacit.private(model, optimizers if split else optimizers[0], plan, data, **options) as dp:
        if on_step is not None:
            optimizers[0].on_step = lambda: on_step(dp)
        for lot in dp.lots():
            if loop == "accumulate":
                dp.accumulate(lot, lambda batch: loss(model, batch))
            else:
                for batch in lot:
                    dp.backward(loss(model, batch))
            dp.step()
            if steps is not None and dp.steps_taken >= steps:
                break
        if after is not None:
            after(dp)
    given = [np.concatenate(one) for one in zip(*(o.given for o in optimizers), strict=True)]
    return Run(np.array(given) * plan.lot_size, dp, model, optimizers)


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


def _sequence_tokens(count: int) -> Tensor:
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


def _performance(**given: Any) -> dict[str, Any]:
    import tacit

    return {"performance": tacit.training.Performance(**given)}


def _lazily(make: Callable[[], Setting]) -> Experiment:
    return lambda notes: sensitivity(make(), notes)


def _style(name: str, *arguments: Any, **given: Any) -> Any:
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
    "dense, batches of 3": lambda: Setting(options=_performance(batch=3)),
    "dense, single rows": lambda: Setting(options=_performance(batch=1)),
    "dense, collate": lambda: Setting(wrap=Rows, options={"collate": _collated}),
    "per layer": lambda: Setting(plan={"clipping": _style("PerLayer")}),
    "per group": lambda: Setting(
        plan={"clipping": _style("PerGroup", {"0": 0.3, "": 0.4}), "clip": None}
    ),
    "automatic": lambda: Setting(plan={"clipping": _style("Automatic")}),
    "automatic, wide": lambda: Setting(plan={"clipping": _style("Automatic", 1.0)}),
    "adaptive": lambda: Setting(plan={"clipping": _style("AdaptiveQuantile", count_noise=1e-3)}),
    "secure": lambda: Setting(plan={"noise": "secure"}),
    "exact": lambda: Setting(plan={"noise": "exact"}),
    "exact, per layer": lambda: Setting(plan={"noise": "exact", "clipping": _style("PerLayer")}),
    "views": lambda: Setting(plan={"views": 3}, wrap=Rows),
    "views, batches": lambda: Setting(plan={"views": 2}, options=_performance(batch=5)),
    "users": _users,
    "users, secure": lambda: _users("secure"),
    "users, views": lambda: _users(views=2),
    "bfloat16": lambda: Setting(options=_performance(precision="bfloat16"), slack=0.05),
    "float16": lambda: Setting(options=_performance(precision="float16"), slack=0.02),
    "images": lambda: Setting(build=_images, shape=(1, 9, 9)),
    "images, exact": lambda: Setting(build=_images, shape=(1, 9, 9), plan={"noise": "exact"}),
    "tied": lambda: Setting(build=Tied, inputs=_sequence_tokens, loss=_next_token),
    "tied, per layer": lambda: Setting(
        build=Tied, inputs=_sequence_tokens, loss=_next_token, plan={"clipping": _style("PerLayer")}
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
    "no padding": lambda: Setting(options=_performance(batch=8), plan={}),
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
            options = _performance(workers=workers, batch=4)
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


def _add_cases() -> None:
    try:
        count = len(_cases())
    except ImportError:
        return
    for at in range(count):
        EXPERIMENTS[f"case {at}: {_cases()[at].name}"] = partial(one_case, number=at)


# ---- noise: as wide as planned, in every entry, fresh and Gaussian


def noise(
    notes: Notes, *, steps: int = 160, build: Callable[[], nn.Module] = dense, **changed: Any
) -> None:
    plan = plan_of(noise_multiplier=1.3, steps=steps, lot_size=0.5, **changed)
    dtype = next(build().parameters()).dtype
    x, y, _ = table(10)
    data = TensorDataset(x.to(dtype), y, torch.zeros(10, dtype=dtype))
    clips: list[float] = []
    run = trained(
        seeded(build), data, plan, on_step=lambda dp: clips.append(dp._clip._clip)
    )
    notes.fact("noise", run.sums)
    notes.law("every step is taken", len(run.sums) == steps, len(run.sums))
    # With an adaptive clip the noise goes with the clip of its step, which moves after it.
    widths = [plan.clip, *clips[:-1]] if "clipping" in changed else [plan.clip] * steps
    scaled = run.sums / (plan.noise_multiplier * np.array(widths)[:, None])
    noise_laws(notes, scaled)


def noise_laws(notes: Notes, scaled: np.ndarray) -> None:
    """Laws of a (steps, entries) array that should be standard normal."""
    steps, entries = scaled.shape
    many = scaled.size
    spread = float(np.sqrt(np.mean(scaled**2)))
    notes.law("noise is as wide as planned", spread >= 1 - 5 / math.sqrt(2 * many), f"{spread:.4f}")
    scaled = scaled / max(spread, 1.0)  # more noise than planned is no fault
    by_entry = np.sqrt(np.mean(scaled**2, axis=0))
    least = 1 - math.sqrt(-2 * math.log(RARE / entries)) / math.sqrt(2 * steps) * 1.1
    notes.law("every entry has noise", by_entry.min() >= least, f"{by_entry.min():.3f}")
    by_step = np.sqrt(np.mean(scaled**2, axis=1))
    least = 1 - math.sqrt(-2 * math.log(RARE / steps)) / math.sqrt(2 * entries) * 1.1
    notes.law("every step has noise", by_step.min() >= least, f"{by_step.min():.3f}")
    # On a grid some numbers come again by chance; noise that is used twice has half of them.
    notes.law("no number comes again", len(np.unique(scaled)) >= 0.85 * many, len(np.unique(scaled)))
    limit = 5.5 / math.sqrt(many)
    for name, left, right in (
        ("steps", scaled[1:], scaled[:-1]),
        ("entries", scaled[:, 1:], scaled[:, :-1]),
        ("halves", scaled[:, : entries // 2], scaled[:, entries - entries // 2 :]),
        ("ends", scaled, scaled[:, ::-1] * (np.arange(entries) != entries // 2)),
    ):
        linked = abs(float(np.mean(left * right)))
        reach = 2.0 if name == "ends" else 1.2
        notes.law(f"noise of {name} is independent", linked <= reach * limit, f"{linked:.4f}")
        squares = abs(float(np.mean((left**2 - 1) * (right**2 - 1))))
        reach = 6.0 if name == "ends" else 3.0
        notes.law(f"and so is its size ({name})", squares <= reach * limit, f"{squares:.4f}")
    chance = stats.kstest(scaled.ravel(), "norm").pvalue
    notes.law("noise is Gaussian", chance > RARE, f"p = {chance:.2g}")
    tail = float(np.mean(np.abs(scaled) > 3))
    expected = 0.0027
    slack = 6 * math.sqrt(expected / many)
    notes.law("its tails are there", tail >= expected - slack, f"{tail:.5f}")


for _kind in ("fast", "secure", "exact"):
    EXPERIMENTS[f"noise: {_kind}"] = partial(noise, noise=_kind)
    EXPERIMENTS[f"noise: {_kind}, double"] = partial(
        noise, noise=_kind, build=lambda: dense().double()
    )
EXPERIMENTS["noise: per layer"] = lambda notes: noise(notes, clipping=_style("PerLayer"))
EXPERIMENTS["noise: half"] = lambda notes: noise(
    notes, build=lambda: nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3)), noise="fast"
)


@experiment("noise: large parameter")
def _large(notes: Notes) -> None:
    """Far entries of a large parameter: more than a block of any generator."""
    build = lambda: nn.Linear(700, 800)
    for kind in ("fast", "secure"):
        plan = plan_of(noise_multiplier=1.0, steps=2, lot_size=0.5, noise=kind)
        data = TensorDataset(numbers(10, 700), labels(10), torch.zeros(10))
        run = trained(seeded(build), data, plan)
        notes.fact(f"noise {kind}", run.sums)
        scaled = run.sums[:, :560_000].reshape(-1, 1000) / CLIP
        spread = np.sqrt(np.mean(scaled**2, axis=1))
        notes.law("noise everywhere", 0.85 <= spread.min() <= spread.max() <= 1.15, spread.min())
        equal = float(np.mean(scaled[1:] == scaled[:-1]))
        notes.law("no block comes again", equal < 0.01, equal)
        flat = np.sort(run.sums[0])
        again = float(np.mean(flat[1:] == flat[:-1])) if kind == "fast" else 0.0
        notes.law("no number comes again", again < 0.2, again)
        both = abs(float(np.mean(run.sums[0] * run.sums[1]))) / CLIP**2
        notes.law("two steps are independent", both <= 6 / math.sqrt(run.sums.shape[1]), both)


@experiment("noise: adaptive clip")
def _adaptive(notes: Notes) -> None:
    """The count has its noise, and the gradients' noise goes with the clip."""
    from tacit.training import AdaptiveQuantile

    style = AdaptiveQuantile(quantile=0.5, learning_rate=0.2, count_noise=2.0)
    for kind in ("fast", "secure"):
        plan = plan_of(
            noise_multiplier=1.3, steps=100, lot_size=5, clipping=style, noise=kind,
        )
        data = TensorDataset(*table(10, factors=torch.zeros(10)))
        clips: list[float] = []
        run = trained(seeded(dense), data, plan, on_step=lambda dp: clips.append(dp._clip._clip))
        notes.fact(f"noise {kind}", run.sums)
        notes.fact(f"clips {kind}", clips)
        widths = np.array([plan.clip, *clips[:-1]])
        noise_laws(notes, run.sums / (plan.noise_multiplier * widths[:, None]))
        moves = np.diff(np.log([plan.clip, *clips]))
        spread = float(np.std(moves)) / (style.learning_rate * style.count_noise / plan.lot_size)
        notes.law("the count has its noise", spread >= 0.65, f"{spread:.3f}")
        drift = float(np.mean(moves)) / style.learning_rate
        notes.law("and follows the norms", -0.9 <= drift <= 0.1, f"{drift:.3f}")


@experiment("noise: the count of an adaptive clip")
def _count(notes: Notes) -> None:
    """The count is that of the norms within the clip, and its noise does not follow the data."""
    from tacit.training import AdaptiveQuantile

    style = AdaptiveQuantile(quantile=0.5, learning_rate=0.01, count_noise=1.0)
    for kind in ("fast", "secure"):
        for factor in (0.0, 1e3):
            plan = plan_of(noise_multiplier=0.5, steps=60, clipping=style, noise=kind, clip=1e-3)
            clips: list[float] = []
            data = TensorDataset(*table(10, factors=torch.full((10,), factor)))
            trained(seeded(dense), data, plan, on_step=lambda dp: clips.append(dp._clip._clip))
            moves = np.diff(np.log([plan.clip, *clips])) / style.learning_rate
            notes.fact(f"moves {kind} {factor}", moves)
            spread = float(np.std(moves)) * plan.lot_size / style.count_noise
            notes.law("the count's noise is the plan's", 0.6 <= spread <= 1.5, f"{spread:.3f}")
            wanted = -0.5 if factor == 0.0 else 0.5
            notes.law("its mean is the count", abs(float(np.mean(moves)) - wanted) <= 0.1, float(np.mean(moves)))


# ---- sampling: seen in the sums, to which record i adds the i-th unit vector


class OneHot(nn.Module):
    """The gradient of record i is the i-th unit vector."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def _first(model: nn.Module, batch: Any) -> Tensor:
    return model(batch[0])


def sampling(notes: Notes, *, lot: float = 12.0, steps: int = 300, **changed: Any) -> None:
    count = changed.pop("count", 48)
    owners = changed.pop("owners", None)
    options = changed.pop("options", dict)()
    plan = plan_of(
        examples=count if owners is None else len(set(owners)), lot_size=lot, steps=steps, clip=1.0,
        **changed,
    )
    if owners is not None:
        options = options | {"groups": np.array(owners)}
    lots = trained(
        seeded(partial(OneHot, count)), TensorDataset(torch.eye(count)), plan, loss=_first, **options
    ).sums
    notes.fact("lots", np.round(lots, 3))
    inside = np.abs(lots) > 1e-3
    top = float(np.abs(lots).max(initial=0.0))
    notes.law("a record counts once in a lot", top <= 1.001, f"{top:.3f} clips")
    if owners is not None:
        user_laws(notes, lots, np.array(owners), plan)
        return
    rate, total = plan.sample_rate, inside.size
    seen = float(inside.mean())
    sigma = math.sqrt(rate * (1 - rate) / total)
    notes.law("the rate is the plan's", seen <= rate + 5.5 * sigma, f"{seen:.4f} for {rate:.4f}")
    by_record = inside.mean(0)
    most = rate + 6.5 * math.sqrt(rate * (1 - rate) / steps) + 1.0 / steps
    notes.law("so is every record's", by_record.max() <= most, f"{by_record.max():.3f}")
    if rate < 1 and "sampling" not in changed:
        independence(notes, inside, rate)


def independence(notes: Notes, inside: np.ndarray, rate: float) -> None:
    if not inside.any():
        return  # nobody is ever drawn: nothing is given away
    steps, count = inside.shape
    centred = inside - rate
    spread = float(np.var(inside.sum(1)) / (count * rate * (1 - rate)))
    low, high = (stats.chi2.isf(p, steps - 1) / (steps - 1) for p in (1 - RARE, RARE))
    notes.law("records join by themselves", 0.95 * low <= spread <= 1.05 * high, f"{spread:.3f}")
    unit = rate * (1 - rate)
    for name, left, right in (
        ("lots", centred[1:], centred[:-1]),
        ("neighbours", centred[:, 1:], centred[:, :-1]),
        ("opposites", centred[:, : count // 2], centred[:, count - count // 2 :]),
    ):
        linked = abs(float(np.mean(left * right))) / unit
        notes.law(f"{name} are independent", linked <= 6.5 / math.sqrt(left.size), f"{linked:.4f}")
    same = sum(bool((a == b).all()) and a.any() for a, b in itertools.pairwise(inside))
    notes.law("lots are fresh", same <= 1 + steps * 0.02, same)


def user_laws(notes: Notes, lots: np.ndarray, owners: np.ndarray, plan: Any) -> None:
    users = np.unique(owners)
    norms = np.stack([np.linalg.norm(lots[:, owners == user], axis=1) for user in users], 1)
    notes.law("a user adds one clip", norms.max() <= 1.001, f"{norms.max():.3f}")
    inside = norms > 1e-3
    rate = plan.sample_rate
    sigma = math.sqrt(rate * (1 - rate) / inside.size)
    notes.law("the users' rate is the plan's", inside.mean() <= rate + 5.5 * sigma, inside.mean())
    used = np.stack([(np.abs(lots[:, owners == user]) > 1e-3).sum(1) for user in users], 1)
    cap = plan.examples_per_user
    notes.law("the cap holds", used.max() <= cap, int(used.max()))


EXPERIMENTS["sampling: Poisson"] = sampling
EXPERIMENTS["sampling: rare"] = partial(sampling, lot=1.5, steps=300)
EXPERIMENTS["sampling: often"] = partial(sampling, lot=40.0, steps=150)
EXPERIMENTS["sampling: batches"] = lambda notes: sampling(
    notes, options=partial(_performance, batch=5), steps=120
)
EXPERIMENTS["sampling: exact"] = lambda notes: sampling(notes, noise="exact", steps=60)
EXPERIMENTS["sampling: secure"] = lambda notes: sampling(notes, noise="secure", steps=100)
EXPERIMENTS["sampling: full"] = partial(sampling, lot=48, steps=4)
EXPERIMENTS["sampling: truncated"] = lambda notes: sampling(
    notes, sampling=_style("TruncatedPoisson", 14), steps=200
)
EXPERIMENTS["sampling: users"] = lambda notes: sampling(
    notes, owners=[at // 4 if at < 32 else 8 + at % 7 for at in range(48)], lot=4.0, steps=150,
    unit="user", examples_per_user=2,
)
EXPERIMENTS["sampling: views"] = lambda notes: sampling(notes, views=2, steps=100)


@experiment("sampling: does not follow the data")
def _by_data(notes: Notes) -> None:
    """The same random bytes on other data and losses: the same lots."""
    found = []
    for factor in (1.0, 1e-3):
        with repeatable("same"):
            plan = plan_of(examples=24, lot_size=6, steps=30, clip=1.0)
            data = TensorDataset(factor * torch.eye(24))
            run = trained(seeded(partial(OneHot, 24)), data, plan, loss=_first)
            found.append(np.abs(run.sums) > 2e-4)
    notes.fact("lots", found[0])
    notes.law("lots do not follow the data", (found[0] == found[1]).all())


@experiment("fresh randomness")
def _fresh(notes: Notes) -> None:
    """With the system's own bytes no two runs agree, and torch's seed means nothing."""
    real = os.urandom
    for kind in ("fast", "secure"):
        found = []
        for _ in range(2):
            torch.manual_seed(0)
            os.urandom = os.getrandom
            try:
                plan = plan_of(examples=24, lot_size=6, steps=4, noise_multiplier=1.0, noise=kind)
                run = trained(seeded(partial(OneHot, 24)), TensorDataset(torch.eye(24)), plan, loss=_first)
            finally:
                os.urandom = real
            found.append(run.sums)
        notes.fact(kind, found[0].shape)
        equal = float(np.mean(found[0] == found[1]))
        notes.law("two runs have different noise", equal < 0.01, equal)


@experiment("seeded runs")
def _seeded_runs(notes: Notes) -> None:
    """A seed repeats a run, another one does not, and the claim is void."""
    found = []
    for seed in (1, 1, 2):
        plan = plan_of(examples=24, lot_size=6, steps=4, noise_multiplier=1.0)
        data = TensorDataset(torch.eye(24))
        run = trained(seeded(partial(OneHot, 24)), data, plan, loss=_first, unsafe_seed=seed)
        found.append(run.sums)
        words = " ".join(run.dp.statement(DELTA).assumptions)
        notes.law("a seed voids the claim", "VOIDS" in words)
    notes.fact("sums", found)
    notes.law("another seed, another run", not np.allclose(found[0], found[2]))


# ---- draws


def _draws(notes: Notes, name: str, values: Any, law: Any, size: int) -> None:
    """A chi-squared test of whole numbers against a law, and no link between neighbours."""
    drawn = np.asarray(values).astype(np.int64)
    notes.fact(name, drawn)
    low, high = (int(law.ppf(p)) for p in (0.02, 0.98)) if hasattr(law, "ppf") else law[1]
    pmf = law.pmf if hasattr(law, "pmf") else law[0]
    places = np.arange(low, high + 1)
    expected = np.array([pmf(k) for k in places]) * size
    rest = size - expected.sum()
    counted = np.array([(drawn == k).sum() for k in places])
    statistic = (((counted - expected) ** 2) / np.maximum(expected, 1e-9)).sum()
    statistic += (size - counted.sum() - rest) ** 2 / max(rest, 1e-9)
    chance = stats.chi2.sf(statistic, len(places))
    notes.law(f"{name} has its law", chance > RARE, f"p = {chance:.2g}")
    centred = (drawn - drawn.mean()) / max(drawn.std(), 1e-12)
    linked = abs(float(np.mean(centred[1:] * centred[:-1])))
    notes.law(f"{name} is independent", linked <= 6 / math.sqrt(size), linked)


@experiment("draws: discrete")
def _discrete(notes: Notes) -> None:
    from tacit import randomness as r

    size = 20_000
    stream = r.UnsafeSeededStream(3, "law")
    for scale in (0.7, 3.0):
        ratio = math.exp(-1 / scale)
        norm = (1 - ratio) / (1 + ratio)
        law = (lambda k, a=norm, b=ratio: a * b ** abs(k), (-int(3 * scale), int(3 * scale)))
        _draws(notes, f"discrete Laplace {scale}", r.discrete_laplace(scale, size, stream), law, size)
        total = sum(math.exp(-(k**2) / (2 * scale**2)) for k in range(-60, 61))
        law = (
            lambda k, s=scale, t=total: math.exp(-(k**2) / (2 * s**2)) / t,
            (-int(2 * scale + 1), int(2 * scale + 1)),
        )
        _draws(notes, f"discrete Gaussian {scale}", r.discrete_gaussian(scale, size, stream), law, size)
        cdf = partial(stats.laplace.cdf, scale=scale)
        law = (lambda k, f=cdf: f(k + 0.5) - f(k - 0.5), (-int(3 * scale), int(3 * scale)))
        _draws(notes, f"rounded Laplace {scale}", r.rounded_laplace(scale, size, stream), law, size)
        cdf = partial(stats.norm.cdf, scale=scale)
        law = (lambda k, f=cdf: f(k + 0.5) - f(k - 0.5), (-int(2 * scale + 1), int(2 * scale + 1)))
        _draws(notes, f"rounded Gaussian {scale}", r.rounded_gaussian(scale, size, stream), law, size)


@experiment("draws: wide")
def _wide(notes: Notes) -> None:
    from tacit import randomness as r

    stream, size = r.UnsafeSeededStream(4, "law"), 20_000
    for scale in (2.0**22 + 5, 1e9):
        for name, cdf in (("laplace", stats.laplace.cdf), ("gaussian", stats.norm.cdf)):
            for kind in ("discrete", "rounded"):
                found = getattr(r, f"{kind}_{name}")(scale, size, stream) / scale
                notes.fact(f"{kind} {name} {scale}", found)
                chance = stats.kstest(found, cdf).pvalue
                notes.law(f"{kind} {name} has its law", chance > RARE, f"p = {chance:.2g}")


@experiment("draws: grid")
def _grid(notes: Notes) -> None:
    from tacit import randomness as r

    stream, size = r.UnsafeSeededStream(5, "law"), 20_000
    for scale in (0.3, 7.0, 1e5):
        values = np.full(size, 0.1)
        for name, cdf, width in (
            ("grid_laplace", stats.laplace.cdf, 1.0),
            ("grid_gaussian", stats.norm.cdf, 1.0),
        ):
            try:
                found = np.asarray(getattr(r, name)(values, scale, 1.0, stream), dtype=float)
            except TypeError:
                found = np.asarray(getattr(r, name)(values, scale, stream=stream), dtype=float)
            notes.fact(f"{name} {scale}", found)
            spread = (found - 0.1) / (scale * width)
            ideal = math.sqrt(2) if "laplace" in name else 1.0
            ratio = float(np.std(spread)) / ideal
            notes.law(f"{name} is wide enough", ratio >= 0.95, f"{ratio:.3f}")
            chance = stats.kstest(spread, cdf).pvalue
            notes.fact(f"{name} {scale} p", round(chance, 3))
        step = r.granularity(scale)
        notes.fact(f"granularity {scale}", step)
        notes.law("the grid is fine", step <= scale / 1000, step / scale)
        notes.law("and a power of two", math.frexp(step)[0] == 0.5, step)


@experiment("draws: inclusion")
def _inclusion(notes: Notes) -> None:
    from tacit import randomness as r

    stream = r.UnsafeSeededStream(6, "law")
    for rate in (0.5, 0.1, 3e-3, 0.999, 0.25):
        count = 200_000
        found = r.included(count, rate, stream)
        notes.fact(f"included {rate}", found)
        seen = len(found) / count
        sigma = math.sqrt(rate * (1 - rate) / count)
        notes.law("the rate holds", seen - rate <= 5.5 * sigma, f"{seen} for {rate}")
        notes.law("nobody is in twice", len(np.unique(found)) == len(found))
    notes.fact("all", r.included(5, 1.0, stream))
    notes.fact("none", r.included(0, 0.5, stream))
    many = r.included(2**22 + 1000, 1e-3, stream)
    notes.fact("blocks", many)
    notes.law("the rate holds over blocks", len(many) <= 4595, len(many))
    picked = np.stack([r.subset(np.arange(10, 22), 4, stream) for _ in range(3000)])
    notes.fact("subset", picked)
    by_place = np.array([(picked == k).any(1).mean() for k in range(10, 22)])
    notes.law("subsets are uniform", np.abs(by_place - 1 / 3).max() <= 0.05, by_place.round(3).tolist())
    notes.law("of the right size", all(len(set(one)) == 4 for one in picked.tolist()))
    joint = float(np.mean((picked == 10).any(1) & (picked == 21).any(1)))
    notes.law("and jointly uniform", abs(joint - 12 / 132) <= 0.03, joint)


@experiment("draws: streams")
def _streams(notes: Notes) -> None:
    from tacit import randomness as r

    for make in (lambda: r.SecureStream("a"), lambda: r.UnsafeSeededStream(0, "a"), r.SystemStream):
        stream = make()
        pieces = [stream.bytes(count) for count in (0, 1, 7, 64, 4095, 4096, 4097, 3000, 600_000)]
        notes.fact("bytes", [hashlib.sha256(piece).hexdigest() for piece in pieces])
        notes.law("as many as asked", [len(p) for p in pieces] == [0, 1, 7, 64, 4095, 4096, 4097, 3000, 600_000])
        whole = np.frombuffer(b"".join(pieces), dtype=np.uint8)
        chance = stats.chisquare(np.bincount(whole, minlength=256)).pvalue
        notes.law("bytes are uniform", chance > RARE, chance)
        words = np.frombuffer(b"".join(pieces)[: len(whole) // 8 * 8], dtype=np.uint64)
        notes.law("no bytes come again", len(np.unique(words)) >= len(words) - 2, len(np.unique(words)))
        linked = np.corrcoef(whole[1:], whole[:-1])[0, 1]
        notes.law("and are independent", abs(linked) < 0.01, linked)
    two = [r.SecureStream("a").bytes(64) for _ in range(2)]
    notes.law("two streams differ", two[0] != two[1])
    names = [r.UnsafeSeededStream(0, name).bytes(64) for name in ("a", "b")]
    notes.law("purposes differ", names[0] != names[1])
    seeds = [r.UnsafeSeededStream(seed, "a").bytes(64) for seed in (0, 1)]
    notes.law("seeds differ", seeds[0] != seeds[1])


@experiment("draws: after a fork")
def _forked(notes: Notes) -> None:
    """A child draws other bytes than its parent, and none of its parent's noise."""
    from tacit import randomness as r

    stream = r.SecureStream("fork")
    stream.bytes(10)
    source = r.GaussianSource(torch.device("cpu"), r.SecureStream("noise"))
    rounded = r.RoundedGaussian(r.SecureStream("noise"), torch.device("cpu"))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = {"bytes": stream.bytes(32).hex(), "fast": "", "exact": ""}
        for name, drawn in (("fast", torch.zeros(4)), ("exact", torch.zeros(4, dtype=torch.int64))):
            try:
                source.normal_(drawn) if name == "fast" else rounded.integers_(drawn, 1e6)
                said[name] = str(drawn.tolist())
            except Exception as error:
                said[name] = type(error).__name__
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    said = json.loads(os.read(read, 65536).decode() or "{}")
    os.close(read)
    notes.law("a child says something", bool(said))
    own = stream.bytes(32).hex()
    fast, exact = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    source.normal_(fast)
    rounded.integers_(exact, 1e6)
    notes.law("a child has bytes of its own", said.get("bytes") != own)
    notes.law("and noise of its own", said.get("fast") != str(fast.tolist()))
    notes.law("on the grid too", said.get("exact") != str(exact.tolist()))
    notes.fact("child", sorted(said))


# ---- charges and claims


def _event(plan: Any, steps: int) -> Any:
    """What so many steps of a plan release, written down from its fields."""
    from tacit.accounting import Composed, Gaussian, PoissonSampled, Repeated

    one: Any = Gaussian(plan.noise_multiplier)
    if type(plan.clipping).__name__ == "AdaptiveQuantile":
        one = Composed(one, Gaussian(2.0 * plan.clipping.count_noise))
    kind = type(plan.sampling).__name__
    if kind != "FullBatch":
        more = 1 if plan.adjacency == "add-remove" else 0
        cut = (
            {"cap": plan.sampling.largest, "population": plan.examples + more}
            if kind == "TruncatedPoisson"
            else {}
        )
        one = PoissonSampled(plan.lot_size / plan.examples, one, **cut)
    return Repeated(one, steps)


def _epsilon(plan: Any, steps: int, delta: float) -> float:
    from tacit.accounting import epsilon

    return epsilon(_event(plan, steps), delta, adjacency=plan.adjacency)


def claims(notes: Notes, plan: Any, statement: Any, steps: int, charged: int) -> None:
    """A statement of a run that took ``steps`` steps and must be charged for ``charged``.

    Its JSON is read in another experiment: figures take their time.
    """
    from tacit.accounting.serialization import to_plain

    right = _epsilon(plan, charged, statement.delta)
    notes.fact("claim", round(statement.epsilon, 9))
    notes.law("ε covers the event", statement.epsilon >= right * (1 - 1e-7), f"{statement.epsilon} for {right}")
    notes.law("the event is the plan's", statement.event == to_plain(_event(plan, charged)))
    notes.law("steps are those taken", (statement.steps_taken or 0) >= steps, statement.steps_taken)
    notes.law("adjacency is the plan's", statement.adjacency == plan.adjacency)
    notes.law("unit is the plan's", statement.unit == plan.unit)
    notes.law("the plan is the plan's", statement.plan == plan.as_dict())
    notes.fact("fields", [statement.sampling, statement.noise, statement.assumptions,
                          statement.not_promised, statement.stopped_early, statement.randomness])


@experiment("plans")
def _plans(notes: Notes) -> None:
    """Every plan's event is what its fields say, and a budget is kept."""
    import tacit
    from tacit.training import AdaptiveQuantile, PerGroup, PerLayer, TruncatedPoisson

    adaptive = AdaptiveQuantile(count_noise=3.0)
    variations: list[dict[str, Any]] = [
        {}, {"adjacency": "replace-one"}, {"adjacency": "zero-out"}, {"clipping": adaptive},
        {"lot_size": 100}, {"sampling": TruncatedPoisson(60)}, {"noise": "secure"},
        {"noise": "exact"}, {"views": 3}, {"unit": "user", "examples_per_user": 2},
        {"clipping": PerGroup({"a": 3.0, "b": 4.0}), "clip": None}, {"clipping": PerLayer()},
        {"sampling": TruncatedPoisson(60), "adjacency": "replace-one"}, {"lot_size": 2.5},
    ]
    for changed in variations:
        given = {"examples": 100, "lot_size": 20, "steps": 7, "noise_multiplier": 1.1, "clip": 2.0}
        plan = tacit.Plan(**(given | changed))
        for steps in (1, 3, 7):
            notes.law("an event is its plan's", plan.event_after(steps) == _event(plan, steps), changed)
        notes.law("the whole is all steps", plan.event == _event(plan, 7))
        notes.law("σ·clip", math.isclose(plan.noise_scale, plan.noise_multiplier * plan.clip))
        notes.law("the clip", plan.sensitivity == plan.clip)
        notes.law("the rate", plan.sample_rate == plan.lot_size / plan.examples)
        right = _epsilon(plan, 7, 1e-4)
        notes.law("ε is the event's", plan.epsilon(1e-4) >= right * (1 - 1e-9))
        notes.law("JSON brings it back", tacit.Plan.from_json(plan.to_json()) == plan)
        notes.fact("words", [plan.describe(1e-4), plan.epochs, plan.to_json()])
        budget = {"epsilon": 2.0, "delta": 1e-4, "examples": 100, "lot_size": 20, "epochs": 1.3,
                  "clip": 2.0}
        found = tacit.Plan.for_budget(**(budget | changed))
        notes.fact("for a budget", found.to_json())
        kept = _epsilon(found, found.steps, 1e-4)
        notes.law("a budget is kept", kept <= 2.0 * (1 + 1e-9), kept)
        expected = 1.3 * 100 / found.lot_size
        notes.law("all its steps are there", found.steps >= expected - 1e-6, found.steps)
    from tacit.accounting import Composed, Gaussian, epsilon

    also = tacit.Plan.for_budget(
        epsilon=2.0, delta=1e-4, examples=100, lot_size=20, steps=9, clip=1.0, also=Gaussian(5.0)
    )
    both = epsilon(Composed(Gaussian(5.0), _event(also, 9)), 1e-4)
    notes.law("with what else is released", both <= 2.0 * (1 + 1e-9), both)
    group = PerGroup({"a": 3.0, "b": 4.0})
    notes.law("the clip of groups", math.isclose(group.clip, 5.0), group.clip)


@experiment("claims")
def _claims(notes: Notes) -> None:
    from tacit.training import AdaptiveQuantile, TruncatedPoisson

    for changed in (
        {}, {"adjacency": "replace-one", "noise": "secure"}, {"lot_size": 24, "noise": "exact"},
        {"sampling": TruncatedPoisson(14)}, {"clipping": AdaptiveQuantile(count_noise=3.0)},
    ):
        plan = plan_of(**({"examples": 24, "lot_size": 6, "steps": 5, "noise_multiplier": 1.0} | changed))
        data = TensorDataset(torch.eye(24))
        spent: list[tuple[int, float]] = []
        for stop_after, steps in ((None, None), (3, None), (None, 2), (4, 2)):
            run = trained(
                seeded(partial(OneHot, 24)), data, plan, loss=_first, stop_after=stop_after,
                steps=steps, after=lambda dp: spent.append((dp.steps_taken, dp.spent(DELTA))),
            )
            charged = plan.steps if stop_after is None else stop_after
            taken = len(run.sums)
            notes.law("no step beyond the end", taken <= charged, taken)
            notes.law("steps are counted", run.dp.steps_taken == taken, run.dp.steps_taken)
            claims(notes, plan, run.dp.statement(DELTA), taken, charged)
        for steps, value in spent:
            notes.law("what is spent covers it", value >= _epsilon(plan, steps, DELTA) * (1 - 1e-7))
        notes.fact("spent", spent)


@experiment("statements")
def _statements(notes: Notes) -> None:
    """A statement that claims less than its event is refused, however it is written."""
    from tacit.accounting import Gaussian, epsilon
    from tacit.accounting.serialization import to_plain
    from tacit.statement import Statement

    event = Gaussian(2.0)
    right = epsilon(event, DELTA)
    given: dict[str, Any] = {
        "epsilon": right, "delta": DELTA, "event": to_plain(event), "sampling": "none",
        "noise": "fast", "tacit_version": "1",
    }
    claim = Statement(**given)
    notes.fact("claim", claim.describe())
    notes.fact("figures", repr(claim.figures()))
    notes.law("reads back", Statement.from_json(claim.to_json()) == claim)
    infinite = Statement(**(given | {"epsilon": math.inf}))
    notes.law("an infinite ε stays", Statement.from_json(infinite.to_json()).epsilon == math.inf)
    for wrong in (
        {"epsilon": 0.9 * right}, {"epsilon": -1.0}, {"epsilon": math.nan}, {"delta": 0.0},
        {"delta": 1.5}, {"adjacency": "none"}, {"unit": "nobody"}, {"adjacency": "replace-one"},
        {"steps_planned": 3, "steps_taken": 5}, {"event": {}}, {"delta": DELTA / 10},
    ):
        must_refuse(notes, f"a statement with {wrong}", lambda w=wrong: Statement(**(given | w)))
    plain = json.loads(claim.to_json())
    for name, value in (("epsilon", 0.5 * right), ("delta", 1e-9), ("figures", {}), ("more", 1)):
        changed = json.dumps(plain | {name: value})
        must_refuse(notes, f"JSON with another {name}", lambda t=changed: Statement.from_json(t))
    less = copy.deepcopy(plain)
    for key, value in less["figures"].items():
        if isinstance(value, float) and value > 0:
            less["figures"][key] = 0.5 * value
            must_refuse(notes, f"another figure {key}", lambda t=json.dumps(less): Statement.from_json(t))
            less["figures"][key] = value
    must_refuse(notes, "a missing field", lambda: Statement.from_json(json.dumps({k: v for k, v in plain.items() if k != "event"})))
    must_refuse(notes, "no JSON", lambda: Statement.from_json("{"))


# What is refused for convenience: no law is broken where it is let pass.
CONVENIENT = frozenset({
    "no reason", "no name", "too much at once", "room for another unit", "no limit", "no such number",
    "an unknown adjacency", "an unknown unit", "a lease of nothing", "another optimizer's shapes",
    "a state of another class", "a state that does not load", "an average of another model",
    "another width", "another type", "more layers", "a state that cannot be kept", "no file",
    "a missing state", "another model", "no optimizer", "nothing to train", "whole losses",
    "losses that are no tensor", "losses from nowhere", "bounds that are no pairs", "no bounds",
    "a bound twice", "a precision that is none", "no workers", "no lease", "two schedulers",
    "an end before the start", "a plan of other fields", "a plan that is no JSON",
    "a plan of an unknown style", "a complex parameter", "no memory at all",
    "δ of 0 for a claim", "δ of 1 for what is spent", "whole noise of another type",
    "a purpose that is no text", "a larger subset", "an unknown group", "no budget",
    "losses of other shape for clipping", "a plan with {'clip': 10000000000000.0}",
    "a plan with {'clip': 1e-13}", "a plan with {'views': 0}", "a plan with {'steps': 0}",
    "a plan with {'clipping': 'flat'}", "a plan with {'sampling': 'poisson'}", "a plan with {'noise': 'loud'}",
    "a plan with {'unit': 'x'}", "a plan with {'adjacency': 'x'}", "a plan with {'clip': None}",
    "a plan with {'examples_per_user': 3}", "a plan with {'unit': 'user'}", "a missing field", "no JSON",
    "JSON with another more",
})


def must_refuse(notes: Notes, what: str, call: Callable[[], object]) -> None:
    from tacit.errors import TacitError

    try:
        call()
    except TacitError as error:
        by_chance = any(word in what for word in ("damaged", "older", "budget", "reservation"))
        words = "" if by_chance else f": {error}".replace(str(notes.folder), "…")
        notes.fact(what, f"{type(error).__name__}{words}")
    except Exception as error:  # refused all the same
        notes.fact(what, f"{type(error).__name__}")
    else:
        notes.fact(what, "let pass")
        notes.law(f"{what} is refused", what in CONVENIENT)


def ledger_at(notes: Notes, name: str = "budget") -> Any:
    import tacit

    return tacit.Ledger(f"sqlite:///{notes.folder / name}.db")


def charged_run(
    notes: Notes, budget: Any, plan: Any, *, lease: Any = 1, crash_at: int | None = None,
    released: list[int], **options: Any,
) -> Run | None:
    """A charged run: at every release the ledger must hold it already."""

    def on_step(dp: Any) -> None:
        released[0] += 1
        state = budget.ledger.refresh().budgets[budget.name]
        notes.law("charged before release", state.granted >= released[0], f"{state.granted} < {released[0]}")

    at = [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        at[0] += 1
        if crash_at is not None and released[0] >= crash_at:
            raise RuntimeError("crash")
        return model(batch[0])

    data = TensorDataset(torch.eye(24))
    target = options.pop("target", budget)
    try:
        return trained(
            seeded(partial(OneHot, 24)), data, plan, loss=loss, budget=target, on_step=on_step,
            **({"performance": _performance(lease=lease)["performance"]} | options),
        )
    except RuntimeError as error:
        if str(error) != "crash":
            raise
        return None


def spent_laws(notes: Notes, budget: Any, events: list[Any], adjacency: str = "add-remove") -> None:
    """What a budget says is spent covers the composition of what was released."""
    from tacit.accounting import Composed, delta

    spent = budget.spent()
    notes.fact("spent", [round(spent.epsilon, 9), spent.delta, round(spent.share, 9), spent.meaning])
    left = budget.remaining()
    notes.fact("left", [round(left.epsilon, 9), left.delta, round(left.share, 9), left.meaning])
    if events:
        real = delta(Composed(*events), spent.epsilon, adjacency=adjacency)
        notes.law("what is spent covers the releases", real <= spent.delta * (1 + 1e-6) + 1e-15, f"δ {real} > {spent.delta}")
    notes.law("no more than the limit", spent.epsilon <= budget.epsilon * (1 + 1e-9) or budget.composition == "renyi")
    notes.law("and of δ", spent.delta <= budget.delta * (1 + 1e-9), spent.delta)
    if budget.composition == "basic":
        notes.law("what is left is the rest", left.epsilon <= budget.epsilon - spent.epsilon + 1e-9)
        notes.law("and of δ as well", left.delta <= budget.delta - spent.delta + 1e-15, left.delta)


def _charged_plan(**changed: Any) -> Any:
    return plan_of(**({"examples": 24, "lot_size": 6, "steps": 6, "noise_multiplier": 2.0} | changed))


@experiment("ledger: a run")
def _ledger_run(notes: Notes) -> None:
    for lease in (1, 3, 50):
        budget = ledger_at(notes, f"run{lease}").open("b", 8.0, DELTA)
        plan, released = _charged_plan(), [0]
        run = charged_run(notes, budget, plan, lease=lease, released=released)
        assert run is not None
        state = budget.ledger.refresh().budgets["b"]
        notes.fact("granted", state.granted)
        notes.law("every step is granted", state.granted >= released[0], state.granted)
        claims(notes, plan, run.dp.statement(DELTA), released[0], plan.steps)
        ledger = run.dp.statement(DELTA).ledger or ""
        notes.law("the claim names the charge", "reservation" in ledger, ledger)
        spent_laws(notes, budget, [_event(plan, plan.steps)])
        budget.ledger.close()


@experiment("ledger: stopped and crashed")
def _ledger_crash(notes: Notes) -> None:
    budget = ledger_at(notes).open("b", 30.0, DELTA)
    plan, released, events = _charged_plan(), [0], []
    charged_run(notes, budget, plan, released=released, stop_after=3)
    events.append(_event(plan, 3))
    notes.law("an end in advance holds", released[0] == 3, released[0])
    spent_laws(notes, budget, events)
    charged_run(notes, budget, plan, released=released, steps=2)
    events.append(_event(plan, 6))
    spent_laws(notes, budget, events)
    for lease in (1, 4):
        charged_run(notes, budget, plan, released=released, crash_at=released[0] + 2, lease=lease)
        events.append(_event(plan, 6))
        spent_laws(notes, budget, events)
    granted = budget.ledger.refresh().budgets["b"].granted
    notes.fact("granted", granted)
    notes.law("crashed steps stay granted", granted >= released[0], (granted, released[0]))
    budget.ledger.close()


@experiment("ledger: resumed")
def _ledger_resumed(notes: Notes) -> None:
    """Over a crash and a rewound checkpoint no more steps are released than one plan has."""
    budget = ledger_at(notes).open("b", 30.0, DELTA)
    plan, released = _charged_plan(), [0]
    path = notes.folder / "run.ckpt"
    charged_run(notes, budget, plan, released=released, steps=2, after=lambda dp: dp.save(path))
    first = released[0]
    charged_run(notes, budget, plan, released=released, resume=path, crash_at=first + 2)
    run = charged_run(notes, budget, plan, released=released, resume=path)
    notes.fact("released", released)
    notes.law("one plan, its steps", released[0] <= plan.steps, released[0])
    notes.law("none beyond the grant", budget.ledger.refresh().budgets["b"].granted >= released[0])
    assert run is not None
    claims(notes, plan, run.dp.statement(DELTA), len(run.sums), plan.steps)
    notes.fact("lost", run.dp.steps_lost)
    spent = run.dp.spent(DELTA)
    notes.law("lost steps count", spent >= _epsilon(plan, released[0], DELTA) * (1 - 1e-7), spent)
    spent_laws(notes, budget, [_event(plan, plan.steps)])
    number = max(budget.ledger.books.reservations)
    other = budget.reservation(number)
    charged_run(notes, budget, plan, released=released, target=other)
    notes.law("a spent reservation gives none", released[0] <= plan.steps, released[0])
    must_refuse(notes, "resumed without its budget", lambda: trained(
        seeded(partial(OneHot, 24)), TensorDataset(torch.eye(24)), plan, loss=_first, resume=path))
    must_refuse(notes, "resumed in another budget", lambda: charged_run(
        notes, ledger_at(notes, "other").open("b", 9.0, DELTA), plan, released=[0], resume=path))
    must_refuse(notes, "a reservation of another plan", lambda: charged_run(
        notes, budget, _charged_plan(noise_multiplier=0.5), released=[0], target=other))
    budget.ledger.close()


@experiment("ledger: an older copy")
def _ledger_copy(notes: Notes) -> None:
    ledger = ledger_at(notes)
    budget = ledger.open("b", 30.0, DELTA)
    plan, released, path = _charged_plan(), [0], notes.folder / "run.ckpt"
    copied = notes.folder / "copy"
    ledger.close()
    shutil.copytree(notes.folder, copied, ignore=shutil.ignore_patterns("copy"))
    budget = ledger_at(notes).open("b", 30.0, DELTA)
    charged_run(notes, budget, plan, released=released, steps=2, after=lambda dp: dp.save(path))
    budget.ledger.close()
    for name in os.listdir(copied):
        shutil.copy(copied / name, notes.folder / name)
    must_refuse(notes, "a run on an older ledger", lambda: charged_run(
        notes, ledger_at(notes).open("b", 30.0, DELTA), plan, released=released, resume=path))


@experiment("ledger: several runs")
def _ledger_several(notes: Notes) -> None:
    """Runs and releases together keep within the limits, by each rule."""
    from tacit.accounting import Gaussian, Laplace, Repeated
    from tacit.errors import BudgetExceeded
    from tacit.ledger import Release

    plan = _charged_plan()
    for rule in ("basic", "renyi", "declared"):
        budget = ledger_at(notes, rule).open("b", 2.5, DELTA, composition=rule)
        events: list[Any] = []
        if rule == "declared":
            whats = [plan, Release(Gaussian(6.0)), plan]
            notes.fact("declared", [one.number for one in budget.declare(whats)])
            must_refuse(notes, "declared beyond the limit", lambda b=budget: b.declare([Release(Gaussian(0.5))]))
            events = [_event(plan, 6), Gaussian(6.0), _event(plan, 6)]
            charged_run(notes, budget, plan, released=[0])
            budget.reserve(Release(Gaussian(6.0))).lease(1)
            spent_laws(notes, budget, events)
            must_refuse(notes, "declared after a release", lambda b=budget: b.declare([plan]))
            must_refuse(notes, "undeclared", lambda b=budget: b.reserve(Release(Gaussian(9.0))))
            charged_run(notes, budget, plan, released=[6])
            must_refuse(notes, "used twice", lambda b=budget: charged_run(notes, b, plan, released=[12]))
            budget.ledger.close()
            continue
        for round_ in range(30):
            what = (plan, Release(Laplace(8.0)), Release(Repeated(Gaussian(9.0), 2)))[round_ % 3]
            fits = budget.affordable(what)
            notes.fact(f"fits {round_}", fits)
            try:
                if round_ % 3 == 0:
                    charged_run(notes, budget, plan, released=[budget.state.granted])
                elif round_ % 3 == 1:
                    budget.charge(what.event, label="one")
                else:
                    budget.reserve(what, steps=2).lease(2)
            except BudgetExceeded:
                notes.law("what fits is granted", not fits)
                notes.fact("full at", round_)
                break
            notes.law("what does not fit is refused", fits)
            events.append(_event(plan, 6) if round_ % 3 == 0 else what.event)
            spent_laws(notes, budget, events)
        else:
            notes.law("a budget ends", False)
        total_law(notes, budget, events)
        budget.ledger.close()


def total_law(notes: Notes, budget: Any, events: list[Any]) -> None:
    from tacit.accounting import Composed, delta

    real = delta(Composed(*events), budget.epsilon)
    notes.law("all together keep the limits", real <= budget.delta * (1 + 1e-6), real)


@experiment("ledger: reservations")
def _reservations(notes: Notes) -> None:
    from tacit.accounting import Gaussian, Laplace, PureDp, Repeated
    from tacit.errors import TacitError
    from tacit.ledger import Release

    budget = ledger_at(notes).open("b", 6.0, DELTA)
    what = Release(Repeated(Gaussian(8.0), 10))
    one = budget.reserve(what, steps=10, label="x", detail={"a": 1})
    notes.fact("lease", [one.lease(4), one.granted, one.left, one.lease(4, after=3), one.lease(2, after=4)])
    notes.law("four and two", one.granted == 6, one.granted)
    one.give_back(2)
    notes.law("two are back", (one.granted, one.left) == (4, 6), (one.granted, one.left))
    notes.law("no more than all", one.lease(99) == 6 and one.lease(1) == 0 and one.granted == 10)
    must_refuse(notes, "more given back than granted", lambda: one.give_back(11))
    one.end()
    notes.law("an end is an end", one.lease(1) == 0)
    must_refuse(notes, "given back after the end", lambda: one.give_back(1))
    notes.law("its ε", one.epsilon >= 0.9 * budget.spent().epsilon and one.delta > 0)
    empty = budget.reserve(what, steps=10)
    before = budget.spent().epsilon
    empty.end()
    notes.fact("ended unused", [before > budget.spent().epsilon, repr(one)])
    spent_laws(notes, budget, [what.event])
    pure = budget.charge(PureDp(0.5))
    notes.law("a pure release costs no δ", pure.delta == 0.0 and pure.epsilon >= 0.5, (pure.epsilon, pure.delta))
    spent_laws(notes, budget, [what.event])
    fixed = budget.at(1e-7).reserve(Release(Gaussian(20.0)))
    notes.law("a δ that was set", fixed.delta == 1e-7, fixed.delta)
    notes.law("is paid for", fixed.epsilon >= 0.99 * _gaussian_epsilon(20.0, 1e-7), fixed.epsilon)
    half = budget.at(0.0).reserve(Release(Laplace(10.0)))
    notes.law("δ = 0 for Laplace", (half.delta, half.epsilon >= 0.1) == (0.0, True), half.epsilon)
    must_refuse(notes, "δ = 0 for a Gaussian", lambda: budget.at(0.0).reserve(Release(Gaussian(5.0))))
    for name, wrong in {
        "another adjacency": lambda: budget.reserve(Release(Gaussian(5.0), "replace-one")),
        "another unit": lambda: budget.reserve(Release(Gaussian(5.0), unit="user")),
        "more steps than repetitions": lambda: budget.reserve(what, steps=11),
        "what does not fit": lambda: budget.reserve(Release(Gaussian(0.1))),
        "too much at once": lambda: budget.check_room([what] * 30),
        "room for another unit": lambda: budget.check_room([Release(Gaussian(9.0), unit="user")]),
        "an ε below what is charged": lambda: budget.amend(epsilon=0.1, reason="less"),
        "a δ below what is charged": lambda: budget.amend(delta=1e-12, reason="less"),
        "no reason": lambda: budget.amend(epsilon=9.0, reason=" "),
        "no such number": lambda: budget.reservation(10**6),
        "declared in another rule": lambda: budget.declare([what]),
        "other limits": lambda: budget.ledger.open("b", 7.0, DELTA),
        "no limit": lambda: budget.ledger.open("c", 2e6, DELTA),
        "δ of 1": lambda: budget.ledger.open("c", 1.0, 1.0),
        "a filter without δ": lambda: budget.ledger.open("c", 1.0, 0.0, composition="renyi"),
        "an unknown rule": lambda: budget.ledger.open("c", 1.0, DELTA, composition="free"),
        "no name": lambda: budget.ledger.open("", 1.0, DELTA),
        "the unit changed": lambda: budget.ledger.open("b", 6.0, DELTA, unit="user"),
        "an unknown adjacency": lambda: Release(Gaussian(1.0), "none"),
        "an unknown unit": lambda: Release(Gaussian(1.0), unit="nobody"),
        "a lease of nothing": lambda: one.lease(0),
        "a lease below nothing": lambda: one.lease(-3),
    }.items():
        must_refuse(notes, name, wrong)
    budget.check_room([Release(Gaussian(40.0))])
    before_ = budget.remaining()
    budget.amend(epsilon=12.0, reason="more")
    notes.law("a limit that was raised", budget.epsilon == 12.0 and budget.remaining().epsilon > before_.epsilon)
    notes.fact("amended", [budget.delta, budget.unit, budget.adjacency, budget.composition])
    other = budget.ledger.open("users", 3.0, 0.0, unit="user", adjacency="replace-one")
    with contextlib.suppress(TacitError):
        other.reserve(Release(Gaussian(9.0), "replace-one", "user"))
        notes.law("no Gaussian without δ", False)
    lone = budget.ledger.open("lone", 1.0, DELTA, composition="renyi")
    plan = plan_of(examples=1000, lot_size=10, steps=60, noise_multiplier=1.05)
    notes.fact("sole", lone.affordable(plan))
    with contextlib.suppress(TacitError):
        lone.reserve(plan, steps=60).lease(60)
        spent_laws(notes, lone, [_event(plan, 60)])
        notes.law("one plan fits", _epsilon(plan, 60, DELTA) <= 1.0)
    with contextlib.suppress(TacitError):
        lone.amend(epsilon=0.2, reason="less")
        notes.law("an amendment keeps what is charged", _epsilon(plan, 60, DELTA) <= 0.2)
    budget.ledger.close()


def _gaussian_epsilon(sigma: float, delta: float) -> float:
    from tacit.accounting import Gaussian, epsilon

    return epsilon(Gaussian(sigma), delta)


@experiment("ledger: a forked child")
def _ledger_fork(notes: Notes) -> None:
    """A child in the middle of a run takes none of its parent's steps."""
    budget = ledger_at(notes).open("b", 8.0, DELTA)
    plan = _charged_plan()
    model = seeded(partial(OneHot, 24))
    import tacit

    optimizer = Witness(model.parameters())
    said = ""
    with tacit.private(
        model, optimizer, plan, TensorDataset(torch.eye(24)), budget,
        performance=_performance(lease=4)["performance"],
    ) as dp:
        lots = dp.lots()
        lot = next(lots)
        dp.accumulate(lot, lambda batch: model(batch[0]))
        dp.step()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            count = len(optimizer.given)
            with contextlib.suppress(BaseException):
                for lot in lots:
                    dp.accumulate(lot, lambda batch: model(batch[0]))
                    dp.step()
                    break
            os.write(write, str(len(optimizer.given) - count).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        said = os.read(read, 100).decode()
        os.close(read)
        for lot in lots:
            dp.accumulate(lot, lambda batch: model(batch[0]))
            dp.step()
    granted = budget.ledger.refresh().budgets["b"].granted
    total = len(optimizer.given) + int(said or 0)
    notes.fact("steps", [len(optimizer.given)])
    notes.law("no step without a charge", total <= granted, (total, granted))
    budget.ledger.close()


# ---- fit, checkpoints, and what may be said


@experiment("fit")
def _fit(notes: Notes) -> None:
    """All options of ``fit``: the records of epochs claim no less than was released."""
    import tacit
    from tacit.accounting import Composed, Gaussian, epsilon

    plan = plan_of(examples=24, lot_size=6, steps=10, noise_multiplier=2.0)
    x, y = numbers(24, 5), labels(24)
    held = TensorDataset(numbers(9, 5, seed=7), labels(9))
    for also in (None, Gaussian(3.0)):
        model = seeded(dense)
        optimizer = Witness(model.parameters(), lr=0.1)
        average = torch.optim.swa_utils.AveragedModel(model)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        told: list[Any] = []
        rates: list[float] = []
        optimizer.on_step = lambda o=optimizer: rates.append(o.param_groups[0]["lr"])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            done = tacit.fit(
                model, TensorDataset(x, y), plan, optimizer=optimizer, delta=DELTA, held_out=held,
                scheduler=scheduler, average=average, average_from=4, also=also, progress=False,
                on_epoch=told.append, save=notes.folder / "fit.ckpt",
            )
        notes.fact("weights", list(model.parameters()))
        notes.fact("average", list(average.parameters()))
        notes.fact("rates", rates)
        notes.fact("said", [out.getvalue(), err.getvalue()])
        notes.law("every step", len(optimizer.given) == plan.steps, len(optimizer.given))
        for record in done.history:
            event = _event(plan, record.steps)
            right = epsilon(event if also is None else Composed(also, event), DELTA)
            notes.law("an epoch's ε", record.epsilon >= right * (1 - 1e-6), (record.epsilon, right))
            notes.fact("epoch", [record.epoch, record.steps, record.held_out_accuracy, round(record.epsilon, 9)])
        notes.law("all epochs are told", len(told) == len(done.history) >= 3, len(told))
        claims(notes, plan, done.statement, plan.steps, plan.steps)


@experiment("fit: stopped and resumed")
def _fit_stopped(notes: Notes) -> None:
    import tacit

    plan = plan_of(examples=24, lot_size=6, steps=9, noise_multiplier=2.0)
    data = TensorDataset(numbers(24, 5), labels(24))
    path = notes.folder / "fit.ckpt"
    budget = ledger_at(notes).open("b", 9.0, DELTA)
    total = 0
    for stop_at, resume in ((3, None), (None, path)):
        model = seeded(dense)
        optimizer = Witness(model.parameters(), lr=0.1, momentum=0.9)
        seen = [0]

        def stop(seen: list[int] = seen, stop_at: int | None = stop_at) -> bool:
            seen[0] += 1
            return stop_at is not None and seen[0] >= stop_at

        done = tacit.fit(
            model, data, plan, optimizer=optimizer, delta=DELTA, save=path, resume=resume,
            stop=stop, progress=False, budget=budget, performance=_performance(lease=2)["performance"],
        )
        total += len(optimizer.given)
        notes.fact("part", [done.stopped, len(optimizer.given), list(model.parameters())])
        notes.law("asked after each step", done.stopped == (stop_at is not None))
        claims(notes, plan, done.statement, total, plan.steps)
        granted = budget.ledger.refresh().budgets["b"].granted
        notes.law("charged", granted >= total, (granted, total))
    notes.law("all steps once", total <= plan.steps, total)
    spent_laws(notes, budget, [_event(plan, plan.steps)])
    budget.ledger.close()


def neighbours(notes: Notes, act: Callable[[Tensor, Tensor], object]) -> None:
    """What is seen beside the weights is the same on other data, under the same random bytes."""
    seen = []
    for factor in (1.0, 3.0):
        with repeatable("same"):
            torch.manual_seed(0)
            seen.append(_print_of(act(factor * numbers(24, 5), labels(24) if factor == 1 else 2 - labels(24))))
    notes.fact("seen", seen)
    notes.law("nothing but the weights follows the data", seen[0] == seen[1])


@experiment("secrets: output")
def _secrets(notes: Notes) -> None:
    import tacit

    def act(x: Tensor, y: Tensor) -> object:
        plan = plan_of(examples=24, lot_size=6, steps=6, noise_multiplier=2.0)
        model = seeded(dense)
        out, err, logged = io.StringIO(), io.StringIO(), io.StringIO()
        handler = logging.StreamHandler(logged)
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(logging.DEBUG)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                done = tacit.fit(
                    model, TensorDataset(x, y), plan, delta=DELTA, progress=True,
                    optimizer=Witness(model.parameters()), held_out=TensorDataset(numbers(9, 5), labels(9)),
                )
        finally:
            logging.getLogger().removeHandler(handler)
        lines = [_timeless(line) for line in f"{out.getvalue()}{err.getvalue()}{logged.getvalue()}".splitlines()]
        history = [(r.epoch, r.steps, r.held_out_accuracy, r.epsilon) for r in done.history]
        return [lines, history, done.statement.to_json()]

    neighbours(notes, act)


def _timeless(line: str) -> str:
    import re

    return re.sub(r"\d+(\.\d+)? ?(s|ms|min|h)\b|\d+:\d\d(:\d\d)?", "…", line)


@experiment("secrets: checkpoint")
def _secrets_kept(notes: Notes) -> None:
    def act(x: Tensor, y: Tensor) -> object:
        plan = plan_of(examples=24, lot_size=24, steps=3, noise_multiplier=2.0)
        path = notes.folder / "kept.ckpt"
        model = seeded(dense)
        kept: list[object] = []

        def after(dp: Any) -> None:
            dp.save(path)
            raw = path.read_bytes()
            length = int.from_bytes(raw[:8], "little")
            header = json.loads(raw[8 : 8 + length])  # whose order is by chance
            kept.append(json.dumps(header, sort_keys=True))
            kept.append(raw[8 + length :])
            kept.append(dp.explain())
            kept.append(sorted(os.listdir(notes.folder)))

        data = TensorDataset(x, y, torch.ones(24))
        trained(model, data, plan, after=after)
        return kept

    neighbours(notes, act)


@experiment("resumed runs")
def _resumed(notes: Notes) -> None:
    """What goes on from a checkpoint is new randomness, the same state, and all of the plan."""
    from tacit.training import AdaptiveQuantile

    for changed in ({}, {"clipping": AdaptiveQuantile(count_noise=2.0)}):
        plan = plan_of(**({"examples": 24, "lot_size": 6, "steps": 8, "noise_multiplier": 1.0} | changed))
        data = TensorDataset(*table(24, factors=torch.zeros(24)))
        path = notes.folder / "a.ckpt"
        first = trained(seeded(dense), data, plan, lr=0.5, steps=3, after=lambda dp: dp.save(path))
        parts = [first.sums]
        for _ in range(2):
            run = trained(seeded(dense), data, plan, lr=0.5, resume=path)
            parts.append(run.sums)
            notes.fact("clip", run.dp._clip._clip)
            notes.law("the rest of the plan", len(run.sums) == 5, len(run.sums))
            claims(notes, plan, run.dp.statement(DELTA), 8, 8)
        notes.fact("sums", parts)
        notes.law("no noise comes again", not np.isin(parts[1], np.concatenate([parts[0], parts[2]])).any())
        for seed in (5,):
            one = trained(seeded(dense), data, plan, steps=3, unsafe_seed=seed, after=lambda dp: dp.save(path))
            two = trained(seeded(dense), data, plan, resume=path, unsafe_seed=seed)
            notes.law("nor with a seed", not np.isin(two.sums, one.sums).any())
            notes.law("a seed is remembered", "VOIDS" in " ".join(two.dp.statement(DELTA).assumptions))
            three = trained(seeded(dense), data, plan, resume=path)
            notes.law("for good", "VOIDS" in " ".join(three.dp.statement(DELTA).assumptions))
        other = {"noise_multiplier": 0.5}
        must_refuse(notes, "resumed by another plan", lambda p=path, o=other: trained(
            seeded(dense), data, plan_of(**({"examples": 24, "lot_size": 6, "steps": 8} | o)), resume=p))
        must_refuse(notes, "another end", lambda p=path, q=plan: trained(
            seeded(dense), data, q, resume=p, stop_after=4))
        text = path.read_bytes()
        for at in (9, len(text) // 2, len(text) - 3):
            path.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
            must_refuse(notes, f"a damaged checkpoint at {at}", lambda p=path, q=plan: trained(
                seeded(dense), data, q, resume=p))
        path.write_bytes(text[: len(text) // 2])
        must_refuse(notes, "a torn checkpoint", lambda p=path, q=plan: trained(seeded(dense), data, q, resume=p))
    run = trained(seeded(dense), TensorDataset(*table(24)), plan_of(examples=24, lot_size=6, steps=3),
                  lr=0.1, after=lambda dp: dp.save(path), state={"mine": _Mine()})
    must_refuse(notes, "a missing state", lambda: trained(
        seeded(dense), TensorDataset(*table(24)), plan_of(examples=24, lot_size=6, steps=3), resume=path))
    must_refuse(notes, "another model", lambda: trained(
        seeded(Tied), TensorDataset(*table(24)), plan_of(examples=24, lot_size=6, steps=3), resume=path,
        state={"mine": _Mine()}))


class _Mine:
    def state_dict(self) -> dict[str, Any]:
        return {"numbers": [1, 2.5, None, "x", True], "tensor": torch.ones(3), "map": {1: (2, 3)}}

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@experiment("loops")
def _loops(notes: Notes) -> None:
    """A loop by hand: evaluation and public steps in between, a loop left early, verification."""
    import tacit

    plan = plan_of(examples=24, lot_size=6, steps=5, noise_multiplier=QUIET)
    model = seeded(dense)
    optimizer = Witness(model.parameters(), lr=0.1)
    data = TensorDataset(*table(24))
    with tacit.private(model, optimizer, plan, data, **_performance(batch=4)) as dp:
        notes.fact("verified", dp.verify(lambda batch: row_loss(model, batch)))
        before = [p.detach().clone() for p in model.parameters()]
        notes.law("nothing moved", all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)))
        for lot in dp.lots():
            notes.fact("lot", [lot.step, lot.epoch])
            for batch in lot:
                losses = row_loss(model, batch)
                dp.backward(losses)
            with torch.no_grad():
                model(data.tensors[0])
            dp.step()
            notes.law("no gradient stays", all(p.grad is None for p in model.parameters()))
            if lot.step == 2:
                with dp.public():
                    row_loss(model, data.tensors).mean().backward()
                    optimizer.step()
                dp.verify()
    notes.fact("weights", list(model.parameters()))
    notes.fact("given", optimizer.given)
    notes.fact("spent", dp.spent(DELTA) > 0)
    notes.law("hooks are gone", not optimizer._optimizer_step_pre_hooks)


# ---- rarer ways


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@experiment("fit: on a terminal")
def _fit_on_terminal(notes: Notes) -> None:
    """What is shown there may be secret; ε and the steps are what they are elsewhere."""
    import tacit
    from tacit.training.counting import counting

    plan = plan_of(examples=24, lot_size=6, steps=8, noise_multiplier=2.0)
    for screen, wanted in ((_Terminal(), None), (io.StringIO(), True), (io.StringIO(), None)):
        model = seeded(dense)
        with contextlib.redirect_stderr(screen):
            done = tacit.fit(
                model, TensorDataset(numbers(24, 5), labels(24)), plan, delta=DELTA, progress=wanted,
                optimizer=Witness(model.parameters(), lr=0.1), held_out=TensorDataset(numbers(9, 5), labels(9)),
            )
            with counting(wanted, "parts", total=20, done=0) as show:
                for at in range(21):
                    show(at)
        if not screen.isatty():
            lines = [_timeless(line) for line in screen.getvalue().splitlines()]
            notes.fact("lines", lines)
            notes.law("no loss in a file", "loss" not in screen.getvalue())
        claims(notes, plan, done.statement, 8, 8)


@experiment("ledger: leases by the pace")
def _auto_lease(notes: Notes) -> None:
    budget = ledger_at(notes).open("b", 30.0, DELTA)
    plan, released = _charged_plan(steps=80, noise_multiplier=4.0), [0]
    charged_run(notes, budget, plan, lease="auto", released=released)
    notes.law("all steps", released[0] == 80, released[0])
    granted = budget.ledger.refresh().budgets["b"].granted
    notes.law("all are granted", granted >= 80, granted)
    spent_laws(notes, budget, [_event(plan, 80)])
    budget.ledger.close()


@experiment("ledger: verified")
def _ledger_verified(notes: Notes) -> None:
    from tacit.accounting import Composed, Gaussian, Laplace, PureDp, Repeated
    from tacit.ledger import Release

    for rule in ("basic", "renyi"):
        ledger = ledger_at(notes, rule)
        budget = ledger.open("b", 20.0, 1e-4, composition=rule)
        events = [
            Laplace(2.0), Gaussian(5.0), Composed(Laplace(9.0), Laplace(8.0)), PureDp(0.25),
            Repeated(Laplace(20.0), 5), Composed(Gaussian(9.0), Laplace(4.0)),
        ]
        for event in events:
            one = budget.reserve(Release(event))
            notes.law("a step", one.lease(1) == 1)
            notes.fact("charge", [round(one.epsilon, 9), one.delta])
        spent_laws(notes, budget, events)
        report = ledger.verify() if hasattr(ledger, "verify") else None
        notes.fact("verified", type(report).__name__)
        ledger.close()
    free = ledger_at(notes, "free").open("b", 1.0, 0.0)
    for event in (Composed(Laplace(9.0), Laplace(8.0)), Repeated(PureDp(0.1), 3), PureDp(0.2)):
        one = free.reserve(Release(event))
        one.lease(1)
        notes.fact("pure charge", [one.epsilon, one.delta])
    notes.law("pure charges add up", free.spent().epsilon >= 1 / 9 + 1 / 8 + 0.5 - 1e-9, free.spent().epsilon)
    must_refuse(notes, "more than is left", lambda: free.reserve(Release(PureDp(0.5))))
    free.ledger.close()


@experiment("fixed models")
def _fixed_models(notes: Notes) -> None:
    from tacit.training import fix, fixes

    shared = nn.BatchNorm2d(6)
    models = (
        nn.Sequential(nn.Conv2d(1, 6, 3), shared, nn.ReLU(), nn.Conv2d(6, 6, 3), shared),
        nn.Sequential(nn.Conv1d(1, 40, 3), nn.BatchNorm1d(40, affine=False), nn.Dropout()),
        nn.Sequential(nn.Conv2d(1, 64, 3), nn.SyncBatchNorm(64), nn.InstanceNorm2d(64, track_running_stats=True)),
        nn.BatchNorm2d(8), nn.Sequential(nn.Linear(3, 3), nn.GroupNorm(1, 3)),
        nn.Sequential(nn.BatchNorm3d(5, eps=1e-2, momentum=0.3)).eval(),
    )
    for model in models:
        fixed = fix(model)
        notes.fact("fixed", [str(fixed), str(fixes(model)), fixed.training, fixes(fixed)])
        norms = (nn.modules.batchnorm._BatchNorm,)
        notes.law("no batch norm is left", not any(isinstance(m, norms) for m in fixed.modules()))
        kept = any(getattr(m, "track_running_stats", False) for m in fixed.modules())
        notes.law("and no statistics", not kept)
    must_refuse(notes, "a batch norm of vectors", lambda: fix(nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1))))


class _Odd:
    """State with tied, overlapping, odd tensors and keys, to be kept whole."""

    def __init__(self) -> None:
        base = torch.arange(12.0)
        self.state: Any = {
            "tied": [base, base], "view": base[2:8], "rows": base.view(3, 4).T, "b": {"c": base[:3]},
            "b.c": torch.ones(2), 3: (1, 2), "half": torch.ones(2, dtype=torch.bfloat16), "s": {1},
        }

    def state_dict(self) -> dict[Any, Any]:
        return {key: value for key, value in self.state.items() if key != "s"}

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@experiment("checkpoints of all kinds")
def _checkpoints(notes: Notes) -> None:
    from tacit.errors import TacitError

    plan = plan_of(examples=24, lot_size=6, steps=4, noise_multiplier=1.0)
    data = TensorDataset(*table(24))
    path = notes.folder / "odd.ckpt"

    def saved(state: Any = None, build: Any = dense, split: bool = False) -> Run:
        return trained(
            seeded(build), data, plan, lr=0.1, steps=2, after=lambda dp: dp.save(path), split=split,
            state={} if state is None else {"odd": state},
        )

    def resumed(state: Any = None, build: Any = dense, split: bool = False) -> Run:
        return trained(
            seeded(build), data, plan, lr=0.1, resume=path, split=split,
            state={} if state is None else {"odd": state},
        )

    one, other = _Odd(), _Odd()
    first = saved(one)
    other.state = {}
    rest = resumed(other)
    notes.fact("state", other.state)
    notes.law("state is kept whole", _print_of(list(other.state.items())) == _print_of(list(one.state_dict().items())))
    notes.law("the weights go on", len(rest.sums) == 2)
    notes.fact("weights", list(rest.model.parameters()))
    for what, act in (
        ("another optimizer's shapes", lambda: resumed(_Odd(), split=True)),
        ("a state of another class", lambda: resumed(_Mine())),
        ("a state that does not load", lambda: (saved(_Mine()), resumed(_stubborn()))),
        ("an average of another model", lambda: (saved(_average(dense)), resumed(_average(Tied)))),
        ("another width", lambda: (saved(), resumed(build=lambda: nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))))),
        ("another type", lambda: (saved(), resumed(build=lambda: dense().double()))),
        ("more layers", lambda: (saved(), resumed(build=lambda: nn.Sequential(*dense(), nn.Linear(3, 3))))),
        ("a state that cannot be kept", lambda: saved(_Unkeepable())),
        ("no file", lambda: (path.unlink(), resumed())),
    ):
        must_refuse(notes, what, act)
    saved()
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    document = json.loads(header["__metadata__"]["document"])
    for name, value in (("steps_taken", 99), ("steps_taken", -1), ("steps_taken", 1.5), ("plan", 3), ("model", [])):
        header["__metadata__"]["document"] = json.dumps(document | {name: value})
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
        try:
            run = resumed()
        except (TacitError, TypeError, ValueError, KeyError) as error:
            notes.fact(f"{name} {value}", type(error).__name__)
        else:
            notes.law("a forged checkpoint is refused", False, f"{name}={value}: {len(run.sums)} steps")
    del first


def _stubborn() -> _Mine:
    def refuse(state: Any) -> None:
        raise ValueError("no")

    mine = _Mine()
    mine.load_state_dict = refuse  # type: ignore[method-assign]
    return mine


def _average(build: Callable[[], nn.Module]) -> Any:
    return torch.optim.swa_utils.AveragedModel(seeded(build))


class _Unkeepable(_Mine):
    def state_dict(self) -> dict[str, Any]:
        return {"object": object()}


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


@experiment("draws: odd tensors")
def _odd_tensors(notes: Notes) -> None:
    from tacit import randomness as r

    cpu = torch.device("cpu")
    source = r.GaussianSource(cpu, r.UnsafeSeededStream(1, "noise"))
    for dtype in (torch.float32, torch.float64):
        whole = torch.zeros(300, 200, dtype=dtype)
        source.normal_(whole.T[::2], 3.0)
        notes.fact("strided", whole)
        notes.law("scaled", 0.97 <= float(whole[:, ::2].std()) / 3.0 <= 1.03, float(whole[:, ::2].std()))
        notes.law("no other entry", not whole[:, 1::2].any())
        odd = torch.zeros(7, dtype=dtype)
        source.normal_(odd)
        notes.law("odd sizes", bool((odd != 0).all()))
    rounded = r.RoundedGaussian(r.UnsafeSeededStream(2, "noise"), cpu)
    whole = torch.zeros(300, 200, dtype=torch.int64)
    rounded.integers_(whole.T[::2], 1e4)
    notes.fact("strided whole numbers", whole)
    notes.law("all of them", float((whole[:, ::2] != 0).double().mean()) > 0.99 and not whole[:, 1::2].any())
    many = torch.zeros(40_001, dtype=torch.int64)
    for scale in (0.4, 3.0, 5e5, 1e12):
        rounded.integers_(many, scale)
        notes.fact(f"rounded {scale}", many)
        spread = float(many.double().std()) / math.sqrt(scale**2 + 1 / 12)
        least, most = (0.98, 1.02) if scale > 1 else (0.9, 1.1)
        notes.law("as wide as asked", least <= spread <= most, (scale, spread))
        linked = abs(float(np.corrcoef(many[1:].numpy(), many[:-1].numpy())[0, 1]))
        notes.law("independent", linked < 0.03, linked)
    for what, act in (
        ("whole noise of another type", lambda: rounded.integers_(torch.zeros(3), 1.0)),
        ("too wide", lambda: rounded.integers_(many, 2.0**50)),
        ("no width", lambda: rounded.integers_(many, 0.0)),
        ("a scale too large", lambda: r.discrete_laplace(2.0**60, 3, r.SystemStream())),
        ("a step that is no power of two", lambda: r.on_grid([1.0], 0.3)),
        ("a purpose that is no text", lambda: r.SecureStream(3)),
        ("a larger subset", lambda: r.subset(np.arange(3), 4, r.SystemStream())),
        ("a rate above 1", lambda: r.included(3, 1.5, r.SystemStream())),
    ):
        must_refuse(notes, what, act)
    notes.fact("on grid", r.on_grid([0.1, -0.3, 7.25, 1e-9], 0.25))


def _more_refusals() -> dict[str, Callable[[], object]]:
    import tacit
    from tacit.ledger import Ledger
    from tacit.training import PerGroup

    data = TensorDataset(*table(10))
    quick = plan_of(steps=2)

    def looped(loss: Callable[..., Tensor], build: Callable[[], nn.Module] = dense, **options: Any) -> Callable[[], object]:
        return lambda: trained(seeded(build), data, quick, loss=loss, **options)

    def by_hand(model: nn.Module, batch: Any) -> Tensor:
        losses = row_loss(model, batch)
        losses.sum().backward(retain_graph=True)
        return losses

    def penalised(model: nn.Module, batch: Any) -> Tensor:
        x = batch[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return row_loss(model, batch) + slope.square().sum(1)

    def mixed(model: nn.Module, batch: Any) -> Tensor:
        losses = row_loss(model, batch)
        return losses / losses.detach().abs().max().clamp(min=1e-3)

    def shuffled(model: nn.Module, batch: Any) -> Tensor:
        return row_loss(model, batch).flip(0)

    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, w: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x @ w.T

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return grad.T @ ctx.saved_tensors[0], None

    def unseen(model: nn.Module, batch: Any) -> Tensor:
        x, y, _ = batch
        return functional.cross_entropy(Hidden.apply(model.weight, x) + model.bias, y, reduction="none")

    def written(model: nn.Module, batch: Any) -> Tensor:
        with torch.no_grad():
            model[0].bias.add_(batch[0].mean())
        return row_loss(model, batch)

    def always_full(model: nn.Module, batch: Any) -> Tensor:
        raise torch.OutOfMemoryError("made up")

    def no_step() -> None:
        model = seeded(dense)
        with tacit.private(model, Witness(model.parameters()), quick, data) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: row_loss(model, batch))

    def ended_early() -> None:
        model = seeded(dense)
        with tacit.private(model, Witness(model.parameters()), quick, data) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: row_loss(model, batch))
                break

    def two_schedulers() -> object:
        model = seeded(dense)
        optimizer = Witness(model.parameters())
        one, other = (torch.optim.lr_scheduler.StepLR(optimizer, 1) for _ in range(2))
        return tacit.fit(model, data, quick, optimizer=optimizer, delta=DELTA, scheduler=one,
                         state={"scheduler": other}, loss=row_loss, progress=False)

    def chosen_delta() -> object:
        with tempfile.TemporaryDirectory() as folder:
            return Ledger(f"sqlite:///{folder}/l.db").open("b", 1.0, DELTA, composition="renyi").at(1e-7)

    def table_with(**options: Any) -> Callable[[], object]:
        model = lambda: nn.Sequential(nn.Embedding(9, 4, **options), nn.Flatten(), nn.Linear(24, 3))
        rows = TensorDataset(_sequence_tokens(10), labels(10), torch.ones(10))
        return lambda: trained(seeded(model), rows, quick)

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)
            self.scale = nn.Parameter(torch.ones(5))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(functional.batch_norm(x, None, None, self.scale, training=True))

    def writing(model: nn.Module, batch: Any) -> Tensor:
        x, y, factor = batch
        return functional.cross_entropy(torch.zeros(len(x), 3).addmm_(x, model.weight.T), y, reduction="none") * factor

    stranger = nn.Parameter(torch.ones(3))

    def foreign(model: nn.Module, batch: Any) -> Tensor:
        x, y, factor = batch
        return functional.cross_entropy(model(x) * stranger, y, reduction="none") * factor

    def shared_rows() -> object:
        model, rows = seeded(dense), TensorDataset(*table(20))
        return tacit.fit(
            model, Subset(rows, range(10)), quick, optimizer=Witness(model.parameters()), delta=DELTA,
            held_out=Subset(rows, range(5, 20)), loss=row_loss, progress=False,
        )

    return {
        "backward by hand in a batch": looped(by_hand),
        "a weight written into a tensor": looped(writing, lambda: nn.Linear(5, 3)),
        "a parameter that is not the model's": looped(foreign, lambda: nn.Linear(5, 3)),
        "held-out data that share rows": shared_rows,
        "a penalty on gradients": looped(penalised),
        "losses that mix": looped(mixed),
        "losses in another order": looped(shuffled),
        "a hidden use": looped(unseen, lambda: nn.Linear(5, 3)),
        "a weight written in the forward pass": looped(written),
        "no memory at all": looped(always_full),
        "lots without a step": no_step,
        "an end without a step": ended_early,
        "two schedulers": two_schedulers,
        "a δ of one's own": chosen_delta,
        "an embedding by frequency": table_with(scale_grad_by_freq=True),
        "an embedding of bounded norm": table_with(max_norm=1.0),
        "a functional batch norm": looped(row_loss, Functional),
        "a complex parameter": lambda: trained(
            seeded(lambda: nn.Linear(5, 3, dtype=torch.complex64)), data, quick),
        "bounds that are no pairs": lambda: PerGroup([3.0]),
        "no bounds": lambda: PerGroup({}),
        "a bound twice": lambda: PerGroup([("a", 1.0), ("a", 2.0)]),
        "a bound below 0": lambda: PerGroup({"a": -1.0}),
        "bounds that miss a parameter": lambda: trained(
            seeded(dense), data, plan_of(clipping=PerGroup({"0": 1.0}), clip=None)),
        "a plan of an unknown style": lambda: tacit.Plan.from_dict(
            quick.as_dict() | {"clipping": {"kind": "Strange"}}),
        "losses of other shape for clipping": lambda: tacit.training.clipping.clipped_gradients(
            {}, lambda: torch.ones(3), rows=4, clip=1.0),
        "a precision that is none": lambda: _performance(precision="int8"),
        "no workers": lambda: _performance(workers=-1),
        "no lease": lambda: _performance(lease=0),
        "δ of 0 for a claim": lambda: trained(seeded(dense), data, quick).dp.statement(0.0),
        "δ of 1 for what is spent": lambda: trained(seeded(dense), data, quick).dp.spent(1.0),
    }


# ---- what must be refused


class _Mixing(nn.Module):
    """Subtracts the mean over the batch: rows are not independent."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.mean(0))


class _Counting(nn.Module):
    """Keeps a statistic of its inputs in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.detach().sum(0)
        return self.layer(x)


class _Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


def _refusals() -> dict[str, Callable[[], object]]:
    import tacit
    from tacit.randomness import GaussianSource, SecureStream

    data = TensorDataset(*table(10))
    quick = plan_of(steps=2)

    def go(build: Callable[[], nn.Module] = dense, plan: Any = None, dataset: Any = None, **options: Any) -> object:
        return trained(seeded(build), data if dataset is None else dataset, plan or quick, **options)

    def inside(act: Callable[[Any, nn.Module, Any, Any], object], when: str = "batch") -> Callable[[], object]:
        def run() -> None:
            model = seeded(dense)
            optimizer = Witness(model.parameters(), lr=0.1)
            with tacit.private(model, optimizer, quick, data) as dp:
                if when == "start":
                    act(dp, model, optimizer, None)
                for lot in dp.lots():
                    for batch in lot:
                        losses = row_loss(model, batch)
                        if when == "batch":
                            act(dp, model, optimizer, losses)
                        dp.backward(losses)
                    if when == "lot":
                        act(dp, model, optimizer, lot)
                    dp.step()
                    if when == "step":
                        act(dp, model, optimizer, lot)
                if when == "end":
                    act(dp, model, optimizer, None)

        return run

    def grow(model: nn.Module) -> None:
        with torch.no_grad():
            next(model.parameters()).add_(1.0)

    def held(build: Callable[[nn.Module], Any]) -> Callable[[], object]:
        def run() -> object:
            model = seeded(dense)
            return tacit.private(model, build(model), quick, data)

        return run

    def stale_iteration() -> None:
        model = seeded(dense)
        with tacit.private(model, Witness(model.parameters()), quick, data, **_performance(batch=2)) as dp:
            for lot in dp.lots():
                for batch in lot:
                    dp.backward(row_loss(model, batch))
                    break
                dp.step()

    twice: dict[str, Any] = {}

    def entered_twice() -> None:
        model = seeded(dense)
        dp = tacit.private(model, Witness(model.parameters()), quick, data)
        with dp, dp:
            twice["in"] = True

    bn = lambda: nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    return {
        "batch norm": lambda: go(bn),
        "batch norm without statistics": lambda: go(
            lambda: nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)).eval()),
        "instance norm with statistics": lambda: go(
            lambda: nn.Sequential(nn.Unflatten(1, (1, 5)), nn.InstanceNorm1d(1, track_running_stats=True),
                                  nn.Flatten(), nn.Linear(5, 3))),
        "rows that mix": lambda: go(_Mixing),
        "a buffer that counts": lambda: go(_Counting),
        "data parallel": lambda: go(lambda: nn.DataParallel(dense())),
        "a data loader": lambda: go(dataset=DataLoader(data)),
        "a stream": lambda: go(dataset=_Stream()),
        "a sampler": lambda: go(dataset=torch.utils.data.SequentialSampler(data)),
        "too few examples": lambda: go(dataset=Subset(data, range(9))),
        "too many examples": lambda: go(dataset=TensorDataset(*table(11))),
        "no groups": lambda: go(plan=plan_of(unit="user", examples_per_user=2)),
        "groups of examples": lambda: go(groups=np.arange(10)),
        "too few groups": lambda: go(plan=plan_of(unit="user", examples_per_user=2), groups=np.arange(9)),
        "other users": lambda: go(plan=plan_of(unit="user", examples_per_user=2), groups=np.zeros(10, int)),
        "LBFGS": held(lambda m: torch.optim.LBFGS(m.parameters())),
        "SparseAdam": held(lambda m: torch.optim.SparseAdam(list(m.parameters()))),
        "no optimizer": held(lambda m: [object()]),
        "a parameter twice": held(lambda m: [Witness(m.parameters()), Witness(m.parameters())]),
        "a parameter that nobody holds": held(lambda m: Witness(m[0].parameters())),
        "nothing to train": lambda: tacit.private(
            (m := seeded(dense)).requires_grad_(False), Witness(m.parameters()), quick, data),
        "an optimizer's own step": inside(lambda dp, m, o, _: o.step()),
        "an optimizer's step between lots": inside(lambda dp, m, o, _: o.step(), "step"),
        "an optimizer's step after the lots": inside(lambda dp, m, o, _: o.step(), "end"),
        "a change in place in a batch": inside(lambda dp, m, o, _: grow(m)),
        "a change in place in a lot": inside(lambda dp, m, o, _: grow(m), "lot"),
        "a change in place between lots": inside(lambda dp, m, o, _: grow(m), "step"),
        "a change in place at the end": inside(lambda dp, m, o, _: grow(m), "end"),
        "a gradient by hand": inside(
            lambda dp, m, o, _: setattr(next(m.parameters()), "grad", torch.ones(6, 5)), "lot"),
        "a gradient in one entry by hand": inside(
            lambda dp, m, o, _: setattr(next(m.parameters()), "grad", torch.eye(6, 5)), "lot"),
        "a gradient by hand between lots": inside(
            lambda dp, m, o, _: setattr(next(m.parameters()), "grad", torch.eye(6, 5)), "step"),
        "losses that are added up": inside(lambda dp, m, o, losses: dp.backward(losses.sum())),
        "losses of other shape": inside(lambda dp, m, o, losses: dp.backward(losses[:1])),
        "losses in a column": inside(lambda dp, m, o, losses: dp.backward(losses[:, None])),
        "losses from nowhere": inside(lambda dp, m, o, losses: dp.backward(losses.detach())),
        "losses that are no tensor": inside(lambda dp, m, o, losses: dp.backward(losses.tolist())),
        "whole losses": inside(lambda dp, m, o, losses: dp.backward(losses.long())),
        "backward twice": inside(lambda dp, m, o, losses: dp.backward(losses)),
        "backward in a lot": inside(lambda dp, m, o, lot: dp.backward(torch.ones(10)), "lot"),
        "a step without a lot": inside(lambda dp, m, o, _: dp.step(), "start"),
        "a step twice": inside(lambda dp, m, o, _: dp.step(), "step"),
        "a step in a batch": inside(lambda dp, m, o, _: dp.step()),
        "a lot in a lot": inside(lambda dp, m, o, _: next(dp.lots()), "lot"),
        "saved in a lot": inside(lambda dp, m, o, _: dp.save(os.devnull), "lot"),
        "public in a lot": inside(lambda dp, m, o, _: dp.public().__enter__(), "lot"),
        "verified in a lot": inside(lambda dp, m, o, _: dp.verify(lambda b: row_loss(m, b)), "lot"),
        "an old lot": inside(lambda dp, m, o, lot: next(iter(lot)), "step"),
        "a lot left": stale_iteration,
        "entered twice": entered_twice,
        "outside": lambda: next(tacit.private(
            (m := seeded(dense)), Witness(m.parameters()), quick, data).lots()),
        "an end after the end": lambda: go(stop_after=3),
        "an end before the start": lambda: go(stop_after=0),
        "an unknown group": lambda: go(plan=plan_of(clipping=_style("PerGroup", {"nothing": 1.0}), clip=None)),
        "a seed with a budget": lambda: tacit.private(
            (m := seeded(dense)), Witness(m.parameters()), quick, data, object(), unsafe_seed=1),
        "no budget": lambda: tacit.private(
            (m := seeded(dense)), Witness(m.parameters()), quick, data, object()),
        "noise too wide for its grid": lambda: go(plan=plan_of(noise_multiplier=1e12, noise="secure")),
        "a half tensor for noise": lambda: GaussianSource(
            torch.device("cpu"), SecureStream("a")).normal_(torch.zeros(3, dtype=torch.float16)),
        "a stream copied": lambda: copy.deepcopy(SecureStream("a")),
        "a stream pickled": lambda: pickle.dumps(SecureStream("a")),
        "a source copied": lambda: copy.deepcopy(GaussianSource(torch.device("cpu"), SecureStream("a"))),
        "a source pickled": lambda: pickle.dumps(GaussianSource(torch.device("cpu"), SecureStream("a"))),
        "private data as held-out data": lambda: tacit.fit(
            (m := seeded(dense)), data, quick, optimizer=Witness(m.parameters()), delta=DELTA, held_out=data),
        "changed data": inside(lambda dp, m, o, _: data.tensors[0].mul_(1.0), "step"),
        "a budget that cannot be met": lambda: tacit.Plan.for_budget(
            epsilon=1.0, delta=1e-9, examples=100, lot_size=20, steps=50, clip=1.0,
            sampling=_style("TruncatedPoisson", 21)),
        "a count that costs too much": lambda: tacit.Plan.for_budget(
            epsilon=0.5, delta=1e-6, examples=100, lot_size=20, steps=50, clip=1.0,
            clipping=_style("AdaptiveQuantile", count_noise=0.1)),
        "also too much": lambda: tacit.Plan.for_budget(
            epsilon=0.5, delta=1e-6, examples=100, lot_size=20, steps=50, clip=1.0,
            also=tacit.accounting.Gaussian(1.0)),
        "a bound that is none": lambda: tacit.Plan.for_budget(
            epsilon=0.5, delta=1e-6, examples=100, lot_size=20, steps=50, clip=1.0, accountant="gdp-clt"),
        **_plan_refusals(),
        **_more_refusals(),
    }


def _plan_refusals() -> dict[str, Callable[[], object]]:
    import tacit

    wrong: tuple[dict[str, Any], ...] = (
        {"examples": 0}, {"lot_size": 0}, {"lot_size": 11}, {"steps": 0}, {"noise_multiplier": 0.0},
        {"noise_multiplier": -1.0}, {"noise_multiplier": math.nan}, {"noise_multiplier": math.inf},
        {"clip": -1.0}, {"clip": None}, {"clip": math.nan}, {"clip": 1e13}, {"clip": 1e-13},
        {"adjacency": "x"}, {"unit": "x"}, {"unit": "user"}, {"examples_per_user": 3}, {"views": 0},
        {"clipping": "flat"}, {"sampling": "poisson"}, {"noise": "loud"},
        {"lot_size": 5, "sampling": _style("FullBatch")}, {"sampling": _style("TruncatedPoisson", 3)},
        {"clipping": _style("PerGroup", {"": 1.0}), "clip": 2.0},
    )
    found: dict[str, Callable[[], object]] = {
        f"a plan with {one}": partial(plan_of, **one) for one in wrong
    }
    plan = plan_of(steps=3)
    found["more steps than planned"] = lambda: plan.event_after(4)
    found["steps below 0"] = lambda: plan.event_after(-1)
    found["a plan of other fields"] = lambda: tacit.Plan.from_dict({"steps": 3})
    found["a plan that is no JSON"] = lambda: tacit.Plan.from_json("{")
    for style in ("Automatic", "AdaptiveQuantile"):
        for value in (0.0, -1.0, math.nan):
            name = "stability" if style == "Automatic" else "count_noise"
            found[f"{style} with {value}"] = partial(_style, style, **{name: value})
    return found


def one_refusal(notes: Notes, name: str) -> None:
    must_refuse(notes, name, _refusals()[name])


def _add_refusals() -> None:
    for name in _refusals():
        EXPERIMENTS[f"refused: {name}"] = partial(one_refusal, name=name)


def prepare(names: list[str] | None = None) -> None:
    """Makes the experiments that need the package and its tests on the path; all, or for these."""
    sys.path[:] = [os.getcwd(), *[p for p in sys.path if p != os.getcwd()]]
    if names is None or any(name.startswith("case ") for name in names):
        _add_cases()
    if names is None or any(name.startswith("refused: ") for name in names):
        _add_refusals()
