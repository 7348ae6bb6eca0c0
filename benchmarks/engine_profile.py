"""Shows where a private step spends its time on a GPU: kernels, and the processor's own share.

    python benchmarks/engine_profile.py --engines PATH MODEL BATCH [--amp] [--eager]
                                        [--recorded EXAMPLES]

PATH is the folder with `models.py` of the side-by-side benchmark; MODEL is a name of its `task`.
With --recorded, steps are replayed from recordings, of Poisson lots of so many examples.
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
    step = private_step(arguments)
    for _ in range(12):
        step()
    # Few enough that the queue holds them: how long the processor takes for them by itself.
    for count in (10, 400) if arguments.recorded else (10,):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
        queued = time.perf_counter() - start
        torch.cuda.synchronize()
        whole = time.perf_counter() - start
        each, own = (1e3 * one / count for one in (whole, queued))
        print(f"{count} steps: {each:.4f} ms each, queued in {own:.4f} ms")
    host(step)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    kernels = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)
    print(f"kernels: {sum(one.self_device_time_total for one in kernels) / 3e3:.2f} ms a step")
    print(f"launches: {sum(one.count for one in kernels) / 3:.1f} a step")
    for one in kernels[:60]:
        total, count = one.self_device_time_total / 3e3, one.count / 3
        print(f"{total:8.4f} ms {count:6.1f} x {one.key[:120]}")


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
    parser.add_argument("--recorded", type=int, metavar="EXAMPLES", help="replay whole steps")
    return parser.parse_args()


def private_step(arguments: argparse.Namespace) -> Callable[[], None]:
    from models import task  # type: ignore[import-not-found]  # noqa: PLC0415

    batch, examples = arguments.batch, arguments.recorded or arguments.batch
    model, x, y, losses = task(arguments.model, examples, "cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    plan = tacit.Plan(
        examples=examples, lot_size=batch, steps=10**6, noise_multiplier=1.0, clip=1.0
    )  # fmt: skip
    compiled: Any = model if arguments.eager else torch.compile(model)
    performance = tacit.Performance(batch=4096) if arguments.recorded else None
    data = TensorDataset(x, y)
    dp = tacit.private(model, optimizer, plan, data, performance=performance).__enter__()
    lots = dp.lots()

    def computed(rows: Any) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16) if arguments.amp else contextlib.nullcontext():
            found: torch.Tensor = losses(compiled(rows[0]), rows[1])
            return found

    def step() -> None:
        if arguments.recorded:
            dp.accumulate(next(lots), computed)
        else:
            for rows in next(lots):
                dp.backward(computed(rows))
        dp.step()

    return step


if __name__ == "__main__":
    main()
