"""Noise is drawn anew every time, and independently of everything: of itself and of sampling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.noise import (
    columns_of,
    grid_of,
    membership,
    standardised,
)
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments

_FOR_REPEATS, _MOST_REPEATS = 100_000, 1_000_000


def independence(experiments: Experiments) -> Finding:
    """Noise is independent from step to step and from entry to entry."""
    values = standardised(experiments.noise)
    columns = values[:, columns_of(experiments)]
    across_steps = significance.cosines_p_value(columns)
    across_entries = significance.cosines_p_value(np.ascontiguousarray(columns.T))
    p_value = significance.corrected([across_steps, across_entries])
    return Finding(
        "noise",
        "independence",
        p_value > significance.LEVEL,
        f"the most similar of {len(values)} steps have p = {across_steps:.2g}, of "
        f"{columns.shape[1]} entries p = {across_entries:.2g}",
        (("across steps", across_steps), ("across entries", across_entries)),
    )


def repeated(experiments: Experiments) -> Finding:
    """No number comes again, in whatever place or with whatever sign."""
    everything = standardised(experiments.noise)
    # Of a large model all entries of a step or two, spread or not, of a small one all.
    few = max(2, _FOR_REPEATS // everything.shape[1])
    some = everything[:few].ravel()
    values = np.abs(some[:_MOST_REPEATS])
    count = values.size
    found = count - np.unique(values).size
    step = grid_of(values) if experiments.plan.noise != "fast" else None
    # Two normal numbers fall on the same point of a grid with probability step/(2·√π), of which
    # the fold at zero makes twice as much; single precision is a grid of some 2⁻²³.
    chance = (step or 2.0**-22) / math.sqrt(math.pi)
    expected = 0.5 * count * count * chance
    limit = 2.0 * expected + 0.05 * count
    return Finding(
        "noise",
        "no number twice",
        found <= limit,
        f"{found} of {count} noise entries are there already up to sign; chance explains "
        f"{expected:.0f}",
        (("found", float(found)), ("expected", expected)),
    )


def fresh(experiments: Experiments) -> Finding:
    """A second run, under the same global seeds, has other noise."""
    columns = columns_of(experiments)
    runs = [experiments.noise_run(f"a little noise {at}", steps=6) for at in range(2)]
    one, other = (standardised(run)[:, columns] for run in runs)
    p_value = significance.cosines_p_value(one, other)
    return Finding(
        "noise",
        "fresh in every run",
        p_value > significance.LEVEL,
        f"the most similar steps of two runs under the same global seeds have p = {p_value:.2g}",
        (("p-value", p_value),),
    )


def from_sampling(experiments: Experiments) -> Finding:
    """The noise, and its size, are independent of who is in the lot, of this step or the next."""
    trace = experiments.noise
    values = standardised(trace)[1:, columns_of(experiments)]
    inside = membership(trace)[1:]
    if len(inside) < 3 or bool(inside.all()):
        return Finding("noise", "apart from sampling", True, "everybody is in every lot")
    sizes = inside.sum(1, keepdims=True)
    drawn = np.concatenate([inside, sizes], axis=1).astype(np.float64)
    drawn -= drawn.mean(0)
    magnitudes = significance.magnitudes(values)
    p_values = []
    for noise in (values, magnitudes):
        for lag in (-1, 0, 1):
            late, early = max(lag, 0), max(-lag, 0)
            count = len(drawn) - abs(lag)
            pair = drawn[late : late + count], noise[early : early + count]
            p_values.append(significance.normal_p_value(_scores(*pair)))
    p_value = significance.corrected(p_values)
    return Finding(
        "noise",
        "apart from sampling",
        p_value > significance.LEVEL,
        f"the strongest link between a unit's presence and an entry's noise has p = {p_value:.2g}",
        (("p-value", p_value),),
    )


def _scores(drawn: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of independent normal numbers with given weights, brought to variance 1."""
    lengths = np.linalg.norm(drawn, axis=0)
    kept = lengths > 0.0
    scores: NDArray[np.float64] = (drawn[:, kept] / lengths[kept]).T @ noise
    return scores
