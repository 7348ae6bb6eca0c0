"""What is told of a resumed run: the ε of all its steps, those before the checkpoint among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.auditing.replay.checks.resuming import CANNOT
from tacit.auditing.replay.checks.several_runs import begun, least_of
from tacit.auditing.replay.ledger_runs import broken_off_on_a_ledger, kept, strayed
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.trace import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace


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
    told, short = [], False
    for count, run in enumerate(runs, 1):
        least, held = least_of(runs[:count]), run.charged_epsilon or 0.0
        if least is None:
            said = "no second accountant for this sampling"
            return Finding("resuming", "in the ledger", True, said)
        told.append(f"ε = {held:.6g}, at least {least:.6g}")
        short = short or held < least * (1.0 - 1e-6) - 1e-6
    return Finding(
        "resuming",
        "in the ledger",
        not short,
        f"after a run, a resumption that crashed and a second one: {'; '.join(told)}",
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
    told, short = [], False
    for name, runs in chains:
        last, least = runs[-1], least_of(runs)
        if last.outcome is None or least is None:
            said = "nothing" if last.error is None else one_line(last.error)
            told.append(f"{name}: {said}")
            continue
        told.append(f"{name}: ε = {last.outcome.epsilon:.6g}, at least {least:.6g}")
        short = short or last.outcome.epsilon < least * (1.0 - 1e-6) - 1e-6
    return Finding("resuming", check, not short, "; ".join(told))
