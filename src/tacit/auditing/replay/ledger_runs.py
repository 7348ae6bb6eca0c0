"""Runs that have something in common: one after the other on a ledger, or from a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.auditing.replay import plans
from tacit.auditing.replay.laboratory import DELTA
from tacit.auditing.replay.reference import least_epsilon

if TYPE_CHECKING:
    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace
    from tacit.training.plan import Plan

_OTHER_RATE = 0.4


def one_ledger(experiments: Experiments) -> list[Trace]:
    """A run, the same once more, and two by another plan, which crash: all on one ledger.

    All but the first are charged several steps in advance.
    """
    first = experiments.charged
    again = replace(first.variation, lease=3)
    other = replace(again, plan=another(experiments.plan, experiments), crash_at=1)
    at_once = replace(other, lease=2, crash_at=0)
    return [
        first,
        experiments.once("charged again", again),
        experiments.once("crashed by another plan", other),
        experiments.once("crashed at once", at_once),
    ]


def broken_off_on_a_ledger(experiments: Experiments) -> list[Trace]:
    """A run that is left in the middle, a resumption that crashes and a second one."""
    parts = experiments.broken_off, experiments.resumed, experiments.resumed_again
    return [part("resumed") for part in parts]


def another(plan: Plan, experiments: Experiments) -> Plan:
    """Another plan for the same data: larger lots, less noise, fewer steps."""
    size = _OTHER_RATE * experiments.many.count
    less = replace(plan, noise_multiplier=0.8 * plan.noise_multiplier)
    return plans.sampled(less, experiments.many, steps=5, lot_size=size)


def one_too_many(experiments: Experiments) -> tuple[Trace, Trace] | None:
    """Two runs with a budget that covers one; None if no budget is sure to be between the two."""
    first = experiments.charged
    plan, one = first.variation.plan, first.charged_epsilon
    both = least_epsilon(plan, 2 * plan.steps, DELTA)
    if one is None or both is None or both < 1.02 * one:
        return None
    variation = replace(first.variation, ledger="one run", limit=0.5 * (one + both))
    return (
        experiments.once("affordable", variation),
        experiments.once("unaffordable second", variation),
    )


def kept(experiments: Experiments) -> tuple[Trace, Trace]:
    """A resumed run that is saved at its end, and what comes of resuming it there."""
    path = experiments.lab.folder / "kept.ckpt"
    rest = replace(experiments.broken_off().taken().variation, stop_at=None)
    return (
        experiments.once("resumed and kept", replace(rest, resume=rest.save, save=path)),
        experiments.once("resumed at the end", replace(rest, resume=path, save=None)),
    )


def strayed(experiments: Experiments) -> tuple[Trace, Trace]:
    """A checkpoint that is resumed by another plan, and one that is resumed on another ledger."""
    left = experiments.broken_off().taken().variation
    plan = replace(left.plan, noise_multiplier=0.5 * left.plan.noise_multiplier)
    changed = replace(left, plan=plan, save=None, resume=left.save, stop_at=None)
    charged = experiments.broken_off("resumed").taken().variation
    elsewhere = replace(charged, save=None, resume=charged.save, stop_at=None, ledger="elsewhere")
    return (
        experiments.once("resumed by another plan", changed),
        experiments.once("resumed on another ledger", elsewhere),
    )
