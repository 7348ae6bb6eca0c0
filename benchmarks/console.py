"""Times the console as its users see it: pages, moves of the planner, the start, live viewers.

    python benchmarks/console.py [--rounds N] [--database URL] [--record]

A real server process, asked over its socket. The ledger has 1,000 releases in two budgets, each
with a plan of its own, and 20 requests; the folder has 200 finished runs and one that goes. Wall
time is what a client waits, processor time what the server's process took meanwhile;
on a busy machine only the latter says something about the console. Bytecode is compiled before, as
an installer does. Runs are one small run, copied:
each is read and proved by itself. The live run is a process that holds the lock and adds an epoch
a second; while 50 viewers watch it, the server's processor time is what it costs the machine.
"""

import argparse
import contextlib
import fcntl
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import machine
import tacit
from tacit.accounting import Gaussian, Laplace, PoissonSampled, Repeated
from tacit.ledger import Person, Release, ask

RESULTS = Path(__file__).resolve().parent / "results"
RELEASES, RUNS, VIEWERS, WATCHED = 1_000, 200, 50, 10.0
PAGE, MOVE, START, SHARE = 200.0, 50.0, 1000.0, 1.0  # ms, ms, ms, % of a core
PAGES = {
    "plan": "/plan",
    "plan with a budget": "/plan?budget=patients",
    "budgets": "/budgets",
    "budget, first page": "/budgets/patients",
    "budget, page 10": "/budgets/patients?page=10",
    "budget, what if": "/budgets/patients?grant={request}",
    "request": "/requests/{request}",
    "runs, first page": "/runs",
    "runs, page 4": "/runs?page=4",
    "run": "/runs/run-100",
    "compare": "/compare?run=run-100&run=run-101",
    "report, the first of a run": "/runs/run-{round}/report",
    "report, again": "/runs/run-100/report",
    "statement": "/runs/run-100/statement.json",
    "model card": "/runs/run-100/model-card.md",
    "registry record": "/runs/run-100/registry.yaml",
}


def main() -> None:
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = arguments.database or f"sqlite:///{folder}/budget.db"
        request = filled_ledger(url, folder)
        filled_runs(folder / "runs")
        record = machine.stamp() | {"load": load, "database": url.partition(":")[0]}
        started(url, folder)  # compiles
        record["start"] = [started(url, folder) for _ in range(3)]
        with served(url, folder) as server:
            record["settled_cpu_s"] = settle(server)
            record["pages"] = {
                page: timed(server, lambda at, t=target: t.format(request=request, round=at),
                            arguments.rounds)
                for page, target in PAGES.items()
            }  # fmt: skip
            record["move"] = timed(server, move, 4 * arguments.rounds)
            record["viewers"] = watched(server, folder / "runs" / "live")
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "console.json").write_text(text + "\n")
        (RESULTS / "console.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="askings of each page")
    parser.add_argument("--database", help="the URL of an empty PostgreSQL database; else SQLite")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


# ---- what is shown


def filled_ledger(url: str, folder: Path) -> int:
    """Two budgets with 1,000 releases, and requests; the number of the last one."""
    with tacit.Ledger(url, anchor=folder / "anchor") as ledger:
        plain = ledger.open("counts", 80.0, 0.0)
        renyi = ledger.open("patients", 80.0, 1e-5, composition="renyi")
        for at in range(RELEASES // 2):
            plain.charge(Laplace(10.0 + at), label=f"count {at}")
            event = Repeated(PoissonSampled(0.01, Gaussian(4.0 + at / 100)), 500 + at)
            renyi.charge(event, label=f"model {at}")
        ada = Person("Ada", "engineer", "a" * 32)
        asked = [
            ask(ledger, "patients", Release(Gaussian(3.0 + at)), steps=1, by=ada, reason="a trial")
            for at in range(20)
        ]
    return asked[-1].number


def filled_runs(runs: Path) -> None:
    """One small run, trained here, 200 times; and one that has not ended."""
    command = ["train", "digits", "--epsilon", "3", "--epochs", "10", "--out", str(runs / "run-0")]
    subprocess.run([sys.executable, "-m", "tacit", *command], check=True, capture_output=True)
    for at in range(1, RUNS):
        shutil.copytree(runs / "run-0", runs / f"run-{at}")
    shutil.copytree(runs / "run-0", runs / "live")
    path = runs / "live" / "run.json"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {"finished": False, "test_accuracy": None}))
    (runs / "live" / "statement.json").unlink()


# ---- the server, and one who asks it


@dataclass
class Server:
    """A server's process, and a session in it."""

    process: subprocess.Popen[str]
    address: str
    cookie: str = ""

    def ask(self, target: str) -> int:
        """Asks for a page, reads all of it, and returns its length."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request("GET", target, headers={"cookie": self.cookie})
            answer = connection.getresponse()
            text = answer.read()
            given = answer.getheader("set-cookie")
            if answer.status >= 400:
                raise RuntimeError(f"{target}: {answer.status}: {text[:500]!r}")
            self.cookie = given.partition(";")[0] if given else self.cookie
            return len(text)
        finally:
            connection.close()

    def processor(self) -> float:
        """Seconds that its process took of all processors."""
        # The clock of another process, as clock_getcpuclockid(3) makes it on Linux.
        return time.clock_gettime((~self.process.pid << 3) | 2)


@contextlib.contextmanager
def served(url: str, folder: Path) -> Iterator[Server]:
    command = ["serve", "--ledger", url, "--anchor", str(folder / "anchor"), "--port", "0"]
    command += ["--runs", str(folder / "runs")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tacit", *command], stdout=subprocess.PIPE, text=True,
        env=_environment(folder),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        links = [process.stdout.readline() for _ in range(3)]
        link = urlsplit(links[-1].partition(": ")[2].strip())  # the officer's
        server = Server(process, link.netloc)
        server.ask(f"{link.path}?{link.query}")
        yield server
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    return {**kept, **own, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def started(url: str, folder: Path) -> dict[str, float]:
    """Milliseconds from the command to its first page."""
    clock = time.perf_counter()
    with served(url, folder) as server:
        server.ask("/plan")
        wall = time.perf_counter() - clock
        return {"wall_ms": 1e3 * wall, "cpu_ms": 1e3 * server.processor()}


def settle(server: Server) -> float:
    """Waits until the server has read ahead; the processor time that this took."""
    while True:  # on a busy machine it may be quiet because nobody lets it run
        with contextlib.suppress(RuntimeError):
            server.ask("/budgets")
            break
        time.sleep(0.5)
    last, quiet = server.processor(), 0
    while quiet < 4:
        time.sleep(0.5)
        now = server.processor()
        quiet = quiet + 1 if now - last < 0.05 else 0
        last = now
    return last


def timed(server: Server, target: Callable[[int], str], rounds: int) -> dict[str, float]:
    """Milliseconds of a page; the first asking, which may compute what is kept, by itself."""
    walls, processor, size = [], [], 0
    for at in range(rounds + 1):
        before, clock = server.processor(), time.perf_counter()
        size = server.ask(target(at))
        walls.append(1e3 * (time.perf_counter() - clock))
        processor.append(1e3 * (server.processor() - before))
    return {
        "first_wall_ms": walls[0], "first_cpu_ms": processor[0],
        "wall_ms": statistics.median(walls[1:]), "wall_max_ms": max(walls[1:]),
        "cpu_ms": statistics.median(processor[1:]), "cpu_max_ms": max(processor[1:]),
        "bytes": size,
    }  # fmt: skip


def move(at: int) -> str:
    """A slider somewhere else each time, of each kind."""
    moved = (
        f"lot={601 + at}", f"epochs={31 + at}", f"epsilon={2 + at / 97:.3f}",
        f"by=sigma&sigma={1.1 + at / 50:.3f}", f"examples={60_000 + 997 * at}",
    )  # fmt: skip
    return f"/plan/answer?{moved[at % len(moved)]}"


def watched(server: Server, live: Path) -> dict[str, float]:
    """The server's share of a core while many watch a run that adds an epoch a second."""
    lines = (live / "history.jsonl").read_text().splitlines(keepends=True)
    stop = threading.Event()
    with (live / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        trained = threading.Thread(target=_trained, args=(live / "history.jsonl", lines, stop))
        trained.start()
        idle = _share(server)
        viewers = [_viewer(server) for _ in range(VIEWERS)]
        drained = [threading.Thread(target=_drain, args=(one, stop)) for one in viewers]
        for one in drained:
            one.start()
        time.sleep(2.0)
        share = _share(server)
        stop.set()
        for one in (trained, *drained):
            one.join()
    return {"idle_percent": idle, "watched_percent": share, "viewers": VIEWERS}


def _share(server: Server) -> float:
    before, clock = server.processor(), time.perf_counter()
    time.sleep(WATCHED)
    return 100 * (server.processor() - before) / (time.perf_counter() - clock)


def _trained(path: Path, lines: list[str], stop: threading.Event) -> None:
    at = 0
    while not stop.wait(1.0):
        at = at % len(lines) + 1
        path.write_text("".join(lines[:at]))


def _viewer(server: Server) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.request("GET", "/runs/live/events", headers={"cookie": server.cookie})
    return connection.getresponse()


def _drain(viewer: http.client.HTTPResponse, stop: threading.Event) -> None:
    while not stop.is_set():
        viewer.readline()


# ---- the report


def markdown(record: dict[str, Any]) -> str:
    starts, seen, where = record["start"], record["viewers"], record["machine"]
    columns = ("first, ms", "processor", "then, ms", "longest", "processor", "longest", "kB")
    lines = [
        "# The console",
        "",
        f"`{record['command']}`, {record['date']}, commit {record['commit']}, {where['cpu']}, "
        f"{where['cores']} cores, load {record['load']:.2f} at the start; {record['database']}, "
        f"{RELEASES:,} releases, {RUNS} runs.",
        "",
        f"From the command to the first page: {_of(starts, 'wall_ms')} ms "
        f"({_of(starts, 'cpu_ms')} ms of a processor); required {START:.0f}. Reading ahead took "
        f"{record['settled_cpu_s']:.1f} s of a processor, start and all.",
        "",
        f"| page | {' | '.join(columns)} |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
        *(_row(page, found) for page, found in record["pages"].items()),
        _row("**a move of the planner**", record["move"]),
        "",
        f"Required: {PAGE:.0f} ms a page, {MOVE:.0f} ms a move.",
        "",
        f"{seen['viewers']} viewers of a run that adds an epoch a second: the server takes "
        f"{seen['watched_percent']:.2f} % of a core ({seen['idle_percent']:.2f} % without "
        f"viewers); required {SHARE:.0f} %. The training process does nothing for them.",
    ]
    return "\n".join(lines)


def _of(found: list[dict[str, float]], name: str) -> str:
    return ", ".join(f"{one[name]:.0f}" for one in found)


def _row(page: str, found: dict[str, float]) -> str:
    names = ("first_wall_ms", "first_cpu_ms", "wall_ms", "wall_max_ms", "cpu_ms", "cpu_max_ms")
    figures = " | ".join(f"{found[name]:.0f}" for name in names)
    return f"| {page} | {figures} | {found['bytes'] / 1e3:.1f} |"


if __name__ == "__main__":
    main()
