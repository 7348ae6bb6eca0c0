"""A plan's summary as a page for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tacit._numbers import compact, duration, nearest, percent, rounded_down, rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from tacit.accounting import Row
    from tacit.reports.plan_summary import Demand, Odds, PlanSummary, Setting

ARGUMENTS = {
    "exact": "the tight answer, certified",
    "rdp": "Rényi divergences at the best order",
    "moments": "moments accountant, orders up to 32",
    "zcdp": "concentrated privacy",
    "gdp": "Gaussian privacy, where it is exact",
    "gdp-clt": "approximation, not a bound",
    "advanced": "strong composition",
    "basic": "ε and δ added up",
}
NEIGHBOURS = {
    "add-remove": "one example added or removed",
    "replace-one": "one example replaced by another",
    "zero-out": "one example made to count for nothing",
}
NO_ANSWER = "–"
BAR = 44
MARGIN = 2


def page(summary: PlanSummary) -> Iterator[RenderableType]:
    """The parts of the page, from top to bottom."""
    yield _run(summary.setting)
    yield ""
    yield _answer(summary)
    yield from _careless_delta(summary.setting)
    yield _accountants(summary)
    yield from _reasons(summary)
    yield from _attacker(summary.odds)
    yield ""
    yield from _curve(summary)


def _run(setting: Setting) -> Text:
    rate = f"rate {compact(setting.rate)}"
    if setting.examples is not None and setting.lot is not None:
        rate = f"{setting.examples:,} examples in lots of {setting.lot:,} ({rate})"
    return Text.assemble(
        ("Plan: ", "bold"),
        f"{rate}, {setting.steps:,} steps ({compact(setting.epochs)} epochs), "
        f"σ = {rounded_up(setting.sigma, 8)}; neighbours: {NEIGHBOURS[setting.adjacency]}.",
    )


def _answer(summary: PlanSummary) -> Text:
    interval, delta = summary.interval, compact(summary.setting.delta)
    text = Text()
    if summary.target is not None:
        text.append(f"σ = {rounded_up(summary.setting.sigma, 8)}", "bold green")
        text.append(f" is the least noise for ε = {compact(summary.target)} at δ = {delta}.\n")
    text.append(f"ε ≤ {rounded_up(interval.upper)}", "bold green")
    text.append(f" at δ = {delta}. ")
    if not interval.two_sided:
        return text.append("This is an upper bound; the truth may be smaller.")
    low, high = rounded_down(interval.lower, 10), rounded_up(interval.upper, 10)
    return text.append(f"Certified: the truth lies between {low} and {high}.")


def _careless_delta(setting: Setting) -> Iterator[Text]:
    if setting.examples is not None and setting.delta * setting.examples >= 1.0:
        yield Text(
            f"Careful: δ = {compact(setting.delta)} is not below 1/{setting.examples:,}. "
            "Publishing one example outright would meet it; take a much smaller one.",
            style="bold red",
        )


def _accountants(summary: PlanSummary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("accountant", no_wrap=True)
    table.add_column("ε at most", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    if summary.target is not None:
        table.add_column(f"σ for ε = {compact(summary.target)}", justify="right", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
    table.add_column("argument")
    demands = {demand.accountant: demand for demand in summary.demands}
    for row in summary.rows:
        table.add_row(*_cells(row, demands.get(row.accountant)), style=_style(row))
    return table


def _style(row: Row) -> str:
    return "bold" if row.accountant == "exact" else "" if row.is_bound else "dim"


def _cells(row: Row, demand: Demand | None) -> list[str]:
    cells = [row.accountant, _number(row.epsilon, row), duration(row.seconds)]
    if demand is not None:
        cells += [_number(demand.sigma, row), duration(demand.seconds)]
    return [*cells, ARGUMENTS.get(row.accountant, "")]


def _number(value: float | None, row: Row) -> str:
    if value is None:
        return NO_ANSWER
    if math.isinf(value):
        return "infinite"
    return rounded_up(value) if row.is_bound else f"≈ {nearest(value)}"


def _reasons(summary: PlanSummary) -> Iterator[Text]:
    """Why a table's cell holds no number."""
    notes = {row.accountant: row.note for row in summary.rows if row.epsilon is None}
    notes |= {
        demand.accountant: demand.note
        for demand in summary.demands
        if demand.sigma is None and demand.accountant not in notes
    }
    for accountant, note in notes.items():
        reason = note.removeprefix(f"accountant {accountant!r} does not support ")
        yield Text(f"{NO_ANSWER} {accountant}: {reason}", style="dim")
    if notes:
        yield Text()


def _attacker(odds: Odds) -> Iterator[Text]:
    yield Text.assemble(
        ("What an attacker gains. ", "bold"),
        "Suppose that someone knows all the other examples, watches every step of the run, and "
        "must tell whether a given example was among the data (an insider) or not (an outsider). "
        "Whatever they do:",
    )
    for false, true in odds.catches:
        yield Text(
            f"  • flagging {compact(100 * false)}% of the outsiders by mistake, "
            f"they find at most {percent(true)} of the insiders;"
        )
    yield Text(
        f"  • if both are equally likely, they are right at most {percent(odds.right)} of the time;"
    )
    yield Text(
        f"  • the share of insiders flagged exceeds that of outsiders by at most "
        f"{percent(odds.advantage)}."
    )


def _curve(summary: PlanSummary) -> Iterator[RenderableType]:
    yield Text("The privacy curve: ε for each δ", style="bold")
    largest = max((point[1] for point in summary.curve if math.isfinite(point[1])), default=0.0)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("δ", justify="right", no_wrap=True)
    table.add_column("ε at most", justify="right", no_wrap=True)
    table.add_column("")
    for delta, epsilon in summary.curve:
        own = delta == summary.setting.delta
        table.add_row(
            compact(delta), rounded_up(epsilon), _bar(epsilon, largest), style="bold" if own else ""
        )
    yield table


def _bar(value: float, largest: float) -> str:
    if not 0.0 < value <= largest:
        return ""
    return "█" * max(1, round(BAR * value / largest))
