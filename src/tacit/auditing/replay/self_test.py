"""The self-test itself: one engine, one setting, all checks, one report."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Literal, TypeAlias

from tacit._validation import positive
from tacit.auditing.replay.checklist import (
    CHECKS,
    CORRELATED_CHECKS,
    LOT_CHECKS,
    NOISE_CHECKS,
    QUICK_CHECKS,
    RANK_CHECKS,
    RELEASE_CHECKS,
    SUM_CHECKS,
    Check,
)
from tacit.auditing.replay.experiments import Experiments
from tacit.auditing.replay.laboratory import Laboratory
from tacit.auditing.replay.oracle import are_independent
from tacit.auditing.replay.recordings import full_products
from tacit.auditing.replay.report import Finding, Report
from tacit.auditing.replay.tacit_subject import TACIT
from tacit.auditing.replay.trace import Ended, one_line
from tacit.auditing.replay.watch import seeded
from tacit.errors import TacitError
from tacit.models.devices import device_named

if TYPE_CHECKING:
    import torch

    from tacit.auditing.replay.coverage import Tracer
    from tacit.auditing.replay.report import Component
    from tacit.auditing.replay.setting import Setting
    from tacit.auditing.replay.subject import Subject

# What says of a model that it mixes rows.
_ACCUSERS = (
    "tacit.training.verification",
    "tacit.training.clipping.structure",
    "tacit.training.clipping.rules.fallback",
)
Progress: TypeAlias = Callable[[int, int, str], None]
Scope: TypeAlias = Literal[
    "all", "release", "sums", "lots", "noise", "quick", "correlated", "ranks"
]
_CHECKS: dict[Scope, tuple[Check, ...]] = {
    "all": CHECKS, "release": RELEASE_CHECKS, "sums": SUM_CHECKS, "lots": LOT_CHECKS,
    "noise": NOISE_CHECKS, "quick": QUICK_CHECKS, "correlated": CORRELATED_CHECKS, "ranks": (),
}  # fmt: skip


def replay(
    setting: Setting,
    *,
    subject: Subject = TACIT,
    seconds: float = 120.0,
    progress: Progress | None = None,
    stop_at_first: bool = False,
    scope: Scope = "all",
    tracer: Tracer | None = None,
    device: torch.device | str = "cpu",
) -> Report:
    """Puts an engine to the test on a setting, and names the component that is at fault.

    Short runs of the engine are watched from outside, on the data and on neighbouring ones: what
    it reads, what its optimizer is given, how the parameters change, and what is in the ledger at
    the time.

    Args:
        setting: The model, loss, data and plan; a few dozen records of the data are used.
        subject: The engine; tacit itself if left out.
        seconds: No further check begins after this time; the report then says that it is not whole.
        progress: Called with the number of checks done, their total, and the name of the next.
        stop_at_first: Whether to end at the first fault.
        scope: ``"release"`` leaves out what no model has a part in: options and loops of one's own,
            several runs on a ledger, refusals, the plan's own small rate, and whether noise follows
            the sums. ``"sums"`` leaves out what does not depend on how sums are computed: the laws
            of noise and lots, charging, resuming, and what is published. ``"lots"`` looks at how
            records are read and how often they are drawn as well, ``"noise"`` at noise alone,
            ``"quick"`` at the first few sums, and ``"ranks"`` at several processes alone.
            ``"correlated"`` is what is claimed of a plan with correlated noise, whose scope is
            always that.
        tracer: Notes which lines of the engine the runs have executed.
        device: Where the engine trains, without TF32; the truth is computed on the CPU. On a GPU
            its steps are recorded and replayed (``Performance(capture=True)``), save where the
            setting forbids it.

    Raises:
        Exception: whatever the engine raises on the data as they are; a refusal is no fault, unless
            it blames a model for what plain autograd shows that it does not do.

    Guarantee:
        A correct engine is accused with probability at most 1e-5. What the report says was computed
        from the data without noise: it is as private as they are.
    """
    limit, place = positive("seconds", seconds), device_named(device)
    if place.type == "cuda" and setting.performance.capture is None:
        setting = replace(setting, performance=replace(setting.performance, capture=True))
    started = time.perf_counter()
    with (
        full_products(place),
        seeded(0),
        tempfile.TemporaryDirectory(prefix="tacit-replay-") as folder,
    ):
        lab = Laboratory(setting, subject, Path(folder), tracer, place)
        alone = Experiments(lab, min(subject.ranks), lots=scope != "noise")
        refusal = _refusal(alone)
        findings = [] if refusal is None else [refusal]
        plans = _plan(alone, subject, scope) if refusal is None else []
        whole = refusal is None
        passed: dict[object, bool] = {}
        for at, (check, experiments) in enumerate(plans):
            if time.perf_counter() - started > limit:
                whole = False
                break
            if progress is not None:
                progress(at, len(plans), check.name)
            if not all(passed.get(need, True) for need in check.needs):
                continue
            finding = _made(check, experiments)
            findings.append(finding)
            passed[check.make] = finding.passed
            if stop_at_first and not finding.passed:
                whole = False
                break
    if not any(ranks > 1 for ranks in subject.ranks):
        findings.append(Finding("ranks", "several", True, "one process only: nothing to check"))
    return Report(subject.name, tuple(findings), time.perf_counter() - started, whole)


def _made(check: Check, experiments: Experiments) -> Finding:
    """The finding of a check; a run that ended too early is one itself."""
    try:
        return check.make(experiments)
    except Ended as ended:
        component: Component = "resuming" if ended.resumed else "control flow"
        if experiments.ranks > 1:
            component = "ranks"
        return Finding(component, f"runs for {check.name}", False, str(ended))


def _refusal(alone: Experiments) -> Finding | None:
    """What the engine refuses though it should take it, by its first run; None if it takes it.

    Raises:
        Exception: what the engine raised, where that is no fault of its own.
    """
    error = alone.sum_of("as it is").error
    if error is None:
        return None
    finding = _fault(alone.lab, error)
    if finding is None:
        raise error
    return finding


def _fault(lab: Laboratory, error: Exception) -> Finding | None:
    """Whether the first run failed by the engine's own fault; None if by the user's, or unknown.

    A refusal of something that it has no rule for is none. But that rows are mixed, or that no loss
    depends on a parameter, is for the model to show by itself; and so is any error in passing.
    """
    frames = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    accused = not isinstance(error, TacitError) or frames[-1].startswith(_ACCUSERS)
    engine = any(name.startswith("tacit.training") for name in frames)
    if not (accused and engine and are_independent(lab)):
        return None
    return Finding(
        "gradients",
        "the user's model",
        False,
        "by plain autograd the model's rows are independent and all of its parameters are used, "
        f"but the engine ends with {one_line(error)}",
    )


def _plan(alone: Experiments, subject: Subject, scope: Scope) -> list[tuple[Check, Experiments]]:
    """Every check with the runs that it looks at."""
    if alone.plan.correlation is not None:
        scope = "correlated"
    found = [(check, alone) for check in _CHECKS[scope]]
    for ranks in subject.ranks:
        if ranks > alone.ranks and scope in ("all", "ranks"):
            together = Experiments(alone.lab, ranks)
            found.extend((check, together) for check in RANK_CHECKS)
    return found
