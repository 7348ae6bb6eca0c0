"""Time and width of random allocation's certified ε over a grid, and its rows beside three peers.

    python benchmarks/allocation.py [--record]

Each setting's bounds are computed three times in one process, with nothing remembered of the times
before; the least time of a processor counts. The peers answer the four rows of `accounting.py` that
are allocations, each in an environment of its own; Opake on a grid of 0.01, for on its usual one of
0.0001 it has no answer to any of them within a minute.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import accounting
import machine
from accounting_engines import ENGINES
from accounting_rows import ROWS
from tacit.accounting import Gaussian, RandomAllocation, bounds
from tacit.accounting.exact import fourier, mean_ratio, narrow_law

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SIGMAS = (0.4, 0.5, 0.65, 0.8, 1.0, 1.5, 2.0, 4.0, 8.0)
STEPS = (10, 100, 1_000, 10_000)
EPOCHS = (1, 10, 100, 1_000)
DELTAS = (1e-5, 1e-6, 1e-8)
MILLISECONDS, WIDTH = 50.0, 1e-6
ROWS_OF_PEERS = ("m1", "m2", "m3", "m4")
PEERS = ("tacit", "dp-accounting-pld", "pld-accounting", "opake-coarse")
CACHES = (
    mean_ratio.log_moments,
    mean_ratio.line_of,
    mean_ratio.real_line,
    narrow_law.law_of,
    narrow_law.right_of,
    fourier.roots_of_unity,
)
PATIENCE = 60.0  # seconds a call


def main() -> None:
    arguments = parse_arguments()
    measured(1.0, 50, 5, 1e-6)  # lazy imports
    settings = itertools.product(SIGMAS, STEPS, EPOCHS, DELTAS)
    grid = [measured(*one) for one in settings]
    beside = {name: {peer: answer(peer, name) for peer in PEERS} for name in ROWS_OF_PEERS}
    record = {**machine.stamp(), "grid": grid, "peers": beside}
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "allocation.json").write_text(text + "\n")
        (RESULTS / "allocation.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def measured(sigma: float, steps: int, epochs: int, delta: float) -> dict[str, Any]:
    event, times = RandomAllocation(steps, Gaussian(sigma), epochs), []
    for _ in range(3):
        for known in CACHES:
            known.cache_clear()
        start = time.process_time()
        found = bounds(event, delta=delta)
        times.append(1e3 * (time.process_time() - start))
    return {
        "sigma": sigma, "steps": steps, "epochs": epochs, "delta": delta,
        "milliseconds": min(times), "upper": found.upper, "width": found.width,
        "two_sided": found.two_sided,
    }  # fmt: skip


def answer(peer: str, name: str) -> dict[str, Any]:
    print(f"{name} {peer}", file=sys.stderr, flush=True)
    engine = ENGINES[peer]
    return accounting.run(engine, ROWS[name], accounting.interpreter(engine), PATIENCE)


def markdown(record: dict[str, Any]) -> str:
    place, grid = record["machine"], record["grid"]
    closed = [one for one in grid if one["two_sided"]]
    slow = [one for one in grid if one["milliseconds"] > MILLISECONDS]
    wide = [one for one in closed if one["width"] > WIDTH]
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores; milliseconds of a processor.",
        "",
        f"{len(grid)} settings: {len(slow)} take more than "
        f"{MILLISECONDS:g} ms, {len(wide)} are wider than {WIDTH:g}, and {len(grid) - len(closed)} "
        "have no lower end (they are bounded by fewer steps).",
        "",
        "| t | settings | median ms | largest ms | above 50 ms | largest width | above 1e-6 | "
        "no lower end |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for steps in STEPS:
        own = [one for one in grid if one["steps"] == steps]
        times = [one["milliseconds"] for one in own]
        lines.append(
            f"| {steps} | {len(own)} | {statistics.median(times):.1f} | {max(times):.1f} | "
            f"{sum(one in slow for one in own)} | "
            f"{max(one['width'] for one in own if one['two_sided']):.1e} | "
            f"{sum(one in wide for one in own)} | "
            f"{sum(not one['two_sided'] for one in own)} |"
        )
    left = [one for one in grid if one in slow or one in wide or not one["two_sided"]]
    if left:
        lines += ["", "Above 50 ms, or wider than 1e-6, or without a lower end:", ""]
        lines += ["| σ | t | epochs | δ | ε | width | ms |", "|---:|---:|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {one['sigma']:g} | {one['steps']} | {one['epochs']} | {one['delta']:g} | "
        f"{one['upper']:.6g} | {format(one['width'], '.1e') if one['two_sided'] else '—'} | "
        f"{one['milliseconds']:.0f} |"
        for one in left
    ]
    lines += ["", "| row | truth | " + " | ".join(PEERS) + " |", "|---|---:|" + "---|" * len(PEERS)]
    for name, answers in record["peers"].items():
        cells = " | ".join(cell(answers[peer]) for peer in PEERS)
        row = ROWS[name]
        lines.append(f"| {row.title}, δ={row.delta:g} | {row.truth:.9g} | {cells} |")
    return "\n".join(lines)


def cell(found: dict[str, Any]) -> str:
    if "value" not in found:
        kind = next(iter(found))
        return f"{kind}: {found[kind]}"
    text = f"{found['value']:.9g} in {1e3 * found['cpu_seconds']:.3g} ms"
    ends = found.get("bracket")
    return text if not ends else f"{text} ({ends[0]:.6g} to {ends[1]:.6g})"


if __name__ == "__main__":
    main()
