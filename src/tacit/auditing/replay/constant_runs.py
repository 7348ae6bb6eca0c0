"""Runs with noise on a sum that is the same in every step, of a length that is asked for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from tacit.auditing.replay import plans
from tacit.auditing.replay.oracle import clipped, is_adaptive
from tacit.auditing.replay.trace import Variation

if TYPE_CHECKING:
    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace
    from tacit.training.plan import Plan

_STEPS = 25
_SCALES = 30  # that are tried


def constant(experiments: Experiments, level: float) -> tuple[Trace, Trace]:
    """Everybody in every lot: sums of ``level`` standard deviations of the noise, or what can be.

    There are two such runs, of which nothing but the noise should be different: the second one of
    those with short sums is cut into small batches. With an adaptive clip nobody may come near to
    it, so that it only falls.
    """
    own, few = experiments.plan, experiments.few
    if is_adaptive(own):
        plan = plans.known_clip(own, few, steps=_STEPS)
    else:
        whole = plans.whole(own, few, steps=_STEPS)
        plan = replace(whole, noise_multiplier=own.noise_multiplier)
    variation = Variation(plan=plan, records=few, scale=_scale(experiments, plan, level))
    rows = own.views * (own.examples_per_user or 1)
    other = replace(variation, batch=5 * rows) if level < 1.0 else variation
    return (
        experiments.once(f"constant {level:g}", variation),
        experiments.once(f"constant {level:g} again", other),
    )


def _scale(experiments: Experiments, plan: Plan, level: float) -> float:
    """The factor on losses that brings the sum of everybody nearest to so many deviations."""
    most = 0.3 * experiments.loose if is_adaptive(plan) else experiments.tight
    trace = experiments.sum_of("as it is")
    gradients = experiments.oracle.of_step(trace).values()

    def off(scale: float) -> float:
        parts = [clipped(experiments.lab, plan, scale * one) for one in gradients]
        length = float(torch.stack(parts).sum(0).norm())
        return abs(math.log(max(length, 1e-300) / (level * plan.noise_scale)))

    return float(min(np.geomspace(1e-3 * experiments.loose, most, _SCALES), key=off))
