"""The update: what the optimizer makes of the released gradients, and nothing else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks import gradients
from tacit.auditing.replay.checks.gradients import apart_from_scale, distance
from tacit.auditing.replay.checks.noise import membership
from tacit.auditing.replay.experiments import (
    own_data_lots,
    resumed_lots,
    short_of_memory,
    small_lots,
)
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.trace import one_line
from tacit.auditing.replay.watch import flat

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.laboratory import Laboratory
    from tacit.auditing.replay.report import Component
    from tacit.auditing.replay.trace import Trace
    from tacit.auditing.replay.watch import Step

_SAME = 1e-5  # relative: one optimizer step, done twice


def by_optimizer(experiments: Experiments) -> Finding:
    """The parameters change by what the optimizer makes of the released gradients, and no other.

    So whatever is added before or after its step, past the gradients, is seen.
    """
    trace = experiments.moving.taken()
    off, where = replayed(experiments.lab, (trace,))
    return Finding(
        "update",
        "by the optimizer alone",
        off <= _SAME,
        f"replaying the optimizer on the gradients that it was given leads to other parameters, "
        f"relative difference {off:.3g}{where}"
        if off > _SAME
        else "replaying the optimizer on the gradients that it was given leads to the same "
        f"parameters (relative difference {off:.2g})",
        (("off", off),),
    )


def handed_over(experiments: Experiments) -> Finding:
    """The parameters of a finished run are those after its last step, and no others.

    Whatever is chosen, averaged or trained on afterwards, past the noise, is seen.
    """
    worst, count = 0.0, 0
    for trace in experiments.complete:
        last = trace.steps[-1].after if trace.steps else None
        if trace.error is None and last is not None and bool(last.isfinite().all()):
            worst, count = max(worst, _relative(trace.end, last)), count + 1
    return Finding(
        "update",
        "handed over",
        worst == 0.0,
        f"after {count} runs the parameters are those of the last step"
        if worst == 0.0
        else f"a finished run leaves other parameters than its last step, relative difference "
        f"{worst:.3g}",
        (("off", worst),),
    )


def replayed(lab: Laboratory, traces: Iterable[Trace]) -> tuple[float, str]:
    """How far the parameters of runs, one resumed from the other, are from a replay of their steps.

    The replay feeds the gradients that were seen to an optimizer of its own.
    """
    model, optimizer = lab.made(still=False)
    held = [p for group in optimizer.param_groups for p in group["params"]]
    del model
    worst, where = 0.0, ""
    for trace in traces:
        for at, step in enumerate(trace.steps):
            if step.before is None or step.after is None:
                break
            for point, seen in ((" before", step.before), ("", step.after)):
                if point == "":
                    _step(optimizer, held, step)
                off = _relative(flat(held), seen)
                if off > worst:
                    worst, where = off, f", first seen{point or ' after'} step {at + 1}"
            if worst > _SAME:
                return worst, where
    return worst, where


def _step(optimizer: torch.optim.Optimizer, held: list[Tensor], step: Step) -> None:
    parts = step.gradient.split([p.numel() for p in held])
    for parameter, part in zip(held, parts, strict=True):
        parameter.grad = part.reshape(parameter.shape).to(parameter.dtype)
    optimizer.step()


def _relative(one: Tensor, other: Tensor) -> float:
    off = float((one - other).norm() / other.norm().clamp_min(1e-30))
    return math.inf if math.isnan(off) else off


# ---- the sums of sampled lots: each that of its own units, over the plan's lot size


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
    traces = resumed_lots(experiments)
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
    trace = own_data_lots(experiments)
    if trace is None:
        said = "rows of this data set cannot be recognised by their content: it was wrapped instead"
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
    # One unit does not show whether all have its weight.
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


def _blamed(experiments: Experiments, lot: _Lot) -> tuple[Component, str]:
    """Who is at fault for a wrong sum: lots of everybody were right."""
    if lot.excess <= 1.0:
        return "update", ""
    return gradients.blamed(experiments, lot.trace, lot.step, otherwise="update")
