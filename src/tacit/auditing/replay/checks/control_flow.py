"""Control flow: how far a run goes does not depend on a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.auditing.replay.noisy_runs import long
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from tacit.auditing.replay.experiments import Experiments


def steps(experiments: Experiments) -> Finding:
    """As many steps are taken as planned, whoever is in the data."""
    few = experiments.few
    last = few.count - 1
    odd: list[str] = []
    for name, factor in (("as they are", 1.0), ("with a NaN", float("nan"))):
        trace = experiments.two_steps(name, {last: factor})
        planned = trace.variation.plan.steps
        if trace.error is not None or len(trace.steps) != planned:
            said = f", {type(trace.error).__name__}" if trace.error else ""
            odd.append(f"{len(trace.steps)} of {planned} steps on data {name}{said}")
    return Finding(
        "control flow",
        "number of steps",
        not odd,
        "; ".join(odd) or "the planned number of steps was taken, also where a loss is NaN",
    )


def every_run(experiments: Experiments) -> Finding:
    """Every run that was watched took the steps of its plan, no fewer and no more.

    Among them are long ones, whose losses fall to nothing, stay the same, or rise.
    """
    for name, factor in (("as it is", 1.0), ("with one large", 1e3)):
        long(experiments, name, {experiments.many.count - 1: factor})
    odd = [
        trace for trace in experiments.complete if len(trace.steps) != trace.variation.plan.steps
    ]
    example = f", such as {len(odd[0].steps)} of {odd[0].variation.plan.steps}" if odd else ""
    return Finding(
        "control flow",
        "every run",
        not odd,
        f"{len(odd)} of {len(experiments.complete)} runs took another number of steps than "
        f"planned{example}",
        (("odd", float(len(odd))),),
    )
