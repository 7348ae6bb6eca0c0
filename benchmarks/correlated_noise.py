"""Optimised strategies of correlated noise beside JAX-Privacy's, and what they gain at one budget.

    python benchmarks/correlated_noise.py [--peer FILE] [--record]

Errors are mean squared errors of prefix sums, for sensitivity 1. Banded strategies have columns of
norm 1; buffered ones take part in as many epochs as are named, at equal distances. The gain is the
root of the mean squared error at the same ε, lot and steps, in units of independent noise's.
JAX-Privacy runs in an environment of its own, which takes five minutes of a processor; FILE is what
its worker printed at another time.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import environments
import machine
import tacit
from tacit.accounting import FixedEpochs, toeplitz_sensitivity
from tacit.accounting.factorization import column_norms, inverse_coefficients
from tacit.accounting.strategies import (
    Workload,
    banded,
    buffered,
    mean_squared_error,
    normalised_error,
    series,
)

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
STEPS = (500, 2_000)
CASES = [
    *(("banded", steps, bands) for steps in STEPS for bands in (2, 4, 8, 16, 32)),
    *(("banded, any rows", steps, bands) for steps in STEPS for bands in (4, 16)),
    *(("buffered", steps, epochs) for steps in STEPS for epochs in (1, 5, 20)),
]
PLAIN = Workload()
GAINS = [  # ε, lot, steps, of 50,000 examples at δ = 1e-5
    (8.0, 512, 1953), (4.0, 512, 1953), (2.0, 512, 1953), (1.0, 512, 1953), (8.0, 512, 975),
    (8.0, 1024, 2468), (8.0, 4096, 2468), (1.0, 4096, 875),
]  # fmt: skip
REQUIRED, WITHIN = 0.57, 1.01


def main() -> None:
    arguments = parse_arguments()
    rows = [{"case": case} | ours(*case) for case in CASES]
    theirs = json.loads(arguments.peer.read_text()) if arguments.peer else peer()
    gains = [gain(*setting) for setting in GAINS]
    record = {**machine.stamp(), "rows": rows, "jax_privacy": theirs, "gains": gains}
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "correlated_noise.json").write_text(text + "\n")
        (RESULTS / "correlated_noise.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", type=Path, help="JAX-Privacy's answers, kept from another run")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def ours(way: str, steps: int, size: int) -> dict[str, float]:
    start = time.process_time()
    if way == "buffered":
        scales, decays = map(np.array, buffered(steps, 4, steps // size, PLAIN))
        seconds = time.process_time() - start
        inverse = series(scales, decays, steps)
        whole = toeplitz_sensitivity(
            inverse_coefficients(inverse, steps), steps, FixedEpochs(steps // size)
        )
        return {"error": mean_squared_error(inverse, PLAIN) * whole.value**2, "seconds": seconds}
    found = banded(steps, size, PLAIN)
    seconds = time.process_time() - start
    norms = np.array(column_norms(found))[np.minimum(size, steps - np.arange(steps)) - 1]
    return {"error": normalised_error(found, norms, PLAIN), "seconds": seconds}


def peer() -> dict[str, Any]:
    worker = subprocess.run(
        [environments.python_for("jax_privacy"), HERE / "peers" / "jax_privacy_worker.py"],
        input=json.dumps(CASES),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(worker.stdout)
    return answer


def gain(epsilon: float, lot: int, steps: int) -> dict[str, Any]:
    """What `Plan.for_budget` tries and chooses."""
    print(f"ε = {epsilon:g}, lots of {lot}, {steps} steps ...", file=sys.stderr, flush=True)
    plan = tacit.Plan.for_budget(
        epsilon=epsilon, delta=1e-5, examples=50_000, lot_size=lot, steps=steps, clip=1.0,
        correlation=tacit.Banded(),
    )  # fmt: skip
    chosen = plan.correlation.bands if isinstance(plan.correlation, tacit.Banded) else 1
    return {
        "epsilon": epsilon, "lot": lot, "steps": steps, "bands": chosen,
        "tried": plan.tried, "error": min(1.0, *(error for _, error in plan.tried)),
    }  # fmt: skip


def markdown(record: dict[str, Any]) -> str:
    place, theirs = record["machine"], record["jax_privacy"]
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores; JAX-Privacy {theirs['version']}; seconds of a "
        "processor.",
        "",
        "### Mean squared error of prefix sums, sensitivity 1",
        "",
        "| strategy | steps | bands or epochs | tacit | JAX-Privacy | ratio of the roots | tacit, "
        "s | JAX-Privacy, s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    ratios = []
    for at, row in enumerate(record["rows"]):
        way, steps, size = row["case"]
        peers = theirs["rows"][at]
        ratios.append(math.sqrt(row["error"] / peers["error"]))
        lines.append(
            f"| {way} | {steps} | {size} | {row['error']:.6g} | {peers['error']:.6g} | "
            f"{ratios[-1]:.5f} | {row['seconds']:.3f} | {peers['seconds']:.1f} |"
        )
    best = next(one for one in record["gains"] if (one["epsilon"], one["lot"]) == (8.0, 512))
    of_16 = next(error for bands, error in best["tried"] if bands == 16)
    lines += [
        "",
        "### Error in the models at one budget, in units of independent noise's (50,000 examples)",
        "",
        "| ε | lot | steps | bands chosen | error | by bands |",
        "|---:|---:|---:|---:|---:|---|",
        *(gain_row(one) for one in record["gains"]),
        "",
        "### Required of tacit",
        "",
        "| requirement | measured | |",
        "|---|---:|---|",
        f"| ε = 8, lots of 512, 1,953 steps: at most {REQUIRED} | {best['error']:.4f} ({of_16:.4f} "
        f"with 16 bands) | {'met' if best['error'] <= REQUIRED else '**missed**'} |",
        f"| every strategy within 1 % of JAX-Privacy's | {max(ratios):.5f} | "
        f"{'met' if max(ratios) <= WITHIN else '**missed**'} |",
    ]
    return "\n".join(lines)


def gain_row(one: dict[str, Any]) -> str:
    tried = ", ".join(f"{bands}: {error:.3f}" for bands, error in one["tried"])
    return (
        f"| {one['epsilon']:g} | {one['lot']} | {one['steps']} | {one['bands']} | "
        f"**{one['error']:.3f}** | {tried} |"
    )


if __name__ == "__main__":
    main()
