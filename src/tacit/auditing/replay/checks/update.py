"""The update: the noisy sum over the plan's lot size, and only what the optimizer makes of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.auditing.replay.checks.gradients import distance
from tacit.auditing.replay.oracle import is_adaptive, tolerance
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.watching import flat

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.laboratory import Laboratory
    from tacit.auditing.replay.trace import Trace
    from tacit.auditing.replay.watching import Step

_SAME = 1e-5  # relative: one optimizer step, done twice


def normalisation(experiments: Experiments) -> Finding:
    """Sampled lots are divided by the plan's lot size, however many units they hold."""
    trace = experiments.lots
    worst, note = (-1.0, 0.0, 0), ""
    for step in range(1, len(trace.steps)):  # an engine may look at its first lot more than once
        if not len(trace.units_of(step)):
            continue
        if is_adaptive(trace.variation.plan):
            off, limit = _apart_from_scale(experiments, trace, step)
        else:
            off, limit, _ = distance(experiments, trace, step)
        worst = max(worst, (off / limit, off, step))
    excess, off, step = worst
    if excess > 1.0:
        note = _guess(experiments, trace, step)
    return Finding(
        "update",
        "normalisation",
        excess <= 1.0,
        f"the sum of a sampled lot, found by multiplying with the plan's lot size, is {off:.3g} "
        f"from that of its units ({excess:.3g} of what rounding explains){note}",
        (("off", off), ("excess", excess)),
    )


def _apart_from_scale(experiments: Experiments, trace: Trace, step: int) -> tuple[float, float]:
    """The distance where the clip, and so the sum's size, has moved with the steps."""
    expected, largest = experiments.expected(trace, step)
    released = trace.released(step)
    size = float(released @ expected) / max(float(expected @ expected), 1e-300)
    return float((released - size * expected).norm()), tolerance(
        experiments.lab, trace.variation.plan, largest * size
    )


def _guess(experiments: Experiments, trace: Trace, step: int) -> str:
    """What the wrong sum looks like."""
    expected, _ = experiments.expected(trace, step)
    size = float(trace.released(step) @ expected) / max(float(expected @ expected), 1e-300)
    drawn, lot_size = len(trace.units_of(step)), trace.variation.plan.lot_size
    if abs(size * drawn / lot_size - 1.0) < 1e-2:
        return "; it was divided by the realised size of the lot"
    return f"; it is about {size:.3g} times the expected one"


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
