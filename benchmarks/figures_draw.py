"""Draws the paper's figures from finished runs and from the accountants."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from figures_runs import (
    DELTA,
    EXAMPLES,
    LEVELS,
    REFERENCE,
    Run,
    Setting,
    levels,
    spending,
    sweeps,
)
from figures_style import dot, label_ends, logarithmic, new_figure, power, style
from tacit._numbers import rounded_up
from tacit.accounting import epsilon
from tacit.reports.plan_figure import COLOURS, FAINT, INK

History = list[tuple[int, float]]
Repeats = dict[tuple[Setting, int], list[History]]  # of a setting and a length, one a seed

ACCOUNTANTS = {"advanced": "strong composition", "moments": "moments", "exact": "exact"}
LEVEL_COLOURS = {"large": "#be123c", "medium": "#d97706", "small": "#1d4ed8"}
DELTAS = {1e-2: "#93c5fd", 1e-3: "#3b82f6", 1e-4: "#1d4ed8", 1e-5: "#172554"}
LAST_EPOCH = 400
NAMES = {
    "components": "PCA dimension",
    "hidden": "hidden units",
    "lot": "lot size (examples)",
    "rate": "final learning rate",
    "clip": "clip (gradient norm)",
    "noise": "noise multiplier σ of training",
}
NO_PCA = 784  # where a run without PCA is drawn: all pixels


def write(header: dict[str, Any], histories: dict[Run, History], folder: Path, kind: str) -> None:
    """All pictures, the same bytes for the same runs."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = repeated(histories)
    with mpl.rc_context({"svg.hashsalt": "tacit", "font.size": 10.5}):
        pictures = {
            "epsilon": epsilon_by_epoch(),
            "noise-levels": noise_levels(runs, header["level_epochs"]),
            "privacy": accuracy_by_privacy(runs, header["epochs"]),
            "parameters": parameters(runs, header["epochs"]),
        }
        for name, picture in pictures.items():
            metadata = {"Date": None} if kind == "svg" else None
            path = folder / f"{name}.{kind}"
            picture.savefig(path, dpi=110, facecolor="white", metadata=metadata)


def repeated(histories: dict[Run, History]) -> Repeats:
    found: Repeats = {}
    for run in sorted(histories, key=lambda run: run.seed):
        found.setdefault((run.setting, run.steps), []).append(histories[run])
    return found


def last(runs: Repeats, run: Run) -> list[float]:
    """Final accuracies in percent, one a seed; none if the run has not been done."""
    return [100.0 * history[-1][1] for history in runs.get((run.setting, run.steps), [])]


def epsilon_by_epoch() -> Figure:
    """The paper's Figure 2, with the exact accountant."""
    figure = new_figure(7.6, 4.6, f"ε at δ = {power(DELTA)}: 1% sampled, σ = 4")
    axes = figure.subplots()
    epochs = np.unique(np.geomspace(1, LAST_EPOCH, 40).round().astype(int))
    setting = Setting(components=0)
    ends = {}
    for accountant, name in ACCOUNTANTS.items():
        spent = [epsilon(setting.event(100 * n), DELTA, accountant=accountant) for n in epochs]
        axes.plot(epochs, spent, color=COLOURS[accountant], linewidth=2.4)
        ends[f"{name}  {rounded_up(spent[-1], 3)}"] = spent[-1], COLOURS[accountant]
        at = epsilon(setting.event(10_000), DELTA, accountant=accountant)
        dot(axes, (100, at), COLOURS[accountant], below=accountant == "exact")
    style(axes, "", "epochs", "ε")
    axes.set_xlim(0, LAST_EPOCH)
    logarithmic(axes, "y", (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50))
    label_ends(axes, ends)
    return figure


def noise_levels(runs: Repeats, epochs: int) -> Figure:
    """The paper's Figure 3: accuracy as training goes on, and what it has cost by then."""
    figure = new_figure(11.5, 4.8, "Three noise levels: held-out accuracy, and the privacy spent")
    right, spent = figure.subplots(1, 2)
    reached, paid = {}, {}
    for name, run in levels(epochs).items():
        colour = LEVEL_COLOURS[name]
        histories = runs.get((run.setting, run.steps), [])
        if histories:
            mean = _band(right, histories, colour)
            reached[f"{name} noise  {mean:.1f}%"] = mean, colour
        total = _spending(spent, run, epochs, colour)
        paid["σ = {:g}, PCA {:g}\nε = {}".format(*LEVELS[name], rounded_up(total, 3))] = (
            total,
            colour,
        )
    style(right, "accuracy on the test images, mean and range of runs", "epochs", "accuracy (%)")
    style(spent, f"ε at δ = {power(DELTA)}, PCA included (dashed: moments)", "epochs", "ε")
    logarithmic(spent, "y", (0.2, 0.5, 1, 2, 5))
    for axes, ends in ((right, reached), (spent, paid)):
        axes.set_xlim(0, epochs)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        label_ends(axes, ends)
    return figure


def _band(axes: Axes, histories: list[History], colour: str) -> float:
    """The runs' mean, which ends where this says, and between which values they all lie."""
    epochs = np.array([steps for steps, _ in histories[0]]) * REFERENCE.lot / EXAMPLES
    rows = 100.0 * np.array([[right for _, right in history] for history in histories])
    low, high = rows.min(axis=0), rows.max(axis=0)
    axes.fill_between(epochs, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(epochs, rows.mean(axis=0), color=colour, linewidth=2.2)
    return float(rows[:, -1].mean())


def _spending(axes: Axes, run: Run, epochs: int, colour: str) -> float:
    """ε as the run goes on, by two accountants; the exact one's last is returned."""
    marks = np.unique(np.linspace(1, epochs, 25).round().astype(int))
    for accountant, dashes in (("moments", (0, (4, 3))), ("exact", "-")):
        values = [epsilon(run.setting.event(100 * n), DELTA, accountant=accountant) for n in marks]
        axes.plot(marks, values, color=colour, linestyle=dashes, linewidth=2.2)
    return values[-1]


def accuracy_by_privacy(runs: Repeats, epochs: int) -> Figure:
    """The paper's Figure 4: one curve for each δ, through the same runs."""
    figure = new_figure(7.6, 4.8, f"Held-out accuracy against (ε, δ), {epochs} epochs each")
    axes = figure.subplots()
    done = [(run, np.mean(last(runs, run))) for run in spending(epochs) if last(runs, run)]
    for delta, colour in DELTAS.items():
        spent = [epsilon(run.setting.event(run.steps), delta) for run, _ in done]
        reached = [right for _, right in done]
        axes.plot(spent, reached, "o-", color=colour, label=f"δ = {power(delta)}", markersize=5)
    style(axes, "", "ε, PCA included", "accuracy (%)")
    logarithmic(axes, "x", (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10))
    axes.legend(frameon=False, labelcolor=INK, loc="lower right")
    return figure


def parameters(runs: Repeats, epochs: int) -> Figure:
    """The paper's Figure 5: one parameter varies, the rest stay at the reference."""
    budget = epsilon(REFERENCE.event(100 * epochs), DELTA)
    figure = new_figure(
        12.5,
        7.6,
        f"Held-out accuracy when one value varies, all at ε = {rounded_up(budget, 3)}, "
        f"δ = {power(DELTA)} (orange: the paper's setting)",
    )
    panels = figure.subplots(2, 3, sharey=True)
    for axes, (name, sweep) in zip(panels.flat, sweeps(epochs).items(), strict=True):
        points = {_place(run, name): last(runs, run) for run in sweep}
        places = sorted(place for place, found in points.items() if found)
        means = [np.mean(points[place]) for place in places]
        axes.plot(places, means, color=COLOURS["exact"], linewidth=2.2)
        for place in places:
            usual = place == getattr(REFERENCE, name)
            axes.plot(
                [place] * len(points[place]), points[place], "o", markersize=5.5,
                color=COLOURS["moments"] if usual else COLOURS["exact"],
                markeredgecolor="white", markeredgewidth=0.6, zorder=4,
            )  # fmt: skip
        style(axes, NAMES[name], "", "accuracy (%)" if axes is panels[0, 0] else "")
        logarithmic(axes, "x", sorted(points))
        _name_ticks(axes, name, sweep)
    panels[1, 0].set_ylabel("accuracy (%)", color=INK)
    return figure


def _place(run: Run, name: str) -> float:
    return float(getattr(run.setting, name)) or NO_PCA


def _name_ticks(axes: Axes, name: str, sweep: Sequence[Run]) -> None:
    """Ticks at the runs; where length follows from privacy, how many epochs each one had."""
    labels = {}
    lengths = [run.steps for run in sweep]
    if len({*lengths}) > 1:
        axes.set_xlabel("(epochs, where lengths differ)", color=FAINT)
    for run in sweep:
        place = _place(run, name)
        text = f"{place:,g}" if getattr(run.setting, name) else "none"
        trained = run.steps * run.setting.lot / EXAMPLES
        told = lengths.count(run.steps) == 1  # the only one of its length
        labels[place] = f"{text}\n({trained:.{0 if trained > 5 else 1}f})" if told else text
    axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: labels.get(place, "")))
