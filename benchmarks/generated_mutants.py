# ruff: noqa: PLC0415 - a mutant is imported in the process that runs it
r"""Mutants made by rule, put to the oracle of the release's law, to the self-test and to the tests.

The mode of ``mutants.py --generated``. Each mutant runs in processes of its own, forked from this
one, which has everything but tacit imported: first the experiments of ``release_law`` that run the
edited lines say what class it is of; then, if it is privacy-relevant, the default self-test and the
tests that run those lines say who catches it. Which lines each of them runs is traced once, on the
correct engine (the *baseline*, a file beside the results). What takes too long is ended: a hang.

Lines that no experiment runs make a mutant *unreached*; it is counted with the relevant ones, since
nothing is known of it, unless the line needs a device that is not there.

On a machine of many cores that is bare and lent for some minutes at a time:

    sh tools/carry.sh                 # here: .carry/ holds the libraries that are missing there
    PYTHONPATH=$PWD/src:$PWD/.carry python benchmarks/mutants.py --generated 500 --tests \
        --processes 16 --minutes 9 --baseline .carry/base.json.gz --out $OUT/part1.json   # there
    … --resume part1.json --out $OUT/part2.json             # and so on, until all are done
    … --resume part1.json part2.json --minutes 0 --record   # here: the report of all parts

The baseline is completed by what it lacks, so it may be cut short as well; bring it back with the
results, and take it along again.
"""

from __future__ import annotations

import compileall
import contextlib
import gzip
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mutation
from mutation import ROOT, Mutant

if TYPE_CHECKING:
    import argparse

RESULTS = ROOT / "benchmarks" / "results"
REASONS = RESULTS / "generated_mutants_reasons.json"  # why a survivor is let be, by its name
NEEDS = "needs a GPU or compiled code"
TESTS = (
    "tests/training", "tests/randomness", "tests/ledger", "tests/statement",
    "tests/auditing/replay", "tests/auditing/mutants", "tests/auditing/test_mutants.py",
)  # fmt: skip
_HEAVY = (
    "torch", "torch.utils.data", "torch.optim.swa_utils", "numpy", "scipy.stats", "scipy.special",
    "scipy.optimize", "scipy.integrate", "sqlalchemy", "alembic", "alembic.command", "mpmath",
    "cryptography.hazmat.primitives.ciphers", "safetensors.torch", "click", "rich.progress",
    "pytest", "torch.func", "torch._dynamo",
)  # fmt: skip
# Lines that no processor runs, and those of compiled code: words near them, files and functions.
_GPU = ("cuda", "pin_memory", "_measuring", "_native", "is_compiling", "set_stance")
_ELSEWHERE = (
    ("clipping/program.py", ""), ("forms/matrix.py", "in_stages"),
    ("forms/matrix.py", "gram_total"), ("forms/matrix.py", "matmul"), ("recorder.py", "_given"),
    ("training/kernels.py", ""), ("fingerprint.py", "_lay_out"), ("fingerprint.py", "_read"),
    ("fingerprint.py", "note"), ("batches.py", "before"), ("batches.py", "after"),
    ("engine.py", "like"), ("batches.py", "_made"), ("forms/matrix.py", "_written_norms"),
)  # fmt: skip
# For lines that nearly every experiment runs: so many of a kind.
_MOST = {"case": 8, "refused": 16, "sum": 14, "noise": 6, "sampling": 5}


# ---- one process after the other


@dataclass
class Task:
    """What one child does: ``work`` writes lines of JSON to the file it is given."""

    work: Callable[[Any], None]
    overlay: Path
    seconds: float  # of a processor; on the clock, where others compute as well, three times that


@dataclass
class Outcome:
    """The lines a child wrote, how it ended, and how long it took."""

    lines: list[Any]
    ended: str  # "well", "hang" or "crash"
    seconds: float

    def last(self, key: str, default: Any = None) -> Any:
        return next((one[key] for one in reversed(self.lines) if key in one), default)


Steps = Generator[Task, Outcome, Any]


class Crew:
    """Runs many step-by-step jobs at once, each step in a forked child of its own."""

    def __init__(self, processes: int, folder: Path) -> None:
        self.processes, self.folder = processes, folder
        self.running: dict[int, tuple[Steps, Task, float, Path, str]] = {}
        self.count = 0

    def work(self, jobs: Iterable[tuple[str, Steps]], until: float) -> Iterator[tuple[str, Any]]:
        """The results of jobs as they come; what is not done at the time ``until`` is dropped."""
        waiting = iter(jobs)
        while True:
            while len(self.running) < self.processes and time.time() < until:
                job = next(waiting, None)
                if job is None:
                    break
                yield from self._advance(job[0], job[1], None)
            if not self.running:
                return
            time.sleep(0.02)
            for pid in list(self.running):
                yield from self._look(pid, until)

    def _look(self, pid: int, until: float) -> Iterator[tuple[str, Any]]:
        steps, task, began, path, name = self.running[pid]
        now = time.time()
        done, status = os.waitpid(pid, os.WNOHANG)
        late = now - began > 3.0 * task.seconds
        if not done and not late and now < until:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # with all that it started
        if not done:
            os.waitpid(pid, 0)
        del self.running[pid]
        if not done and not late:
            return  # time is up: another part begins with this one
        slow = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        ended = "hang" if not done or slow else "well" if status == 0 else "crash"
        lines = []
        for line in path.read_text().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        yield from self._advance(name, steps, Outcome(lines, ended, now - began))

    def _advance(
        self, name: str, steps: Steps, outcome: Outcome | None
    ) -> Iterator[tuple[str, Any]]:
        try:
            task = next(steps) if outcome is None else steps.send(outcome)
        except StopIteration as finished:
            yield name, finished.value
            return
        self.count += 1
        path = self.folder / f"{self.count}.jsonl"
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _child(task, path)
        self.running[pid] = (steps, task, time.time(), path, name)


def _child(task: Task, path: Path) -> None:
    """Does one task and ends; nothing of the parent's is cleaned up here."""
    code = 1
    try:
        os.setsid()
        limit = int(task.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        quiet = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(task.overlay)
        source = str(task.overlay / "src")
        sys.path[:] = [source, str(task.overlay), *sys.path]
        sys.dont_write_bytecode = True
        for name in [one for one in sys.modules if one.partition(".")[0] == "tacit"]:
            del sys.modules[name]  # what a test has imported is not the mutant
        path_there = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ.update(PYTHONPATH=path_there, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
        os.environ["TMPDIR"] = tempfile.mkdtemp(dir=task.overlay)
        tempfile.tempdir = None
        with open(path, "w") as file:
            task.work(lambda line: print(json.dumps(line), file=file, flush=True))
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


@contextlib.contextmanager
def laid_out(mutant: Mutant | None, folder: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="overlay-", dir=folder))
    try:
        yield mutation.overlay(mutant, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


# ---- which lines are run


class Lines:
    """The lines of the rooms that are run, also in threads and forked children."""

    def __init__(self, source: Path, forks: Path) -> None:
        self.source, self.forks = f"{source}/src/", forks
        self.names = {str(source / name): name for name in mutation.files()}
        self.seen: set[tuple[str, int]] = set()
        self.home = os.getpid()
        self.fresh = sys.version_info >= (3, 12)
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.seen = set()

    def _note(self, file: str, line: int) -> None:
        name = self.names.get(file)
        if name is None or (name, line) in self.seen:
            return
        self.seen.add((name, line))
        if os.getpid() != self.home:
            with open(self.forks, "a") as kept:
                kept.write(f"{name}:{line}\n")

    def start(self) -> None:
        self.seen = set()
        self.forks.unlink(missing_ok=True)
        if self.fresh:
            events = sys.monitoring
            events.use_tool_id(events.COVERAGE_ID, "mutants")
            events.register_callback(events.COVERAGE_ID, events.events.LINE, self._monitored)
            events.set_events(events.COVERAGE_ID, events.events.LINE)
            events.restart_events()
        else:
            threading.settrace(self._called)
            sys.settrace(self._called)

    def stop(self) -> dict[str, list[int]]:
        if self.fresh:
            sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)
        else:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        if self.forks.exists():
            for line in self.forks.read_text().split():
                name, _, number = line.rpartition(":")
                self.seen.add((name, int(number)))
        found: dict[str, list[int]] = defaultdict(list)
        for name, number in sorted(self.seen):
            found[name].append(number)
        return dict(found)

    def _monitored(self, code: Any, line: int) -> Any:
        self._note(code.co_filename, line)
        return sys.monitoring.DISABLE

    def _called(self, frame: Any, *_: Any) -> Any:
        return self._line if frame.f_code.co_filename in self.names else None

    def _line(self, frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            self._note(frame.f_code.co_filename, frame.f_lineno)
        return self._line


def runs(mutant: Mutant, lines: dict[str, list[int]]) -> bool:
    """Whether the lines of a statement are among those that were run."""
    mine = lines.get(mutant.file, ())
    if not mutant.inside:  # run at import: whoever uses the module may notice
        return bool(mine)
    first, last = mutant.lines
    return any(first <= one <= last for one in mine)


# ---- the three stages, as work for a child


def run_law(names: list[str], say: Any, *, stop: bool, traced: bool = False) -> None:
    import release_law

    release_law.prepare(names)
    lines = Lines(Path.cwd(), Path(os.environ["TMPDIR"]) / "forks") if traced else None
    for name in names:
        if lines is not None:
            lines.start()
        began = time.perf_counter()
        seen = release_law.observe(name)
        row = {"experiment": name, "seconds": round(time.perf_counter() - began, 3), "seen": seen}
        if lines is not None:
            row["lines"] = lines.stop()
        say(row)
        if stop and seen["faults"]:
            return


def _self_tests() -> dict[str, Callable[[], Any]]:
    """What ``tacit audit engine`` does by default, part by part, by name."""
    from tacit.auditing.replay import replay, standard

    found: dict[str, Callable[[], Any]] = {
        name: partial(replay, setting, stop_at_first=True)
        for name, setting in standard.standard_settings().items()
    }
    if hasattr(standard, "special_settings"):  # of a self-test that has more than settings
        from tacit.auditing.replay import parts

        every = {**standard.standard_settings(), **standard.special_settings()}
        for name, setting in every.items():
            scope = standard.scope_of(name)
            found[name] = partial(replay, setting, stop_at_first=True, scope=scope)
        for part in parts.PARTS:
            found[f"part: {part.__name__.strip('_')}"] = partial(parts.replay_parts, only=part)
    return found


def run_self_test(names: list[str], say: Any, *, traced: bool = False) -> None:
    """The default self-test, setting by setting, to the first fault."""
    import torch

    torch.set_num_threads(1)
    tests = _self_tests()
    lines = Lines(Path.cwd(), Path(os.environ["TMPDIR"]) / "forks") if traced else None
    for name in names:
        if lines is not None:
            lines.start()
        began = time.perf_counter()
        found = None
        try:
            report = tests[name]()
            faults = [one.describe() for one in report.findings if not one.passed]
            found = faults[0] if faults else None
        except Exception as error:  # the engine does not train on a standard model
            found = f"raised {type(error).__name__}: {error}"
        row = {"setting": name, "found": found, "seconds": round(time.perf_counter() - began, 2)}
        if lines is not None:
            row["lines"] = lines.stop()
        say(row)
        if found and lines is None:
            return


class _Watching:
    """A plugin of pytest that tells every test's lines and time, or the first failure."""

    def __init__(self, say: Any, lines: Lines | None) -> None:
        self.say, self.lines = say, lines
        self.failed = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = True
            if self.lines is None:
                self.say({"failed": report.nodeid})

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.lines is None:
            self.say({"failed": f"{report.nodeid} (cannot be collected)"})

    def pytest_runtest_logstart(self) -> None:
        self.failed, self.began = False, time.perf_counter()
        if self.lines is not None:
            self.lines.start()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self.lines is not None:
            lines = self.lines.stop()
            seconds = round(time.perf_counter() - self.began, 3)
            if lines and not self.failed:
                self.say({"test": nodeid, "seconds": seconds, "lines": lines})


def run_tests(names: list[str], say: Any, *, traced: bool = False) -> None:
    import pytest

    lines = Lines(Path.cwd(), Path(os.environ["TMPDIR"]) / "forks") if traced else None
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--no-header",
        *([] if traced else ["-x"]),
    ]
    code = pytest.main([*options, *names], plugins=[_Watching(say, lines)])
    say({"code": int(code)})


# ---- the baseline


def baseline(path: Path, crew: Crew, until: float, *, tests: bool) -> dict[str, Any]:
    """What the correct engine does, and which lines each experiment, setting and test runs.

    A file of an earlier time is completed by what it lacks; it must be of the same source. A
    setting of the self-test that fails on the correct engine, and a failing test, are left out.
    """
    known = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}
    for kind in ("law", "self_test", "tests", "files"):
        known.setdefault(kind, {})
    before = sum(map(len, known.values()))
    with laid_out(None, crew.folder) as place:
        ((_, names),) = crew.work([("names", _names(place))], until)
        jobs, saved = list(_lacking(known, names, place, tests)), time.time()
        for name, (kind, rows) in crew.work(jobs, until):
            print(f"baseline {kind}: {name}", file=sys.stderr, flush=True)
            known[kind] |= rows
            if kind == "tests":
                known["files"][name] = {}  # it is done, even where no test of it runs the rooms
            if time.time() > saved + 20.0:
                _keep(path, known)
                saved = time.time()
        if sum(map(len, known.values())) > before:
            _keep(path, known)
        if any(_lacking(known, names, place, tests)):
            raise SystemExit("time was up before the baseline was complete: run this again")
    seen = {name: row["seen"] for name, row in known["law"].items()}
    wrong = {name: one for name, one in seen.items() if one["faults"] or one["error"]}
    if wrong:
        raise SystemExit(f"the oracle accuses the correct engine: {json.dumps(wrong, indent=1)}")
    return known


def _keep(path: Path, known: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(gzip.compress(json.dumps(known).encode(), 5))
    part.replace(path)


def _names(place: Path) -> Steps:
    """The names of all experiments, and of the self-test's settings."""

    def listed(say: Any) -> None:
        import release_law

        release_law.prepare()
        say({"law": list(release_law.EXPERIMENTS), "self_test": list(_self_tests())})

    outcome = yield Task(listed, place, 120.0)
    return outcome.lines[0]


def _lacking(
    known: dict[str, Any], names: dict[str, list[str]], place: Path, tests: bool
) -> Iterator[tuple[str, Steps]]:
    """A job for every few experiments, every setting and every file of tests."""

    def law(some: list[str]) -> Callable[[Any], None]:
        return lambda say: run_law(some, say, stop=False, traced=True)

    missing = [name for name in names["law"] if name not in known["law"]]
    for at in range(0, len(missing), 8):
        yield missing[at], _one("law", place, law(missing[at : at + 8]), "experiment")
    for name in names["self_test"]:
        if name not in known["self_test"]:
            work = lambda say, n=name: run_self_test([n], say, traced=True)  # noqa: E731
            yield name, _one("self_test", place, work, "setting")
    for file in _test_files() if tests else []:
        if file not in known["files"]:
            work = lambda say, f=file: run_tests([f], say, traced=True)  # noqa: E731
            yield file, _one("tests", place, work, "test")


def _test_files() -> list[str]:
    found = [str(p.relative_to(ROOT)) for t in TESTS for p in sorted((ROOT / t).rglob("test_*.py"))]
    found += [t for t in TESTS if t.endswith(".py")]
    doctests = [name for name in mutation.files() if ">>>" in (ROOT / name).read_text()]
    return [*dict.fromkeys(found), *doctests]


def _one(kind: str, place: Path, work: Any, key: str) -> Steps:
    outcome = yield Task(work, place, 900.0)
    if outcome.ended != "well" or outcome.last("code", 0) not in (0, 1, 5):
        raise SystemExit(
            f"the baseline of {kind} ended with a {outcome.ended}: {outcome.lines[-1:]}"
        )
    rows = {row.pop(key): row for row in outcome.lines if key in row}
    return kind, rows


# ---- one mutant


def examined(
    mutant: Mutant,
    known: dict[str, Any],
    folder: Path,
    arguments: Any,
    before: dict[str, Any] | None = None,
) -> Steps:
    """The class of a mutant, which ``before`` may have, and who catches it."""
    row: dict[str, Any] = mutant.as_dict()
    with laid_out(mutant, folder) as place:
        names = experiments_for(mutant, known["law"])
        row["experiments"] = len(names)
        if before is not None:
            row |= {key: before[key] for key in ("class", "reasons", "law_seconds")}
        elif names:
            work = lambda say: run_law(names, say, stop=True)  # noqa: E731
            outcome = yield Task(work, place, arguments.seconds)
            row |= judged(outcome, known["law"], names)
        else:
            row |= {"class": "unreached", "reasons": [_unreached(mutant)], "law_seconds": 0.0}
        if row["class"] not in ("relevant", "unreached"):
            return row
        settings = [
            name
            for name, one in known["self_test"].items()
            if one["found"] is None and runs(mutant, one["lines"])
        ]
        row["self_test"] = {"caught": False, "by": "no setting runs the line", "seconds": 0.0}
        if settings:
            chosen, limit = affordable(settings, known["self_test"], arguments.self_test_seconds)
            work = lambda say: run_self_test(chosen, say)  # noqa: E731
            outcome = yield Task(work, place, limit)
            row["self_test"] = self_tested(outcome, left=len(settings) - len(chosen))
        if arguments.tests:
            row["tests"] = yield from tested(mutant, known.get("tests", {}), place, arguments)
    return row


def affordable(names: list[str], known: dict[str, Any], seconds: float) -> tuple[list[str], float]:
    """The quickest of ``names``, ``seconds`` together, and the time after which they hang.

    The baseline's seconds were traced, which takes twice the time: what is still running after
    twice those seconds does not end.
    """
    chosen: list[str] = []
    spent = 0.0
    for name in sorted(names, key=lambda one: known[one]["seconds"]):
        if chosen and spent + known[name]["seconds"] > seconds:
            break
        chosen.append(name)
        spent += known[name]["seconds"]
    return chosen, 2.0 * spent + 30.0


def experiments_for(mutant: Mutant, known: dict[str, Any]) -> list[str]:
    """Those that run the line, the kinds in turn and the quick ones first; few of one table."""
    names = [name for name, one in known.items() if runs(mutant, one["lines"])]
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda one: known[one]["seconds"]):
        kinds[name.partition(":")[0].partition(" ")[0]].append(name)
    if len(names) > 150:
        for kind, most in _MOST.items():
            quick = kinds[kind][: max(most, 3 * len(kinds[kind]) // 4)]
            kinds[kind] = quick[:: -(-len(quick) // most) or 1]
    ordered = []
    while any(kinds.values()):
        ordered += [some.pop(0) for some in kinds.values() if some]
    return ordered


def judged(outcome: Outcome, known: dict[str, Any], names: list[str]) -> dict[str, Any]:
    import release_law

    seen = {one["experiment"]: one["seen"] for one in outcome.lines if "experiment" in one}
    right = {name: known[name]["seen"] for name in names}
    kind, reasons = release_law.classify(right, seen)
    whole = len(seen) == len(names) or kind == "relevant"
    if not whole:
        ended = "does not end" if outcome.ended == "hang" else "ends the process"
        missing = next(name for name in names if name not in seen)
        if kind == "equivalent" or outcome.ended == "crash":
            kind = "harmless" if outcome.ended == "crash" or not _slow(known, names) else kind
        reasons = [*reasons, f"{ended} at {missing}"]
    return {
        "class": kind,
        "reasons": reasons,
        "law_seconds": round(outcome.seconds, 2),
        "whole": whole,
    }


def _slow(known: dict[str, Any], names: list[str]) -> bool:
    """Whether the experiments take so long on the correct engine that no hang is to be seen."""
    return sum(known[name]["seconds"] for name in names) > 40.0


def _unreached(mutant: Mutant) -> str:
    text = (ROOT / mutant.file).read_text().splitlines()
    near = "\n".join(text[max(0, mutant.line - 2) : mutant.lines[1]])
    elsewhere = any(mutant.file.endswith(f) and mutant.inside.endswith(g) for f, g in _ELSEWHERE)
    if elsewhere or any(word in near for word in _GPU):
        return NEEDS
    return "no experiment runs the line"


def self_tested(outcome: Outcome, *, left: int) -> dict[str, Any]:
    found = outcome.last("found")
    where = outcome.last("setting")
    if outcome.ended == "well" or found:
        missing = f"; {left} settings were not tried" if left else ""
        by = f"{where}: {found}" if found else f"nothing found{missing}"
        return {"caught": bool(found), "by": by[:300], "seconds": round(outcome.seconds, 2)}
    return {"caught": True, "by": f"a {outcome.ended}", "seconds": round(outcome.seconds, 2)}


def _broken(outcome: Outcome) -> str | None:
    """How tests ended, if not by passing: a hang, a crash, or none that could be run."""
    if outcome.ended != "well":
        return f"a {outcome.ended}"
    code = outcome.last("code", 0)
    return None if code in (0, 5) else f"pytest ended with {code}"


def tested(mutant: Mutant, known: dict[str, Any], place: Path, arguments: Any) -> Any:
    """The tests that run the line, the nearest and quickest first, to the first that fails."""
    names = [name for name, one in known.items() if runs(mutant, one["lines"])]
    stem = Path(mutant.file).stem
    names.sort(
        key=lambda one: (
            f"test_{stem}.py" not in one and mutant.file not in one,
            known[one]["seconds"],
        )
    )
    spent, began, budget = 0.0, 0, arguments.tests_seconds
    row: dict[str, Any] = {
        "caught": False,
        "by": "no test runs the line",
        "seconds": 0.0,
        "of": len(names),
    }
    for size in (12, 60, 400, 4000):
        part = names[began : began + size]
        began += size
        if not part or spent > budget:
            break
        limit = 2.0 * sum(known[name]["seconds"] for name in part) + 60.0
        outcome = yield Task(lambda say, p=part: run_tests(p, say), place, limit)
        spent += outcome.seconds
        failed = outcome.last("failed") or _broken(outcome)
        row |= {"caught": bool(failed), "by": failed or "all passed", "seconds": round(spent, 2)}
        if failed:
            break
    else:
        return row
    if not row["caught"] and began < len(names):
        row["by"] = f"the first {began} of {len(names)} tests passed; no time for more"
    return row


# ---- the whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--generated", type=int, metavar="COUNT", help="mutants made by rule")
    parser.add_argument("--seed", type=int, default=0, help="of the sample of generated mutants")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no mutant after them")
    parser.add_argument("--seconds", type=float, default=90.0, help="for the oracle, of one mutant")
    parser.add_argument("--self-test-seconds", type=float, default=1e9, help="for the self-test")
    parser.add_argument("--tests-seconds", type=float, default=150.0, help="for the tests")
    parser.add_argument("--tests", action="store_true", help="also run the tests on each")
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="mutants whose name has one of them"
    )
    parser.add_argument("--first", type=int, help="only so many of the sample")
    parser.add_argument(
        "--resume", nargs="*", default=[], metavar="FILE", help="results to go on from"
    )
    parser.add_argument(
        "--again", action="store_true", help="self-test and tests again; classes stay"
    )
    parser.add_argument("--baseline", type=Path, default=None, metavar="FILE")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE", help="where results go")


def generated(arguments: argparse.Namespace) -> dict[str, Any]:
    """The part of the record: one row for each mutant."""
    rows, wanted = resumed(arguments.resume), chosen(arguments)
    left = [one for one in wanted if arguments.again or one.name not in rows]
    if left:
        rows |= examined_all(left, rows, arguments)
    return {"rows": [rows[one.name] for one in wanted if one.name in rows], "wanted": len(wanted)}


def examined_all(
    mutants: list[Mutant], rows: dict[str, Any], arguments: argparse.Namespace
) -> dict[str, Any]:
    """The rows of mutants that there was time for; all rows so far are kept in ``--out``."""
    until = time.time() + 60 * arguments.minutes
    for name in _HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
    for name in importlib.import_module("release_law").PARTS:
        importlib.import_module(name)
    for part in ("src", "tests", "benchmarks"):  # once: children write no compiled files
        compileall.compile_dir(ROOT / part, quiet=2, workers=arguments.processes)
    where = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="mutants-", dir=where))
    known_rows, rows = rows, {}
    try:
        crew = Crew(arguments.processes, folder)
        path = arguments.baseline or ROOT / "build" / "mutants_baseline.json.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        known = baseline(path, crew, until, tests=arguments.tests)
        jobs = (
            (one.name, examined(one, known, folder, arguments, known_rows.get(one.name)))
            for one in mutants
        )
        for name, row in crew.work(jobs, until):
            rows[name] = row
            print(line_of(row), file=sys.stderr, flush=True)
            if arguments.out is not None:
                kept = {"rows": list((known_rows | rows).values())}
                arguments.out.write_text(json.dumps(kept, ensure_ascii=False))
        return rows
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def chosen(arguments: argparse.Namespace) -> list[Mutant]:
    found = mutation.sample(arguments.generated, arguments.seed)
    if arguments.only:
        found = [one for one in found if any(text in one.name for text in arguments.only)]
    return found[: arguments.first] if arguments.first else found


def resumed(paths: Iterable[str]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for path in paths:
        rows |= {row["name"]: row for row in json.loads(Path(path).read_text())["rows"]}
    return rows


def line_of(row: dict[str, Any]) -> str:
    caught = [
        f"{stage}: {row[stage]['by'][:80]}" for stage in ("self_test", "tests") if stage in row
    ]
    where = f"{row['file'].removeprefix('src/tacit/')}:{row['line']}"
    why = "; ".join([*caught, *row["reasons"][:1]])[:240]
    return f"{row['class']:<10} {row['law_seconds']:5.1f} s {where} {_edit(row)} | {why}"


def _edit(row: dict[str, Any], longest: int = 70) -> str:
    before, after = (" ".join(row[key].split()) for key in ("before", "after"))
    return f"`{before[:longest]}` → `{after[:longest]}`"


# ---- in words


def in_words(part: dict[str, Any]) -> str:
    rows = part["rows"]
    classes = Counter(row["class"] for row in rows)
    counted = [row for row in rows if _counts(row)]
    lines = [
        f"### {len(rows)} generated mutants: of the relevant ones {share(counted, 'self_test')} "
        f"caught by the self-test, {share(counted, 'tests')} by the tests",
        "",
        f"Run {part['date']} at commit {part['commit']} by `{part['command']}` on "
        f"{part['machine']['cpu']}, {part['machine']['cores']} cores, in {part['seconds']:.0f} s. "
        "*Relevant*: the oracle of the release's law saw it broken. *Unreached*: no experiment of "
        "the oracle runs the line; it counts as relevant unless it needs a GPU or compiled code. "
        "*Harmless*: something differs and every law holds, such as an error instead of a "
        "release. *Equivalent*: no fact of any experiment differs.",
        "",
        "| class | mutants | caught by the self-test | caught by the tests |",
        "|---|---:|---:|---:|",
    ]
    for name in ("relevant", "unreached", "harmless", "equivalent"):
        mine = [row for row in rows if row["class"] == name]
        both = [
            share(mine, stage) if name in ("relevant", "unreached") else ""
            for stage in ("self_test", "tests")
        ]
        lines.append(f"| {name} | {classes[name]} | {both[0]} | {both[1]} |")
    lines += [
        "",
        "| kind | mutants | relevant | of these by the self-test | by the tests |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind in sorted({row["kind"] for row in rows}):
        mine = [row for row in counted if row["kind"] == kind]
        total = sum(row["kind"] == kind for row in rows)
        both = " | ".join(share(mine, stage) for stage in ("self_test", "tests"))
        lines.append(f"| {kind} | {total} | {len(mine)} | {both} |")
    for stage, title in (("self_test", "the self-test"), ("tests", "the tests")):
        missed = [row for row in counted if stage in row and not row[stage]["caught"]]
        lines += ["", f"#### Relevant, and not caught by {title}: {len(missed)}", ""]
        lines += [
            survivor(row, stage) for row in sorted(missed, key=lambda r: (r["file"], r["line"]))
        ]
    device = [row for row in rows if row["class"] == "unreached" and not _counts(row)]
    lines += ["", f"#### Not counted, for want of a GPU or compiled code: {len(device)}", ""]
    lines += [f"- {row['file']}:{row['line']} {_edit(row)}" for row in device]
    alike = [row for row in rows if row["class"] == "equivalent"]
    lines += ["", f"#### Equivalent on everything that is run: {len(alike)}", ""]
    lines += [
        f"- {row['file']}:{row['line']} {_edit(row)}"
        for row in sorted(alike, key=lambda r: (r["file"], r["line"]))
    ]
    return "\n".join(lines)


def survivor(row: dict[str, Any], stage: str) -> str:
    reasons = json.loads(REASONS.read_text()) if REASONS.exists() else {}
    note = f" **{reasons[row['name']]}**" if row["name"] in reasons else ""
    return (
        f"- {row['file']}:{row['line']} ({row['kind']}) {_edit(row, 120)}: {row['reasons'][0]}; "
        f"{row[stage]['by']}{note}"
    )


def _counts(row: dict[str, Any]) -> bool:
    if row["class"] == "unreached":
        return row["reasons"] != [NEEDS]
    return row["class"] == "relevant"


def share(rows: list[dict[str, Any]], stage: str) -> str:
    judged_rows = [row for row in rows if stage in row]
    if not judged_rows:
        return "–"
    caught = sum(row[stage]["caught"] for row in judged_rows)
    return f"{caught} of {len(judged_rows)} ({100 * caught / len(judged_rows):.1f} %)"
