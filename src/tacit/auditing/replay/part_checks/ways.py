"""Other ways to take the same steps: epochs, releases that others step, and recorded steps.

Each is compared with a run that does without: the same seed must lead to the same weights.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from tacit.auditing.replay.forbidden.charges import ledger
from tacit.auditing.replay.forbidden.small_run import DELTA, row_loss, rows, small_plan, tried
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.watch import seeded
from tacit.training import sampling
from tacit.training.capture import HostRead, Reruns
from tacit.training.performance import Performance
from tacit.training.sampling import Allocation, FullBatch
from tacit.training.session import private
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from tacit.training.plan import Plan
    from tacit.training.session import Session

_ROWS, _LOTS, _EPOCHS = 12, 3, 3
_STEPS = 14
_CLOSE = 1e-6


# ---- epochs


class _Crash(Exception):
    """A run ends here."""


def epochs() -> Finding:
    """Everybody is in one lot of every epoch, also of one that is resumed.

    An epoch of which a step was lost is charged and left: those after it are whole.
    """
    wrong: list[str] = []
    plan = small_plan(
        examples=_ROWS, lot_size=_ROWS / _LOTS, steps=_LOTS * _EPOCHS, sampling=Allocation()
    )
    with ledger() as books, tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path = Path(folder) / "epochs"
        whole = _lots(plan, None, end=_LOTS + 2, path=path)[0]
        whole += _lots(plan, None, resume=path)[0]
        wrong += _unequal("a resumed run", whole, _EPOCHS)
        budget = books.open("epochs", 1e5, DELTA)
        first, _ = _lots(plan, budget, end=_LOTS + 1, path=path, crash=True)
        rest, dp = _lots(plan, budget, resume=path)
        wrong += _unequal("before a crash", first[:_LOTS], 1)
        wrong += _unequal("after a crash", rest, 1)
        granted = books.refresh().budgets["epochs"].granted
    counted = dp.steps_taken, dp.steps_lost, granted
    if counted != (2 * _LOTS + 1, _LOTS - 1, plan.steps):
        wrong.append(f"{counted} steps are taken, lost and charged of {plan.steps}")
    if plan.epochs != _EPOCHS or plan.event_after(1) != plan.event_after(_LOTS):
        wrong.append("a step of an epoch is charged less than the epoch")
    said = "; ".join(wrong) or "everybody is in one lot of each"
    return Finding("sampling", "epochs", not wrong, said)


def _unequal(what: str, lots: list[list[int]], count: int) -> list[str]:
    """What is wrong with the last ``count`` epochs of lots."""
    ends = range(len(lots), len(lots) - count * _LOTS, -_LOTS) if count else ()
    seen = [sorted(one for lot in lots[end - _LOTS : end] for one in lot) for end in ends]
    right = all(one == list(range(_ROWS)) for one in seen)
    return [] if right else [f"{what}: an epoch is of {seen}"]


def _lots(
    plan: Plan,
    budget: Any,
    *,
    end: int | None = None,
    path: Path | None = None,
    crash: bool = False,
    resume: Path | None = None,
) -> tuple[list[list[int]], Session]:
    """The records of a run's lots; it is kept and left at step ``end``, or crashes in the next."""
    found: list[list[int]] = []
    x = torch.arange(float(_ROWS)).unsqueeze(1)
    model = nn.Linear(1, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    data = TensorDataset(x, torch.zeros(_ROWS, dtype=torch.int64))
    dp = private(model, optimizer, plan, data, budget, resume=resume)
    with suppress(_Crash), dp:
        for lot in dp.lots():
            drawn: list[int] = []
            for batch in lot:
                if not lot.is_rehearsal:
                    drawn += batch[0][:, 0].int().tolist()
                dp.backward(row_loss(model, batch))
            dp.step()
            found.append(drawn)
            if path is not None and dp.steps_taken == end:
                dp.save(path)
            if end is not None and dp.steps_taken == end + crash:
                raise _Crash
    return found, dp


# ---- releases


def released() -> Finding:
    """Gradients that others step come to what ``dp.step()`` does; nothing else may be stepped."""

    def by_others(dp: Session, optimizer: Any) -> None:
        dp.release()
        optimizer.step()

    def twice(dp: Session, optimizer: Any) -> None:
        by_others(dp, optimizer)
        optimizer.step()

    def changed(dp: Session, optimizer: Any) -> None:
        dp.release()
        next(iter(dp.model.parameters())).grad.mul_(2.0)  # type: ignore[union-attr]
        optimizer.step()

    def another(dp: Session, optimizer: Any) -> None:
        dp.release()
        parameter = next(iter(dp.model.parameters()))
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    def moved(dp: Session, optimizer: Any) -> None:
        dp.release()
        with torch.no_grad():
            next(iter(dp.model.parameters())).add_(1.0)
        optimizer.step()

    def somebody_elses(dp: Session, _: Any) -> None:
        dp.release()
        torch.optim.SGD(dp.model.parameters(), lr=0.1).step()

    wrong, run = [], _Way()
    if not torch.equal(run(), run(step=by_others)):
        wrong.append("a released gradient leads elsewhere")
    for name, step in {
        "two steps of one release": twice, "a gradient that was changed": changed,
        "another gradient": another, "weights that were moved": moved,
        "no step": lambda dp, _: dp.release(), "another optimizer's step": somebody_elses,
    }.items():  # fmt: skip
        wrong += tried(name, lambda: run(step=step))  # noqa: B023 - called in this turn
    said = "; ".join(wrong) or "they come to the same, and all else is refused"
    return Finding("update", "releases", not wrong, said)


# ---- recordings


def _stepped(dp: Session, optimizer: Any) -> None:
    del optimizer
    dp.step()


def _momentum(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


@final
@dataclass(frozen=True, kw_only=True)
class _Way:
    """A seeded run of a small network; ``performance`` must lead to the same weights."""

    plan: Mapping[str, Any] = field(default_factory=dict)
    data: Callable[[], Dataset[Any]] = lambda: TensorDataset(*rows(24))
    optimizer: Callable[[nn.Module], Any] = _momentum
    options: Mapping[str, Any] = field(default_factory=dict)
    factor: Callable[[int], float] = lambda _: 1.0  # on the losses, by step
    rate: Callable[[int], float] = lambda _: 0.05
    chance: bool = False  # whether the loss draws a number on the host
    batch: int | str = "auto"

    def __call__(
        self, *, capture: bool = False, step: Callable[[Session, Any], None] = _stepped,
        said: list[str] | None = None,
    ) -> Tensor:  # fmt: skip
        """The weights."""
        with seeded(5):
            model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
        optimizer, given = self.optimizer(model), {"examples": 24, "lot_size": 8, "steps": _STEPS}
        pace = Performance(capture=capture, workers=0, batch=self.batch)  # type: ignore[arg-type]
        dp = private(
            model, optimizer, small_plan(**{**given, **self.plan}), self.data(), unsafe_seed=3,
            performance=pace, **self.options,
        )  # fmt: skip
        with dp:
            for lot in dp.lots():
                optimizer.param_groups[0]["lr"] = self.rate(lot.step)
                dp.accumulate(lot, self._losses(model, self.factor(lot.step)), seen=_nothing)
                step(dp, optimizer)
            if said is not None:
                said.append(dp.explain())
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    def _losses(self, model: nn.Module, factor: float) -> Callable[[Any], Tensor]:
        def losses(batch: Any) -> Tensor:
            if self.chance:
                random.random()
            return factor * row_loss(model, batch)

        return losses


def _nothing(values: Tensor) -> None:
    del values


@final
class _Own(Dataset[Any]):
    """Rows that are read one by one."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, at: int) -> Any:
        x, y = rows(24)
        return x[at], y[at]


class _Foreign(torch.optim.SGD):
    """An optimizer of somebody's own."""


_BATCHES, _UPDATES = "Batches are replayed", "Noise and update are replayed"


def recorded() -> Finding:
    """Recorded steps come to the weights of steps that are computed each time; or none is recorded.

    A replay runs what was recorded again, in the same memory: stale inputs, settings or noise show.
    """
    wrong: list[str] = []
    users = {"unit": "user", "examples": 12, "lot_size": 4, "examples_per_user": 2}
    owners = {"groups": np.arange(24) % 12}
    adaptive = {"clipping": AdaptiveQuantile(count_noise=3.0)}
    for name, (way, expected) in {
        "lots of chance": (_Way(), (_BATCHES, _UPDATES)),
        "everybody": (_Way(plan={"lot_size": 24, "sampling": FullBatch()}), (_BATCHES, _UPDATES)),
        "rows that are read": (_Way(data=_Own), (_BATCHES, _UPDATES)),
        "small batches": (_Way(batch=4), (_BATCHES,)),
        "users": (_Way(plan=users, options=owners), (_BATCHES, _UPDATES)),
        "a clip that moves": (_Way(plan=adaptive), (_BATCHES,)),
        "secure noise": (_Way(plan={"noise": "secure"}), (_BATCHES,)),
        "learning rates": (_Way(rate=lambda t: 0.05 if t < 8 else 0.02), (_BATCHES, _UPDATES)),
        "a rate for each step": (_Way(rate=lambda t: 0.1 / (t + 1)), (_BATCHES,)),
        "another loss": (_Way(factor=lambda t: 1.0 if t < 8 else 3.0), (_BATCHES,)),
        "a loss for each step": (_Way(factor=lambda t: 1.0 + t), ("Batches",)),
        "random numbers": (_Way(chance=True), ("random numbers on the host",)),
        "another's optimizer": (
            _Way(optimizer=lambda m: _Foreign(m.parameters(), 0.05, 0.9)), ("not one of torch's",)),
    }.items():  # fmt: skip
        wrong += _apart(name, way, expected)
    return Finding("control flow", "recorded", not wrong, "; ".join(wrong[:4]) or "they do")


def _apart(name: str, way: _Way, expected: tuple[str, ...]) -> list[str]:
    """What a recorded run does otherwise than one without recordings, or says otherwise."""
    said: list[str] = []
    with patch.object(sampling, "_MOST_LOTS", 1):  # so that a seed gives the same lots
        plain, own = way(), way(capture=True, said=said)
    off = float((own - plain).abs().max())
    found = [] if off <= _CLOSE else [f"{name}: the weights are {off:.3g} from what they should be"]
    return found + [f"{name}: {one!r} is not said" for one in expected if one not in said[0]]


def _reading(_: Reruns) -> AbstractContextManager[None]:
    """As where a loss asks a device for a number."""
    raise HostRead


def _wrong_batch(record: Any) -> Callable[[Reruns, Any], Any]:
    """Records batches whose replays come to less."""

    def recorded(self: Reruns, work: Any) -> Any:
        replay, (losses, sums) = record(self, work)

        def less() -> None:
            replay()
            for one in sums.sums.values():
                one.mul_(0.9)

        return less, (losses, sums)

    return recorded


def unrecorded() -> Finding:
    """What a device cannot replay is computed each time: hooks, host reads, failed recordings."""

    def fail(*_: Any) -> Any:
        raise RuntimeError("raised by the self-test")

    def hooked(model: nn.Module) -> Any:
        model[0].register_forward_hook(lambda *_: None)  # type: ignore[index]
        return _momentum(model)

    def by_hooks(model: nn.Module) -> Any:
        made = _momentum(model)
        made.register_step_post_hook(lambda *_: None)
        return made

    def adam(model: nn.Module) -> Any:
        return torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)

    wrong: list[str] = []
    wrong_batch = _wrong_batch(Reruns.record_batch)
    deaf = ("runs_python", False)  # as a device that replays without Python
    for name, way, (what, by), expected in (
        ("a hook", _Way(optimizer=hooked), deaf, "a hook would not be called"),
        ("an optimizer's hook", _Way(optimizer=by_hooks), deaf, "would not be called"),
        ("a count on the host", _Way(optimizer=adam, rate=lambda _: 0.01), deaf, "on the host"),
        ("a failed batch", _Way(), ("record_batch", fail), "recording failed with RuntimeError"),
        ("a failed update", _Way(), ("record_update", fail), "recording failed with RuntimeError"),
        ("other sums", _Way(), ("record_batch", wrong_batch), "gave other sums"),
        ("a number that is read", _Way(), ("without_host_reads", _reading), "reads numbers back"),
    ):
        with patch.object(Reruns, what, by):
            wrong += _apart(name, way, (expected,))
    return Finding("control flow", "unrecorded", not wrong, "; ".join(wrong[:4]) or "it is")
