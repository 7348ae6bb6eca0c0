"""Private logistic regression on Adult and MNIST: tacit beside diffprivlib and OpenDP.

    python benchmarks/convex.py --folder DATA [--data adult] [--engine tacit ...] [--record]

A whole run takes half an hour; one of chosen data and engines replaces their part of the record.

DATA holds the folders `adult` and `mnist` with the published files. Every engine gets the same rows
and the same public bound on their norm, and protects an example under replace-one, in a process of
its own on one thread. An engine with several settings tries each once and is measured at the best.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import environments
import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
EPSILONS = (0.1, 1.0, 4.0)
DELTA = 1e-5
# How often each setting is tried, and how often the best one is measured.
TRIALS = {"adult": 4, "mnist": 1}
REPEATS = {"adult": 15, "mnist": 1}
# Engine: worker, its environment (none: this interpreter), its argument, and what it does.
ENGINES: dict[str, tuple[str, str | None, list[str], str]] = {
    "tacit": ("tacit", None, [], "LogisticRegression, method='auto'; clip=None or 'half'"),
    "tacit, δ = 0": ("tacit", None, ["--pure"], "the same with delta=0"),
    "diffprivlib": (
        "diffprivlib",
        "diffprivlib",
        [],
        "LogisticRegression, which is pure ε; C = 1, 0.01 or 0.001",
    ),
    "OpenDP": (
        "opendp",
        "opendp_convex",
        [],
        "it has no logistic regression: noisy gradient descent with its Gaussian mechanism, "
        "accounted by its zCDP; 30 to 300 steps of 3/β or 4/β",
    ),
}
COMPARED = (("tacit", "diffprivlib"), ("tacit, δ = 0", "diffprivlib"), ("tacit", "OpenDP"))


def main() -> None:
    arguments = parse_arguments()
    results: dict[str, dict[str, Any]] = {}
    for data in arguments.data:
        for engine in arguments.engine:
            print(f"{data}: {engine}", file=sys.stderr, flush=True)
            results.setdefault(data, {})[engine] = measured(data, engine, arguments.folder)
    if arguments.record:
        results = merged(results)
    record = header() | {"results": results, "requirements": requirements(results)}
    report = markdown(record)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "convex.json").write_text(text + "\n")
        (RESULTS / "convex.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the data lies")
    parser.add_argument("--data", nargs="+", choices=list(REPEATS), default=list(REPEATS))
    parser.add_argument("--engine", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def merged(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The record's results with these in their place, in the order of the lists above."""
    known = RESULTS / "convex.json"
    old = json.loads(known.read_text())["results"] if known.exists() else {}
    both = {data: old.get(data, {}) | results.get(data, {}) for data in REPEATS}
    return {
        data: {engine: found[engine] for engine in ENGINES if engine in found}
        for data, found in both.items()
        if found
    }


def measured(data: str, engine: str, folder: Path) -> dict[str, Any]:
    name, environment, extra, _ = ENGINES[engine]
    python = Path(sys.executable) if environment is None else environments.python_for(environment)
    job = {
        "data": data,
        "folder": str(folder.resolve()),
        "epsilons": EPSILONS,
        "delta": DELTA,
        "trials": TRIALS[data],
        "repeats": REPEATS[data],
    }
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    worker = subprocess.run(
        [python, HERE / "peers" / f"{name}_convex_worker.py", *extra],
        input=json.dumps(job),
        env=os.environ | {"PYTHONPATH": str(HERE)} | threads,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(worker.stdout)
    answer |= {"date": now(), "load_average": os.getloadavg()[0], "fits": REPEATS[data]}
    for row in answer["rows"]:
        row["mean"] = statistics.mean(row["accuracies"])
        row["spread"] = statistics.pstdev(row["accuracies"])
    return answer


def requirements(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for data, by_engine in results.items():
        for ours, theirs in COMPARED:
            if ours not in by_engine or theirs not in by_engine:
                continue
            pairs = zip(by_engine[ours]["rows"], by_engine[theirs]["rows"], strict=True)
            for mine, other in pairs:
                found.append(
                    {
                        "what": f"{data}, ε = {mine['epsilon']:g}: {ours} ≥ {theirs}",
                        "measured": f"{100 * mine['mean']:.2f} and {100 * other['mean']:.2f}",
                        "met": mine["mean"] >= other["mean"],
                    }
                )
    return found


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def header() -> dict[str, Any]:
    return {
        "command": machine.command(),
        "date": now(),
        "commit": machine.commit(),
        "machine": machine.description(),
        "load_average": os.getloadavg()[0],
        "delta": DELTA,
    }


def markdown(record: Mapping[str, Any]) -> str:
    host = record["machine"]
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{host['cpu']}, {host['cores']} cores; one thread an engine; load average "
        f"{record['load_average']:.1f} at the start. δ = {record['delta']:g} where one is used; "
        "everything under replace-one.",
        "",
    ]
    for data, by_engine in record["results"].items():
        lines += [
            f"### {data}: accuracy on the test rows in %, mean ± standard deviation of "
            f"{REPEATS[data]} fit{'s' * (REPEATS[data] > 1)} (seconds a fit; setting)",
            "",
            "| engine | " + " | ".join(f"ε = {one:g}" for one in EPSILONS) + " |",
            "|---|" + "---|" * len(EPSILONS),
            *(
                f"| {engine} | " + " | ".join(map(cell, answer["rows"])) + " |"
                for engine, answer in by_engine.items()
            ),
            "",
        ]
    lines += [
        "### Required of tacit",
        "",
        "| requirement | measured | |",
        "|---|---:|---|",
        *(
            f"| {one['what']} | {one['measured']} | {'met' if one['met'] else '**NOT MET**'} |"
            for one in record["requirements"]
        ),
        "",
        "### Versions and settings",
        "",
        "| engine | versions | what it does | measured |",
        "|---|---|---|---|",
    ]
    for engine, (_, _, _, setting) in ENGINES.items():
        answers = [found[engine] for found in record["results"].values() if engine in found]
        if answers:
            versions = ", ".join(
                f"{name} {number}" for name, number in answers[0]["versions"].items()
            )
            times = ", ".join(sorted({answer["date"] for answer in answers}))
            lines.append(f"| {engine} | {versions} | {setting} | {times} |")
    return "\n".join(lines)


def cell(row: Mapping[str, Any]) -> str:
    setting = ", ".join(f"{name}={value}" for name, value in row["setting"].items()) or "defaults"
    accuracy = f"{100 * row['mean']:.2f}"
    if len(row["accuracies"]) > 1:
        accuracy += f" ± {100 * row['spread']:.2f}"
    return f"{accuracy} ({row['seconds']:.1f} s; {setting})"


if __name__ == "__main__":
    main()
