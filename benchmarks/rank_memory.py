"""The memory that a step of FSDP2 takes on each rank, private and ordinary, on CPUs.

    torchrun --nproc-per-node 2 benchmarks/rank_memory.py ordinary
    torchrun --nproc-per-node 2 benchmarks/rank_memory.py private

Eight blocks of a million parameters, sharded one by one; 32 rows in one lot. Printed is the most
memory of tensors that is in use above what was when the step began, as torch's profiler sees it,
and what a rank holds of the parameters all the time.
"""

import gc
import os
import sys
from collections.abc import Callable

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import TensorDataset

import tacit

WIDTH, BLOCKS, ROWS, CLASSES = 1024, 8, 32, 10


class Blocks(nn.Module):
    """Linear layers with tanh between them, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        result: Tensor = self.head(x)
        return result


def private_step(model: nn.Module, data: TensorDataset) -> Callable[[], None]:
    plan = tacit.Plan(
        examples=ROWS, lot_size=ROWS, steps=8, noise_multiplier=1.0, clip=1.0,
        sampling=tacit.training.FullBatch(),
    )  # fmt: skip
    dp = tacit.private(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, data)
    dp.__enter__()
    lots = iter(dp.lots())

    def step() -> None:
        for x, y in next(lots):
            dp.backward(nn.functional.cross_entropy(model(x), y, reduction="none"))
        dp.step()

    return step


def ordinary_step(model: nn.Module, data: TensorDataset) -> Callable[[], None]:
    rank, size = distributed.get_rank(), distributed.get_world_size()
    x, y = (tensor[rank::size] for tensor in data.tensors)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def peak(step: Callable[[], None]) -> int:
    """Bytes of a step's tensors at their most, after two steps that do not count."""
    step()
    step()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    events = [one for one in seen.profiler.kineto_results.events() if one.name() == "[memory]"]
    used = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        used += event.nbytes()
        most = max(most, used)
    return most


def main() -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    model = Blocks()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    data = TensorDataset(torch.randn(ROWS, WIDTH), torch.randint(CLASSES, (ROWS,)))
    kinds = {"private": private_step, "ordinary": ordinary_step}
    most = peak(kinds[sys.argv[1]](model, data))
    held = sum(p.to_local().numel() * 4 for p in model.parameters())
    print(
        f"{sys.argv[1]}, rank {distributed.get_rank()}: {most / 2**20:.1f} MiB above the start of "
        f"a step, {held / 2**20:.1f} MiB of parameters held",
        flush=True,
    )
    os._exit(0)  # a private context is left open


if __name__ == "__main__":
    main()
