"""Calls out of order that must be refused; and honest runs, without which that says nothing."""

from __future__ import annotations

import copy
import os
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    Subset,
    TensorDataset,
)

from tacit.auditing.replay.forbidden.changes import gradient, in_place
from tacit.auditing.replay.forbidden.data import by_user, fitted
from tacit.auditing.replay.forbidden.small_run import (
    DELTA,
    ROWS,
    Act,
    Counter,
    Layered,
    Model,
    Scene,
    Small,
    in_child,
    refuse,
    row_loss,
    rows,
    small_plan,
    tried,
)
from tacit.errors import TacitError
from tacit.training.performance import Performance
from tacit.training.session import private

if TYPE_CHECKING:
    from collections.abc import Callable


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
    in_place(scene)
    scene.dp.statement(DELTA)


def _again(scene: Scene) -> None:
    """A second loop over the lot, while the first has not ended."""
    for batch in scene.lot:
        scene.dp.backward(row_loss(scene.model, batch))


def in_forked_child(scene: Scene) -> None:
    """What a forked child does with its parent's session; refused there, refused here."""
    calls: tuple[Callable[[], object], ...] = (
        scene.dp.step, lambda: scene.dp.backward(scene.losses),
        lambda: scene.dp.statement(DELTA), lambda: next(scene.dp.lots()),
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
        optimizer = Counter(model.parameters())
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
    model = Model()
    with private(model, Counter(model.parameters()), small_plan(), TensorDataset(*rows())) as dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: row_loss(model, batch))
    return None


def _stuck() -> object:
    """A loop that is begun again and again, and passes nothing on."""
    model = Model()
    with private(model, Counter(model.parameters()), small_plan(), TensorDataset(*rows())) as dp:
        lot = next(dp.lots())
        for _ in range(200):
            for _batch in lot:
                break
    return None


def _in_turn() -> object:
    """Two loops over one lot, each of which takes a batch when the other has."""
    model, two = Model(), Performance(batch=2)
    data = TensorDataset(*rows())
    with private(model, Counter(model.parameters()), small_plan(), data, performance=two) as dp:
        lot = next(dp.lots())
        loops = iter(lot), iter(lot)
        while not lot.is_done:
            for loop in loops:
                dp.backward(row_loss(model, next(loop)))
        dp.step()
    return None


def _outlived() -> object:
    """A lot that goes on when the context is over."""
    model = Model()
    with private(model, Counter(model.parameters()), small_plan(), TensorDataset(*rows())) as dp:
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
        model = Model()
        optimizer, data = Counter(model.parameters()), TensorDataset(*rows())
        dp = private(model, optimizer, small_plan(), data)
        return act(Scene(dp, model, optimizer, data))

    return attempt


def _twice(scene: Scene) -> None:
    with scene.dp, scene.dp:
        pass


ORDER: dict[str, Callable[[], object]] = {
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
        lambda: Layered(_later, mixing=False), moment="between lots", act=_mixes_from_now_on),
    "a run in a forked child": _once("before a step", in_forked_child),
    "a session that is copied": _once("between lots", lambda s: copy.copy(s.dp)),
    "a session that is copied whole": _once("between lots", lambda s: copy.deepcopy(s.dp)),
    "a session that is pickled": _once("between lots", lambda s: pickle.dumps(s.dp)),
    "a session entered twice": _entered(_twice),
    "lots outside of the context": _entered(lambda s: next(s.dp.lots())),
    "a step outside of the context": _entered(lambda s: s.dp.step()),
    "losses outside of the context": _entered(lambda s: s.dp.backward(torch.ones(3))),
    "public steps outside of the context": _entered(lambda s: s.dp.public().__enter__()),
}  # fmt: skip

HONEST: dict[str, Callable[[], object]] = {
    "an honest run": Small(),
    "an honest run of users": by_user(groups=np.arange(ROWS) // 2),
    "an honest run in batches": Small(options={"performance": Performance(batch=4)}),
    "a gradient of zeros": Small(moment="between lots",
                                 act=lambda s: gradient(s, torch.zeros_like)),
    "an honest fit": fitted(lambda mine: Subset(mine.dataset, range(ROWS, 2 * ROWS))),
}  # fmt: skip
