"""Times a private step of one process under torchrun, with FSDP2 and NCCL, beside the plain one.

    python benchmarks/nccl.py --engines PATH [--ways NAME …] [--out FOLDER] [--seconds N]
    python benchmarks/nccl.py --engines PATH --tiny          # a rehearsal on a CPU, with gloo

PATH is the folder of the side-by-side benchmark of engines, whose GPT shape (T=256, 32 rows, bf16)
is used as it is. Every way is a process of its own, those with FSDP2 one that torchrun starts. A
way is written down as soon as it is measured, so that a limit on the machine's time costs only what
was not reached. It needs torch, NumPy and tacit alone.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SETTLING = 8  # steps before the clock starts: shapes are seen, code is compiled, steps recorded
ASKED = 1.05  # of a step with FSDP2 to the plain one
ROWS, LENGTH = 32, 256
# Of each way: is the step private, the model in pieces, compiled whole or block by block; are its
# weights gathered in bf16? A private step is recorded and replayed where it can be; "explained" in
# the record says whether it was.
WAYS = {
    "plain": "private",
    "fsdp2": "private pieces",
    "fsdp2, gathered in bf16": "private pieces half",
    "plain compiled": "private compiled",
    "fsdp2 compiled": "private pieces compiled",
    "fsdp2 compiled, gathered in bf16": "private pieces compiled half",
    "plain, blocks compiled": "private blocks",
    "fsdp2, blocks compiled": "private pieces blocks",
    "plain, not recorded": "private unrecorded",
    "fsdp2, not recorded": "private pieces unrecorded",
    "ordinary": "",
    "ordinary fsdp2": "pieces",
    "ordinary compiled": "compiled",
    "ordinary fsdp2 compiled": "pieces compiled",
}


def main() -> None:
    arguments = parse_arguments()
    if arguments.one:
        print("MEASURED", json.dumps(measured(arguments)), flush=True)
        os._exit(0)  # a private context is left open, and torch's threads may wait for each other
    end = time.monotonic() + arguments.seconds
    record: dict[str, Any] = {"ways": {}}
    for way in arguments.ways:
        if end - time.monotonic() > 5:
            answer = run(way, arguments, end - time.monotonic())
            record["machine"] = answer.pop("machine", record.get("machine"))
            record["ways"][way] = answer
            print(way, json.dumps(answer), flush=True)
            record["ratios"] = ratios(record["ways"])
            save(record, arguments.out)
    print(json.dumps({"asked": ASKED, "ratios": record.get("ratios")}))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", type=Path, required=True, help="the folder with models.py")
    parser.add_argument("--out", type=Path, help="where the record is written; nowhere if left out")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS)[:3])
    parser.add_argument("--seconds", type=float, default=85.0, help="start nothing after these")
    parser.add_argument("--tiny", action="store_true", help="a small model on a CPU")
    parser.add_argument("--one", choices=list(WAYS), help="in this process")
    return parser.parse_args()


def run(way: str, arguments: argparse.Namespace, seconds: float) -> dict[str, Any]:
    command = [str(Path(__file__)), "--engines", str(arguments.engines), "--one", way]
    command += ["--tiny"] if arguments.tiny else []
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    started = [sys.executable, *(launcher if "pieces" in WAYS[way] else []), *command]
    try:
        done = subprocess.run(started, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {seconds:.0f} s"}
    lines = [one for one in done.stdout.splitlines() if one.startswith("MEASURED ")]
    if not lines:
        return {"error": done.stderr[-3000:]}
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix("MEASURED "))
    return answer


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """Of every way with FSDP2 to those without: ordinary to ordinary, private to private."""
    known = {way: one["ms"] for way, one in found.items() if "ms" in one}
    return {
        f"{way} / {other}": round(known[way] / known[other], 4)
        for way in known
        for other in known
        if "fsdp2" in way
        and "fsdp2" not in other
        and way.startswith("ordinary") == other.startswith("ordinary")
    }


def save(record: dict[str, Any], folder: Path | None) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (folder / "nccl.json").write_text(text + "\n")


# ---- one way


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Times of a step: by itself, and of many that the device is given without waiting."""
    import torch  # noqa: PLC0415

    began = time.perf_counter()
    device = torch.device("cpu")
    if not arguments.tiny:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    step, explained = made(arguments, device)
    first = [timed(step, 1, device) for _ in range(SETTLING)]
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    alone = [1e3 * timed(step, 1, device) for _ in range(12)]
    together = [1e3 * timed(step, 12, device) / 12 for _ in range(5)]
    found: dict[str, Any] = {
        "ms": statistics.median(together), "ms_each": together,
        "ms_alone": statistics.median(alone), "first_s": first[:3],
        "seconds": time.perf_counter() - began, "explained": explained(),
        "machine": machine(device),
    }  # fmt: skip
    if device.type == "cuda":
        found["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
        found["allocated_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def timed(step: Callable[[], None], count: int, device: Any) -> float:
    import torch  # noqa: PLC0415

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return time.perf_counter() - start


def machine(device: Any) -> dict[str, str]:
    import numpy  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    import tacit  # noqa: PLC0415

    found = {"torch": torch.__version__, "numpy": numpy.__version__, "tacit": tacit.__version__}
    if device.type == "cuda":
        version = torch.cuda.nccl.version() if distributed.is_nccl_available() else ()
        found |= {"gpu": torch.cuda.get_device_name(), "nccl": ".".join(map(str, version))}
    return found


def made(
    arguments: argparse.Namespace, device: Any
) -> tuple[Callable[[], None], Callable[[], str]]:
    """The step of a way, and what is said of it."""
    import torch  # noqa: PLC0415

    sys.path[:0] = [str(arguments.engines)]
    from models import task  # type: ignore[import-not-found]  # noqa: PLC0415

    kind = WAYS[arguments.one].split()
    rows, length = (4, 16) if arguments.tiny else (ROWS, LENGTH)
    model, x, y, loss = task(f"gpt{length}", rows, device, small=arguments.tiny)
    if {"compiled", "blocks"} & set(kind):
        torch._dynamo.config.recompile_limit = 64  # a block of FSDP2 is traced by itself
    if "blocks" in kind:
        for block in model.blocks:
            block.compile()
    if "pieces" in kind:
        in_pieces(model, device, half="half" in kind)
    used = torch.compile(model) if "compiled" in kind else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def losses(batch: Any) -> Any:
        casting = torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
        with casting if not arguments.tiny else contextlib.nullcontext():
            return loss(used(batch[0]), batch[1])

    if "private" in kind:
        return private(model, optimizer, losses, x, y, recorded="unrecorded" not in kind)

    def step() -> None:
        losses((x, y)).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, lambda: ""


def in_pieces(model: Any, device: Any, *, half: bool) -> None:
    """Every block by itself, then the rest, as FSDP2's own examples have it."""
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    distributed.init_process_group("gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl")
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if half else MixedPrecisionPolicy()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def private(
    model: Any, optimizer: Any, losses: Callable[[Any], Any], x: Any, y: Any, *, recorded: bool
) -> tuple[Callable[[], None], Callable[[], str]]:
    from torch.utils.data import TensorDataset  # noqa: PLC0415

    import tacit  # noqa: PLC0415

    plan = tacit.Plan(
        examples=len(x), lot_size=len(x), steps=10**6, noise_multiplier=1.0, clip=1.0, noise="fast"
    )
    performance = tacit.Performance(batch=4096, capture=recorded)
    failures = watched_recordings()
    session = tacit.private(model, optimizer, plan, TensorDataset(x, y), performance=performance)
    dp = contextlib.ExitStack().enter_context(session)
    lots = iter(dp.lots())

    def step() -> None:
        lot = next(lots)
        dp.accumulate(lot, losses)
        dp.step()

    def explained() -> str:
        lines = dp.explain().splitlines()
        said = [one for one in lines if one.startswith(("World", "Batches", "Noise and"))]
        return " ".join([*said, *failures])

    return step, explained


def watched_recordings() -> list[str]:
    """Why recordings fail. tacit does not say it, since it may hold data; here they are made up."""
    from tacit.training.capture import CudaGraphs  # noqa: PLC0415

    failures: list[str] = []
    recorded = CudaGraphs._recorded

    def watched(self: CudaGraphs, *given: Any) -> Any:
        try:
            return recorded(self, *given)
        except Exception as error:
            failures.append("".join(traceback.format_exception(error))[-3000:])
            raise

    CudaGraphs._recorded = watched  # type: ignore[method-assign]
    return failures


if __name__ == "__main__":
    main()
