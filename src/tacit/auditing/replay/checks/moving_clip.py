"""A clip that moves with the data: it may follow them through a noisy, charged count alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.report import Finding
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace


def count_noise(experiments: Experiments) -> Finding:
    """The count that moves the clip has the noise that is claimed and charged.

    Everybody is clipped, so that the size of each sum tells the clip, and two clips in a row the
    noisy count between them (Andrew et al. 2021, algorithm 1): C' = C·exp(-η·(b̃ - γ)).
    """
    if not isinstance(experiments.plan.clipping, AdaptiveQuantile):
        return Finding("noise", "the clip's own", True, "the clip does not move")
    traces = experiments.counted, experiments.many_counts
    values = np.concatenate([_count_noise(experiments, trace.taken(2)) for trace in traces])
    spread = float(np.sqrt(np.square(values).mean())) if values.size else 0.0
    p_value = significance.corrected(
        [
            significance.variance_p_value(values),
            significance.mean_p_value(values),
            float(stats.kstest(values, "norm").pvalue) if values.size else 1.0,
            *(significance.lag_p_value(values[:, None], lag) for lag in (1, 2, 3)),
        ]
    )
    return Finding(
        "noise",
        "the clip's own",
        p_value > significance.LEVEL,
        f"the noise on {values.size} counts, by which the clip moved, is {spread:.4f} of the "
        f"claimed (p = {p_value:.2g})",
        (("ratio", spread), ("p-value", p_value)),
    )


def _count_noise(experiments: Experiments, trace: Trace) -> NDArray[np.float64]:
    """The noise on the counts, in units of what is claimed."""
    plan = trace.variation.plan
    style = plan.clipping
    assert isinstance(style, AdaptiveQuantile)
    sums: dict[bytes, Tensor] = {}  # of lots that come again, at weights that do not move
    clips = {step: _clip(experiments, trace, step, sums) for step in trace.settled}
    found = []
    for step, now in clips.items():
        then = clips.get(step + 1)
        if now is None or then is None:
            continue
        share = style.quantile - math.log(then / now) / style.learning_rate
        count = (share - 0.5) * plan.lot_size
        exact = -0.5 * len(trace.units_of(step))  # nobody is within the clip
        found.append((count - exact) / style.count_noise)
    return np.array(found)


def _clip(
    experiments: Experiments, trace: Trace, step: int, sums: dict[bytes, Tensor]
) -> float | None:
    """The clip of a step; None where the lot is empty."""
    units = trace.units_of(step)
    if not len(units):
        return None
    lot = units.tobytes() if experiments.plan.views == 1 else bytes([step % 256, step // 256])
    if lot not in sums:
        sums[lot] = experiments.expected(trace, step)[0]
    expected = sums[lot]
    size = float(trace.released(step) @ expected) / float(expected @ expected)
    return size * trace.variation.plan.clip if size > 0.0 else None
