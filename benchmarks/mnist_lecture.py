"""Trains the lectures' network on MNIST with privacy: accuracy and ε, epoch by epoch.

    python benchmarks/mnist_lecture.py --data FOLDER [--epochs 10] [--record]

The network of Abadi et al. 2016, Section 5.2 (https://arxiv.org/abs/1607.00133), without its PCA:
784 raw pixels, 1,000 ReLU units, 10 classes; lots of 600, clip 4, σ = 4, δ = 1e-5; the learning
rate falls linearly from 0.1 to 0.052 over ten epochs and stays there. ε is given as in the paper's
Figure 2, by strong composition and by the moments accountant, and exactly.

FOLDER holds the four files of MNIST as they are published (IDX, gzip).
"""

import argparse
import datetime
import gzip
import hashlib
import json
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
from tacit.accounting import epsilon

RESULTS = Path(__file__).resolve().parent / "results"
DELTA = 1e-5
ACCOUNTANTS = ("advanced", "moments", "exact")
FIRST_RATE, LAST_RATE, FALLING_EPOCHS = 0.1, 0.052, 10
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
Images = tuple[torch.Tensor, torch.Tensor]


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)  # the first weights; sampling and noise take no seed
    train, test = load(arguments.data, "train"), load(arguments.data, "t10k")
    plan = tacit.Plan(
        examples=len(train[0]),
        lot_size=600,
        steps=arguments.epochs * 100,
        noise_multiplier=4.0,
        clip=4.0,
    )
    record = header(plan)
    for row in run(plan, train, test):
        record["epochs"].append(row)
        print(line(row), file=sys.stderr, flush=True)
    report = markdown(record)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "mnist_lecture.json").write_text(json.dumps(record, indent=1) + "\n")
        (RESULTS / "mnist_lecture.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of MNIST's files")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first weights")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def load(folder: Path, part: str) -> Images:
    """Images as rows of 784 numbers from 0 to 1, and their labels."""
    images = idx(folder / f"{part}-images-idx3-ubyte.gz", offset=16).reshape(-1, 784)
    labels = idx(folder / f"{part}-labels-idx1-ubyte.gz", offset=8)
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(labels).long()


def idx(path: Path, offset: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bytes after the header of a published file."""
    packed = path.read_bytes()
    if hashlib.md5(packed).hexdigest() != MD5[path.name]:
        sys.exit(f"{path} is not the published file: its MD5 differs")
    return np.frombuffer(gzip.decompress(packed), np.uint8, offset=offset).copy()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 10))


def learning_rate(epoch: float) -> float:
    """Of Abadi et al. 2016, Section 5.2, after so many epochs."""
    share = min(epoch / FALLING_EPOCHS, 1.0)
    return FIRST_RATE + share * (LAST_RATE - FIRST_RATE)


def run(plan: tacit.Plan, train: Images, test: Images) -> Any:
    """One row per epoch."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=FIRST_RATE)
    every = round(plan.examples / plan.lot_size)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step / every) / FIRST_RATE
    )
    started = time.perf_counter()
    with tacit.private(model, optimizer, plan, TensorDataset(*train)) as dp:
        for lot in dp.lots():
            for x, y in lot:
                dp.backward(functional.cross_entropy(model(x), y, reduction="none"))
            dp.step()
            scheduler.step()
            if dp.steps_taken % every == 0:
                seconds = time.perf_counter() - started
                yield row(plan, dp.steps_taken, model, train, test) | {"seconds": seconds}
                started = time.perf_counter()


def row(
    plan: tacit.Plan, steps: int, model: nn.Module, train: Images, test: Images
) -> dict[str, Any]:
    event = plan.event_after(steps)
    return {
        "epoch": round(steps * plan.sample_rate),
        "steps": steps,
        "learning_rate": learning_rate(steps * plan.sample_rate),
        "train_accuracy": accuracy(model, train),
        "test_accuracy": accuracy(model, test),
        "epsilon": {name: epsilon(event, DELTA, accountant=name) for name in ACCOUNTANTS},
    }


@torch.no_grad()
def accuracy(model: nn.Module, data: Images) -> float:
    images, labels = data
    right = 0
    for start in range(0, len(labels), 5000):
        part = slice(start, start + 5000)
        right += int((model(images[part]).argmax(1) == labels[part]).sum())
    return right / len(labels)


def header(plan: tacit.Plan) -> dict[str, Any]:
    return {
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "commit": machine.commit(),
        "command": machine.command(),
        "machine": machine.description() | {"torch": torch.__version__},
        "delta": DELTA,
        "plan": plan.as_dict(),
        "epochs": [],
    }


def markdown(record: dict[str, Any]) -> str:
    on = record["machine"]
    lines = [
        f"Measured {record['measured']} at commit {record['commit']} by `{record['command']}` on "
        f"{on['cpu']}, {on['cores']} cores, Python {on['python']}, torch {on['torch']}.",
        "",
        "MNIST, 784 raw pixels, 1,000 ReLU units; lot 600, clip 4, σ = 4, δ = 1e-5. The training "
        "accuracy is a private number, shown because MNIST is public; ε does not cover it.",
        "",
        "| epoch | train | test | ε advanced | ε moments | ε exact | seconds |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    return "\n".join([*lines, *map(line, record["epochs"])])


def line(found: dict[str, Any]) -> str:
    spent = [found["epsilon"][name] for name in ACCOUNTANTS]
    return (
        f"| {found['epoch']} | {found['train_accuracy']:.2%} | {found['test_accuracy']:.2%} | "
        + " | ".join(f"{value:.4f}" for value in spent)
        + f" | {found['seconds']:.1f} |"
    )


if __name__ == "__main__":
    main()
