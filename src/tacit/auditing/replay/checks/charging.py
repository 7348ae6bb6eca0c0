"""Charging: everything that is released is in the ledger before, at no less than it costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit.auditing.replay import plans
from tacit.auditing.replay.experiments import one_ledger, one_too_many
from tacit.auditing.replay.laboratory import DELTA
from tacit.auditing.replay.oracle import is_adaptive
from tacit.auditing.replay.reference import is_noisy, least_epsilon, least_together
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.tacit_subject import left_behind, stopped_in_advance
from tacit.auditing.replay.trace import Variation, one_line
from tacit.auditing.replay.watch import Crash
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

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
    claims, short = [], False
    # With an adaptive clip the count of a run of noise alone is as good as exact: ε is endless.
    many = () if is_adaptive(experiments.plan) else (experiments.noise,)
    for trace in (*many, experiments.sparse):
        plan = trace.taken().variation.plan
        least = least_epsilon(plan, len(trace.steps), DELTA)
        if trace.outcome is None or least is None:
            continue
        short = short or trace.outcome.epsilon < least * (1.0 - 1e-6) - 1e-6
        claims.append(
            f"ε = {trace.outcome.epsilon:.6g} for {len(trace.steps)} steps at a rate of "
            f"{plan.sample_rate:.3g}, at least {least:.6g}"
        )
    return Finding("charging", "other claims", not short, "; ".join(claims) or "nothing is claimed")


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


# ---- several runs: what is released adds up, whichever run released it


def steps_of_several_runs(experiments: Experiments) -> Finding:
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


def several_runs(experiments: Experiments) -> Finding:
    """The ε in the ledger after each run is at least that of all runs so far together."""
    runs = one_ledger(experiments)
    if runs[-1].charged_epsilon is None:
        return Finding("charging", "several runs", True, NO_LEDGER)
    short, found = "", []
    for count in range(2, len(runs) + 1):
        held, least = runs[count - 1].charged_epsilon, least_of(runs[:count])
        if held is None or least is None:
            return Finding("charging", "several runs", True, "no second accountant for these runs")
        found.append(f"{held:.6g} after {count} runs (at least {least:.6g})")
        if held < least * (1.0 - 1e-6) - 1e-6:
            short = short or f"; the first that is too small is that after {count} runs"
    return Finding(
        "charging",
        "several runs",
        not short,
        f"by the ledger ε = {', '.join(found)}, at δ = {DELTA:g}{short}",
        (("runs", float(len(runs))),),
    )


def pairs(experiments: Experiments) -> Finding:
    """ε and δ of the ledger are both no less than those of all that it holds together.

    Each run that takes a step is charged a pair (ε, δ) of its own, which must be true of that run;
    the sums of both are a bound for all runs, and no less than those may be reported or let pass.
    """
    all_runs = one_ledger(experiments)
    runs, account = [run for run in all_runs if run.steps], all_runs[-1].account
    if account is None:
        return Finding("charging", "pairs", True, NO_LEDGER)
    totals = [sum(pair[at] for pair in account.pairs) for at in range(2)]
    short = [
        name
        for name, held, total in zip(
            ("ε", "δ"), (account.epsilon, account.delta), totals, strict=True
        )
        if held < total * (1.0 - 1e-9)
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


def second_claim(experiments: Experiments) -> Finding:
    """The ε that a second run claims for itself is not below what its own steps have."""
    again = one_ledger(experiments)[1]
    least = least_of([again])
    if again.outcome is None or least is None:
        said = "no error" if again.error is None else one_line(again.error)
        return Finding("charging", "second claim", True, f"a second run claims nothing: {said}")
    claimed = again.outcome.epsilon
    return Finding(
        "charging",
        "second claim",
        claimed >= least * (1.0 - 1e-6) - 1e-6,
        f"a second run of the same plan claims ε = {claimed:.6g} for its own {len(again.steps)} "
        f"steps; it is at least {least:.6g}",
        (("claimed", claimed), ("least", least)),
    )


def limit_of_several_runs(experiments: Experiments) -> Finding:
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


# ---- statements: what is claimed of a run is what happened in it, however it ended


_MOST_PLANS = 12  # whose least ε is asked for
_NOT_TACIT = "the engine makes no statements that are known here: nothing to check"


def statements(experiments: Experiments) -> Finding:
    """Each statement has the plan, the δ, the steps and at least the ε of its own run."""
    wrong: list[str] = []
    count, known = 0, set[Plan]()
    for name, trace in experiments.every.items():
        stated = _statement(trace)
        if stated is None:
            continue
        count += 1
        wrong += [f"{name}: {what}" for what in _untrue(trace, stated)]
        plan = trace.variation.plan
        if plan in known or len(known) < _MOST_PLANS:
            known.add(plan)
            wrong += [f"{name}: {what}" for what in _too_small(trace, stated)]
    return Finding(
        "charging",
        "statements",
        not wrong,
        f"{count} statements are those of their runs"
        if not wrong
        else f"a statement is not that of its run: {wrong[0]}"
        + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""),
        (("statements", float(count)), ("wrong", float(len(wrong)))),
    )


def statements_of_what_ended(experiments: Experiments) -> Finding:
    """After a crash, and after an end that was fixed in advance, no less is claimed than is due.

    A crash may have come of what was released, so that the whole plan counts.
    """
    if not experiments.is_tacit:
        return Finding("charging", "statements of what ended", True, _NOT_TACIT)
    plan = plans.sampled(experiments.plan, experiments.many, steps=8)
    whole = Variation(plan=plan, records=experiments.many)
    runs = {
        "crashed": (replace(whole, crash_at=3), left_behind, plan.steps),
        "crashed on a ledger": (
            replace(whole, crash_at=2, ledger="left behind", lease="auto"), left_behind, plan.steps,
        ),
        "ended in advance": (replace(whole, stop_at=3), stopped_in_advance, 3),
    }  # fmt: skip
    claims, wrong = [], []
    for name, (variation, train, due) in runs.items():
        trace = experiments.once(f"crashed statement, {name}", variation, train)
        found = _statement(trace)
        if found is None:
            said = "no error" if trace.error is None else one_line(trace.error)
            wrong.append(f"{name}: no statement ({said})")
            continue
        least = least_epsilon(plan, due, DELTA)
        taken = len(trace.steps)
        claims.append(f"{name} after {taken} steps: ε = {found['epsilon']:.6g}")
        if least is not None and found["epsilon"] < least * (1.0 - 1e-6) - 1e-6:
            wrong.append(f"{name}: ε = {found['epsilon']:.6g} is below {least:.6g}")
        if found["steps_taken"] != taken:
            wrong.append(f"{name}: {found['steps_taken']} steps are stated, {taken} were taken")
        if found["steps_planned"] != plan.steps or (
            (due < plan.steps) and not found["stopped_early"]
        ):
            wrong.append(f"{name}: it does not say that it ended early")
        if trace.account is not None and trace.account.steps < begun(trace):
            wrong.append(f"{name}: {trace.account.steps} steps are charged")
    return Finding("charging", "statements of what ended", not wrong, "; ".join(wrong or claims))


def _statement(trace: Trace) -> Mapping[str, Any] | None:
    if trace.outcome is None:
        return None
    stated = trace.outcome.published.get("statement")
    return stated if isinstance(stated, dict) else None


def _untrue(trace: Trace, stated: Mapping[str, Any]) -> list[str]:
    """What a statement says otherwise than it was."""
    plan, variation = trace.variation.plan, trace.variation
    expected = {
        "delta": DELTA,
        "adjacency": plan.adjacency,
        "unit": plan.unit,
        "plan": plan.as_dict(),
        "steps_planned": plan.steps,
    }
    if variation.resume is None:
        expected["steps_taken"] = len(trace.steps)
    return [
        f"{name} is {stated.get(name)!r}, not {value!r}"
        for name, value in expected.items()
        if stated.get(name) != value
    ]


def _too_small(trace: Trace, stated: Mapping[str, Any]) -> list[str]:
    plan = trace.variation.plan
    if not is_noisy(plan):
        return []
    due = plan.steps if stated.get("steps_taken") != plan.steps else len(trace.steps)
    if trace.variation.stop_at is not None and trace.variation.save is None:
        due = trace.variation.stop_at  # fixed in advance
    least = least_epsilon(plan, due, DELTA)
    if least is None or stated["epsilon"] >= least * (1.0 - 1e-6) - 1e-6:
        return []
    return [f"ε = {stated['epsilon']:.6g} for {due} steps, which have at least {least:.6g}"]
