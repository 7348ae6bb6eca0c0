"""A plan as a picture: ε over the run, the privacy curve, and what an attacker can reach."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullFormatter

from tacit._files import drafted
from tacit._numbers import compact, nearest, percent, rounded_up
from tacit.accounting import epsilon, profile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tacit.accounting import Row
    from tacit.reports.plan_summary import AccountedRun, PlanSummary

    Rates = np.ndarray[tuple[int], np.dtype[np.float64]]

COLOURS = {
    "exact": "#1d4ed8",
    "rdp": "#0f9d8a",
    "moments": "#d97706",
    "zcdp": "#9333ea",
    "gdp": "#0891b2",
    "gdp-clt": "#64748b",
    "advanced": "#be123c",
    "basic": "#57534e",
}
INK, FAINT, GRID, WASH = "#1e293b", "#64748b", "#e2e8f0", "#dbeafe"
POINTS = 16
START = 0.015  # the share of the run before which every line comes up from next to nothing
LABEL_HEIGHT = 0.058
FARTHEST = 40.0  # times the exact answer: a looser accountant is named but not drawn
SMALLEST_RATE = 1e-5
POINTS_OF_CURVE = 45


def write(summary: PlanSummary, path: Path) -> None:
    """Draws to ``path`` (.png or .svg), which ends up as the whole picture or as it was before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".")
    with drafted(path) as draft:
        draw(summary).savefig(draft, format=kind, dpi=160, facecolor="white")


def draw(summary: PlanSummary) -> Figure:
    """The three panels side by side."""
    figure = Figure(figsize=(15, 5.4), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12))
    over_time, curve, attacker = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    figure.suptitle(_headline(summary), x=0.01, ha="left", fontsize=14, weight="bold", color=INK)
    _draw_over_time(over_time, summary)
    _draw_curve(curve, summary)
    _draw_attacker(attacker, summary.setting)
    for false, true in summary.odds.catches[1:]:
        _mark(attacker, (false, true), f"{percent(true)} at {100 * false:g}%", left=True)
    return figure


def _headline(summary: PlanSummary) -> str:
    setting = summary.setting
    data = f"Rate {setting.rate:.4g}"
    if setting.examples is not None and setting.lot is not None:
        data = f"{setting.examples:,} examples in lots of {setting.lot:,}"
    return (
        f"{data}, {setting.steps:,} steps, σ = {rounded_up(setting.sigma, 5)}:  "
        f"ε ≤ {rounded_up(summary.interval.upper, 4)} at δ = {compact(setting.delta)}"
    )


def _draw_over_time(axes: Axes, summary: PlanSummary) -> None:
    """ε as the run goes on, a line for each accountant (as in Abadi et al. 2016, Figure 2)."""
    setting = summary.setting
    answers = {row: row.epsilon for row in summary.rows if row.epsilon and np.isfinite(row.epsilon)}
    limit = FARTHEST * summary.interval.upper
    shown = {row: value for row, value in answers.items() if value <= limit}
    steps = _moments(setting.steps)
    lines = {row: [_epsilon(setting, step, row.accountant) for step in steps] for row in shown}
    for row, values in lines.items():
        axes.plot(steps, values, **_line(row, alone=len(steps) == 1))
    _style(axes, "Privacy loss as the run goes on", "steps", "ε")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.set_xlim(0, setting.steps)
    if lines:
        _scale(axes, min(values[0] for values in lines.values()))
        _label_ends(axes, shown)
    beyond = [f"{row.accountant} {_short(row)}" for row in answers if row not in shown]
    if beyond:
        note = f"beyond this scale: {', '.join(beyond)}"
        axes.text(0.03, 0.95, note, transform=axes.transAxes, color=FAINT, fontsize=9.5)


def _scale(axes: Axes, lowest: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.85 * lowest)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _moments(steps: int) -> list[int]:
    """The steps to draw: from near the start, closer together where the lines are steep."""
    shares = np.linspace(math.sqrt(START), 1.0, POINTS) ** 2
    return sorted({max(1, round(share * steps)) for share in shares})


def _epsilon(setting: AccountedRun, steps: int, accountant: str) -> float:
    return epsilon(
        setting.event(steps),
        delta=setting.delta,
        accountant=accountant,
        adjacency=setting.adjacency,
    )


def _line(row: Row, *, alone: bool) -> dict[str, Any]:
    first = row.accountant == "exact"
    return {
        "color": COLOURS.get(row.accountant, FAINT),
        "linewidth": 3.2 if first else 1.6 if row.is_bound else 1.1,
        "linestyle": "-" if row.is_bound else (0, (4, 3)),
        "marker": "o" if alone else "",
        "zorder": 4 if first else 3 if row.is_bound else 5,
        "solid_capstyle": "round",
    }


def _label_ends(axes: Axes, shown: dict[Row, float]) -> None:
    """Names each line at its right end, moving labels apart where they would touch."""
    low, high = np.log(axes.get_ylim())
    rows = sorted(shown, key=shown.__getitem__)
    ends = [float((np.log(shown[row]) - low) / (high - low)) for row in rows]
    for row, end, height in zip(rows, ends, _apart(ends, LABEL_HEIGHT), strict=True):
        axes.annotate(
            f"{row.accountant}  {_short(row)}" + ("" if row.is_bound else "  (not a bound)"),
            xy=(1.0, end),
            xytext=(1.04, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=9.5,
            color=COLOURS.get(row.accountant, FAINT),
            weight="bold" if row.accountant == "exact" else "normal",
            arrowprops={"arrowstyle": "-", "color": GRID, "relpos": (0, 0.5), "shrinkA": 1},
        )


def _short(row: Row) -> str:
    assert row.epsilon is not None
    return rounded_up(row.epsilon, 3) if row.is_bound else nearest(row.epsilon, 3)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Moves increasing heights so that they stand at least ``gap`` apart, as little as possible.

    >>> _apart([0.0, 0.0, 1.0], 0.5)
    [-0.25, 0.25, 1.0]
    """
    groups: list[list[float]] = []  # each: the heights that stand together
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1], gap) < _top(groups[-2], gap) + gap:
            last = groups.pop()
            groups[-1] += last
    return [_bottom(group, gap) + gap * place for group in groups for place in range(len(group))]


def _bottom(group: Sequence[float], gap: float) -> float:
    return float(np.mean(group)) - gap * (len(group) - 1) / 2


def _top(group: Sequence[float], gap: float) -> float:
    return float(np.mean(group)) + gap * (len(group) - 1) / 2


def _draw_curve(axes: Axes, summary: PlanSummary) -> None:
    """δ against ε: every pair on or above the line is guaranteed, also between its points."""
    setting = summary.setting
    curve = profile(setting.event(), adjacency=setting.adjacency)
    deltas = np.geomspace(min(1e-12, 1e-2 * setting.delta), 1e-1, POINTS_OF_CURVE)
    epsilons = np.array([curve.epsilon(float(delta)) for delta in deltas])
    axes.fill_between(epsilons, deltas, deltas[-1], step="pre", color=WASH, alpha=0.6, linewidth=0)
    axes.plot(epsilons, deltas, drawstyle="steps-pre", color=COLOURS["exact"], linewidth=2.6)
    axes.set_yscale("log")
    axes.set_xlim(0, max(1e-9, *epsilons[np.isfinite(epsilons)]))
    axes.set_ylim(deltas[0], deltas[-1])
    _style(axes, "The privacy curve", "ε", "δ")
    upper = summary.interval.upper
    text = f"ε = {rounded_up(upper, 4)}\nδ = {compact(setting.delta)}"
    _mark(axes, (upper, setting.delta), text)
    axes.text(0.96, 0.93, "guaranteed", transform=axes.transAxes, ha="right", color=FAINT)


def _draw_attacker(axes: Axes, setting: AccountedRun) -> None:
    """The largest true positive rate of any test at each false positive rate, or more."""
    false = np.geomspace(SMALLEST_RATE, 1.0, 200)
    true = _most_found(setting, false)
    axes.fill_between(false, false, true, step="pre", color=WASH, alpha=0.8, linewidth=0)
    axes.plot(false, true, drawstyle="steps-pre", color=COLOURS["exact"], linewidth=2.6)
    axes.plot(false, false, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(SMALLEST_RATE, 1.0)
    axes.set_ylim(SMALLEST_RATE, 1.0)
    _style(axes, "What an attacker can reach", "outsiders flagged by mistake", "insiders found")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    axes.text(0.97, 0.05, "dashed: guessing", transform=axes.transAxes, ha="right", color=FAINT)
    axes.text(0.04, 0.93, "out of reach", transform=axes.transAxes, color=FAINT)


def _most_found(setting: AccountedRun, false: Rates) -> Rates:
    """The true positive rates of the best tests.

    Each ε of the curve limits them to e^ε·false + δ and to 1 - e^-ε(1 - δ - false), as in
    ``PrivacyCurve.tradeoff``; here the same few ε serve all rates.
    """
    curve = profile(setting.event(), adjacency=setting.adjacency)
    last = min(curve.epsilon(1e-4 * SMALLEST_RATE), 700.0)
    most = np.ones_like(false)
    for loss in np.linspace(0.0, last, POINTS_OF_CURVE):
        delta = curve.delta(float(loss))
        most = np.minimum(most, np.exp(loss) * false + delta)
        most = np.minimum(most, 1.0 - np.exp(-loss) * (1.0 - delta - false))
    return most


def _mark(axes: Axes, point: tuple[float, float], text: str, *, left: bool = False) -> None:
    axes.plot(*point, "o", color=COLOURS["exact"], markersize=7, markeredgecolor="white", zorder=5)
    axes.annotate(
        text,
        point,
        xytext=(-8, 8) if left else (12, 8),
        textcoords="offset points",
        ha="right" if left else "left",
        color=INK,
    )


def _style(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11.5, color=INK, pad=10)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK, rotation=0 if len(y) == 1 else 90)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=FAINT, length=0, pad=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
