"""Brackets ε of random allocation by exact whole-number convolutions, and by Monte Carlo.

    python benchmarks/allocation_truth.py [--answers FILE ...] [--record]

Nothing of tacit's accounting is used, and no moment of anything: see `peers/flint_worker.py`. It
takes some five minutes of a processor; a FILE is what the worker printed for one setting before.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import environments
import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SETTINGS = [  # σ, t, epochs, δ; the ε; the reach of X, points of its lattice; tilts
    (1.0, 8, 1, 1e-8, 3.719, 6_000.0, 1 << 18, (5.5, 4.0)),
    (1.0, 64, 1, 1e-8, 1.799, 6_000.0, 1 << 18, (5.5, 4.0)),
    (0.65, 98, 20, 1e-5, 7.27, 60_000.0, 1 << 19, (3.5, 1.2)),
    (0.6, 234, 3, 1e-6, 4.08, 300_000.0, 1 << 19, (4.0, 2.0)),
]


def main() -> None:
    arguments = parse_arguments()
    rows = [json.loads(one.read_text()) for one in arguments.answers]
    for setting in SETTINGS if not rows else []:
        python = environments.python_for("flint")
        print(setting, file=sys.stderr, flush=True)
        worker = subprocess.run(
            [python, HERE / "peers" / "flint_worker.py"],
            input=json.dumps(setting),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        rows.append(json.loads(worker.stdout))
    record = {**machine.stamp(), "rows": rows}
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "allocation_truth.json").write_text(text + "\n")
        (RESULTS / "allocation_truth.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--answers", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def markdown(record: dict[str, Any]) -> str:
    place = record["machine"]
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores.",
        "",
        "ε lies between the lower and the upper end, by whole-number convolutions of 41 digits. At "
        "the issue's ε, δ is what it would have to be.",
        "",
        "| σ | t | epochs | δ | ε, lower | ε, upper | issue's ε | δ there | simulated | s |",
        "|---:|---:|---:|---:|---:|---:|---:|---|---|---:|",
    ]
    for row in record["rows"]:
        low, high = row["delta_at_issue"]
        mean, error = row["simulated_at_issue"]
        lines.append(
            f"| {row['sigma']:g} | {row['steps']} | {row['epochs']} | {row['delta']:g} | "
            f"{row['lower']:.6f} | {row['upper']:.6f} | {row['issue']:g} | {low:.5g} to {high:.5g} "
            f"| {mean:.4g} ± {error:.1g} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
