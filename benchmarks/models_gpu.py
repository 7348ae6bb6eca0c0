"""Trains every model of the table of tests on a GPU, with recorded steps, beside the fp64 oracle.

    python benchmarks/models_gpu.py [--processes 12] [--rows NAME …] [--lots N] [--seconds N]
                                    [--limit N] [--device cuda] [--out FOLDER]

The models, their data and the oracle, which goes one row at a time through the model in double
precision on the CPU, are those of tests/training/clipping. Each is trained by `tacit.private` and
`dp.accumulate` on Poisson lots of changing size, with recordings on: once in lots of several
batches, once in small lots of which some are empty, with a checkpoint and a resumed session in the
middle. Of every step the sum that was released is compared with the oracle's at the weights of that
step (in bf16 with PyTorch's own as well: `models_yardstick.py`), and the weights with what the
released mean makes of them. Then small models take 2,000 lots.

Parts run in processes of their own, and the record is written after each, so that a crash or a
limit on the machine's time costs only what was not reached. With ``--device cpu`` it is a rehearsal
(recordings are played by running the work again), kept only if ``--out`` says where.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

import isolated
import machine
import tacit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # for the worker: the table is that of the tests
LOTS = 2000
MEGABYTE = 2**20
ABOUT = (
    "Each is beside the sum of the fp64 oracle, which goes one row at a time, at the weights of "
    "that step. *Off by* is the largest error of a released sum, in units of the norms of what "
    "its records contribute, added up (a sum itself may cancel); *allowed* is the relative "
    "tolerance of tests/training/clipping/test_table.py. The margin that norms get is 2e-6 of it. "
    "How rows in bf16 are judged is said below the table. *Alone* is the most that a lot with one "
    "record has released, in units of the clip; no lot may release more than 1 + 1e-6 for each of "
    "its records whose gradient is finite, and nothing where there is none. *Roundings* is how far "
    "a weight was from where the released mean takes it. Of each model 30 of 44 steps are those of "
    "a run that was saved after 14 and resumed."
)
ABOUT_HALF = (
    "In bf16 a rounding may turn a rectifier on or off, and the gradient jumps: PyTorch's own is "
    "then far from the oracle's, too. So sums are compared weight by weight, with the margin of "
    "2⁻⁷ that norms get in bf16, and the yardstick is ordinary PyTorch: a row's gradient by "
    "autograd alone, in the same arithmetic on the same device, clipped and added up in fp64. "
    "*Off by* is the largest error of a weight's sum, of what its records contribute to it, beside "
    "the oracle's or PyTorch's, whichever is nearer, and 1e-2 is allowed. *Off from PyTorch* is "
    "beside PyTorch's alone; *PyTorch itself* how far that was from the oracle. *Coarse* counts "
    "steps with a weight that is neither's, since a batch is added up in another order than a row: "
    "it must be as near to one of them as they are to one another, record by record, or as twice "
    "what PyTorch's gradients move by when weights and inputs are moved by 2⁻¹⁷, in 16 tries."
)


def main() -> None:
    arguments = parse_arguments()
    worker = import_module("models_worker")
    names = arguments.rows or list(worker.BY_NAME)
    lots = [
        ("lots", kind, compiled, arguments.lots, arguments.device)
        for compiled in (True, False)  # the longest first
        for kind in worker.MODELS
    ]
    rows = [("row", name, arguments.device) for name in names]
    parts = (lots if arguments.lots and not arguments.rows else []) + rows
    record = about(arguments) | {"asked": len(names), "rows": {}, "lots": {}}
    started = time.monotonic()
    for (kind, name, *given), found in isolated.carried_out(
        worker.part, parts, arguments.processes, limit=arguments.limit, seconds=arguments.seconds
    ):
        if kind == "row":
            record["rows"][name] = found
        else:
            record["lots"][f"{name}, {'compiled' if given[0] else 'eager'}"] = found
        print(kind, name, in_a_line(kind, found), file=sys.stderr, flush=True)
        record["seconds"] = time.monotonic() - started
        save(record, arguments.out, names)
    print(markdown(record))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="some models, and no long runs")
    parser.add_argument("--lots", type=int, default=LOTS, help="of each long run; 0 for none")
    parser.add_argument("--seconds", type=float, default=3600.0, help="end after these")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one part")
    parser.add_argument("--out", type=Path, help="folder of the record (default: results/, but "
                        "nowhere on a CPU or for some rows)")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --device cpu rehearses")
    if arguments.out is None and arguments.device == "cuda" and not arguments.rows:
        arguments.out = HERE / "results"
    return arguments


def about(arguments: argparse.Namespace) -> dict[str, Any]:
    on_gpu = arguments.device == "cuda"
    return machine.stamp() | {
        "device": torch.cuda.get_device_name() if on_gpu else "CPU (a rehearsal)",
        "torch": torch.__version__,
        "tacit": tacit.__version__,
        "processes": arguments.processes,
        "seconds": 0.0,
    }


def save(record: dict[str, Any], folder: Path | None, names: list[str]) -> None:
    """Writes what is known so far, the models in the order of the table."""
    record["rows"] = {name: record["rows"][name] for name in names if name in record["rows"]}
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (folder / "models_gpu.json").write_text(machine.portable(text) + "\n")
    (folder / "models_gpu.md").write_text(machine.portable(markdown(record)) + "\n")


# ---- in words


def status(found: dict[str, Any]) -> str:
    """Passed, refused (which is safe where the table allows it), or what went wrong."""
    if "error" in found:
        return "ERROR"
    refused = found["status"] == "refused"
    return "REFUSED" if refused and not found["allowed"] else str(found["status"])


def replayed(found: dict[str, Any]) -> bool:
    return found["replays"]["batches"] > 0 and found["replays"]["updates"] > 0


def in_a_line(kind: str, found: dict[str, Any]) -> str:
    if "error" in found:
        return f"ERROR: {found['error']}"
    if kind == "lots":
        return f"recompilations {found['recompilations']}, memory {found['memory']}"
    if found["status"] == "refused":
        return f"{status(found)}: {found['message']}"
    way = "replayed" if replayed(found) else "not replayed"
    return f"{status(found)}, {way}, off by {found['off']:.1e} {'; '.join(found['faults'])}"


def markdown(record: dict[str, Any]) -> str:
    rows, lots = record["rows"], record["lots"]
    by_status: dict[str, int] = {}
    for found in rows.values():
        by_status[status(found)] = by_status.get(status(found), 0) + 1
    counts = ", ".join(f"{count} {what}" for what, count in sorted(by_status.items()))
    trained = [found for found in rows.values() if "steps" in found]
    lines = [
        f"### {record['asked']} models of the table on {record['device']}, with recorded steps: "
        f"{counts or 'none yet'}",
        "",
        f"Run {record['date']} at commit {record['commit']} by `{record['command']}`: torch "
        f"{record['torch']}, tacit {record['tacit']}, TF32 off, {record['processes']} processes, "
        f"{record['seconds']:.0f} s. {sum(one['steps'] for one in trained):,} steps, "
        f"{sum(one['empty'] for one in trained)} of them of empty lots and "
        f"{sum(one['spoilt'] for one in trained)} of lots with a record whose gradient is not "
        f"finite. {ABOUT}",
        "",
        *replays_in_words(trained),
        "",
        "| model | | lots | empty | off by | allowed | alone | roundings | batches, updates "
        "replayed |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
        *(row_line(name, found) for name, found in rows.items()),
    ]
    half = {name: found for name, found in rows.items() if found.get("half")}
    if half:
        lines += ["", *half_in_words(half)]
    if lots:
        lines += ["", *lots_in_words(lots)]
    return "\n".join(lines)


def half_in_words(rows: dict[str, dict[str, Any]]) -> list[str]:
    return [
        ABOUT_HALF,
        "",
        "| model | off by | off from PyTorch | PyTorch itself | steps | coarse |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| {name} | {found['off']:.1e} | {found['half']['plain']:.1e} | "
            f"{found['half']['itself']:.1e} | {found['steps']} | {found['half']['coarse']} |"
            for name, found in rows.items()
        ),
    ]


def replays_in_words(trained: list[dict[str, Any]]) -> list[str]:
    """How many models were replayed, and why the others were not."""
    both = sum(replayed(found) for found in trained)
    reasons: dict[str, int] = {}
    for found in trained:
        for line in found["explained"]:
            if "not replayed: " in line:
                reason = line.partition("not replayed: ")[2].rstrip(".")
                reasons[reason] = reasons.get(reason, 0) + 1
    return [
        f"Batches and updates were replayed from recordings for {both} of {len(trained)} models "
        "that were trained. Why a run was computed each time, and of how many models:",
        "",
        *(f"- {count}: {reason}" for reason, count in sorted(reasons.items())),
    ]


def row_line(name: str, found: dict[str, Any]) -> str:
    if "steps" not in found:
        why = found.get("error") or found["message"]
        return f"| {name} | **{status(found)}**: {cell(why)} | | | | | | | |"
    faults = f": {cell('; '.join(found['faults']))}" if found["faults"] else ""
    said = f"**{status(found)}**{faults}" if found["faults"] else "passed"
    replays = found["replays"]
    alone = f"{found['released']:.6f}" if found["released"] else "–"
    return (
        f"| {name} | {said} | {found['smallest']}–{found['largest']} | {found['empty']} | "
        f"{found['off']:.1e} | {found['tolerance']:.0e} | {alone} | {found['ulps']:.2f} | "
        f"{replays['batches']}, {replays['updates']} |"
    )


def lots_in_words(lots: dict[str, dict[str, Any]]) -> list[str]:
    return [
        "Poisson lots of small models, about 32 of 2,000 records each, Adam; what was compiled "
        "after the first 50 lots (graphs and frames of torch's compiler, Triton kernels), and "
        "megabytes at lot 100 and at the last: reserved on the device, and held by the process.",
        "",
        "| model | lots | graphs | frames | kernels | reserved | the process | batches, updates "
        "replayed | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|---|---:|",
        *(lots_line(name, lots[name]) for name in sorted(lots)),
    ]


def lots_line(name: str, found: dict[str, Any]) -> str:
    if "error" in found:
        return f"| {name} | **ERROR**: {cell(found['error'])} | | | | | | | |"
    new, replays = found["recompilations"], found["replays"]
    return (
        f"| {name} | {found['lots']} | {new['graphs']} | {new['frames']} | "
        f"{new['Triton kernels']} | {taken(found, 'reserved')} | {taken(found, 'resident')} | "
        f"{replays['batches']}, {replays['updates']} | {found['seconds']:.0f} |"
    )


def taken(found: dict[str, Any], which: str) -> str:
    """At lot 100 and at the last."""
    sizes = [one[which] / MEGABYTE for one in found["memory"].values() if which in one]
    return " → ".join(f"{one:.1f}" for one in sizes) or "–"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "∣")[:300]


if __name__ == "__main__":
    main()
