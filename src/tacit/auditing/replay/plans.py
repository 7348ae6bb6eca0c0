"""The plans of the test's runs: the user's own, on few records, with something left out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.training.sampling import Cyclic, FullBatch, Poisson
from tacit.training.styles import AdaptiveQuantile, PerGroup

if TYPE_CHECKING:
    from tacit.auditing.replay.setting import Records
    from tacit.training.plan import Plan

_RATE = 0.26  # of a lot; no whole number of units
_NOISELESS = 1e-7  # σ, in a run that shows the sums themselves
_LITTLE = 0.003  # σ, where the noise is to be seen and the sum as well
_QUICK = 0.3  # by which the logarithm of an adaptive clip moves in a step that shows it
_DRIFT = 2.0  # of the logarithm of an adaptive clip in a whole run, at most


def sampled(plan: Plan, records: Records, *, steps: int, lot_size: float | None = None) -> Plan:
    """The plan with Poisson lots and its own noise; whole groups stay whole groups."""
    size = _RATE * records.count if lot_size is None else lot_size
    sampling = plan.sampling if isinstance(plan.sampling, Cyclic) else Poisson()
    return replace(plan, examples=records.count, lot_size=size, steps=steps, sampling=sampling)


def small_lots(plan: Plan, records: Records, *, steps: int, rate: float) -> Plan:
    """The plan with lots at a low rate, without noise; an adaptive clip moves slowly."""
    small = sampled(plan, records, steps=steps, lot_size=rate * records.count)
    if isinstance(plan.clipping, AdaptiveQuantile):
        small = replace(small, clipping=replace(_slow(plan, steps), count_noise=1e-6))
    return noiseless(small)


def noiseless(plan: Plan) -> Plan:
    """The plan nearly without noise."""
    return replace(plan, noise_multiplier=_NOISELESS)


def whole(plan: Plan, records: Records, *, steps: int = 1, clip: float = 1.0) -> Plan:
    """The plan without sampling and nearly without noise; ``clip`` is a factor on its clip."""
    return replace(_everybody(noiseless(_scaled(plan, clip)), records), steps=steps)


def known_clip(plan: Plan, records: Records, *, steps: int) -> Plan:
    """For an adaptive clip: all units in every lot, and a count that is as good as exact."""
    style = _slow(plan, steps)
    certain = replace(style, count_noise=1e-6)
    return replace(_everybody(plan, records), steps=steps, clipping=certain)


def slow_clip(plan: Plan, records: Records, *, steps: int) -> Plan:
    """For an adaptive clip: sampled lots without noise, and a clip that moves slowly."""
    style = _slow(plan, steps)
    return noiseless(replace(sampled(plan, records, steps=steps), clipping=style))


def counted(plan: Plan, records: Records, *, steps: int) -> Plan:
    """For an adaptive clip: everybody in every lot, without noise but that of the counts."""
    quiet = noiseless(_everybody(plan, records))
    return replace(quiet, steps=steps, clipping=_slow(plan, steps))


def quick_clip(plan: Plan, records: Records, *, steps: int, beyond: int) -> Plan:
    """For an adaptive clip that moves by a third in every step: everybody, and little noise.

    ``beyond`` units have norms above the clip, all others below.
    """
    style = plan.clipping
    assert isinstance(style, AdaptiveQuantile)
    speed = _QUICK / abs(1.0 - beyond / records.count - style.quantile)
    quick = replace(style, count_noise=1e-6, learning_rate=speed)
    quiet = replace(_everybody(plan, records), noise_multiplier=_LITTLE)
    return replace(quiet, steps=steps, clipping=quick)


def _slow(plan: Plan, steps: int) -> AdaptiveQuantile:
    style = plan.clipping
    assert isinstance(style, AdaptiveQuantile)
    return replace(style, learning_rate=min(style.learning_rate, _DRIFT / steps))


def _everybody(plan: Plan, records: Records) -> Plan:
    return replace(plan, examples=records.count, lot_size=records.count, sampling=FullBatch())


def _scaled(plan: Plan, factor: float) -> Plan:
    """The plan with all its bounds times ``factor``."""
    if factor == 1.0:
        return plan
    if isinstance(plan.clipping, PerGroup):
        style = PerGroup({name: bound * factor for name, bound in plan.clipping.pairs})
        return replace(plan, clipping=style, clip=style.clip)
    return replace(plan, clip=plan.clip * factor)
