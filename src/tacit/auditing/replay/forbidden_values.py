"""What must be refused beside runs: arguments, noise, charges, files of a run, statements.

An attempt is right if it ends in one of tacit's own errors. What is tried with a file or a ledger
is tried on one that was written by a run just before.
"""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from tacit.accounting import Composed, Gaussian, Laplace, PureDp, Repeated
from tacit.auditing.replay.forbidden_runs import Small, in_child, refuse, tried
from tacit.randomness import (
    GaussianSource,
    RoundedGaussian,
    SecureStream,
    SystemStream,
    UnsafeSeededStream,
    discrete_gaussian,
    discrete_laplace,
    fresh_stream,
    granularity,
    grid_gaussian,
    grid_laplace,
    included,
    on_grid,
    rounded_gaussian,
    rounded_laplace,
    subset,
)
from tacit.statement import Statement
from tacit.training import checkpoint_file
from tacit.training.claim import Run, statement
from tacit.training.clipping import clipped_gradients
from tacit.training.performance import Performance
from tacit.training.plan import Plan
from tacit.training.replace_batchnorm import fix
from tacit.training.sampling import FullBatch, TruncatedPoisson
from tacit.training.styles import AdaptiveQuantile, Automatic, PerGroup

Attempts: TypeAlias = Mapping[str, Callable[[], object]]
_DELTA = 1e-5
_NO_NUMBERS: tuple[Any, ...] = (0.0, -1.0, math.nan, math.inf, "1", None)


def refused_values() -> list[str]:
    """What is not refused, in words; nothing for a right engine."""
    return _all({**_plans(), **_styles(), **_noise(), **_models()})


def refused_statements() -> list[str]:
    """The same for statements that say less than what happened, or nothing that makes sense."""
    return _all(_statements())


def refused_charges() -> list[str]:
    """The same for what a ledger and a run that is charged to it must refuse."""
    with ledger() as books, tempfile.TemporaryDirectory() as folder:
        return _all({**_charges(books), **_charged_runs(books, Path(folder))})


def refused_files() -> list[str]:
    """The same for checkpoints that are damaged, forged, or of another run."""
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        return _all(_files(Path(folder)))


def _all(attempts: Attempts) -> list[str]:
    return [said for name, attempt in attempts.items() for said in tried(name, attempt)]


@contextmanager
def ledger() -> Iterator[Any]:
    """A ledger in a folder of its own."""
    from tacit.ledger import Ledger  # noqa: PLC0415 - SQLAlchemy only for those who keep one

    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        made = Ledger(f"sqlite:///{Path(folder) / 'parts.db'}")
        try:
            yield made
        finally:
            made.close()


# ---- plans and styles


def _plan(**changed: Any) -> Plan:
    given = {"examples": 400, "lot_size": 40, "steps": 30, "noise_multiplier": 1.1, "clip": 0.5}
    return Plan(**(given | changed))


def _plans() -> Attempts:
    wrong: list[dict[str, Any]] = [
        {field: value}
        for field in ("examples", "lot_size", "steps", "noise_multiplier", "clip")
        for value in _NO_NUMBERS
    ]
    wrong += [
        {"examples": 1.5}, {"steps": 1.5}, {"steps": True}, {"lot_size": 401}, {"clip": 1e13},
        {"clip": 1e-13}, {"adjacency": "none"}, {"unit": "nobody"}, {"unit": "user"},
        {"examples_per_user": 3}, {"unit": "user", "examples_per_user": 0}, {"views": 0},
        {"views": 1.5}, {"clipping": "flat"}, {"sampling": "poisson"}, {"noise": "loud"},
        {"sampling": FullBatch()}, {"sampling": TruncatedPoisson(30)},
        {"clipping": PerGroup({"": 1.0}), "clip": 2.0}, {"clipping": PerGroup({"": 1e13})},
    ]  # fmt: skip
    plan, plain = _plan(), json.loads(_plan().to_json())
    found: dict[str, Callable[[], object]] = {
        f"a plan with {one}": partial(_plan, **one) for one in wrong
    }
    for name, other in {
        "more": plain | {"more": 1}, "less": {k: v for k, v in plain.items() if k != "noise"},
        "an unknown style": plain | {"clipping": {"kind": "Strange"}},
        "a style of other fields": plain | {"clipping": {"kind": "Flat", "stability": 1.0}},
        "a style that is a text": plain | {"clipping": "Flat"},
        "unknown sampling": plain | {"sampling": {"kind": "Shuffled"}}, "a list": [1],
        "a text for a number": plain | {"noise_multiplier": "1.1"},
    }.items():  # fmt: skip
        found[f"a plan in JSON with {name}"] = partial(Plan.from_json, json.dumps(other))
    return found | {
        "a plan that is no JSON": lambda: Plan.from_json("{"),
        "more steps than planned": lambda: plan.event_after(31),
        "steps below none": lambda: plan.event_after(-1),
        "no δ": lambda: plan.epsilon(0.0),
        "a δ of one": lambda: plan.epsilon(1.0),
        "epochs beside steps": lambda: _bought(epochs=2.0, steps=3),
        "neither epochs nor steps": _bought,
        "epochs without end": lambda: _bought(epochs=1e300),
        "no epochs": lambda: _bought(epochs=0.0),
        "an accountant that proves nothing": lambda: _bought(steps=30, accountant="gdp-clt"),
        "a δ above every chance": lambda: _bought(steps=1, lot_size=1e-6, delta=1e-2),
        "a budget that cut lots exceed": lambda: _bought(
            steps=30, delta=1e-9, sampling=TruncatedPoisson(41)
        ),
        "a budget that the count exceeds": lambda: _bought(
            steps=30, clipping=AdaptiveQuantile(count_noise=0.1)
        ),
        "a budget that is spent elsewhere": lambda: _bought(steps=30, also=Gaussian(0.5)),
    }


def _bought(**changed: Any) -> Plan:
    given: dict[str, Any] = {
        "epsilon": 0.5, "delta": _DELTA, "examples": 400, "lot_size": 40, "clip": 1.0,
    }  # fmt: skip
    return Plan.for_budget(**(given | changed))


def _styles() -> Attempts:
    found: dict[str, Callable[[], object]] = {
        "bounds that are a number": lambda: PerGroup(3.0),  # type: ignore[arg-type]
        "bounds that are a text": lambda: PerGroup("ab"),  # type: ignore[arg-type]
        "bounds that are no pairs": lambda: PerGroup([3.0]),  # type: ignore[arg-type]
        "bounds without names": lambda: PerGroup([(1, 3.0)]),  # type: ignore[arg-type]
        "no bounds": lambda: PerGroup({}),
        "a bound twice": lambda: PerGroup((("a", 1.0), ("a", 2.0))),
        "a precision that is none": lambda: Performance(precision="int8"),  # type: ignore[arg-type]
        "workers below none": lambda: Performance(workers=-1),
        "batches of nothing": lambda: Performance(batch=0),
        "leases of nothing": lambda: Performance(lease=0),
        "no lot that is cut": lambda: TruncatedPoisson(0),
        "a quantile of all": lambda: AdaptiveQuantile(count_noise=1.0, quantile=1.0),
        "a clip that runs away": lambda: AdaptiveQuantile(count_noise=1.0, learning_rate=-1.0),
    }
    for value in _NO_NUMBERS:
        found |= {
            f"a bound of {value!r}": partial(PerGroup, {"a": value}),
            f"a stability of {value!r}": partial(Automatic, value),
            f"a count's noise of {value!r}": partial(AdaptiveQuantile, count_noise=value),
        }
    return found


def _models() -> Attempts:
    weight = nn.Parameter(torch.ones(3))
    own = type("OwnBatchNorm", (nn.BatchNorm1d,), {})
    return {
        "a batch norm of one feature": lambda: fix(nn.Sequential(nn.BatchNorm1d(1))),
        "a batch norm that has no size yet": lambda: fix(nn.Sequential(nn.LazyBatchNorm1d())),
        "a batch norm of another kind": lambda: fix(nn.Sequential(own(4))),
        "losses of another number than rows": lambda: clipped_gradients(
            {"weight": weight}, lambda: weight * 2.0, rows=4, clip=1.0
        ),
        "rows that are no multiple of views": lambda: clipped_gradients(
            {"weight": weight}, lambda: weight * 2.0, rows=3, clip=1.0, views=2
        ),
    }


# ---- noise


def _noise() -> Attempts:
    cpu, system = torch.device("cpu"), SystemStream()
    source, rounded = GaussianSource(cpu, fresh_stream("noise")), RoundedGaussian(system, cpu)
    secure, elsewhere = SecureStream("noise"), torch.empty(3, device="meta")
    whole = torch.zeros(3, dtype=torch.int64)
    found: dict[str, Callable[[], object]] = {
        "noise in half precision": lambda: source.normal_(torch.zeros(3, dtype=torch.float16)),
        "noise on another device": lambda: source.normal_(elsewhere),
        "noise in a forked child": lambda: _in_child(lambda: source.normal_(torch.zeros(3))),
        "whole noise of another type": lambda: rounded.integers_(torch.zeros(3), 1.0),
        "whole noise on another device": lambda: rounded.integers_(elsewhere.long(), 1.0),
        "whole noise that is too wide": lambda: rounded.integers_(whole, 2.0**46),
        "a grid that is no power of two": lambda: on_grid([1.0], 0.3),
        "what is on no grid": lambda: on_grid([math.nan], 0.25),
        "what is beyond a grid": lambda: on_grid([1e300], 0.25),
        "a grid of nothing": lambda: granularity(1e-320),
        "a missing value beside noise": lambda: grid_laplace([math.nan], 1.0, 1.0, system),
        "a rate above one": lambda: included(3, 1.5, system),
        "a rate below none": lambda: included(3, -0.1, system),
        "more than all of them": lambda: subset(np.arange(3), 4, system),
        "fewer than none of them": lambda: subset(np.arange(3), -1, system),
        "a purpose that is no text": lambda: SecureStream(3),  # type: ignore[arg-type]
        "a purpose of a seed that is none": lambda: UnsafeSeededStream(1, 3),  # type: ignore[arg-type]
        "a seed below none": lambda: UnsafeSeededStream(-1, "noise"),
        "a system without randomness": lambda: _in_child(_dull),
        "a system that repeats itself": lambda: _in_child(_repeating),
    }
    for name, one in (("a stream", secure), ("a source", source), ("whole noise", rounded)):
        for way, duplicate in (
            ("copied", copy.copy), ("copied whole", copy.deepcopy), ("pickled", pickle.dumps)
        ):  # fmt: skip
            found[f"{name} that is {way}"] = partial(duplicate, one)
    for draw, most in (
        (discrete_laplace, 2.0**60), (discrete_gaussian, 2.0**60), (rounded_laplace, 2.0**46),
        (rounded_gaussian, 2.0**46),
    ):  # fmt: skip
        for value in (*_NO_NUMBERS, most):
            found[f"{draw.__name__} of scale {value!r}"] = partial(draw, value, 2, system)
        found[f"{draw.__name__} of -1 numbers"] = partial(draw, 1.0, -1, system)
    for spread in (grid_laplace, grid_gaussian):
        for value in (*_NO_NUMBERS, 1e-40):
            found[f"{spread.__name__} of sensitivity {value!r}"] = partial(
                spread, [0.5], 1.0, value, system
            )
    return found


def _in_child(work: Callable[[], object]) -> None:
    """Refused here if it was refused in a forked child."""
    if in_child(lambda: b"no" if not tried("", work) else b"yes") == b"no":
        refuse()


def _dull() -> object:
    os.urandom = bytes
    return SystemStream().bytes(16)


def _repeating() -> object:
    os.urandom = lambda count: bytes(range(256))[:count]
    return fresh_stream("noise").bytes(16)


# ---- charges


def _release(event: Any, *terms: Any) -> Any:
    from tacit.ledger import Release  # noqa: PLC0415

    return Release(event, *terms)


def _charges(books: Any) -> Attempts:
    budget = books.open("patients", 4.0, _DELTA)
    pure = books.open("pure", 1.0, 0.0)
    filtered = books.open("filtered", 3.0, _DELTA, composition="renyi")
    declared = books.open("declared", 3.0, _DELTA, composition="declared")
    declared.declare([_release(Gaussian(9.0))])
    what = _release(Repeated(Gaussian(40.0), 10))
    held = budget.reserve(what, steps=10)
    ended = budget.reserve(what, steps=10)
    held.lease(4)
    ended.lease(2)
    ended.end()
    deep: dict[str, Any] = {}
    deep["self"] = deep
    long = "x" * 2_100_000
    found: dict[str, Callable[[], object]] = {
        "another adjacency": lambda: budget.reserve(_release(Gaussian(9.0), "replace-one")),
        "another unit": lambda: budget.reserve(_release(Gaussian(9.0), "add-remove", "user")),
        "an unknown adjacency": lambda: _release(Gaussian(9.0), "none"),
        "an unknown unit": lambda: _release(Gaussian(9.0), "add-remove", "nobody"),
        "a budget of another unit": lambda: books.open("patients", 4.0, _DELTA, unit="user"),
        "a budget of other limits": lambda: books.open("patients", 5.0, _DELTA),
        "more than is left": lambda: budget.charge(Gaussian(0.1)),
        "more than is left at δ = 0": lambda: pure.charge(PureDp(1.5)),
        "a Gaussian without δ": lambda: pure.charge(Gaussian(9.0)),
        "a Gaussian at δ = 0": lambda: budget.at(0.0).charge(Gaussian(9.0)),
        "a δ beyond the budget's": lambda: budget.at(1e-3).charge(Gaussian(9.0)),
        "a δ of one's own in a filter": lambda: filtered.at(1e-7),
        "more than a filter holds": lambda: filtered.charge(Gaussian(0.3)),
        "room that is not there": lambda: budget.check_room([what] * 400),
        "room for another unit": lambda: budget.check_room(
            [_release(Gaussian(9.0), "add-remove", "user")]
        ),
        "what was not declared": lambda: declared.charge(Laplace(30.0)),
        "more declared than there is": lambda: books.open(
            "late", 1.0, _DELTA, composition="declared"
        ).declare([_release(Gaussian(0.5))]),
        "declared under another rule": lambda: budget.declare([what]),
        "an event of too many others": lambda: budget.reserve(
            _release(Composed(*(Laplace(1e6 + at) for at in range(2100))))
        ),
        "more steps than repetitions": lambda: budget.reserve(what, steps=11),
        "more steps than can be counted": lambda: budget.reserve(
            _release(Laplace(1e9)), steps=2**53 + 1
        ),
        "no steps": lambda: budget.reserve(what, steps=0),
        "a lease of nothing": lambda: held.lease(0),
        "a lease below nothing": lambda: held.lease(-3),
        "more given back than was granted": lambda: held.give_back(5),
        "less than nothing given back": lambda: held.give_back(-1),
        "given back after the end": lambda: ended.give_back(1),
        "no such reservation": lambda: budget.reservation(10**6),
        "a label of two lines": lambda: budget.reserve(what, label="a\nb"),
        "a label that is too long": lambda: budget.reserve(what, label="x" * 1001),
        "a detail that is no object": lambda: budget.reserve(what, detail=[1]),
        "a detail that is no JSON": lambda: budget.reserve(what, detail={"a": object()}),
        "a detail without end": lambda: budget.reserve(what, detail=deep),
        "a detail that is too long": lambda: budget.reserve(what, detail={"a": long}),
        "an amendment below what is charged": lambda: budget.amend(epsilon=1e-3, reason="less"),
        "an amendment of δ below it": lambda: budget.amend(delta=1e-300, reason="less"),
        "an amendment of a filter below it": lambda: declared.amend(epsilon=1e-3, reason="less"),
        "an amendment without a reason": lambda: budget.amend(epsilon=9.0, reason=" "),
        "an amendment with a long reason": lambda: budget.amend(epsilon=9.0, reason="x" * 1001),
        "an amendment without end": lambda: budget.amend(epsilon=2e6, reason="more"),
    }
    for name in ("", " patients", "pаtients", "ｐatients", "Patients", "a\tb", "x" * 201):
        found[f"a budget named {name[:20]!a}"] = partial(books.open, name, 1.0, _DELTA)
    for limits in (
        (0.0, _DELTA), (-1.0, _DELTA), (math.nan, _DELTA), (math.inf, _DELTA), (2e6, _DELTA),
        (1.0, 1.0), (1.0, -1e-9), (1.0, math.nan), ("1", _DELTA),
    ):  # fmt: skip
        found[f"a budget of {limits}"] = partial(books.open, "c", *limits)
    for options in (
        {"composition": "free"}, {"composition": "renyi", "delta": 0.0}, {"unit": "nobody"},
        {"composition": "declared", "delta": 0.0}, {"adjacency": "none"},
    ):  # fmt: skip
        terms = {"name": "c", "epsilon": 1.0, "delta": _DELTA, **options}
        found[f"a budget with {options}"] = partial(books.open, **terms)
    return found


_RUN = Small().plan


def _resumed(**options: Any) -> Small:
    return Small(options=options)


def _saved(path: Path, **options: Any) -> Any:
    """A checkpoint after two steps of a run, which goes on to its end."""
    return Small(options=options, moment="between lots", act=lambda scene: scene.dp.save(path))()


def _left(path: Path, budget: Any) -> None:
    """A checkpoint after two steps of a run, which ends there."""

    def save(scene: Any) -> None:
        scene.dp.save(path)
        raise InterruptedError

    with suppress(InterruptedError):
        Small(options={"budget": budget}, moment="between lots", act=save)()


def _charged_runs(books: Any, folder: Path) -> Attempts:
    from tacit.ledger import Ledger  # noqa: PLC0415

    budget, other = books.open("runs", 60.0, _DELTA), books.open("others", 60.0, _DELTA)
    charged, free, fresh, ahead = (folder / name for name in ("charged", "free", "new", "ahead"))
    older = folder / "older.db"
    shutil.copy(books.location.removeprefix("sqlite:///"), older)
    _saved(charged, budget=budget)
    _saved(free)
    first = max(books.books.reservations)
    _left(ahead, budget)
    second = max(books.books.reservations)
    _forge(ahead, ahead, lambda document: document.update(steps_taken=3))
    wider = budget.reserve(_release(replace(_RUN, steps=9).event), steps=9)
    _forge(charged, fresh, lambda document: _charge_of(document).update(dict=[["budget", "runs"]]))
    return {
        "a seed for a run that is charged": _resumed(budget=budget, unsafe_seed=1),
        "a reservation of another plan": _resumed(budget=wider),
        "a plan beyond the budget": _resumed(budget=books.open("small", 1e-3, _DELTA)),
        "a charged run without its budget": _resumed(resume=charged),
        "a charged run in another budget": _resumed(resume=charged, budget=other),
        "a charged run in another reservation": _resumed(resume=charged, budget=wider),
        "a charged run in another run's": _resumed(
            resume=charged, budget=budget.reservation(second)
        ),
        "more steps than were granted": _resumed(resume=ahead, budget=budget),
        "a charged run in a copy": _resumed(
            resume=charged, budget=Ledger(f"sqlite:///{older}").open("runs", 60.0, _DELTA)
        ),
        "a free run in a budget": _resumed(resume=free, budget=budget),
        "a free run in a reservation": _resumed(resume=free, budget=budget.reservation(first)),
        "a run that does not say where it is charged": _resumed(resume=fresh, budget=budget),
    }


# ---- files


_STATE = {"numbers": [1, 2.5, None], "half": torch.ones(3, dtype=torch.bfloat16)}


class _Kept:
    """State of somebody's own, to be kept in a checkpoint."""

    def __init__(self, held: Any = None) -> None:
        self.held = _STATE if held is None else held

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self.held
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        self.held = dict(state_dict)


class _Stubborn(_Kept):
    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        del state_dict
        raise ValueError("no")


_Stubborn.__name__ = "_Kept"


def _forge(path: Path, there: Path, change: Callable[[Any], object]) -> Path:
    """Another checkpoint, whole by its digest, with something changed in its document."""
    document, tensors = checkpoint_file.read(path)
    change(document)
    checkpoint_file.write(there, document, tensors)
    return there


def _charge_of(document: Any) -> Any:
    (name,) = [one for one in document["state"] if "ledger" in json.dumps(document["state"][one])]
    return document["state"][name]["values"]


def _document_changes() -> dict[str, Callable[[Any], object]]:
    def put(name: str, value: object) -> Callable[[Any], object]:
        return lambda document: document.update({name: value})

    def run(name: str, value: object) -> Callable[[Any], object]:
        def change(document: Any) -> None:
            pairs = dict(document["state"]["tacit run"]["values"]["dict"])
            document["state"]["tacit run"]["values"]["dict"] = [
                list(pair) for pair in (pairs | {name: value}).items()
            ]

        return change

    def first(value: object) -> Callable[[Any], object]:
        """In the place of a weight."""
        return lambda document: document["model"]["dict"][0].__setitem__(1, value)

    def mine(value: object) -> Callable[[Any], object]:
        """In the place of somebody's own state."""
        return lambda document: document["state"]["mine"].update(values={"dict": [["a", value]]})

    def group(value: object) -> Callable[[Any], object]:
        """In the place of the optimizer's only group of options."""

        def changed(document: Any) -> None:
            pairs = document["optimizers"][0]["values"]["dict"]
            place = next(pair for pair in pairs if pair[0] == "param_groups")
            place[1] = value

        return changed

    def option(name: str, value: object) -> Callable[[Any], object]:
        def changed(document: Any) -> None:
            pairs = dict(document["optimizers"][0]["values"]["dict"])
            options = dict(pairs["param_groups"][0]["dict"]) | {name: value}
            group([{"dict": [list(one) for one in options.items()]}])(document)

        return changed

    def table(
        name: str, change: Callable[[Any], Callable[[Any], object]], *values: Any
    ) -> dict[str, Callable[[Any], object]]:
        return {f"{name} of {value!r}": change(value) for value in values}

    number: tuple[Any, ...] = (
        {"tensor": "nobody"},
        {"tensor": 3},
        {"unknown": 1},
        {"a": 1, "b": 2},
        {},
    )
    found = {
        **table("steps", partial(put, "steps_taken"), 4, 99, -1, 1.5, "2", None, 2**70, True, [2]),
        **table("a plan", partial(put, "plan"), 3, None, "{}", []),
        **table("a model", partial(put, "model"), 3, [], {}, {"dict": 3}, {"dict": []}),
        **table("optimizers", partial(put, "optimizers"), [], 3, [{}], None),
        **table("a state", partial(put, "state"), {}, [], 3),
        **table("a last step", partial(run, "last_step"), 0, 1, -1, 4, 2**70, 1.5, "3", None, True),
        **table("a seed", partial(run, "unsafe"), 0, 1, "no", None),
        **table("a weight", first, 3, None, {"float": "nan"}, {"array": "model.frozen"}, *number),
        **table("a state's value", mine, {"float": "1e5"}, {"float": 1}, {"dtype": "object"},
                {"dtype": 1}, {"tuple": 3}, {"dict": [[1]]}, {"dict": [[[1], 2]]}, {"dict": 3},
                {"array": "state.mine.half"}, *number),
        **table("groups", group, 3, [], [3], [{"dict": []}, {"dict": []}]),
        **table("a rate", partial(option, "lr"), "0.1", None, {"float": "nan"}, {"float": "inf"},
                [0.1]),
    }  # fmt: skip
    found["another name of a weight"] = lambda document: document["model"]["dict"][0].__setitem__(
        0, "nobody"
    )
    found["other shapes"] = lambda document: document["optimizers"][0].update(shapes=[[[1]]])
    found["shapes that are none"] = lambda document: document["optimizers"][0].update(
        shapes=[[["x"]]]
    )
    found["another optimizer"] = lambda document: document["optimizers"][0].update(kind="Adam")
    found["another kind of state"] = lambda document: document["state"]["mine"].update(kind="x")
    return found


def _damages(whole: bytes) -> dict[str, bytes]:
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    texts = header["__metadata__"]

    def with_header(other: object) -> bytes:
        text = json.dumps(other).encode()
        return len(text).to_bytes(8, "little") + text + whole[8 + length :]

    flipped = {
        f"one bit of byte {at}": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for at in (0, 7, 9, 8 + length // 2, len(whole) - 3)
    }
    return flipped | {
        "nothing": b"", "a few bytes": whole[:5], "half of it": whole[: len(whole) // 2],
        "no tensors": whole[: 8 + length], "a header beyond the end": b"\xff" * 8 + whole[8:],
        "a header that is a list": with_header([1]),
        "a header without texts": with_header({**header, "__metadata__": {"a": {}}}),
        "no header's texts": with_header({k: v for k, v in header.items() if k[0] != "_"}),
        "another format": with_header({**header, "__metadata__": texts | {"format": "other"}}),
        "another version": with_header({**header, "__metadata__": texts | {"version": "99"}}),
        "no document": with_header({**header, "__metadata__": {**texts, "document": "{"}}),
        "another document": with_header(
            {**header, "__metadata__": {**texts, "document": texts["document"] + " "}}),
        "a long header": (17 << 20).to_bytes(8, "little") + b" " * (18 << 20),
    }  # fmt: skip


class _Wider(nn.Module):
    """Another model for the same data."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 6, **options), nn.Linear(6, 3, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x.to(self.first.weight.dtype)))
        return result


def _files(folder: Path) -> Attempts:
    path, lone = folder / "run", folder / "lone"
    _saved(path, state={"mine": _Kept()})
    Small(_Wider, moment="between lots", act=lambda scene: scene.dp.save(lone))()
    found: dict[str, Callable[[], object]] = {}
    for at, (name, change) in enumerate(_document_changes().items()):
        there = _forge(path, folder / f"forged {at}", change)
        found[f"a checkpoint with {name}"] = _resumed(resume=there, state={"mine": _Kept()})
    for at, (name, content) in enumerate(_damages(path.read_bytes()).items()):
        there = folder / f"damaged {at}"
        there.write_bytes(content)
        found[f"a checkpoint of {name}"] = _resumed(resume=there, state={"mine": _Kept()})
    for at, (name, value) in enumerate({
        "a weight that is not finite": math.nan, "an infinite weight": math.inf,
    }.items()):  # fmt: skip
        document, tensors = checkpoint_file.read(path)
        tensors["model.first.weight"][0, 0] = value
        there = folder / f"broken {at}"
        checkpoint_file.write(there, document, tensors)
        found[f"a checkpoint with {name}"] = _resumed(resume=there, state={"mine": _Kept()})
    return found | {
        "bytes that are no checkpoint": lambda: checkpoint_file.from_bytes(b"x", "bytes"),
        "no checkpoint": _resumed(resume=folder / "nothing"),
        "a folder for a checkpoint": _resumed(resume=folder),
        "a checkpoint of another plan": Small(
            plan=replace(_RUN, noise_multiplier=0.5), options={"resume": lone}, build=_Wider
        ),
        "a checkpoint with another end": Small(
            options={"resume": lone, "stop_after": 3 - 1}, build=_Wider
        ),
        "a checkpoint of another model": _resumed(resume=lone),
        "a checkpoint of another type": Small(
            lambda: _Wider(dtype=torch.float64), options={"resume": lone}
        ),
        "a checkpoint of a smaller model": Small(
            lambda: _Wider(bias=False), options={"resume": lone}
        ),
        "a checkpoint of two optimizers": Small(
            _Wider, options={"resume": lone},
            optimizer=lambda m: [torch.optim.SGD(m.first.parameters(), 0.1),
                                 torch.optim.SGD(m.second.parameters(), 0.1)],
        ),
        "a checkpoint of another optimizer": Small(
            _Wider, options={"resume": lone}, optimizer=lambda m: torch.optim.Adam(m.parameters())
        ),
        "a checkpoint without its state": _resumed(resume=path),
        "a checkpoint without that state": Small(
            _Wider, options={"resume": lone, "state": {"mine": _Kept()}}
        ),
        "a state that does not load": _resumed(resume=path, state={"mine": _Stubborn()}),
        "a state that cannot be kept": lambda: _kept({"a": object()}, folder),
        "a tensor that cannot be kept": lambda: _kept({"a": torch.ones(2).to_sparse()}, folder),
        "a tensor that is nowhere": lambda: _kept({"a": torch.ones(2, device="meta")}, folder),
        "an array that cannot be kept": lambda: _kept({"a": np.array([object()])}, folder),
        "a checkpoint in no folder": lambda: _saved(folder / "nobody" / "here"),
        "a checkpoint in a file": lambda: _saved(path / "here"),
    }  # fmt: skip


def _kept(held: Any, folder: Path) -> object:
    return _saved(folder / "kept", state={"mine": _Kept(held)})


# ---- statements


def _statements() -> Attempts:
    plan = _plan()
    claim = statement(plan, _DELTA, 30, Run(30, unsafe=False), lost=0, ledger=None)
    plain = json.loads(claim.to_json())
    fewer = json.loads(
        statement(plan, _DELTA, 5, Run(5, unsafe=False), lost=0, ledger=None).to_json()
    )
    event, inner = plain["event"], plain["event"]["event"]
    wrong: dict[str, dict[str, Any]] = {
        "a smaller ε": {"epsilon": 0.9 * claim.epsilon}, "a smaller δ": {"delta": 0.1 * _DELTA},
        "ε below 0": {"epsilon": -1.0}, "a text for ε": {"epsilon": "1"}, "no δ": {"delta": 0.0},
        "δ of one": {"delta": 1.0}, "a text for δ": {"delta": "1"},
        "δ without end": {"delta": 1e400}, "an ε that is huge": {"epsilon": 10**400},
        "an ε that is a list": {"epsilon": [1.0]},
        "another adjacency": {"adjacency": "replace-one"}, "no adjacency": {"adjacency": "none"},
        "an unknown unit": {"unit": "nobody"}, "another unit": {"unit": "user"},
        "more steps than planned": {"steps_taken": 31}, "steps below none": {"steps_taken": -1},
        "more steps than charged": {"event": fewer["event"], "epsilon": fewer["epsilon"],
                                    "figures": fewer["figures"]},
        "and no plan": {"event": fewer["event"], "epsilon": fewer["epsilon"], "plan": None,
                        "figures": fewer["figures"]},
        "fewer steps in the plan": {"plan": plain["plan"] | {"steps": 29}},
        "another noise in the plan": {"plan": plain["plan"] | {"noise_multiplier": 1.0}},
        "more in the plan": {"plan": plain["plan"] | {"more": 1}},
        "a plan that is a text": {"plan": "plan"}, "no event": {"event": {}},
        "an event that is a text": {"event": "Gaussian"}, "no figures": {"figures": {}},
        "an unknown event": {"event": {"kind": "Strange"}},
        "an event of no kind at all": {"event": event | {"kind": [1]}},
        "an event of more noise": {"event": event | {"event": inner | {
            "event": inner["event"] | {"sigma": 2.0}}}},
        "an event without end": {"event": event | {"event": inner | {
            "event": inner["event"] | {"sigma": 10**400}}}},
        "an event of no steps": {"event": event | {"times": 0}},
        "an event of a text of steps": {"event": event | {"times": "30"}},
        "another field": {"more": 1}, "figures that are a list": {"figures": [1]},
    }  # fmt: skip
    found: dict[str, Callable[[], object]] = {
        f"a statement with {name}": partial(Statement.from_json, json.dumps(plain | one))
        for name, one in wrong.items()
    }
    for key, value in plain["figures"].items():
        other = json.dumps(plain | {"figures": plain["figures"] | {key: _less(value)}})
        found[f"a statement with another {key}"] = partial(Statement.from_json, other)
    for key in ("epsilon", "delta", "event", "plan", "steps_taken", "assumptions"):
        other = json.dumps({name: one for name, one in plain.items() if name != key})
        found[f"a statement without {key}"] = partial(Statement.from_json, other)
    for text in ("{", "[]", "3", "", '{"epsilon": NaN}', "[" * 100_000):
        found[f"a statement that is {text[:20]!r}"] = partial(Statement.from_json, text)
    return found


def _less(value: Any) -> Any:
    """Figures that say less than the right ones."""
    match value:
        case bool() | str() | None:
            return [value]
        case int() | float():
            return 0.5 * value + 1e-9
        case list() if value:
            return [_less(value[0]), *value[1:]]
        case dict() if value:
            key = next(iter(value))
            return {**value, key: _less(value[key])}
    return 0.125
