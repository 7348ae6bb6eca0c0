"""Gradients: each unit's own, and nobody else's; however a lot is cut into batches."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from tacit.auditing.replay.checks import weights
from tacit.auditing.replay.oracle import clipped, tolerance
from tacit.auditing.replay.report import Finding
from tacit.training.styles import Automatic

if TYPE_CHECKING:
    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.report import Component
    from tacit.auditing.replay.trace import Trace

_ROUGH = 3.0  # times the rounding of one computation in the model's own precision
# Of a sum: norms are taken for so much larger, lest rounding hide that one is above the clip.
_MARGIN = {"single": 0.0, "bfloat16": 2.0**-6, "float16": 4e-3}
_UNEVEN = (1.0, -1.0, 0.1, 30.0, 0.0, -0.3, 3.0)  # factors on losses, one after the other


def alone(experiments: Experiments) -> Finding:
    """The sum of gradients that nobody clips is that of each unit's own, computed alone."""
    trace = experiments.sum_of("unclipped", scale=experiments.loose)
    off, limit, largest = distance(experiments, trace)
    if isinstance(trace.variation.plan.clipping, Automatic):
        what = "the sum of normalised gradients"
    else:
        what = "the sum of gradients, none of which is to be clipped,"
    component: Component = "gradients"
    note = ""
    if not off <= limit:
        component, note = _blamed(experiments, trace)
    return Finding(
        component,
        "each unit alone",
        off <= limit,
        f"{what} is {off:.3g} from that of units computed one by one in double precision "
        f"(rounding explains {limit:.3g}; one unit adds up to {largest:.3g}){note}",
        (("off", off), ("limit", limit)),
    )


def _blamed(experiments: Experiments, trace: Trace) -> tuple[Component, str]:
    """Who is at fault for a wrong sum of a few units, and why.

    Of a small model, many gradients explain any sum: then four units are asked.
    """
    if weights.of_units(experiments, trace) is not None:
        return weights.blamed(experiments, trace)
    four = experiments.lab.records(4)
    small = experiments.sum_of("four unclipped", scale=experiments.loose, records=four)
    off, limit, _ = distance(experiments, small)
    if off <= limit:
        return "gradients", "; that of four units alone is right"
    return weights.blamed(experiments, small)


def everybody(experiments: Experiments) -> Finding:
    """The sum of many units, of two that are alike, of losses of all sizes and signs, is right."""
    few, mixed = experiments.few, experiments.mixed
    twins = few.replaced(few.count - 1, few.examples[few.units == 0])
    factors = dict(zip(range(few.count), itertools.cycle(_UNEVEN), strict=False))
    traces = {
        "of many units": experiments.everybody,
        "of many clipped units": experiments.sum_of(
            "everybody clipped", scale=10.0 * mixed, records=experiments.many
        ),
        "of units of which two are alike": experiments.sum_of("twins", scale=mixed, records=twins),
        "of uneven losses": experiments.sum_of("uneven", scale=mixed, factors=factors),
    }
    found = []
    for name, trace in traces.items():
        if trace.error is not None:
            return failed_run("gradients", "everybody", f"on a lot {name}", trace)
        off, limit, largest = distance(experiments, trace)
        found.append((off / limit, off, largest, name, trace))
    excess, off, largest, name, trace = max(found, key=lambda one: one[0])
    component: Component = "gradients"
    note = ""
    if excess > 1.0:
        component, note = weights.blamed(experiments, trace)
    return Finding(
        component,
        "everybody",
        excess <= 1.0,
        f"the sum {name} is {off:.3g} from that of units computed one by one ({excess:.3g} of what "
        f"rounding explains; one unit adds up to {largest:.3g}){note}",
        (("off", off), ("excess", excess)),
    )


def cutting(experiments: Experiments) -> Finding:
    """The sum does not depend on the size of physical batches."""
    whole = experiments.sum_of("half clipped", scale=experiments.mixed)
    _, limit, _ = distance(experiments, whole)
    views = experiments.plan.views
    worst, at = 0.0, 0
    for units in (1, 5):
        batch = units * views
        trace = experiments.sum_of(f"batches of {batch}", scale=experiments.mixed, batch=batch)
        if trace.error is not None:
            return failed_run("gradients", "batch size", f"with batches of {batch} rows", trace)
        off = float((trace.released() - whole.released()).norm())
        worst, at = max((worst, at), (off, batch))
    return Finding(
        "gradients",
        "batch size",
        worst <= 2.0 * limit,
        f"the sum moves by {worst:.3g} when the lot is cut into batches of {at or 1} rows "
        f"(rounding explains {2.0 * limit:.3g})",
        (("moved", worst), ("limit", 2.0 * limit)),
    )


def distance(experiments: Experiments, trace: Trace, step: int = 0) -> tuple[float, float, float]:
    """From a released sum to the expected one, how far it may be, and the largest unit's norm."""
    expected, largest = experiments.expected(trace, step)
    off = float((trace.released(step) - expected).norm())
    # A sum that is no number is nowhere near.
    off = math.inf if math.isnan(off) else off
    limit = tolerance(experiments.lab, trace.variation.plan, largest)
    limit += _MARGIN[experiments.lab.setting.performance.precision] * float(expected.norm())
    return off, allowed(experiments, trace, step, off, limit), largest


def allowed(experiments: Experiments, trace: Trace, step: int, off: float, limit: float) -> float:
    """``limit``, or more where a sum is beyond it: gradients of the model may be that rough.

    Of a loss that is almost nothing, or of huge weights, few digits of a gradient are right.
    """
    if off <= limit:
        return limit
    lab, plan, parts = experiments.lab, trace.variation.plan, experiments.parts(trace, step)
    single = experiments.oracle.of_step(trace, step, single=True)
    rough = [float((clipped(lab, plan, one) - parts[at]).norm()) for at, one in single.items()]
    return limit + _ROUGH * sum(rough)


def failed_run(component: Component, check: str, when: str, trace: Trace) -> Finding:
    """The finding of a run that ended in an error, which depends on the data or on their order."""
    error = trace.error
    said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return Finding(component, check, False, f"{when} the engine ended with {said}")
