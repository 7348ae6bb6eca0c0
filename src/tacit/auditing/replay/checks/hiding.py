"""Noise and the sum that it hides: neither its size nor its direction follows the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.joint_noise import lengths_p_value, links_p_value
from tacit.auditing.replay.checks.noise import claimed_clips
from tacit.auditing.replay.checks.published import repeated
from tacit.auditing.replay.noisy_runs import faint
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments


def sums(experiments: Experiments) -> Finding:
    """Noise on faint sums is independent of them, of those before, and of single gradients.

    What is released, less the sum of its lot, has a standard normal part along any direction that
    is known without it: the sum itself, the sum before it, the mean of all gradients.
    """
    noise, sums = _parted(experiments)
    mean = np.broadcast_to(sums.mean(0), sums.shape)
    along = {
        "its own sum": _along(noise, sums),
        "the sum before": _along(noise[1:], sums[:-1]),
        "the mean of all": _along(noise, mean),
    }
    found = [(_p_value(scores), name) for name, scores in along.items()]
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


def law(experiments: Experiments) -> Finding:
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


def odd_units(experiments: Experiments) -> Finding:
    """Noise is there and of its size also where one unit's losses are huge, or not a number."""
    adaptive = is_adaptive(experiments.plan)  # whose clip is known in the first step alone
    found = []
    for name, traces in repeated(experiments).items():
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


def _along(noise: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The noise of every step along the direction of a sum; steps without a sum are left out."""
    lengths = np.linalg.norm(sums, axis=1)
    kept = lengths > 0.0
    scores: NDArray[np.float64] = (noise[kept] * sums[kept]).sum(1) / lengths[kept]
    return scores


def _p_value(scores: NDArray[np.float64]) -> float:
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
