"""Ranks: several processes together do what one does alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.gradients import distance
from tacit.auditing.replay.checks.joint_noise import lengths_p_value, links_p_value
from tacit.auditing.replay.checks.noise import columns_of, membership, standardised
from tacit.auditing.replay.checks.sampling import empty_lots, independence, neighbours, steady
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    import torch

    from tacit.auditing.replay.experiments import Experiments


def sums(experiments: Experiments) -> Finding:
    """The sum over several ranks is that of each unit once."""
    worst = (-1.0, 0.0)
    for name, scale in (
        ("unclipped", experiments.loose),
        ("half clipped", experiments.mixed),
        ("all clipped", experiments.tight),
    ):
        trace = experiments.sum_of(name, scale=scale)
        if trace.error is not None or not trace.steps:
            return _ended("sums", trace.error)
        off, limit, _ = distance(experiments, trace)
        worst = max(worst, (off / limit, off))
    excess, off = worst
    return Finding(
        "ranks",
        "sums",
        excess <= 1.0,
        f"on {experiments.ranks} ranks the sum is {off:.3g} from that of its units "
        f"({excess:.3g} of what rounding explains)",
        (("off", off), ("excess", excess)),
    )


def lots(experiments: Experiments) -> Finding:
    """Sampled lots are summed and divided as in one process, and each unit is read once."""
    trace = experiments.lots
    if is_adaptive(trace.variation.plan):
        return Finding("ranks", "lots", True, "the clip moves: sums are not known well enough")
    if trace.error is not None or len(trace.steps) != trace.variation.plan.steps:
        return _ended("lots", trace.error)
    excess, doubled = 0.0, 0
    for step in trace.settled:
        off, limit, _ = distance(experiments, trace, step)
        excess = max(excess, off / limit)
        places = [trace.reads[row].place for row in trace.steps[step].rows]
        doubled += len(places) - len(set(places)) if experiments.plan.views == 1 else 0
    chance = trace.variation.plan.sample_rate
    inside = membership(trace)[1:]
    p_value = significance.counts_p_value(int(inside.sum()), inside.size, chance)
    return Finding(
        "ranks",
        "lots",
        excess <= 1.0 and p_value > significance.LEVEL,
        f"on {experiments.ranks} ranks the sums of sampled lots are {excess:.3g} of what rounding "
        f"explains from those of their units; {doubled} examples were read by two ranks; units "
        f"are in {inside.mean():.3f} of the lots, {chance:.3f} is claimed (p = {p_value:.2g})",
        (("excess", excess), ("doubled", float(doubled)), ("p-value", p_value)),
    )


def noise(experiments: Experiments) -> Finding:
    """The noise of all ranks together is that of one process."""
    trace = experiments.noise
    if trace.error is not None or not trace.steps:
        return _ended("noise", trace.error)
    values = standardised(trace)
    ratio = float(np.sqrt(np.square(values).mean()))
    columns = values[:, columns_of(experiments)]
    again = significance.cosines_p_value(columns)
    lab = experiments.lab
    p_value = significance.corrected(
        [
            significance.variance_p_value(values.ravel()),
            again,
            lengths_p_value(values, lab.sizes, lab.names)[0],
            links_p_value(values)[0],
        ]
    )
    return Finding(
        "ranks",
        "noise",
        p_value > significance.LEVEL,
        f"on {experiments.ranks} ranks the noise is {ratio:.4f} of the claimed (p = {p_value:.2g})",
        (("ratio", ratio), ("p-value", p_value)),
    )


def small_lots(experiments: Experiments) -> Finding:
    """Ranks whose part of a lot is empty add their noise all the same."""
    return _renamed(empty_lots(experiments), "empty lots")


def sampling(experiments: Experiments) -> Finding:
    """Units of different ranks come independently of each other."""
    found = [independence(experiments), steady(experiments), neighbours(experiments)]
    worst = next((one for one in found if not one.passed), found[-1])
    return _renamed(worst, "sampling")


def _renamed(finding: Finding, check: str) -> Finding:
    return Finding("ranks", check, finding.passed, finding.evidence, finding.numbers)


def in_step(experiments: Experiments) -> Finding:
    """All ranks' optimizers are given the same gradients."""
    trace = experiments.lots
    worst = 0.0
    for other in trace.other_ranks:
        if len(other) != len(trace.steps):
            return Finding(
                "ranks",
                "in step",
                False,
                f"one rank took {len(trace.steps)} steps and another {len(other)}",
            )
        worst = max(
            [
                worst,
                *(
                    _relative(step.gradient, seen)
                    for step, seen in zip(trace.steps, other, strict=False)
                ),
            ]
        )
    seen = len(trace.other_ranks)
    return Finding(
        "ranks",
        "in step",
        worst <= 1e-6,
        f"{seen} other ranks were seen; their gradients differ by {worst:.3g}",
        (("off", worst),),
    )


def _relative(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / one.norm().clamp_min(1e-30))


def _ended(check: str, error: Exception | None) -> Finding:
    said = "too few steps" if error is None else f"{type(error).__name__}: {error}"
    return Finding("ranks", check, False, f"a run on several ranks ended with {said}"[:300])
