"""Puts every injected bug of tests/auditing/mutants to the self-test, and counts false alarms.

    python benchmarks/mutants.py [--mutants NAME ...] [--processes 2] [--record]
    python benchmarks/mutants.py --unseen [--record]      # ten that the self-test was not made for
    python benchmarks/mutants.py --patches FOLDER --round third [--commit HEAD] [--outputs FOLDER]
    python benchmarks/mutants.py --device cuda --processes 12 [--within SECONDS] [--record]
    python benchmarks/mutants.py --clean 100 [--record]   # runs without a bug, over all settings
    python benchmarks/mutants.py --generated 500 --tests [--record]   # made by rule, with an oracle

With --device the engine trains there, with its steps recorded (``device_mutants``).

A bug is caught if the report fails and names a component that is to blame: each mutant says which
those may be. With --record each replaces its own part of results/mutants.json; the unseen ones have
results/unseen_mutants.json for themselves, where a round's first run stays. The first three rounds
are among the known bugs by now. From the third on bugs are patches of the source, which the default
command is run on as a whole (``patched_mutants``). Generated ones (``generated_mutants``) have
results/generated_mutants.json.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import device_mutants
import generated_mutants
import machine
import patched_mutants

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NAME = "mutants"
AUTHOR = (
    "The author of the unseen bugs had not read the checks, and changed no bug once the self-test "
    "had been run on it."
)
FIRST = (
    f"{AUTHOR} The bugs were done on 2026-11-16 at 00:45 UTC and first run at 00:55. In between "
    "the self-test was not frozen: three lines came into checks/sampling.py at 00:53, and whether "
    "they bear on the two sampling bugs was not examined. The self-test was then widened, and "
    "finds all ten by now (mutants.md)."
)
SECOND = (
    f"{AUTHOR} Another author than the first round's, who was done at 03:32 UTC; the self-test had "
    "been widened meanwhile, and its last change was at 03:37. What it missed it finds by now "
    "(mutants.md)."
)
sys.path.insert(0, str(ROOT))  # for the worker: the catalogue is that of the tests


def main() -> None:
    arguments = parse_arguments()
    if arguments.device:
        device_mutants.on_a_device(arguments)
        return
    unseen = arguments.unseen or arguments.patches is not None
    prefix = "unseen_" if unseen else "generated_" if arguments.generated else ""
    path = RESULTS / f"{prefix}{NAME}.json"
    known = json.loads(path.read_text()) if arguments.record and path.exists() else {}
    if unseen and (arguments.round or "second") in known:  # before hours of work
        raise SystemExit(f"{path.name} holds the first run of these bugs, which stays")
    started = time.perf_counter()
    if arguments.generated:
        part = {"generated": generated_mutants.generated(arguments)}
    elif arguments.clean:
        part = {"clean": clean(arguments.clean, arguments.processes)}
    elif arguments.patches:
        part = {arguments.round: patched_mutants.patched(arguments)}
    elif arguments.unseen:
        part = {"second": mutants(unseen_names(), arguments.processes)}
    else:
        part = {"mutants": mutants(arguments.mutants, arguments.processes)}
    about = machine.stamp() | {
        "processes": arguments.processes,
        "seconds": time.perf_counter() - started,
        "load": os.getloadavg()[0],
    }
    record = known | {key: about | rows for key, rows in part.items()}
    report = markdown(record)
    print(report)
    if arguments.record:
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        path.with_suffix(".md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", nargs="+", metavar="NAME", help="some of them (default: all)")
    parser.add_argument("--clean", type=int, metavar="RUNS", help="count false alarms instead")
    parser.add_argument("--unseen", action="store_true", help="those outside of the catalogue")
    generated_mutants.add_arguments(parser)
    patched_mutants.add_arguments(parser)
    device_mutants.add_arguments(parser)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args()
    if arguments.record and arguments.mutants:
        parser.error("--record replaces the whole record: it goes with all mutants")
    if arguments.record and arguments.device == "cpu":
        parser.error("--device cpu is a rehearsal: leave out --record")
    if (arguments.patches is None) != (arguments.round is None):
        parser.error("--patches and --round go together")
    return arguments


def mutants(names: list[str] | None, processes: int) -> dict[str, Any]:
    worker = import_module("mutants_worker")
    wanted = names or list(worker.KNOWN)
    rows = {row["name"]: row for row in shared(worker.one_mutant, wanted, processes)}
    return {"rows": [rows[name] for name in wanted]}


def unseen_names() -> list[str]:
    return list(import_module("mutants_worker").UNSEEN)


def clean(runs: int, processes: int) -> dict[str, Any]:
    worker = import_module("mutants_worker")
    names = list(itertools.islice(itertools.cycle(worker.correct()), runs))
    rows = shared(worker.one_clean, names, processes)
    return {"rows": sorted(rows, key=lambda row: names.index(row["name"]))}


def shared(work: Any, names: Iterable[str], processes: int) -> Iterator[dict[str, Any]]:
    """The rows as they come, from processes that each do one at a time."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for done in as_completed([pool.submit(work, name) for name in names]):
            row = done.result()
            named = ", ".join(row["at_fault"]) or row["error"] or "nothing"
            print(f"{row['seconds']:6.1f} s  {row['name']}: {named}", file=sys.stderr, flush=True)
            yield row


def markdown(record: dict[str, Any]) -> str:
    sections = {
        "mutants": mutants_in_words,
        "fourth": patched_mutants.in_words,
        "third": patched_mutants.in_words,
        "second": partial(unseen_in_words, about=SECOND),
        "unseen": partial(unseen_in_words, about=FIRST),
        "clean": clean_in_words,
        "generated": generated_mutants.in_words,
    }
    return "\n\n".join(tell(record[key]) for key, tell in sections.items() if key in record)


def mutants_in_words(part: dict[str, Any]) -> str:
    rows = part["rows"]
    caught = sum(row["caught"] for row in rows)
    lines = [
        f"### {caught} of {len(rows)} injected bugs caught, with the component named",
        "",
        f"{run_in_words(part)} *Named* are the components at fault by the report, the first found "
        "first; *may be named* are those that a right report may blame.",
        "",
        "| bug | what is wrong | caught | named | may be named | seconds | of a processor |",
        "|---|---|---|---|---|---:|---:|",
        *(mutant_line(row) for row in rows),
    ]
    return "\n".join(lines)


def unseen_in_words(part: dict[str, Any], about: str) -> str:
    """The same table, and what the self-test said of each bug."""
    accused = sum(bool(row["at_fault"]) for row in part["rows"])
    lines = [
        mutants_in_words(part).replace("injected bugs caught", "unseen bugs caught", 1),
        "",
        f"In {accused} runs something was found at all, with a right component or another. {about} "
        "All that the self-test said:",
        "",
    ]
    for row in part["rows"]:
        told = row["faults"] or [row["error"] or f"nothing: {row['checks']} checks passed"]
        lines += [f"- {row['name']}", *(f"  - {line}" for line in told)]
    return "\n".join(lines)


def mutant_line(row: dict[str, Any]) -> str:
    named = ", ".join(row["at_fault"]) or (f"error: {row['error']}" if row["error"] else "nothing")
    caught = "yes" if row["caught"] else "**NO**"
    cells = [row["name"], row["says"], caught, named, ", ".join(row["may"])]
    told = " | ".join(cell.replace("|", "∣") for cell in cells)
    return f"| {told} | {row['seconds']:.1f} | {row['processor']:.1f} |"


def clean_in_words(part: dict[str, Any]) -> str:
    rows = part["rows"]
    alarms = [row for row in rows if row["faults"] or row["error"]]
    names = list(dict.fromkeys(row["name"] for row in rows))
    lines = [
        f"### {len(alarms)} false alarms in {len(rows)} runs without a bug",
        "",
        f"{run_in_words(part)} {sum(row['checks'] for row in rows):,} checks in all.",
        "",
        "| setting | runs | false alarms | checks a run | processor seconds a run |",
        "|---|---:|---:|---:|---:|",
        *(clean_line(name, [row for row in rows if row["name"] == name]) for name in names),
        *(f"\n- {row['name']}: {'; '.join(row['faults']) or row['error']}" for row in alarms),
    ]
    return "\n".join(lines)


def clean_line(name: str, rows: list[dict[str, Any]]) -> str:
    alarms = sum(bool(row["faults"] or row["error"]) for row in rows)
    seconds = sum(row["processor"] for row in rows) / len(rows)
    return f"| {name} | {len(rows)} | {alarms} | {rows[0]['checks']} | {seconds:.1f} |"


def run_in_words(part: dict[str, Any]) -> str:
    place = part["machine"]
    return (
        f"Run {part['date']} at commit {part['commit']} by `{part['command']}` on {place['cpu']}, "
        f"{place['cores']} cores, load average {part['load']:.1f} at the end: {part['processes']} "
        f"processes of one thread, {part['seconds']:.0f} s altogether, and "
        f"{sum(row['processor'] for row in part['rows']):.0f} s of a processor's time."
    )


if __name__ == "__main__":
    main()
