"""Times private training steps on a GPU beside the ordinary ones of the same process and machine.

    python benchmarks/engine_gpu.py --engines PATH [--peers FOLDER] [--rows NAME …]
                                    [--only ENGINE …] [--out FOLDER] [--seconds N]

PATH is the folder of the side-by-side benchmark of engines, whose models are used as they are, and
whose scripts time the peers, whose packages are looked for in the folder of --peers. Each run is
a process of its own, and the record is written after every run, so that a limit on the machine's
time costs only what was not reached; rows that are not run keep what is recorded. But for the peers
it needs torch, NumPy and tacit alone. A step is everything: the sample, forward, backward,
clipping, noise, optimizer, and the looks at the weights.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SETTLING = 8  # steps before the clock starts: shapes are seen, code is compiled, steps recorded
STRETCHES = 7  # of steps that are timed together
SECURE = 1.15  # what secure noise may cost, of the same step with fast noise
PEERS = {  # a script of the benchmark of engines, and its name for the peer
    "Opacus 1.6, hooks": ("one.py", "opacus-hooks"),
    "Opacus 1.6, ghost": ("one.py", "opacus-ghost"),
    "JAX-Privacy 2.0": ("one_jax.py", "privacy"),
}


@dataclass(frozen=True)
class Row:
    """A model, and what is asked of it: ratios to the ordinary step, milliseconds, seconds."""

    says: str
    model: str
    batch: int
    half: bool = False  # autocast in bfloat16
    channels_last: bool = False
    compiled: bool = True  # the model, in all engines but those that are "eager"
    examples: int | None = None  # of which Poisson lots are drawn; all of them if left out
    ratio: float | None = None
    of_captured: float | None = None
    memory: float | None = None
    ms: float | None = None
    start: float | None = None  # the first two steps together
    engines: tuple[str, ...] = ("ordinary", "ordinary captured", "tacit", "tacit secure")
    peers: tuple[str, ...] = ()


ROWS = {
    "gpt256": Row(
        "GPT shape, T=256, B=32, bf16", "gpt256", 32, half=True, ratio=1.15, of_captured=1.2,
        memory=1.05, peers=tuple(PEERS),
    ),
    "gpt1024": Row(
        "GPT shape, T=1024, B=8, bf16", "gpt1024", 8, half=True, ratio=1.25,
        engines=("ordinary", "ordinary captured", "tacit"), peers=tuple(PEERS),
    ),
    "wrn": Row(
        "WRN-16-4, B=1024, TF32", "wrn", 1024, channels_last=True, ratio=1.4, memory=1.6,
        engines=("ordinary", "tacit", "tacit secure"), peers=tuple(PEERS),
    ),
    "wrn-bf16": Row(
        "WRN-16-4, B=1024, bf16", "wrn", 1024, half=True, channels_last=True, ratio=1.5, memory=1.6,
        engines=("ordinary", "tacit"), peers=("Opacus 1.6, hooks", "JAX-Privacy 2.0"),
    ),
    "smollm2": Row(
        "SmolLM2-135M shape, LoRA 16, 2,048 rows of 48, bf16, nothing compiled", "smollm2", 2048,
        compiled=False, ratio=1.15, memory=1.05, start=15.0,
        engines=("ordinary", "tacit", "tacit not captured"),
    ),
    "gpt2-large": Row(
        "GPT-2 large shape, LoRA 16, 64 rows of 256, bf16", "gpt2-large", 64, ratio=1.15,
        engines=("ordinary", "tacit"),
    ),
    "mlp": Row(
        "MLP 60-1000-10, Poisson lots of 600 of 20,000", "mlp", 600, compiled=False,
        examples=20_000, ms=0.15, engines=("ordinary", "ordinary captured", "tacit"),
        peers=tuple(PEERS),
    ),
}  # fmt: skip


def main() -> None:
    arguments = parse_arguments()
    if arguments.one:
        print(json.dumps(measured(ROWS[arguments.one[0]], arguments.one[1], arguments.engines)))
        return
    end = time.monotonic() + arguments.seconds
    path = arguments.out / "engine_gpu.json"
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    for name in arguments.rows or ROWS:
        found: dict[str, Any] = {"machine": machine()}
        row = ROWS[name]
        for engine in row.engines + (row.peers if arguments.peers else ()):
            left = end - time.monotonic()
            if left > 20 and (not arguments.only or engine in arguments.only):
                if engine in PEERS:
                    found[engine] = peer(row, engine, arguments.engines, arguments.peers, left)
                else:
                    found[engine] = run(name, engine, arguments.engines, left)
                print(name, engine, json.dumps(found[engine]), flush=True)
                record["rows"][name] = found
                save(record, arguments.out)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", type=Path, required=True, help="the folder with models.py")
    parser.add_argument("--peers", type=Path, help="the folder of the peers' packages")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--rows", nargs="*", choices=list(ROWS))
    parser.add_argument("--only", nargs="+", metavar="ENGINE", help="some engines of the rows")
    parser.add_argument("--seconds", type=float, default=3600.0, help="start nothing after these")
    parser.add_argument("--one", nargs=2, metavar=("ROW", "ENGINE"), help="in this process")
    return parser.parse_args()


def run(name: str, engine: str, engines: Path, seconds: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--engines", str(engines), "--one", name, engine]
    return answered(command, dict(os.environ), seconds)


def peer(row: Row, engine: str, engines: Path, packages: Path, seconds: float) -> dict[str, Any]:
    """A peer's step on the same shape, as the benchmark of engines times it: each waited for."""
    script, name = PEERS[engine]
    command = [sys.executable, str(engines / script), name, row.model, str(row.batch)]
    places = {"PEERS": str(packages), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    found = answered(command + ["--amp"] * row.half, os.environ | places, min(seconds, 120.0))
    if "ms" not in found:
        return {"error": found.get("error", "?")}
    return {"ms": found["ms"], "ms_alone": found["ms"], "allocated_gib": found["mem_gib"]}


def answered(command: list[str], environment: dict[str, str], seconds: float) -> dict[str, Any]:
    """The last line that a process of its own prints, as data."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": done.stderr[-500:]}
    return answer


def machine() -> dict[str, str]:
    import numpy  # noqa: PLC0415
    import torch  # noqa: PLC0415

    import tacit  # noqa: PLC0415

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    versions = {"torch": torch.__version__, "numpy": numpy.__version__, "tacit": tacit.__version__}
    typed = " ".join(Path(one).name if "/" in one else one for one in sys.argv)
    return {"gpu": gpu, "command": typed, **versions}


# ---- one run


def measured(row: Row, engine: str, engines: Path) -> dict[str, Any]:
    """Times of a step: by itself, and of many that the device is given without waiting."""
    import torch  # noqa: PLC0415

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.manual_seed(0)
    step, explained = (
        ordinary(row, engine, engines) if "ordinary" in engine else private(row, engine, engines)
    )
    first = [timed(step, 1) for _ in range(SETTLING)]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    few, many = (100, 400) if row.model == "mlp" else (12, 12)
    alone = [1e3 * timed(step, 1) for _ in range(few)]
    # A host that others use as well is slower now and then: the median of a few stretches.
    stretches = [1e3 * timed(step, many) / many for _ in range(STRETCHES)]
    return {
        "ms": statistics.median(stretches), "ms_stretches": sorted(stretches),
        "ms_alone": statistics.median(alone), "first_s": first[:3],
        "reserved_gib": torch.cuda.max_memory_reserved() / 2**30, "explained": explained(),
    }  # fmt: skip


def timed(step: Callable[[], None], count: int) -> float:
    import torch  # noqa: PLC0415

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def made(row: Row, engines: Path, rows: int) -> Any:
    """The model, inputs, labels, optimizer, and losses of a batch."""
    import torch  # noqa: PLC0415

    sys.path[:0] = [str(engines), str(HERE)]
    if row.model in ("smollm2", "gpt2-large"):
        from lora_models import task  # noqa: PLC0415
    else:
        from models import task  # type: ignore[import-not-found, no-redef]  # noqa: PLC0415
    model, x, y, loss = task(row.model, rows, "cuda")
    if row.channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    used = torch.compile(model) if row.compiled else model

    def losses(batch: Any) -> Any:
        half = torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
        with half if row.half else contextlib.nullcontext():
            return loss(used(batch[0]), batch[1])

    trained = [p for p in model.parameters() if p.requires_grad]
    return model, x, y, torch.optim.SGD(trained, 0.1), losses


def ordinary(row: Row, engine: str, engines: Path) -> tuple[Callable[[], None], Callable[[], str]]:
    import torch  # noqa: PLC0415

    _, x, y, optimizer, losses = made(row, engines, row.batch)
    captured = "captured" in engine

    def step() -> None:
        losses((x, y)).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not captured)

    if not captured:
        return step, lambda: ""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replayed(kept: Callable[[], None] = step) -> None:  # the graph reads what the step holds
        del kept
        graph.replay()

    return replayed, lambda: ""


def private(row: Row, engine: str, engines: Path) -> tuple[Callable[[], None], Callable[[], str]]:
    from torch.utils.data import TensorDataset  # noqa: PLC0415

    import tacit  # noqa: PLC0415

    examples = row.examples or row.batch
    model, x, y, optimizer, losses = made(row, engines, examples)
    plan = tacit.Plan(
        examples=examples, lot_size=row.batch, steps=10**6, noise_multiplier=1.0, clip=1.0,
        noise="secure" if "secure" in engine else "fast",
    )  # fmt: skip
    performance = tacit.Performance(batch=4096, capture="not captured" not in engine)
    session = tacit.private(model, optimizer, plan, TensorDataset(x, y), performance=performance)
    dp = contextlib.ExitStack().enter_context(session)
    lots = iter(dp.lots())

    def step() -> None:
        lot = next(lots)
        dp.accumulate(lot, losses)
        dp.step()

    def explained() -> str:
        lines = dp.explain().splitlines()
        return " ".join(line for line in lines if "replayed" in line or "recorded" in line)

    return step, explained


# ---- the record


def save(record: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (folder / "engine_gpu.json").write_text(text + "\n")
    (folder / "engine_gpu.md").write_text(markdown(record))


def markdown(record: dict[str, Any]) -> str:
    about = next(iter(record["rows"].values()))["machine"]
    lines = [
        "# Private steps on a GPU", "",
        f"{about['gpu']}, torch {about['torch']}, tacit {about['tacit']}. "
        "Milliseconds of a step among many, the device being given one after the other (of newer "
        "rows the median of a few stretches), and of one that is waited for; a step is everything: "
        "the sample, forward, backward, clipping, noise, optimizer, and the looks at the weights. "
        "Ratios are to the ordinary step of the same run, for a peer's as well; machines differ in "
        "their processors, for which an ordinary step that is not captured may have to wait. "
        "The first two steps take less where an earlier process has filled the compilers' caches.",
        "", "| model | engine | ms | alone | ratio | GiB reserved | first two steps, s | asked | |",
        "|---|---|---:|---:|---:|---:|---:|---|---|",
    ]  # fmt: skip
    for name, found in record["rows"].items():
        lines += [line_of(ROWS[name], engine, found) for engine in found if engine != "machine"]
    commands = {name: found["machine"]["command"] for name, found in record["rows"].items()}
    lines += ["", "Made by:", "", *(f"- {name}: `{typed}`" for name, typed in commands.items())]
    return "\n".join(lines) + "\n"


def line_of(row: Row, engine: str, found: dict[str, Any]) -> str:
    answer, base = found[engine], found.get("ordinary", {})
    if "ms" not in answer:
        said = " ".join(answer.get("error", "?").split())
        return f"| {row.says} | {engine} | {said[-80:]} | | | | | | |"
    ordinary = answer.get("ordinary_ms", base.get("ms"))  # a peer's may be of a run of its own
    ratio = answer["ms"] / ordinary if ordinary else None
    if engine in PEERS:
        return (
            f"| {row.says} | {engine} | {answer['ms']:.2f} | | {f'{ratio:.2f}×' if ratio else ''} "
            f"| {answer['allocated_gib']:.2f} (allocated) | | | |"
        )
    start = sum(answer["first_s"][:2])
    wishes: list[tuple[str, bool]] = []
    if "secure" in engine and found.get("tacit", {}).get("ms"):
        share = answer["ms"] / found["tacit"]["ms"]
        wishes = [(f"≤ {SECURE}× of fast noise ({share:.2f}×)", share <= SECURE)]
    elif "ordinary" not in engine:
        wishes = list(asked(row, found, answer, ratio, start))
    verdict = "" if not wishes else ("met" if all(met for _, met in wishes) else "not met")
    return (
        f"| {row.says} | {engine} | {answer['ms']:.2f} | {answer['ms_alone']:.2f} | "
        f"{f'{ratio:.2f}×' if ratio else ''} | {answer['reserved_gib']:.2f} | {start:.1f} | "
        f"{', '.join(wish for wish, _ in wishes)} | {verdict} |"
    )


def asked(row: Row, found: Any, answer: Any, ratio: float | None, start: float) -> Any:
    if row.ratio and ratio:
        yield f"≤ {row.ratio}×", ratio <= row.ratio
    captured, base = found.get("ordinary captured", {}), found.get("ordinary", {})
    if row.of_captured and captured.get("ms"):
        share = answer["ms"] / captured["ms"]
        yield f"≤ {row.of_captured}× of captured ({share:.2f}×)", share <= row.of_captured
    if row.memory and base.get("reserved_gib"):
        share = answer["reserved_gib"] / base["reserved_gib"]
        yield f"≤ {row.memory}× memory ({share:.2f}×)", share <= row.memory
    if row.ms:
        yield f"≤ {row.ms} ms", answer["ms"] <= row.ms
    if row.start:
        yield f"≤ {row.start:g} s", start <= row.start


if __name__ == "__main__":
    main()
