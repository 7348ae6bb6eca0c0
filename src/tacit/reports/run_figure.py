"""The drawings of a report, as SVG that takes its colours from the page around it."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from tacit._numbers import at_most, compact, per_hundred
from tacit.reports.audit_figure import FOURTH, THIRD, draw_roc

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

    from tacit.reports.run_summary import RunSummary

# Each stands for a colour of the page's style sheet, in which light and dark differ.
INK, FAINT, RULE = "#1e293b", "#64748b", "#e2e8f0"
ACCENT, SOFT, SECOND, PAPER = "#1d4ed8", "#dbeafe", "#b45309", "#ffffff"
_VARIABLES: Final = {
    INK: "--ink",
    FAINT: "--faint",
    RULE: "--rule",
    ACCENT: "--accent",
    SOFT: "--soft",
    SECOND: "--second",
    PAPER: "--paper",
    THIRD: "--third",
    FOURTH: "--fourth",
}
_WORDS: Final = {
    "accuracy": "Accuracy on held-out data against the privacy spent",
    "curve": "The privacy curve: δ against ε",
    "attack": "What no attack can exceed",
    "audit": "What attacks found, beside what none can exceed",
}
_SIZE: Final = (7.2, 3.6)
# Room for the longest words of an axis. A layout that measures them draws everything twice, and a
# page with a report is to come at once.
_MARGINS: Final = {"left": 0.115, "right": 0.955, "bottom": 0.165, "top": 0.965}
_FONT: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tacit",
    "font.size": 11.0,
}


def drawings(summary: RunSummary) -> dict[str, str]:
    """The drawings that there is something to draw for, as SVG by name."""
    painters: dict[str, tuple[bool, Callable[[Axes, RunSummary], None]]] = {
        "accuracy": (bool(summary.moments), draw_accuracy),
        "curve": (bool(summary.curve), draw_curve),
        "attack": (bool(summary.attack), draw_attack),
        "audit": (summary.files.audit is not None, draw_audit),
    }
    return {
        name: svg(name, painter, summary) for name, (there, painter) in painters.items() if there
    }


def svg(name: str, painter: Callable[[Axes, RunSummary], None], summary: RunSummary) -> str:
    """One drawing, its identifiers its own, so that several can be in one page."""
    with mpl.rc_context(_FONT):
        figure = Figure(figsize=_SIZE)
        axes = figure.subplots(gridspec_kw=_MARGINS)
        painter(axes, summary)
        axes.minorticks_off()  # they have neither length nor words, and take longest
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata=_NO_METADATA)
    return _embedded(written.getvalue(), name)


_NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def _embedded(text: str, name: str) -> str:
    """The ``<svg>`` element alone, sized by the page and coloured by its variables."""
    body = text[text.index("<svg") :].strip()
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    said = rf'\1 role="img" aria-label="{_WORDS[name]}"'
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', said, body, count=1)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    return re.sub(r"font(?:-family)?: ([^;\"]*?)'[^;\"]*", r"font: \1system-ui, sans-serif", body)


def draw_accuracy(axes: Axes, summary: RunSummary) -> None:
    """Accuracy against the ε spent by then, or against steps; published figures as marks."""
    spent = [one.epsilon for one in summary.moments if one.epsilon is not None]
    known = len(spent) == len(summary.moments)
    places = spent if known else [float(one.steps) for one in summary.moments]
    heights = [100.0 * one.accuracy for one in summary.moments]
    axes.plot(places, heights, color=ACCENT, linewidth=2.2, marker="o", markersize=4)
    if known:
        _published(axes, summary)
    final = 100.0 * (summary.files.accuracy or 0.0)
    axes.axhline(final, color=FAINT, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.annotate(
        f"released model {final:.2f} %", (0.01, final), xycoords=("axes fraction", "data"),
        xytext=(0, 4), textcoords="offset points", color=INK, fontsize=10,
    )  # fmt: skip
    axes.set_xlim(left=0.0)
    axes.margins(y=0.18)
    _style(axes, "ε spent by then" if known else "steps", "accuracy, %")


def _published(axes: Axes, summary: RunSummary) -> None:
    last = max(one.epsilon or 0.0 for one in summary.moments)
    near = [one for one in summary.files.record.anchors if float(one["epsilon"]) <= 1.5 * last]
    if not near:
        return
    axes.plot(
        [float(one["epsilon"]) for one in near],
        [float(one["accuracy"]) for one in near],
        linestyle="", marker="D", markersize=6, color=SECOND,
    )  # fmt: skip
    axes.text(
        0.99, 0.04, "◆ published", transform=axes.transAxes, ha="right", color=SECOND, fontsize=10
    )


def draw_curve(axes: Axes, summary: RunSummary) -> None:
    """δ against ε: every pair on or above the line is guaranteed.

    Between two points the line stays at the δ of the smaller ε: a chord would lie below the curve.
    """
    points = [(loss, delta) for loss, delta in summary.curve if delta > 0.0]
    losses, deltas = zip(*points, strict=True)
    top = max(1.0, *deltas)
    axes.fill_between(losses, deltas, top, step="post", color=SOFT, linewidth=0)
    axes.plot(losses, deltas, drawstyle="steps-post", color=ACCENT, linewidth=2.2)
    statement = summary.statement
    upper = summary.figures.upper
    axes.plot(upper, statement.delta, "o", color=ACCENT, markersize=8, markeredgecolor=PAPER)
    right = upper <= 0.7 * losses[-1]  # there is room on that side, where all is guaranteed
    axes.annotate(
        f"ε = {at_most(upper, 4)}, δ = {compact(statement.delta)}", (upper, statement.delta),
        xytext=(10, 6) if right else (-10, -14), textcoords="offset points",
        ha="left" if right else "right", color=INK, fontsize=10,
    )  # fmt: skip
    axes.text(0.98, 0.92, "guaranteed", transform=axes.transAxes, ha="right", color=INK)
    axes.set_yscale("log")
    axes.set_xlim(0.0, losses[-1])
    axes.set_ylim(min(deltas), top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    _style(axes, "ε", "δ")


def draw_attack(axes: Axes, summary: RunSummary) -> None:
    """The largest true positive rate of any attack at each false positive rate, or more.

    Between two points the line is at the rate of the larger one: a chord would lie below the curve.
    """
    false, true = zip(*summary.attack, strict=True)
    axes.fill_between(false, false, true, step="pre", color=SOFT, linewidth=0)
    axes.plot(false, true, drawstyle="steps-pre", color=ACCENT, linewidth=2.2)
    axes.plot(false, false, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
    for rate, most in summary.figures.attack:
        axes.plot(rate, most, "o", color=ACCENT, markersize=7, markeredgecolor=PAPER)
        axes.annotate(
            f"{per_hundred(most)} % at {100 * rate:g} %", (rate, most), xytext=(-8, 6),
            textcoords="offset points", ha="right", color=INK, fontsize=10,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(false[0], 1.0)
    axes.set_ylim(false[0], 1.0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    _style(axes, "false alarms among those who were not in the data", "found of those who were")


def draw_audit(axes: Axes, summary: RunSummary) -> None:
    """What attacks found, beside the largest true positive rates of any attack."""
    assert summary.files.audit is not None
    draw_roc(axes, summary.files.audit.attacks, summary.attack)


def _style(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK, rotation=0 if len(y) == 1 else 90)
    axes.grid(visible=True, color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=FAINT, length=0, pad=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(RULE)
    if axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(7))
