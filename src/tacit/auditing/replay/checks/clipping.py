"""Clipping: no unit moves the sum by more than its bound, whatever its gradient is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.gradients import distance, failed_run
from tacit.auditing.replay.checks.noise import columns_of
from tacit.auditing.replay.oracle import tolerance
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.setting import filled_with, has_real_numbers, spare
from tacit.training.styles import AdaptiveQuantile

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_SLACK = 1e-3  # of a bound, for rounding in single precision


def by_definition(experiments: Experiments) -> Finding:
    """Where half of the units are clipped, the sum is what the style's definition says."""
    worst = (-1.0, 0.0, 0.0)
    for name, scale in (("half clipped", experiments.mixed), ("all clipped", experiments.tight)):
        off, limit, largest = distance(experiments, experiments.sum_of(name, scale=scale))
        worst = max(worst, (off / limit, off, largest))
    excess, off, largest = worst
    return Finding(
        "clipping",
        "by definition",
        excess <= 1.0,
        f"the sum of clipped gradients is {off:.3g} from what {experiments.plan.clipping!r} "
        f"makes of units computed one by one ({excess:.3g} of what rounding explains; one unit "
        f"adds up to {largest:.3g})",
        (("off", off), ("excess", excess)),
    )


def magnitudes(experiments: Experiments) -> Finding:
    """The same at a clip of a millionth and of a million: no norm may underflow or overflow."""
    worst = (-1.0, 0.0)
    if experiments.lab.setting.performance.precision == "float16":
        said = "in float16 such losses underflow or overflow, and count nothing"
        return Finding("clipping", "magnitudes", True, said)
    for factor in (1e-6, 1e6):
        if not 1e-12 <= factor * experiments.plan.clip <= 1e12:  # beyond which no plan goes
            continue
        trace = experiments.sum_of(
            f"clip times {factor:g}", scale=3.0 * experiments.mixed * factor, clip=factor
        )
        if trace.error is not None:
            return failed_run("clipping", "magnitudes", f"at {factor:g} of the clip", trace)
        off, limit, _ = distance(experiments, trace)
        worst = max(worst, (off / limit, factor))
    excess, factor = worst
    return Finding(
        "clipping",
        "magnitudes",
        excess <= 1.0,
        f"with losses and clip times {factor:g} the sum is {excess:.3g} times as far from its "
        "definition as rounding explains",
        (("excess", excess), ("factor", factor)),
    )


def removal(experiments: Experiments) -> Finding:
    """Taking one unit away moves the sum by at most the clip."""
    whole = experiments.sum_of("all clipped", scale=experiments.tight)
    without = _without(experiments)
    if without.error is not None:
        return failed_run("clipping", "removal", "without one unit", without)
    moved = _norm(whole.released() - without.released())
    return _bounded(experiments, "removal", "taking one unit away", moved, 1.0)


def replacement(experiments: Experiments) -> Finding:
    """Replacing one unit, by another or by its opposite, moves the sum by at most twice the clip.

    It moves nobody else's share: another unit's sum is the sum without, plus its own.
    """
    whole = experiments.sum_of("all clipped", scale=experiments.tight)
    few, last = experiments.few, experiments.few.count - 1
    other = few.replaced(last, spare(experiments.lab.setting, few))
    traces = [
        experiments.sum_of("replaced", scale=experiments.tight, records=other),
        experiments.sum_of("opposite", scale=experiments.tight, factors={last: -1.0}),
    ]
    for trace in traces:
        if trace.error is not None:
            return failed_run("clipping", "replacement", "with one unit replaced", trace)
    moved = max(_norm(whole.released() - trace.released()) for trace in traces)
    return _bounded(experiments, "replacement", "replacing one unit", moved, 2.0)


def poison(experiments: Experiments) -> Finding:
    """A unit whose gradient is NaN, infinite or huge moves the sum by at most the clip as well."""
    without, last = _without(experiments), experiments.few.count - 1
    worst, which = -1.0, ""
    for name, factor in (("NaN", math.nan), ("infinite", math.inf), ("1e30 times as large", 1e30)):
        trace = experiments.sum_of(f"loss {name}", scale=experiments.tight, factors={last: factor})
        worst, which = max((worst, which), _moved(without, trace, f"a loss that is {name}"))
    if has_real_numbers(experiments.lab.setting.dataset[0]):
        for value in (math.nan, math.inf):
            data = experiments.few.changed(last, filled_with(value))
            trace = experiments.sum_of(f"data {value}", scale=experiments.tight, records=data)
            worst, which = max((worst, which), _moved(without, trace, f"data that are {value}"))
    return _bounded(experiments, "poison", f"one unit with {which}", worst, 1.0)


def cap(experiments: Experiments) -> Finding:
    """Of a user with more examples than the plan's cap, no more than the cap count in a sum."""
    trace = experiments.uncapped
    if trace is None:
        return Finding("clipping", "cap", True, "no unit has more examples than the plan takes")
    off, limit, largest = distance(experiments, trace, 1)
    places = {trace.reads[row].place for row in trace.steps[1].rows}
    most = int(np.bincount(trace.variation.records.units[sorted(places)]).max())
    allowed = experiments.plan.examples_per_user or most
    return Finding(
        "clipping",
        "cap",
        off <= limit and most <= allowed,
        f"up to {most} examples of a user were used ({allowed} are allowed); the sum is {off:.3g} "
        f"from that of the users' means (rounding explains {limit:.3g}; one adds up to "
        f"{largest:.3g})",
        (("most", float(most)), ("off", off), ("limit", limit)),
    )


def _moved(without: Trace, trace: Trace, name: str) -> tuple[float, str]:
    if trace.error is not None:
        said = f"{type(trace.error).__name__}: {trace.error}".splitlines()[0][:120]
        return math.inf, f"{name} (which ended the run with {said})"
    return _norm(trace.released() - without.released()), name


def _without(experiments: Experiments) -> Trace:
    few = experiments.few
    return experiments.sum_of(
        "without one", scale=experiments.tight, records=few.without(few.count - 1)
    )


def _bounded(
    experiments: Experiments, check: str, what: str, moved: float, times: float
) -> Finding:
    """Whether the sum moved by no more than ``times`` the clip; rounding is allowed for."""
    plan = experiments.sum_of("as it is").variation.plan
    slack = tolerance(experiments.lab, plan, plan.clip)
    limit = times * plan.clip * (1.0 + _SLACK) + slack
    return Finding(
        "clipping",
        check,
        moved <= limit,
        f"{what} moves the sum by {moved / plan.clip:.4g} clips (at most {times:g} is claimed)",
        (("moved", moved), ("limit", limit)),
    )


def _norm(vector: Tensor) -> float:
    """The norm; infinite if it is no number."""
    found = float(vector.norm())
    return math.inf if math.isnan(found) else found


# ---- a clip that moves with the data: it may follow them through a noisy, charged count alone


_FEWEST = 20  # entries, of which a step's noise is read
_USUAL = 1e-3  # a p-value above which the part of a run before resuming is not to blame


def count_noise(experiments: Experiments) -> Finding:
    """The count that moves the clip has the noise that is claimed and charged.

    Everybody is clipped, so that the size of each sum shows the clip, and two clips in a row the
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
    length along its known direction shows the clip, and all directions across it the noise.
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
