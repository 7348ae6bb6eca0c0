"""What ``tacit train`` shows: the recipes, a recipe's settings, and what a run came to."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tacit import __version__
from tacit._files import read_json
from tacit._numbers import compact
from tacit.statement import Statement, rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from tacit.recipes import Anchor

FILES = ("model.safetensors", "history.jsonl", "answers.csv", "statement.json", "run.json",
         "report.html", "report.md")  # fmt: skip


def recipes() -> list[dict[str, Any]]:
    """Every recipe: its name, its data, what was published, and its one line."""
    from tacit.recipes import find, names

    return [
        {
            "name": one.name,
            "data": one.data,
            "summary": one.summary,
            "anchors": [_anchor(anchor) for anchor in one.anchors],
        }
        for one in map(find, names())
    ]


def _anchor(anchor: Anchor) -> dict[str, Any]:
    return {"epsilon": anchor.epsilon, "accuracy": anchor.accuracy, "source": anchor.source}


def recipes_page(found: list[dict[str, Any]]) -> Iterator[RenderableType]:
    """The recipes as a table."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("recipe", "data", "published at best (% at ε)", "what it does"):
        table.add_column(name, no_wrap=name == "recipe")
    for one in found:
        table.add_row(one["name"], one["data"], best_published(one["anchors"]), one["summary"])
    yield table
    yield "Run one: tacit train RECIPE --epsilon 3. Its settings: tacit train RECIPE --settings."


def best_published(anchors: Sequence[Mapping[str, Any]]) -> str:
    """The best accuracy that was published at each ε.

    >>> best_published([{"epsilon": 3, "accuracy": 67.0}, {"epsilon": 2, "accuracy": 60.5},
    ...                 {"epsilon": 3, "accuracy": 69.3}])
    '60.5 at 2, 69.3 at 3'
    """
    best: dict[float, float] = {}
    for one in sorted(anchors, key=lambda one: (one["epsilon"], one["accuracy"])):
        best[one["epsilon"]] = one["accuracy"]
    return ", ".join(f"{right:g} at {epsilon:g}" for epsilon, right in best.items()) or "–"


def settings(name: str, summary: str, epsilon: float, chosen: Any, tuning: str) -> dict[str, Any]:
    """The settings of a run, with what each may be."""
    kinds = get_type_hints(type(chosen))
    return {
        "recipe": name,
        "summary": summary,
        "epsilon": epsilon,
        "settings": {
            one.name: {"value": getattr(chosen, one.name), "kind": _kind(kinds[one.name])}
            for one in fields(chosen)
        },
        "tuning": tuning,
    }


def _kind(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if NoneType in get_args(kind):
        (kept,) = (one for one in get_args(kind) if one is not NoneType)
        return f"{_kind(kept)}, or none for the recipe's own"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, str(kind))


def settings_page(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The settings as a table."""
    yield Text.assemble((found["recipe"], "bold"), f": {found['summary']}")
    table = Table(box=SIMPLE_HEAD)
    for name in ("setting", f"at ε = {rounded_up(found['epsilon'], 4)}", "values"):
        table.add_column(name)
    for name, one in found["settings"].items():
        table.add_row(f"--{name.replace('_', '-')}", _shown(one["value"]), one["kind"])
    yield table
    yield f"Defaults: {found['tuning']}."


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def result(folder: Path) -> dict[str, Any]:
    """What the folder of a finished run says."""
    record = read_json(folder / "run.json")
    statement = Statement.from_json((folder / "statement.json").read_text(encoding="utf-8"))
    return {
        "tacit": __version__,
        "recipe": record["recipe"],
        "settings": record["settings"],
        "data": record["data"],
        "accuracy": record["test_accuracy"],
        "epsilon": statement.epsilon,
        "delta": statement.delta,
        "adjacency": statement.adjacency,
        "unit": statement.unit,
        "steps": statement.steps_taken,
        "data_dependent_epsilon": (
            None if statement.data_dependent is None else statement.data_dependent.epsilon
        ),
        "notes": record["notes"],
        "configuration": record["configuration"],
        "ledger": statement.ledger,
        "files": {name: str(folder / name) for name in FILES if (folder / name).exists()},
    }


def result_page(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The result, in a few lines."""
    right, tested = found["accuracy"], found["data"]["test"]
    measured = "accuracy was not measured" if right is None else f"{right:.2%}"
    yield Text.assemble(
        (f"{found['recipe']}: ", "bold"),
        (measured, "bold"),
        "" if right is None else f" of {tested:,} held-out examples are right",
    )
    yield Text.assemble(
        ("Given away: ", "bold"),
        f"ε = {rounded_up(found['epsilon'], 4)} at δ = {compact(found['delta'])}, for every single "
        f"{found['unit']} under {found['adjacency']}",
    )
    if found["data_dependent_epsilon"] is not None:
        yield Text.assemble(
            ("Beside it: ", "bold"),
            f"ε = {rounded_up(found['data_dependent_epsilon'], 4)} at δ = "
            f"{compact(found['delta'])}, a data-dependent figure, released with noise; "
            "no claim for other data",
        )
    if found["ledger"] is not None:
        yield Text.assemble(("Charged: ", "bold"), found["ledger"])
    for note in found["notes"]:
        yield Text.assemble(("Note: ", "bold"), note)
