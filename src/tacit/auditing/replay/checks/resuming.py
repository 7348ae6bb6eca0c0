"""Resuming: a run that goes on draws anew, goes on where it was, and is charged for all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.auditing.replay import significance
from tacit.auditing.replay.checks.noise import columns_of, membership, standardised
from tacit.auditing.replay.checks.update import replayed
from tacit.auditing.replay.report import Finding

if TYPE_CHECKING:
    from tacit.auditing.replay.experiments import Experiments

_CANNOT = "the engine cannot resume: nothing to check"
_SAME = 1e-5


def anew(experiments: Experiments) -> Finding:
    """Neither noise nor lots come again after resuming, nor in a second resumption."""
    if not experiments.lab.subject.resumes:
        return Finding("resuming", "drawn anew", True, _CANNOT)
    runs = [experiments.broken_off(), experiments.resumed(), experiments.resumed_again()]
    columns = columns_of(experiments)
    noises = [standardised(run)[:, columns] for run in runs if run.steps]
    p_value = significance.corrected(
        [
            significance.cosines_p_value(one, other)
            for at, one in enumerate(noises)
            for other in noises[at + 1 :]
        ]
    )
    lots = [membership(run)[1:] for run in runs]
    again = sum(
        len(one) > 0 and len(one) == len(other) and bool((one == other).all())
        for at, one in enumerate(lots)
        for other in lots[at + 1 :]
        if not one.all()
    )
    return Finding(
        "resuming",
        "drawn anew",
        p_value > significance.LEVEL and not again,
        f"the most similar steps before and after have p = {p_value:.2g}; the lots came again in "
        f"{again} of {len(runs)} pairs of runs",
        (("p-value", p_value), ("again", float(again))),
    )


def goes_on(experiments: Experiments) -> Finding:
    """Parameters, optimizer and the count of steps go on where they were."""
    if not experiments.lab.subject.resumes:
        return Finding("resuming", "goes on", True, _CANNOT)
    first, second = experiments.broken_off(), experiments.resumed()
    if second.error is not None:
        said = f"{type(second.error).__name__}: {second.error}".splitlines()[0][:160]
        return Finding("resuming", "goes on", False, f"resuming ended with {said}")
    planned = first.variation.plan.steps
    off, where = replayed(experiments.lab, (first, second))
    taken = len(first.steps) + len(second.steps)
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
    parts = experiments.broken_off, experiments.resumed, experiments.resumed_again
    runs = [part("resumed") for part in parts]
    assert runs[-1].charged is not None
    taken = sum(len(run.steps) for run in runs)
    return Finding(
        "resuming",
        "charged",
        runs[-1].charged >= taken,
        f"a run, a resumption that crashed and a second one took {taken} steps; "
        f"{runs[-1].charged} are in the ledger",
        (("taken", float(taken)), ("charged", float(runs[-1].charged))),
    )
