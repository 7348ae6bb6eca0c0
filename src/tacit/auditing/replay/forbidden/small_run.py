"""One small run, honest but for one forbidden act; and whether it was refused as it should be."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import (
    TensorDataset,
)

from tacit._workers import fork
from tacit.auditing.replay.coverage import Tracer
from tacit.errors import TacitError
from tacit.training.plan import Plan
from tacit.training.session import Session, private

ROWS, WIDTH, CLASSES, DELTA = 8, 5, 3, 1e-3
_LONGEST = 240  # seconds of a child that hangs
Attempts: TypeAlias = Mapping[str, Callable[[], object]]


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
    return forked(work)()


def forked(work: Callable[[], bytes]) -> Callable[[], bytes]:
    """Starts ``work`` in a forked child; what is returned waits for it, and for what it returns.

    A child that fails or hangs returns nothing.
    """
    traced = getattr(sys.gettrace(), "__self__", None)
    tracer = traced if isinstance(traced, Tracer) else Tracer()
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(_LONGEST)
        try:
            said = work().hex()
            steps = {path: sorted(seen) for path, seen in tracer.arcs.items()}
            with os.fdopen(writing, "w") as pipe:
                json.dump([said, steps], pipe)
        finally:
            os._exit(0)
    os.close(writing)

    def returned() -> bytes:
        with os.fdopen(reading) as pipe:
            written = pipe.read()
        os.waitpid(child, 0)
        said, steps = json.loads(written) if written else ("", {})
        for path, seen in steps.items():
            tracer.arcs.setdefault(path, set()).update((before, after) for before, after in seen)
        return bytes.fromhex(said)

    return returned


class Model(nn.Module):
    """Two layers, one of them under a frozen parameter; a buffer; something beside both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4), nn.Linear(4, CLASSES)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(4))
        self.kept = 1

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        result: Tensor = self.second(torch.tanh(self.first(x)) * self.frozen * self.scale)
        return result

    def get_extra_state(self) -> dict[str, int]:
        """What is beside parameters and buffers."""
        return {"kept": self.kept}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """The same, read again."""
        self.kept = state["kept"]


class Counter(torch.optim.SGD):
    """Counts its steps: each of them is a release."""

    def __init__(self, parameters: Any, lr: float = 0.1) -> None:
        super().__init__(parameters, lr=lr)
        self.count = 0

    def step(self, closure: Any = None) -> Any:
        """One more."""
        self.count += 1
        return super().step(closure)


def rows(count: int = ROWS) -> tuple[Tensor, Tensor]:
    """The data of a small run."""
    seed = torch.Generator().manual_seed(11)
    x = torch.randn(count, WIDTH, generator=seed)
    return x, torch.randint(CLASSES, (count,), generator=seed)


def row_loss(model: nn.Module, batch: Any) -> Tensor:
    """Its loss."""
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def small_plan(**changed: Any) -> Plan:
    """The plan of a small run."""
    given = {"examples": ROWS, "lot_size": ROWS, "steps": 3, "noise_multiplier": 1.0, "clip": 1.0}
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


@dataclass
class Small:
    """A small run, honest but for one act at one moment, or one part of another kind."""

    build: Callable[[], nn.Module] = Model
    loss: _Loss = row_loss
    data: Callable[[], Any] = lambda: TensorDataset(*rows())
    plan: Plan = field(default_factory=small_plan)
    optimizer: Callable[[Any], Any] = lambda model: Counter(model.parameters())
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
            dp.statement(DELTA)
        except TacitError:
            if getattr(optimizer, "count", 0) > scene.before + self.late:
                return "is refused after another step was taken"
            if not self.claims and scene.done:
                tried_claim = tried("", lambda: dp.statement(DELTA))
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


class Layered(nn.Module):
    """One layer, and a way to use it that rows or weights do not survive."""

    def __init__(
        self,
        way: Callable[[Any, Tensor], Any],
        layer: Callable[[], nn.Module] = lambda: nn.Linear(WIDTH, CLASSES),
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
        """Scores of the classes."""
        result: Tensor = self.way(self, x)
        return result


def layered(way: Callable[[Any, Tensor], Any], **parts: Callable[[], Any]) -> Small:
    """A small run of one layer of scores, which is used in some ``way``, with ``parts`` beside."""
    return Small(lambda: Layered(way, **{k: make() for k, make in parts.items()}))
