# ruff: noqa: ARG001, ARG005, B023, E501, E731, PLC0415 - a law is one line, acts have one form, and tacit
# is imported in the process of its mutant
# fmt: off
"""Experiments on whole runs, what they keep and show, and what they must refuse; see ``release_law``."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import math
import os
import pickle
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from law_of_charges import claims, event_of, ledger_at, spent_laws
from law_of_sums import Tied, performance_of, style_of, tokens_of
from release_law import (
    DELTA,
    EXPERIMENTS,
    QUIET,
    Notes,
    Run,
    Witness,
    dense,
    experiment,
    labels,
    must_refuse,
    numbers,
    plan_of,
    print_of,
    repeatable,
    row_loss,
    seeded,
    table,
    trained,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# ---- fit, checkpoints, and what may be said


def fitted_by(
    model: Any, dataset: Any, plan: Any, *, optimizer: Any, delta: float, also: Any = None,
    budget: Any = None, **given: Any,
) -> Any:  # fmt: skip
    """Carries a run out, its settings sorted into the values that hold them."""
    from tacit.training.fit import Keeping, Prepared, Schedule, Watch, carry_out

    kinds = (Keeping, Watch, Schedule)
    own = [{name: given.pop(name) for name in kind.__dataclass_fields__ if name in given} for kind in kinds]
    keeping, watch, schedule = (kind(**one) for kind, one in zip(kinds, own, strict=True))
    prepared = Prepared(model=model, optimizer=optimizer, plan=plan, dataset=dataset, schedule=schedule, **given)
    return carry_out(prepared, delta=delta, budget=budget, keeping=keeping, watch=watch, also=also)


@experiment("fit")
def _fit(notes: Notes) -> None:
    """All options of ``fit``: the records of epochs claim no less than was released."""
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
            done = fitted_by(
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
            event = event_of(plan, record.steps)
            right = epsilon(event if also is None else Composed(also, event), DELTA)
            notes.law("an epoch's ε", record.epsilon >= right * (1 - 1e-6), (record.epsilon, right))
            notes.fact("epoch", [record.epoch, record.steps, record.held_out_accuracy, round(record.epsilon, 9)])
        notes.law("all epochs are told", len(told) == len(done.history) >= 3, len(told))
        claims(notes, plan, done.statement, plan.steps, plan.steps)


@experiment("fit: stopped and resumed")
def _fit_stopped(notes: Notes) -> None:

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

        done = fitted_by(
            model, data, plan, optimizer=optimizer, delta=DELTA, save=path, resume=resume,
            stop=stop, progress=False, budget=budget, performance=performance_of(lease=2)["performance"],
        )
        total += len(optimizer.given)
        notes.fact("part", [done.stopped, len(optimizer.given), list(model.parameters())])
        notes.law("asked after each step", done.stopped == (stop_at is not None))
        claims(notes, plan, done.statement, total, plan.steps)
        granted = budget.ledger.refresh().budgets["b"].granted
        notes.law("charged", granted >= total, (granted, total))
    notes.law("all steps once", total <= plan.steps, total)
    spent_laws(notes, budget, [event_of(plan, plan.steps)])
    budget.ledger.close()


def neighbours(notes: Notes, act: Callable[[Tensor, Tensor], object]) -> None:
    """What is seen beside the weights is the same on other data, under the same random bytes."""
    seen = []
    for factor in (1.0, 3.0):
        with repeatable("same"):
            torch.manual_seed(0)
            seen.append(print_of(act(factor * numbers(24, 5), labels(24) if factor == 1 else 2 - labels(24))))
    notes.fact("seen", seen)
    notes.law("nothing but the weights follows the data", seen[0] == seen[1])


@experiment("secrets: output")
def _secrets(notes: Notes) -> None:

    def act(x: Tensor, y: Tensor) -> object:
        plan = plan_of(examples=24, lot_size=6, steps=6, noise_multiplier=2.0)
        model = seeded(dense)
        out, err, logged = io.StringIO(), io.StringIO(), io.StringIO()
        handler = logging.StreamHandler(logged)
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(logging.DEBUG)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                done = fitted_by(
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
    with tacit.private(model, optimizer, plan, data, **performance_of(batch=4)) as dp:
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
    notes.fact("hooks", len(optimizer._optimizer_step_pre_hooks))


# ---- rarer ways


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@experiment("fit: on a terminal")
def _fit_on_terminal(notes: Notes) -> None:
    """What is shown there may be secret; ε and the steps are what they are elsewhere."""
    from tacit.training.progress import counting

    plan = plan_of(examples=24, lot_size=6, steps=8, noise_multiplier=2.0)
    for screen, wanted in ((_Terminal(), None), (io.StringIO(), True), (io.StringIO(), None)):
        model = seeded(dense)
        with contextlib.redirect_stderr(screen):
            done = fitted_by(
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
    notes.law("state is kept whole", print_of(list(other.state.items())) == print_of(list(one.state_dict().items())))
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
        return fitted_by(model, data, quick, optimizer=optimizer, delta=DELTA, scheduler=one,
                         state={"scheduler": other}, loss=row_loss, progress=False)

    def chosen_delta() -> object:
        with tempfile.TemporaryDirectory() as folder:
            return Ledger(f"sqlite:///{folder}/l.db").open("b", 1.0, DELTA, composition="renyi").at(1e-7)

    def table_with(**options: Any) -> Callable[[], object]:
        model = lambda: nn.Sequential(nn.Embedding(9, 4, **options), nn.Flatten(), nn.Linear(24, 3))
        rows = TensorDataset(tokens_of(10), labels(10), torch.ones(10))
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
        return fitted_by(
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
        "a precision that is none": lambda: performance_of(precision="int8"),
        "no workers": lambda: performance_of(workers=-1),
        "no lease": lambda: performance_of(lease=0),
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
        with tacit.private(model, Witness(model.parameters()), quick, data, **performance_of(batch=2)) as dp:
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
        "an unknown group": lambda: go(plan=plan_of(clipping=style_of("PerGroup", {"nothing": 1.0}), clip=None)),
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
        "private data as held-out data": lambda: fitted_by(
            (m := seeded(dense)), data, quick, optimizer=Witness(m.parameters()), delta=DELTA, held_out=data),
        "changed data": inside(lambda dp, m, o, _: data.tensors[0].mul_(1.0), "step"),
        "a budget that cannot be met": lambda: tacit.Plan.for_budget(
            epsilon=1.0, delta=1e-9, examples=100, lot_size=20, steps=50, clip=1.0,
            sampling=style_of("TruncatedPoisson", 21)),
        "a count that costs too much": lambda: tacit.Plan.for_budget(
            epsilon=0.5, delta=1e-6, examples=100, lot_size=20, steps=50, clip=1.0,
            clipping=style_of("AdaptiveQuantile", count_noise=0.1)),
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
        {"lot_size": 5, "sampling": style_of("FullBatch")}, {"sampling": style_of("TruncatedPoisson", 3)},
        {"clipping": style_of("PerGroup", {"": 1.0}), "clip": 2.0},
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
            found[f"{style} with {value}"] = partial(style_of, style, **{name: value})
    return found


def one_refusal(notes: Notes, name: str) -> None:
    must_refuse(notes, name, _refusals()[name])


def add_refusals() -> None:
    for name in _refusals():
        EXPERIMENTS[f"refused: {name}"] = partial(one_refusal, name=name)
