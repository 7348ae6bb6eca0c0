"""The update: what the optimizer makes of the released gradients, and nothing else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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
