"""Times tacit's accountant and its peers on the same rows, and compares their answers to the truth.

    python benchmarks/accounting.py [--engine NAME ...] [--rows a b c ...] [--record]

A record of some engines keeps what the record on this machine has of the others, and says so.

Run it with the interpreter that has tacit installed; the peers get environments of their own. All
run on one thread, one at a time, each row in a fresh process (see `accounting_worker.py`).
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import accounting_report
import environments
import machine
from accounting_engines import ENGINES, Engine
from accounting_rows import ROWS, Row

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB")
}


def main() -> None:
    arguments = parse_arguments()
    engines = [ENGINES[name] for name in arguments.engine or ENGINES]
    rows = [ROWS[name] for name in arguments.rows or ROWS]
    interpreters = {engine.peer: interpreter(engine) for engine in engines}
    record = header() | {"timeout": arguments.timeout, "engines": {}, "results": {}}
    for row in rows:  # row by row, so that a drift of the machine touches all engines alike
        record["results"][row.name] = {
            engine.name: run(engine, row, interpreters[engine.peer], arguments.timeout)
            for engine in engines
        }
    record["engines"] = versions(record["results"])
    if arguments.record and arguments.engine:
        record = with_others(record)
    report = accounting_report.markdown(record)
    print(report)
    if arguments.record:
        save(record, report)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", nargs="+", choices=list(ENGINES), metavar="NAME",
                        help=f"of {', '.join(ENGINES)} (default: all)")  # fmt: skip
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), metavar="ROW",
                        help=f"of {' '.join(ROWS)} (default: all)")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that a call may take")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args()
    if arguments.record and arguments.rows:
        parser.error("--record goes with all rows")
    return arguments


def interpreter(engine: Engine) -> Path:
    """The driver's own for tacit, its environment's for a peer."""
    return Path(sys.executable) if engine.peer == "tacit" else environments.python_for(engine.peer)


def run(engine: Engine, row: Row, python: Path, timeout: float) -> dict[str, Any]:
    """One worker process; whatever becomes of it is a result."""
    print(f"{row.name:3} {engine.name}", file=sys.stderr, flush=True)
    request = {"accountant": engine.accountant, "row": row.name, "timeout": timeout}
    paths = [str(HERE)]
    if engine.peer == "tacit":  # measure the source that the driver runs on
        paths += filter(None, [os.environ.get("PYTHONPATH")])
    try:
        worker = subprocess.run(
            [python, HERE / "peers" / f"{engine.peer}_worker.py"],
            input=json.dumps(request),
            env=os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=5 * timeout + 60,  # for a call that never returns to Python to be interrupted
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"timeout": timeout}
    if worker.returncode != 0:
        last_line = (worker.stderr.strip().splitlines() or [""])[-1]
        return {"error": f"the worker ended with status {worker.returncode}: {last_line}"}
    result: dict[str, Any] = json.loads(worker.stdout)
    return result


def header() -> dict[str, Any]:
    return {
        "command": machine.command(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": machine.commit(),
        "machine": machine.description(),
        "load_average": os.getloadavg()[0],  # a busy machine makes figures that nobody can repeat
        "threads": 1,
    }


def versions(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Moves the versions, the same for every row, out of the rows."""
    found: dict[str, Any] = {}
    for by_engine in results.values():
        for name, result in by_engine.items():
            installed = result.pop("versions", {})
            found.setdefault(name, {"setting": ENGINES[name].setting, "versions": {}})
            found[name]["versions"] |= installed
    return found


def with_others(record: dict[str, Any]) -> dict[str, Any]:
    """The record with the other engines' columns of the one before, if it is of this machine."""
    before = json.loads((RESULTS / "accounting.json").read_text())
    if before["machine"] != record["machine"] or before["timeout"] != record["timeout"]:
        raise SystemExit("the record is of another machine or timeout: measure all engines again")
    kept = [name for name in before["engines"] if name not in record["engines"]]
    earlier = before.get("kept", {})
    known = before["engines"] | record["engines"]
    return record | {
        "kept": {name: earlier.get(name, measured_when(before)) for name in kept},
        "engines": {name: known[name] for name in ENGINES if name in known},
        "results": {
            row: {name: (before["results"][row] | found)[name] for name in ENGINES if name in known}
            for row, found in record["results"].items()
        },
    }


def measured_when(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("date", "commit", "load_average")}


def save(record: dict[str, Any], report: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    rows = {name: {"title": row.title, "delta": row.delta, "truth": row.truth}
            for name, row in ROWS.items()}  # fmt: skip
    requirements = [vars(item) for item in accounting_report.requirements(record["results"])]
    whole = record | {"rows": rows, "requirements": requirements}
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    (RESULTS / "accounting.json").write_text(text + "\n")
    (RESULTS / "accounting.md").write_text(report + "\n")


if __name__ == "__main__":
    main()
