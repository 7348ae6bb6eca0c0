# ruff: noqa: ARG001, ARG005, E501, PLC0415 - a law is one line, acts have one form, and tacit
# is imported in the process of its mutant
# fmt: off
"""Experiments on what checks keep out, so that every check is run by one; see ``release_law``.

What is let pass breaks a law only where something unlawful could be released through it; a check
that only gives a better message than the error which follows is in ``CONVENIENT``.
"""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, Subset, TensorDataset

from law_of_charges import ledger_at
from law_of_sessions import fitted_by
from law_of_sums import performance_of, style_of
from release_law import (
    CLIP,
    DELTA,
    EXPERIMENTS,
    RARE,
    Notes,
    Witness,
    dense,
    experiment,
    labels,
    must_refuse,
    numbers,
    plan_of,
    row_loss,
    seeded,
    table,
    trained,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# ---- models that must not be trained as they are


class _One(nn.Module):
    def __init__(self, way: Callable[[Any, Tensor], Any], **parts: Any) -> None:
        super().__init__()
        self.layer, self.way = nn.Linear(5, 3), way
        for name, part in parts.items():
            self.register_buffer(name, part) if type(part) is Tensor else setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.way(self, x)


def _assigning(m: Any, x: Tensor) -> Tensor:
    m.layer.weight.data = m.layer.weight + 1e-3 * x.mean()
    return m.layer(x)


def _spoiling(m: Any, x: Tensor) -> Tensor:
    h = 2.0 * x
    out = m.layer(h)
    h.mul_(3.0)
    return out


def _set_item(m: Any, x: Tensor) -> Tensor:
    both = x.clone()
    both[:, :] = m.layer.weight[0]
    return m.layer(both + x)


def _odd_models() -> dict[str, Callable[[], nn.Module]]:
    mean, var = torch.zeros(5), torch.ones(5)
    return {
        "an assignment to .data": lambda: _One(_assigning),
        "a weight changed by its own method": lambda: _One(lambda m, x: m.layer(x) + m.layer.weight.mul_(1.01).sum()),
        "a used tensor changed": lambda: _One(_spoiling),
        "a weight set into a tensor": lambda: _One(_set_item),
        "lstsq": lambda: _One(lambda m, x: m.layer(x) + torch.linalg.lstsq(m.layer.weight.T, x.T).solution.T),
        "cdist by rows elsewhere": lambda: _One(lambda m, x: m.layer(x) + torch.cdist(m.layer.weight, x).T),
        "a weight for each row": lambda: _One(lambda m, x: m.layer(x) + m.rows[: len(x)], rows=nn.Parameter(torch.ones(10, 3))),
        "an instance norm as a function": lambda: _One(
            lambda m, x: m.layer(functional.instance_norm(x[:, :, None].expand(-1, -1, 3), m.mean, m.var, m.gain).mean(2)),
            gain=nn.Parameter(torch.ones(5)), mean=mean.clone(), var=var.clone()),
        "reentrant checkpointing": lambda: _One(lambda m, x: checkpoint(m.layer, x.requires_grad_(), use_reentrant=True)),
        "an unused layer": lambda: _One(lambda m, x: m.layer(x), spare=nn.Linear(2, 2)),
        "a weight on meta": lambda: nn.Linear(5, 3, device="meta"),
        "weights in two places": lambda: nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3, device="meta")),
        "rows divided by their count": lambda: _One(lambda m, x: m.layer(x) / len(x)),
    }


def _scaled(model: nn.Module, batch: Any) -> Tensor:
    return torch.amp.GradScaler("cpu", init_scale=8.0).scale(row_loss(model, batch))


# ---- foreign changes, in every way that leaves another trace


class _Rich(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.note = nn.Linear(5, 4), nn.Linear(4, 3), 0
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("shift", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)) * self.frozen + self.shift)

    def get_extra_state(self) -> int:
        return self.note

    def set_extra_state(self, state: int) -> None:
        self.note = state


def _foreign_step(model: Any) -> None:
    model.a.weight.grad = torch.ones(4, 5)
    torch.optim.SGD([model.a.weight], lr=0.1, fused=True).step()


WAYS: dict[str, Callable[[Any, Any], object]] = {
    "data": lambda m, o: m.b.weight.data.add_(0.1),
    "one entry": lambda m, o: m.b.bias.data[-1:].add_(1e-3),
    "new data": lambda m, o: setattr(m.a.bias, "data", torch.ones(4)),
    "numpy": lambda m, o: m.a.weight.detach().numpy().fill(0.2),
    "frozen": lambda m, o: m.frozen.add_(1.0),
    "a new parameter": lambda m, o: setattr(m.a, "weight", nn.Parameter(torch.ones(4, 5))),
    "a new module": lambda m, o: setattr(m, "b", nn.Linear(4, 3)),
    "a new buffer": lambda m, o: setattr(m, "shift", torch.ones(4)),
    "a buffer's data": lambda m, o: m.shift.data.add_(1.0),
    "extra state": lambda m, o: setattr(m, "note", 3),
    "an optimizer's group": lambda m, o: o.add_param_group({"params": [nn.Parameter(torch.ones(1))]}),
    "a foreign step": lambda m, o: _foreign_step(m),
    "a frozen gradient": lambda m, o: setattr(m.frozen, "grad", torch.ones(4)),
    "a last gradient": lambda m, o: setattr(m.b.bias, "grad", torch.eye(3)[2]),
}


def _foreign(way: str, when: str) -> None:
    import tacit

    model = seeded(_Rich)
    optimizer = Witness(model.parameters(), lr=0.1)
    dp = tacit.private(model, optimizer, plan_of(steps=2), TensorDataset(*table(10)))
    with dp:
        for lot in dp.lots():
            dp.accumulate(lot, lambda batch: row_loss(model, batch))
            if when == "before a step":
                WAYS[way](model, optimizer)
            dp.step()
            if when == "between":
                WAYS[way](model, optimizer)
        if when == "end":
            WAYS[way](model, optimizer)
    if when == "after":
        WAYS[way](model, optimizer)
    dp.statement(DELTA)


def _in_session(act: Callable[[Any, Any], object]) -> Callable[[], object]:
    def run() -> None:
        import tacit

        model = seeded(dense)
        with tacit.private(model, Witness(model.parameters()), plan_of(steps=2), TensorDataset(*table(10)), **performance_of(batch=4)) as dp:
            lot = next(dp.lots())
            act(dp, lot)

    return run


def _two_loops(dp: Any, lot: Any) -> None:
    loops = [iter(lot), iter(lot)]
    for _ in range(40):
        for loop in loops:
            batch = next(loop)
            dp.backward(row_loss(dp.model, batch))


def _stuck(dp: Any, lot: Any) -> None:
    for _ in range(300):
        for _batch in lot:
            break


def _outlived(dp: Any, lot: Any) -> None:
    batches = iter(lot)
    dp.backward(row_loss(dp.model, next(batches)))
    dp._computation.leave()
    for batch in batches:
        dp.backward(row_loss(dp.model, batch))


class _Ragged(Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, at: int) -> Any:
        return torch.ones(at + 1), torch.tensor(0), torch.tensor(1.0)


def _frame() -> Any:
    return type("DataFrame", (_Ragged,), {})()


def _wrapped(model: nn.Module) -> Any:
    return type("A", (Witness,), {"__module__": "accelerate.optimizer"})(model.parameters())


def _launched() -> None:
    os.environ.update(RANK="0", WORLD_SIZE="2")
    try:
        trained(seeded(dense), TensorDataset(*table(10)), plan_of(steps=2))
    finally:
        os.environ.pop("RANK")
        os.environ.pop("WORLD_SIZE")


def _fitted(**options: Any) -> object:
    model = seeded(dense)
    optimizer = Witness(model.parameters(), lr=options.pop("lr", 0.1))
    scheduler = options.pop("scheduler", lambda o: None)(optimizer)
    given: dict[str, Any] = {"delta": DELTA, "progress": False}
    data = TensorDataset(numbers(10, 5), labels(10))
    return fitted_by(model, data, plan_of(**options.pop("plan", {"steps": 3, "noise_multiplier": 1.0})), optimizer=optimizer, scheduler=scheduler, **(given | options))


def refusals() -> dict[str, Callable[[], object]]:
    import tacit
    from tacit.training import fix

    data, quick = TensorDataset(*table(10)), plan_of(steps=2)
    found: dict[str, Callable[[], object]] = {
        name: partial(trained, seeded(build), data, quick) if "meta" not in name and "places" not in name
        else (lambda b=build: trained(b(), data, quick))
        for name, build in _odd_models().items()
    }
    for way in WAYS:
        for when in ("before a step", "between", "end", "after"):
            if when != "after" or way not in ("an optimizer's group", "a foreign step", "a frozen gradient", "a last gradient"):
                found[f"{way} changed, {when}"] = partial(_foreign, way, when)
    private = lambda optimizer, **o: lambda: tacit.private((m := seeded(dense)), optimizer(m), quick, data, **o)  # noqa: E731
    held = TensorDataset(numbers(9, 5), labels(9))
    return found | {
        "scaled losses": lambda: trained(seeded(dense), data, quick, loss=_scaled),
        "two loops in turn": _in_session(_two_loops),
        "a loop that passes nothing": _in_session(_stuck),
        "a lot that was left": _in_session(_outlived),
        "a session copied": _in_session(lambda dp, lot: copy.copy(dp)),
        "a session pickled": _in_session(lambda dp, lot: pickle.dumps(dp)),
        "labels out of range": lambda: trained(seeded(dense), TensorDataset(numbers(10, 5), labels(10) + 3, torch.ones(10)), quick),
        "losses that are no numbers": lambda: trained(seeded(dense), data, quick, loss=lambda m, b: row_loss(m, b) * math.nan),
        "rows of all lengths": lambda: trained(seeded(dense), _Ragged(), quick),
        "a data frame": lambda: trained(seeded(dense), _frame(), quick),
        "one of two processes": _launched,
        "accelerate's optimizer": private(_wrapped),
        "a plateau in the state": private(lambda m: Witness(m.parameters()), state={"s": torch.optim.lr_scheduler.ReduceLROnPlateau(Witness(dense().parameters()))}),
        "a plateau in fit": lambda: _fitted(scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau),
        "another's schedule": lambda: _fitted(scheduler=lambda _: torch.optim.lr_scheduler.StepLR(Witness(dense().parameters()), 1)),
        "a δ above one in ten": lambda: _fitted(delta=0.2),
        "another's average": lambda: _fitted(average=torch.optim.swa_utils.AveragedModel(nn.Linear(2, 2))),
        "a folder to save in": lambda: _fitted(save=os.curdir),
        "a place that is none": lambda: _fitted(save=os.path.join(__file__, "x")),
        "nobody held out": lambda: _fitted(held_out=Subset(held, [])),
        "held out without labels": lambda: _fitted(held_out=TensorDataset(numbers(9, 5))),
        "no classes": lambda: fitted_by((m := nn.Linear(5, 1)), TensorDataset(numbers(10, 5), labels(10)), quick, optimizer=Witness(m.parameters()), delta=DELTA, progress=False, held_out=held, loss=lambda m, b: m(b[0])[:, 0]),
        "a divergent run": lambda: _fitted(lr=1e38, plan={"steps": 3, "noise_multiplier": 1e4}),
        "bounds of a text": lambda: style_of("PerGroup", "ab"),
        "bounds of a number": lambda: style_of("PerGroup", 3.0),
        "a bound for nobody": lambda: trained(seeded(dense), data, plan_of(clipping=style_of("PerGroup", {"": 1.0, "9": 1.0}), clip=None)),
        "both epochs and steps": lambda: tacit.Plan.for_budget(epsilon=1.0, delta=1e-4, examples=100, lot_size=10, clip=1.0, epochs=1.0, steps=3),
        "endless epochs": lambda: tacit.Plan.for_budget(epsilon=1.0, delta=1e-4, examples=100, lot_size=10, clip=1.0, epochs=1e300),
        "hardly anybody drawn": lambda: tacit.Plan.for_budget(epsilon=1.0, delta=5e-3, examples=100, lot_size=1e-3, clip=1.0, steps=1),
        "a lazy batch norm": lambda: fix(nn.Sequential(nn.LazyBatchNorm1d())),
        "a batch norm of one's own": lambda: fix(nn.Sequential(type("B", (nn.BatchNorm1d,), {})(4))),
    }


def _one(notes: Notes, name: str) -> None:
    must_refuse(notes, name, refusals()[name])


def add_all() -> None:
    for name in refusals():
        EXPERIMENTS[f"kept out: {name}"] = partial(_one, name=name)


# ---- checkpoints


class _Own:
    def __init__(self) -> None:
        self.held: Any = {"half": torch.ones(2, dtype=torch.bfloat16), "n": 1.0}

    def state_dict(self) -> Any:
        return self.held

    def load_state_dict(self, state: Any) -> None:
        self.held = state


@experiment("checkpoints: forged")
def _forged(notes: Notes) -> None:
    """Whoever changes a checkpoint gets no step beyond the plan, and no claim that leaves one out."""
    from tacit.training import checkpoint_file as files

    plan, path, other = plan_of(examples=10, lot_size=10, steps=4, noise_multiplier=1.0), notes.folder / "a", notes.folder / "b"
    go = lambda **o: trained(seeded(dense), TensorDataset(*table(10)), plan, lr=0.1, **o)  # noqa: E731
    go(steps=2, after=lambda dp: dp.save(path), state={"own": _Own()})

    def pairs(document: Any, *where: Any) -> Any:
        for one in where:
            document = document[one]
        return document["values"]["dict"]

    def put(name: str, value: object) -> Callable[[Any, Any], object]:
        return lambda d, t: d.update({name: value})

    def own(value: object) -> Callable[[Any, Any], object]:
        return lambda d, t: d["state"]["own"].update(values={"dict": [["a", value]]})

    def run(name: str, value: object) -> Callable[[Any, Any], object]:
        def change(d: Any, t: Any) -> None:
            known = dict(pairs(d, "state", "tacit run")) | {name: value}
            d["state"]["tacit run"]["values"]["dict"] = [[k, v] for k, v in known.items()]
        return change

    def group(value: Callable[[Any], Any]) -> Callable[[Any, Any], object]:
        def change(d: Any, t: Any) -> None:
            place = next(p for p in pairs(d, "optimizers", 0) if p[0] == "param_groups")
            place[1] = value(place[1])
        return change

    def rate(value: object) -> Callable[[Any, Any], object]:
        return group(lambda old: [{"dict": [[k, value if k == "lr" else v] for k, v in old[0]["dict"]]}])

    for name, change in {
        "a step too many": put("steps_taken", 5), "steps below 0": put("steps_taken", -1),
        "a plan that is a number": put("plan", 3), "no dictionary": put("model", []), "no text": put("tacit", 3),
        "a last step beyond": run("last_step", 9), "a last step of 0": run("last_step", 0),
        "a last step before": run("last_step", 1), "a seed that is unsaid": run("unsafe", 0),
        "another length of groups": group(lambda _: []), "a group that is a number": group(lambda _: [3]),
        "a rate that is a text": rate("x"), "no rate": rate(None), "an infinite rate": rate({"float": "inf"}),
        "an infinite weight": lambda d, t: t["model.0.weight"].fill_(math.inf),
        "a number for a tensor": lambda d, t: d["model"]["dict"][0].__setitem__(1, 3.0),
        "another shape of a parameter": lambda d, t: d["optimizers"][0].update(shapes=[[[1]]]),
        "an unknown tag": own({"x": 1}), "two tags": own({"x": 1, "y": 2}), "no tensor of the name": own({"tensor": "x"}),
        "no float": own({"float": "1"}), "no dtype": own({"dtype": "x"}), "no list": own({"tuple": 3}),
        "no pair": own({"dict": [[1]]}), "no key": own({"dict": [[[1], 2]]}), "no array": own({"array": "state.own.half"}),
    }.items():
        document, tensors = files.read(path)
        change(document, tensors)
        files.write(other, document, tensors)
        must_refuse(notes, name, lambda: go(resume=other, state={"own": _Own()}))
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    texts = header["__metadata__"]

    def headed(value: object) -> bytes:
        text = json.dumps(value).encode()
        return len(text).to_bytes(8, "little") + text + whole[8 + length :]

    for name, content in {
        "no header": headed([1]), "another format": headed({**header, "__metadata__": texts | {"format": "x"}}),
        "another version": headed({**header, "__metadata__": texts | {"version": "9"}}),
        "a document that is cut": headed({**header, "__metadata__": texts | {"document": texts["document"].replace("steps_taken\": 2", "steps_taken\": 1")}}),
        "bytes that are cut": whole[: 8 + length], "a long header": (17 << 20).to_bytes(8, "little") + b" " * (18 << 20),
    }.items():
        other.write_bytes(content)
        must_refuse(notes, name, lambda: go(resume=other, state={"own": _Own()}))
        must_refuse(notes, f"{name}, as bytes", partial(files.from_bytes, content, "here"))
    must_refuse(notes, "a folder", lambda: go(resume=notes.folder))
    for name, value in (("a sparse tensor", torch.ones(2).to_sparse()), ("an array of objects", np.array([object()]))):
        kept = _Own()
        kept.held = {"a": value}
        must_refuse(notes, name, lambda k=kept: go(steps=1, after=lambda dp: dp.save(other), state={"own": k}))
    must_refuse(notes, "no folder to write to", lambda: go(steps=1, after=lambda dp: dp.save(notes.folder / "x" / "y")))


# ---- the ledger


@experiment("ledger: what it keeps out")
def _kept_out(notes: Notes) -> None:
    from tacit.accounting import Composed, Gaussian, Laplace, Repeated
    from tacit.ledger import Release

    ledger = ledger_at(notes)
    budget = ledger.open("clinic", 50.0, DELTA)
    what = Release(Repeated(Gaussian(30.0), 5))
    for name, act in {
        "a name of two lines": lambda: ledger.open("a\nb", 1.0, DELTA), "a long name": lambda: ledger.open("x" * 300, 1.0, DELTA),
        "a full-width name": lambda: ledger.open("ｃlinic", 1.0, DELTA), "a space before a name": lambda: ledger.open(" clinic", 1.0, DELTA),
        "a name in two scripts": lambda: ledger.open("сlinic", 1.0, DELTA), "a name alike": lambda: ledger.open("Clinic", 1.0, DELTA),
        "a long reason": lambda: budget.amend(epsilon=6.0, reason="x" * 2000), "a label of two lines": lambda: budget.reserve(what, label="a\nb"),
        "a long label": lambda: budget.reserve(what, label="x" * 2000), "a detail of objects": lambda: budget.reserve(what, detail={"a": object()}),
        "a list for a detail": lambda: budget.reserve(what, detail=[1]), "a long detail": lambda: budget.reserve(what, detail={"a": "x" * 2_100_000}),
        "steps beyond counting": lambda: budget.reserve(Release(Laplace(1e9)), steps=2**53 + 2),
        "too many events": lambda: budget.reserve(Release(Composed(*(Laplace(1e6 + k) for k in range(2100))))),
    }.items():
        must_refuse(notes, name, act)
    plan = plan_of(examples=10, lot_size=10, steps=3, noise_multiplier=2.0)
    path, ahead = notes.folder / "run", notes.folder / "ahead"
    go = lambda **o: trained(seeded(dense), TensorDataset(*table(10)), plan, **o)  # noqa: E731
    go(steps=2, budget=budget, after=lambda dp: dp.save(path))
    first = max(ledger.books.reservations)
    go(steps=1, budget=budget, after=lambda dp: dp.save(ahead))
    second = max(ledger.books.reservations)
    from tacit.training import checkpoint_file as files

    document, tensors = files.read(ahead)
    files.write(ahead, document | {"steps_taken": 3}, tensors)
    must_refuse(notes, "more steps than granted", lambda: go(budget=budget, resume=ahead))
    must_refuse(notes, "another run's reservation", lambda: go(budget=budget.reservation(second), resume=path))
    document, tensors = files.read(path)
    (name,) = [n for n, one in document["state"].items() if "ledger" in json.dumps(one)]
    document["state"][name]["values"] = {"dict": [["budget", "clinic"]]}
    files.write(ahead, document, tensors)
    must_refuse(notes, "a charge that is unsaid", lambda: go(budget=budget, resume=ahead))
    go(steps=1, after=lambda dp: dp.save(ahead))
    must_refuse(notes, "a free run in a reservation", lambda: go(budget=budget.reservation(first), resume=ahead))
    ledger.close()


# ---- chance


class _Set:
    """Blocks of bytes that are set, in turn, and further digits that follow from a name."""

    def __init__(self, *fills: bytes | None) -> None:
        self.fills, self.blocks, self.chance, self.calls = fills, 0, np.random.default_rng(1), 0

    def bytes(self, count: int) -> bytes:
        self.calls += 1
        if self.calls > 20_000:
            raise RuntimeError("without an end")
        fill = None
        if count > 64:
            fill = self.fills[self.blocks % len(self.fills)]
            self.blocks += 1
        return self.chance.bytes(count) if fill is None else (fill * count)[:count]


@experiment("draws: undecided")
def _undecided(notes: Notes) -> None:
    """Digits that decide nothing are followed by others: the law of what comes then is known."""
    from tacit import randomness as r

    size, beyond = 600, 63 * math.log(2)
    for scale in (50.0, 1e5):
        found = np.abs(r.rounded_laplace(scale, size, _Set(b"\x00"))) / scale - beyond
        notes.fact(f"rounded Laplace {scale}", found)
        chance = stats.kstest(found, "expon").pvalue if scale > 100 else 1.0
        notes.law("the tail of a Laplace", chance > RARE, chance)
        found = np.abs(r.discrete_laplace(scale, size, _Set(b"\x00"))) / scale - beyond
        notes.fact(f"discrete Laplace {scale}", found)
        notes.law("the tail of a discrete one", stats.kstest(found, "expon").pvalue > RARE or scale < 100)
    chance = np.random.default_rng(2)
    words = torch.zeros(1, 2, size, dtype=torch.int64)
    words[0, 1] = torch.frombuffer(bytearray(chance.bytes(8 * size)), dtype=torch.int64)
    pairs = r.gaussian.rounded_tiles(words, 1e5, chance.bytes(32))[0].numpy() / 1e5
    radii = 0.5 * (pairs[0] ** 2 + pairs[1] ** 2) - beyond
    notes.fact("pairs", radii)
    notes.law("the tail of a normal pair", stats.kstest(radii, "expon").pvalue > RARE)
    for sigma, only in ((math.sqrt(6.0), 2), (math.sqrt(20.0), 4)):
        found = r.discrete_gaussian(sigma, 30, _Set(None, b"\xff"))
        notes.fact(f"coins {sigma}", found)
        notes.law("a sure coin falls, and no other", (np.abs(found) == only).all(), found.tolist())
    found = r.discrete_laplace(2.0**33, 30, _Set(None, b"\x00", b"\xff"))
    notes.fact("low digits", found)
    notes.law("low digits of 0 are sure", len(found) == 30)
    cpu = torch.device("cpu")
    for name, act in {
        "noise elsewhere": lambda: r.GaussianSource(cpu, r.SystemStream()).normal_(torch.empty(2, device="meta")),
        "whole noise elsewhere": lambda: r.RoundedGaussian(r.SystemStream(), cpu).integers_(torch.empty(2, device="meta", dtype=torch.int64), 1.0),
        "whole noise copied": lambda: copy.copy(r.RoundedGaussian(r.SystemStream(), cpu)),
        "a number for a purpose": lambda: r.UnsafeSeededStream(1, 3), "a grid too fine": lambda: r.granularity(1e-320),
        "values beyond the grid": lambda: r.on_grid([1e300], 0.25), "a missing value": lambda: r.grid_laplace([math.nan], 1.0, 1.0, r.SystemStream()),
        "a small sensitivity": lambda: r.grid_laplace([0.5], 1.0, 1e-40, r.SystemStream()),
    }.items():
        must_refuse(notes, name, act)
    real = os.urandom
    for name, dull in (("zeros for entropy", bytes), ("the same entropy again", lambda count: bytes(range(256))[:count])):
        os.urandom = dull
        try:
            must_refuse(notes, name, lambda: r.SystemStream().bytes(16))
        finally:
            os.urandom = real


@experiment("sum: whole steps")
def _steps(notes: Notes) -> None:
    """Exact noise: a row that is not finite adds nothing, and none adds more than the clip."""
    for factors in ([1.0] * 10, [math.inf] + [1.0] * 9, [math.nan] * 5 + [50.0] * 5):
        data = TensorDataset(*table(10, factors=torch.tensor(factors)))
        run = trained(seeded(dense), data, plan_of(noise="exact", noise_multiplier=1e-3))
        finite = sum(map(math.isfinite, factors))
        notes.fact("sums", run.sums)
        notes.law("no more than the finite rows", np.linalg.norm(run.sums[0]) <= CLIP * (finite + 0.1), np.linalg.norm(run.sums[0]))
    from tacit.training.clipping.sums import BatchSums
    from tacit.training.noise import grid_step, rounded_towards_zero

    for size in (1.0, 1.001, 30.0, math.inf, math.nan):
        one = numbers(200).double()
        given = BatchSums(torch.ones(1, 1), torch.ones(1, 1), {"a": CLIP * size * one / one.norm()})
        steps = rounded_towards_zero(given, CLIP, 200).sums["a"]
        norm = math.sqrt(sum(int(k) ** 2 for k in steps)) * grid_step(CLIP, 200)
        notes.fact(f"steps {size}", steps)
        notes.law("at most the clip", norm <= CLIP, norm)
        notes.law("nothing that is not finite", norm == 0.0 or math.isfinite(size))


class _Placed(nn.Module):
    """Positions, as many as there are rows, or a weight for all of them."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.table, self.head, self.way = nn.Embedding(12, 5), nn.Linear(5, 3), way

    def forward(self, x: Tensor) -> Tensor:
        long = x[:, None] * torch.linspace(0.5, 1.5, 10)[:, None]
        ids = {"plain": torch.arange(10), "in a row": torch.arange(10)[None], "for each": torch.arange(10).repeat(len(x), 1)}
        if self.way == "expanded":
            return self.head(torch.tanh(torch.cat([long, self.table.weight[None, :1].expand(len(x), -1, -1)], 1))).mean(1)
        return self.head(torch.tanh(long + self.table(ids[self.way]))).mean(1)


@experiment("sum: products of lists, and places")
def _products(notes: Notes) -> None:
    """Each row's clipped gradients add up, in batches of all rows and of one."""
    models = [_One(lambda m, x: torch.einsum("bi,oi->bo", [x, m.layer.weight]) + m.layer.bias)]
    models += [seeded(partial(_Placed, way)) for way in ("plain", "in a row", "for each", "expanded")]
    for model in models:
        total: Any = 0.0
        for at in range(10):
            loss = row_loss(model, [one[at : at + 1] for one in table(10)]).sum()
            flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))]).numpy()
            total = total + flat * min(1.0, CLIP / np.linalg.norm(flat))
        for batch in ("auto", 1):
            run = trained(model, TensorDataset(*table(10)), plan_of(), **performance_of(batch=batch))
            off = np.abs(run.sums[0] - total).max()
            notes.fact("sums", run.sums)
            notes.law("each row is clipped", off < 1e-4, off)


@experiment("statements: read")
def _read(notes: Notes) -> None:
    """Statements of plans, with one thing changed each, are refused as they are read."""
    from tacit.statement import Statement

    plan = plan_of(examples=400, lot_size=40, steps=9, noise_multiplier=1.2)
    from tacit.training.claim import Run, statement

    plain, fewer = (json.loads(statement(plan, DELTA, n, Run(n, unsafe=False), lost=0, ledger=None).to_json()) for n in (9, 4))
    for name, changed in {
        "an event of fewer steps": {k: fewer[k] for k in ("event", "epsilon", "figures")},
        "and without a plan": {k: fewer[k] for k in ("event", "epsilon", "figures")} | {"plan": None},
        "a plan of fewer steps": {"plan": plain["plan"] | {"steps": 8}}, "a plan of less noise": {"plan": plain["plan"] | {"noise_multiplier": 1.0}},
        "an event of text": {"event": {"kind": "Repeated", "event": plain["event"]["event"], "times": "9"}},
        "ε of text": {"epsilon": "x"}, "δ of a list": {"delta": [1e-5]}, "an event in an event": {"event": {"kind": "Composed", "events": [plain["event"], 3]}},
        "a deep event": {"event": _deep(plain["event"], 3000)}, "a wide σ": {"event": {"kind": "Gaussian", "sigma": 1e308, "replace_distance": 1e-308}, "plan": None, "steps_taken": None, "steps_planned": None, "epsilon": 0.0},
    }.items():
        must_refuse(notes, f"a statement with {name}", lambda c=changed: Statement.from_json(_text(plain | c)))


def _deep(event: Any, levels: int) -> Any:
    for _ in range(min(levels, 300)):
        event = {"kind": "Composed", "events": [event]}
    return event


def _text(plain: Any) -> str:
    return json.dumps(plain)
