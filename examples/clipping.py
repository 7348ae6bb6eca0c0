"""Clipping changes what is learned: two pictures of clipped gradient descent on linear models.

    python examples/clipping.py [picture.png]

Left, the example of Yu-Xiang Wang's lecture 13: the losses θ, -0.3·θ and -0.3·θ on [-1, 1]. Their
sum is least at θ = -1; clipped at 0.5 the gradients add up to -0.1 instead of 0.4, and descent ends
at θ = +1, the worst point there is. Right, least squares with a few large targets: clipped descent
comes to rest at the minimum of the Huberised loss, which `tacit.convex.Huberised` computes, and not
at that of the squared loss. There is no noise and no privacy in either picture.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tacit.convex.losses import Linear, Squared
from tacit.convex.problem import ConvexTask, Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLAIN, CLIPPED = "#1b6ca8", "#c8553d"


def problem(
    loss: Linear | Squared, rows: list[float], targets: list[float], clip: float
) -> Problem:
    """A model of one coefficient; ε and δ are not used here."""
    task = ConvexTask(
        examples=len(rows), features=1, loss=loss, norm=1.0, epsilon=1.0, delta=1e-5, clip=clip
    )
    return Problem(task, np.array(rows)[:, None], np.array(targets))


def descent(
    given: Problem, start: float, step: float, steps: int, low: float, high: float
) -> np.ndarray:
    """The points of (clipped) gradient descent, kept between two ends."""
    points = [start]
    for _ in range(steps):
        moved = points[-1] - step * given.gradient(np.array(points[-1:]))[0]
        points.append(float(np.clip(moved, low, high)))
    return np.array(points)


def mean_loss(given: Problem, places: np.ndarray) -> np.ndarray:
    """The mean loss at each place."""
    return np.array([given.value(np.array([place])) for place in places]) / given.task.examples


def lecture(axes: Axes) -> None:
    """The lecture's example."""
    rows, targets = [1.0, -0.3, -0.3], [0.0] * 3
    whole, cut = (problem(Linear(), rows, targets, clip) for clip in (1.0, 0.5))
    draw(axes, whole, cut, start=0.0, step=0.06, steps=400, low=-1.0, high=1.0)
    axes.set_title("Three linear losses, clipped at 0.5:\ndescent ends at the worst point")


def regression(axes: Axes) -> None:
    """Least squares with two targets far from the rest."""
    rows, targets = [1.0, 0.9, 0.8, 1.0, 0.7, 0.9], [0.4, 0.3, 0.5, 0.2, 3.2, 3.6]
    whole, cut = (problem(Squared(), rows, targets, clip) for clip in (100.0, 0.5))
    draw(axes, whole, cut, start=2.4, step=0.03, steps=600, low=-0.2, high=3.0)
    axes.set_title("Least squares, clipped at 0.5:\ndescent finds the Huberised minimum")


def draw(
    axes: Axes,
    whole: Problem,
    cut: Problem,
    *,
    start: float,
    step: float,
    steps: int,
    low: float,
    high: float,
) -> None:
    """Both losses, and where descent goes from one start with and without clipping."""
    places = np.linspace(low, high, 401)
    kinds = ((whole, PLAIN, "the loss", "without clipping"), (cut, CLIPPED, "Huberised", "clipped"))
    for given, colour, loss, path in kinds:
        heights = mean_loss(given, places)
        axes.plot(places, heights, color=colour, label=f"{loss}: mean of the losses")
        points = descent(given, start, step, steps, low, high)
        shown = np.unique(np.geomspace(1, steps, 14).astype(int))
        axes.plot(
            points[shown], mean_loss(given, points[shown]), "o", ms=4, color=colour, alpha=0.6
        )
        last = points[-1:]
        name = f"{path}: ends at {last[0]:+.2f}"
        axes.plot(
            last,
            mean_loss(given, last),
            "*",
            ms=15,
            color=colour,
            label=name,
        )
    axes.axvline(start, color="0.75", lw=1, zorder=0)
    axes.annotate(
        "start",
        (start, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, -12),
        textcoords="offset points",
        color="0.4",
    )
    axes.set_xlabel("θ")
    axes.set_ylabel("mean loss")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main(path: Path) -> None:
    """Draws both pictures."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    lecture(left)
    regression(right)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".png"))
