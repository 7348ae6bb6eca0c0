"""Resuming: a run goes on where it was, with new draws, and is charged for all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.charging import begun, in_time, least_of
from tacit.auditing.replay.checks.noise import columns_of, membership, standardised
from tacit.auditing.replay.checks.update import replayed
from tacit.auditing.replay.experiments import broken_off_on_a_ledger, kept, strayed
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.trace import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

CANNOT = "the engine cannot resume: nothing to check"
_SAME = 1e-5


def fresh(experiments: Experiments) -> Finding:
    """Neither noise nor lots come again after resuming, nor in a second resumption."""
    if not experiments.lab.subject.resumes:
        return Finding("resuming", "drawn afresh", True, CANNOT)
    runs = [experiments.broken_off(), *_after(experiments)]
    columns = columns_of(experiments)
    pairs = [(one, other) for at, one in enumerate(runs) for other in runs[at + 1 :]]
    noises = significance.corrected(
        [
            significance.cosines_p_value(
                standardised(one)[:, columns], standardised(other)[:, columns]
            )
            for one, other in pairs
        ]
    )
    chance = runs[0].variation.plan.sample_rate
    lots = significance.corrected(
        [
            significance.same_rows_p_value(membership(one)[1:], membership(other)[1:], chance)
            for one, other in pairs
        ]
    )
    p_value = significance.corrected([noises, lots])
    return Finding(
        "resuming",
        "drawn afresh",
        p_value > significance.LEVEL,
        f"of {len(runs)} parts of a run, the most similar steps have p = {noises:.2g}, the lots "
        f"that come again p = {lots:.2g}",
        (("noise", noises), ("lots", lots)),
    )


def as_before(experiments: Experiments) -> Finding:
    """After resuming, lots are drawn at the plan's rate and noise has the claimed size."""
    if not experiments.lab.subject.resumes:
        return Finding("resuming", "as before", True, CANNOT)
    runs = _after(experiments)
    inside = np.concatenate([membership(run)[1:] for run in runs])
    chance = runs[0].variation.plan.sample_rate
    p_values = [significance.counts_p_value(int(inside.sum()), inside.size, chance)]
    if is_adaptive(experiments.plan):
        first, second = experiments.parts_of_a_known_clip
        noise = standardised(second, len(first.steps))
    else:
        noise = np.concatenate([standardised(run) for run in runs])
    p_values += [significance.variance_p_value(noise), significance.variances_p_value(noise.T)]
    noise_note = f"the noise is {float(np.sqrt(np.square(noise).mean())):.3f} of the claimed"
    p_value = significance.corrected(p_values)
    return Finding(
        "resuming",
        "as before",
        p_value > significance.LEVEL,
        f"in {len(inside)} lots after resuming units are in {inside.mean():.3f} of them, "
        f"{chance:.3f} is claimed; {noise_note} (p = {p_value:.2g})",
        (("found", float(inside.mean())), ("p-value", p_value)),
    )


def goes_on(experiments: Experiments) -> Finding:
    """Parameters, optimizer and the count of steps go on where they were."""
    if not experiments.lab.subject.resumes:
        return Finding("resuming", "goes on", True, CANNOT)
    first = experiments.broken_off()
    planned = first.variation.plan.steps
    worst: tuple[float, str] = (0.0, "")
    for second in (experiments.resumed(), kept(experiments)[0]):
        if second.error is not None:
            said = f"{type(second.error).__name__}: {second.error}".splitlines()[0][:160]
            return Finding("resuming", "goes on", False, f"resuming ended with {said}")
        worst = max(worst, replayed(experiments.lab, (first, second)))
        taken = len(first.steps) + len(second.steps)
        if taken != planned or worst[0] > _SAME:
            break
    off, where = worst
    return Finding(
        "resuming",
        "goes on",
        off <= _SAME and taken == planned,
        f"{len(first.steps)} steps before and {len(second.steps)} after make {taken} of {planned}; "
        f"replaying all of them in one leads to parameters {off:.2g} away{where}",
        (("off", off), ("taken", float(taken))),
    )


def charged(experiments: Experiments) -> Finding:
    """Over a run, a resumption that crashes and a second one, nothing uncharged is released."""
    subject = experiments.lab.subject
    if not (subject.resumes and subject.keeps_ledger):
        return Finding("resuming", "charged", True, "no ledger, or no resuming: nothing to check")
    runs = broken_off_on_a_ledger(experiments)
    due, late = in_time(runs)
    held = runs[-1].charged or 0
    return Finding(
        "resuming",
        "charged",
        not late,
        f"a run, a resumption that crashed and a second one began {due} steps, and {held} are in "
        f"the ledger; {late} times it held too few",
        (("begun", float(due)), ("charged", float(held)), ("late", float(late))),
    )


def _after(experiments: Experiments) -> list[Trace]:
    """What came of one checkpoint, resumed three times."""
    runs = experiments.resumed(), experiments.resumed_again(), kept(experiments)[0]
    return [run for run in runs if len(run.steps) > 1]


# ---- what is claimed of a resumed run: the ε of all its steps, also of those before the checkpoint


def claimed(experiments: Experiments) -> Finding:
    """A run that was left, and one that goes on, claim no less than all their steps have."""
    if not experiments.lab.subject.resumes:
        return Finding("resuming", "claim", True, CANNOT)
    first = experiments.broken_off()
    chains = [
        ("left in the middle", [first]),
        ("resumed", [first, experiments.resumed()]),
        ("resumed and saved", [first, kept(experiments)[0]]),
        ("resumed at its end", [first, *kept(experiments)]),
    ]
    return _judged("claim", chains)


def in_ledger(experiments: Experiments) -> Finding:
    """The ledger's ε covers a run, a resumption that crashed and a second one, all together."""
    subject = experiments.lab.subject
    if not (subject.resumes and subject.keeps_ledger):
        return Finding("resuming", "in the ledger", True, "no ledger, or no resuming")
    runs = broken_off_on_a_ledger(experiments)
    claims, short = [], False
    for count, run in enumerate(runs, 1):
        least, held = least_of(runs[:count]), run.charged_epsilon or 0.0
        if least is None:
            said = "no second accountant for this sampling"
            return Finding("resuming", "in the ledger", True, said)
        claims.append(f"ε = {held:.6g}, at least {least:.6g}")
        short = short or held < least * (1.0 - 1e-6) - 1e-6
    return Finding(
        "resuming",
        "in the ledger",
        not short,
        f"after a run, a resumption that crashed and a second one: {'; '.join(claims)}",
    )


def strays(experiments: Experiments) -> Finding:
    """A checkpoint goes on neither by another plan at its old price, nor on a ledger without it."""
    subject = experiments.lab.subject
    if not subject.resumes:
        return Finding("resuming", "strays", True, CANNOT)
    changed, elsewhere = strayed(experiments)
    finding = _judged("another plan", [("by another plan", [experiments.broken_off(), changed])])
    if not finding.passed or not subject.keeps_ledger:
        return finding
    free = begun(elsewhere) - (elsewhere.charged or 0)
    said = "refused" if elsewhere.error is not None else f"{len(elsewhere.steps)} steps taken"
    return Finding(
        "resuming",
        "strays",
        free <= 0,
        f"{finding.evidence}; on another ledger: {said}, {elsewhere.charged} of them charged",
        (("steps", float(len(elsewhere.steps))), ("charged", float(elsewhere.charged or 0))),
    )


def _judged(check: str, chains: Sequence[tuple[str, Sequence[Trace]]]) -> Finding:
    """Whether the last run of each chain claims what all of its runs have."""
    claims, short = [], False
    for name, runs in chains:
        last, least = runs[-1], least_of(runs)
        if last.outcome is None or least is None:
            said = "nothing" if last.error is None else one_line(last.error)
            claims.append(f"{name}: {said}")
            continue
        claims.append(f"{name}: ε = {last.outcome.epsilon:.6g}, at least {least:.6g}")
        short = short or last.outcome.epsilon < least * (1.0 - 1e-6) - 1e-6
    return Finding("resuming", check, not short, "; ".join(claims))
