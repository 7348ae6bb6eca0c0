"""Runs nearly without noise, whose every sum can be told: small lots, and moving parameters."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.replay import plans
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.records import Records, chosen
from tacit.auditing.replay.trace import Variation
from tacit.auditing.replay.watching import flat
from tacit.training.sampling import TruncatedPoisson

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace
    from tacit.training.plan import Plan

_LOW_RATE = 0.06  # of 12 units half of the lots are empty, of 48 one in twenty
_STEPS, _MOVED_STEPS = 30, 5
_KEPT_STEPS, _KEPT_RATE = 8, 0.3
_OWN_UNITS, _OWN_LOT, _OWN_STEPS = 512, 16, 12  # of runs on the user's own data set
_VIRTUAL_LOT, _VIRTUAL_STEPS, _MOST_VIRTUAL = 48.0, 50, 1_000_000
_MOVE = 0.2  # of the parameters' length, in the first step


def small_lots(experiments: Experiments) -> tuple[Trace, ...]:
    """Lots of a unit or none, and lots of a few that are cut into batches of two."""
    single = _sampled(experiments, "small lots", experiments.few)
    if is_adaptive(experiments.plan):  # to account for such a run takes longer than to make it
        return (single,)
    two = 2 * experiments.plan.views * (experiments.plan.examples_per_user or 1)
    return single, _sampled(experiments, "lots in small batches", experiments.many, batch=two)


def _sampled(
    experiments: Experiments, name: str, records: Records, *, batch: int | None = None
) -> Trace:
    plan = plans.small_lots(experiments.plan, records, steps=_STEPS, rate=_LOW_RATE)
    scale = experiments.tight if is_adaptive(plan) else experiments.mixed
    return experiments.once(name, Variation(plan=plan, records=records, scale=scale, batch=batch))


def resumed(experiments: Experiments) -> tuple[Trace, ...]:
    """A run that is kept, left in the middle and gone on with; nothing if the engine cannot."""
    if not experiments.lab.subject.resumes or is_adaptive(experiments.plan):
        return ()
    plan = plans.small_lots(experiments.plan, experiments.few, steps=_KEPT_STEPS, rate=_KEPT_RATE)
    path = experiments.lab.folder / "lots.ckpt"
    whole = Variation(plan=plan, records=experiments.few, scale=experiments.mixed)
    first = replace(whole, save=path, stop_at=_KEPT_STEPS // 2)
    return (
        experiments.once("broken off lots", first),
        experiments.once("resumed lots", replace(whole, resume=path)),
    )


def own(experiments: Experiments) -> Trace | None:
    """Sampled lots of the user's data set itself, by its own loader; None if rows are not known."""
    lab = experiments.lab
    records = chosen(lab.setting, _OWN_UNITS)
    if not lab.recognises(records):
        return None
    size = min(_OWN_LOT, 0.3 * records.count)
    plan = plans.small_lots(experiments.plan, records, steps=_OWN_STEPS, rate=size / records.count)
    scale = experiments.tight if is_adaptive(plan) else experiments.mixed
    return experiments.once(
        "own data", Variation(plan=plan, records=records, scale=scale, own=True)
    )


def short_of_memory(experiments: Experiments) -> Trace:
    """Lots that have to be cut, as their batches turn out to be too large for the memory."""
    plan = plans.small_lots(experiments.plan, experiments.many, steps=6, rate=_KEPT_RATE)
    scale = experiments.tight if is_adaptive(plan) else experiments.mixed
    rows = 3 * plan.views * (plan.examples_per_user or 1)
    variation = Variation(plan=plan, records=experiments.many, scale=scale, full_above=rows)
    return experiments.once("short of memory", variation)


def at_own_rate(experiments: Experiments) -> Trace | None:
    """Lots at the plan's own rate, of as many records as that takes; None if everybody is in.

    The records are the setting's, over and over: which of them a lot holds is all that is seen.
    """
    plan, few = experiments.plan, experiments.few
    rate = plan.sample_rate
    if not 0.0 < rate < 1.0:
        return None
    count = int(min(max(min(plan.lot_size, _VIRTUAL_LOT) / rate, few.count), _MOST_VIRTUAL))
    first = few.examples[np.unique(few.units, return_index=True)[1]]  # one example of each unit
    records = Records(np.resize(first, count), np.arange(count, dtype=np.int64))
    own = plans.sampled(plan, records, steps=_VIRTUAL_STEPS, lot_size=rate * count)
    if isinstance(plan.sampling, TruncatedPoisson):
        own = replace(own, sampling=TruncatedPoisson(math.ceil(1.15 * own.lot_size)))
    variation = Variation(plan=own, records=records, scale=0.0, wrapped=True)
    return experiments.once("own rate", variation)


def moved(experiments: Experiments) -> tuple[Trace, ...]:
    """Steps that move the parameters far, over everybody and over sampled lots.

    None at all if the optimizer moves nothing.
    """
    own, few, many = experiments.plan, experiments.few, experiments.many
    scale = experiments.tight if is_adaptive(own) else experiments.mixed
    name = "all clipped" if is_adaptive(own) else "half clipped"
    first = experiments.sum_of(name, scale=scale)
    move = _move(experiments, first)
    if not 0.0 < move < math.inf:
        return ()
    rate = _MOVE * length(first.start) / move

    def run(name: str, plan: Plan, records: Records) -> Trace:
        variation = Variation(plan=plan, records=records, scale=scale, still=False, rate=rate)
        return experiments.once(name, variation)

    whole = run("moved", plans.whole(own, few, steps=_MOVED_STEPS), few)
    if is_adaptive(own):
        return (whole,)
    lots = plans.noiseless(plans.sampled(own, many, steps=_MOVED_STEPS))
    return whole, run("moved lots", lots, many)


def length(parameters: Tensor) -> float:
    """The length of a model's parameters; that of 0.1 each if they are shorter."""
    return max(float(parameters.norm()), 0.1 * math.sqrt(parameters.numel()))


def _move(experiments: Experiments, trace: Trace) -> float:
    """How far the setting's optimizer moves the parameters in a run's first step."""
    _, optimizer = experiments.lab.made(still=False)
    held: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
    parts = trace.taken().steps[0].gradient.split([p.numel() for p in held])
    for parameter, part in zip(held, parts, strict=True):
        parameter.grad = part.reshape(parameter.shape).to(parameter.dtype)
    optimizer.step()
    return float((flat(held) - trace.start).norm())
