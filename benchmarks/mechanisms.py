"""Times tacit's mechanisms: Laplace noise beside OpenDP's, a large histogram, PCA of MNIST.

    python benchmarks/mechanisms.py [--draws 1000000] [--rounds 5] [--record]

Laplace noise on real numbers is drawn by both on one thread; OpenDP runs in an environment of its
own, over a whole vector, its fastest way (a round takes it about a minute: one, after none). The
histogram and PCA use the two cores that they are required to be fast on.
"""

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import environments
import machine
import tacit
from tacit.mechanisms import (
    covariance,
    discrete_laplace,
    exponential,
    gaussian,
    histogram,
    laplace,
    mean,
    pca,
    quantile,
)

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
MNIST = Path(os.environ.get("TACIT_DATA", "data")) / "mnist"
ROWS, CELLS = 2_000_000, 100_000
REQUIRED = {"laplace": 100.0, "histogram": 2.0, "pca": 10.0}


def main() -> None:
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    theirs = opendp(arguments.draws)
    record = header(arguments, load) | {
        "versions": {"tacit": tacit.__version__, "opendp": theirs["version"]},
        "laplace": {"opendp": theirs, "tacit": ours(arguments)},
        "histogram": histograms(arguments.rounds),
        "rows": of_mnist(arguments.rounds),
        "others": others(arguments.rounds),
    }
    report = markdown(record)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "mechanisms.json").write_text(text + "\n")
        (RESULTS / "mechanisms.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=1_000_000, help="Laplace numbers a call")
    parser.add_argument("--rounds", type=int, default=5, help="calls of each, of which the median")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def opendp(draws: int) -> dict[str, Any]:
    python = environments.python_for("opendp")
    print("opendp ...", file=sys.stderr, flush=True)
    worker = subprocess.run(
        [python, HERE / "peers" / "opendp_mechanisms_worker.py"],
        input=json.dumps({"draws": draws, "rounds": 1, "scale": 1.0}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(worker.stdout)
    return answer


def ours(arguments: argparse.Namespace) -> dict[str, Any]:
    """From a list of numbers to noisy numbers, as for OpenDP; on one thread."""
    print("tacit, laplace ...", file=sys.stderr, flush=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    zeros = [0.0] * arguments.draws
    values = laplace(zeros, sensitivity=1.0, epsilon=1.0).value
    times = machine.seconds(lambda: laplace(zeros, sensitivity=1.0, epsilon=1.0), arguments.rounds)
    torch.set_num_threads(threads)
    return {"seconds": times, "mean_size": float(np.abs(values).mean())}


def histograms(rounds: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, CELLS, ROWS)
    names = np.asarray([f"key {number}" for number in range(CELLS)])
    texts, order = names[numbers], rng.permutation(CELLS)
    jobs: dict[str, Callable[[], object]] = {
        "cells 0 … 99,999": lambda: histogram(numbers, cells=CELLS, epsilon=1),
        "cells in a list": lambda: histogram(numbers, cells=order, epsilon=1),
        "Gaussian noise": lambda: histogram(numbers, cells=CELLS, epsilon=1, delta=1e-6),
        "edges": lambda: histogram(numbers + 0.5, edges=np.arange(CELLS + 1), epsilon=1),
        "texts": lambda: histogram(texts, cells=names, epsilon=1),
        "unknown keys": lambda: histogram(numbers, epsilon=1, delta=1e-6),
        "unknown texts": lambda: histogram(texts, epsilon=1, delta=1e-6),
    }
    return timed("histogram", jobs, rounds)


def of_mnist(rounds: int) -> dict[str, list[float]]:
    with gzip.open(MNIST / "train-images-idx3-ubyte.gz") as stored:
        pixels = np.frombuffer(stored.read(), dtype=np.uint8, offset=16)
    images = pixels.reshape(-1, 784) / 255.0
    jobs: dict[str, Callable[[], object]] = {
        "pca, 50 components": lambda: pca(images, 50, norm=10.0, epsilon=1, delta=1e-6),
        "covariance": lambda: covariance(images, norm=10.0, epsilon=1, delta=1e-6),
    }
    return timed("mnist", jobs, rounds)


def others(rounds: int) -> dict[str, list[float]]:
    million = np.random.default_rng(0).normal(size=1_000_000)
    counts = np.zeros(1_000_000, dtype=np.int64)
    jobs: dict[str, Callable[[], object]] = {
        "gaussian, 10⁶ numbers": lambda: gaussian(million, sensitivity=1, rho=0.1),
        "discrete_laplace, 10⁶ numbers": lambda: discrete_laplace(counts, epsilon=1),
        "mean of 10⁶": lambda: mean(million, bounds=(-5, 5), epsilon=1),
        "quantile of 10⁶": lambda: quantile(million, 0.5, bounds=(-5, 5), epsilon=1),
        "exponential, 10⁶ candidates": lambda: exponential(million, sensitivity=1, epsilon=1),
    }
    return timed("others", jobs, rounds)


def timed(kind: str, jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    found = {}
    for name, job in jobs.items():
        print(f"tacit, {kind}: {name} ...", file=sys.stderr, flush=True)
        found[name] = machine.seconds(job, rounds)
    return found


def header(arguments: argparse.Namespace, load: float) -> dict[str, Any]:
    return {
        **machine.stamp(),
        "load": load,
        "draws": arguments.draws,
        "rounds": arguments.rounds,
    }


def markdown(record: dict[str, Any]) -> str:
    place, peer, mine = record["machine"], record["laplace"]["opendp"], record["laplace"]["tacit"]
    ratio = statistics.median(peer["seconds"]) / statistics.median(mine["seconds"])
    worst = max(statistics.median(times) for times in record["histogram"].values())
    components = statistics.median(record["rows"]["pca, 50 components"])
    rows = {
        "histogram of 2·10⁶ rows, 10⁵ cells: ": record["histogram"],
        "60,000 × 784 (MNIST): ": record["rows"],
        "": record["others"],
    }
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores, {place['system']}; OpenDP "
        f"{record['versions']['opendp']}, tacit {record['versions']['tacit']}; median of "
        f"{record['rounds']} calls (OpenDP: one); load average {record['load']:.1f} at the start.",
        "",
        f"### Laplace noise on {record['draws']} real numbers, one thread each",
        "",
        "| | seconds | mean size of the noise (scale 1) |",
        "|---|---:|---:|",
        f"| tacit | {statistics.median(mine['seconds']):.3f} | {mine['mean_size']:.4f} |",
        f"| OpenDP | {statistics.median(peer['seconds']):.1f} | {peer['mean_size']:.4f} |",
        "",
        "### Required of tacit",
        "",
        "| requirement | measured | |",
        "|---|---:|---|",
        f"| Laplace {REQUIRED['laplace']:.0f}× as fast as OpenDP's | {ratio:.0f}× | "
        f"{met(ratio >= REQUIRED['laplace'])} |",
        f"| every histogram of 2·10⁶ rows with 10⁵ cells ≤ {REQUIRED['histogram']:.0f} s | "
        f"{worst:.2f} s | {met(worst <= REQUIRED['histogram'])} |",
        f"| PCA of 60,000 × 784 ≤ {REQUIRED['pca']:.0f} s | {components:.2f} s | "
        f"{met(components <= REQUIRED['pca'])} |",
        "",
        "### Milliseconds",
        "",
        "| what | |",
        "|---|---:|",
        *(
            f"| {kind}{name} | {1e3 * statistics.median(times):.0f} |"
            for kind, jobs in rows.items()
            for name, times in jobs.items()
        ),
    ]
    return "\n".join(lines)


def met(requirement: bool) -> str:
    return "met" if requirement else "**missed**"


if __name__ == "__main__":
    main()
