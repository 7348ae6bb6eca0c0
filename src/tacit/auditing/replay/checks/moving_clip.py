"""A clip that moves with the data: it may follow them through a noisy, charged count alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.noise import columns_of
from tacit.auditing.replay.report import Finding
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_FEWEST = 20  # entries, of which a step's noise is read
_USUAL = 1e-3  # a p-value above which the part of a run before resuming is not to blame


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


def noise_at_the_clip(experiments: Experiments) -> Finding:
    """Each step's noise fits the clip that has bounded this step's sum, also after resuming.

    Both are read from what is released, while the clip moves by a third in every step: the sum's
    length along its known direction tells the clip, and all directions across it the noise.
    """
    if not isinstance(experiments.plan.clipping, AdaptiveQuantile):
        return Finding("noise", "at the clip", True, "the clip does not move")
    precision = experiments.lab.setting.performance.precision
    traces = experiments.parts_of_a_quick_clip
    expected = experiments.expected(traces[0])[0]
    length = float(expected.norm()) / experiments.plan.clip
    if precision != "single" or length < 0.5 or experiments.lab.entries < _FEWEST:
        said = "sums, or their noise, are not known well enough: nothing to check"
        return Finding("noise", "at the clip", True, said)
    along = expected / expected.norm()
    found = [
        [_across(experiments, trace, at, along, length) for at in range(len(trace.steps))]
        for trace in traces
    ]
    every = [step for part in found for step in part]
    p_values = [_fitting(steps) for steps in (*found, every)]
    p_value, ratios = significance.corrected(p_values), [one.ratio for one in every]
    resuming = p_value <= significance.LEVEL and p_values[0] > _USUAL
    return Finding(
        "resuming" if resuming else "noise",
        "at the clip",
        p_value > significance.LEVEL,
        f"in {len(ratios)} steps of a clip that moves, {len(found[0])} of them before resuming, "
        f"the noise is {min(ratios):.3f} to {max(ratios):.3f} of what is claimed for the clip that "
        f"the step's own sum shows (p = {p_value:.2g})",
        (("least", min(ratios)), ("most", max(ratios)), ("p-value", p_value)),
    )


class _Across(NamedTuple):
    """The squared noise across a sum, in units of what its clip claims, and in how many ways."""

    total: float
    degrees: float

    @property
    def ratio(self) -> float:
        """Its size beside the claimed."""
        return math.sqrt(self.total / self.degrees)


def _across(
    experiments: Experiments, trace: Trace, step: int, along: Tensor, length: float
) -> _Across:
    """The noise of a step across the direction ``along`` of its sum, which is ``length`` clips."""
    columns, released = columns_of(experiments), trace.released(step)
    size = float(released @ along)
    claimed = trace.variation.plan.noise_multiplier * max(size / length, 1e-300)
    across = (released - size * along).numpy()[columns] / claimed
    # One direction is the sum's, not the noise's; a part of it lies in the columns.
    degrees = len(columns) - float(along[columns].square().sum())
    return _Across(float(np.square(across).sum()), degrees)


def _fitting(steps: list[_Across]) -> float:
    """How likely the right noise is as unusual in one of the steps, or in all of them together."""
    whole = _Across(sum(one.total for one in steps), sum(one.degrees for one in steps))
    return significance.corrected(
        [significance.chi_square_p_value(one.total, one.degrees) for one in (*steps, whole)]
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
