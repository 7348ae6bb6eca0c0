"""The memory that a step of FSDP2 takes on each rank, private and ordinary, on CPUs.

    python benchmarks/rank_memory.py [--ranks N] [--record]

Of every model two torchruns are started, one with an ordinary loop and one with tacit's, of the
same rows. Printed is the most memory of tensors that is in use above what was when a step began, as
torch's profiler sees it: the median of several steps, of the rank that has most. A private step
also keeps the gradients of what layers give out (*taps*) until the norms are known, so that the
limit is 1.1 times the ordinary step and those; they are counted from their shapes.
"""

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import TensorDataset

import machine
import tacit
from engine_models import Gpt, Task, cnn, losses

RESULTS = Path(__file__).resolve().parent / "results"
NAME = "rank_memory"
LIMIT = 1.1
STEPS = 5  # that are measured, after two that are not


class Blocks(nn.Module):
    """Linear layers with tanh between them, and a head."""

    def __init__(self, width: int = 1024, blocks: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        result: Tensor = self.head(x)
        return result


TASKS = {
    "blocks": Task("8 linear layers of 1024×1024", 32, Blocks, (1024,)),
    "gpt": Task(
        "GPT, 4 layers, d=256, T=64, vocabulary 2,000", 16,
        lambda: Gpt(vocabulary=2000, width=256, heads=4, layers=4, length=64), (64,),
        classes=2000, text=True,
    ),
    "cnn": Task("CNN, 4 convolutions with GroupNorm, 3×32×32", 64, cnn, (3, 32, 32)),
}  # fmt: skip


def main() -> None:
    arguments = parse_arguments()
    if arguments.one:
        print("MEASURED", json.dumps(measured(*arguments.one)), flush=True)
        os._exit(0)  # a private context is left open
    rows = {name: row(name, arguments.ranks) for name in TASKS}
    print(markdown(rows, arguments.ranks))
    if arguments.record:
        record = {**machine.stamp(), "ranks": arguments.ranks, "limit": LIMIT, "rows": rows}
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (RESULTS / f"{NAME}.json").write_text(text + "\n")
        about = f"`{record['command']}`, {record['date']}, commit {record['commit']}\n"
        (RESULTS / f"{NAME}.md").write_text(f"{markdown(rows, arguments.ranks)}\n{about}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="keep it in results/")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "KIND"), help="as one of the ranks")
    return parser.parse_args()


# ---- the table


def row(name: str, ranks: int) -> dict[str, Any]:
    """A model's figures in bytes: the most of any rank."""
    kinds = {kind: run(name, kind, ranks) for kind in ("ordinary", "private")}
    most = {kind: max(one["step"] for one in found) for kind, found in kinds.items()}
    taps = max(one["taps"] for one in kinds["private"])
    held = max(one["held"] for one in kinds["private"])
    spread = {kind: [min(one["least"] for one in found), max(one["most"] for one in found)]
              for kind, found in kinds.items()}  # fmt: skip
    share = most["private"] / (most["ordinary"] + taps)
    whole = (held + most["private"]) / (held + most["ordinary"] + taps)
    return {**most, "taps": taps, "held": held, "spread": spread, "share": share, "whole": whole}


def run(name: str, kind: str, ranks: int) -> list[dict[str, Any]]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, *launcher, __file__, "--one", name, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    lines = (one.partition("MEASURED ")[2] for one in done.stdout.splitlines() if "MEASURED" in one)
    return [json.loads(one) for one in lines]


def markdown(rows: dict[str, Any], ranks: int) -> str:
    lines = [
        "# Memory of a step with FSDP2, on each rank", "",
        f"{ranks} ranks on CPUs (gloo), MiB. A step's most is above what is in use when it begins, "
        "the median of several steps, of the rank that has most; held are the parameters. Asked: a "
        f"private step within {LIMIT} times an ordinary one and its taps, the gradients of what "
        "layers give out, which are kept until the norms are known.", "",
        "| model | held | ordinary | taps | private | private / (ordinary + taps) | with what is "
        "held | |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for name, one in rows.items():
        sizes = (f"{one[key] / 2**20:.1f}" for key in ("held", "ordinary", "taps", "private"))
        verdict = "met" if one["whole"] <= LIMIT else "not met"
        shares = f"{one['share']:.2f} | {one['whole']:.2f}"
        lines.append(f"| {TASKS[name].title} | {' | '.join(sizes)} | {shares} | {verdict} |")
    return "\n".join(lines) + "\n"


# ---- one rank


def measured(name: str, kind: str) -> dict[str, Any]:
    """Bytes of a step of this rank."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    task = TASKS[name]
    model = task.model()
    for block in getattr(model, "blocks", None) or model.children():
        if any(True for _ in block.parameters()):
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    data = TensorDataset(*task.data())
    step, taps = (private_step if kind == "private" else ordinary_step)(model, data)
    for _ in range(2):
        step()
    peaks = [peak(step) for _ in range(STEPS)]
    held = sum(p.to_local().numel() * p.element_size() for p in model.parameters())
    return {
        "step": statistics.median(peaks), "least": min(peaks), "most": max(peaks),
        "taps": taps(), "held": held,
    }  # fmt: skip


def private_step(model: nn.Module, data: TensorDataset) -> tuple[Callable[[], None], Any]:
    rows = len(data)
    plan = tacit.Plan(
        examples=rows, lot_size=rows, steps=100, noise_multiplier=1.0, clip=1.0,
        sampling=tacit.training.FullBatch(),
    )  # fmt: skip
    dp = tacit.private(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, data)
    dp.__enter__()
    lots = iter(dp.lots())

    def step() -> None:
        for x, y in next(lots):
            dp.backward(losses(model(x), y))
        dp.step()

    def taps() -> int:
        structure = dp._computation._engine.structure
        assert structure is not None
        return sum(math.prod(use.shape) * use.dtype.itemsize for use in structure.uses)

    return step, taps


def ordinary_step(model: nn.Module, data: TensorDataset) -> tuple[Callable[[], None], Any]:
    rank, size = distributed.get_rank(), distributed.get_world_size()
    x, y = (tensor[rank::size] for tensor in data.tensors)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        losses(model(x), y).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, lambda: 0


def peak(step: Callable[[], None]) -> int:
    """Bytes of a step's tensors at their most, above those that are there when it begins."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    events = [one for one in seen.profiler.kineto_results.events() if one.name() == "[memory]"]
    used = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        used += event.nbytes()
        most = max(most, used)
    return most


if __name__ == "__main__":
    main()
