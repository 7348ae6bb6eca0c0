"""Statements: what is claimed of a run is what happened in it, however it ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit.auditing.replay import plans
from tacit.auditing.replay.checks.several_runs import begun
from tacit.auditing.replay.laboratory import DELTA
from tacit.auditing.replay.reference import is_noisy, least_epsilon
from tacit.auditing.replay.report import Finding
from tacit.auditing.replay.tacit_subject import left_behind, stopped_in_advance
from tacit.auditing.replay.trace import Variation, one_line
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tacit.auditing.replay.experiments import Experiments
    from tacit.auditing.replay.trace import Trace

_MOST_PLANS = 12  # whose least ε is asked for
_NOT_TACIT = "the engine makes no statements that are known here: nothing to check"


def every_run(experiments: Experiments) -> Finding:
    """Each statement has the plan, the δ, the steps and at least the ε of its own run."""
    wrong: list[str] = []
    count, known = 0, set[Plan]()
    for name, trace in experiments.every.items():
        told = _statement(trace)
        if told is None:
            continue
        count += 1
        wrong += [f"{name}: {what}" for what in _untrue(trace, told)]
        plan = trace.variation.plan
        if plan in known or len(known) < _MOST_PLANS:
            known.add(plan)
            wrong += [f"{name}: {what}" for what in _too_small(trace, told)]
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


def ended(experiments: Experiments) -> Finding:
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
    told, wrong = [], []
    for name, (variation, train, due) in runs.items():
        trace = experiments.once(f"crashed statement, {name}", variation, train)
        found = _statement(trace)
        if found is None:
            said = "no error" if trace.error is None else one_line(trace.error)
            wrong.append(f"{name}: no statement ({said})")
            continue
        least = least_epsilon(plan, due, DELTA)
        taken = len(trace.steps)
        told.append(f"{name} after {taken} steps: ε = {found['epsilon']:.6g}")
        if least is not None and found["epsilon"] < least * (1.0 - 1e-6) - 1e-6:
            wrong.append(f"{name}: ε = {found['epsilon']:.6g} is below {least:.6g}")
        if found["steps_taken"] != taken:
            wrong.append(f"{name}: {found['steps_taken']} steps are told, {taken} were taken")
        if found["steps_planned"] != plan.steps or (
            (due < plan.steps) and not found["stopped_early"]
        ):
            wrong.append(f"{name}: it does not say that it ended early")
        if trace.account is not None and trace.account.steps < begun(trace):
            wrong.append(f"{name}: {trace.account.steps} steps are charged")
    return Finding("charging", "statements of what ended", not wrong, "; ".join(wrong or told))


def _statement(trace: Trace) -> Mapping[str, Any] | None:
    if trace.outcome is None:
        return None
    told = trace.outcome.published.get("statement")
    return told if isinstance(told, dict) else None


def _untrue(trace: Trace, told: Mapping[str, Any]) -> list[str]:
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
        f"{name} is {told.get(name)!r}, not {value!r}"
        for name, value in expected.items()
        if told.get(name) != value
    ]


def _too_small(trace: Trace, told: Mapping[str, Any]) -> list[str]:
    plan = trace.variation.plan
    if not is_noisy(plan):
        return []
    due = plan.steps if told.get("steps_taken") != plan.steps else len(trace.steps)
    if trace.variation.stop_at is not None and trace.variation.save is None:
        due = trace.variation.stop_at  # fixed in advance
    least = least_epsilon(plan, due, DELTA)
    if least is None or told["epsilon"] >= least * (1.0 - 1e-6) - 1e-6:
        return []
    return [f"ε = {told['epsilon']:.6g} for {due} steps, which have at least {least:.6g}"]
