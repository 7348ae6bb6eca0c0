"""Noise: of the claimed size, on every entry, Gaussian, and independent of everything else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from tacit.auditing.replay import significance
from tacit.auditing.replay.report import Finding
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_MOST_VALUES = 200_000  # noise on a grid is up to 0.05 % wider, which more would see
_MOST_COLUMNS = 384
_FEW_REPEATS = 10  # of fast noise beyond what chance explains
_FINEST = 2.0**16  # steps of a grid that a number in single precision can tell apart, with room


def standardised(trace: Trace, before: int = 0) -> NDArray[np.float64]:
    """A run's noise in units of what is claimed: a row for every step, a column for every entry.

    ``before`` is the number of steps that it had taken when it was resumed.
    """
    sigma = trace.taken().variation.plan.noise_multiplier
    clips = claimed_clips(trace, before)
    rows = [trace.released(step).numpy() / (sigma * clip) for step, clip in enumerate(clips)]
    return np.stack(rows)


def claimed_clips(trace: Trace, before: int = 0) -> NDArray[np.float64]:
    """The clip of every step of a run whose norms are all within it."""
    plan = trace.variation.plan
    fall = 0.0
    if isinstance(plan.clipping, AdaptiveQuantile):
        # All of the lot are within the clip, and b = 1.
        fall = plan.clipping.learning_rate * (1.0 - plan.clipping.quantile)
    steps = before + np.arange(len(trace.steps))
    clips: NDArray[np.float64] = plan.clip * np.exp(-fall * steps)
    return clips


def _pooled(experiments: Experiments) -> NDArray[np.float64]:
    """All noise of the long run and, for a small model, of many quick steps."""
    runs = [run for run in (experiments.noise, experiments.idle) if run is not None]
    return at_most(np.concatenate([standardised(run).ravel() for run in runs]))


def scale(experiments: Experiments) -> Finding:
    """The noise has the claimed standard deviation, neither less nor more, in every step."""
    values, some = standardised(experiments.noise), _pooled(experiments)
    found = float(np.sqrt(np.square(some).mean()))
    steps = [significance.variance_p_value(at_most(row)) for row in values]
    p_value = significance.corrected(
        [significance.variance_p_value(some), significance.corrected(steps)]
    )
    return Finding(
        "noise",
        "scale",
        p_value > significance.LEVEL,
        f"the standard deviation of {some.size} noise entries is {found:.4f} of the claimed "
        f"σ·clip (p = {p_value:.2g})",
        (("ratio", found), ("p-value", p_value)),
    )


def every_parameter(experiments: Experiments) -> Finding:
    """Each parameter gets noise of the claimed size by itself, and every entry of it gets some."""
    values = standardised(experiments.noise)
    edges = np.cumsum([0, *experiments.lab.sizes])
    found: list[tuple[float, str, float]] = []
    for name, start, end in zip(experiments.lab.names, edges[:-1], edges[1:], strict=True):
        part = at_most(values[:, start:end].ravel())
        ratio = float(np.sqrt(np.square(part).mean()))
        p_value = min(significance.variance_p_value(part), significance.mean_p_value(part))
        found.append((p_value, name, ratio))
    still = np.flatnonzero(np.ptp(values, axis=0) == 0.0)
    p_value, name, ratio = min(found)
    single = significance.variances_p_value(values)
    total = significance.corrected([min(1.0, 2.0 * p_value * len(found)), single])
    passed = total > significance.LEVEL and not len(still)
    frozen = f"; {len(still)} entries get none at all" if len(still) else ""
    return Finding(
        "noise",
        "every parameter",
        passed,
        f"the most unusual parameter is {name}, whose noise is {ratio:.4f} of the claimed "
        f"(p = {total:.2g} among {len(found)}){frozen}",
        (("ratio", ratio), ("p-value", total), ("entries without", float(len(still)))),
    )


def others(experiments: Experiments) -> Finding:
    """Buffers and whatever is not trained, which get no noise, do not depend on the data."""
    one = experiments.sum_of("all clipped", scale=experiments.tight)
    few = experiments.few
    other = experiments.sum_of(
        "without one", scale=experiments.tight, records=few.without(few.count - 1)
    )
    pair = [trace.taken().steps[-1].others for trace in (one, other)]
    same = pair[0].shape == pair[1].shape and torch.equal(*pair)
    off = 0.0 if same else float((pair[0] - pair[1]).norm())
    count = pair[0].numel()
    return Finding(
        "noise",
        "buffers and frozen parameters",
        same,
        f"the model's {count} other numbers are the same with and without one unit"
        if same
        else f"numbers that get no noise (buffers, frozen parameters) move by {off:.3g} with one "
        "unit",
        (("moved", off),),
    )


def shape(experiments: Experiments) -> Finding:
    """The noise is Gaussian: in the middle and in the tails."""
    values = _pooled(experiments)
    # The scale has a check of its own.
    p_value = significance.shape_p_value(values / max(np.sqrt(np.square(values).mean()), 1e-300))
    return Finding(
        "noise",
        "shape",
        p_value > significance.LEVEL,
        f"{values.size} noise entries against the bell curve: p = {p_value:.2g}",
        (("p-value", p_value),),
    )


def grid(experiments: Experiments) -> Finding:
    """Noise that is claimed to be on a grid leaves nothing between the grid's points."""
    plan = experiments.noise.variation.plan
    if plan.noise == "fast":
        return Finding(
            "noise", "grid", True, "floating-point noise is what the plan claims: no grid to check"
        )
    # A grid is finer the more entries there are: 2⁻¹¹ of the clip over their root.
    wide = plan.noise_multiplier * 2.0**11 * math.sqrt(experiments.lab.entries)
    if wide > _FINEST and all(one == torch.float32 for one in experiments.lab.kinds):
        said = f"noise is {wide:.2g} steps of the grid wide, too many for single precision to show"
        return Finding("noise", "grid", True, said)
    steps = [experiments.noise.released(at) for at in range(min(40, experiments.noise_steps))]
    values = at_most(torch.cat(steps).numpy())
    found = grid_of(values)
    return Finding(
        "noise",
        "grid",
        found is not None,
        f"all released sums are whole multiples of {found:.6g}"
        if found is not None
        else "released sums lie between the points of every grid: they show the low bits of "
        "floating-point noise, which the plan claims to be free of",
    )


def grid_of(values: NDArray[np.float64]) -> float | None:
    """The widest power of two of which all values are multiples, up to their own rounding."""
    spread = float(np.sqrt(np.square(values).mean()))
    widest = math.floor(math.log2(spread)) if spread > 0.0 else 0
    for exponent in range(widest, widest - 30, -1):
        step = 2.0**exponent
        in_steps = values / step
        # A value of single precision, times the lot size, is good to 2⁻²³ of itself.
        slack = np.abs(in_steps) * 2.0**-22
        clear = slack < 0.05
        if clear.mean() < 0.5:
            return None
        if bool((np.abs(in_steps - np.rint(in_steps)) <= slack + 1e-9)[clear].all()):
            return step
    return None


def with_data(experiments: Experiments) -> Finding:
    """Noise on real sums is of the claimed size, too: what is released, less the sum of its lot."""
    trace = experiments.charged
    plan = trace.variation.plan
    if isinstance(plan.clipping, AdaptiveQuantile):
        return Finding("noise", "on real sums", True, "the clip moves: not known well enough")
    rows = [
        (trace.released(step) - experiments.expected(trace, step)[0]).numpy()
        for step in trace.taken(plan.steps).settled
    ]
    values = at_most(np.concatenate(rows)) / plan.noise_scale
    ratio = float(np.sqrt(np.square(values).mean()))
    p_value = significance.corrected(
        [significance.variance_p_value(values), significance.shape_p_value(values / ratio)]
    )
    return Finding(
        "noise",
        "on real sums",
        p_value > significance.LEVEL,
        f"what is released, less the sum of its lot, is {ratio:.3f} of the claimed noise "
        f"(p = {p_value:.2g})",
        (("ratio", ratio), ("p-value", p_value)),
    )


def membership(trace: Trace) -> NDArray[np.bool_]:
    """Who was in which lot: a row for every step, a column for every unit."""
    inside = np.zeros((len(trace.steps), trace.variation.records.count), dtype=bool)
    for step in range(len(trace.steps)):
        inside[step, trace.units_of(step)] = True
    return inside


def columns_of(experiments: Experiments) -> NDArray[np.int64]:
    """Entries of every parameter, its first and last among them, as many of each as fit.

    Half of them are neighbours, the rest are spread over the whole of a large parameter.
    """
    sizes = experiments.lab.sizes
    each = max(2, _MOST_COLUMNS // len(sizes))
    starts = np.cumsum([0, *sizes[:-1]])
    chosen = [start + _spread(size, each) for start, size in zip(starts, sizes, strict=True)]
    return np.concatenate(chosen).astype(np.int64)


def _spread(size: int, most: int) -> NDArray[np.int64]:
    """Places among ``size``: the first few, and others up to the last."""
    if size <= most:
        return np.arange(size, dtype=np.int64)
    first = np.arange(most // 2, dtype=np.int64)
    rest = np.linspace(most // 2, size - 1, most - most // 2).astype(np.int64)
    return np.concatenate([first, rest])


def at_most(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """At most ``_MOST_VALUES`` of the values, spread evenly over them."""
    every = -(-values.size // _MOST_VALUES)
    return values[:: max(1, every)]


# ---- drawn again every time, and independently of itself and of sampling


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
    limit = 2.0 * expected + (_FEW_REPEATS if experiments.plan.noise == "fast" else 0.05 * count)
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
