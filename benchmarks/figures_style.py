"""How the paper's figures look: as the library's own, ``tacit.reports.plan_figure``."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from tacit._numbers import rounded_up
from tacit.reports.plan_figure import FAINT, GRID, INK

LABEL_HEIGHT = 0.06


def new_figure(width: float, height: float, title: str) -> Figure:
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Figure(figsize=(width, height), layout=layout)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, weight="bold", color=INK)
    return figure


def dot(axes: Axes, point: tuple[float, float], colour: str, *, below: bool) -> None:
    axes.plot(*point, "o", color=colour, markersize=6.5, markeredgecolor="white", zorder=5)
    offset = (2, -16) if below else (-4, 8)
    axes.annotate(
        rounded_up(point[1], 3), point, xytext=offset, textcoords="offset points", color=colour,
        ha="left" if below else "right",
    )  # fmt: skip


def label_ends(axes: Axes, ends: dict[str, tuple[float, str]]) -> None:
    """Names lines at their right ends, the lowest first, each clear of the one below."""
    to_share = axes.transAxes.inverted().transform
    floor = -1.0
    for text, (value, colour) in sorted(ends.items(), key=lambda end: end[1][0]):
        own = to_share(axes.transData.transform((axes.get_xlim()[1], value)))[1]
        height = max(own, floor)
        floor = height + LABEL_HEIGHT * (1 + text.count("\n"))
        axes.text(1.02, height, text, transform=axes.transAxes, va="center", color=colour)


def power(delta: float) -> str:
    digits = str(round(np.log10(delta))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{digits}"


def logarithmic(axes: Axes, which: str, ticks: Sequence[float]) -> None:
    """A logarithmic axis, "x" or "y", with just these ticks."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def style(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=8)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK, rotation=0 if len(y) == 1 else 90)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=FAINT, length=0, pad=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
