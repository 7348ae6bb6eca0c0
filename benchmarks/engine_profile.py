"""Shows where a private step spends its time on a GPU: kernels, and the processor's own share.

    python benchmarks/engine_profile.py --engines PATH MODEL BATCH [--amp] [--eager]
                                        [--recorded EXAMPLES] [--device cuda]

PATH is the folder with `models.py` of the side-by-side benchmark; MODEL is a name of its `task`.
With --recorded, steps are replayed from recordings, of Poisson lots of so many examples: then it
also shows each part of the host's work, each recording by itself, and one step launch by launch.
"""

import argparse
import contextlib
import cProfile
import platform
import pstats
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import TensorDataset

import tacit
from tacit.training import (
    batches,
    capture,
    charging,
    guards,
    lot,
    sampling,
    session,
    updates,
    verification,
)

SETTLING = 24  # steps: the first ones are computed, then recorded
WAITED_FOR = 5.0  # milliseconds of a step from which on the device alone counts
LONGEST = 5e3  # milliseconds: so long may steps be timed one after the other
BURST = 8  # steps that are given to the device before it is waited for: no queue is full
PARTS: list[tuple[type, str]] = [
    (guards.Guard, "check_before_lot"),
    (charging.StepCharges, "take"),
    (verification.Verifier, "count_lot"),
    (sampling.LotSampler, "draw"),
    (session.Session, "_lot"),
    (capture.BatchRecordings, "begin"),
    (batches.Cutter, "cut"),
    (lot.Computation, "_replayed"),
    (capture.Inputs, "feed"),
    (capture.Staged, "room"),
    (capture.Staged, "send"),
    (lot.Computation, "_count_in"),
    (updates.Updates, "recorded"),
    (guards.Guard, "check_before_step"),
    (updates.Updates, "replay"),
]


class Run:
    """A session that is under way."""

    def __init__(self, dp: session.Session, losses: Callable[[Any], torch.Tensor]) -> None:
        self.dp, self.losses = dp, losses
        self.lots = dp.lots()
        self.next_lot: Callable[[], Any] = lambda: next(self.lots)
        self.accumulate: Callable[[Any], None] | None = None
        self.finish: Callable[[], None] = dp.step

    def step(self) -> None:
        lot = self.next_lot()
        if self.accumulate is not None:
            self.accumulate(lot)
        else:
            for rows in lot:
                self.dp.backward(self.losses(rows))
        self.finish()

    def recordings(self) -> Iterator[tuple[str, Any]]:
        """What replays a batch, and what replays an update."""
        known, updates = self.dp._computation._recordings, self.dp._updates
        for shape in () if known is None else known._shapes.values():
            if shape.recorded is not None:
                yield "a batch", shape.recorded
        for update in () if updates is None else updates._recorded.values():
            yield "an update", update


def main() -> None:
    arguments = parse_arguments()
    sys.path.insert(0, str(arguments.engines))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    on_gpu = arguments.device == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else "no GPU"
    print(f"{name}, {processor()}, torch {torch.__version__}, Python {platform.python_version()}")
    run = private_run(arguments)
    for _ in range(SETTLING if arguments.recorded else 12):
        run.step()
    each = times_of_steps(run, (10, 400, 400, 2000) if arguments.recorded else (10,))
    if arguments.recorded and each < WAITED_FOR:
        host_by_part(run)
        recordings_alone(run)
        if on_gpu:
            chains_of_nothing()
    host_by_function(run.step, 200 if arguments.recorded and each < WAITED_FOR else 10)
    if on_gpu:
        device(run.step, launches=bool(arguments.recorded))


def processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def times_of_steps(run: Run, counts: tuple[int, ...]) -> float:
    """Many steps, one after the other, and how long the processor takes to ask for them.

    Returns the milliseconds of a step.
    """
    each = 0.0
    for count in counts:  # ten are few enough for the queue: the processor does not wait for it
        if count * each > LONGEST:
            break
        synchronize()
        watched = 0
        start = time.perf_counter()
        for _ in range(count):
            run.step()
            watched += run.dp._verifier.watches
        queued = time.perf_counter() - start
        synchronize()
        whole = time.perf_counter() - start
        each, own = (1e3 * one / count for one in (whole, queued))
        print(f"{count} steps: {each:.4f} ms each, queued in {own:.4f} ms, {watched} watched")
    alone = []
    for _ in range(100 if 100 * each < LONGEST else 10):
        synchronize()
        start = time.perf_counter()
        run.step()
        synchronize()
        alone.append(1e3 * (time.perf_counter() - start))
    print(f"one step, waited for: {statistics.median(alone):.4f} ms (median of {len(alone)})")
    return each


# ---- the host


class Timers:
    """Adds up how long functions take, with and without those that they call."""

    def __init__(self) -> None:
        self._inner: list[float] = []
        self._found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])

    def on(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                inner = self._inner.pop()
                if self._inner:
                    self._inner[-1] += took
                one = self._found[label]
                one[0], one[1], one[2] = one[0] + 1, one[1] + took, one[2] + took - inner

        return timed

    def show(self, steps: int) -> None:
        print("   all µs   own µs  calls  part")
        for label, (calls, took, own) in sorted(self._found.items(), key=lambda one: -one[1][1]):
            print(f"{1e6 * took / steps:9.2f}{1e6 * own / steps:9.2f}{calls / steps:7.2f}  {label}")


def host_by_part(run: Run, bursts: int = 60) -> None:
    """What the parts of the host's work take, in bursts of few steps.

    Without a GPU a replay would be the computation itself, and is left out.
    """
    timers, whole = Timers(), 0.0
    asked = torch.cuda.is_available()
    with contextlib.ExitStack() as undo:
        for kind, name in PARTS:
            before = getattr(kind, name)
            undo.callback(setattr, kind, name, before)
            setattr(kind, name, timers.on(f"{kind.__name__}.{name}", before))
        for what, recorded in run.recordings():
            replay = recorded.replay
            undo.callback(object.__setattr__, recorded, "replay", replay)
            object.__setattr__(
                recorded,
                "replay",
                timers.on(f"launch of {what}", replay if asked else lambda: None),
            )
        for part in ("next_lot", "accumulate", "finish"):
            before = getattr(run, part)
            undo.callback(setattr, run, part, before)
            setattr(run, part, timers.on(f"step: {part}", before))
        for _ in range(bursts):
            synchronize()
            start = time.perf_counter()
            for _ in range(BURST):
                run.step()
            whole += time.perf_counter() - start
        synchronize()
    steps = bursts * BURST
    print(f"\nhost: {1e6 * whole / steps:.1f} µs a step, timers included, in bursts of {BURST}")
    timers.show(steps)


def host_by_function(step: Callable[[], None], count: int) -> None:
    """What the processor does, by function; profiling itself makes it slower."""
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(count):
        step()
    profiler.disable()
    synchronize()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


# ---- the device


def recordings_alone(run: Run, count: int = 400) -> None:
    """Each recording again and again, as what a step takes at least on the device.

    The run is over with it for all purposes but timing: batches are counted several times.
    """
    print()
    for what, recorded in run.recordings():
        repeated(f"{what} by itself", recorded.replay, count)
    synchronize()


def repeated(label: str, replay: Callable[[], object], count: int) -> None:
    for few in (BURST, count):
        synchronize()
        start = time.perf_counter()
        for _ in range(few):
            replay()
        queued = time.perf_counter() - start
        synchronize()
        whole = time.perf_counter() - start
        each, own = (1e6 * one / few for one in (whole, queued))
        print(f"{label}, {few} times: {each:.1f} µs each, queued in {own:.1f} µs")


def chains_of_nothing() -> None:
    """What recordings of hardly anything take: the least time of a node, and of a launch."""
    small = torch.zeros(64, device="cuda")
    for nodes in (1, 10, 40):
        graph = torch.cuda.CUDAGraph()
        synchronize()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                small.add_(1.0)
        repeated(f"a recording of {nodes} small kernels", graph.replay, 400)
    numbers = torch.zeros(1000, dtype=torch.int64, device="cuda")
    pinned = torch.zeros(1000, dtype=torch.int64).pin_memory()
    repeated("a copy of 8 kB", lambda: numbers.copy_(pinned, non_blocking=True), 400)
    event = torch.cuda.Event()
    repeated("an event", event.record, 400)


def device(step: Callable[[], None], *, launches: bool) -> None:
    """Kernels, by the time that they take; and ``launches``, one after the other."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            step()
        synchronize()
    kernels = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)
    print(f"kernels: {sum(one.self_device_time_total for one in kernels) / 3e3:.4f} ms a step")
    print(f"launches: {sum(one.count for one in kernels) / 3:.1f} a step")
    for one in kernels[:60]:
        total, count = one.self_device_time_total / 3e3, one.count / 3
        print(f"{total:8.4f} ms {count:6.1f} x {one.key[:120]}")
    if launches:
        timeline([one for one in found.events() if str(one.device_type).endswith("CUDA")])


def timeline(events: list[Any]) -> None:
    """The last of three steps, launch by launch: the gap before it, and how long it takes."""
    events.sort(key=lambda one: one.time_range.start)
    last = events[-(len(events) // 3) :]
    print(f"\none step: {len(last)} launches; µs of the gap before each, and of itself")
    busy, before = 0.0, last[0].time_range.start
    for one in last:
        start, end = one.time_range.start, one.time_range.end
        print(f"{start - before:8.2f}{end - start:8.2f}  {one.name[:110]}")
        busy, before = busy + end - start, end
    print(f"busy {busy:.1f} µs of {before - last[0].time_range.start:.1f} µs")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", type=Path, required=True)
    parser.add_argument("model")
    parser.add_argument("batch", type=int)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--eager", action="store_true", help="the model itself is not compiled")
    parser.add_argument("--recorded", type=int, metavar="EXAMPLES", help="replay whole steps")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"],
                        help="without a GPU only the host's own work is seen")  # fmt: skip
    return parser.parse_args()


def private_run(arguments: argparse.Namespace) -> Run:
    from models import task  # type: ignore[import-not-found]  # noqa: PLC0415

    batch, examples = arguments.batch, arguments.recorded or arguments.batch
    model, x, y, losses = task(arguments.model, examples, arguments.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    plan = tacit.Plan(
        examples=examples, lot_size=batch, steps=10**6, noise_multiplier=1.0, clip=1.0
    )  # fmt: skip
    compiled: Any = model if arguments.eager else torch.compile(model)
    performance = tacit.Performance(batch=4096, capture=True) if arguments.recorded else None
    data = TensorDataset(x, y)
    dp = tacit.private(model, optimizer, plan, data, performance=performance).__enter__()

    def computed(rows: Any) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16) if arguments.amp else contextlib.nullcontext():
            found: torch.Tensor = losses(compiled(rows[0]), rows[1])
            return found

    run = Run(dp, computed)
    if arguments.recorded:
        run.accumulate = lambda lot: dp.accumulate(lot, computed)
    return run


if __name__ == "__main__":
    main()
