"""Times the exact discrete noise of tacit beside OpenDP's, and the streams and noise it rests on.

    python benchmarks/discrete_noise.py [--draws 100000] [--rounds 7] [--record]

Both draw from the same laws, discrete Laplace and discrete Gaussian, on one thread. OpenDP runs in
an environment of its own, timed over a whole vector, its fastest way, and with a call for each
number; tacit is required to be 100 times as fast as the former.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import environments
import machine
import tacit
from tacit.randomness import (
    GaussianSource,
    RoundedGaussian,
    SecureStream,
    SystemStream,
    discrete_gaussian,
    discrete_laplace,
    rounded_laplace,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
CASES = [
    (law, scale) for law in ("laplace", "gaussian") for scale in (0.5, 1.0, 10.0, 1e3, 2.0**40)
]
SINGLE = 1_000  # numbers that OpenDP is asked for one by one
REQUIRED = 100.0


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    theirs = opendp(arguments.draws, arguments.rounds)
    rows = []
    for (law, scale), other in zip(CASES, theirs["rows"], strict=True):
        print(f"tacit, {law} {scale:g} ...", file=sys.stderr, flush=True)
        rows.append({"law": law, "scale": scale, "opendp": other} | ours(law, scale, arguments))
    record = header(arguments, load) | {
        "versions": {"tacit": tacit.__version__, "opendp": theirs["version"]},
        "rows": rows,
        "parts": parts(arguments.rounds),
    }
    report = markdown(record)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "discrete_noise.json").write_text(text + "\n")
        (RESULTS / "discrete_noise.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=100_000, help="numbers a call")
    parser.add_argument("--rounds", type=int, default=7, help="calls of each, of which the median")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def opendp(draws: int, rounds: int) -> dict[str, Any]:
    python = environments.python_for("opendp")
    print("opendp ...", file=sys.stderr, flush=True)
    job = {"draws": draws, "single": SINGLE, "rounds": rounds, "cases": CASES}
    worker = subprocess.run(
        [python, HERE / "peers" / "opendp_noise_worker.py"],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(worker.stdout)
    return answer


def ours(law: str, scale: float, arguments: argparse.Namespace) -> dict[str, Any]:
    sampler = discrete_laplace if law == "laplace" else discrete_gaussian
    stream = SecureStream("benchmark")
    values = sampler(scale, arguments.draws, stream).astype(np.float64)
    times = machine.seconds(lambda: sampler(scale, arguments.draws, stream), arguments.rounds)
    return {
        "tacit": {
            "vector": [one / arguments.draws for one in times],
            "deviation": math.sqrt(float((values**2).mean())),
        }
    }


def parts(rounds: int) -> dict[str, list[float]]:
    """Seconds for what else the room offers: streams of 8 MiB, and noise of a million entries."""
    stream, cpu, count = SecureStream("benchmark"), torch.device("cpu"), 1_000_000
    integers, reals = torch.empty(count, dtype=torch.int64), torch.empty(count)
    rounded, fast = RoundedGaussian(stream, cpu), GaussianSource(cpu, stream)
    jobs: dict[str, Callable[[], object]] = {
        "SecureStream, 8 MiB": lambda: stream.bytes(8 << 20),
        "SystemStream, 8 MiB": lambda: SystemStream().bytes(8 << 20),
        "RoundedGaussian, scale 2²⁰, 10⁶ numbers": lambda: rounded.integers_(integers, 2.0**20),
        "RoundedGaussian, scale 2³⁰, 10⁶ numbers": lambda: rounded.integers_(integers, 2.0**30),
        "GaussianSource (fast, float32), 10⁶ numbers": lambda: fast.normal_(reals),
        "rounded_laplace, scale 2²⁰, 10⁶ numbers": lambda: rounded_laplace(2.0**20, count, stream),
    }
    return {name: machine.seconds(job, rounds) for name, job in jobs.items()}


def header(arguments: argparse.Namespace, load: float) -> dict[str, Any]:
    return {
        **machine.stamp(),
        "load": load,
        "draws": arguments.draws,
        "rounds": arguments.rounds,
    }


def markdown(record: dict[str, Any]) -> str:
    place = record["machine"]
    ratios = [ratio(row) for row in record["rows"]]
    met = "met" if min(ratios) >= REQUIRED else "**missed**"
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores, {place['system']}; OpenDP "
        f"{record['versions']['opendp']}, tacit {record['versions']['tacit']}, one thread each; "
        f"{record['draws']} draws a call, median of {record['rounds']} calls; "
        f"load average {record['load']:.1f} at the start.",
        "",
        "### Nanoseconds of a draw",
        "",
        "| law | tacit | OpenDP, a vector at once | times tacit's | OpenDP, a call each | "
        "deviation: tacit, OpenDP, exact |",
        "|---|---:|---:|---:|---:|---:|",
        *(noise_row(row) for row in record["rows"]),
        "",
        "### Required of tacit",
        "",
        "| requirement | measured | |",
        "|---|---:|---|",
        f"| {REQUIRED:.0f}× as fast as OpenDP's vector, every law and scale "
        f"| {min(ratios):.0f}× to {max(ratios):.0f}× | {met} |",
        "",
        "### What else the room draws, on one thread",
        "",
        "| what | milliseconds |",
        "|---|---:|",
        *(
            f"| {name} | {1e3 * statistics.median(times):.1f} |"
            for name, times in record["parts"].items()
        ),
    ]
    return "\n".join(lines)


def ratio(row: dict[str, Any]) -> float:
    return statistics.median(row["opendp"]["vector"]) / statistics.median(row["tacit"]["vector"])


def noise_row(row: dict[str, Any]) -> str:
    theirs, mine = row["opendp"], row["tacit"]
    nanoseconds = [
        f"{1e9 * statistics.median(times):.0f}"
        for times in (mine["vector"], theirs["vector"], theirs["single"])
    ]
    deviations = (mine["deviation"], theirs["deviation"], deviation(row["law"], row["scale"]))
    shown = ", ".join(f"{one:.4g}" for one in deviations)
    return (
        f"| {row['law']}, {row['scale']:g} | {nanoseconds[0]} | {nanoseconds[1]} | "
        f"{ratio(row):.0f}× | {nanoseconds[2]} | {shown} |"
    )


def deviation(law: str, scale: float) -> float:
    """The law's standard deviation, by its sum; of a large scale, the continuous law's."""
    if scale > 1e6:
        return scale * (math.sqrt(2) if law == "laplace" else 1.0)
    k = np.arange(-math.ceil(60 * scale), math.ceil(60 * scale) + 1.0)
    weights = np.exp(-abs(k) / scale if law == "laplace" else -(k**2) / (2 * scale**2))
    return math.sqrt(float((k**2 * weights).sum() / weights.sum()))


if __name__ == "__main__":
    main()
