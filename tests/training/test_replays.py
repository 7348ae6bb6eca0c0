"""Replays without Python, as on a GPU, of programs that do something else after a while.

Whatever a program changes between lots, the weights must come out as without recordings. Each
program is also run with nobody looking, and must then go wrong: else it would show nothing.
"""

from __future__ import annotations

import array
import collections
import contextvars
import copy
import dataclasses
import enum
import functools
import os
import random
import types
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.checkpoint import checkpoint

import tacit
from tacit.training import capture, circumstances, updates
from tacit.training.styles import Automatic, Flat, PerLayer

from . import replayed_settings, replays
from .replayed_values import VALUES
from .sessions import CLASSES, WIDTH, data, drawn, network, plan, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.optim import Optimizer

    Get = Callable[[], Any]
    Change = Callable[[], object]

STEPS, HALF = 9, 6  # a batch is recorded in its fourth lot


class Program(NamedTuple):
    """A model, its losses, and what happens to both half-way."""

    model: nn.Module
    losses: Callable[[Any], Tensor]
    change: Change
    optimizer: Callable[[Any], Optimizer] = functools.partial(torch.optim.SGD, lr=0.1)
    each: Change | None = None  # after every step


def classified(model: nn.Module) -> Callable[[Any], Tensor]:
    return lambda batch: functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def own() -> nn.Sequential:
    return network().double()


# ---- where the weight of a loss may be kept


class Mode(enum.Enum):
    PLAIN, STRONG = 1, 2


class Slotted:
    __slots__ = ("w",)

    def __init__(self, w: float) -> None:
        self.w = w

    @property
    def half(self) -> float:
        return self.w / 2


@dataclasses.dataclass(slots=True)
class Options:
    w: float = 1.0


class Class:
    w = 1.0

    def method(self) -> float:
        return self.w

    @classmethod
    def of_the_class(cls) -> float:
        return cls.w

    @property
    def of_a_module(self) -> float:
        return replayed_settings.WEIGHT


class Heir(Class):
    pass


def schedule() -> Iterator[float]:
    for at in range(1000):
        yield 1.0 if at < 12 else 3.0


def own_function() -> float:
    return float(own_function.w)  # type: ignore[attr-defined]


def imported() -> float:
    from .replayed_settings import WEIGHT  # noqa: PLC0415 - as a program may

    return WEIGHT


def later() -> float:
    try:
        return LATER  # type: ignore[name-defined, no-any-return]  # not yet there
    except NameError:
        return 1.0


def kept(host: replays.Host) -> dict[str, tuple[Get, Change]]:
    """How a loss asks for its weight, and what changes it, by where it is kept."""
    replayed_settings.WEIGHT = Class.w = own_function.w = 1.0  # type: ignore[attr-defined]
    os.environ["TACIT_TEST_WEIGHT"] = "1.0"
    globals().pop("LATER", None)
    slotted, options, instance, heir = Slotted(1.0), Options(), Class(), Heir()
    box: dict[str, Any] = {"pair": (1.0, "a"), "numpy": np.float64(1.0), "mode": Mode.PLAIN}
    deep = {"a": {"b": {"c": {"d": {"e": [1.0]}}}}}
    row, line, ring, names = np.ones(2), [1.0] * 200, collections.deque([1.0, 3.0]), {"a"}
    chained, proxied = collections.ChainMap({"w": 1.0}), {"w": 1.0}
    proxy, numbers, octets = types.MappingProxyType(proxied), array.array("d", [1.0]), bytearray(2)
    variable = contextvars.ContextVar("variable", default=1.0)
    there, here, swapped = host.tensor(1.0), torch.ones(1), torch.ones(1)
    reference, taken, sign = weakref.ref(instance), schedule(), {"zero": 0.0}
    rates = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    settings = lambda: setattr(replayed_settings, "WEIGHT", 3.0)  # noqa: E731
    of_class = lambda: setattr(Class, "w", 3.0)  # noqa: E731
    return {
        "slots": (lambda: slotted.w, lambda: setattr(slotted, "w", 3.0)),
        "property of slots": (lambda: slotted.half, lambda: setattr(slotted, "w", 3.0)),
        "dataclass": (lambda: options.w, lambda: setattr(options, "w", 3.0)),
        "tuple": (lambda: box["pair"][0], lambda: box.update(pair=(3.0, "a"))),
        "number of NumPy": (lambda: float(box["numpy"]), lambda: box.update(numpy=np.float64(3))),
        "enum": (lambda: box["mode"].value, lambda: box.update(mode=Mode.STRONG)),
        "array": (lambda: float(row[0]), lambda: row.fill(3.0)),
        "deep": (lambda: deep["a"]["b"]["c"]["d"]["e"][0],
                 lambda: deep["a"]["b"]["c"]["d"].update(e=[3.0])),
        "long list": (lambda: line[150], lambda: line.__setitem__(150, 3.0)),
        "deque": (lambda: ring[0], lambda: ring.rotate(1)),
        "set": (lambda: 3.0 if "b" in names else 1.0, lambda: (names.clear(), names.add("b"))),
        "chain of maps": (lambda: chained["w"], lambda: chained.update(w=3.0)),
        "proxy": (lambda: proxy["w"], lambda: proxied.update(w=3.0)),
        "numbers": (lambda: numbers[0], lambda: numbers.__setitem__(0, 3.0)),
        "octets": (lambda: 1.0 + octets[0], lambda: octets.__setitem__(0, 3)),
        "variable of the context": (variable.get, lambda: variable.set(3.0)),
        "environment": (lambda: float(os.environ["TACIT_TEST_WEIGHT"]),
                        lambda: os.environ.update(TACIT_TEST_WEIGHT="3.0")),
        "other module": (lambda: replayed_settings.WEIGHT, settings),
        "function of another module": (lambda: 1 * replayed_settings.weight(), settings),
        "comprehension": (replayed_settings.weight_inside, settings),
        "import": (imported, settings),
        "property": (lambda: instance.of_a_module, settings),
        "class": (lambda: Class.w, of_class),
        "class of an instance": (lambda: instance.w, of_class),
        "base class": (lambda: heir.w, of_class),
        "class method": (Heir.of_the_class, of_class),
        "method": (instance.method, of_class),
        "new attribute": (lambda: getattr(instance, "v", 1.0), lambda: setattr(instance, "v", 3.0)),
        "reference": (lambda: reference().method(),  # type: ignore[union-attr]
                      lambda: (instance, of_class())),
        "function": (own_function, lambda: setattr(own_function, "w", 3.0)),
        "bound": (functools.partial(proxied.get, "w"), lambda: proxied.update(w=3.0)),
        "later": (later, lambda: globals().update(LATER=3.0)),
        "sign": (lambda: 2 + np.copysign(1, sign["zero"]), lambda: sign.update(zero=-0.0)),
        "iterator": (lambda: next(taken), lambda: None),
        "learning rate": (lambda: rates.param_groups[0]["lr"],
                          lambda: rates.param_groups[0].update(lr=3.0)),
        "tensor of the host": (lambda: there, lambda: there.fill_(3.0)),
        "memory of the host": (lambda: there, lambda: there.data.mul_(3.0)),
        "memory of a tensor": (lambda: swapped, lambda: setattr(swapped, "data", here * 3)),
    }  # fmt: skip


# ---- models, and modules beside them


class Scaled(nn.Module):
    """A model that goes by whatever one may think of."""

    w = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.net, self.act = own(), functional.tanh
        self.options, self.listed, self.mode = Slotted(1.0), [1.0], Mode.PLAIN
        self.tensor = torch.ones(1)
        self.net[0].weight.gain = 1.0  # type: ignore[assignment]

    def factor(self) -> float:
        return replayed_settings.weight() * self.w * self.options.w * self.listed[0]

    def forward(self, x: Tensor) -> Tensor:
        strong = 3.0 if self.mode is Mode.STRONG else 1.0
        late = float(getattr(self, "late", 1.0)) * (1.0 if self.training else 0.3)
        gain = float(self.net[0].weight.gain)  # type: ignore[arg-type, union-attr]
        return self.act(self.net(x)) * self.factor() * strong * late * gain * self.tensor


class Tripled(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


class TripledLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


def of_models() -> dict[str, Callable[[Any], object]]:
    """What is done to a ``Scaled``."""
    return {
        "global": lambda _: setattr(replayed_settings, "WEIGHT", 3.0),
        "class": lambda _: setattr(Scaled, "w", 3.0),
        "object": lambda model: setattr(model.options, "w", 3.0),
        "list": lambda model: model.listed.__setitem__(0, 3.0),
        "enum": lambda model: setattr(model, "mode", Mode.STRONG),
        "function": lambda model: setattr(model, "act", functional.silu),
        "method": lambda model: setattr(model, "factor", lambda: 3.0),
        "forward": lambda model: setattr(model, "forward", model.net.forward),
        "new attribute": lambda model: setattr(model, "late", 3.0),
        "memory": lambda model: setattr(model.tensor, "data", torch.full((1,), 3.0).double()),
        "mode": lambda model: model.eval(),
        "class of the model": lambda model: setattr(model, "__class__", Tripled),
        "class of a part": lambda model: setattr(model.net[0], "__class__", TripledLinear),
        "attribute of a parameter": lambda model: setattr(model.net[0].weight, "gain", 3.0),
        "frozen": lambda model: model.net[0].weight.requires_grad_(False),
        "places": lambda model: setattr(
            model.net[0].weight, "data", model.net[0].weight.data.clone()
        ),
        "hook": lambda model: model.net[2].register_full_backward_pre_hook(tripled),
    }


def tripled(_: nn.Module, gradients: Any) -> Any:
    return tuple(3 * one for one in gradients)


def teacher() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        made = nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.Identity())
    return made.double().requires_grad_(False)


def frozen(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)


def of_teachers() -> dict[str, Callable[[Any], object]]:
    """What is done to a module beside the model."""
    return {
        "mode": lambda it: it.eval(),
        "parameter": lambda it: setattr(it[0], "weight", frozen(3 * it[0].weight.data)),
        "memory": lambda it: setattr(it[0].weight, "data", 3 * it[0].weight.data),
        "module": lambda it: it.__setitem__(1, nn.Softplus(beta=3)),
        "hook": lambda it: it.register_forward_hook(lambda *given: 3 * given[-1]),
    }


def criterion() -> Program:
    model, loss = own(), nn.CrossEntropyLoss(reduction="none")
    return Program(
        model, lambda b: loss(model(b[0]), b[1]), lambda: setattr(loss, "label_smoothing", 0.5)
    )


class Weighted(nn.Module):
    """A criterion whose weight was left on the host."""

    def __init__(self, host: replays.Host, *, trained: bool) -> None:
        super().__init__()
        weight = host.tensor(1.0)
        if trained:
            self.weight = host.take(nn.Parameter(weight, requires_grad=False))
        else:
            self.register_buffer("weight", weight)

    def forward(self, losses: Tensor) -> Tensor:
        return self.weight * losses


def on_the_host(host: replays.Host, *, trained: bool) -> Program:
    model, weighted = own(), Weighted(host, trained=trained)
    plain = classified(model)
    return Program(
        model, lambda batch: weighted(plain(batch)), lambda: weighted.weight.data.fill_(3.0)
    )


def configured() -> Program:
    """A library's module, with a configuration and a table of scales as those have."""
    last = LibrarysLinear(CLASSES, CLASSES).double()
    last.config, last.scaling = types.SimpleNamespace(w=1.0), {"default": 1.0}
    with torch.no_grad():
        last.weight.copy_(torch.eye(CLASSES))
        last.bias.zero_()
    model = nn.Sequential(*own(), last)
    return Program(model, classified(model), lambda: last.scaling.update(default=3.0))


class LibrarysLinear(nn.Linear):
    __module__ = "peft.layers"
    config: Any
    scaling: dict[str, float]

    def forward(self, x: Tensor) -> Tensor:
        return self.config.w * self.scaling["default"] * super().forward(x)


def averaged() -> Program:
    """A teacher that follows the model in its place needs no other recording."""
    model = own()
    follower = copy.deepcopy(model).requires_grad_(False)

    def follow() -> None:
        with torch.no_grad():
            for own_weight, weight in zip(follower.parameters(), model.parameters(), strict=True):
                own_weight.lerp_(weight, 0.5)

    def losses(batch: Any) -> Tensor:
        scores = model(batch[0]) + follower(batch[0])
        return functional.cross_entropy(scores, batch[1], reduction="none")

    return Program(model, losses, lambda: None, each=follow)


def recomputed() -> Program:
    model, factors = own(), [1.0]

    def losses(batch: Any) -> Tensor:
        inner = lambda x: factors[0] * model(x)  # noqa: E731
        scores: Any = checkpoint(inner, batch[0], use_reentrant=False)
        return functional.cross_entropy(scores, batch[1], reduction="none")

    return Program(model, losses, lambda: factors.__setitem__(0, 3.0))


# ---- optimizers

momentum = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def in_groups(parameters: Any) -> Optimizer:
    first, *rest = parameters
    return torch.optim.SGD([{"params": [first, rest[0]]}, {"params": rest[1:], "lr": 1.0}], lr=0.1)


def moved(optimizer: Optimizer) -> None:
    first, second = optimizer.param_groups
    second["params"].insert(0, first["params"].pop())


HOOKS: list[Any] = []  # of all optimizers, to be removed


def tripled_gradients(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.mul_(3)


def of_buffers(change: Callable[[dict[str, Any]], object]) -> Callable[[Optimizer], object]:
    return lambda optimizer: [change(state) for state in optimizer.state.values()]


def of_optimizers(host: replays.Host) -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """An optimizer, and what is done to it."""
    rate, name = host.tensor(0.1), "momentum_buffer"
    return {
        "rate": (momentum, lambda it: it.param_groups[0].update(lr=0.5)),
        "rate on the host": (functools.partial(torch.optim.SGD, lr=rate),
                             lambda _: rate.fill_(0.5)),
        "state": (momentum, lambda it: it.state.clear()),
        "buffers": (momentum, of_buffers(lambda one: one.update({name: one[name] * -1}))),
        "memory of buffers": (
            momentum, of_buffers(lambda one: setattr(one[name], "data", one[name].data * -1))),
        "group": (in_groups, moved),
        "hook of all": (momentum, lambda _: HOOKS.append(
            register_optimizer_step_pre_hook(tripled_gradients))),
        "betas": (functools.partial(torch.optim.Adam, lr=0.01, capturable=True),
                  lambda it: it.param_groups[0].update(betas=(0.1, 0.1))),
    }  # fmt: skip


# ---- what is compared


def programs(host: replays.Host) -> dict[str, Callable[[], Program]]:
    """All programs by name; each is made again for every run."""
    replayed_settings.WEIGHT = Scaled.w = 1.0
    made: dict[str, Callable[[], Program]] = {
        "criterion": criterion, "configured": configured, "averaged": averaged,
        "recomputed": recomputed,
        "criterion with a buffer of the host": lambda: on_the_host(host, trained=False),
        "criterion with a parameter of the host": lambda: on_the_host(host, trained=True),
    }  # fmt: skip
    for name in kept(host):
        made[f"kept: {name}"] = functools.partial(_of_weight, host, name)
    for name in VALUES:
        made[f"value: {name}"] = functools.partial(_of_value, host, name)
    for name, change in of_models().items():
        made[f"model: {name}"] = functools.partial(_of_model, change)
    for name, change in of_teachers().items():
        made[f"teacher: {name}"] = functools.partial(_of_teacher, change)
    for name in of_optimizers(host):
        made[f"optimizer: {name}"] = functools.partial(_of_optimizer, host, name)
    return made


def _of_weight(host: replays.Host, name: str) -> Program:
    model = own()
    get, change = kept(host)[name]
    plain = classified(model)
    return Program(model, lambda batch: get() * plain(batch), change)


def _of_value(host: replays.Host, name: str) -> Program:
    model = own()
    get, change = VALUES[name](host)
    plain = classified(model)
    return Program(model, lambda batch: get() * plain(batch), change)


def _of_model(change: Callable[[Any], object]) -> Program:
    model = Scaled()
    return Program(model, classified(model), lambda: change(model))


def _of_teacher(change: Callable[[Any], object]) -> Program:
    model, other = own(), teacher()

    def losses(batch: Any) -> Tensor:
        scores = model(batch[0]) + other(batch[0]) * (1.0 if other.training else 3.0)
        return functional.cross_entropy(scores, batch[1], reduction="none")

    return Program(model, losses, lambda: change(other))


def _of_optimizer(host: replays.Host, name: str) -> Program:
    make, change = of_optimizers(host)[name]
    model = own()
    optimizer = make(model.parameters())
    return Program(model, classified(model), lambda: change(optimizer), lambda _: optimizer)


class Run(NamedTuple):
    weights: Tensor
    replays: int
    explained: str


def run(name: str, *, captured: bool, looking: bool = True) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        graphs, host = replays.installed(patch)
        if not looking:
            patch.setattr(circumstances.Circumstances, "hold", lambda *_: True)
            patch.setattr(updates.Updates, "_same_settings", lambda *_: True)
            patch.setattr(updates.Updates, "_same_states", lambda *_: True)
            patch.setattr(updates, "_foreign", lambda *_, **__: "")
            patch.setattr(circumstances.Circumstances, "hindrance", "")
        program = programs(host)[name]()
        trained = [one for one in program.model.parameters() if one.requires_grad]
        x, y = data().tensors
        with session(
            program.model, plan=plan(steps=STEPS), optimizer=program.optimizer(trained),
            dataset=torch.utils.data.TensorDataset(x.double(), y), unsafe_seed=3,
            performance=tacit.Performance(capture=captured),
        ) as dp:  # fmt: skip
            for lot in dp.lots():
                if lot.step == HALF:
                    program.change()
                dp.accumulate(lot, program.losses)
                dp.step()
                if program.each is not None:
                    program.each()
        while HOOKS:
            HOOKS.pop().remove()
        weights = torch.cat([one.detach().flatten() for one in program.model.parameters()])
        return Run(weights, graphs.replays, dp.explain())


# ---- ordinary programs


class Tokens(nn.Module):
    """Embeddings, attention, norms and linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(20, 8), nn.Parameter(torch.randn(6, 8))
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.place
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(x).mean(1)
        return out


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(),
        nn.Linear(4 * 16, CLASSES),
    )  # fmt: skip


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, CLASSES))


def floats() -> Tensor:
    return data().tensors[0].double()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "perceptron": (network, floats),
    "images": (images, lambda: torch.randn(40, 2, 4, 4).double()),
    "tokens": (Tokens, lambda: torch.randint(20, (40, 6))),
    "dropout": (dropping, floats),
}
adam = functools.partial(torch.optim.Adam, lr=0.01, capturable=True)


def trained(model: str, optimizer: Any, style: Any, *, replayed: bool) -> tuple[Tensor, str]:
    """Weights after training with replays that call no Python, or with ones that call it again."""
    with pytest.MonkeyPatch.context() as patch:
        run_again = capture.Reruns
        graphs, _ = replays.installed(patch)
        if not replayed:
            patch.setattr(capture, "Reruns", run_again)
        torch.manual_seed(0)
        make, inputs = MODELS[model]
        net, x = make().double(), inputs()
        steps = optimizer(net.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(steps, 7, 0.1)
        with session(
            net, plan=plan(steps=14, noise_multiplier=0.1, clipping=style), optimizer=steps,
            dataset=torch.utils.data.TensorDataset(x, data().tensors[1]), unsafe_seed=3,
            performance=tacit.Performance(capture=True),
        ) as dp:  # fmt: skip
            for lot in dp.lots():
                dp.accumulate(lot, classified(net))
                dp.step()
                scheduler.step()
        assert graphs.replays > 16 or not replayed
        return torch.cat([one.detach().flatten() for one in net.parameters()]), dp.explain()


WAYS = {
    "momentum": (momentum, Flat()),
    "adam": (adam, Flat()),
    "momentum by layer": (momentum, PerLayer()),
    "adam, automatic": (adam, Automatic()),
}


@pytest.mark.parametrize(("model", "way"), list(zip(MODELS, WAYS, strict=True)))
def test_replays_are_what_running_again_gives(model: str, way: str) -> None:
    is_what_running_again_gives(model, way)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", WAYS)
def test_all_replays_are_what_running_again_gives(model: str, way: str) -> None:
    is_what_running_again_gives(model, way)


def is_what_running_again_gives(model: str, way: str) -> None:
    """Noise and dropout are drawn again, rates and statistics of the optimizer go on."""
    optimizer, style = WAYS[way]
    replayed, explained = trained(model, optimizer, style, replayed=True)
    again, _ = trained(model, optimizer, style, replayed=False)
    assert torch.allclose(replayed, again, rtol=1e-9, atol=1e-11)
    assert "Batches are replayed" in explained
    assert "Noise and update are replayed" in explained


class Trainer:
    """A loss that is the method of something which counts, and holds all that training needs."""

    def __init__(self) -> None:
        self.model, self.weight, self.steps = own(), 1.0, 0
        self.history: list[float] = []
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.rows = iter(range(100))

    def loss(self, batch: Any) -> Tensor:
        return self.weight * classified(self.model)(batch)

    def stepped(self) -> None:
        self.steps, _ = self.steps + 1, next(self.rows)
        self.history.append(self.steps)
        self.scheduler.step()


def test_what_a_loss_does_not_name_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs, _ = replays.installed(monkeypatch)
    trainer = Trainer()
    x, y = data().tensors
    dataset = torch.utils.data.TensorDataset(x.double(), y)
    with session(
        trainer.model, plan=plan(steps=10), optimizer=trainer.optimizer, dataset=dataset,
        performance=tacit.Performance(capture=True),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            dp.accumulate(lot, trainer.loss)
            dp.step()
            trainer.stepped()
    assert "Batches are replayed" in dp.explain()
    assert graphs.replays > 5


def test_losses_are_seen_of_the_lots_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots are filled up to few shapes, before there is a recording and afterwards."""
    replays.installed(monkeypatch)
    model, seen = own(), []
    x, y = data().tensors
    dataset = torch.utils.data.TensorDataset(x.double(), y)
    with session(
        model, plan=plan(steps=8), dataset=dataset, performance=tacit.Performance(capture=True)
    ) as dp:
        for lot in dp.lots():
            rows = [] if lot.step == 0 else drawn(lot).tolist()
            seen.clear()
            dp.accumulate(lot, classified(model), seen=lambda values: seen.append(len(values)))
            dp.step()
            assert lot.step == 0 or sum(seen) == len(rows)


# ---- programs that change something

FEW = [
    "criterion", "configured", "averaged", "kept: slots", "kept: array", "kept: class",
    "kept: function of another module", "kept: tensor of the host", "kept: iterator",
    "model: global", "model: function", "model: frozen", "model: hook", "teacher: parameter",
    "optimizer: buffers", "optimizer: group", "optimizer: hook of all",
    "value: one of two objects", "value: class replaced", "value: class of a record",
    "value: import of something new", "criterion with a buffer of the host",
]  # fmt: skip
REST = sorted({*programs(replays.Host())} - {*FEW})
NOTHING_CHANGES = {"averaged"}


def follows(name: str) -> None:
    plain, replayed = run(name, captured=False), run(name, captured=True)
    assert torch.allclose(replayed.weights, plain.weights, rtol=1e-7, atol=1e-9), replayed.explained
    stale = run(name, captured=True, looking=False)
    assert stale.replays > 2
    went_wrong = float((stale.weights - plain.weights).abs().max()) > 1e-5
    assert went_wrong == (name not in NOTHING_CHANGES)


@pytest.mark.parametrize("name", FEW)
def test_what_a_program_changes_is_followed(name: str) -> None:
    follows(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_whatever_a_program_changes_is_followed(name: str) -> None:
    follows(name)


class Shy:
    """An object that does not like to be looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            raise RuntimeError("of a secret")
        return super().__getattribute__(name)


def test_what_cannot_be_looked_at_is_computed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs, _ = replays.installed(monkeypatch)
    model, shy = own(), Shy()
    plain = classified(model)
    x, y = data().tensors
    with session(
        model, plan=plan(steps=5), performance=tacit.Performance(capture=True),
        dataset=torch.utils.data.TensorDataset(x.double(), y),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: plain(batch) * (shy is not None))
            dp.step()
    assert "cannot be looked at (RuntimeError)" in dp.explain()
    assert graphs.replays == 0


def test_a_loss_that_counts_on_the_device_is_computed_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To record it would count runs that are none of the loop's."""
    replays.installed(monkeypatch)
    model, count = own(), torch.zeros(1)
    plain = classified(model)

    def losses(batch: Any) -> Tensor:
        count.add_(1.0)
        return plain(batch) * torch.where(count > 1000.0, 3.0, 1.0)

    x, y = data().tensors
    with session(
        model, plan=plan(steps=6), performance=tacit.Performance(capture=True),
        dataset=torch.utils.data.TensorDataset(x.double(), y),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            dp.accumulate(lot, losses)
            dp.step()
    assert "changes a tensor that it goes by" in dp.explain()


DRAWN_FROM = [random.Random(1), np.random.default_rng(1), torch.Generator(), iter([1.0, 2.0])]


@pytest.mark.parametrize("source", DRAWN_FROM, ids=lambda one: type(one).__name__)
def test_what_a_replay_would_not_draw_from_is_named(source: Any) -> None:
    model = own()
    plain = classified(model)
    hindrance = circumstances.Circumstances(
        model, lambda batch: plain(batch) * bool(source)
    ).hindrance
    assert f"leaves alone ({type(source).__name__})" in hindrance


def test_what_is_not_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    replays.installed(monkeypatch)
    model, many = own(), np.ones(100_000)
    plain = classified(model)
    x, y = data().tensors
    with session(
        model, plan=plan(steps=6), performance=tacit.Performance(capture=True),
        dataset=torch.utils.data.TensorDataset(x.double(), y),
    ) as dp:  # fmt: skip
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: float(many[7]) * plain(batch))
            dp.step()
    assert "more values than are looked at" in dp.explain()
