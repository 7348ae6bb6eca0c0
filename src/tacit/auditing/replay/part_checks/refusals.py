"""What must be refused, all of it; one finding for each kind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.auditing.replay.forbidden import arguments, changes, data, models, order
from tacit.auditing.replay.forbidden.charges import charged_runs, charges, ledger
from tacit.auditing.replay.forbidden.checkpoints import files
from tacit.auditing.replay.forbidden.small_run import Small, tried
from tacit.auditing.replay.forbidden.statements import statements
from tacit.auditing.replay.report import Finding
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.auditing.replay.forbidden.small_run import Attempts


def forbidden_runs() -> Finding:
    """Changes by others, mixed rows, wrong data, and calls out of order are refused."""
    wrong: list[str] = []
    for name, honest in order.HONEST.items():
        try:
            honest()
        except TacitError as error:
            wrong.append(f"{name} is refused: {error}")
    return _finding("forbidden runs", [*wrong, *let_pass(runs())])


def runs() -> Attempts:
    """Every run that is tried, by name."""
    return {
        **changes.changes(), **models.MODELS, **models.LOSSES, **data.DATA, **data.HELD,
        **order.ORDER,
    }  # fmt: skip


def forked_runs() -> Finding:
    """A forked child neither goes on with its parent's session nor ends it, whenever it forks."""
    moments = ("in a batch", "before a step", "between lots")
    attempts = {
        f"a fork {moment}": Small(moment=moment, act=order.in_forked_child) for moment in moments
    }
    return _finding("forked runs", let_pass(attempts))


def forbidden_values() -> Finding:
    """Arguments out of range and copied noise are refused."""
    attempts = {
        **arguments.plans(), **arguments.styles(), **arguments.noise(), **arguments.models(),
        **arguments.correlations(),
    }  # fmt: skip
    return _finding("forbidden values", let_pass(attempts))


def forbidden_statements() -> Finding:
    """Statements that say less than what happened, or make no sense, are refused."""
    return _finding("forbidden statements", let_pass(statements()))


def forbidden_charges() -> Finding:
    """Charges beyond a budget, names alike, and runs in the wrong budget are refused."""
    with ledger() as books, tempfile.TemporaryDirectory() as folder:
        attempts = {**charges(books), **charged_runs(books, Path(folder))}
        return _finding("forbidden charges", let_pass(attempts))


def forbidden_files() -> Finding:
    """Checkpoints that are damaged, forged or of another run are refused."""
    with tempfile.TemporaryDirectory(prefix="tacit-parts-") as folder:
        return _finding("forbidden files", let_pass(files(Path(folder))))


def let_pass(attempts: Attempts) -> list[str]:
    """What is not refused, in words; nothing for a right engine."""
    return [said for name, attempt in attempts.items() for said in tried(name, attempt)]


def _finding(check: str, wrong: list[str]) -> Finding:
    said = "; ".join(wrong[:6]) or "all of them are refused"
    return Finding("control flow", check, not wrong, said)
