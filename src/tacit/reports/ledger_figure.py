"""A budget's burn-down as a picture: what each reservation took, and what was left over time."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from tacit._files import drafted
from tacit._numbers import at_least, at_most, compact
from tacit.reports.ledger_summary import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tacit.reports.ledger_summary import BudgetAccount, Change, ReservationSummary

INK, FAINT, GRID = "#1e293b", "#64748b", "#e2e8f0"
TAKEN, PENDING, ADDED, LEFT, DELTA = "#1d4ed8", "#93c5fd", "#0f9d8a", "#dbeafe", "#d97706"
OTHER = "#94a3b8"
THICK = 0.62  # of a bar, where the next one is 1 below
FEWEST_ROWS = 6  # for which there is room
MOST_ROWS = 24  # the earlier ones share one row
LEAST_ROOM = 0.36  # beside a bar, for its figures
LONGEST = 34  # letters of a label
SHORTEST_TIME = 1.0  # days


@dataclass(frozen=True)
class ReservationBar:
    """A bar from what was left ``before`` to what was left ``after``.

    ``done`` is the part of its steps that was granted; None if it is not one reservation.
    """

    label: str
    figures: str
    before: float
    after: float
    done: float | None = None


def write(account: BudgetAccount, path: Path) -> None:
    """Draws to ``path`` (.png or .svg), which ends up as the whole picture or as it was before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".")
    with drafted(path) as draft, warnings.catch_warnings():
        # A label may be in a script that the font lacks: it is drawn as boxes then.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        draw(account).savefig(draft, format=kind, dpi=160, facecolor="white")


def draw(account: BudgetAccount) -> Figure:
    """Charge by charge on the left, over time on the right."""
    rows = rows_of(account)
    figure = Figure(
        figsize=(15, max(5.4, 2.6 + 0.36 * len(rows))),
        layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12),
    )
    charges, times = figure.subplots(1, 2, width_ratios=(1.25, 1))
    figure.suptitle(
        _headline(account), x=0.01, ha="left", fontsize=14, weight="bold", color=INK
    ).set_parse_math(False)  # a $ in a name is a $
    _draw_charges(charges, rows, account)
    _draw_times(times, account)
    return figure


def rows_of(account: BudgetAccount) -> list[ReservationBar]:
    """The bars of the left panel, oldest first; of many, the earliest are put into one."""
    known = {one.state.number: one for one in account.reservations}
    first, *changes = account.changes
    skipped = max(0, len(changes) - MOST_ROWS)
    rows: list[ReservationBar] = []
    before = first.share
    if skipped:
        after = changes[skipped - 1].share
        rows.append(ReservationBar(f"the first {skipped} changes", "", before, after))
        before = after
    for change in changes[skipped:]:
        rows.append(_row(change, known, before))
        before = change.share
    return rows


def _row(change: Change, known: dict[int, ReservationSummary], before: float) -> ReservationBar:
    if change.reservation is None:
        epsilon, delta = map(compact, change.limits)
        figures = f"to ε = {epsilon}, δ = {delta}"
        return ReservationBar(f"{change.number}  limits amended", figures, before, change.share)
    made = known[change.reservation]
    state = made.state
    label = f"{change.number}  {_short(made.name)}"
    if change.kind == "end":
        return ReservationBar(f"{label}, unused", "taken back", before, change.share)
    charge = state.charge
    figures = f"ε {at_most(charge.epsilon, 3)}"
    if change.delta_share is not None:
        figures += f", δ {at_most(charge.delta, 2)}"
    if state.steps > 1:
        figures += f";  {state.granted:,} of {state.steps:,} steps"
    return ReservationBar(label, figures, before, change.share, state.granted / state.steps)


def _headline(account: BudgetAccount) -> str:
    budget = account.budget
    left = f"ε = {at_least(budget.remaining.epsilon, 4)}"
    if account.changes[-1].delta_share is not None:
        left += f" and δ = {at_least(budget.remaining.delta, 3)}"
    return (
        f"Budget {_short(budget.state.name)} (ε = {compact(budget.state.epsilon)}, "
        f"δ = {compact(budget.state.delta)}, {budget.state.composition}):  {left} left"
    )


def _draw_charges(axes: Axes, rows: Sequence[ReservationBar], account: BudgetAccount) -> None:
    """A waterfall: each charge begins where the one before it ended."""
    for place, row in enumerate(rows):
        low, high = min(row.before, row.after), max(row.before, row.after)
        axes.barh(place, high - low, left=low, height=THICK, color=_colour(row))
        if row.done:
            granted = row.done * (high - low)
            axes.barh(place, granted, left=high - granted, height=THICK, color=TAKEN)
        if place + 1 < len(rows):
            joint = [place + THICK / 2, place + 1 - THICK / 2]
            axes.plot([row.after] * 2, joint, color=FAINT, linewidth=1.0)
        _tell(axes, place, row, dark=row.done is None or row.done >= 0.5)
    left = account.budget.remaining.share
    axes.barh(len(rows), left, height=THICK, color=LEFT)
    _tell(axes, len(rows), ReservationBar("left", f"{100 * left:.3g}%", left, 0.0), dark=False)
    labels = [*(row.label for row in rows), "left"]
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.set_ylim(max(len(labels), FEWEST_ROWS) - 0.4, -0.6)
    axes.set_xlim(0.0, 1.0)
    axes.xaxis.set_major_formatter(FuncFormatter(_percent))
    measure = "ε" if account.budget.state.composition == "basic" else "the budget"
    _style(axes, "What each charge took", f"share of {measure} that is left")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=INK)
    _explain(axes, rows)


def _colour(row: ReservationBar) -> str:
    if row.after > row.before:
        return ADDED
    return OTHER if row.done is None else PENDING


def _explain(axes: Axes, rows: Sequence[ReservationBar]) -> None:
    """Names the colours that are there, unless there is nothing but granted steps."""
    parts = [row.done for row in rows if row.done is not None]
    meanings = {
        TAKEN: ("steps granted", any(part > 0.0 for part in parts)),
        PENDING: ("charged, not granted", any(part < 1.0 for part in parts)),
        ADDED: ("added", any(row.after > row.before for row in rows)),
    }
    patches = [Patch(color=one, label=words) for one, (words, there) in meanings.items() if there]
    if not patches or [patch.get_label() for patch in patches] == ["steps granted"]:
        return
    axes.legend(
        handles=patches,
        loc="upper left",
        bbox_to_anchor=(-0.01, -0.1),
        ncols=len(patches),
        frameon=False,
        labelcolor=FAINT,
        handlelength=1.0,
    )


def _tell(axes: Axes, place: int, row: ReservationBar, *, dark: bool) -> None:
    """Writes beside a bar, on the side that has more room, or on it where neither has any."""
    low, high = min(row.before, row.after), max(row.before, row.after)
    right, colour = 1.0 - high >= low, FAINT
    end = high if right else low
    if max(low, 1.0 - high) < LEAST_ROOM:
        # On the dark end, which is the right one, or on the light end.
        right, end, colour = not dark, high if dark else low, "white" if dark else INK
    axes.annotate(
        row.figures,
        (end, place),
        xytext=(7 if right else -7, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center",
        fontsize=9.5,
        color=colour,
    )


def _draw_times(axes: Axes, account: BudgetAccount) -> None:
    """What was left, from the opening of the budget to its last entry."""
    times = [_days(change.at) for change in account.changes]
    last = max(_days(account.last), times[0] + SHORTEST_TIME)
    shares = [change.share for change in account.changes]
    moments, levels = [*times, last], [*shares, shares[-1]]
    axes.fill_between(moments, levels, step="post", color=LEFT, alpha=0.7, linewidth=0)
    axes.step(moments, levels, where="post", color=TAKEN, linewidth=2.6)
    axes.plot(times, shares, "o", color=TAKEN, markersize=6, markeredgecolor="white")
    deltas = [change.delta_share for change in account.changes if change.delta_share is not None]
    if len(deltas) == len(shares):
        levels = [*deltas, deltas[-1]]
        axes.step(moments, levels, where="post", color=DELTA, linestyle=(0, (4, 2)))
        _name_lines(axes)
    first, end = min(moments), max(moments)  # a clock may have been set back
    axes.set_xlim(first - 0.03 * (end - first), end + 0.03 * (end - first))
    axes.set_ylim(0.0, 1.04)
    locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    _style(axes, "What was left over time", "day (UTC)")


def _days(at: str) -> float:
    """The day of an entry as matplotlib counts it: since 1970."""
    return datetime.fromisoformat(at[:10]).replace(tzinfo=UTC).timestamp() / 86400.0


def _name_lines(axes: Axes) -> None:
    for height, (text, colour) in enumerate((("ε: solid", TAKEN), ("δ: dashed", DELTA))):
        axes.text(
            0.97, 0.95 - 0.06 * height, text, transform=axes.transAxes, ha="right", color=colour
        )


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def _percent(share: float, _: object) -> str:
    return f"{100 * share:.3g}%"


def _style(axes: Axes, title: str, x: str) -> None:
    axes.set_title(title, loc="left", fontsize=11.5, color=INK, pad=10)
    axes.set_xlabel(x, color=INK)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=FAINT, length=0, pad=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
