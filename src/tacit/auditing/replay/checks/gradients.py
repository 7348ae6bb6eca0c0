"""Gradients: each unit's own, and nobody else's; however a lot is cut into batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from tacit.auditing.replay.oracle import tolerance
from tacit.auditing.replay.report import Finding
from tacit.training.styles import Automatic

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.report import Component
    from tacit.auditing.replay.trace import Trace


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
        component, note = _blamed(experiments)
    return Finding(
        component,
        "each unit alone",
        off <= limit,
        f"{what} is {off:.3g} from that of units computed one by one in double precision "
        f"(rounding explains {limit:.3g}; one unit adds up to {largest:.3g}){note}",
        (("off", off), ("limit", limit)),
    )


def _blamed(experiments: Experiments) -> tuple[Component, str]:
    """Who is at fault for a wrong sum, and why.

    If it is a sum of the right gradients with other weights, the gradients are not: all with the
    same weight is a matter of the update, unless every row of a unit counts as one; else of
    clipping.
    """
    weights = _weights(experiments)
    if weights is None:
        return "gradients", ""
    low, high = float(weights.min()), float(weights.max())
    note = f"; the gradients are right, but count {low:.4g} to {high:.4g} times"
    rows = np.bincount(experiments.lab.records(4).units) * experiments.plan.views
    apart = rows.max() > 1 and bool(np.allclose(weights.numpy(), rows, rtol=1e-2))
    same = high - low < 1e-2 * high
    return ("update" if same and not apart else "clipping"), note


def _weights(experiments: Experiments) -> Tensor | None:
    """How often each gradient counts in the sum of four units; None if that does not explain it."""
    four = experiments.lab.records(4)
    trace = experiments.sum_of("four unclipped", scale=experiments.loose, records=four)
    gradients = torch.stack(list(experiments.oracle.of_step(trace).values()), 1)
    released = trace.released()
    if len(released) < 2 * gradients.shape[1] or not bool(released.isfinite().all()):
        return None  # so many gradients would explain any sum
    found = torch.linalg.lstsq(gradients, released.unsqueeze(1), driver="gelsd").solution.squeeze(1)
    low, high = float(found.min()), float(found.max())
    limit = tolerance(experiments.lab, trace.variation.plan, float(gradients.norm(dim=0).max()))
    explained = float((gradients @ found - released).norm()) <= limit * max(1.0, high)
    return found if explained and low >= -1e-2 * high else None


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
    return off, tolerance(experiments.lab, trace.variation.plan, largest), largest


def failed_run(component: Component, check: str, when: str, trace: Trace) -> Finding:
    """The finding of a run that ended in an error, which depends on the data or on their order."""
    error = trace.error
    said = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return Finding(component, check, False, f"{when} the engine ended with {said}")
