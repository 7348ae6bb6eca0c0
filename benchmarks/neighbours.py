"""Private-kNN beside autodp: what a screening tells, what the published run costs, and how fast.

    python benchmarks/neighbours.py [--records 60000] [--queries 9000] [--features 300] [--record]

autodp runs in an environment of its own. Speed is measured on random features, which are as many
and as long as those of MNIST; what is drawn does not matter to it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import environments
import machine
import tacit
from tacit.accounting import epsilon
from tacit.transfer.aggregators import ConfidentGNMax, GNMax
from tacit.transfer.neighbours import Neighbours
from tacit.transfer.private_knn import PrivateKnn
from tacit.transfer.rdp_cost import screening_rdp
from tacit.transfer.reverse_knn import votes_for

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SCREENINGS = [[300, 210, 85], [300, 180, 75]]  # of the published figure, and of its MNIST run
ORDERS = [2, 8, 32, 64, 128, 256]
RUN = {
    "rate": 0.15, "k": 300, "queries": 1000, "answers": 735, "threshold": 180,
    "screening_sigma": 75, "sigma": 25, "delta": 1e-5,
}  # fmt: skip
PUBLISHED = 0.47


def main() -> None:
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    record: dict[str, Any] = machine.stamp() | {
        "load": load,
        "arguments": vars(arguments),
        "versions": {"tacit": tacit.__version__},
        "autodp": autodp(),
        "screenings": [screening_rdp(*case, ORDERS).tolist() for case in SCREENINGS],
        "costs": costs(),
        "seconds": speed(arguments),
    }
    report = markdown(record)
    print(report)
    if arguments.record:
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "neighbours.json").write_text(text + "\n")
        (RESULTS / "neighbours.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--queries", type=int, default=9_000)
    parser.add_argument("--features", type=int, default=300)
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def autodp() -> dict[str, Any]:
    python = environments.python_for("autodp")
    print("autodp ...", file=sys.stderr, flush=True)
    job = {"screenings": SCREENINGS, "orders": ORDERS, "run": RUN}
    worker = subprocess.run(
        [python, HERE / "peers" / "autodp_knn_worker.py"],
        input=json.dumps(job), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(worker.stdout)
    return answer


def costs() -> dict[str, float]:
    """ε of the published configuration, under add-remove."""
    screened = ConfidentGNMax(
        threshold=RUN["threshold"], screening_sigma=RUN["screening_sigma"], sigma=RUN["sigma"]
    )

    def crowd(aggregator: Any, samples: Any = "two") -> PrivateKnn:
        return PrivateKnn(
            np.eye(2), [0, 1], classes=10, k=int(RUN["k"]), rate=RUN["rate"],
            aggregator=aggregator, samples=samples,
        )  # fmt: skip

    queries, answers, delta = int(RUN["queries"]), int(RUN["answers"]), RUN["delta"]
    two = crowd(screened).declared(queries=queries, answers=answers)
    return {
        "two samples": epsilon(two, delta),
        "two samples, by our rdp": epsilon(two, delta, accountant="rdp"),
        "one sample": epsilon(crowd(screened, "shared").declared(queries=queries), delta),
        "answers alone": epsilon(crowd(GNMax(sigma=RUN["sigma"])).declared(queries=answers), delta),
    }


def speed(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds on one thread: rankings by both libraries, a whole run, and a reverse vote."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    records = rng.normal(size=(arguments.records, arguments.features)).astype(np.float32)
    queries = rng.normal(size=(arguments.queries, arguments.features)).astype(np.float32)
    labels = rng.integers(0, 10, size=arguments.records)
    found: dict[str, float] = {}

    def timed(name: str, call: Any) -> None:
        print(f"{name} ...", file=sys.stderr, flush=True)
        start = time.perf_counter()
        call()
        found[name] = time.perf_counter() - start

    near = Neighbours(records)
    timed("1,000 queries, 2,600 nearest, FAISS", lambda: near.nearest(queries[:1000], 2600))
    near._faiss = None
    timed("1,000 queries, 2,600 nearest, torch", lambda: near.nearest(queries[:1000], 2600))
    crowd = PrivateKnn(
        records, labels, classes=10, k=int(RUN["k"]), rate=RUN["rate"],
        aggregator=GNMax(sigma=RUN["sigma"]),
    )  # fmt: skip
    timed("all queries labelled, k = 300, rate 0.15", lambda: crowd.label(queries))
    timed(
        "all records vote for 3,000 points",
        lambda: votes_for(records, labels, queries[:3000], k=1, classes=10),
    )
    return found


def markdown(record: dict[str, Any]) -> str:
    theirs = record["autodp"]
    lines = [
        f"`{record['command']}`, {record['date']}, {record['commit']}, "
        f"{record['machine']['cpu']}, load {record['load']:.1f}; "
        f"tacit {record['versions']['tacit']}, autodp {theirs['version']}",
        "",
        "What one screening tells: Rényi divergence, the exact worst case and autodp's bound.",
        "",
        "| k, T, σ | α | exact (tacit) | autodp | autodp / exact |",
        "|---|---|---|---|---|",
    ]
    for case, ours, other in zip(
        SCREENINGS, record["screenings"], theirs["screenings"], strict=True
    ):
        name = ", ".join(map(str, case))
        lines += [
            f"| {name} | {order} | {mine:.6g} | {his:.6g} | {his / mine:.3f} |"
            for order, mine, his in zip(ORDERS, ours, other, strict=True)
        ]
    lines += [
        "",
        "ε of the published MNIST configuration (rate 0.15, k = 300, 1,000 screened with σ1 = 75, "
        f"735 answered with σ = 25, δ = 1e-5); published: {PUBLISHED}.",
        "",
        "| accounted as | ε |",
        "|---|---|",
        *(f"| {name} | {value:.4f} |" for name, value in record["costs"].items()),
        f"| autodp, as the published script calls it | {theirs['epsilon']:.4f} |",
        "",
        f"Seconds on one thread, {record['arguments']['records']:,} records and "
        f"{record['arguments']['queries']:,} queries of {record['arguments']['features']} "
        "random features.",
        "",
        "| | s |",
        "|---|---|",
        *(f"| {name} | {value:.1f} |" for name, value in record["seconds"].items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
