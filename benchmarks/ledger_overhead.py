"""Times training that is charged to a ledger beside the same training without one.

    python benchmarks/ledger_overhead.py [--models fast slow] [--rounds N] [--record]

Two sessions of the same model train in one process and take turns, a block of steps each, in the
order A B B A, so that a busy machine slows both alike. A turn of the charged one ends when its
thread has nothing left to write. The window of steps in advance is the automatic one (the
other's turns look like pauses to it, so that it is smaller than it would be alone). Beside the
difference, which is noisy, stands what was seen at work: the time that a processor spent on asking
for steps, in the loop and in the thread, and how often the loop had to wait for the ledger.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import machine
import tacit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tacit.training.session import Session

RESULTS = Path(__file__).resolve().parent / "results"
# name: examples, lot size, features, hidden units, steps of a turn
MODELS = {"fast": (4_000, 64, 20, 32, 150), "slow": (20_000, 500, 400, 1_500, 8)}
REQUIRED = 1.0  # percent
WARMUP = 3  # turns that do not count: the window finds its size


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    rows = []
    for name in arguments.models or MODELS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            rows.append(measured(name, arguments.rounds, Path(folder)))
    record = header(arguments, load) | {"rows": rows}
    report = markdown(record)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / "ledger_overhead.json").write_text(text + "\n")
        (RESULTS / "ledger_overhead.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="which; all if left out")
    parser.add_argument("--rounds", type=int, default=60, help="pairs of turns")
    parser.add_argument("--folder", help="where the ledger lies: the disk to measure")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


class Runner:
    """A session that trains so many steps when it is its turn."""

    def __init__(self, name: str, budget: Any, turns: int) -> None:
        examples, lot, features, hidden, self.block = MODELS[name]
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(examples, features, generator=generator)
        y = torch.randint(10, (examples,), generator=generator)
        self.model = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, 10))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        plan = tacit.Plan(
            examples=examples,
            lot_size=lot,
            steps=2 * turns * self.block,  # it does not come to its end
            noise_multiplier=1.0,
            clip=1.0,
        )
        self.dp: Session = tacit.private(self.model, optimizer, plan, TensorDataset(x, y), budget)
        start = time.perf_counter()
        self.dp.__enter__()
        self.entering = time.perf_counter() - start
        self._lots: Iterator[Any] = self.dp.lots()
        self.asking = self.writing = 0.0  # seconds of a processor, in the loop and in the thread
        self.waits = 0
        if self.lease is not None:
            self._watch()

    def turn(self) -> tuple[float, float]:
        """Seconds on the clock, and of all processors, of one block of steps."""
        clock, processor = time.perf_counter(), time.process_time()
        for _ in range(self.block):
            for x, y in next(self._lots):
                self.dp.backward(functional.cross_entropy(self.model(x), y, reduction="none"))
            self.dp.step()
        self._settle()
        return time.perf_counter() - clock, time.process_time() - processor

    def close(self) -> None:
        self.dp.__exit__(None, None, None)

    @property
    def lease(self) -> Any:
        return self.dp._charges._lease

    def _watch(self) -> None:
        take, granted = self.lease.take, self.lease._granted

        def taken() -> bool:
            lease, start = self.lease, time.thread_time()
            late = lease._coming is not None and not lease._coming.done()
            self.waits += lease._held == 0 and (late or lease._coming is None)
            done: bool = take()
            self.asking += time.thread_time() - start
            return done

        def written(steps: int) -> int:
            start = time.thread_time()
            more: int = granted(steps)
            if threading.current_thread() is not threading.main_thread():
                self.writing += time.thread_time() - start
            return more

        self.lease.take, self.lease._granted = taken, written

    def _settle(self) -> None:
        if self.lease is not None and self.lease._coming is not None:
            self.lease._coming.exception()


def measured(name: str, rounds: int, folder: Path) -> dict[str, Any]:
    with tacit.Ledger(f"sqlite:///{folder}/budget.db") as ledger:
        budget = ledger.open("data", epsilon=1e6, delta=1e-5)
        free, charged = (Runner(name, one, rounds + WARMUP) for one in (None, budget))
        turns: dict[str, list[tuple[float, float]]] = {"free": [], "charged": []}
        writes = 0
        for number in range(WARMUP + rounds):
            if number == WARMUP:
                writes = ledger.head.number
                charged.asking = charged.writing = 0.0
                charged.waits = 0
            order = [("free", free), ("charged", charged)]
            for which, runner in order if number % 2 else order[::-1]:
                taken = runner.turn()
                if number >= WARMUP:
                    turns[which].append(taken)
        cost, size = charged.lease._cost, charged.lease.size
        writes = ledger.head.number - writes
        for runner in (free, charged):
            runner.close()
    return {
        "model": name,
        "steps_a_turn": free.block,
        "turns": turns,
        "entering": [free.entering, charged.entering],
        "window": size,
        "writes": writes,
        "asking": charged.asking,
        "writing": charged.writing,
        "waits": charged.waits,
        "write": {"processor": cost[0], "clock": cost[1]},
    }


def overheads(row: dict[str, Any], which: int) -> dict[str, float]:
    """Percent that the charged turns took longer: pair by pair, and how sure that is."""
    pairs = zip(row["turns"]["free"], row["turns"]["charged"], strict=True)
    ratios = [100.0 * (charged[which] / free[which] - 1.0) for free, charged in pairs]
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2_000))
    return {"median": statistics.median(ratios), "low": medians[50], "high": medians[-51]}


def step_seconds(row: dict[str, Any]) -> float:
    taken = statistics.median(one[0] for one in row["turns"]["free"])
    return float(taken / row["steps_a_turn"])


def header(arguments: argparse.Namespace, load: float) -> dict[str, Any]:
    return {
        **machine.stamp(),
        "versions": {"tacit": tacit.__version__, "torch": str(torch.__version__)},
        "load": load,
        "rounds": arguments.rounds,
    }


def markdown(record: dict[str, Any]) -> str:
    place = record["machine"]
    lines = [
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{place['cpu']}, {place['cores']} cores, {place['system']}; tacit "
        f"{record['versions']['tacit']}, PyTorch {record['versions']['torch']}, one thread; SQLite "
        f"on a local disk; {record['rounds']} pairs of turns, of which the median and the 95 % "
        f"interval of a bootstrap; load average {record['load']:.1f} at the start.",
        "",
        "### What a budget adds to the time of training, with the automatic window",
        "",
        "| model | a step | at work: loop, thread | on the clock | of the processors | window | "
        "a write: clock, processor | writes a second, waits | reserving the plan, once |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(model_row(row) for row in record["rows"]),
        "",
        "### Required of tacit",
        "",
        "| requirement | measured | |",
        "|---|---:|---|",
        *(required_row(row) for row in record["rows"]),
    ]
    return "\n".join(lines)


def model_row(row: dict[str, Any]) -> str:
    clock, processor = overheads(row, 0), overheads(row, 1)
    total = sum(one[0] for one in row["turns"]["charged"])
    write = row["write"]
    work = [f"{100.0 * row[part] / total:.2f} %" for part in ("asking", "writing")]
    return (
        f"| {row['model']} | {1e3 * step_seconds(row):.1f} ms | {', '.join(work)} | "
        f"{shown(clock)} | {shown(processor)} | {row['window']} | {1e3 * write['clock']:.1f} ms, "
        f"{1e3 * write['processor']:.1f} ms | {row['writes'] / total:.1f}, {row['waits']} | "
        f"{row['entering'][1] - row['entering'][0]:.2f} s |"
    )


def required_row(row: dict[str, Any]) -> str:
    total = sum(one[0] for one in row["turns"]["charged"])
    work = 100.0 * (row["asking"] + row["writing"]) / total
    met = "met" if work <= REQUIRED else "**missed**"
    what = f"at most {REQUIRED:.0f} % of the training time, {row['model']} steps"
    return f"| {what} | {work:.2f} % at work, {shown(overheads(row, 0))} on the clock | {met} |"


def shown(percent: dict[str, float]) -> str:
    return f"{percent['median']:+.2f} % ({percent['low']:+.2f} to {percent['high']:+.2f})"


if __name__ == "__main__":
    main()
