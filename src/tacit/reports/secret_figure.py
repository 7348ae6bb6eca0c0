"""The picture of secrets in a text: their exposure under each model, beside what chance does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tacit._files import PRIVATE, drafted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tacit.recipes.auditing.secret_results import Result

# As in ``run_figure``: each stands for a colour of a report's style sheet.
INK, FAINT, RULE = "#1e293b", "#64748b", "#e2e8f0"
ACCENT, SOFT, SECOND = "#1d4ed8", "#dbeafe", "#b45309"
_FONT: Final[dict[Any, Any]] = {"font.size": 11.0, "svg.fonttype": "none", "svg.hashsalt": "tacit"}
_CHANCE: Final = "never seen (chance)"
_RARE: Final = -float(np.log2(0.01))  # bits that chance exceeds in one case of 100


def draw_file(plain: Mapping[str, Any], path: Path) -> None:
    """The picture of what ``tacit audit shakespeare-secret`` found, into a file."""
    groups: dict[str, list[tuple[float, bool]]] = {}
    for row in plain["details"]:
        point = float(row["exposure"]), row["extracted"] == "yes"
        groups.setdefault(str(row["model"]), []).append(point)
    _write(groups, float(plain["settings"]["max_exposure"]), path)


def write(result: Result, path: Path) -> None:
    """The picture of the experiment's result, into a file."""
    groups = {
        one.name: [(told.exposure, told.extracted) for told in one.secrets]
        for one in result.situations
    }
    _write(groups, result.max_exposure, path)


def draw(groups: Mapping[str, Sequence[tuple[float, bool]]], most: float) -> Figure:
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
        _style(axes, most, len(groups))
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


def _style(axes: Axes, most: float, rows: int) -> None:
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


def _write(groups: Mapping[str, Sequence[tuple[float, bool]]], most: float, path: Path) -> None:
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None
    with mpl.rc_context(_FONT), drafted(path, mode=PRIVATE) as draft:  # an audit's are secret
        figure = draw(groups, most)
        figure.savefig(draft, format=kind, dpi=160, facecolor="white", metadata=metadata)
