"""Runs with noise and real losses: faint ones, which the noise hides, and moving parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.auditing.replay import plans
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.trace import Variation

if TYPE_CHECKING:
    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_FAINT_STEPS, _MOVING_STEPS, _KEPT_STEPS = 100, 24, 8
_FAINT = 0.02  # of the clip: the largest gradient
_FAINTER = 0.03  # of it: every other unit's


def faint(experiments: Experiments) -> Trace:
    """Sums that are small beside their noise, at the first weights.

    So whatever the noise has to do with the sum shows in most steps. Every other unit's losses are
    much smaller than the rest: units are as different as units can be. With an adaptive clip, which
    then only falls, all are in a lot.
    """
    adaptive = is_adaptive(experiments.plan)
    records = experiments.few if adaptive else experiments.many
    make_plan = plans.known_clip if adaptive else plans.sampled
    variation = Variation(
        plan=make_plan(experiments.plan, records, steps=_FAINT_STEPS),
        records=records,
        scale=_FAINT / max(experiments.shares),
        factors=dict.fromkeys(range(0, records.count, 2), _FAINTER),
    )
    return experiments.once("faint", variation)


def kept_lots(experiments: Experiments) -> Trace:
    """Sampled lots as they are, of which a checkpoint is left."""
    plan = plans.sampled(experiments.plan, experiments.many, steps=_KEPT_STEPS)
    path = experiments.lab.folder / "kept-lots.ckpt"
    return experiments.once("kept lots", Variation(plan=plan, records=experiments.many, save=path))


def long(experiments: Experiments, name: str, factors: dict[int, float]) -> Trace:
    """Many steps as they are: losses that rise and fall with moving parameters."""
    plan = plans.sampled(experiments.plan, experiments.many, steps=_MOVING_STEPS)
    variation = Variation(plan=plan, records=experiments.many, factors=factors, still=False)
    return experiments.once(f"long {name}", variation)
