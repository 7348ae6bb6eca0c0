"""Parts of the engine by themselves, where no model is needed.

These are the laws of random numbers, the ledger's rules, what a plan promises and what a statement
proves: they are tested once, beside all settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr
from typing import TYPE_CHECKING, TypeAlias

from tacit.auditing.replay.part_checks import (
    layers,
    ledger_rules,
    random_numbers,
    ranks,
    refusals,
    sessions,
    statements,
    strategies,
    ways,
)
from tacit.auditing.replay.report import Finding, Report
from tacit.auditing.replay.tacit_subject import Screen
from tacit.training.performance import Performance
from tacit.training.progress import counting

if TYPE_CHECKING:
    from tacit.auditing.replay.coverage import Tracer
    from tacit.auditing.replay.report import Component

Part: TypeAlias = Callable[[], Finding]


def replay_parts(tracer: Tracer | None = None, only: Part | None = None) -> Report:
    """Tests what needs no model, all of it or ``only`` one of ``PARTS``.

    Guarantee:
        A correct engine is accused with probability at most 1e-5.

    >>> replay_parts(only=next(iter(PARTS))).passed
    True
    """
    started = time.perf_counter()
    findings = []
    for part, component in PARTS.items():
        if only not in (None, part):
            continue
        try:
            with tracer or nullcontext():
                findings.append(part())
        except Exception as error:  # what raises here is no refusal of anything of a user's
            said = f"it ended with {type(error).__name__}: {error}"[:300]
            findings.append(Finding(component, part.__name__, False, said))
    return Report("tacit", tuple(findings), time.perf_counter() - started)


def shown() -> Finding:
    """What is shown of work that goes on is how much is done, and nothing else."""
    screens = []
    for wanted, terminal in ((None, True), (True, False), (None, False), (False, True)):
        screen = Screen(terminal=terminal)
        with redirect_stderr(screen), counting(wanted, "lots", total=20, done=2) as show:
            for done in range(3, 21):
                show(done)
        screens.append(screen.getvalue())
    paces = [Performance(batch=8, workers=0, lease=2), Performance()]
    lines, silent = screens[1].splitlines(), not screens[2] and not screens[3]
    right = silent and bool(screens[0]) and lines[-1] == "lots: 20 of 20" and len(lines) <= 10
    right = right and [pace.batch for pace in paces] == [8, "auto"]
    said = f"{len(lines)} lines in a file, the last of which is {lines[-1]!r}"
    return Finding("control flow", "shown", right, said)


PARTS: dict[Part, Component] = {
    random_numbers.bits: "noise", random_numbers.key_streams: "noise",
    random_numbers.inclusion: "sampling", random_numbers.groups: "sampling",
    random_numbers.choices: "sampling", random_numbers.gaussian: "noise",
    random_numbers.whole_numbers: "noise", random_numbers.grids: "noise",
    random_numbers.edge_draws: "noise", random_numbers.counts: "noise",
    random_numbers.ties: "sampling",
    ledger_rules.basic: "charging", ledger_rules.filters: "charging",
    ledger_rules.lost: "charging", ledger_rules.guarantees: "charging",
    ledger_rules.forked: "charging", ledger_rules.unbegun: "charging",
    statements.promises: "charging", statements.proofs: "charging",
    statements.additions: "charging", statements.signatures: "charging",
    layers.batch_norm: "gradients", layers.once: "clipping", layers.uses: "clipping",
    layers.positions: "clipping",
    layers.repeated: "clipping", layers.empty: "clipping", layers.whole_steps: "clipping",
    layers.accuracies: "control flow",
    sessions.chance: "control flow", sessions.batches: "control flow",
    sessions.facts: "control flow", sessions.arithmetic: "update", sessions.kept: "resuming",
    sessions.seeds: "charging", sessions.turns: "resuming", sessions.metrics: "control flow",
    strategies.mixtures: "noise", strategies.lost: "noise", strategies.forgotten: "noise",
    strategies.sensitivities: "charging", strategies.bands: "charging",
    ways.epochs: "sampling", ways.released: "update", ways.recorded: "control flow",
    ways.unrecorded: "control flow",
    ranks.replicas: "ranks", ranks.pieces: "ranks", ranks.one_piece: "ranks",
    ranks.mixed: "ranks", ranks.charged: "ranks", ranks.refused: "ranks", ranks.same_data: "ranks",
    shown: "control flow", refusals.forbidden_runs: "control flow",
    refusals.forked_runs: "control flow",
    refusals.forbidden_values: "control flow", refusals.forbidden_statements: "control flow",
    refusals.forbidden_charges: "control flow", refusals.forbidden_files: "control flow",
}  # fmt: skip
