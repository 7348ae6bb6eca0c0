"""Clipping: no unit moves the sum by more than its bound, whatever its gradient is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.replay.checks.gradients import distance, failed_run
from tacit.auditing.replay.oracle import tolerance
from tacit.auditing.replay.records import filled_with, has_real_numbers, spare
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_SLACK = 1e-3  # of a bound, for rounding in single precision


def by_definition(experiments: Experiments) -> Finding:
    """Where half of the units are clipped, the sum is what the style's definition says."""
    worst = (-1.0, 0.0, 0.0)
    for name, scale in (("half clipped", experiments.mixed), ("all clipped", experiments.tight)):
        off, limit, largest = distance(experiments, experiments.sum_of(name, scale=scale))
        worst = max(worst, (off / limit, off, largest))
    excess, off, largest = worst
    return Finding(
        "clipping",
        "by definition",
        excess <= 1.0,
        f"the sum of clipped gradients is {off:.3g} from what {experiments.plan.clipping!r} "
        f"makes of units computed one by one ({excess:.3g} of what rounding explains; one unit "
        f"adds up to {largest:.3g})",
        (("off", off), ("excess", excess)),
    )


def magnitudes(experiments: Experiments) -> Finding:
    """The same at a clip of a millionth and of a million: no norm may underflow or overflow."""
    worst = (-1.0, 0.0)
    if experiments.lab.setting.performance.precision == "float16":
        said = "in float16 such losses underflow or overflow, and count nothing"
        return Finding("clipping", "magnitudes", True, said)
    for factor in (1e-6, 1e6):
        if not 1e-12 <= factor * experiments.plan.clip <= 1e12:  # beyond which no plan goes
            continue
        trace = experiments.sum_of(
            f"clip times {factor:g}", scale=3.0 * experiments.mixed * factor, clip=factor
        )
        if trace.error is not None:
            return failed_run("clipping", "magnitudes", f"at {factor:g} of the clip", trace)
        off, limit, _ = distance(experiments, trace)
        worst = max(worst, (off / limit, factor))
    excess, factor = worst
    return Finding(
        "clipping",
        "magnitudes",
        excess <= 1.0,
        f"with losses and clip times {factor:g} the sum is {excess:.3g} times as far from its "
        "definition as rounding explains",
        (("excess", excess), ("factor", factor)),
    )


def removal(experiments: Experiments) -> Finding:
    """Taking one unit away moves the sum by at most the clip."""
    whole = experiments.sum_of("all clipped", scale=experiments.tight)
    without = _without(experiments)
    if without.error is not None:
        return failed_run("clipping", "removal", "without one unit", without)
    moved = _norm(whole.released() - without.released())
    return _bounded(experiments, "removal", "taking one unit away", moved, 1.0)


def replacement(experiments: Experiments) -> Finding:
    """Replacing one unit, by another or by its opposite, moves the sum by at most twice the clip.

    It moves nobody else's share: another unit's sum is the sum without, plus its own.
    """
    whole = experiments.sum_of("all clipped", scale=experiments.tight)
    few, last = experiments.few, experiments.few.count - 1
    other = few.replaced(last, spare(experiments.lab.setting, few))
    traces = [
        experiments.sum_of("replaced", scale=experiments.tight, records=other),
        experiments.sum_of("opposite", scale=experiments.tight, factors={last: -1.0}),
    ]
    for trace in traces:
        if trace.error is not None:
            return failed_run("clipping", "replacement", "with one unit replaced", trace)
    moved = max(_norm(whole.released() - trace.released()) for trace in traces)
    return _bounded(experiments, "replacement", "replacing one unit", moved, 2.0)


def poison(experiments: Experiments) -> Finding:
    """A unit whose gradient is NaN, infinite or huge moves the sum by at most the clip as well."""
    without, last = _without(experiments), experiments.few.count - 1
    worst, which = -1.0, ""
    for name, factor in (("NaN", math.nan), ("infinite", math.inf), ("1e30 times as large", 1e30)):
        trace = experiments.sum_of(f"loss {name}", scale=experiments.tight, factors={last: factor})
        worst, which = max((worst, which), _moved(without, trace, f"a loss that is {name}"))
    if has_real_numbers(experiments.lab.setting.dataset[0]):
        for value in (math.nan, math.inf):
            data = experiments.few.changed(last, filled_with(value))
            trace = experiments.sum_of(f"data {value}", scale=experiments.tight, records=data)
            worst, which = max((worst, which), _moved(without, trace, f"data that are {value}"))
    return _bounded(experiments, "poison", f"one unit with {which}", worst, 1.0)


def cap(experiments: Experiments) -> Finding:
    """Of a user with more examples than the plan's cap, only so many have a part in a sum."""
    trace = experiments.uncapped
    if trace is None:
        return Finding("clipping", "cap", True, "no unit has more examples than the plan takes")
    off, limit, largest = distance(experiments, trace, 1)
    places = {trace.reads[row].place for row in trace.steps[1].rows}
    most = int(np.bincount(trace.variation.records.units[sorted(places)]).max())
    allowed = experiments.plan.examples_per_user or most
    return Finding(
        "clipping",
        "cap",
        off <= limit and most <= allowed,
        f"up to {most} examples of a user were used ({allowed} are allowed); the sum is {off:.3g} "
        f"from that of the users' means (rounding explains {limit:.3g}; one adds up to "
        f"{largest:.3g})",
        (("most", float(most)), ("off", off), ("limit", limit)),
    )


def _moved(without: Trace, trace: Trace, name: str) -> tuple[float, str]:
    if trace.error is not None:
        said = f"{type(trace.error).__name__}: {trace.error}".splitlines()[0][:120]
        return math.inf, f"{name} (which ended the run with {said})"
    return _norm(trace.released() - without.released()), name


def _without(experiments: Experiments) -> Trace:
    few = experiments.few
    return experiments.sum_of(
        "without one", scale=experiments.tight, records=few.without(few.count - 1)
    )


def _bounded(
    experiments: Experiments, check: str, what: str, moved: float, times: float
) -> Finding:
    """Whether the sum moved by no more than ``times`` the clip; rounding is allowed for."""
    plan = experiments.sum_of("as it is").variation.plan
    slack = tolerance(experiments.lab, plan, plan.clip)
    limit = times * plan.clip * (1.0 + _SLACK) + slack
    return Finding(
        "clipping",
        check,
        moved <= limit,
        f"{what} moves the sum by {moved / plan.clip:.4g} clips (at most {times:g} is claimed)",
        (("moved", moved), ("limit", limit)),
    )


def _norm(vector: Tensor) -> float:
    """The norm; infinite if it is no number."""
    found = float(vector.norm())
    return math.inf if math.isnan(found) else found
