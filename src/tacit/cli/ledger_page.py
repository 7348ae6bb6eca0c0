"""What a ledger tells, as pages for people.

Names, labels and reasons come from a database that others write: they are shown as plain text,
which neither rich nor the terminal takes for commands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tacit._numbers import at_least, at_most, compact, percent
from tacit.reports.ledger_summary import (
    BUDGET_STATES,
    RESERVATION_STATES,
    printable,
    shown_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from tacit.ledger import BudgetState, Entry, RequestState, Verification
    from tacit.reports.ledger_summary import BudgetAccount, BudgetSummary, ReservationSummary

NEIGHBOURS = {
    "add-remove": "added or removed",
    "replace-one": "replaced by another",
    "zero-out": "made to count for nothing",
}
NO_SUM = "–"
BAR = 12


def budgets_page(
    heading: Mapping[str, str],
    budgets: Sequence[BudgetSummary],
    unfinished: Sequence[ReservationSummary],
    requests: Sequence[RequestState] = (),
) -> Iterator[RenderableType]:
    """All budgets, a line each, what the figures mean, what is unfinished and what is asked for."""
    yield _title(heading, f"{len(budgets)} budget{'' if len(budgets) == 1 else 's'}")
    if not budgets:
        return
    table = _table()
    table.add_column("budget", overflow="fold")
    for sign in ("ε", "δ"):
        for column in (sign, "spent", "left"):
            table.add_column(column, justify="right", no_wrap=True)
    table.add_column("share spent", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for one in budgets:
        table.add_row(*_budget_cells(one))
    yield table
    for name, meaning in _meanings(budgets).items():
        yield Text.assemble((f"{name}. ", "bold"), meaning)
    if any(one.state.composition != "basic" for one in budgets):
        yield Text(f"{NO_SUM}: the rule adds up no δ; its ε is at the budget's δ", style="dim")
    for pending in unfinished:
        yield Text.assemble(("Unfinished: ", "bold"), _pending(pending))
    if unfinished:
        yield Text("tacit ledger close BUDGET NUMBER ends one; a run may still go on with it")
    for asked in requests:
        yield Text.assemble(
            ("Request ", "bold"),
            f"{asked.number} to {shown_name(asked.budget)}, {printable(asked.label) or 'no name'}: "
            f"{asked.standing}{_until(asked)}, asked by {printable(asked.by.name)} on "
            f"{asked.at[:10]}",
        )


def _until(asked: RequestState) -> str:
    if asked.standing != "approved":
        return ""
    return f" (lapses if no run draws on it by {asked.until})"


def _pending(one: ReservationSummary) -> str:
    state = one.state
    return (
        f"reservation {state.number} of {shown_name(state.budget)}, {printable(one.name)}: "
        f"{one.standing}, {state.granted:,} of {state.steps:,} steps granted, since "
        f"{_moment(state.at)}"
    )


def opened_page(
    heading: Mapping[str, str], budget: BudgetSummary, *, made: bool
) -> Iterator[RenderableType]:
    """The budget that was made, or was there."""
    done = "was made" if made else "was there already"
    yield _title(heading, f"the budget {shown_name(budget.state.name)} {done}")
    yield _limits(budget.state)
    yield from _figures(budget)


def closed_page(
    heading: Mapping[str, str], budget: BudgetSummary, number: int, *, void: bool
) -> Iterator[RenderableType]:
    """What became of the charge, and what is left now."""
    kept = (
        "no step was granted, so it is no longer charged"
        if void
        else "it stays charged, since steps were granted or plans were declared together"
    )
    yield _title(heading, f"reservation {number} of {shown_name(budget.state.name)} ended")
    yield Text(f"{kept[0].upper()}{kept[1:]}.")
    yield from _figures(budget)


def account_page(heading: Mapping[str, str], found: BudgetAccount) -> Iterator[RenderableType]:
    """One budget, its figures in words, and its reservations."""
    budget = found.budget
    yield _title(heading, f"budget {shown_name(budget.state.name)}")
    yield ""
    yield _limits(budget.state)
    yield from _figures(budget)
    yield Text.assemble(
        ("State: ", "bold"), f"{budget.standing}, {BUDGET_STATES[budget.standing]}."
    )
    if not found.reservations:
        return
    yield _reservations(found.reservations)
    present = {one.standing for one in found.reservations}
    for name, meaning in RESERVATION_STATES.items():
        if name in present:
            yield Text(f"{name}: {meaning}", style="dim")


def history_page(heading: Mapping[str, str], entries: Sequence[Entry]) -> Iterator[RenderableType]:
    """Entries, a line each."""
    yield _title(heading, f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'}")
    table = _table()
    table.add_column("entry", justify="right", no_wrap=True)
    table.add_column("day (UTC)", no_wrap=True)
    table.add_column("budget", overflow="fold")
    table.add_column("kind", no_wrap=True)
    table.add_column("what", overflow="fold")
    for one in entries:
        cells = (
            _moment(one.at),
            shown_name(one.budget),
            printable(one.kind),
            printable(_what(one)),
        )
        table.add_row(str(one.number), *map(Text, cells))
    yield table


def verification_page(
    found: Verification, *, accepted: bool, asked: bool
) -> Iterator[RenderableType]:
    """The verdict, then every problem."""
    entries = f"{found.entries:,} entr{'y' if found.entries == 1 else 'ies'}"
    if found.ok:
        parts = "the chain, the anchor and all sums fit"
        if found.anchored is None:
            parts = "the chain and all sums fit, but there is no anchor"
        yield Text.assemble(("Sound: ", "bold green"), f"{entries}; {parts}.")
    else:
        count = f"{len(found.problems)} problem{'' if len(found.problems) == 1 else 's'}"
        yield Text.assemble(("Not sound: ", "bold red"), f"{count} in {entries}.")
    for problem in found.problems:
        yield Text(f"  • {printable(problem)}")
    for note in found.notes:
        yield Text(f"Note: {printable(note)}")
    if accepted:
        yield Text("The ledger was adopted as it is, which is recorded in it.")
    elif asked:
        yield Text("There was nothing to accept: the anchor fits. Nothing was recorded.")
    yield Text(f"Ledger: {found.location}", style="dim")
    if found.head is not None:
        yield Text(f"Head: {found.head}", style="dim")


def export_page(file: str, last: Entry) -> Iterator[RenderableType]:
    """Where the entries are, and how to check them."""
    yield Text(f"{last.number:,} entries are at {file}")
    yield Text(f"Head: {last.head}", style="dim")
    yield Text("Give the head by another way than the file: it vouches for every entry.")


def _title(heading: Mapping[str, str], subject: str) -> Text:
    number = heading["head"].partition(":")[0]
    return Text.assemble(
        ("Ledger ", "bold"), f"{heading['ledger']}, as of entry {number}: {subject}"
    )


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False)


def _budget_cells(one: BudgetSummary) -> Iterator[RenderableType]:
    state = one.state
    yield Text(shown_name(state.name))
    yield compact(state.epsilon)
    yield at_most(one.spent.epsilon, 4)
    yield at_least(one.remaining.epsilon, 4)
    yield compact(state.delta)
    added = state.composition == "basic"
    yield at_most(one.spent.delta, 3) if added else NO_SUM
    yield at_least(one.remaining.delta, 3) if added else NO_SUM
    yield f"{_bar(one.spent.share)} {percent(one.spent.share)}"
    yield one.standing


def _bar(share: float) -> str:
    full = min(BAR, math.ceil(BAR * share))
    return "█" * full + "─" * (BAR - full)


def _meanings(budgets: Iterable[BudgetSummary]) -> dict[str, str]:
    """What the figures of each rule are; where budgets differ, each has its own."""
    found: dict[str, str] = {}
    for one in budgets:
        meaning = f"spent: {one.spent.meaning}; left: {one.remaining.meaning}"
        rule = one.state.composition
        if found.setdefault(rule, meaning) != meaning:
            found[f"{rule} ({printable(one.state.name)})"] = meaning
    return found


def _limits(state: BudgetState) -> Text:
    amended = f", amended {state.amended} time{'' if state.amended == 1 else 's'}"
    return Text.assemble(
        (f"ε = {compact(state.epsilon)} and δ = {compact(state.delta)}", "bold"),
        f" for all releases together (composition {state.composition}), where one {state.unit} is "
        f"{NEIGHBOURS.get(state.adjacency, state.adjacency)}; opened {_moment(state.opened)} UTC"
        f"{amended if state.amended else ''}.",
    )


def _figures(one: BudgetSummary) -> Iterator[Text]:
    for title, sign, rounded, figure in (
        ("Spent", "≤", at_most, one.spent),
        ("Left", "=", at_least, one.remaining),
    ):
        text = Text.assemble((f"{title}: ", "bold"), f"ε {sign} {rounded(figure.epsilon)}")
        if one.state.composition == "basic":
            text.append(f" and δ {sign} {rounded(figure.delta)}")
        else:
            text.append(f" at δ = {compact(one.state.delta)}")
        if figure is one.spent:
            text.append(f"  {_bar(figure.share)} {percent(figure.share)}")
        yield text.append(f"\n  {figure.meaning}", "dim")


def _reservations(reservations: Iterable[ReservationSummary]) -> Table:
    table = _table()
    table.add_column("number", justify="right", no_wrap=True)
    table.add_column("what", overflow="fold")
    for column in ("ε", "δ", "steps granted"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("last entry (UTC)", no_wrap=True)
    for one in reservations:
        state, charge = one.state, one.state.charge
        table.add_row(
            str(state.number),
            Text(printable(one.name)),
            at_most(charge.epsilon, 4),
            at_most(charge.delta, 3),
            f"{state.granted:,} of {state.steps:,}",
            one.standing,
            Text(_moment(one.last)),
            style="dim" if one.standing == "void" else "",
        )
    return table


def _what(entry: Entry) -> str:
    """The details of an entry in words."""
    data = entry.data
    match entry.kind:
        case "ledger":
            return f"the ledger {data['id']} begins"
        case "adopt":
            return f"adopted, because: {data['reason']}"
        case "open":
            return (
                f"ε = {compact(data['epsilon'])}, δ = {compact(data['delta'])}, "
                f"{data['composition']}, one {data['unit']}, {data['adjacency']}"
            )
        case "amend":
            limits = f"ε = {compact(data['epsilon'])}, δ = {compact(data['delta'])}"
            return f"{limits}, because: {data['reason']}"
        case "reserve" | "declare":
            return _charged(data)
        case "claim":
            return f"of declaration {data['reservation']}: {_named(data)}{_steps(data)}"
        case "lease" | "give-back":
            return f"{_count(data['steps'])} of reservation {data['reservation']}"
        case "end":
            return f"reservation {data['reservation']}"
        case "request":
            why = f"by {data['by']['name']}, for: {data['reason']}"
            return f"{_named(data)}{_count(data['steps'])}, {why}"
        case "draw" | "undraw" | "lapse":
            run = f": {data['run']}" if entry.kind == "draw" else ""
            return f"request {data['request']}{run}"
        case "approve" | "refuse" | "revoke" | "withdraw":
            until = f", to be drawn on by {data['until']}" if entry.kind == "approve" else ""
            who = f"by {data['by']['name']}, because: {data['reason']}"
            return f"request {data['request']}{until}, {who}"
        case _:
            return entry.body


def _charged(data: Mapping[str, Any]) -> str:
    charge = data["charge"]
    own = math.inf if charge["epsilon"] is None else charge["epsilon"]
    return f"{_named(data)}ε = {at_most(own, 4)}, δ = {at_most(charge['delta'], 3)}, {_steps(data)}"


def _named(data: Mapping[str, Any]) -> str:
    return f"{data['label']}: " if data["label"] else ""


def _steps(data: Mapping[str, Any]) -> str:
    granted = ", granted" if data["granted"] == data["steps"] else ""
    return f"{_count(data['steps'])}{granted}"


def _count(steps: int) -> str:
    return f"{steps:,} step{'' if steps == 1 else 's'}"


def _moment(at: str) -> str:
    """The day; entries written before 2026-12 know the time as well."""
    return printable(at)[:10]
