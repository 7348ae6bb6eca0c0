"""What ``tacit audit`` shows: what can be audited, and what an audit found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tacit._numbers import per_hundred
from tacit._validation import printable
from tacit.recipes.auditing.audit_file import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from tacit.recipes.auditing import Audited
    from tacit.recipes.auditing.audit_file import AttackFigures, Figure


def listed() -> dict[str, Any]:
    """Everything that can be audited by name, and the attacks."""
    from tacit.auditing.attacks import ATTACKS
    from tacit.auditing.mechanism_audits import NAMES
    from tacit.recipes import names as recipes
    from tacit.recipes.auditing import find, names

    return {
        "recipes": list(recipes()),
        "experiments": {name: find(name).summary for name in names()},
        "mechanisms": list(NAMES),
        "attacks": {name: one.says for name, one in ATTACKS.items()},
    }


def listed_page(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The same in words."""
    yield Text.assemble(("A run: ", "bold"), "tacit audit DIR, the folder of a finished run")
    yield Text.assemble(("A recipe: ", "bold"), ", ".join(found["recipes"]))
    yield Text.assemble(("The engine: ", "bold"), "tacit audit engine [--model FILE:function]")
    yield Text.assemble(
        ("A mechanism: ", "bold"), "tacit audit mechanism NAME: ", ", ".join(found["mechanisms"])
    )
    for head, name in (("experiment", "experiments"), ("attack", "attacks")):
        table = Table(box=SIMPLE_HEAD)
        table.add_column(head, no_wrap=True)
        table.add_column("what it does" if head == "experiment" else "goes by")
        for one, says in found[name].items():
            table.add_row(one, says)
        yield table


def page(done: Audited) -> Iterator[RenderableType]:
    """An audit's verdict, then what it was reached by."""
    yield Text.assemble(
        (f"{printable(done.subject)}: ", "bold"),
        (printable(done.words), "bold red" if done.contradicted else ""),
    )
    if done.attacks:
        yield _attacks(done.attacks)
    if done.kind == "engine":
        yield from _engine(done.details)
    elif done.details:
        yield _details(done.details)
    for note in done.notes:
        yield Text.assemble(("Note: ", "bold"), note)
    if done.private:
        yield Text.assemble(("Secret: ", "bold"), SECRET)


def _attacks(attacks: Sequence[AttackFigures]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for name in ("attack", "on", "false alarms", "found", "95 % interval", "allowed", "area"):
        table.add_column(name, justify="left" if name in ("attack", "on") else "right")
    for attack in attacks:
        for place, one in enumerate(attack.found):
            table.add_row(
                attack.name if place == 0 else "",
                attack.model if place == 0 else "",
                f"{100 * one.fpr:g} %",
                _percent(one.tpr.value),
                _interval(one.tpr),
                "–" if one.allowed is None else f"{per_hundred(one.allowed)} %",
                f"{attack.auc.value:.3f}" if place == 0 else "",
            )
    return table


def _engine(rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """All checks in one setting; of several, how many there were, and the evidence of faults."""
    if len({row["setting"] for row in rows}) == 1:
        yield _details(rows)
        return
    counts = Counter((row["setting"], row["component"]) for row in rows)
    faults = [row for row in rows if not row["passed"]]
    bad = Counter((row["setting"], row["component"]) for row in faults)
    yield _details(
        [
            {"setting": setting, "component": part, "checks": count, "faults": bad[setting, part]}
            for (setting, part), count in counts.items()
        ]
    )
    if faults:
        yield _details(faults)


def _details(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(*(_shown(row.get(name)) for name in names))
    return table


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "ok" if value else "FAULT"
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"


def _interval(figure: Figure) -> str:
    return f"{_percent(figure.lower)} to {_percent(figure.upper)}"
