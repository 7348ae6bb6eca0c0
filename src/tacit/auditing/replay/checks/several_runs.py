"""Charging over several runs: what is released adds up, whichever run released it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.auditing.replay.checks.charging import NO_LEDGER
from tacit.auditing.replay.feeding import Crash
from tacit.auditing.replay.laboratory import DELTA
from tacit.auditing.replay.ledger_runs import one_ledger, one_too_many
from tacit.auditing.replay.reference import least_together
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.trace import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace


def steps(experiments: Experiments) -> Finding:
    """A run, the same again, and two that crash: each step is charged before it is read."""
    runs = one_ledger(experiments)
    if runs[-1].charged is None:
        return Finding("charging", "steps of several runs", True, NO_LEDGER)
    due, late = in_time(runs)
    return Finding(
        "charging",
        "steps of several runs",
        not late,
        f"{due} steps were begun in {len(runs)} runs on one ledger, which holds "
        f"{runs[-1].charged} in the end; {late} times it held too few",
        (("begun", float(due)), ("charged", float(runs[-1].charged)), ("late", float(late))),
    )


def sums(experiments: Experiments) -> Finding:
    """The ε in the ledger after each run is at least that of all runs so far together."""
    runs = one_ledger(experiments)
    if runs[-1].charged_epsilon is None:
        return Finding("charging", "several runs", True, NO_LEDGER)
    short, told = "", []
    for count in range(2, len(runs) + 1):
        held, least = runs[count - 1].charged_epsilon, least_of(runs[:count])
        if held is None or least is None:
            return Finding("charging", "several runs", True, "no second accountant for these runs")
        told.append(f"{held:.6g} after {count} runs (at least {least:.6g})")
        if held < least * (1.0 - 1e-6) - 1e-6:
            short = short or f"; the first that is too small is that after {count} runs"
    return Finding(
        "charging",
        "several runs",
        not short,
        f"by the ledger ε = {', '.join(told)}, at δ = {DELTA:g}{short}",
        (("runs", float(len(runs))),),
    )


def pairs(experiments: Experiments) -> Finding:
    """ε and δ of the ledger are both no less than those of all that it holds together.

    Each run that takes a step is charged a pair (ε, δ) of its own, which must be true of that run;
    the sums of both are a bound for all runs, and no less than those sums may be told or let pass.
    """
    all_runs = one_ledger(experiments)
    runs, account = [run for run in all_runs if run.steps], all_runs[-1].account
    if account is None:
        return Finding("charging", "pairs", True, NO_LEDGER)
    totals = [sum(pair[at] for pair in account.pairs) for at in range(2)]
    short = [
        name
        for name, told, total in zip(
            ("ε", "δ"), (account.epsilon, account.delta), totals, strict=True
        )
        if told < total * (1.0 - 1e-9)
    ]
    if account.delta > DELTA * (1.0 + 1e-9):
        short.append("δ, which is above the budget's,")
    for (epsilon, delta), run in zip(account.pairs, runs, strict=False):
        plan = run.variation.plan
        least = least_together([(plan, plan.steps)], delta) if delta > 0.0 else math.inf
        if least is not None and epsilon < least * (1.0 - 1e-6) - 1e-6:
            short.append(f"a run's ε = {epsilon:.6g} at δ = {delta:.3g} (at least {least:.6g})")
    return Finding(
        "charging",
        "pairs",
        len(account.pairs) >= len(runs) and not short,
        f"after {len(runs)} runs the ledger holds {len(account.pairs)} pairs, in all "
        f"ε = {totals[0]:.6g} and δ = {totals[1]:.3g}, and tells ε = {account.epsilon:.6g} and "
        f"δ = {account.delta:.3g}" + (f"; too small: {', '.join(short)}" if short else ""),
        (("epsilon", account.epsilon), ("delta", account.delta)),
    )


def claims(experiments: Experiments) -> Finding:
    """The ε that a second run claims for itself is not below what its own steps have."""
    again = one_ledger(experiments)[1]
    least = least_of([again])
    if again.outcome is None or least is None:
        said = "no error" if again.error is None else one_line(again.error)
        return Finding("charging", "second claim", True, f"a second run claims nothing: {said}")
    told = again.outcome.epsilon
    return Finding(
        "charging",
        "second claim",
        told >= least * (1.0 - 1e-6) - 1e-6,
        f"a second run of the same plan claims ε = {told:.6g} for its own {len(again.steps)} "
        f"steps; it is at least {least:.6g}",
        (("claimed", told), ("least", least)),
    )


def limit(experiments: Experiments) -> Finding:
    """A second run that the rest of a budget does not cover is refused before it reads anything."""
    pair = one_too_many(experiments)
    if pair is None:
        said = NO_LEDGER if experiments.charged.charged is None else "no budget is between the two"
        return Finding("charging", "limit of several runs", True, said)
    first, second = pair
    ran = first.error is None and len(first.steps) == first.variation.plan.steps
    refused = second.error is not None and not second.steps and not second.reads
    said = "no error" if second.error is None else one_line(second.error)
    return Finding(
        "charging",
        "limit of several runs",
        refused or not ran,
        f"with ε = {first.variation.limit:.4g}, too little for two runs, the first took "
        f"{len(first.steps)} steps; the second read {len(second.reads)} records and took "
        f"{len(second.steps)} steps ({said})",
        (("steps", float(len(second.steps))), ("reads", float(len(second.reads)))),
    )


def in_time(runs: Sequence[Trace]) -> tuple[int, int]:
    """How many steps were begun in runs on one ledger, and how often it held fewer than were due.

    It is looked at when a lot is read, when its sum is released, and when a run is over.
    """
    due, late = 0, 0
    for run in runs:
        for step in run.steps:
            due += 1
            seen = [step.charged_at_step, step.charged_at_read]
            late += any(count is not None and count < due for count in seen)
        due += begun(run) - len(run.steps)
        late += run.charged is not None and run.charged < due
    return due, late


def begun(run: Trace) -> int:
    """The steps of a run whose data were read, the last of which may not have ended.

    An engine may rehearse: of a run that crashed with its first loss, nothing needs to be charged.
    """
    return len(run.steps) + (isinstance(run.error, Crash) and bool(run.steps))


def least_of(runs: Sequence[Trace]) -> float | None:
    """The least ε of all steps that some runs released."""
    return least_together([(run.variation.plan, len(run.steps)) for run in runs], DELTA)
