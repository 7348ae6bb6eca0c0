"""What a run says of itself, what it keeps, and what it must let pass: dropout and soft labels."""

from __future__ import annotations

import math
import tempfile
from collections import UserDict
from contextlib import redirect_stderr, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset, default_collate

from tacit.auditing.replay.forbidden.small_run import (
    DELTA,
    Small,
    layered,
    row_loss,
    rows,
    small_plan,
    tried,
)
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.tacit_subject import Screen
from tacit.errors import TacitError
from tacit.training import checkpoint_file
from tacit.training.correlation import InverseBanded
from tacit.training.fit import Prepared, Schedule, Watch, carry_out
from tacit.training.performance import Performance
from tacit.training.plan import Plan
from tacit.training.progress import checked_metrics
from tacit.training.sampling import Cyclic
from tacit.training.session import private

if TYPE_CHECKING:
    from collections.abc import Callable

_WIDTH, _CLASSES = 5, 3
_Way: TypeAlias = "Callable[[Any, Tensor], Any]"


def chance() -> Finding:
    """Dropout of every kind is let pass, and rows that are mixed beside it are not."""
    wrong = []
    for name, (way, held) in _dropouts().items():
        try:
            layered(way, **held)()
        except TacitError as error:
            wrong.append(f"{name} is refused: {error}"[:200])
        for kind, mixed in _mixtures(way).items():
            wrong += tried(f"{name}, {kind}", layered(mixed, **held))
    return Finding("control flow", "dropout", not wrong, "; ".join(wrong[:4]) or "it is")


def _mixtures(way: _Way) -> dict[str, _Way]:
    """The same of rows that see each other's values, or only how many they are."""
    return {
        "without their mean": lambda model, x: way(model, x - x.mean(0)),
        "divided by their number": lambda model, x: way(model, x) / len(x),
    }


def _dropouts() -> dict[str, tuple[_Way, dict[str, Callable[[], Any]]]]:
    """Ways to leave numbers out by chance, in a model with one layer of scores."""

    def sequences(model: Any, x: Tensor) -> Any:
        return model.layer(model.rnn(x.unsqueeze(2))[0].mean(2))

    def attention(model: Any, x: Tensor, *, named: bool) -> Any:
        heads = x.view(len(x), 1, _WIDTH, 1)
        attend = functional.scaled_dot_product_attention
        mixed = (
            attend(heads, heads, heads, dropout_p=0.3)
            if named
            else attend(heads, heads, heads, None, 0.3)
        )
        return model.layer(mixed.flatten(1))

    return {
        "dropout": (lambda m, x: m.layer(functional.dropout(x, 0.5)), {}),
        "dropout by name": (lambda m, x: m.layer(functional.dropout(input=x, p=0.5)), {}),
        "attention with dropout": (partial(attention, named=False), {}),
        "attention with dropout by name": (partial(attention, named=True), {}),
        "recurrences with dropout": (
            sequences, {"rnn": lambda: nn.LSTM(1, 3, 2, dropout=0.5, batch_first=True)}),
    }  # fmt: skip


def batches() -> Finding:
    """Soft labels and batches of other libraries' mappings are trained on as they are."""

    def softly(model: Any, batch: Any) -> Tensor:
        soft = functional.one_hot(batch[1], _CLASSES) * 0.8 + 0.2 / _CLASSES
        return functional.cross_entropy(model(batch[0]), soft, reduction="none")

    def mapped(examples: list[Any]) -> UserDict[str, Any]:
        x, y = default_collate(examples)
        return UserDict({"x": x, "y": y})

    def by_name(model: Any, batch: Any) -> Tensor:
        return row_loss(model, (batch["x"], batch["y"]))

    def others(model: Any, batch: Any) -> Tensor:
        losses = row_loss(model, batch)
        return torch.where(losses.flip(0) > losses, math.inf * losses, losses)

    taken = {
        "soft labels": Small(loss=softly).counted(),
        "mappings": Small(loss=by_name, options={"collate": mapped}).counted(),
        "losses that others make infinite": Small(loss=others).counted(TacitError),
    }
    right = [*taken.values()] == [3, 3, 0]
    return Finding("control flow", "batches", right, f"steps that are taken: {taken}")


def facts() -> Finding:
    """What a run says of itself: epochs, ε, rules; and nothing that is secret."""
    wrong, seen = [], []
    budgeted = Plan.for_budget(epsilon=90.0, delta=1e-3, examples=8, lot_size=8, steps=3, clip=1.0)

    def before(scene: Any) -> None:
        if scene.dp.spent() != 0.0:
            wrong.append(f"ε = {scene.dp.spent():.6g} before the first step")
        report = scene.dp.verify(lambda batch: row_loss(scene.model, batch))
        secret = f"{report.moved:.4g}"
        if report.moved > report.limit or secret in repr(report):
            wrong.append(f"a check says {report!r}")

    def between(scene: Any) -> None:
        seen.append(scene.lot.epoch)

    Small(plan=budgeted, moment="before the first lot", act=before)()
    Small(plan=budgeted, moment="between lots", act=between)()
    if seen != [1.0]:  # the second lot, of all examples
        wrong.append(f"the second lot begins after {seen} epochs")
    said: list[str] = []
    for way in (lambda m, x: torch.maximum(m.layer(x), m.layer.bias),
                lambda m, x: m.layer(x) + functional.linear(x, m.layer.weight[:1])):  # fmt: skip
        replace(layered(way), moment="between lots",
                act=lambda scene: said.append(scene.dp.explain()))()  # fmt: skip
    slow, overlapping = said[0].rsplit("fallback", 1)[-1], said[1].rsplit("overlap", 1)[-1]
    if "layer.bias" not in slow or "layer.weight" not in overlapping:
        wrong.append("weights without a rule, or whose uses overlap, are not named")
    return Finding("control flow", "facts", not wrong, "; ".join(wrong) or "they are so")


def arithmetic() -> Finding:
    """TF32 is on in a run as was asked, and after it as before; an average is what is released."""
    wrong = []
    for asked in (None, True, False):
        seen = set()

        def loss(model: Any, batch: Any) -> Tensor:
            fast = torch.get_float32_matmul_precision() == "high"
            seen.add((fast, torch.backends.cudnn.allow_tf32))  # noqa: B023 - called in this turn
            return row_loss(model, batch)

        model = nn.Linear(_WIDTH, _CLASSES)
        average = None if asked is None else AveragedModel(model)
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        prepared = Prepared(
            model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1),
            plan=Small().plan, dataset=TensorDataset(*rows()), loss=loss, tf32=asked,
            schedule=Schedule(average=average),
        )  # fmt: skip
        first = prepared.final
        carry_out(prepared, delta=1e-3, watch=Watch(progress=False))
        after = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        if after != before or (asked is not None and seen != {(asked, asked)}):
            wrong.append(f"TF32 of {asked} is {seen} in a run, and {after} after it")
        released = model if average is None else average.module
        if first is not model or not prepared.released is prepared.final is released:
            wrong.append("another model than the average is released")
    return Finding("update", "arithmetic", not wrong, "; ".join(wrong) or "it is")


def metrics() -> Finding:
    """Metrics are of held-out records alone, and only numbers that may be published are shown."""
    wrong, screen = [], Screen(terminal=False)
    x, y = rows()
    asked = {
        "mean": lambda model, batches: float(torch.cat([model(b[0]) for b in batches]).mean()),
        "nothing": lambda *_: math.nan,
        "rows": lambda _, batches: sum(len(batch[0]) for batch in batches),
    }

    def run(own: dict[str, Any]) -> Any:
        model = nn.Linear(_WIDTH, _CLASSES)
        prepared = Prepared(
            model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), plan=Small().plan,
            dataset=TensorDataset(x, y), loss=row_loss, metrics=own,
            held_out=TensorDataset(x[:3].clone(), y[:3]),
        )  # fmt: skip
        return carry_out(prepared, delta=1e-3, watch=Watch(progress=True))

    with redirect_stderr(screen):
        done = run(asked)
        wrong += tried("a name of two words", lambda: run({"two words": asked["rows"]}))
        wrong += tried("a metric that is a text", lambda: run({"text": lambda *_: "x"}))
    last = done.history[-1]
    if last.metrics["nothing"] is not None or last.metrics["rows"] != 3:
        wrong.append(f"metrics of three held-out records are {last.metrics}")
    if "nothing" in last.numbers() or "not finite" not in screen.getvalue():
        wrong.append("what is not finite is a number")
    if checked_metrics(dict(last.metrics)) != last.metrics:
        wrong.append("metrics are read as others")
    for name, bad in (("a list", []), ("a text", {"a": "x"}), ("an infinity", {"a": math.inf})):
        wrong += tried(f"metrics that are {name}", partial(checked_metrics, bad))
    return Finding("control flow", "metrics", not wrong, "; ".join(wrong[:4]) or "they are")


def kept() -> Finding:
    """What a checkpoint keeps is what is read: tensors, types, a model beside the trained one."""
    wrong = []
    state = {"kind": torch.bfloat16, "numbers": [1, 2.5, math.inf], "half": torch.ones(3).half()}
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path, held = Path(folder) / "run", _Held(state)
        beside, again = nn.Linear(2, 3), nn.Linear(2, 3)
        Small(options={"state": {"mine": held, "beside": beside}}, moment="between lots",
              act=lambda scene: scene.dp.save(path))()  # fmt: skip
        read = _Held({**state, "numbers": [], "half": torch.zeros(3).half()})
        Small(options={"state": {"mine": read, "beside": again}, "resume": path})()
        other = {"mine": _Held(state), "beside": nn.Linear(2, 4)}
        wrong += tried("another model beside it", Small(options={"state": other, "resume": path}))
        document, tensors = checkpoint_file.read(path)
    same = checkpoint_file.from_bytes(checkpoint_file.to_bytes(document, tensors), "bytes")
    if same[0] != document or any(
        not torch.equal(same[1][name], tensors[name]) for name in tensors
    ):
        wrong.append("bytes are read as others")
    values = read.held
    alike = values["kind"] is torch.bfloat16 and values["numbers"] == state["numbers"]
    if not alike or not torch.equal(values["half"], torch.ones(3).half()):
        wrong.append("a state is read as another one")
    if not torch.equal(beside.weight, again.weight):
        wrong.append("a model is read as another one")
    return Finding("resuming", "kept", not wrong, "; ".join(wrong) or "it is")


def seeds() -> Finding:
    """A run that had a fixed seed at any time has a statement that is void, or has none."""
    wrong = []
    for first, second in ((None, 7), (7, None), (7, 7), (None, None)):
        void = _void(first, second)
        if void not in (None, first is not None or second is not None):
            wrong.append(f"seeds {first} and {second}: a statement that is void: {void}")
    return Finding("charging", "seeds", not wrong, "; ".join(wrong) or "it is so")


def _void(first: int | None, second: int | None) -> bool | None:
    """Whether the statement of a run that is resumed, with these seeds, is void; None: it has none.

    A seed of None is left out.
    """
    begun, rest = ({} if seed is None else {"unsafe_seed": seed} for seed in (first, second))
    found: list[bool] = []
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path = Path(folder) / "run"
        Small(options=begun, moment="between lots", act=lambda scene: scene.dp.save(path))()
        with suppress(TacitError):
            Small(
                options={"resume": path, **rest}, moment="after the run",
                act=lambda scene: found.append(scene.dp.statement(DELTA).void),
            )()  # fmt: skip
    return found[0] if found else None


def turns() -> Finding:
    """After lost steps a run with groups goes on with the group whose turn it is by then."""
    from tacit.ledger import Ledger  # noqa: PLC0415 - SQLAlchemy only for those who keep one

    plan = small_plan(lot_size=2.0, steps=8, correlation=InverseBanded(2), sampling=Cyclic())
    runs: list[list[set[float]]] = []
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        path, books = Path(folder) / "run", Ledger(f"sqlite:///{Path(folder) / 'turns.db'}")
        budget = books.open("turns", 500.0, DELTA)
        given = {"budget": budget, "performance": Performance(lease=1)}
        for options, kept, until in ((given, 2, 3), (given | {"resume": path}, 0, 8)):
            runs.append(_lots(plan, options, {kept: path}, until))
        books.close()
    first, rest = runs
    # Four groups, of which any may be empty: each lot after the lost one says whose turn it is.
    met = sum(len(rest[0] & one) for one in first) if rest else 0
    wrong = "" if len(rest) == 5 and rest[1:] == [*first, rest[0]] and not met else (
        f"{len(rest)} lots come after {len(first)}, of which one was lost; the first of them holds "
        f"{met} records whose turn was before"
    )  # fmt: skip
    return Finding("resuming", "turns", not wrong, wrong or "it does")


def _lots(
    plan: Plan, options: dict[str, Any], kept: dict[int, Path], until: int
) -> list[set[float]]:
    """Who is in the lots of a run that ends after some steps, by the first number of each record.

    It is ``kept`` after a step, and not at the end.
    """
    found: list[set[float]] = []
    model = nn.Linear(_WIDTH, _CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    session = private(model, optimizer, plan, TensorDataset(*rows()), **options)
    with suppress(InterruptedError), session as dp:
        for lot in dp.lots():
            here: set[float] = set()
            for batch in lot:
                if not lot.is_rehearsal:
                    here |= {float(one) for one in batch[0][:, 0]}
                dp.backward(row_loss(model, batch))
            dp.step()
            found.append(here)
            if dp.steps_taken in kept:
                dp.save(kept[dp.steps_taken])
            if dp.steps_taken == until < plan.steps:
                raise InterruptedError
    return found


class _Held:
    """State of somebody's own."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held = held

    def state_dict(self) -> dict[str, Any]:
        return self.held

    def load_state_dict(self, state_dict: Any, /) -> None:
        self.held = dict(state_dict)
