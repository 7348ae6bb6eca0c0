"""Times a private training step on the CPU: tacit, Opacus, and PyTorch without privacy.

    python benchmarks/engine_cpu.py [--models mlp cnn gpt] [--threads N] [--rounds N] [--record]

A step is everything: forward, backward, clipping, noise, optimizer. Every engine runs uncompiled in
a process of its own; the engines take turns, round by round, so that a busy machine slows all of
them alike, and a ratio is the median of the rounds' ratios.
"""

import argparse
import contextlib
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import environments
import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TACIT, RIVALS, PLAIN = "tacit", ("opacus-hooks", "opacus-ghost"), "pytorch"
WORKERS = {TACIT: "tacit", PLAIN: "tacit"} | dict.fromkeys(RIVALS, "opacus")
SETTINGS = {
    TACIT: "tacit.private, full-batch plan over a TensorDataset, default Performance",
    "opacus-hooks": 'make_private(grad_sample_mode="hooks", poisson_sampling=False)',
    "opacus-ghost": 'make_private(grad_sample_mode="ghost", poisson_sampling=False)',
    PLAIN: "no privacy",
}
MODELS = {
    "mlp": "MLP 60-1000-10, B=600",
    "cnn": "CNN, 4 convolutions with GroupNorm on 3×32×32, B=256",
    "gpt": "GPT, 3 layers, d=128, T=128, vocabulary 1000, B=16",
}
SECONDS_A_TURN = 0.25  # of a few steps, so that a turn is not one bad moment


def main() -> None:
    arguments = parse_arguments()
    record = header(arguments)
    for model in arguments.models or MODELS:
        record["results"][model] = measured(model, arguments)
    record["engines"] = versions(record["results"])
    record["requirements"] = requirements(record["results"])
    report = markdown(record)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (RESULTS / "engine_cpu.json").write_text(text + "\n")
        (RESULTS / "engine_cpu.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), metavar="MODEL",
                        help=f"of {', '.join(MODELS)} (default: all)")  # fmt: skip
    parser.add_argument("--threads", type=int, default=1,
                        help="of every engine (default: 1)")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=15, help="turns that every engine takes")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args()
    if arguments.record and arguments.models:
        parser.error("--record replaces the whole record: it goes with all models")
    return arguments


def measured(model: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Each engine's turns on one model."""
    with contextlib.ExitStack() as stack:
        workers = {
            engine: stack.enter_context(worker(engine, model, arguments.threads))
            for engine in WORKERS
        }
        results: dict[str, Any] = {name: one.started for name, one in workers.items()}
        running = {name: one for name, one in workers.items() if "error" not in one.started}
        for done in range(arguments.rounds):
            print(f"{model}: round {done + 1}", file=sys.stderr, flush=True)
            for name, one in running.items():
                first = results[name]["first"][-1]
                answer = one.ask({"steps": max(1, min(20, round(SECONDS_A_TURN / first)))})
                turns = results[name].setdefault("turns", [])
                turns.append(statistics.median(answer["seconds"]))
                results[name]["peak_bytes"] = answer["peak_bytes"]
    for one in results.values():
        if "turns" in one:
            one["seconds"], one["fastest"] = statistics.median(one["turns"]), min(one["turns"])
    for one in results.values():
        one["times_tacit"] = ratio(one, results[TACIT])
        one["times_pytorch"] = ratio(one, results[PLAIN])
    return results


class Worker:
    """One engine's process, which answers a line with a line."""

    def __init__(self, process: "subprocess.Popen[str]", task: Mapping[str, Any]) -> None:
        self._process = process
        self.started = self.ask(task)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a worker ended with status {self._process.wait()}: {request}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def worker(engine: str, model: str, threads: int, batch: int | None = None) -> Iterator[Worker]:
    """Starts an engine's process and ends it; the driver's own interpreter serves tacit."""
    peer = WORKERS[engine]
    python = Path(sys.executable) if peer == "tacit" else environments.python_for(peer)
    process = subprocess.Popen(
        [python, HERE / "peers" / f"{peer}_engine_worker.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        text=True,
    )
    try:
        yield Worker(
            process, {"engine": engine, "model": model, "threads": threads, "batch": batch}
        )
    finally:
        process.communicate()  # closes its input, which ends it


def ratio(one: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """How many times the other's time it takes: the median over the rounds."""
    if "turns" not in one or "turns" not in other:
        return None
    pairs = zip(one["turns"], other["turns"], strict=True)
    return statistics.median(mine / theirs for mine, theirs in pairs)


def requirements(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for model, by_engine in results.items():
        for rival in RIVALS:
            times = by_engine[rival]["times_tacit"]
            shown = "no answer" if times is None else f"{times:.2f}×"
            met = times is not None and times > 1
            found.append({"what": f"{model}: faster than {rival}", "measured": shown, "met": met})
    return found


def header(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "command": machine.command(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": machine.commit(),
        "machine": machine.description(),
        "load_average": os.getloadavg()[0],
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "results": {},
    }


def versions(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Moves the versions, the same for every model, out of the results."""
    found: dict[str, Any] = {name: {"setting": SETTINGS[name], "versions": {}} for name in WORKERS}
    for by_engine in results.values():
        for name, result in by_engine.items():
            found[name]["versions"] |= result.pop("versions", {})
    return found


def markdown(record: Mapping[str, Any]) -> str:
    host = record["machine"]
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB, {host['system']}; "
        f"{record['threads']} threads an engine, {record['rounds']} rounds in turn; load average "
        f"{record['load_average']:.1f} at the start.",
        "",
        "### Milliseconds of a step (times tacit's, times PyTorch's without privacy)",
        "",
        "| model | " + " | ".join(WORKERS) + " |",
        "|---|" + "---:|" * len(WORKERS),
        *(
            f"| {MODELS[model]} | " + " | ".join(cell(by_engine[name]) for name in WORKERS) + " |"
            for model, by_engine in record["results"].items()
        ),
        "",
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
        "| engine | versions | setting |",
        "|---|---|---|",
        *(
            f"| {name} | {', '.join(f'{p} {v}' for p, v in one['versions'].items())} "
            f"| {one['setting']} |"
            for name, one in record["engines"].items()
        ),
    ]
    return "\n".join(lines)


def cell(one: Mapping[str, Any]) -> str:
    if "seconds" not in one:
        return f"error: {one.get('error', 'none')[:80]}"
    times = f"{one['times_tacit']:.2f}×, {one['times_pytorch']:.2f}×"
    return f"{1e3 * one['seconds']:.3g} ({times})"


if __name__ == "__main__":
    main()
