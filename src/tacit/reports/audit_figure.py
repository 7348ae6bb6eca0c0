"""The picture of an audit: ROC curves on logarithmic axes, beside what the guarantee allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullFormatter

from tacit._files import PRIVATE, drafted
from tacit._numbers import compact
from tacit._validation import printable
from tacit.accounting import profile
from tacit.accounting.serialization import from_plain
from tacit.auditing.attacks import allowed
from tacit.reports.audit_file import read_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tacit.reports.audit_file import AttackFile, Point

# As in ``run_figure``: each stands for a colour of a report's style sheet.
INK, FAINT, RULE = "#1e293b", "#64748b", "#e2e8f0"
ACCENT, SOFT, SECOND, THIRD, FOURTH = "#1d4ed8", "#dbeafe", "#b45309", "#0f766e", "#a21caf"
COLOURS: Final = (ACCENT, SECOND, THIRD, FOURTH)
SMALLEST: Final = 1e-4
_FONT: Final[dict[Any, Any]] = {"font.size": 11.0, "svg.fonttype": "none", "svg.hashsalt": "tacit"}


def limits(event: Mapping[str, Any], adjacency: str) -> tuple[tuple[float, float], ...]:
    """False-positive rates with the largest true-positive rates that the guarantee allows."""
    rates = np.geomspace(SMALLEST, 1.0, 81)
    curve = profile(from_plain(event), adjacency)  # type: ignore[arg-type]  # refused if it is none
    return tuple(zip(rates.tolist(), allowed(curve, rates).tolist(), strict=True))


def draw_roc(
    axes: Axes,
    attacks: Sequence[AttackFile],
    most: Sequence[tuple[float, float]],
    *,
    label: str = "the guarantee's limit",
) -> None:
    """Every attack's curve with its band, blind guessing, and the guarantee's limit."""
    rates = np.geomspace(SMALLEST, 1.0, 81)
    axes.plot(rates, rates, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.annotate(
        "blind guessing", (3e-3, 3e-3), xytext=(4, -12), textcoords="offset points", color=FAINT,
        fontsize=9,
    )  # fmt: skip
    if most:
        false, true = zip(*most, strict=True)
        axes.plot(false, true, color=INK, linewidth=1.6, linestyle=(0, (1, 1.2)), label=label)
    several = len({attack.model for attack in attacks}) > 1
    for place, attack in enumerate(attacks):
        name = _letters(f"{attack.name}: {attack.model}" if several else attack.name)
        colour = COLOURS[place % len(COLOURS)]
        fpr, tpr, lower, upper = (np.array(part) for part in zip(*_visible(attack), strict=True))
        axes.fill_between(fpr, lower, upper, step="post", color=colour, alpha=0.15, linewidth=0)
        axes.step(fpr, tpr, where="post", color=colour, linewidth=2.0, label=name)
    _style(axes)


def _letters(text: str) -> str:
    """A text from a file, as letters: no formula for matplotlib, nothing that steers."""
    return printable(text)[:60].replace("$", r"\$").lstrip("_") or "?"


def _visible(attack: AttackFile) -> list[Point]:
    """The points that can be seen: from the smallest rate of false alarms that can be observed."""
    start, floor = max(SMALLEST, 1.0 / attack.others), 0.5 * SMALLEST
    before = [one for one in attack.roc if one[0] <= start * (1.0 + 1e-9)]
    first = before[-1] if before else (start, 0.0, 0.0, 0.0)
    points = [(start, *first[1:]), *attack.roc[len(before) :], (1.0, 1.0, 1.0, 1.0)]
    return [
        (fpr, max(floor, tpr), max(floor, lower), max(floor, upper))
        for fpr, tpr, lower, upper in points
    ]


def _style(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(SMALLEST, 1.0)
    axes.set_ylim(SMALLEST, 1.05)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("false alarms among those who were not in the data", color=INK)
    axes.set_ylabel("found of those who were", color=INK)
    axes.grid(visible=True, color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=FAINT, length=0, pad=6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(RULE)
    axes.legend(frameon=False, labelcolor=INK, fontsize=9.5, loc="lower right")


def draw_file(plain: Mapping[str, Any], path: Path) -> None:
    """The picture of an audit with attacks, into a file of its own."""
    audit = read_plain(plain)
    most = limits(audit.event, audit.adjacency) if audit.event and audit.adjacency else ()
    label = "the most that the guarantee allows"
    if audit.verdict is not None:
        claimed = f"{audit.verdict.claimed:.4g}"
        delta = compact(audit.verdict.shown.delta)
        label = f"the most that the guarantee allows (ε = {claimed}, δ = {delta})"
    with mpl.rc_context(_FONT):
        figure = Figure(figsize=(7.2, 5.4), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
        draw_roc(figure.subplots(), audit.attacks, most, label=label)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with drafted(path, mode=PRIVATE) as draft:  # an audit's results are secret
            kind = path.suffix.removeprefix(".")
            figure.savefig(draft, format=kind, dpi=160, facecolor="white", metadata=metadata)
