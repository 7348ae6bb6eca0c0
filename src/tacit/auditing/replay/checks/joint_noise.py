"""Noise as a whole: the law of a step's entries together, and of the noise on a sum.

Independent standard normal numbers have a squared length that is χ², a standard normal part in
every fixed direction, and sizes that know nothing of each other. Each of these is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.noise import at_most, claimed_clips, columns_of, standardised
from tacit.auditing.replay.experiments import constant_sums, faint, one_odd_unit
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.laboratory import Laboratory
    from tacit.auditing.replay.trace import Trace

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
        whole = _along_others(values, weight, np.array([0]))
        each = _along_others(values, weight, np.cumsum([0, *lab.sizes[:-1]]))
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


def _along_others(
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


# ---- noise and the sum that it hides: neither its size nor its direction follows the data


def apart_from_sum(experiments: Experiments) -> Finding:
    """Noise on faint sums is independent of them, of those before, and of single gradients.

    What is released, less the sum of its lot, has a standard normal part along any direction that
    is known without it: the sum itself, the sum before it, the mean of all gradients.
    """
    noise, sums = _parted(experiments)
    mean = np.broadcast_to(sums.mean(0), sums.shape)
    along = {
        "its own sum": _along_sums(noise, sums),
        "the sum before": _along_sums(noise[1:], sums[:-1]),
        "the mean of all": _along_sums(noise, mean),
    }
    found = [(_faint_p_value(scores), name) for name, scores in along.items()]
    p_value, name = min(found)
    p_value = min(1.0, p_value * len(found))
    forward = float((along["its own sum"] > 0.0).mean()) if along["its own sum"].size else 0.5
    return Finding(
        "noise",
        "apart from the sum",
        p_value > significance.LEVEL,
        f"in {forward:.2f} of {len(noise)} steps the noise points the way of the sum that it "
        f"hides; it has most to do with {name} (p = {p_value:.2g})",
        (("forward", forward), ("p-value", p_value)),
    )


def on_faint_sums(experiments: Experiments) -> Finding:
    """Noise on faint sums is what noise alone is: its size, its bell curve, its lengths."""
    noise, _ = _parted(experiments)
    lab = experiments.lab
    ratio = float(np.sqrt(np.square(noise).mean()))
    p_value = significance.corrected(
        [
            significance.variance_p_value(noise),
            significance.shape_p_value(noise.ravel() / max(ratio, 1e-300)),
            lengths_p_value(noise, lab.sizes, lab.names)[0],
            links_p_value(noise)[0],
        ]
    )
    return Finding(
        "noise",
        "on faint sums",
        p_value > significance.LEVEL,
        f"what is released, less the faint sum of its lot, is {ratio:.3f} of the claimed noise; "
        f"its law: p = {p_value:.2g}",
        (("ratio", ratio), ("p-value", p_value)),
    )


def beside_odd_units(experiments: Experiments) -> Finding:
    """Noise is there and of its size also where one unit's losses are huge, or not a number."""
    adaptive = is_adaptive(experiments.plan)  # whose clip is known in the first step alone
    found = []
    for name, traces in one_odd_unit(experiments).items():
        rows = [
            (trace.released(step) - experiments.expected(trace, step)[0]).numpy()
            for trace in traces
            for step in range(1 if adaptive else len(trace.taken(2).steps))
        ]
        noise = np.stack(rows) / traces[0].variation.plan.noise_scale
        ratio = float(np.sqrt(np.square(noise).mean()))
        p_value = significance.corrected(
            [significance.variance_p_value(noise), significance.variances_p_value(noise.T)]
        )
        found.append((p_value, name, ratio))
    p_value, name, ratio = min(found)
    p_value = min(1.0, p_value * len(found))
    return Finding(
        "noise",
        "beside odd units",
        p_value > significance.LEVEL,
        f"where one unit's losses are {name} the noise is {ratio:.3f} of the claimed "
        f"(p = {p_value:.2g} among {len(found)})",
        (("ratio", ratio), ("p-value", p_value)),
    )


def _parted(experiments: Experiments) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The noise in units of what is claimed, and the sums that it hides; a row for every step."""
    trace = faint(experiments)
    kept = trace.taken(2).settled
    sums = np.stack([experiments.expected(trace, step)[0].numpy() for step in kept])
    released = np.stack([trace.released(step).numpy() for step in kept])
    scales = trace.variation.plan.noise_multiplier * claimed_clips(trace)[kept]
    return (released - sums) / scales[:, None], sums


def _along_sums(noise: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The noise of every step along the direction of a sum; steps without a sum are left out."""
    lengths = np.linalg.norm(sums, axis=1)
    kept = lengths > 0.0
    scores: NDArray[np.float64] = (noise[kept] * sums[kept]).sum(1) / lengths[kept]
    return scores


def _faint_p_value(scores: NDArray[np.float64]) -> float:
    if scores.size < 2:
        return 1.0
    return significance.corrected(
        [
            significance.variance_p_value(scores),
            significance.mean_p_value(scores),
            float(stats.kstest(scores, "norm").pvalue),
            significance.lag_p_value(scores[:, None], 1),
        ]
    )


# ---- noise on sums that are as long as it is, or longer: it is the same, whatever it hides


_LEVELS = (0.8, 100.0)  # lengths of sums, in standard deviations of the noise, as far as they go


def whatever_the_sum(experiments: Experiments) -> Finding:
    """Neither size, direction nor shape of the noise follow a sum, of whatever length it is.

    The sum of everybody is the same in all steps of a run, so that every direction that it singles
    out is known before the noise is drawn: what is released, less the sum, is standard normal along
    each.
    """
    precision = experiments.lab.setting.performance.precision
    if precision != "single":
        said = f"in {precision} sums are not known well enough: nothing to check"
        return Finding("noise", "whatever the sum", True, said)
    found: list[tuple[float, str]] = []
    for level in _LEVELS:
        traces = constant_sums(experiments, level)
        noises = [_noise(experiments, trace) for trace in traces]
        parts = np.stack([part.numpy() for part in experiments.parts(traces[0]).values()])
        length = np.linalg.norm(parts.sum(0)) / traces[0].variation.plan.noise_scale
        where = f"on sums of {length:.2g} standard deviations"
        judged = [
            _again(experiments, noises),
            *_judged_on_sums(experiments, np.concatenate(noises), parts),
        ]
        found += [(p, f"{name} {where}") for p, name in judged]
    p_value, name = min(found)
    p_value = min(1.0, p_value * len(found))
    return Finding(
        "noise",
        "whatever the sum",
        p_value > significance.LEVEL,
        f"what is released, less the sum, is least like the claimed noise in {name} "
        f"(p = {p_value:.2g} among {len(found)})",
        (("p-value", p_value),),
    )


def _noise(experiments: Experiments, trace: Trace) -> NDArray[np.float64]:
    """The noise in units of what is claimed, a row for every step."""
    plan, steps = trace.variation.plan, range(trace.variation.plan.steps)
    released = np.stack([trace.released(step).numpy() for step in steps])
    sums = experiments.expected(trace)[0].numpy()
    if plan.views > 1:  # which may be others in every step
        sums = np.stack([experiments.expected(trace, step)[0].numpy() for step in steps])
    scales = plan.noise_multiplier * claimed_clips(trace)
    out: NDArray[np.float64] = (released - sums) / scales[:, None]
    return out


def _again(experiments: Experiments, noises: list[NDArray[np.float64]]) -> tuple[float, str]:
    """Whether noise comes again with the sum: in another step, or in another run."""
    columns = columns_of(experiments)
    return significance.cosines_p_value(np.concatenate(noises)[:, columns]), "what comes again"


def _judged_on_sums(
    experiments: Experiments, noise: NDArray[np.float64], parts: NDArray[np.float64]
) -> list[tuple[float, str]]:
    """The p-values of all that the sum could have to do with the noise, and their names."""
    total = parts.sum(0)
    found = [
        (significance.variance_p_value(at_most(noise[:, entries].ravel())), name)
        for name, entries in _halves(total).items()
    ]
    along = _directions(experiments, total) | {
        f"the direction of unit {unit}": part for unit, part in enumerate(parts)
    }
    for name, direction in along.items():
        length = np.linalg.norm(direction)
        if length > 0.0:
            found.append((_normal_p_value(noise @ (direction / length)), name))
    return found


def _halves(total: NDArray[np.float64]) -> dict[str, NDArray[np.intp]]:
    """The entries in which the sum is large, small, and nothing at all."""
    sizes = np.abs(total)
    there = np.flatnonzero(sizes > 0.0)
    order = there[np.argsort(sizes[there])]
    groups = {
        "the small entries": order[: len(order) // 2],
        "the large entries": order[len(order) // 2 :],
        "the entries without a sum": np.flatnonzero(sizes == 0.0),
    }
    return {name: entries for name, entries in groups.items() if len(entries)}


def _directions(
    experiments: Experiments, total: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """The sum itself, its signs, and its part in every parameter."""
    found = {"the direction of the sum": total, "the signs of the sum": np.sign(total)}
    edges = np.cumsum([0, *experiments.lab.sizes])
    for name, start, end in zip(experiments.lab.names, edges, edges[1:], strict=False):
        part = np.zeros_like(total)
        part[start:end] = total[start:end]
        found[f"the direction of the sum in {name}"] = part
    return found


def _normal_p_value(scores: NDArray[np.float64]) -> float:
    """How likely standard normal numbers have so unusual a mean, size or law."""
    return significance.corrected(
        [
            significance.mean_p_value(scores),
            significance.variance_p_value(scores),
            float(stats.kstest(scores, "norm").pvalue),
        ]
    )
