"""Charging: everything that is released is in the ledger before, at no less than it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.auditing.replay.feeding import Crash
from tacit.auditing.replay.laboratory import DELTA
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.reference import least_epsilon
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.trace import one_line

if TYPE_CHECKING:
    from tacit.auditing.replay.experiments import Experiments

NO_LEDGER = "the engine keeps no ledger: nothing to check"


def claim(experiments: Experiments) -> Finding:
    """The claimed ε, and the one in the ledger, are not below what a second accountant proves."""
    trace = experiments.charged.taken()
    assert trace.outcome is not None
    plan = trace.variation.plan
    least = least_epsilon(plan, plan.steps, DELTA)
    if least is None:
        return Finding("charging", "claim", True, "no second accountant for this sampling")
    claimed = [trace.outcome.epsilon]
    if trace.charged_epsilon is not None:
        claimed.append(trace.charged_epsilon)
    lowest = min(claimed)
    return Finding(
        "charging",
        "claim",
        lowest >= least * (1.0 - 1e-6) - 1e-6,
        f"ε = {lowest:.6g} is claimed for {plan.steps} steps at δ = {DELTA:g} under "
        f"{plan.adjacency}; a second accountant shows that it is at least {least:.6g}",
        (("claimed", lowest), ("least", least)),
    )


def other_claims(experiments: Experiments) -> Finding:
    """So are the ε claimed for many steps, and for rarer ones."""
    told, short = [], False
    # With an adaptive clip the count of a run of noise alone is as good as exact: ε is endless.
    many = () if is_adaptive(experiments.plan) else (experiments.noise,)
    for trace in (*many, experiments.sparse):
        plan = trace.taken().variation.plan
        least = least_epsilon(plan, len(trace.steps), DELTA)
        if trace.outcome is None or least is None:
            continue
        short = short or trace.outcome.epsilon < least * (1.0 - 1e-6) - 1e-6
        told.append(
            f"ε = {trace.outcome.epsilon:.6g} for {len(trace.steps)} steps at a rate of "
            f"{plan.sample_rate:.3g}, at least {least:.6g}"
        )
    return Finding("charging", "other claims", not short, "; ".join(told) or "nothing is claimed")


def before_release(experiments: Experiments) -> Finding:
    """Each step is in the ledger before its lot is read, and before its noise is released."""
    trace = experiments.charged
    if trace.charged is None:
        return Finding("charging", "before release", True, NO_LEDGER)
    late = [
        at + 1
        for at, step in enumerate(trace.steps)
        if (step.charged_at_read is not None and step.charged_at_read < at + 1)
        or (step.charged_at_step or 0) < at + 1
    ]
    return Finding(
        "charging",
        "before release",
        not late,
        f"all {len(trace.steps)} steps were in the ledger before their lot was read"
        if not late
        else f"{len(late)} of {len(trace.steps)} steps were read or released before they were in "
        f"the ledger, the first of them step {late[0]}",
        (("late", float(len(late))),),
    )


def every_step(experiments: Experiments) -> Finding:
    """The ledger holds as many steps as were taken."""
    trace = experiments.charged
    if trace.charged is None:
        return Finding("charging", "every step", True, NO_LEDGER)
    return Finding(
        "charging",
        "every step",
        trace.charged >= len(trace.steps),
        f"{len(trace.steps)} steps were taken, {trace.charged} are in the ledger",
        (("taken", float(len(trace.steps))), ("charged", float(trace.charged))),
    )


def crashed(experiments: Experiments) -> Finding:
    """A step that crashed after its data were read stays charged."""
    trace = experiments.crashed
    if trace.charged is None:
        return Finding("charging", "after a crash", True, NO_LEDGER)
    if not isinstance(trace.error, Crash):
        return Finding(
            "control flow", "errors", False, "an error raised by the loss did not end the run"
        )
    begun = len(trace.steps) + 1
    return Finding(
        "charging",
        "after a crash",
        trace.charged >= begun,
        f"a run crashed in step {begun}, whose data had been read; {trace.charged} steps are in "
        "the ledger",
        (("begun", float(begun)), ("charged", float(trace.charged))),
    )


def limit(experiments: Experiments) -> Finding:
    """A run that its budget does not cover is refused before anything is read or released."""
    trace = experiments.unaffordable
    if trace.charged is None:
        return Finding("charging", "limit", True, NO_LEDGER)
    return Finding(
        "charging",
        "limit",
        trace.error is not None and not trace.steps and not trace.reads,
        f"with a tenth of the budget that the run needs, {len(trace.reads)} records were read and "
        f"{len(trace.steps)} steps taken"
        + ("" if trace.error is None else f", then {one_line(trace.error)}"),
        (("steps", float(len(trace.steps))),),
    )
