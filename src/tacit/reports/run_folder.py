"""What a run left in its folder, read as something that anybody may have written."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tacit._files import parse_json
from tacit.accounting.serialization import from_dict
from tacit.errors import CheckpointError, TacitError
from tacit.recipes.auditing import audit_file
from tacit.reports.run_evidence import gather
from tacit.runs import record as records
from tacit.runs.folder import HISTORY, RECORD, STATEMENT, Folder
from tacit.statement import Statement
from tacit.statement.claim import UNCHECKABLE
from tacit.statement.preprocessing import without_preprocessing
from tacit.training.plan import Plan
from tacit.training.progress import checked_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tacit.accounting.events import Event
    from tacit.recipes.auditing.audit_file import AuditFile
    from tacit.reports.run_evidence import Evidence
    from tacit.runs.record import RunRecord

LARGEST: Final = 16 << 20  # bytes of a file; a real one has thousands
ANSWERS: Final = "answers.csv"
_HEAD: Final = "query,label"
_COLUMNS: Final = {"epoch", "steps", "held_out_accuracy", "epsilon"}


@dataclass(frozen=True)
class Epoch:
    """One line of the history, in public numbers."""

    epoch: int
    steps: int
    accuracy: float | None
    epsilon: float
    metrics: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFiles:
    """A finished run; ``answers`` are the labels that a transfer released, by public image.

    ``audit`` is what an audit of it found, which is private.

    Guarantee:
        Every text is one, every number is finite and in its range, the statement proves itself and
        that its event covers its plan's steps, record and statement are of one run, and the
        released files that are here are those of the statement. What is only claimed, such as the
        accuracies, is in ``evidence``.
    """

    path: Path
    record: RunRecord
    history: tuple[Epoch, ...]
    statement: Statement
    evidence: Evidence
    answers: tuple[tuple[int, int], ...] | None = None
    audit: AuditFile | None = None

    @property
    def plan(self) -> Plan | None:
        """The plan, if the run had one."""
        return None if self.statement.plan is None else Plan.from_dict(self.statement.plan)

    @property
    def is_all(self) -> bool:
        """Whether the plan, with preprocessing, is all that is charged: not so after a search."""
        statement = self.statement
        charged = from_dict(without_preprocessing(statement.event, statement.preprocessing))
        return self.plan is not None and _is_of(self.plan, charged)

    @property
    def accuracy(self) -> float | None:
        """The final model's accuracy on held-out data, if there were any."""
        return self.record.test_accuracy


def read(
    folder: str | os.PathLike[str], *, ledger: str | None = None, signed_by: bytes | None = None
) -> RunFiles:
    """Reads the run in ``folder``; a file that is missing, malformed or false is refused.

    ``ledger`` and ``signed_by`` are the ledger that it must be charged in, and the public key that
    must have signed it, as ``run_evidence.gather`` has them.

    Raises:
        CheckpointError: with one line that names the file.
    """
    path = Path(folder)
    if not path.is_dir() or not (path / RECORD).is_file():
        raise CheckpointError(f"{path} holds no run; name the folder that --out named")
    for name in (RECORD, STATEMENT, HISTORY, ANSWERS):
        _check_size(path / name)
    record = records.read(Folder(path))
    if not record.finished or not (path / STATEMENT).is_file():
        raise CheckpointError(
            f"the run in {path} has not come to its end; {record.how_to_go_on(path)}"
        )
    statement = _statement(path / STATEMENT)
    _check_together(record, statement, path)
    plan = None if statement.plan is None else _plan(statement, path / STATEMENT)
    answers = path / ANSWERS
    return RunFiles(
        path,
        record,
        tuple(_history(path / HISTORY, plan)),
        statement,
        gather(path, record, statement, ledger=ledger, signed_by=signed_by),
        read_answers(answers) if answers.exists() else None,
        _audit(path / audit_file.FILE, record, statement),
    )


def _audit(path: Path, record: RunRecord, statement: Statement) -> AuditFile | None:
    """The audit, which must be of this run and of its claim."""
    if not os.path.lexists(path):
        return None
    found = audit_file.read(path)
    verdict = found.verdict
    same = found.kind == "run" and found.run.get("configuration") == record.configuration
    if verdict is not None:
        same &= (verdict.claimed, verdict.shown.delta) == (statement.epsilon, statement.delta)
    if not same:
        raise CheckpointError(
            f"{path} is refused: it is no audit of the run in this folder; remove it, or audit "
            "again"
        )
    return found


def _check_size(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is no file")
    if path.exists() and path.stat().st_size > LARGEST:
        raise CheckpointError(f"{path} is larger than {LARGEST >> 20} MiB, which no run writes")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def _statement(path: Path) -> Statement:
    """The statement, with figures that can be computed."""
    try:
        statement = Statement.from_json(_text(path))
        statement.figures()
    except CheckpointError:
        raise
    except (TacitError, *UNCHECKABLE) as error:
        raise CheckpointError(f"{path} is refused: {_short(error)}") from None
    return statement


def _short(error: object, most: int = 300) -> str:
    line = " ".join(str(error).split())
    return line if len(line) <= most else f"{line[:most]}…"


def _check_together(record: RunRecord, statement: Statement, path: Path) -> None:
    """Refuses a record and a statement that are not of one run."""
    pairs = {
        "configuration": (record.configuration, statement.configuration),
        "delta": (record.delta, statement.delta),
        # A search has the event of all its runs; the record keeps the winner's plan.
        "plan": (record.plan if record.search is None else statement.plan, statement.plan),
    }
    for name, (recorded, claimed) in pairs.items():
        if recorded != claimed:
            raise CheckpointError(
                f"{path / RECORD} and {path / STATEMENT} are of different runs: {name} differs"
            )


def _plan(statement: Statement, path: Path) -> Plan:
    """The plan; that the event covers its steps, the statement has proved."""
    try:
        return Plan.from_dict(statement.plan)
    except (TacitError, ValueError, TypeError, ArithmeticError) as error:
        raise CheckpointError(f"{path} is refused: its plan is none: {_short(error)}") from None


def _is_of(plan: Plan, event: Event) -> bool:
    """Whether ``event`` is that of the plan's first steps, however many."""
    times = getattr(event, "times", 0)
    return times <= plan.steps and plan.event_after(times) == event


def _history(path: Path, plan: Plan | None) -> Iterator[Epoch]:
    if not path.exists():
        return
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            yield _epoch(parse_json(line), plan)
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise CheckpointError(f"{path}, line {number}, is refused: {_short(error)}") from None


def _epoch(plain: Any, plan: Plan | None) -> Epoch:
    if not isinstance(plain, dict) or set(plain) - {"metrics"} != _COLUMNS:
        raise ValueError(f"it must have exactly {sorted(_COLUMNS)}, or also metrics")
    for name in ("epoch", "steps"):
        if type(plain[name]) is not int or plain[name] < 0:
            raise ValueError(f"{name} must be a whole number, got {plain[name]!r}")
    if plan is not None and plain["steps"] > plan.steps:
        raise ValueError(f"steps must be at most the plan's {plan.steps}, got {plain['steps']}")
    accuracy, epsilon = plain["held_out_accuracy"], plain["epsilon"]
    if accuracy is not None and not (_is_number(accuracy) and 0.0 <= accuracy <= 1.0):
        raise ValueError(f"held_out_accuracy must lie between 0 and 1, got {accuracy!r}")
    if not (_is_number(epsilon) and epsilon >= 0.0):
        raise ValueError(f"epsilon must be a number, 0 or more, got {epsilon!r}")
    metrics = checked_metrics(plain.get("metrics", {}))
    return Epoch(plain["epoch"], plain["steps"], accuracy, float(epsilon), metrics)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


# ---- the labels that a transfer released


def read_answers(path: Path) -> tuple[tuple[int, int], ...]:
    """Pairs of a public image's number and its released label.

    Raises:
        CheckpointError: with one line that names the file.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not lines or lines[0] != _HEAD:
        raise CheckpointError(f"{path} is refused: its first line must be {_HEAD!r}")
    pairs = tuple(_pair(path, number, line) for number, line in enumerate(lines[1:], 2))
    if any(one[0] >= two[0] for one, two in pairwise(pairs)):
        raise CheckpointError(f"{path} is refused: a query is there twice, or out of order")
    return pairs


def _pair(path: Path, number: int, line: str) -> tuple[int, int]:
    parts = line.split(",")
    if len(parts) != 2 or not all(one.isdigit() and len(one) < 10 for one in parts):
        raise CheckpointError(f"{path}, line {number}, is refused: it must be two whole numbers")
    return int(parts[0]), int(parts[1])
