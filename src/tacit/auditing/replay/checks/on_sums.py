"""Noise on sums that are as long as it is, or longer: it is the same, whatever it hides.

The sum of everybody is the same in all steps of a run, so that every direction that it singles out
is known before the noise is drawn: what is released, less the sum, is standard normal along each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.noise import at_most, claimed_clips, columns_of
from tacit.auditing.replay.constant_runs import constant
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_LEVELS = (0.8, 100.0)  # lengths of sums, in standard deviations of the noise, as far as they go


def law(experiments: Experiments) -> Finding:
    """Neither size, direction nor shape of the noise follow a sum, of whatever length it is."""
    precision = experiments.lab.setting.performance.precision
    if precision != "single":
        said = f"in {precision} sums are not known well enough: nothing to check"
        return Finding("noise", "whatever the sum", True, said)
    found: list[tuple[float, str]] = []
    for level in _LEVELS:
        traces = constant(experiments, level)
        noises = [_noise(experiments, trace) for trace in traces]
        parts = np.stack([part.numpy() for part in experiments.parts(traces[0]).values()])
        length = np.linalg.norm(parts.sum(0)) / traces[0].variation.plan.noise_scale
        where = f"on sums of {length:.2g} standard deviations"
        judged = [_again(experiments, noises), *_judged(experiments, np.concatenate(noises), parts)]
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


def _judged(
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
            found.append((_p_value(noise @ (direction / length)), name))
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


def _p_value(scores: NDArray[np.float64]) -> float:
    """How likely standard normal numbers have so unusual a mean, size or law."""
    return significance.corrected(
        [
            significance.mean_p_value(scores),
            significance.variance_p_value(scores),
            float(stats.kstest(scores, "norm").pvalue),
        ]
    )
