"""What it costs to look at the weights' values: private steps with and without their fingerprints.

    python benchmarks/guard_cost.py [--engines PATH] [--record | --out FILE]

Blocks of steps with and without take turns in one process, on one session; each pair gives a ratio,
and the record holds their median. With a GPU, PATH is the folder of the side-by-side benchmark of
engines, whose GPT shape is timed (bf16, compiled), and the passes over the weights are timed by the
device's own clock; without one, the models of engine_models.py on the CPU.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import TensorDataset

import machine
import tacit
from tacit.training.fingerprint import Fingerprint

RESULTS = Path(__file__).resolve().parent / "results"
PAIRS, STEPS = 15, 10
CPU_MODELS = ("mlp", "cnn")


def main() -> None:
    arguments = parse_arguments()
    rows = gpu(arguments.engines) if arguments.engines else cpu()
    path = arguments.out or (RESULTS / "guard_cost.json" if arguments.record else None)
    known = json.loads(path.read_text()) if path and path.exists() else {}
    record = known | {("gpu" if arguments.engines else "cpu"): machine.stamp() | {"rows": rows}}
    print(markdown(record))
    if path:
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        path.with_suffix(".md").write_text(markdown(record) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--record", action="store_true")
    return parser.parse_args()


def cpu() -> list[dict[str, Any]]:
    from engine_models import TASKS, losses  # noqa: PLC0415 - only where they are timed

    rows = []
    for name in CPU_MODELS:
        task = TASKS[name]
        model = task.model()
        step, dp = stepper(model, model, *task.data(), losses, amp=False)
        rows.append({"model": f"{name}, B={task.batch}, CPU", **timed(step, model, dp)})
    return rows


def gpu(engines: Path) -> list[dict[str, Any]]:
    sys.path.insert(0, str(engines))
    from models import task  # noqa: PLC0415

    rows = []
    for name, batch, amp in (("gpt256", 32, True), ("mlp", 600, False)):
        model, x, y, losses = task(name, batch, "cuda", False)
        compiled = torch.compile(model) if amp else model
        step, dp = stepper(model, compiled, x, y, losses, amp=amp)
        rows.append({"model": f"{name}, B={batch}, GPU", **timed(step, model, dp)})
    return rows


def stepper(
    model: Any, run: Any, x: Any, y: Any, losses: Any, *, amp: bool
) -> tuple[Callable[[], None], Any]:
    """One private step over all of the data, as a user writes it."""
    plan = tacit.Plan(
        examples=len(x), lot_size=len(x), steps=1_000_000, noise_multiplier=1.0, clip=1.0
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dp = tacit.private(model, optimizer, plan, TensorDataset(x, y)).__enter__()
    lots = dp.lots()

    def step() -> None:
        for inputs, targets in next(lots):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=amp):
                each = losses(run(inputs), targets)
            dp.backward(each)
        dp.step()

    return step, dp


def timed(step: Callable[[], None], model: Any, dp: Any) -> dict[str, Any]:
    for _ in range(5):
        step()
    pairs = []
    for _ in range(PAIRS):
        looking = seconds(step)
        with blind():
            pairs.append((looking, seconds(step)))
        dp._custody.inside().note_step()
    found = {
        "weights": sum(p.numel() for p in model.parameters()),
        "ms": 1e3 * statistics.median(one for one, _ in pairs),
        "ms_blind": 1e3 * statistics.median(other for _, other in pairs),
        "ratio": statistics.median(one / other for one, other in pairs),
    }
    return found | passes(model)


def seconds(step: Callable[[], None]) -> float:
    """The median step of a block."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@contextmanager
def blind() -> Iterator[None]:
    """Without a look at values; identities, versions and hooks stay."""

    def nothing(*_: object, **__: object) -> list[str]:
        return []

    with patch.multiple(
        Fingerprint, note=nothing, compare=nothing, changed=nothing, not_finite=nothing
    ):
        yield


def passes(model: Any) -> dict[str, Any]:
    """One note and one comparison of all weights: what a step adds, by the clock that counts."""
    found = Fingerprint(dict(model.named_parameters()))

    def both() -> None:
        found.compare()
        found.note()

    if not torch.cuda.is_available():
        return {"ms_of_passes": 1e3 * statistics.median(machine.seconds(both, 20))}
    for _ in range(3):
        both()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20):
        both()
    end.record()
    torch.cuda.synchronize()
    return {"ms_of_passes": start.elapsed_time(end) / 20}


def markdown(record: dict[str, Any]) -> str:
    lines = [
        "# What it costs to look at the weights' values",
        "",
        "Private steps with and without their fingerprints, in turns on one session "
        f"({PAIRS} pairs of blocks of {STEPS} steps); the ratio is the pairs' median. *Passes* are "
        "a comparison and a note of all weights alone: on a GPU by the device's clock.",
        "",
        "| model | weights | step, ms | without, ms | ratio | passes, ms | of a step |",
        "|---|---|---|---|---|---|---|",
    ]
    for part in record.values():
        for row in part["rows"]:
            share = row["ms_of_passes"] / row["ms_blind"]
            lines.append(
                f"| {row['model']} | {row['weights']:,} | {row['ms']:.2f} "
                f"| {row['ms_blind']:.2f} | {row['ratio']:.3f} "
                f"| {row['ms_of_passes']:.3f} | {100 * share:.2f} % |"
            )
    lines += [f"\n{name}: `{part['command']}`, {part['date']}" for name, part in record.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
