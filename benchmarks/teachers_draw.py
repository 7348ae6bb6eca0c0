"""Draws the lecture's trade-off from recorded runs: more teachers, and more noise."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures_style import label_ends, logarithmic, new_figure, style
from tacit.reports.plan_figure import COLOURS, FAINT

SHADES = {"50": "#60a5fa", "100": "#2563eb", "250": "#1e40af", "1000": "#172554"}
ALONE, VOTED = COLOURS["moments"], COLOURS["exact"]


def write(record: dict[str, Any], folder: Path, kind: str) -> None:
    """Both pictures, the same bytes for the same runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "tacit", "font.size": 10.5}):
        pictures = {"teachers": by_count(record), "vote-noise": by_noise(record)}
        for name, picture in pictures.items():
            metadata = {"Date": None} if kind == "svg" else None
            path = folder / f"{name}.{kind}"
            picture.savefig(path, dpi=110, facecolor="white", metadata=metadata)


def by_count(record: dict[str, Any]) -> Figure:
    """More teachers: each is weaker, and the gap in votes that noise may fill is larger."""
    figure = new_figure(
        11.5, 4.6, f"More teachers on the same {record['private']:,} MNIST images, without noise"
    )
    right, gap = figure.subplots(1, 2)
    counts = sorted(map(int, record["counts"]))
    rows = [record["counts"][str(count)] for count in counts]
    ends = {}
    for key, name, colour in (
        ("vote_accuracy", "the vote", VOTED),
        ("teacher_accuracy", "one teacher", ALONE),
    ):
        values = [100.0 * row[key] for row in rows]
        right.plot(counts, values, "o-", color=colour, linewidth=2.2, markersize=5)
        ends[f"{name}  {values[-1]:.1f}%"] = values[-1], colour
    lead = {"all votes": (counts[-1], FAINT)}
    gap.plot(counts, counts, color=FAINT, linestyle=(0, (4, 3)), linewidth=1.6)
    for key, name, colour in (("gap", "mean", VOTED), ("small_gap", "a hard query", ALONE)):
        values = [row[key] for row in rows]
        gap.plot(counts, values, "o-", color=colour, linewidth=2.2, markersize=5)
        lead[f"{name}  {values[-1]:.0f}"] = values[-1], colour
    style(right, "accuracy on held-out training images", "teachers", "accuracy (%)")
    style(gap, "first class's lead over the second (hard: 5% have less)", "teachers", "votes")
    logarithmic(gap, "y", (10, 20, 50, 100, 200, 500, 1000))
    for axes in (right, gap):
        logarithmic(axes, "x", counts)
    label_ends(right, ends)
    label_ends(gap, lead)
    return figure


def by_noise(record: dict[str, Any]) -> Figure:
    """More noise: the more teachers, the more of it a vote bears."""
    figure = new_figure(11.5, 4.6, "Accuracy of the noisy vote: more teachers bear more noise")
    gaussian, laplace = figure.subplots(1, 2, sharey=True)
    for axes, law in ((gaussian, "gaussian"), (laplace, "laplace")):
        ends = {
            f"{count} teachers": (_line(axes, record["noise"][count][law], colour), colour)
            for count, colour in SHADES.items()
        }
        if law == "gaussian":
            axes.set_xlim(0, 205)
            named = ends
    style(gaussian, "GNMax: normal noise", "σ (votes)", "accuracy (%)")
    style(laplace, "LNMax: Laplace noise of scale 1/γ", "γ (less noise to the right)", "")
    label_ends(gaussian, named)
    logarithmic(laplace, "x", [float(one) for one in record["noise"]["250"]["laplace"]])
    return figure


def _line(axes: Axes, found: dict[str, float], colour: str) -> float:
    """One curve in percent; returns where it ends."""
    values = [100.0 * value for value in found.values()]
    axes.plot([float(one) for one in found], values, "o-", color=colour, linewidth=2, markersize=4)
    return values[-1]
