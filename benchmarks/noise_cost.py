"""Times a training step with each kind of noise, "fast", "secure" and "exact", side by side.

    python benchmarks/noise_cost.py [--devices cpu cuda] [--rounds 9] [--out FOLDER] [--record]
    python benchmarks/noise_cost.py --merge FILE --record   # take over another machine's part

A step is everything: loading, forward, backward, clipping, noise, optimizer. The three sessions of
a model live in one process and take turns of a few steps, round by round, so that a busy machine
slows all of them alike; a ratio is the median of the rounds' ratios. On the CPU, where everything
runs in one thread, its processor time is taken: others' work does not count. The noise is also
timed alone. It needs torch, NumPy and SciPy; without `cryptography` NumPy makes the CPU's bits, and
a GPU with Triton its own all the same.
"""

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn
from torch.utils.data import TensorDataset

import engine_models
import machine
import tacit
from tacit.randomness import fresh_stream
from tacit.training.noise import noise_for
from tacit.training.plan import Noise

RESULTS = Path(__file__).resolve().parent / "results"
NAME = "noise_cost"
KINDS: tuple[Noise, ...] = get_args(Noise)
TURN = 0.5  # seconds of steps that a turn is to last, of which it takes one at least
MOST_STEPS = 10**7


@dataclass(frozen=True)
class Case:
    """A model, the shape of its made-up data, and the size of a lot."""

    title: str
    model: Callable[[], nn.Module]
    features: tuple[int, ...]
    classes: int
    lot: int


def large() -> nn.Module:
    """Ten million parameters."""
    return nn.Sequential(
        nn.Linear(1024, 2304), nn.ReLU(), nn.Linear(2304, 2304), nn.ReLU(), nn.Linear(2304, 1000)
    )


MLP = Case("MLP 60-1000-10", engine_models.mlp, (60,), 10, 600)
CNN = Case("CNN of 4 blocks, 32×32", engine_models.cnn, (3, 32, 32), 10, 64)
LARGE = Case("MLP of 10 million parameters", large, (1024,), 1000, 256)
CASES = {"cpu": (MLP, CNN), "cuda": (MLP, LARGE)}


def main() -> None:
    arguments = parse_arguments()
    folder = RESULTS if arguments.record else arguments.out
    record = read(folder) if folder else {}
    if arguments.merge:
        record |= json.loads(arguments.merge.read_text())
        write(record, folder)
        return
    for device in arguments.devices:
        part = record[device] = header(device, arguments) | {"rows": []}
        for case in CASES[device]:
            print(f"{device}, {case.title} ...", file=sys.stderr, flush=True)
            part["rows"].append(measured(case, torch.device(device), arguments))
            write(record, folder)
    print(markdown(record))


def parse_arguments() -> argparse.Namespace:
    present = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", nargs="+", choices=list(CASES), default=present)
    parser.add_argument("--rounds", type=int, default=9, help="turns of each kind of noise")
    parser.add_argument("--out", type=Path, help="a folder for the record, written as it grows")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    parser.add_argument("--merge", type=Path, help="a record whose devices are taken over")
    return parser.parse_args()


def read(folder: Path) -> dict[str, Any]:
    """The record as it is: what other devices have written stays."""
    path = folder / f"{NAME}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(record: dict[str, Any], folder: Path | None) -> None:
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / f"{NAME}.json").write_text(text + "\n")
    (folder / f"{NAME}.md").write_text(markdown(record) + "\n")


def header(device: str, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        **machine.stamp(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "versions": {"tacit": tacit.__version__, "torch": torch.__version__},
        "bits": "ChaCha20" if importlib.util.find_spec("cryptography") else "ChaCha20 in NumPy",
        "load": os.getloadavg()[0],
        "rounds": arguments.rounds,
    }


def measured(case: Case, device: torch.device, arguments: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    with ExitStack() as stack:
        runs = {kind: Run(kind, case, device, stack) for kind in KINDS}
        for run in runs.values():
            run.prepare()
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(arguments.rounds):
            for kind, run in runs.items():
                times[kind].append(run.turn())
    model = case.model()
    return {
        "title": case.title,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "lot": case.lot,
        "step": times,
        "noise": noise_alone(model.to(device), device, arguments.rounds),
    }


class Run:
    """A private session with one kind of noise, taken step by step."""

    def __init__(self, kind: Noise, case: Case, device: torch.device, stack: ExitStack) -> None:
        torch.manual_seed(0)
        self._device = device
        self._model = case.model().to(device)
        dataset = TensorDataset(
            torch.randn(case.lot, *case.features), torch.randint(case.classes, (case.lot,))
        )
        plan = tacit.Plan(
            examples=case.lot, lot_size=case.lot, steps=MOST_STEPS, noise_multiplier=1.0, clip=1.0,
            noise=kind,
        )  # fmt: skip
        optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-6)
        self._dp = stack.enter_context(tacit.private(self._model, optimizer, plan, dataset))
        self._lots: Iterator[Any] = self._dp.lots()
        self._count = 1

    def prepare(self) -> None:
        """Steps that do not count: checks, compiling, and how many make up a turn."""
        self.turn()
        self._count = 3
        self.turn()
        self._count = max(1, round(TURN / self.turn()))

    def turn(self) -> float:
        """Seconds of a step, the mean over a turn."""
        start = now(self._device)
        for _ in range(self._count):
            lot = next(self._lots)
            for x, y in lot:
                self._dp.backward(engine_models.losses(self._model(x), y))
            self._dp.step()
        return (now(self._device) - start) / self._count


def noise_alone(model: nn.Module, device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds for the release of a step: noise, the sum's rounding and the mean."""
    parameters = dict(model.named_parameters())
    real = {name: torch.zeros_like(one).detach() for name, one in parameters.items()}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    noises = {kind: noise_for(kind, fresh_stream("benchmark"), device) for kind in KINDS}
    for at in range(rounds + 1):
        for kind, noise in noises.items():
            whole = kind == "exact"
            sums = {name: one.long() if whole else one for name, one in real.items()}
            start = now(device)
            noise.means(parameters, sums, clip=1.0, scale=1.0, lot_size=100.0)
            if at:
                times[kind].append(now(device) - start)
    return times


def now(device: torch.device) -> float:
    """Seconds: of this process's work on the CPU, of the clock once a GPU has done its own."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def markdown(record: dict[str, Any]) -> str:
    return "\n\n".join(section(device, part) for device, part in record.items())


def section(device: str, part: dict[str, Any]) -> str:
    place = part["machine"]
    clock = "processor time of" if device == "cpu" else "time of"
    where = f"{part['gpu']}, beside {place['cpu']}" if part["gpu"] else place["cpu"]
    lines = [
        f"### On {'a GPU' if device == 'cuda' else 'the CPU'}",
        "",
        f"Measured {part['date']} at commit {part['commit']} by `{part['command']}` on {where}, "
        f"{place['cores']} cores, {place['system']}; torch {part['versions']['torch']}, tacit "
        f"{part['versions']['tacit']}, one CPU thread, bits by: {part['bits']}; "
        f"{part['rounds']} turns of each, taken in turn; load average {part['load']:.1f} at the "
        f"start. Milliseconds, {clock} a step, medians; a ratio is the median of the rounds' "
        "ratios.",
        "",
        "| model | parameters | lot | fast | secure | exact | secure/fast | exact/fast "
        "| noise alone: fast, secure, exact |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(line(row) for row in part["rows"]),
    ]
    return "\n".join(lines)


def line(row: dict[str, Any]) -> str:
    step, alone = (
        {kind: 1e3 * statistics.median(times) for kind, times in row[what].items()}
        for what in ("step", "noise")
    )
    figures = " | ".join(f"{step[kind]:.4g}" for kind in KINDS)
    ratios = " | ".join(f"{ratio(row['step'], kind):.2f}×" for kind in ("secure", "exact"))
    released = ", ".join(f"{alone[kind]:.3g}" for kind in KINDS)
    return (
        f"| {row['title']} | {row['parameters']:,} | {row['lot']} | {figures} | {ratios} "
        f"| {released} |"
    )


def ratio(times: dict[str, list[float]], kind: str) -> float:
    return statistics.median(a / b for a, b in zip(times[kind], times["fast"], strict=True))


if __name__ == "__main__":
    main()
