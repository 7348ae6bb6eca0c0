"""Shows where a private step spends its time on a GPU: kernels, and the processor's own share.

    python benchmarks/engine_profile.py --engines PATH MODEL BATCH [--amp] [--eager]

PATH is the folder with `models.py` of the side-by-side benchmark; MODEL is a name of its `task`.
"""

import argparse
import contextlib
import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import TensorDataset

import tacit


def main() -> None:
    arguments = parse_arguments()
    sys.path.insert(0, str(arguments.engines))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    step = private_step(arguments.model, arguments.batch, amp=arguments.amp, eager=arguments.eager)
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        step()
    queued = time.perf_counter() - start
    torch.cuda.synchronize()
    print(f"a step: {100 * (time.perf_counter() - start):.2f} ms, queued in {100 * queued:.2f} ms")
    host(step)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    kernels = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)
    print(f"kernels: {sum(one.self_device_time_total for one in kernels) / 3e3:.2f} ms a step")
    for one in kernels[:40]:
        total, count = one.self_device_time_total / 3e3, one.count / 3
        print(f"{total:8.3f} ms {count:6.1f} x {one.key[:120]}")


def host(step: Callable[[], None]) -> None:
    """What the processor does, by function; profiling itself makes it slower."""
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(10):
        step()
    profiler.disable()
    torch.cuda.synchronize()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", type=Path, required=True)
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--eager", action="store_true", help="the model itself is not compiled")
    return parser.parse_args()


def private_step(name: str, batch: int, *, amp: bool, eager: bool) -> Callable[[], None]:
    from models import task  # type: ignore[import-not-found]  # noqa: PLC0415

    model, x, y, losses = task(name, batch, "cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    plan = tacit.Plan(
        examples=batch, lot_size=batch, steps=10**6, noise_multiplier=1.0, clip=1.0
    )  # fmt: skip
    compiled: Any = model if eager else torch.compile(model)
    dp = tacit.private(model, optimizer, plan, TensorDataset(x, y)).__enter__()
    lots = dp.lots()

    def step() -> None:
        for inputs, labels in next(lots):
            with torch.autocast("cuda", torch.bfloat16) if amp else contextlib.nullcontext():
                values = losses(compiled(inputs), labels)
            dp.backward(values)
        dp.step()

    return step


if __name__ == "__main__":
    main()
