# ruff: noqa: E501, PLC0415 - a law is one line, acts have one form, and tacit
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
import hashlib
import importlib
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

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
        self.facts[name] = print_of(value)

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


def print_of(value: object) -> str:
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
    "a plan of an unknown style", "no memory at all",
    "δ of 0 for a claim", "δ of 1 for what is spent",
    "a purpose that is no text", "a larger subset",
    "losses of other shape for clipping", "a plan with {'clip': 10000000000000.0}",
    "a plan with {'clip': 1e-13}", "a plan with {'views': 0}", "a plan with {'steps': 0}",
    "a plan with {'clipping': 'flat'}", "a plan with {'sampling': 'poisson'}", "a plan with {'noise': 'loud'}",
    "a plan with {'unit': 'x'}", "a plan with {'adjacency': 'x'}", "a plan with {'clip': None}",
    "a plan with {'examples_per_user': 3}", "a plan with {'unit': 'user'}", "a missing field", "no JSON",
    "JSON with another more", "a plan with {'clipping': PerGroup(bounds=(('', 1.0),)), 'clip': 2.0}",
    # The step fails, or computes nothing of anybody's, whatever the check says.
    "a weight on meta", "weights in two places", "an unused layer", "rows of all lengths",
    "a data frame", "another's schedule", "another's average", "a folder to save in",
    "a place that is none", "nobody held out", "held out without labels", "no classes",
    "bounds of a text", "bounds of a number", "a bound for nobody", "both epochs and steps",
    "endless epochs", "hardly anybody drawn", "a lazy batch norm", "scaled losses",
    "a loop that passes nothing", "labels out of range", "losses that are no numbers",
    "a divergent run", "a label of two lines", "a long label", "a long reason", "a detail of objects",
    "a list for a detail", "a long detail", "a name of two lines", "a long name",
    "noise elsewhere", "whole noise elsewhere", "a number for a purpose", "a grid too fine",
    "a small sensitivity",
    # Of a checkpoint: what the model would have refused, or what no step is released through.
    "no dictionary", "no text", "another length of groups", "a group that is a number",
    "a rate that is a text", "no rate", "a folder", "no header", "another format", "another version",
    "an unknown tag", "two tags", "no tensor of the name", "no float", "no dtype", "no list", "no pair",
    "no key", "no array", "a sparse tensor", "an array of objects", "no folder to write to",
    "another shape of a parameter", "a number for a tensor",
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


PARTS = ("law_of_sums", "law_of_noise", "law_of_charges", "law_of_sessions", "law_of_refusals")


def prepare(names: list[str] | None = None) -> None:
    """Makes the experiments that need the package and its tests on the path; all, or for these."""
    sys.path[:] = [os.getcwd(), *[p for p in sys.path if p != os.getcwd()]]
    parts = {part: importlib.import_module(part) for part in PARTS}
    if names is None or any(name.startswith("case ") for name in names):
        parts["law_of_sums"].add_cases()
    if names is None or any(name.startswith("refused: ") for name in names):
        parts["law_of_sessions"].add_refusals()
    if names is None or any(name.startswith("kept out: ") for name in names):
        parts["law_of_refusals"].add_all()
