"""Runs for a page: those in one folder, live, finished or left; read as anybody's.

Only folders below ``--runs`` are looked at, no link is followed, and nothing that is read is run.
A live run is known by the lock that it holds; its epochs come in public numbers.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final

from tacit import _files
from tacit._numbers import at_most, compact
from tacit.errors import CheckpointError, TacitError
from tacit.runs.folder import HISTORY, LOCK, RECORD, STATEMENT, Folder
from tacit.serve import planner
from tacit.serve.budgets import Alert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

    from tacit.reports.run_folder import RunFiles
    from tacit.reports.run_summary import RunSummary
    from tacit.runs.record import RunRecord
    from tacit.statement import Statement

DEEPEST: Final = 2  # folders below --runs that are looked into
MOST: Final = 5000  # folders
MOST_FILES: Final = 10_000  # in the folder of a run, which has a dozen
_LARGEST: Final = 1 << 20  # bytes of a history while a run goes
STATES: Final = {
    "live": "a process is running it",
    "finished": "it is finished",
    "stopped": "no process is running it: it was stopped or has crashed",
    "unknown": "this system cannot tell whether a process is running it",
    "unreadable": "its files are not those of a run",
    "unread": "it is being read: the page reloads by itself",
}


@final
@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in a list."""

    name: str
    state: str
    title: str = ""
    epsilon: str = "–"
    delta: str = "–"
    measured: str = "–"
    steps: int = 0
    planned: int = 0
    problem: str = ""


@final
@dataclass(slots=True)
class RunShelf:
    """The runs below ``root``; what was read is kept until a file of the run changes."""

    root: Path
    _rows: dict[str, tuple[object, RunRow]] = field(default_factory=dict)
    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def names(self) -> list[str]:
        """The runs, newest first, each by its path below the root."""
        found: list[tuple[float, str]] = []
        for folder in _folders(self.root, DEEPEST):
            record = folder / RECORD
            try:
                there = record.lstat()
            except OSError:
                continue
            name = folder.relative_to(self.root).as_posix()
            # A name that is no text cannot be in an address: its row says that there is no run.
            plain = name.encode("utf-8", "backslashreplace").decode()
            found.append((there.st_mtime, plain))
            if len(found) >= MOST:
                break
        return [name for _, name in sorted(found, reverse=True)]

    def path(self, name: str) -> Path:
        """The folder of a run.

        Guarantee: it lies below the root, and neither it nor a file in it is a link.

        Raises:
            CheckpointError: if there is no such run.
        """
        parts = name.split("/")
        plain = 0 < len(parts) <= DEEPEST and all(
            one not in ("", ".", "..")
            and "\\" not in one and "\0" not in one and len(one.encode("utf-8", "replace")) < 256
            for one in parts
        )  # fmt: skip
        if not plain:
            raise CheckpointError("there is no such run")
        place = self.root.joinpath(*parts)
        steps = [self.root.joinpath(*parts[: at + 1]) for at in range(len(parts))]
        try:
            there = all(one.is_dir() and not one.is_symlink() for one in steps)
            there = there and (place / RECORD).is_file()
            entries = _entries(place) if there else []
        except OSError:  # a folder of another user's, as tacit makes them for its owner alone
            there = False
        if not there:
            raise CheckpointError("there is no such run")
        for entry in entries:
            if entry.is_symlink():
                raise CheckpointError(f"{entry.name!a} in this run is a link, and is not followed")
        return place

    def row(self, name: str) -> RunRow:
        """One run for a list; whatever is wrong with it is in the row."""
        try:
            place = self.path(name)
            signature = (_signature(place), _alive(place))
        except (TacitError, OSError, ValueError) as error:
            return self._without_root(RunRow(name, "unreadable", problem=_line(error)))
        with self._lock:
            kept = self._rows.get(name)
        if kept is not None and kept[0] == signature:
            return kept[1]
        made = self._without_root(_row(name, place, signature[1]))
        with self._lock:
            self._rows[name] = (signature, made)
        return made

    def _without_root(self, row: RunRow) -> RunRow:
        """The row without the machine's own path, which is not for everybody who looks."""
        return replace(row, problem=row.problem.replace(str(self.root), "RUNS"))

    def rows(self) -> list[RunRow]:
        """All runs, newest first."""
        return [self.row(name) for name in self.names()]

    def rows_within(self, names: list[str], seconds: float) -> list[RunRow]:
        """Some runs; what cannot be read in that time is in the list as unread."""
        until, found = time.monotonic() + seconds, []
        for name in names:
            late = time.monotonic() > until and name not in self._rows
            found.append(RunRow(name, "unread") if late else self.row(name))
        return found

    def files(self, name: str) -> RunFiles:
        """A finished run with its statement proved again; anything false is refused."""
        from tacit.reports import run_folder  # noqa: PLC0415 - PyTorch comes with it

        return run_folder.read(self.path(name))

    def summary(self, name: str) -> RunSummary:
        """The same with every figure computed again."""
        from tacit.reports import run_summary  # noqa: PLC0415

        return run_summary.summarise(self.files(name))

    def record(self, name: str) -> RunRecord:
        """What a run is."""
        return _record(self.path(name))

    def progress(self, name: str) -> dict[str, Any]:
        """A run as it goes, for whoever watches: epochs in public numbers, and no losses."""
        place = self.path(name)
        record, alive = _record(place), _alive(place)
        epochs = history(place)
        planned = _planned(record)
        steps = epochs[-1]["steps"] if epochs else 0
        state = "finished" if record.finished else alive
        return {
            "state": state,
            "planned": planned,
            "steps": steps,
            "epochs": epochs,
            "minutes_left": self._left(name, steps, planned) if state == "live" else None,
        }

    def _left(self, name: str, steps: int, planned: int) -> int | None:
        """Minutes, rounded up; from when epochs appeared, which is noted nowhere else."""
        now = time.monotonic()
        first, done = self._seen.setdefault(name, (now, steps))
        if steps <= done or now <= first:
            return None
        return math.ceil((planned - steps) * (now - first) / (steps - done) / 60.0)


def alerts(rows: list[RunRow]) -> Iterator[Alert]:
    """Runs that nobody carries on, and those that do not prove what they claim."""
    for row in rows:
        if row.state == "stopped":
            yield Alert("warning", f"The run {row.name} was stopped or has crashed.",
                        f"/runs/{row.name}")  # fmt: skip
        if row.state == "unreadable":
            yield Alert("alarm", f"The run {row.name} does not prove itself: {row.problem}",
                        f"/runs/{row.name}")  # fmt: skip


def history(place: Path) -> list[dict[str, Any]]:
    """The epochs that a run has shown so far; none if there are none yet."""
    from tacit.runs.kept import epochs  # noqa: PLC0415 - PyTorch comes with it

    try:
        text = _files.read(place / HISTORY, most=_LARGEST).decode()
        plain = [_files.parse_json(line) for line in text.splitlines()]
        return [
            {"epoch": one.epoch, "steps": one.steps, "accuracy": one.held_out_accuracy,
             "epsilon": one.epsilon, "shown": at_most(one.epsilon, 4),
             "metrics": dict(one.metrics)}
            for one in epochs(plain)
        ]  # fmt: skip
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TacitError) as error:
        raise CheckpointError(f"{HISTORY} is refused: {_line(error)}") from None


def _folders(root: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(root) as found:
            some = itertools.islice(found, 10 * MOST)
            inner = sorted(
                (one for one in some if one.is_dir(follow_symlinks=False)),
                key=lambda one: one.name,
            )
    except OSError:
        return
    for one in inner:
        if one.name.startswith("."):
            continue
        place = Path(one.path)
        yield place
        if depth > 1 and not os.path.lexists(place / RECORD):
            yield from _folders(place, depth - 1)


def _entries(place: Path) -> list[os.DirEntry[str]]:
    """The files of a run; a folder that would take long to look at is none."""
    with os.scandir(place) as found:
        listed = list(itertools.islice(found, MOST_FILES + 1))
    if len(listed) > MOST_FILES:
        raise CheckpointError(f"it holds more than {MOST_FILES} files, which no run does")
    return listed


def _signature(place: Path) -> tuple[object, ...]:
    found = []
    for entry in sorted(_entries(place), key=lambda one: one.name):
        about = entry.stat(follow_symlinks=False)
        found.append((entry.name, about.st_mtime_ns, about.st_size, about.st_ino))
    return tuple(found)


def _alive(place: Path) -> str:
    """Whether a process holds the folder's lock; asked without taking it."""
    try:
        inode = (place / LOCK).lstat().st_ino
    except OSError:
        return "stopped"
    try:
        locks = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return "unknown"
    held = any(
        line.split()[1:2] == ["FLOCK"] and line.split()[5].rpartition(":")[2] == str(inode)
        for line in locks.splitlines() if len(line.split()) > 5
    )  # fmt: skip
    return "live" if held else "stopped"


def _record(place: Path) -> RunRecord:
    from tacit.runs import record  # noqa: PLC0415 - PyTorch comes with it

    return record.read(Folder(place))


def _planned(record: RunRecord) -> int:
    steps = (record.plan or {}).get("steps")
    return steps if type(steps) is int and 0 < steps <= 10**15 else 0


def _row(name: str, place: Path, alive: str) -> RunRow:
    try:
        record = _record(place)
        title = f"{record.recipe} on {record.data['name']}"
        if record.finished:
            return _finished(name, place, record, title)
        epochs = history(place)
    except (TacitError, OSError, ValueError, LookupError, TypeError, ArithmeticError) as error:
        return RunRow(name, "unreadable", problem=_line(error))
    nothing: dict[str, Any] = {"steps": 0, "shown": "0"}
    last = epochs[-1] if epochs else nothing
    return RunRow(
        name, alive, title, str(last["shown"]), at_most(record.delta), measured(epochs),
        last["steps"], _planned(record),
    )  # fmt: skip


def _finished(name: str, place: Path, record: RunRecord, title: str) -> RunRow:
    """A finished run whose statement proves itself; what does not is no run to be shown."""
    from tacit.reports.run_evidence import files_of  # noqa: PLC0415 - PyTorch comes with it
    from tacit.statement import Statement  # noqa: PLC0415

    text = _files.read(place / STATEMENT).decode()
    statement = Statement.from_json(text)
    if statement.configuration != record.configuration:
        raise CheckpointError(f"{RECORD} and {STATEMENT} are of different runs")
    for _ in files_of(place, statement):  # another model's figures are none of this run
        pass
    planned = _planned(record)
    taken = statement.steps_taken or planned
    shown = measured(history(place)) if record.test_accuracy is None else _percent(record)
    return RunRow(
        name, "finished", title, spent(statement), at_most(statement.delta),
        shown, taken, planned,
    )  # fmt: skip


def spent(statement: Statement) -> str:
    """The ε of a finished run, rounded up; one whose statement does not hold has none."""
    return "void" if statement.void else at_most(statement.epsilon, 4)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


# ---- what a page shows of runs beside their rows


def attack(summary: RunSummary | None) -> Markup | None:
    """What no attack on a finished run exceeds, as the planner draws it."""
    if summary is None or summary.void or not summary.curve:
        return None
    return planner.attack_picture(list(summary.curve))


@final
@dataclass(frozen=True, slots=True)
class AuditRow:
    """One rate of an attack; ``look`` is the colour of its line in the picture."""

    look: int
    cells: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class AuditView:
    """What attacks found on a run, as rows and as a picture: secret."""

    rows: tuple[AuditRow, ...]
    picture: Markup


def audited(summary: RunSummary | None) -> AuditView | None:
    """What an audit of the run found, if there was one."""
    from tacit.reports.audit_sections import rates  # noqa: PLC0415

    if summary is None or summary.files.audit is None:
        return None
    attacks = summary.files.audit.attacks
    rows = tuple(
        AuditRow(at % planner.LOOKS, cells)
        for at, attack in enumerate(attacks) for cells in rates(attack, summary)
    )  # fmt: skip
    found = [[(false, true) for false, true, *_ in attack.roc if false >= 1.0 / attack.others]
             for attack in attacks]  # fmt: skip
    return AuditView(rows, planner.attack_picture(list(summary.curve), found))


def series(runs: list[tuple[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """What was measured on held-out data by steps, for a drawing: accuracy, or the first metric."""
    every = [one for _, epochs in runs for one in epochs]
    accuracy = any(one["accuracy"] is not None for one in every)
    metric = None if accuracy else next((name for one in every for name in one["metrics"]), None)
    steps, lines = sorted({one["steps"] for one in every}), []
    for name, epochs in runs:
        found = {one["steps"]: _measure(one, metric) for one in epochs}
        lines.append({"name": name, "values": [found.get(at) for at in steps]})
    return {"steps": steps, "lines": lines, "metric": metric, "label": metric or "% right"}


def _measure(epoch: dict[str, Any], metric: str | None) -> float | None:
    if metric is not None:
        return cast("float | None", epoch["metrics"].get(metric))
    return None if epoch["accuracy"] is None else round(100 * epoch["accuracy"], 3)


def measured(epochs: list[dict[str, Any]]) -> str:
    """What was measured on held-out data after the last epoch, for a list."""
    last = epochs[-1] if epochs else {"accuracy": None, "metrics": {}}
    if last["accuracy"] is not None:
        return f"{100 * last['accuracy']:.2f} %"
    return next((f"{name} {shown_metric(one)}" for name, one in last["metrics"].items()), "–")


def shown_metric(value: float | None) -> str:
    """One held-out metric, as a page shows it."""
    return "–" if value is None else f"{value:.4g}"


def _percent(record: RunRecord) -> str:
    return "–" if record.test_accuracy is None else f"{100 * record.test_accuracy:.2f} %"


def _last_metrics(epochs: list[dict[str, Any]]) -> dict[str, str]:
    last = epochs[-1]["metrics"] if epochs else {}
    return {f"held-out {name}": shown_metric(value) for name, value in last.items()}


def compared(columns: list[tuple[str, Any, Any, Any]]) -> list[tuple[str, list[str]]]:
    """The facts of several runs, one row each."""
    facts: dict[str, list[str]] = {}
    for at, (_, record, progress, summary) in enumerate(columns):
        own = {
            "recipe": record.recipe,
            "data": record.data["name"],
            "state": progress["state"],
            "ε, at most": spent(summary.statement) if summary else "not yet",
            "δ": compact(record.delta),
            "held-out accuracy": _percent(record),
            **_last_metrics(progress["epochs"]),
            "steps": f"{progress['steps']:,} of {progress['planned']:,}",
            **{_named("plan", name): _short(one) for name, one in (record.plan or {}).items()},
            **{_named("setting", name): _short(one) for name, one in record.settings.items()},
            "configuration": record.configuration[:16],
        }  # fmt: skip
        for name in [*facts, *(one for one in own if one not in facts)]:
            facts.setdefault(name, ["–"] * at).append(own.get(name, "–"))
    return list(facts.items())


def _named(kind: str, name: str) -> str:
    return f"{kind}: {name.replace('_', ' ')}"


def _short(value: object) -> str:
    if isinstance(value, dict):  # of a plan: a kind, and what belongs to it
        own = {name: one for name, one in value.items() if name != "kind"}
        said = "".join(f", {name} {_short(one)}" for name, one in own.items())
        return f"{value.get('kind', '')}{said}".lstrip(", ")[:60]
    text = "–" if value is None else compact(value) if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
