"""What a run must refuse: changes by others, mixed rows, wrong data, calls out of order.

Each attempt is one small run in which one thing is forbidden. It must end in one of tacit's own
errors, with no step taken after the forbidden act; where weights were changed, nothing may be
claimed afterwards. The same run without the act must pass, or nothing would be learnt from the
others.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from tacit.auditing.replay.coverage import Tracer
from tacit.auditing.replay.subject import Outcome
from tacit.errors import TacitError
from tacit.randomness import GaussianSource, SystemStream, fresh_stream
from tacit.training.fit import Keeping, Prepared, Schedule, Watch, carry_out
from tacit.training.performance import Performance
from tacit.training.plan import Plan
from tacit.training.session import Session, private
from tacit.training.styles import PerGroup

if TYPE_CHECKING:
    from tacit.auditing.replay.subject import Task

_ROWS, _WIDTH, _CLASSES, _DELTA = 8, 5, 3, 1e-3


def refused_runs() -> list[str]:
    """What is not refused, in words; nothing for a right engine."""
    wrong: list[str] = []
    for name, honest in _HONEST.items():
        try:
            honest()
        except TacitError as error:
            wrong.append(f"{name} is refused: {error}")
    for name, attempt in attempts().items():
        wrong += tried(name, attempt)
    return wrong


def attempts() -> dict[str, Callable[[], object]]:
    """Everything that is tried, by name."""
    return {**_changes(), **_MODELS, **_LOSSES, **_DATA, **_HELD, **_ORDER}


def tried(name: str, attempt: Callable[[], object]) -> list[str]:
    """What is wrong with how an attempt ended: it must be refused by tacit itself."""
    try:
        said = attempt()
    except TacitError:
        return []
    except Exception as error:
        return [f"{name} ends with {type(error).__name__}: {error}"[:200]]
    return [f"{name} {said}" if isinstance(said, str) else f"{name} is not refused"]


def in_child(work: Callable[[], bytes]) -> bytes:
    """What ``work`` returns in a forked child; what is executed there counts as well."""
    traced = getattr(sys.gettrace(), "__self__", None)
    tracer = traced if isinstance(traced, Tracer) else Tracer()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work().hex()
            steps = {path: sorted(seen) for path, seen in tracer.arcs.items()}
            with os.fdopen(writing, "w") as pipe:
                json.dump([said, steps], pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        written = pipe.read()
    os.waitpid(child, 0)
    said, steps = json.loads(written) if written else ("", {})
    for path, seen in steps.items():
        tracer.arcs.setdefault(path, set()).update((before, after) for before, after in seen)
    return bytes.fromhex(said)


# ---- one small run


class _Model(nn.Module):
    """Two layers, one of them under a frozen parameter; a buffer; something beside both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(_WIDTH, 4), nn.Linear(4, _CLASSES)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(4))
        self.kept = 1

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(torch.tanh(self.first(x)) * self.frozen * self.scale)
        return result

    def get_extra_state(self) -> dict[str, int]:
        return {"kept": self.kept}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.kept = state["kept"]


class _Counter(torch.optim.SGD):
    """Counts its steps: each of them is a release."""

    def __init__(self, parameters: Any, lr: float = 0.1) -> None:
        super().__init__(parameters, lr=lr)
        self.count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        return super().step(closure)


def rows(count: int = _ROWS) -> tuple[Tensor, Tensor]:
    """The data of a small run."""
    seed = torch.Generator().manual_seed(11)
    x = torch.randn(count, _WIDTH, generator=seed)
    return x, torch.randint(_CLASSES, (count,), generator=seed)


def row_loss(model: nn.Module, batch: Any) -> Tensor:
    """Its loss."""
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def _plan(**changed: Any) -> Plan:
    given = {"examples": _ROWS, "lot_size": _ROWS, "steps": 3, "noise_multiplier": 1.0, "clip": 1.0}
    return Plan(**(given | changed))


@dataclass
class Scene:
    """What a forbidden act can reach."""

    dp: Session
    model: Any
    optimizer: Any
    data: Any
    lot: Any = None
    losses: Any = None
    before: int = 0  # steps that were taken before the act
    done: bool = False  # whether the act itself was let pass


Act: TypeAlias = Callable[[Scene], object]
_Loss: TypeAlias = Callable[[Any, Any], Any]
_MOMENTS = ("before the first lot", "in a rehearsal", "in a batch", "before a step",
            "between lots", "after the last lot", "after the run")  # fmt: skip

_IN_A_LOT = ("in a rehearsal", "in a batch", "before a step")


@dataclass
class Small:
    """A small run, honest but for one act at one moment, or one part of another kind."""

    build: Callable[[], nn.Module] = _Model
    loss: _Loss = row_loss
    data: Callable[[], Any] = lambda: TensorDataset(*rows())
    plan: Plan = field(default_factory=_plan)
    optimizer: Callable[[Any], Any] = lambda model: _Counter(model.parameters())
    options: Mapping[str, Any] = field(default_factory=dict)
    moment: str = ""
    after: int = 2  # steps, of what is done between lots
    act: Act = lambda _: None
    claims: bool = True  # whether the weights are still those of private steps
    late: int = 0  # steps that may be taken before it is noticed: they have their noise

    def __call__(self) -> str | None:
        """Runs to the end; what is wrong with how it was refused, where that is not an error."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = self.build()
        optimizer, data = self.optimizer(model), self.data()
        dp = private(model, optimizer, self.plan, data, **self.options)
        scene = Scene(dp, model, optimizer, data)
        try:
            self._run(scene)
            if self.moment == "after the run":
                self._do(scene)
            dp.statement(_DELTA)
        except TacitError:
            if getattr(optimizer, "count", 0) > scene.before + self.late:
                return "is refused after another step was taken"
            if not self.claims and scene.done:
                tried_claim = tried("", lambda: dp.statement(_DELTA))
                if tried_claim:
                    return "is refused, and claimed all the same"
            raise
        return None

    def counted(self, *errors: type[Exception]) -> int:
        """How many steps are taken until it ends, perhaps with one of ``errors``."""
        made: list[Any] = []

        def optimizer(model: Any) -> Any:
            made.append(self.optimizer(model))
            return made[0]

        with suppress(*errors):
            replace(self, optimizer=optimizer)()
        count: int = made[0].count
        return count

    def _run(self, scene: Scene) -> None:
        dp = scene.dp
        with dp:
            self._at("before the first lot", scene)
            for scene.lot in dp.lots():
                for batch in scene.lot:
                    scene.losses = self.loss(scene.model, batch)
                    if scene.lot.is_rehearsal:
                        self._at("in a rehearsal", scene)
                    elif dp.steps_taken == 1:
                        self._at("in a batch", scene)
                    dp.backward(scene.losses)
                if dp.steps_taken == 1:
                    self._at("before a step", scene)
                dp.step()
                if dp.steps_taken > self.plan.steps:
                    raise RuntimeError("more steps are taken than were planned")
                if dp.steps_taken == self.after:
                    self._at("between lots", scene)
            self._at("after the last lot", scene)

    def _at(self, moment: str, scene: Scene) -> None:
        if moment == self.moment:
            self._do(scene)

    def _do(self, scene: Scene) -> None:
        scene.before = getattr(scene.optimizer, "count", 0)
        self.act(scene)
        scene.done = True


def refuse() -> None:
    """Says that something was refused where it cannot be raised from."""
    raise TacitError("refused, as it should be")


# ---- changes that no private step made


def _data_of(scene: Scene) -> Tensor:
    found: Tensor = scene.model.second.weight.data
    return found


def _in_place(scene: Scene) -> None:
    with torch.no_grad():
        scene.model.first.weight.mul_(1.01)


def _stepped_elsewhere(scene: Scene, *, fused: bool) -> None:
    weight = scene.model.first.weight
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.1, fused=fused).step()


def _replaced(scene: Scene) -> None:
    scene.model.first.weight = nn.Parameter(scene.model.first.weight.detach().clone())


def _loaded(scene: Scene) -> None:
    scene.model.load_state_dict(_Model().state_dict())


def _gradient(scene: Scene, values: Callable[[Tensor], Tensor], name: str = "first") -> None:
    weight = getattr(scene.model, name)
    weight = weight if isinstance(weight, Tensor) else weight.weight
    weight.grad = values(weight)


def _one_entry(weight: Tensor) -> Tensor:
    values = torch.zeros_like(weight)
    values.view(-1)[-1] = 1e-3
    return values


def _new_buffer(scene: Scene) -> None:
    scene.model.scale = scene.model.scale + 1.0


def _new_extra(scene: Scene) -> None:
    scene.model.kept = 7


# Everything that a claim is about, and every way to change it that leaves another trace.
_OF_WEIGHTS: dict[str, Act] = {
    "a weight changed in place": _in_place,
    "a weight changed through .data": lambda s: _data_of(s).add_(0.5),
    "one entry changed through .data": lambda s: _data_of(s).view(-1)[-1:].add_(1e-3),
    "other .data": lambda s: setattr(s.model.first.bias, "data", torch.zeros(4)),
    "a weight changed through NumPy": lambda s: s.model.first.weight.detach().numpy().fill(0.1),
    "a frozen parameter changed": lambda s: s.model.frozen.add_(0.5),
    "weights that are loaded": _loaded,
    "a buffer changed in place": lambda s: s.model.scale.add_(0.5),
    "a buffer changed through .data": lambda s: s.model.scale.data.add_(0.5),
}
_OF_PLACES: dict[str, Act] = {
    "a weight replaced": _replaced,
    "a layer replaced": lambda s: setattr(s.model, "second", nn.Linear(4, _CLASSES)),
    "a layer added": lambda s: s.model.add_module("third", nn.Linear(2, 2)),
    "a buffer replaced": _new_buffer,
    "extra state changed": _new_extra,
}
_OF_GRADIENTS: dict[str, Act] = {
    "a gradient by hand": lambda s: _gradient(s, torch.ones_like),
    "one entry of a gradient by hand": lambda s: _gradient(s, _one_entry),
    "a gradient of the last weight by hand": lambda s: _gradient(s, _one_entry, "second"),
    "a gradient of a frozen parameter": lambda s: _gradient(s, torch.ones_like, "frozen"),
    "an optimizer given other parameters": lambda s: s.optimizer.add_param_group(
        {"params": [nn.Parameter(torch.ones(2))]}
    ),
}
_OF_STEPS: dict[str, Act] = {
    "a step of the optimizer's own": lambda s: s.optimizer.step(),
    "a step of another optimizer": lambda s: _stepped_elsewhere(s, fused=False),
    "a step of a fused optimizer": lambda s: _stepped_elsewhere(s, fused=True),
}


def _changes() -> dict[str, Callable[[], object]]:
    """Every change at every moment at which it matters."""
    found: dict[str, Callable[[], object]] = {}
    for moment in _MOMENTS:
        for name, act in _OF_WEIGHTS.items():
            found[f"{name}, {moment}"] = Small(moment=moment, act=act, claims=False)
        for name, act in _OF_PLACES.items():
            if moment == "after the run" and name == "a weight replaced":
                continue  # by equal values: what is claimed is still so
            late = int(moment in _IN_A_LOT)  # a place is looked at before the next lot
            found[f"{name}, {moment}"] = Small(moment=moment, act=act, claims=False, late=late)
        for name, act in {**_OF_GRADIENTS, **_OF_STEPS}.items():
            if moment != "after the run":
                found[f"{name}, {moment}"] = Small(moment=moment, act=act)
    return found


# ---- models


class _Layered(nn.Module):
    """One layer, and a way to use it that rows or weights do not survive."""

    def __init__(
        self,
        way: Callable[[Any, Tensor], Any],
        layer: Callable[[], nn.Module] = lambda: nn.Linear(_WIDTH, _CLASSES),
        **parts: Any,
    ) -> None:
        super().__init__()
        self.layer, self.way = layer(), way
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.way(self, x)
        return result


def layered(way: Callable[[Any, Tensor], Any], **parts: Callable[[], Any]) -> Small:
    """A small run of one layer of scores, which is used in some ``way``, with ``parts`` beside."""
    return Small(lambda: _Layered(way, **{k: make() for k, make in parts.items()}))


def _after(layer: Callable[[], nn.Module]) -> Small:
    """A model in which a layer of some kind stands before the last one."""
    return Small(lambda: nn.Sequential(layer(), nn.Flatten(), nn.Linear(_WIDTH, _CLASSES)))


class _Hidden(torch.autograd.Function):
    """A product that torch's functions do not see."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.T @ ctx.saved_tensors[0], None


def _unseen(model: Any, x: Tensor) -> Any:
    return _Hidden.apply(model.layer.weight, x) + model.layer.bias  # type: ignore[no-untyped-call]


def _noted(model: Any, x: Tensor) -> Any:
    model.seen.data += x.detach().sum()
    return model.layer(x)


def _assigned(model: Any, x: Tensor) -> Any:
    model.layer.weight.data = model.layer.weight * 0.5
    return model.layer(x)


def _written_into(model: Any, x: Tensor) -> Any:
    both = torch.cat([x, x], 1)
    both[:, :_WIDTH] = model.layer.weight[0]
    return model.layer(both[:, :_WIDTH] + x)


def _changed_later(model: Any, x: Tensor) -> Any:
    inner = x * 2.0
    result: Tensor = model.layer(inner)
    inner.add_(1.0)
    return result


def _packed(model: Any, x: Tensor) -> Any:
    rows = x.unsqueeze(2)
    lengths = torch.arange(len(x), 0, -1).clamp(max=_WIDTH)
    packed = nn.utils.rnn.pack_padded_sequence(rows, lengths, True, enforce_sorted=False)
    return model.layer(model.rnn(packed)[1][0])


def _shared(model: Any, x: Tensor) -> Any:
    """Rows are divided by their number, as an average over the batch does."""
    return model.layer(x) / len(x)


def _by_frequency(**options: Any) -> Small:
    tokens = torch.arange(_ROWS * 2).remainder(6).view(_ROWS, 2)
    return Small(
        lambda: nn.Sequential(nn.Embedding(6, 3, **options), nn.Flatten(), nn.Linear(6, _CLASSES)),
        data=lambda: TensorDataset(tokens, rows()[1]),
    )


_stranger = nn.Parameter(torch.ones(_CLASSES))
_MODELS: dict[str, Callable[[], object]] = {
    "batch norm": _after(lambda: nn.BatchNorm1d(_WIDTH)),
    "batch norm without statistics": Small(
        lambda: nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)).eval()
    ),
    "batch norm as a function": layered(
        lambda m, x: m.layer(functional.batch_norm(x, None, None, m.gain, training=True)),
        gain=lambda: nn.Parameter(torch.ones(_WIDTH)),
    ),
    "batch norm that is switched on": Small(
        lambda: nn.Sequential(nn.BatchNorm1d(_WIDTH), nn.Linear(_WIDTH, _CLASSES)).eval(),
        moment="before the first lot", act=lambda s: s.model.train(),
    ),
    "instance norm with statistics": _after(lambda: nn.Sequential(
        nn.Unflatten(1, (1, _WIDTH)), nn.InstanceNorm1d(1, track_running_stats=True))),
    "instance norm with statistics as a function": layered(
        lambda m, x: m.layer(functional.instance_norm(
            x.unsqueeze(2).expand(-1, -1, 2), m.mean, m.var, m.gain).mean(2)),
        gain=lambda: nn.Parameter(torch.ones(_WIDTH)),
        mean=lambda: torch.zeros(_WIDTH), var=lambda: torch.ones(_WIDTH),
    ),
    "rows without their mean": layered(lambda m, x: m.layer(x - x.mean(0))),
    "rows divided by the largest": layered(lambda m, x: m.layer(x) / x.detach().abs().max()),
    "rows divided by their number": layered(_shared),
    "rows in another order": layered(lambda m, x: m.layer(x.flip(0))),
    "a buffer of the rows": layered(_noted, seen=lambda: torch.zeros(())),
    "a weight that is assigned to": layered(_assigned),
    "a weight that is changed in place": layered(
        lambda m, x: m.layer(x) + m.layer.weight.add_(0.1).sum()),
    "a weight that is written into a tensor": layered(_written_into),
    "a weight that is added in place": layered(
        lambda m, x: m.layer(x) + torch.zeros(len(x), 3).addmm_(x, m.layer.weight.T)),
    "a tensor that is changed after its use": layered(_changed_later),
    "a weight with an entry for every row": layered(
        lambda m, x: m.layer(x) + m.each[: len(x)],
        each=lambda: nn.Parameter(torch.ones(_ROWS, _CLASSES))),
    "several results at once": layered(
        lambda m, x: m.layer(x) + torch.linalg.lstsq(m.layer.weight.T, x.T).solution.T),
    "rows in a later dimension": layered(
        lambda m, x: m.layer(x) + torch.cdist(m.layer.weight, x).T),
    "a similarity over rows": layered(
        lambda m, x: m.layer(x) + functional.cosine_similarity(
            m.layer(x)[:, None, :1], m.layer.weight[None, :, :1], dim=0).sum()),
    "packed sequences": Small(lambda: _Layered(
        _packed, lambda: nn.Linear(4, _CLASSES), rnn=nn.GRU(1, 4, batch_first=True))),
    "an operation that cannot be seen": layered(
        _unseen),
    "a parameter that nobody holds": layered(lambda m, x: m.layer(x) * _stranger),
    "a parameter that is not used": layered(
        lambda m, x: m.layer(x), spare=lambda: nn.Linear(2, 2)),
    "a parameter that is used without a gradient": layered(
        lambda m, x: m.layer(x) * m.gain.detach(), gain=lambda: nn.Parameter(torch.ones(3))),
    "reentrant checkpointing": layered(lambda m, x: checkpoint(
        m.layer, x.requires_grad_(), use_reentrant=True)),
    "an embedding that is normed": _by_frequency(max_norm=0.1),
    "an embedding by frequency": _by_frequency(scale_grad_by_freq=True),
    "data parallel": Small(lambda: nn.DataParallel(_Model())),
    "complex parameters": Small(lambda: nn.Linear(_WIDTH, _CLASSES, dtype=torch.complex64)),
    "parameters that are nowhere": Small(lambda: nn.Linear(_WIDTH, _CLASSES, device="meta")),
    "parameters in two places": Small(lambda: nn.Sequential(
        nn.Linear(_WIDTH, 4), nn.Linear(4, _CLASSES, device="meta"))),
}  # fmt: skip


# ---- losses


def _mixed(change: Callable[[Tensor], Any]) -> Small:
    return Small(loss=lambda model, batch: change(row_loss(model, batch)))


def _scaled(model: Any, batch: Any) -> Tensor:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    found: Tensor = scaler.scale(row_loss(model, batch))
    return found


def _penalised(model: Any, batch: Any) -> Any:
    x = batch[0].clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return row_loss(model, batch) + slope.square().sum(1)


def _by_hand(model: Any, batch: Any) -> Tensor:
    losses = row_loss(model, batch)
    losses.sum().backward(retain_graph=True)
    return losses


class _Labelled(Dataset[Any]):
    """Rows whose labels can be moved."""

    def __init__(self) -> None:
        self.x, self.y = rows()
        self.shift = 0

    def __len__(self) -> int:
        return _ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index] + self.shift


_LOSSES: dict[str, Callable[[], object]] = {
    "a sum of losses": _mixed(lambda losses: losses.sum()),
    "a column of losses": _mixed(lambda losses: losses.unsqueeze(1)),
    "too few losses": _mixed(lambda losses: losses[:-1]),
    "whole numbers as losses": _mixed(lambda losses: losses.long()),
    "losses without a gradient": _mixed(lambda losses: losses.detach()),
    "losses from elsewhere": _mixed(lambda losses: torch.ones_like(losses).requires_grad_()),
    "losses that are no tensor": _mixed(lambda losses: losses.tolist()),
    "losses that are not finite": _mixed(lambda losses: losses * float("nan")),
    "losses that are mixed": _mixed(lambda losses: losses * (1.0 + losses.mean())),
    "losses that are weighed by others": _mixed(
        lambda losses: losses / losses.detach().abs().max().clamp_min(1e-3)),
    "losses that are divided by their number": _mixed(lambda losses: losses / len(losses)),
    "losses in another order": _mixed(lambda losses: losses.flip(0)),
    "scaled losses": Small(loss=_scaled),
    "a penalty on gradients": Small(loss=_penalised),
    "loss.backward()": Small(loss=_by_hand),
    "labels beyond the classes": Small(
        data=lambda: TensorDataset(rows()[0], rows()[1] + _CLASSES)),
    "labels that go wrong later": Small(
        data=_Labelled, moment="between lots", act=lambda s: setattr(s.data, "shift", 50)),
    "labels below the classes": Small(data=lambda: TensorDataset(rows()[0], rows()[1] - 50)),
}  # fmt: skip


# ---- data and units


class _Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


class DataFrame:
    """What has the name, and the manners, of a table by columns."""

    def __len__(self) -> int:
        return _ROWS

    def __getitem__(self, name: object) -> object:
        return name


class _Ragged(Dataset[Any]):
    """Rows of different lengths."""

    def __len__(self) -> int:
        return _ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.ones(1 + index), 0


def _from(data: Callable[[], Any]) -> Small:
    return Small(data=data)


def _by_user(**options: Any) -> Small:
    plan = _plan(examples=4, lot_size=4, unit="user", examples_per_user=2)
    return Small(plan=plan, options=options)


def _environment(**variables: str) -> Callable[[], object]:
    def attempt() -> object:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            return Small()()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

    return attempt


_DATA: dict[str, Callable[[], object]] = {
    "a data loader": _from(lambda: DataLoader(TensorDataset(*rows()), batch_size=2)),
    "a stream": _from(_Stream),
    "a sampler": _from(lambda: SequentialSampler(range(_ROWS))),
    "a table by columns": _from(DataFrame),
    "an iterator": _from(lambda: iter(rows())),
    "rows of different lengths": _from(_Ragged),
    "fewer examples than planned": _from(lambda: Subset(TensorDataset(*rows()), range(_ROWS - 1))),
    "more examples than planned": _from(lambda: TensorDataset(*rows(_ROWS + 1))),
    "data changed between lots": Small(
        moment="between lots", act=lambda s: s.data.tensors[0].mul_(2.0)),
    "data changed in a batch": Small(
        moment="in a batch", act=lambda s: s.data.tensors[0].mul_(2.0),
        options={"performance": Performance(batch=4)}),
    "users without names": _by_user(),
    "users of too few examples": _by_user(groups=np.arange(_ROWS - 1)),
    "users of too many examples": _by_user(groups=np.arange(_ROWS + 1)),
    "fewer users than planned": _by_user(groups=np.zeros(_ROWS, dtype=np.int64)),
    "more users than planned": _by_user(groups=np.arange(_ROWS)),
    "groups of examples": Small(options={"groups": np.arange(_ROWS)}),
    "one of several processes": _environment(RANK="0", WORLD_SIZE="2"),
}  # fmt: skip


# ---- optimizers, schedules and bounds


def _with(optimizer: Callable[[Any], Any], **options: Any) -> Small:
    return Small(optimizer=optimizer, options=options)


def _accelerated(model: Any) -> Any:
    made = type("AcceleratedOptimizer", (_Counter,), {"__module__": "accelerate.optimizer"})
    return made(model.parameters())


def _frozen() -> nn.Module:
    return _Model().requires_grad_(False)


def _plateau(model: Any) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(_Counter(model.parameters()))


_KEEPING = Keeping()


def _fitted(
    held_out: Callable[[Any], Any] = lambda _: None,
    scheduler: Callable[[Any], Any] = lambda _: None,
    delta: float = _DELTA,
    build: Callable[[], nn.Module] = _Model,
    loss: Callable[[Any, Any], Any] | None = None,
    average: Any = None,
    keeping: Keeping = _KEEPING,
) -> Callable[[], object]:
    def attempt() -> object:
        model, data = build(), TensorDataset(*rows(2 * _ROWS))
        optimizer, mine = _Counter(model.parameters()), Subset(data, range(_ROWS))
        prepared = Prepared(
            model=model, optimizer=optimizer, plan=_plan(), dataset=mine, loss=loss,
            held_out=held_out(mine),
            schedule=Schedule(scheduler=scheduler(optimizer), average=average),
        )  # fmt: skip
        return carry_out(prepared, delta=delta, keeping=keeping, watch=Watch(progress=False))

    return attempt


_HELD: dict[str, Callable[[], object]] = {
    "LBFGS": _with(lambda m: torch.optim.LBFGS(m.parameters())),
    "SparseAdam": _with(lambda m: torch.optim.SparseAdam(list(m.parameters()))),
    "what is no optimizer": _with(lambda _: [object()]),
    "a wrapped optimizer": _with(_accelerated),
    "no optimizer": _with(lambda _: []),
    "a parameter twice": _with(lambda m: [_Counter(m.parameters()), _Counter(m.parameters())]),
    "a trainable parameter left out": _with(lambda m: _Counter(m.first.parameters())),
    "nothing to train": Small(_frozen),
    "a schedule by the loss": _with(
        lambda m: _Counter(m.parameters()), state={"schedule": _plateau(_Model())}),
    "bounds that miss a parameter": Small(plan=_plan(clipping=PerGroup({"first": 1.0}), clip=None)),
    "bounds for no parameter": Small(
        plan=_plan(clipping=PerGroup({"": 1.0, "third": 1.0}), clip=None)),
    "noise too wide for its grid": Small(plan=_plan(noise_multiplier=1e12, noise="secure")),
    "a seed beside a budget": Small(options={"unsafe_seed": 1, "budget": object()}),
    "a budget that is none": Small(options={"budget": object()}),
    "an end beyond the plan": Small(options={"stop_after": 4}),
    "an end before the start": Small(options={"stop_after": 0}),
    "private data held out": _fitted(lambda mine: mine),
    "the same data held out": _fitted(lambda mine: Subset(mine.dataset, range(_ROWS))),
    "some private data held out": _fitted(
        lambda mine: Subset(mine.dataset, range(_ROWS - 1, 2 * _ROWS))),
    "all data held out": _fitted(lambda mine: mine.dataset),
    "nobody held out": _fitted(lambda mine: Subset(mine.dataset, [])),
    "a score that is none": _fitted(
        lambda _: TensorDataset(*rows()), build=lambda: nn.Linear(_WIDTH, 1),
        loss=lambda model, batch: model(batch[0])[:, 0].square()),
    "two schedules": _fitted(
        scheduler=lambda one: torch.optim.lr_scheduler.StepLR(one, 1),
        keeping=Keeping(state={
            "scheduler": torch.optim.lr_scheduler.StepLR(_Counter(_Model().parameters()), 1)})),
    "weights that are not finite": Small(
        optimizer=lambda m: _Counter(m.parameters(), lr=1e38), late=1,
        plan=_plan(noise_multiplier=1e4)),
    "what cannot be judged": _fitted(lambda _: TensorDataset(rows()[0])),
    "a schedule by the loss in fit": _fitted(
        scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau),
    "a schedule of another optimizer": _fitted(scheduler=lambda _: torch.optim.lr_scheduler.StepLR(
        _Counter(_Model().parameters()), 1)),
    "a δ that allows to publish one": _fitted(delta=0.9),
    "an average of another model": _fitted(average=torch.optim.swa_utils.AveragedModel(
        nn.Linear(2, 2))),
    "a folder as a file": _fitted(keeping=Keeping(save=os.curdir)),
    "a file in a file": _fitted(
        keeping=Keeping(save=os.path.join(__file__, "checkpoint"))),
}  # fmt: skip


# ---- calls out of order


def _once(moment: str, act: Act, **options: Any) -> Small:
    return Small(moment=moment, act=act, **options)


def _later(model: Any, x: Tensor) -> Any:
    return model.layer(x) / (len(x) if model.mixing else 1)


def _mixes_from_now_on(scene: Scene) -> None:
    """The model mixes rows, and the next lot is one of those that are looked at again."""
    scene.model.mixing = True
    schedule: Any = scene.dp._verifier._schedule
    schedule.due = lambda: True


def _passed_twice(scene: Scene) -> None:
    for _ in range(2):
        scene.dp.backward(scene.losses)


def _claimed(scene: Scene) -> None:
    _in_place(scene)
    scene.dp.statement(_DELTA)


def _again(scene: Scene) -> None:
    """A second loop over the lot, while the first has not ended."""
    for batch in scene.lot:
        scene.dp.backward(row_loss(scene.model, batch))


def _in_child(scene: Scene) -> None:
    """What a forked child does with its parent's session; refused there, refused here."""
    calls: tuple[Callable[[], object], ...] = (
        scene.dp.step, lambda: scene.dp.backward(scene.losses),
        lambda: scene.dp.statement(_DELTA), lambda: next(scene.dp.lots()),
        lambda: scene.dp.save(os.devnull), lambda: scene.dp.public().__enter__(),
        lambda: scene.dp.__exit__(None, None, None),
    )  # fmt: skip

    def work() -> bytes:
        passed = [call for call in calls if tried("", call)]
        scene.dp.__exit__(InterruptedError, InterruptedError(), None)  # as the parent ends it
        return b"no" if not passed and scene.optimizer.count == scene.before else b"yes"

    if in_child(work) == b"no":
        refuse()


def _left(task: Small, *, batches: bool) -> Callable[[], object]:
    """A loop that is left before its step, or with a batch that was not passed on."""

    def attempt() -> object:
        model = task.build()
        optimizer = _Counter(model.parameters())
        with private(model, optimizer, task.plan, task.data(), **task.options) as dp:
            for lot in dp.lots():
                for batch in lot:
                    losses = row_loss(model, batch)
                    if batches or lot.is_rehearsal:
                        dp.backward(losses)
                if batches:
                    break
                dp.step()
        return None

    return attempt


def _unfinished() -> object:
    """Lot after lot without a step."""
    model = _Model()
    with private(model, _Counter(model.parameters()), _plan(), TensorDataset(*rows())) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: row_loss(model, batch))
    return None


def _stuck() -> object:
    """A loop that is begun again and again, and passes nothing on."""
    model = _Model()
    with private(model, _Counter(model.parameters()), _plan(), TensorDataset(*rows())) as dp:
        lot = next(dp.lots())
        for _ in range(200):
            for _batch in lot:
                break
    return None


def _in_turn() -> object:
    """Two loops over one lot, each of which takes a batch when the other has."""
    model, two = _Model(), Performance(batch=2)
    data = TensorDataset(*rows())
    with private(model, _Counter(model.parameters()), _plan(), data, performance=two) as dp:
        lot = next(dp.lots())
        loops = iter(lot), iter(lot)
        while not lot.is_done:
            for loop in loops:
                dp.backward(row_loss(model, next(loop)))
        dp.step()
    return None


def _outlived() -> object:
    """A lot that goes on when the context is over."""
    model = _Model()
    with private(model, _Counter(model.parameters()), _plan(), TensorDataset(*rows())) as dp:
        lot = next(dp.lots())
        batches = iter(lot)
        dp.backward(row_loss(model, next(batches)))
        try:
            dp.__exit__(None, None, None)
        except TacitError:  # for the lot waits for its step
            return [row_loss(model, batch) for batch in batches]
    return None


def _entered(act: Act) -> Callable[[], object]:
    """A session that is not entered."""

    def attempt() -> object:
        model = _Model()
        optimizer, data = _Counter(model.parameters()), TensorDataset(*rows())
        dp = private(model, optimizer, _plan(), data)
        return act(Scene(dp, model, optimizer, data))

    return attempt


def _twice(scene: Scene) -> None:
    with scene.dp, scene.dp:
        pass


_ORDER: dict[str, Callable[[], object]] = {
    "a batch passed on twice": _once("in a batch", _passed_twice),
    "a batch passed on without a lot": _once("between lots", lambda s: s.dp.backward(s.losses)),
    "a batch passed on after its lot": _once("before a step", lambda s: s.dp.backward(s.losses)),
    "a batch that is left out": _left(Small(), batches=False),
    "a lot that is left": _left(Small(), batches=True),
    "lots without a step": _unfinished,
    "a step without a lot": _once("before the first lot", lambda s: s.dp.step()),
    "a second step for one lot": _once("between lots", lambda s: s.dp.step()),
    "a step in a batch": _once("in a batch", lambda s: s.dp.step()),
    "a step in a rehearsal": _once("in a rehearsal", lambda s: s.dp.step()),
    "a step after the last lot": _once("after the last lot", lambda s: s.dp.step()),
    "a step after the run": _once("after the run", lambda s: s.dp.step()),
    "a lot in a lot": _once("before a step", lambda s: next(s.dp.lots())),
    "a lot in a batch": _once("in a batch", lambda s: next(s.dp.lots())),
    "a lot after its run": _outlived,
    "a lot in two loops": _once("in a batch", _again,
                                options={"performance": Performance(batch=2)}),
    "a rehearsal in two loops": _once("in a rehearsal", _again),
    "two loops in turn": _in_turn,
    "saved in a lot": _once("before a step", lambda s: s.dp.save(os.devnull)),
    "public in a lot": _once("before a step", lambda s: s.dp.public().__enter__()),
    "verified in a lot": _once("before a step", lambda s: s.dp.verify(
        lambda batch: row_loss(s.model, batch))),
    "a claim in a batch about changed weights": Small(
        moment="in a batch", act=_claimed, claims=False),
    "a loop that never passes anything on": _stuck,
    "rows that are mixed later": Small(
        lambda: _Layered(_later, mixing=False), moment="between lots", act=_mixes_from_now_on),
    "a run in a forked child": _once("before a step", _in_child),
    "a session that is copied": _once("between lots", lambda s: copy.copy(s.dp)),
    "a session that is copied whole": _once("between lots", lambda s: copy.deepcopy(s.dp)),
    "a session that is pickled": _once("between lots", lambda s: pickle.dumps(s.dp)),
    "a session entered twice": _entered(_twice),
    "lots outside of the context": _entered(lambda s: next(s.dp.lots())),
    "a step outside of the context": _entered(lambda s: s.dp.step()),
    "losses outside of the context": _entered(lambda s: s.dp.backward(torch.ones(3))),
    "public steps outside of the context": _entered(lambda s: s.dp.public().__enter__()),
}  # fmt: skip

_HONEST: dict[str, Callable[[], object]] = {
    "an honest run": Small(),
    "an honest run of users": _by_user(groups=np.arange(_ROWS) // 2),
    "an honest run in batches": Small(options={"performance": Performance(batch=4)}),
    "a gradient of zeros": Small(moment="between lots",
                                 act=lambda s: _gradient(s, torch.zeros_like)),
    "an honest fit": _fitted(lambda mine: Subset(mine.dataset, range(_ROWS, 2 * _ROWS))),
}  # fmt: skip


# ---- the same acts on the user's own model and data


_NOTHING = Outcome(0.0, {})
_ALIKE = 0.02  # a difference of weights that is too small to be seen


def _session_of(task: Task, **changed: Any) -> Session:
    given: dict[str, Any] = {
        "model": task.model, "optimizer": task.optimizer, "plan": task.plan,
        "dataset": task.dataset, "groups": task.groups, "performance": task.performance,
        "collate": task.collate,
    }  # fmt: skip
    return private(**(given | changed))


def _looped(task: Task, dp: Session, losses: Callable[[Any], Tensor] | None = None) -> Outcome:
    with dp:
        for lot in dp.lots():
            dp.accumulate(lot, losses or (lambda batch: task.loss(task.model, batch)))
            dp.step()
    return _NOTHING


def _with_losses(change: Callable[[Tensor], Tensor]) -> Callable[[Task], Outcome]:
    """A run whose losses are not what they should be."""

    def attempt(task: Task) -> Outcome:
        return _looped(task, _session_of(task), lambda batch: change(task.loss(task.model, batch)))

    return attempt


def _between(change: Callable[[Task, Session], object]) -> Callable[[Task], Outcome]:
    """A run in which something is done after the first step."""

    def attempt(task: Task) -> Outcome:
        with _session_of(task) as dp:
            for lot in dp.lots():
                dp.accumulate(lot, lambda batch: task.loss(task.model, batch))
                dp.step()
                change(task, dp)
        return _NOTHING

    return attempt


def _within(change: Callable[[Task, Session, Tensor], object]) -> Callable[[Task], Outcome]:
    """A run in which something is done to the losses of a batch, beside passing them on."""

    def attempt(task: Task) -> Outcome:
        with _session_of(task) as dp:
            for lot in dp.lots():
                for batch in lot:
                    change(task, dp, task.loss(task.model, batch))
                dp.step()
        return _NOTHING

    return attempt


def _weights(task: Task) -> list[nn.Parameter]:
    return [p for group in task.optimizer.param_groups for p in group["params"]]


def _mixing(task: Task) -> Outcome:
    """Rows that see each other: through the model's results, centred over the batch."""
    return _looped(task, _session_of(task), lambda batch: _centred(task.loss(task.model, batch)))


def _centred(losses: Tensor) -> Tensor:
    return losses * (1.0 + losses.mean())


def _weighed(task: Task) -> Outcome:
    """Rows that are weighed by others, in a way through which no gradient passes."""
    weights: list[float] = []

    def losses(batch: Any) -> Tensor:
        found = task.loss(task.model, batch)
        sizes = found.detach().abs()
        weights.append(float(sizes.mean() / sizes.max().clamp_min(1e-30)))
        return found * weights[-1]

    done = _looped(task, _session_of(task), losses)
    if max(weights, default=1.0) - min(weights, default=1.0) < _ALIKE:
        raise RuntimeError("all losses are alike: nothing was mixed")
    return done


def _counted(task: Task) -> Outcome:
    """A buffer that is changed by the forward pass."""
    task.model.register_buffer("seen", torch.zeros(()))

    def losses(batch: Any) -> Tensor:
        found = task.loss(task.model, batch)
        with torch.no_grad():
            task.model.get_buffer("seen").add_(found.detach().sum())
        return found

    return _looped(task, _session_of(task), losses)


def _changed_weights(task: Task, _: Session) -> None:
    with torch.no_grad():
        _weights(task)[0].mul_(1.01)


def _edited_gradient(task: Task, _: Session) -> None:
    weight = _weights(task)[0]
    weight.grad = torch.ones_like(weight)


def _batch_twice(_: Task, dp: Session, losses: Tensor) -> None:
    for _again in range(2):
        dp.backward(losses)


def _stepped_twice(task: Task) -> Outcome:
    with _session_of(task) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: task.loss(task.model, batch))
            dp.step()
            dp.step()
    return _NOTHING


def _left_over(task: Task) -> Outcome:
    with _session_of(task) as dp:
        for lot in dp.lots():
            if not lot.is_done:
                dp.step()
    return _NOTHING


def _frozen_out(task: Task) -> Outcome:
    """A trainable parameter that no optimizer holds."""
    task.model.register_parameter("stray", nn.Parameter(torch.zeros(2)))
    return _looped(task, _session_of(task))


def _normalised(task: Task) -> Outcome:
    task.model.add_module("mixing", nn.BatchNorm1d(3))
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.0)
    return _looped(task, _session_of(task, optimizer=optimizer))


def _copied_noise(task: Task) -> Outcome:
    del task
    source = GaussianSource(torch.device("cpu"), SystemStream())
    for duplicate in (copy.copy, pickle.dumps):
        try:
            duplicate(source)
            duplicate(fresh_stream("noise"))
        except Exception:
            continue
        return _NOTHING
    raise RuntimeError("refused, as it should be")


def _iterated(task: Task) -> Outcome:
    loader = DataLoader(TensorDataset(torch.zeros(task.plan.examples, 1)), batch_size=2)
    return _looped(task, _session_of(task, dataset=loader))


def _shortened(task: Task) -> Outcome:
    short = TensorDataset(torch.zeros(task.plan.examples // 2, 1))
    groups = None if task.groups is None else task.groups[: task.plan.examples // 2]
    return _looped(task, _session_of(task, dataset=short, groups=groups))


TASKS: dict[str, Callable[[Task], Outcome]] = {
    "a mean loss": _with_losses(lambda losses: losses.mean()),
    "a column of losses": _with_losses(lambda losses: losses.unsqueeze(1)),
    "whole numbers as losses": _with_losses(lambda losses: losses.long()),
    "losses without a gradient": _with_losses(lambda losses: losses.detach()),
    "rows that are mixed": _mixing,
    "rows that are weighed by others": _weighed,
    "a buffer of the data": _counted,
    "loss.backward()": _within(lambda _task, _dp, losses: losses.sum().backward()),
    "a batch passed on twice": _within(_batch_twice),
    "a batch that is left out": _within(lambda _task, _dp, losses: losses),
    "a step of the optimizer's own": _between(lambda task, _dp: task.optimizer.step()),
    "weights changed by hand": _between(_changed_weights),
    "an edited gradient": _between(_edited_gradient),
    "a second step for one lot": _stepped_twice,
    "a step without the lot's batches": _left_over,
    "a parameter that no optimizer holds": _frozen_out,
    "batch normalisation": _normalised,
    "noise that is copied": _copied_noise,
    "a loader's own batches": _iterated,
    "fewer examples than planned": _shortened,
}  # fmt: skip
