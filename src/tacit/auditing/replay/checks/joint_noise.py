"""Noise as a whole: the law of a step's entries together, which no entry by itself shows.

Independent standard normal numbers have a squared length that is χ², a standard normal part in
every fixed direction, and sizes that know nothing of each other. Each of these is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.noise import at_most, standardised
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.laboratory import Laboratory

_MOST_TOGETHER = 20_000  # entries of a step where a width that is 0.05 % off must not show
_STEP_LAGS = (1, 2, 3, 5, 8, 13)
_ENTRY_LAGS = (1, 2, 3, 4)


def lengths(experiments: Experiments) -> Finding:
    """The noise of a step, and of each parameter in it, is as long as chance makes it.

    A length that is always the same, or that all entries of a step share, is seen here.
    """
    p_value, spread, name = lengths_p_value(
        standardised(experiments.noise), experiments.lab.sizes, experiments.lab.names
    )
    return Finding(
        "noise",
        "length",
        p_value > significance.LEVEL,
        f"the lengths of the steps' noise spread {spread:.3f} times as much as independent "
        f"entries have it; the most unusual are those of {name} (p = {p_value:.2g})",
        (("spread", spread), ("p-value", p_value)),
    )


def lengths_p_value(
    values: NDArray[np.float64], sizes: Sequence[int], names: Sequence[str]
) -> tuple[float, float, str]:
    """The p-value of all lengths, the spread of whole steps', and whose are the most unusual."""
    edges = np.cumsum([0, *sizes])
    parts = [(name, values[:, a:b]) for name, a, b in zip(names, edges, edges[1:], strict=False)]
    found: list[tuple[float, str]] = []
    for name, part in (("all parameters together", values), *parts):
        scores = _length_scores(part)
        # Around their mean: a grid makes noise a little wider, which many entries would show.
        own = [significance.spread_p_value(scores), float(stats.kstest(scores, "norm").pvalue)]
        near = _length_scores(_some(part))
        own += [significance.lag_p_value(near[:, None], lag) for lag in (1, 2, 3)]
        found.append((significance.corrected(own), name))
    together = _shared_p_value([_length_scores(_some(part)) for _, part in parts])
    worst, name = min(found)
    p_value = significance.corrected([*(p for p, _ in found), together])
    if together < worst:
        name = "two parameters, which are alike,"
    return p_value, float(_length_scores(values).std()), name


def directions(experiments: Experiments) -> Finding:
    """In every fixed direction the noise has the claimed size: none is left out or counted twice.

    Noise that is centred, of low rank, or shared by the entries of a row is seen here.
    """
    p_value, ratio, name = directions_p_value(
        standardised(experiments.noise), _weights(experiments), experiments.lab
    )
    return Finding(
        "noise",
        "every direction",
        p_value > significance.LEVEL,
        f"along {name} the noise is {ratio:.3f} of the claimed, the most unusual of all "
        f"directions (p = {p_value:.2g})",
        (("ratio", ratio), ("p-value", p_value)),
    )


def directions_p_value(
    values: NDArray[np.float64], weights: dict[str, NDArray[np.float64]], lab: Laboratory
) -> tuple[float, float, str]:
    """The p-value of all directions, and the ratio and the name of the most unusual."""
    found: list[tuple[float, float, str]] = []
    for what, weight in weights.items():
        whole = _along(values, weight, np.array([0]))
        each = _along(values, weight, np.cumsum([0, *lab.sizes[:-1]]))
        for name, column in zip(("all", *lab.names), (*whole.T, *each.T), strict=True):
            if column.any():
                found.append(_judged(column, f"{what} of {name}"))
    found += [_judged(scores, name) for name, scores in _along_earlier(values).items()]
    for name, part in _matrices(values, lab):
        for axis, lines in ((1, "columns"), (2, "rows")):
            sums = part.sum(axis) / np.sqrt(part.shape[axis])
            found.append(_judged(at_most(sums.ravel()), f"the {lines} of {name}"))
    worst = min(found)
    return min(1.0, worst[0] * len(found)), worst[1], worst[2]


def links(experiments: Experiments) -> Finding:
    """Entries and steps know nothing of those near them, neither the numbers nor their sizes."""
    p_value, name = links_p_value(standardised(experiments.noise))
    return Finding(
        "noise",
        "no links",
        p_value > significance.LEVEL,
        f"all pairs of neighbours taken together: the strongest link is {name} (p = {p_value:.2g})",
        (("p-value", p_value),),
    )


def links_p_value(values: NDArray[np.float64]) -> tuple[float, str]:
    """The p-value of all links between neighbours, and the name of the strongest."""
    some = values[:, _stretches(values.shape[1])]
    sizes = significance.magnitudes(some)
    half = max(1, some.shape[1] // 2)
    found = []
    for what, numbers in (("numbers", some), ("sizes", sizes)):
        for lag in _STEP_LAGS:
            p_value = significance.lag_p_value(numbers, lag)
            found.append((p_value, f"between {what} {lag} steps apart"))
        for lag in dict.fromkeys((*_ENTRY_LAGS, half)):
            p_value = significance.lag_p_value(np.ascontiguousarray(numbers.T), lag)
            found.append((p_value, f"between {what} {lag} entries apart"))
    worst = min(found)
    return min(1.0, worst[0] * len(found)), worst[1]


def _stretches(entries: int) -> NDArray[np.int64]:
    """Neighbours from all over the entries: the beginning, the end, and stretches in between."""
    if entries <= _MOST_TOGETHER:
        return np.arange(entries, dtype=np.int64)
    length = _MOST_TOGETHER // 8
    starts = np.linspace(0, entries - length, 8).astype(np.int64)
    return np.unique((starts[:, None] + np.arange(length)).ravel())


def _length_scores(part: NDArray[np.float64]) -> NDArray[np.float64]:
    return significance.length_scores(np.square(part).sum(1), part.shape[1])


def _shared_p_value(scores: list[NDArray[np.float64]]) -> float:
    """Whether the lengths of two parameters go together."""
    if len(scores) < 2 or len(scores[0]) < 3:
        return 1.0
    # Contrasts of the steps: as many independent numbers, less one, without their mean.
    contrasts = linalg.helmert(len(scores[0]))
    return significance.cosines_p_value(np.stack(scores) @ contrasts.T)


def _some(part: NDArray[np.float64]) -> NDArray[np.float64]:
    every = -(-part.shape[1] // _MOST_TOGETHER)
    return part[:, :: max(1, every)]


def _weights(experiments: Experiments) -> dict[str, NDArray[np.float64]]:
    """Directions that a mistake could single out, and one that none would."""
    entries = experiments.lab.entries
    start = experiments.noise.start.double().numpy()
    return {
        "the mean": np.ones(entries),
        "the alternating sum": 1.0 - 2.0 * (np.arange(entries) % 2),
        "the weights": start,
        "a direction": np.random.default_rng(0).standard_normal(entries),
    }


def _along(
    values: NDArray[np.float64], weight: NDArray[np.float64], starts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The noise along a direction, for each part of the entries by itself; 0 if it has none."""
    lengths = np.sqrt(np.add.reduceat(np.square(weight), starts))
    along = np.add.reduceat(values * weight, starts, axis=1)
    out: NDArray[np.float64] = np.divide(
        along, lengths, out=np.zeros_like(along), where=lengths > 0.0
    )
    return out


def _along_earlier(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The noise of every step along that of the step before, and along the sum of all before.

    Both directions are known before it is drawn.
    """
    return {
        name: (values[1:] * earlier).sum(1) / np.linalg.norm(earlier, axis=1).clip(1e-300)
        for name, earlier in (
            ("the step before", values[:-1]),
            ("all steps before", np.cumsum(values[:-1], axis=0)),
        )
    }


def _judged(scores: NDArray[np.float64], name: str) -> tuple[float, float, str]:
    p_value = significance.corrected(
        [significance.variance_p_value(scores), significance.mean_p_value(scores)]
    )
    return p_value, float(np.sqrt(np.square(scores).mean())), name


def _matrices(
    values: NDArray[np.float64], lab: Laboratory
) -> list[tuple[str, NDArray[np.float64]]]:
    """The noise of each parameter that is a matrix, or can be read as one."""
    edges = np.cumsum([0, *lab.sizes])
    return [
        (name, values[:, start:end].reshape(len(values), shape[0], -1))
        for name, shape, start, end in zip(lab.names, lab.shapes, edges, edges[1:], strict=False)
        if len(shape) > 1 and shape[0] > 1 and end - start > shape[0]
    ]
