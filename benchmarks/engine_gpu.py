"""Times private training steps on a GPU beside the compiled non-private step, and Poisson lots.

    python benchmarks/engine_gpu.py --engines PATH [--out FOLDER] [--seconds N]

PATH is the folder with `one.py`, the side-by-side benchmark of training engines, whose models and
timing are used as they are; each run is a process of its own. The record is written after every
run, so that a limit on the machine's time costs only what was not reached. It needs torch, NumPy
and tacit alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# What the issue asks for: ratio to the compiled non-private step, milliseconds, GiB.
ROWS: dict[str, dict[str, Any]] = {
    "GPT shape, T=256, B=32, bf16": {
        "run": ["gpt256", "32", "--amp"], "ratio": 1.3, "gib": 8.0,
        "engines": ["nonprivate-compile", "tacit-compile"],
    },
    "GPT shape, T=1024, B=8, bf16": {
        "run": ["gpt1024", "8", "--amp"], "ratio": 1.45,
        "engines": ["nonprivate-compile", "tacit-compile"],
    },
    "MLP 60-1000-10, B=600, fp32": {
        "run": ["mlp", "600"], "ms": 0.9,
        "engines": ["nonprivate-compile", "tacit-compile", "tacit"],
    },
    "WRN-16-4, B=1024, TF32": {
        "run": ["wrn", "1024"], "ratio": 2.5, "gib": 10.0,
        "engines": ["tacit-compile", "nonprivate-compile"],
    },
}  # fmt: skip


def main() -> None:
    arguments = parse_arguments()
    end = time.monotonic() + arguments.seconds
    record: dict[str, Any] = {"machine": machine(), "rows": {}, "poisson": None}
    save(record, arguments.out)
    record["poisson"] = poisson(arguments.engines)
    for name, row in ROWS.items():
        if arguments.rows and row["run"][0] not in arguments.rows:
            continue
        found = record["rows"][name] = {}
        for engine in row["engines"]:
            left = end - time.monotonic()
            if left > 20:
                found[engine] = run(arguments.engines, engine, row["run"], left)
                save(record, arguments.out)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", type=Path, required=True, help="the folder with one.py")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--rows", nargs="*", help="models to run, as one.py names them")
    parser.add_argument("--seconds", type=float, default=3600.0, help="start nothing after these")
    return parser.parse_args()


def run(engines: Path, engine: str, model: list[str], seconds: float) -> dict[str, Any]:
    command = [sys.executable, str(engines / "one.py"), engine, *model]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": done.stderr[-500:]}
    print(json.dumps(answer), flush=True)
    return answer


def machine() -> dict[str, str]:
    import numpy  # noqa: PLC0415
    import torch  # noqa: PLC0415

    import tacit  # noqa: PLC0415

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    versions = {"torch": torch.__version__, "numpy": numpy.__version__, "tacit": tacit.__version__}
    typed = " ".join(Path(one).name if one.startswith("/") else one for one in sys.argv)
    return {"gpu": gpu, "command": typed, **versions}


def poisson(engines: Path) -> dict[str, Any]:
    """Real Poisson lots with a compiled model: how long a step takes, and what is compiled anew."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import engine_gpu as e; e.poisson_here()"
    environment = {**os.environ, "ENGINES": str(engines)}
    command = [sys.executable, "-c", code, str(HERE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = done.stdout.strip().splitlines()
    answer: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": done.stderr[-800:]}
    print(json.dumps(answer), flush=True)
    return answer


def poisson_here() -> None:
    import torch  # noqa: PLC0415
    from torch._dynamo.utils import counters  # noqa: PLC0415
    from torch.utils.data import TensorDataset  # noqa: PLC0415

    import tacit  # noqa: PLC0415

    sys.path.insert(0, os.environ["ENGINES"])
    from models import task  # type: ignore[import-not-found]  # noqa: PLC0415

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, x, y, losses = task("mlp", 20_000, device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    plan = tacit.Plan(examples=20_000, lot_size=600, steps=60, noise_multiplier=1.0, clip=1.0)
    compiled = torch.compile(model)
    times, sizes, graphs = [], set(), []
    performance = tacit.Performance(compile=True)
    with tacit.private(model, optimizer, plan, TensorDataset(x, y), performance=performance) as dp:
        for lot in dp.lots():
            start = time.perf_counter()
            for inputs, labels in lot:
                sizes.add(len(inputs))
                dp.backward(losses(compiled(inputs), labels))
            dp.step()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
            graphs.append(counters["stats"]["unique_graphs"])
    print(json.dumps({
        "model": "MLP, Poisson lots of 600 of 20,000", "steps": plan.steps, "shapes": sorted(sizes),
        "ms": statistics.median(times[20:]), "graphs_after_10": graphs[10],
        "graphs_at_end": graphs[-1],
        "longest_after_10_ms": max(times[10:]),
    }))  # fmt: skip


def save(record: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "engine_gpu.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / "engine_gpu.md").write_text(markdown(record))


def markdown(record: dict[str, Any]) -> str:
    about = record["machine"]
    lines = [
        "# Private steps on a GPU",
        "",
        f"{about['gpu']}, torch {about['torch']}, tacit {about['tacit']}: `{about['command']}`. "
        "Median of 10 steps after 4; a step is everything: forward, backward, clipping, noise, "
        "optimizer. The ratio is to the compiled non-private step of the same run.",
        "",
        "| model | engine | ms | fastest | GiB | ratio | asked | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in record["rows"].items():
        base = found.get("nonprivate-compile", {}).get("ms")
        for engine, answer in found.items():
            lines.append(row_of(name, engine, answer, base))
    if record["poisson"] is not None:
        lines += ["", f"Poisson lots: `{json.dumps(record['poisson'])}`"]
    return "\n".join(lines) + "\n"


def row_of(name: str, engine: str, answer: dict[str, Any], base: float | None) -> str:
    if "ms" not in answer:
        return f"| {name} | {engine} | {answer.get('error', '?')[:80]} | | | | | |"
    wanted = ROWS[name]
    ratio = answer["ms"] / base if base else None
    asked, met = [], []
    if not engine.startswith("nonprivate"):
        for key, value, unit in (("ratio", ratio, "×"), ("ms", answer["ms"], " ms"),
                                 ("gib", answer["mem_gib"], " GiB")):  # fmt: skip
            if key in wanted and value is not None:
                asked.append(f"≤ {wanted[key]}{unit}")
                met.append(value <= wanted[key])
    verdict = "" if not met else ("met" if all(met) else "not met")
    shown = f"{ratio:.2f}×" if ratio else ""
    return (
        f"| {name} | {engine} | {answer['ms']:.2f} | {answer['min_ms']:.2f} | "
        f"{answer['mem_gib'] or 0:.2f} | {shown} | {', '.join(asked)} | {verdict} |"
    )


if __name__ == "__main__":
    main()
