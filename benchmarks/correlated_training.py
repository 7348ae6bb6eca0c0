"""Trains a small CNN on Fashion-MNIST with independent and with correlated noise: accuracies.

    python benchmarks/correlated_training.py --data FOLDER [--seeds 5] [--record]
    python benchmarks/correlated_training.py --data FOLDER --optimizers adam sgd --seeds 4
        --lots 512 2048 --epochs 3 --epsilons 3 8 [--record]    # is it the same with AdamW?

Small lots and few epochs, where correlated noise should help: by default lots of 64, two epochs,
ε = 2 and 8 at δ = 1e-5, SGD with momentum. `Plan.for_budget(correlation=tacit.Banded())` finds the
bands, for that momentum; AdamW, whose first average is the same momentum, has the same plans. Both
ways have the same network, clip, lots, steps and budget. Each has its own learning rate, the best
of a grid on 5,000 of the training images that are held out, with one more seed; then it trains on
the other 55,000 and is judged on the test images once for each seed.

FOLDER holds the four files of Fashion-MNIST as they are published (IDX, gzip). ε covers a single
run: neither the choice of a rate nor the seeds are counted, as this compares methods.
"""

import argparse
import gzip
import itertools
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import machine
import tacit

RESULTS = Path(__file__).resolve().parent / "results"
DELTA, HELD_OUT, CLIP, MOMENTUM = 1e-5, 5_000, 1.0, 0.9
RATES = {
    "sgd": (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4),
    # Adam divides by what noise there is in a step, of which correlated noise has ten times more.
    "adam": (8e-3, 1.6e-2, 3.2e-2, 6.4e-2, 0.128, 0.256),
}
WAYS = ("independent", "correlated")
Images = tuple[torch.Tensor, torch.Tensor]


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    images, labels = load(arguments.data, "train")
    train, held_out = (
        (images[:-HELD_OUT], labels[:-HELD_OUT]),
        (images[-HELD_OUT:], labels[-HELD_OUT:]),
    )
    test = load(arguments.data, "t10k")
    rows = []
    for kind, lot, epsilon, way in itertools.product(
        arguments.optimizers, arguments.lots, arguments.epsilons, WAYS
    ):
        plan = made(way, epsilon, len(train[0]), lot, arguments.epochs)
        tried = {rate: run(plan, kind, rate, 100, train, held_out) for rate in RATES[kind]}
        rate = max(tried, key=lambda one: tried[one])
        found = [run(plan, kind, rate, seed, train, test) for seed in range(arguments.seeds)]
        rows.append({"optimizer": kind, "lot": lot, **row(epsilon, way, plan, tried, rate, found)})
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    record = {
        **machine.stamp(),
        "epochs": arguments.epochs, "clip": CLIP, "momentum": MOMENTUM, "delta": DELTA,
        "seeds": arguments.seeds, "cpu_seconds": time.process_time(), "rows": rows,
    }  # fmt: skip
    report = markdown(record)
    print(report)
    if arguments.record:
        name = "correlated_optimizers" if "adam" in arguments.optimizers else "correlated_training"
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (RESULTS / f"{name}.json").write_text(text + "\n")
        (RESULTS / f"{name}.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the four files")
    parser.add_argument("--seeds", type=int, default=5, help="of first weights, lots and noise")
    parser.add_argument("--optimizers", nargs="+", choices=RATES, default=["sgd"])
    parser.add_argument("--lots", type=int, nargs="+", default=[64])
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.0, 8.0])
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def load(folder: Path, part: str) -> Images:
    images = idx(folder / f"{part}-images-idx3-ubyte.gz", offset=16).reshape(-1, 1, 28, 28)
    labels = idx(folder / f"{part}-labels-idx1-ubyte.gz", offset=8)
    scaled = (images.astype(np.float32) / 255 - 0.2860) / 0.3530  # public: of the data set's card
    return torch.from_numpy(scaled), torch.from_numpy(labels).long()


def idx(path: Path, offset: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bytes after the header of a published file."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=offset).copy()


def made(way: str, epsilon: float, examples: int, lot: int, epochs: float) -> tacit.Plan:
    correlation = tacit.Banded(momentum=MOMENTUM) if way == "correlated" else None
    return tacit.Plan.for_budget(
        epsilon=epsilon, delta=DELTA, examples=examples, lot_size=lot, epochs=epochs, clip=CLIP,
        correlation=correlation,
    )  # fmt: skip


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(400, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def optimizer_of(kind: str, model: nn.Module, rate: float) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    return torch.optim.AdamW(model.parameters(), lr=rate, betas=(MOMENTUM, 0.999), weight_decay=0.0)


def run(
    plan: tacit.Plan, kind: str, rate: float, seed: int, train: Images, judged: Images
) -> float:
    """The share of right answers of the last model; a seed is for a comparison only."""
    model = network(seed)
    optimizer = optimizer_of(kind, model, rate)
    with tacit.private(model, optimizer, plan, TensorDataset(*train), unsafe_seed=seed) as dp:
        for lot in dp.lots():
            for x, y in lot:
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()
    with torch.no_grad():
        return float((model(judged[0]).argmax(1) == judged[1]).float().mean())


def row(
    epsilon: float, way: str, plan: tacit.Plan, tried: dict[float, float], rate: float,
    found: list[float],
) -> dict[str, Any]:  # fmt: skip
    bands = plan.correlation.bands if isinstance(plan.correlation, tacit.Banded) else 1
    return {
        "epsilon": epsilon, "way": way, "bands": bands, "sigma": plan.noise_multiplier,
        "steps": plan.steps, "error": dict(plan.tried).get(bands, 1.0),
        "held_out": {str(key): value for key, value in tried.items()}, "rate": rate,
        "accuracies": found,
    }  # fmt: skip


def markdown(record: dict[str, Any]) -> str:
    place = record["machine"]
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, one thread, {record['cpu_seconds']:.0f} s of it. A CNN of "
        f"{sum(p.numel() for p in network(0).parameters()):,} weights on 55,000 images of "
        f"Fashion-MNIST; {record['epochs']:g} epochs, clip "
        f"{record['clip']:g}, momentum {record['momentum']:g}, δ = {record['delta']:g}; "
        f"{record['seeds']} seeds. Each way has its own learning rate, chosen on 5,000 held-out "
        "training images.",
        "",
        "| optimizer | lots | ε | noise | bands | σ | error in the models, of independent noise's "
        "| rate | accuracy on the test images, by seed | mean | deviation |",
        "|---|---:|---:|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for one in record["rows"]:
        found = [100 * value for value in one["accuracies"]]
        shown = ", ".join(f"{value:.2f}" for value in found)
        spread = statistics.stdev(found) if len(found) > 1 else 0.0
        lines.append(
            f"| {one['optimizer']} | {one['lot']} | {one['epsilon']:g} | {one['way']} | "
            f"{one['bands']} | {one['sigma']:.3f} | {one['error']:.3f} | {one['rate']:g} | "
            f"{shown} | **{statistics.mean(found):.2f}** | {spread:.2f} |"
        )
    lines += ["", *map(verdict, record["rows"][::2], record["rows"][1::2])]
    return "\n".join([*lines, *at_the_end(record["rows"])])


def at_the_end(rows: list[dict[str, Any]]) -> list[str]:
    """Says where the best rate is the last of the grid, so that a better one may lie beyond."""
    ended = [one for one in rows if one["rate"] == max(map(float, one["held_out"]))]
    named = ", ".join(
        f"{one['optimizer']} {one['lot']} ε {one['epsilon']:g} {one['way']}" for one in ended
    )
    return (
        [f"- The best rate is the largest of the grid, and a larger one may be better: {named}."]
        if ended
        else []
    )


def verdict(independent: dict[str, Any], correlated: dict[str, Any]) -> str:
    pairs = list(zip(correlated["accuracies"], independent["accuracies"], strict=True))
    at_its_rate = 100 * (
        correlated["held_out"].get(str(independent["rate"]), math.nan)
        - independent["held_out"][str(independent["rate"])]
    )
    better = sum(mine > other for mine, other in pairs)
    gain = 100 * statistics.mean(mine - other for mine, other in pairs)
    return (
        f"- {correlated['optimizer']}, lots of {correlated['lot']}, ε = "
        f"{correlated['epsilon']:g}: better in {better} of {len(pairs)} seeds, by {gain:+.2f} "
        f"points; at the other's rate it would be {at_its_rate:+.1f} on the held-out images."
    )


if __name__ == "__main__":
    main()
