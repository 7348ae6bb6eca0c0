"""Lots over a run: at one rate from start to end, each unit once, whatever the data are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.noise import membership
from tacit.auditing.replay.checks.sampling import longest_sampled, together_p_value
from tacit.auditing.replay.noisy_runs import faint
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_PARTS = 3, 10  # of a run: start, middle and end, and finer
_LAGS = tuple(range(1, 13))


def once(experiments: Experiments) -> Finding:
    """A record is in a lot once, and has as many views in it as the plan says."""
    plan = experiments.plan
    if plan.unit == "user":
        said = "users' records may come again to fill up a batch; the sums tell if they count"
        return Finding("sampling", "once in a lot", True, said)
    trace = longest_sampled(experiments)
    most, found = plan.views, 0
    for step in trace.steps[1:]:  # an engine may look at its first lot more than once
        places = [trace.reads[row].place for row in step.rows]
        found += int((np.bincount(places, minlength=1) > most).sum())
    return Finding(
        "sampling",
        "once in a lot",
        not found,
        f"in {len(trace.steps) - 1} lots, {found} times a record was in a lot more often than its "
        f"{most} view{'s' if most > 1 else ''}",
        (("found", float(found)),),
    )


def steady(experiments: Experiments) -> Finding:
    """Lots are as large at the start, in the middle and at the end, and know nothing of others."""
    trace = longest_sampled(experiments)
    inside, chance = membership(trace)[1:], trace.variation.plan.sample_rate
    if len(inside) < 2 * max(_PARTS) or not 0.0 < chance < 1.0:
        return Finding("sampling", "steady", True, "too few lots, or everybody is in every lot")
    parts = [part for count in _PARTS for part in np.array_split(inside, count)]
    rates = [significance.counts_p_value(int(part.sum()), part.size, chance) for part in parts]
    scores = significance.count_scores(inside.sum(1), inside.shape[1], chance)
    sizes = [
        significance.spread_p_value(scores),
        *(significance.lag_p_value(scores[:, None], lag) for lag in _LAGS),
        *(significance.cosines_p_value(scores[None], shape[None]) for shape in _drifts(scores)),
    ]
    p_value = significance.corrected([significance.corrected(rates), significance.corrected(sizes)])
    thirds = ", ".join(f"{part.mean():.3f}" for part in parts[: _PARTS[0]])
    return Finding(
        "sampling",
        "steady",
        p_value > significance.LEVEL,
        f"at the start, in the middle and at the end units are in {thirds} of the lots; rates, and "
        f"sizes of lots one after the other: p = {p_value:.2g}",
        (("p-value", p_value),),
    )


def neighbours(experiments: Experiments) -> Finding:
    """Units come neither with those next to them nor again later, and none is favoured."""
    trace = longest_sampled(experiments)
    inside, chance = membership(trace)[1:], trace.variation.plan.sample_rate
    if len(inside) < 2 or not 0.0 < chance < 1.0:
        return Finding("sampling", "neighbours", True, "everybody is in every lot")
    steps, units = inside.shape
    beside = [together_p_value(inside.T, lag, chance) for lag in _shifts(units)]
    later = [together_p_value(inside, lag, chance) for lag in _LAGS if lag < steps]
    favoured = significance.spread_p_value(significance.count_scores(inside.sum(0), steps, chance))
    p_value = significance.corrected(
        [significance.corrected(beside), significance.corrected(later), favoured]
    )
    return Finding(
        "sampling",
        "neighbours",
        p_value > significance.LEVEL,
        f"over all pairs: units next to each other p = {min(beside):.2g}, units in later lots "
        f"p = {min(later):.2g}, units that are favoured p = {favoured:.2g}",
        (("p-value", p_value),),
    )


def by_data(experiments: Experiments) -> Finding:
    """Who is in a lot does not follow the sizes of gradients, nor what came of earlier lots.

    Half of the units have losses that are far smaller than the others'.
    """
    trace = experiments.counted if is_adaptive(experiments.plan) else faint(experiments)
    inside, chance = membership(trace.taken(2))[1:], trace.variation.plan.sample_rate
    norms = _norms(experiments, trace)
    order = np.argsort(norms)
    found = []
    for share in (2, 4):
        few = max(1, len(order) // share)
        for name, group in (("smallest", order[:few]), ("largest", order[-few:])):
            chosen = inside[:, group]
            p_value = significance.counts_p_value(int(chosen.sum()), chosen.size, chance)
            found.append((p_value, f"the {few} {name}", float(chosen.mean())))
    single = significance.corrected(
        [significance.counts_p_value(int(one.sum()), len(one), chance) for one in inside.T]
    )
    worst, name, rate = min(found)
    p_value = significance.corrected([min(1.0, worst * len(found)), single])
    return Finding(
        "sampling",
        "without the data",
        p_value > significance.LEVEL,
        f"units with {name} gradients are in {rate:.3f} of the lots, {chance:.3f} is claimed "
        f"(p = {p_value:.2g})",
        (("rate", rate), ("p-value", p_value)),
    )


def _drifts(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """How lots may change over a run: evenly, in the middle, and every other one."""
    time = np.linspace(-1.0, 1.0, len(scores))
    return np.stack([time, time * time - 1.0 / 3.0, 1.0 - 2.0 * (np.arange(len(scores)) % 2)])


def _shifts(units: int) -> list[int]:
    return [lag for lag in dict.fromkeys((1, 2, 3, units // 2)) if 0 < lag < units]


def _norms(experiments: Experiments, trace: Trace) -> NDArray[np.float64]:
    """The norm of every unit's gradient in a run at the first weights; 0 if it never came."""
    norms = np.zeros(trace.variation.records.count)
    for step in range(len(trace.steps)):
        if norms[trace.units_of(step)].all():
            continue
        for unit, gradient in experiments.oracle.of_step(trace, step).items():
            norms[unit] = float(gradient.norm())
    return norms
