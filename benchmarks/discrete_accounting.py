"""How narrow and how quick certified ends are for discrete and Laplace noise, sampled or not.

    python benchmarks/discrete_accounting.py [--every 1] [--record]

Discrete Gaussian noise of σ 0.3 to 1000, released 1 to 10⁵ times; Poisson samples of it and of
Laplace noise of scale 0.5 to 20, at rates 1e-4 to 0.3, 2 to 10⁴ steps; δ 1e-9 to 1e-5. Every
setting is asked once, in CPU time of one thread. ``--every 7`` asks every seventh setting.
"""

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import tacit
from tacit.accounting import DiscreteGaussian, Laplace, PoissonSampled, Repeated, bounds

if TYPE_CHECKING:
    from tacit.accounting import Event

RESULTS = Path(__file__).resolve().parent / "results"
SIGMAS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 4.0, 8.0, 20.0, 60.0, 200.0, 1000.0)
SCALES = (0.5, 1.0, 2.0, 5.0, 20.0)
RATES = (1e-4, 1e-3, 1e-2, 0.1, 0.3)
COUNTS = (1, 2, 5, 30, 1_000, 100_000)
STEPS = (2, 10, 100, 1_000, 10_000)
DELTAS = (1e-9, 1e-7, 1e-5)
REQUIRED_WIDTH, REQUIRED_MEDIAN, REQUIRED_WORST = 1e-6, 5e-3, 0.1


def main() -> None:
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    chosen = settings()[:: arguments.every]
    for kind in ("discrete Gaussian", "sampled discrete Gaussian", "sampled Laplace"):
        bounds(event_of(kind, 1.0, 0.1, 30), 1e-5)  # imports
    rows = []
    for number, setting in enumerate(chosen):
        if number % 50 == 0:
            print(f"{number} of {len(chosen)} ...", file=sys.stderr, flush=True)
        rows.append(ask(*setting))
    record = {**machine.stamp(), "load": load, "tacit": tacit.__version__, "rows": rows}
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "discrete_accounting.json").write_text(text + "\n")
        (RESULTS / "discrete_accounting.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="ask every n-th setting")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def settings() -> list[tuple[str, float, float, int, float]]:
    plain = itertools.product(["discrete Gaussian"], SIGMAS, [1.0], COUNTS, DELTAS)
    discrete = itertools.product(["sampled discrete Gaussian"], SIGMAS, RATES, STEPS, DELTAS)
    laplace = itertools.product(["sampled Laplace"], SCALES, RATES, STEPS, DELTAS)
    return [*plain, *discrete, *laplace]


def event_of(kind: str, scale: float, rate: float, count: int) -> "Event":
    match kind:
        case "discrete Gaussian":
            return Repeated(DiscreteGaussian(scale), count)
        case "sampled discrete Gaussian":
            return Repeated(PoissonSampled(rate, DiscreteGaussian(scale)), count)
        case _:
            return Repeated(PoissonSampled(rate, Laplace(scale)), count)


def ask(kind: str, scale: float, rate: float, count: int, delta: float) -> dict[str, Any]:
    event = event_of(kind, scale, rate, count)
    start = time.process_time()
    found = bounds(event, delta)
    seconds = time.process_time() - start
    return {
        "kind": kind,
        "scale": scale,
        "rate": rate,
        "count": count,
        "delta": delta,
        "lower": found.lower,
        "upper": found.upper if math.isfinite(found.upper) else None,
        "method": found.method,
        "seconds": seconds,
    }


def width(row: dict[str, Any]) -> float:
    """Of the bracket, over max(1, ε)."""
    if row["upper"] is None:
        return math.inf
    return float((row["upper"] - row["lower"]) / max(1.0, row["upper"]))


def markdown(record: dict[str, Any]) -> str:
    rows, place = record["rows"], record["machine"]
    kinds = defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores, {place['system']}; one thread, CPU time; load "
        f"average {record['load']:.1f} at the start. Widths: of brackets of ε, over max(1, ε).",
        "",
        "| noise | settings | within 1e-8 | wider than 1e-6 | median ms | 95 % ms | worst ms | "
        "asked: none wider than 1e-6, 95 % within 1e-8, median ≤ 5 ms, worst ≤ 100 ms |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
        *(kind_row(kind, found) for kind, found in kinds.items()),
        "",
        "| method | settings | wider than 1e-8 | median ms | worst ms |",
        "|---|---:|---:|---:|---:|",
        *(method_row(name, rows) for name in sorted({row["method"] for row in rows})),
        "",
        "### The widest",
        "",
        "| noise | scale | rate | count | δ | lower | upper | method | ms |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|",
        *map(setting_row, sorted(rows, key=width, reverse=True)[:25]),
        "",
        "### The slowest",
        "",
        "| noise | scale | rate | count | δ | lower | upper | method | ms |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|",
        *map(setting_row, sorted(rows, key=lambda row: row["seconds"], reverse=True)[:15]),
    ]
    return "\n".join(lines)


def kind_row(kind: str, rows: list[dict[str, Any]]) -> str:
    widths, times = [width(row) for row in rows], sorted(row["seconds"] for row in rows)
    narrow = sum(one <= 1e-8 for one in widths) / len(rows)
    wide = sum(one > REQUIRED_WIDTH for one in widths)
    median, late = statistics.median(times), times[int(0.95 * (len(times) - 1))]
    met = [
        wide == 0,
        narrow >= 0.95,
        median <= REQUIRED_MEDIAN,
        times[-1] <= REQUIRED_WORST,
    ]
    verdict = ", ".join("met" if one else "**missed**" for one in met)
    return (
        f"| {kind} | {len(rows)} | {100 * narrow:.1f} % | {wide} | {1e3 * median:.1f} | "
        f"{1e3 * late:.0f} | {1e3 * times[-1]:.0f} | {verdict} |"
    )


def method_row(name: str, rows: list[dict[str, Any]]) -> str:
    found = [row for row in rows if row["method"] == name]
    times = [row["seconds"] for row in found]
    wide = sum(width(row) > 1e-8 for row in found)
    return (
        f"| {name} | {len(found)} | {wide} | {1e3 * statistics.median(times):.1f} | "
        f"{1e3 * max(times):.0f} |"
    )


def setting_row(row: dict[str, Any]) -> str:
    upper = "∞" if row["upper"] is None else f"{row['upper']:.9g}"
    return (
        f"| {row['kind']} | {row['scale']:g} | {row['rate']:g} | {row['count']:,} | "
        f"{row['delta']:g} | {row['lower']:.9g} | {upper} | {row['method']} | "
        f"{1e3 * row['seconds']:.0f} |"
    )


if __name__ == "__main__":
    main()
