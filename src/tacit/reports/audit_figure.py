"""Pictures of audits: ROC curves beside what a guarantee allows; secrets beside chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullFormatter

from tacit._files import OWNER_ONLY, drafted
from tacit._numbers import compact
from tacit._validation import printable
from tacit.accounting import profile
from tacit.accounting.serialization import from_dict
from tacit.auditing.attacks import allowed
from tacit.recipes.auditing.audit_file import read_plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tacit.recipes.auditing.audit_file import AttackFigures, Point
    from tacit.recipes.auditing.secret_results import SecretResult


# ---- ROC curves on logarithmic axes

# As in ``run_figure``: each stands for a colour of a report's style sheet.
INK, FAINT, RULE = "#1e293b", "#64748b", "#e2e8f0"
ACCENT, SOFT, SECOND, THIRD, FOURTH = "#1d4ed8", "#dbeafe", "#b45309", "#0f766e", "#a21caf"
COLOURS: Final = (ACCENT, SECOND, THIRD, FOURTH)
SMALLEST: Final = 1e-4
_FONT: Final[dict[Any, Any]] = {"font.size": 11.0, "svg.fonttype": "none", "svg.hashsalt": "tacit"}


def limits(event: Mapping[str, Any], adjacency: str) -> tuple[tuple[float, float], ...]:
    """False-positive rates with the largest true-positive rates that the guarantee allows."""
    rates = np.geomspace(SMALLEST, 1.0, 81)
    curve = profile(from_dict(event), adjacency)  # type: ignore[arg-type]  # refused if it is none
    return tuple(zip(rates.tolist(), allowed(curve, rates).tolist(), strict=True))


def draw_roc(
    axes: Axes,
    attacks: Sequence[AttackFigures],
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
        axes.plot(
            false, true, drawstyle="steps-pre", color=INK, linewidth=1.6, linestyle=(0, (1, 1.2)),
            label=label,
        )  # fmt: skip
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


def _visible(attack: AttackFigures) -> list[Point]:
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
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None
    with drafted(path, mode=OWNER_ONLY) as draft:  # an audit's results are secret
        figure.savefig(draft, format=kind, dpi=160, facecolor="white", metadata=metadata)


# ---- secrets in a text: their exposure under each model

_CHANCE: Final = "never seen (chance)"
_RARE: Final = -float(np.log2(0.01))  # bits that chance exceeds in one case of 100


def draw_secrets_file(plain: Mapping[str, Any], path: Path) -> None:
    """The picture of what ``tacit audit shakespeare-secret`` found, into a file."""
    groups: dict[str, list[tuple[float, bool]]] = {}
    for row in plain["details"]:
        point = float(row["exposure"]), row["extracted"] == "yes"
        groups.setdefault(str(row["model"]), []).append(point)
    with mpl.rc_context(_FONT):
        _save(draw_secrets(groups, float(plain["settings"]["max_exposure"])), path)


def write_secrets(result: SecretResult, path: Path) -> None:
    """The picture of the experiment's result, into a file."""
    groups = {
        one.name: [(each.exposure, each.extracted) for each in one.secrets]
        for one in result.situations
    }
    with mpl.rc_context(_FONT):
        _save(draw_secrets(groups, result.max_exposure), path)


def draw_secrets(groups: Mapping[str, Sequence[tuple[float, bool]]], most: float) -> Figure:
    """Every secret as a point: its exposure in bits, filled where a search extracted it.

    Args:
        groups: The models by name, each with (exposure, extracted) of its secrets.
        most: The largest exposure that there can be.
    """
    with mpl.rc_context(_FONT):
        figure = Figure(
            figsize=(7.2, 1.8 + 0.62 * len(groups)),
            layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08),
        )
        axes = figure.subplots()
        _draw_limits(axes, most, len(groups))
        for place, points in enumerate(groups.values()):
            _draw_points(axes, points, len(groups) - place)
        _draw_chance(axes)
        axes.set_yticks(range(len(groups) + 1), [_CHANCE, *list(groups)[::-1]])
        _style_secrets(axes, most, len(groups))
    return figure


def _draw_limits(axes: Axes, most: float, rows: int) -> None:
    axes.axvspan(0.0, _RARE, color=SOFT, linewidth=0)
    axes.axvline(most, color=INK, linewidth=1.4, linestyle=(0, (1, 1.2)))
    above = rows + 0.55
    axes.text(_RARE / 2, above, "99 % of chance", ha="center", va="bottom", color=FAINT, fontsize=9)
    axes.text(most, above, f"largest: {most:.1f}", ha="right", va="bottom", color=INK, fontsize=9)


def _draw_points(axes: Axes, points: Sequence[tuple[float, bool]], height: int) -> None:
    offsets = np.linspace(0.22, -0.22, len(points)) if len(points) > 1 else np.zeros(1)
    for (exposure, extracted), offset in zip(points, offsets, strict=True):
        axes.plot(
            exposure, height + offset, "o", markersize=6.5, markeredgewidth=1.4, clip_on=False,
            color=SECOND if extracted else ACCENT, zorder=3,
            markerfacecolor=SECOND if extracted else "white",
        )  # fmt: skip


def _draw_chance(axes: Axes) -> None:
    """The law of a secret that a model never saw: half of them above 1 bit, a quarter above 2."""
    bits = np.linspace(0.0, 14.0, 200)
    axes.fill_between(bits, -0.32, -0.32 + 0.64 * 2.0**-bits, color=FAINT, linewidth=0, alpha=0.75)


def _style_secrets(axes: Axes, most: float, rows: int) -> None:
    axes.set_xlim(0.0, 1.03 * most)
    axes.set_ylim(-0.5, rows + 0.5)
    axes.set_xlabel("exposure of each secret, bits", color=INK)
    handles = [
        mpl.lines.Line2D(
            [], [], linestyle="", marker="o", markersize=6.5, markeredgewidth=1.4, color=colour,
            markerfacecolor=inside, label=label,
        )
        for colour, inside, label in (
            (SECOND, SECOND, "extracted"), (ACCENT, "white", "not extracted"),
        )
    ]  # fmt: skip
    axes.legend(handles=handles, loc="lower center", frameon=False, fontsize=10, labelcolor=INK)
    axes.grid(visible=True, axis="x", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=INK, length=0, pad=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines[["bottom"]].set_color(RULE)
