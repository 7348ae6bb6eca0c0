"""Parameters that move: every step takes the gradients, and their norms, anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tacit.auditing.replay.checks import weights
from tacit.auditing.replay.checks.gradients import distance
from tacit.auditing.replay.checks.lot_sums import apart_from_scale
from tacit.auditing.replay.lot_runs import length, moved
from tacit.auditing.replay.oracle import clipped, is_adaptive, largest_share, tolerance
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.report import Component
    from tacit.auditing.replay.trace import Trace

_FAR = 10.0  # lengths of the first parameters, beyond which sums may be no numbers any more
_BEYOND = 10.0  # clips: a unit with so long a gradient is clipped, wherever the clip has moved


def sums(experiments: Experiments) -> Finding:
    """After steps that moved the parameters far, sums are those of the parameters of the day.

    Gradients, norms or sums that are kept from an earlier step are seen here.
    """
    traces = moved(experiments)
    if not traces:
        return _skipped("the optimizer does not move the parameters in its first step")
    for trace in traces:
        others = [step.others for step in trace.taken(trace.variation.plan.steps).steps]
        if not all(torch.equal(others[0], other) for other in others):
            return _skipped("buffers of the model move with the steps, so that losses are unknown")
    found: list[tuple[float, float, int, Trace]] = [
        (off / limit, off, at, trace)
        for trace in traces
        for at in _steps(experiments, trace)
        for off, limit in [_apart(experiments, trace, at)]
    ]
    if not found:
        return _skipped("the parameters are too far, or gradients too short, after one step")
    wrong = [one for one in found if one[0] > 1.0]
    excess, off, at, trace = wrong[0] if wrong else max(found, key=lambda one: one[0])
    component: Component = "gradients"
    note = ""
    if wrong:
        component, note = _blamed(experiments, trace, at)
    return Finding(
        component,
        "moving parameters",
        not wrong,
        f"of {len(found)} steps, the first of which moves the parameters by {_moved(trace):.2g} of "
        f"their length, step {at + 1} releases a sum that is {off:.3g} from that of its own "
        f"parameters ({excess:.3g} of what rounding explains){note}",
        (("off", off), ("excess", excess)),
    )


def _skipped(why: str) -> Finding:
    return Finding("gradients", "moving parameters", True, f"{why}: nothing to check")


def _steps(experiments: Experiments, trace: Trace) -> list[int]:
    """The steps whose sums are known: until the parameters are too far, or the clip may be."""
    plan, kept = trace.variation.plan, []
    for at in trace.settled:
        before = trace.steps[at].before
        if before is None or not float(before.norm()) <= _FAR * length(trace.start):
            break
        if is_adaptive(plan) and not _all_beyond(experiments, trace, at):
            break
        kept.append(at)
    return kept


def _all_beyond(experiments: Experiments, trace: Trace, step: int) -> bool:
    """Whether all are clipped for sure, so that the sum is known up to the clip."""
    gradients = experiments.oracle.of_step(trace, step).values()
    return all(
        largest_share(experiments.lab, trace.variation.plan, one) >= _BEYOND for one in gradients
    )


def _apart(experiments: Experiments, trace: Trace, step: int) -> tuple[float, float]:
    if is_adaptive(trace.variation.plan):
        return apart_from_scale(experiments, trace, step)
    return distance(experiments, trace, step)[:2]


def _blamed(experiments: Experiments, trace: Trace, step: int) -> tuple[Component, str]:
    """Who is at fault for a sum that is not that of its parameters: what was kept too long."""
    plan, seen = trace.variation.plan, trace.steps
    for before in range(step):
        stale = experiments.oracle.at(trace, seen[step].rows, seen[before].before)
        parts = [clipped(experiments.lab, plan, one) for one in stale.values()]
        if not parts:
            continue
        limit = tolerance(experiments.lab, plan, max(float(one.norm()) for one in parts))
        if float((trace.released(step) - torch.stack(parts).sum(0)).norm()) <= limit:
            return "gradients", f"; it is that of the parameters before step {before + 1}"
    return weights.blamed(experiments, trace, step)


def _moved(trace: Trace) -> float:
    after = trace.steps[0].after
    assert after is not None
    return float((after - trace.start).norm()) / length(trace.start)
