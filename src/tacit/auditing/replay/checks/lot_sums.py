"""The sums of sampled lots: each that of its own units, over the plan's lot size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks import weights
from tacit.auditing.replay.checks.gradients import allowed, distance
from tacit.auditing.replay.checks.noise import membership
from tacit.auditing.replay.lot_runs import own, resumed, short_of_memory, small_lots
from tacit.auditing.replay.oracle import is_adaptive, tolerance
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.trace import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.report import Component
    from tacit.auditing.replay.trace import Trace

_GROWN = 20.0  # times, at most, that an adaptive clip has in a run of small lots


def normalisation(experiments: Experiments) -> Finding:
    """Sampled lots are divided by the plan's lot size, however many units they hold."""
    worst = _worst(experiments, [experiments.lots])
    component, note = _blamed(experiments, worst)
    return Finding(
        component,
        "normalisation",
        worst.excess <= 1.0,
        f"the sum of a sampled lot, found by multiplying with the plan's lot size, is "
        f"{worst.off:.3g} from that of its units ({worst.excess:.3g} of what rounding explains)"
        f"{note}",
        (("off", worst.off), ("excess", worst.excess)),
    )


def every_lot(experiments: Experiments) -> Finding:
    """Each of many small lots releases the sum of its own units, and nothing if it is empty."""
    traces = small_lots(experiments)
    worst = _worst(experiments, traces)
    component, note = _blamed(experiments, worst)
    sizes = [len(trace.units_of(step)) for trace in traces for step in trace.settled]
    return Finding(
        component,
        "every lot",
        worst.excess <= 1.0,
        f"of {len(sizes)} lots, {sizes.count(0)} of them empty, the sum of one with "
        f"{len(worst.trace.units_of(worst.step))} units is {worst.off:.3g} from that of its own "
        f"({worst.excess:.3g} of what rounding explains){note}",
        (("lots", float(len(sizes))), ("off", worst.off), ("excess", worst.excess)),
    )


def after_resuming(experiments: Experiments) -> Finding:
    """A run that is kept, and gone on with, clips and adds up as one that is not."""
    traces = resumed(experiments)
    if not traces:
        said = "the engine cannot resume, or its clip moves: nothing to check"
        return Finding("resuming", "sums", True, said)
    parts = [_worst(experiments, [trace]) for trace in traces]
    worst = max(parts, key=lambda one: one.excess)
    component, note = _blamed(experiments, worst)
    if parts[0].excess <= 1.0:
        component = "resuming"
    return Finding(
        component,
        "sums",
        worst.excess <= 1.0,
        f"before and after resuming, the sum of a lot is {parts[0].off:.3g} and "
        f"{parts[1].off:.3g} from that of its units ({worst.excess:.3g} of what rounding explains)"
        f"{note}",
        (("before", parts[0].off), ("after", parts[1].off), ("excess", worst.excess)),
    )


def own_data(experiments: Experiments) -> Finding:
    """Lots of the user's own data set, by its own loader and workers, are the sums of their units.

    Rows are known by what is in them, however they came into the loss.
    """
    trace = own(experiments)
    if trace is None:
        said = "rows of this data set cannot be told by their content: it was wrapped instead"
        return Finding("sampling", "own data set", True, said)
    if trace.error is not None:
        return Finding("sampling", "own data set", False, f"it ended with {one_line(trace.error)}")
    worst = _worst(experiments, [trace])
    component, note = _blamed(experiments, worst)
    inside, chance = membership(trace)[1:], trace.variation.plan.sample_rate
    p_value = significance.counts_p_value(int(inside.sum()), inside.size, chance)
    right = worst.excess <= 1.0
    return Finding(
        component if not right else "sampling",
        "own data set",
        right and p_value > significance.LEVEL,
        f"of {len(inside)} lots of {type(experiments.lab.setting.dataset).__name__} itself, the "
        f"sum of one is {worst.off:.3g} from that of its units ({worst.excess:.3g} of what "
        f"rounding explains); units are in {inside.mean():.3f} of the lots, {chance:.3f} is "
        f"claimed (p = {p_value:.2g}){note}",
        (("excess", worst.excess), ("p-value", p_value)),
    )


def out_of_memory(experiments: Experiments) -> Finding:
    """A lot whose batches are cut again, as memory runs out, is the sum of its units."""
    if not experiments.is_tacit:
        return Finding("update", "out of memory", True, "only tacit is known to go on: no check")
    trace = short_of_memory(experiments)
    if trace.error is not None:
        said = f"a lot that was to be cut again ended with {one_line(trace.error)}"
        return Finding("control flow", "out of memory", False, said)
    worst = _worst(experiments, [trace])
    component, note = _blamed(experiments, worst)
    return Finding(
        component,
        "out of memory",
        worst.excess <= 1.0,
        f"where batches are halved, as memory runs out, the sum of a lot is {worst.off:.3g} from "
        f"that of its units ({worst.excess:.3g} of what rounding explains){note}",
        (("off", worst.off), ("excess", worst.excess)),
    )


class _Lot(NamedTuple):
    """A step, and how far its sum is from that of its units: in all, and of what may be."""

    trace: Trace
    step: int
    off: float
    excess: float


def _worst(experiments: Experiments, traces: Iterable[Trace]) -> _Lot:
    """The step that is furthest off; of those that are too far, the one that is easiest to read."""
    found = [
        _Lot(trace, step, *_apart(experiments, trace, step))
        for trace in traces
        for step in trace.taken(2).settled
    ]
    wrong = [one for one in found if one.excess > 1.0]
    # Of one unit it cannot be told whether all have its weight.
    readable = [one for one in wrong if len(one.trace.units_of(one.step)) != 1]
    if readable or wrong:
        return min(readable or wrong, key=lambda one: len(one.trace.units_of(one.step)))
    return max(found, key=lambda one: one.excess)


def _apart(experiments: Experiments, trace: Trace, step: int) -> tuple[float, float]:
    """The distance of a sum from that of its units, and its share of what rounding explains."""
    if is_adaptive(trace.variation.plan):
        off, limit = apart_from_scale(experiments, trace, step)
    else:
        off, limit, _ = distance(experiments, trace, step)
    return off, off / limit


def apart_from_scale(experiments: Experiments, trace: Trace, step: int) -> tuple[float, float]:
    """The distance where the clip, and so the sum's size, has moved with the steps."""
    expected, largest = experiments.expected(trace, step)
    released = trace.released(step)
    size = float(released @ expected) / max(float(expected @ expected), 1e-300)
    off = float((released - size * expected).norm())
    limit = tolerance(experiments.lab, trace.variation.plan, largest * max(size, 1.0))
    if not largest:  # nothing tells how the clip has moved, and the little noise with it
        limit *= _GROWN
    off = math.inf if math.isnan(off) else off
    return off, allowed(experiments, trace, step, off, limit)


def _blamed(experiments: Experiments, lot: _Lot) -> tuple[Component, str]:
    """Who is at fault for a wrong sum: lots of everybody were right."""
    if lot.excess <= 1.0:
        return "update", ""
    return weights.blamed(experiments, lot.trace, lot.step, otherwise="update")
