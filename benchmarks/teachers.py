"""Times the ways to train teachers, and draws what more of them and more noise do.

    python benchmarks/teachers.py [--device cuda] [--data FOLDER] [--out FILE] [--record]
    python benchmarks/teachers.py --figures [--device cuda] [--data FOLDER] [--record]
    python benchmarks/teachers.py --draw    # pictures of the runs that --figures recorded

Needs NumPy, SciPy and torch; pictures need matplotlib. ``--trained 10`` trains 10 of the 250 on
their own share of the records, and multiplies the time. Teachers learn from the first training
images of MNIST and are asked about the last; no test image is read.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import machine
import teachers_runs as runs
from teachers_runs import KINDS

RESULTS = Path(__file__).resolve().parent / "results"
FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
QUERIES = 2000
COUNTS = (10, 25, 50, 100, 250, 500, 1000)
NOISE_COUNTS = (50, 100, 250, 1000)
SIGMAS = (0.0, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0, 150.0, 200.0)
GAMMAS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
DRAWS = 20  # of noise, for each query


def main() -> None:
    arguments = parse_arguments()
    if arguments.draw:
        import teachers_draw  # noqa: PLC0415 - needs matplotlib

        record = json.loads((RESULTS / "teachers_figures.json").read_text())
        teachers_draw.write(record, FIGURES, "svg")
        return
    if arguments.figures:
        record = machine.stamp() | hardware(arguments) | figure_runs(arguments)
        keep(arguments, "teachers_figures", record)
        return
    kinds = arguments.kinds or (["cnn", "linear"] if arguments.device == "cpu" else list(KINDS))
    rows = [row for kind in kinds for row in compared(kind, arguments)]
    record = machine.stamp() | hardware(arguments) | {"rows": rows}
    print(markdown(record))
    keep(arguments, f"teachers_{'cpu' if arguments.device == 'cpu' else 'gpu'}", record)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, help="the folder of MNIST")
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--trained", type=int, help="train this many of them, and extrapolate")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), help="default: all on a GPU")
    parser.add_argument("--hows", nargs="+", choices=list(runs.ALL), default=list(runs.ALL))
    parser.add_argument("--out", type=Path, help="a JSON file for the record")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    parser.add_argument("--figures", action="store_true", help="run what the pictures show")
    parser.add_argument("--draw", action="store_true", help=f"draw them into {FIGURES}")
    return parser.parse_args()


def hardware(arguments: argparse.Namespace) -> dict[str, Any]:
    gpu = "" if arguments.device == "cpu" else torch.cuda.get_device_name()
    return {
        "torch": torch.__version__, "device": arguments.device, "gpu": gpu,
        "threads": torch.get_num_threads(), "load": os.getloadavg()[0],
    }  # fmt: skip


def compared(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One kind of teacher, trained in every way: time, and how right the teachers are."""
    kind, count = KINDS[name], arguments.trained or arguments.teachers
    share = count / arguments.teachers
    split = runs.mnist(arguments.data, int((60_000 - QUERIES) * share), QUERIES)
    device = arguments.device
    start = time.perf_counter()
    features = runs.Features(device) if kind.features else None
    whitening = time.perf_counter() - start
    made = runs.inputs(kind, split, features, device)
    rows = []
    for how in (one for one in kind.hows if one in arguments.hows):
        print(f"{kind.name}, {how} ...", file=sys.stderr, flush=True)
        start, worked = time.perf_counter(), time.process_time()
        teachers = runs.train(kind, made, count, how, device).fit()
        trained, worked = time.perf_counter() - start, time.process_time() - worked
        labels = teachers.labels(made["queries"])
        asked = time.perf_counter() - start - trained
        rows.append(
            {
                "kind": kind.name, "how": how, "teachers": arguments.teachers, "trained": count,
                "records": len(split.inputs) / count, "epochs": kind.epochs, "views": kind.views,
                "seconds": trained / share, "processor_seconds": worked / share,
                "asking_seconds": asked / share,
                "whitening_seconds": whitening, "inputs_seconds": made["seconds"] / share,
            }
            | runs.judged(labels, split.truth)
        )  # fmt: skip
    return rows


def figure_runs(arguments: argparse.Namespace) -> dict[str, Any]:
    """Linear teachers of all numbers on the same records, and noise added to their votes."""
    kind, device = KINDS["linear"], arguments.device
    split = runs.mnist(arguments.data, 50_000, 9_000)
    made = runs.inputs(kind, split, runs.Features(device), device)
    counts, noise = {}, {}
    for count in COUNTS:
        print(f"{count} teachers ...", file=sys.stderr, flush=True)
        labels = runs.train(kind, made, count, "auto", device).fit().labels(made["queries"])
        counts[count] = runs.judged(labels, split.truth)
        if count in NOISE_COUNTS:
            noise[count] = noisy(labels, split.truth)
    return {
        "private": len(split.inputs), "queries": len(split.queries), "draws": DRAWS,
        "counts": counts, "noise": noise,
    }  # fmt: skip


def noisy(labels: Any, truth: Any) -> dict[str, dict[str, float]]:
    """How often the class with the most votes is right after noise: nothing here is released."""
    counts = runs.counted(labels)
    random = np.random.default_rng(0)

    def right(draw: Any) -> float:
        hits = [((counts + draw()).argmax(axis=1) == truth).mean() for _ in range(DRAWS)]
        return float(np.mean(hits))

    shape = counts.shape
    return {
        "gaussian": {f"{s:g}": right(lambda s=s: random.normal(0.0, s, shape)) for s in SIGMAS},
        "laplace": {f"{g:g}": right(lambda g=g: random.laplace(0.0, 1 / g, shape)) for g in GAMMAS},
    }


def keep(arguments: argparse.Namespace, name: str, record: dict[str, Any]) -> None:
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if arguments.out:
        arguments.out.write_text(text)
    if arguments.record:
        (RESULTS / f"{name}.json").write_text(text)
        if "rows" in record:
            (RESULTS / f"{name}.md").write_text(markdown(record) + "\n")


def markdown(record: dict[str, Any]) -> str:
    place = record["machine"]
    lines = [
        "# Ways to train teachers",
        "",
        f"Measured {record['date']} at commit {record['commit']} by `{record['command']}` on "
        f"{record['gpu'] or place['cpu']}, {place['cores']} cores of which torch uses "
        f"{record['threads']}; torch {record['torch']}; load average {record['load']:.1f}. "
        f"MNIST: teachers of the first training images, asked about the last {QUERIES:,}. "
        "Asked: 250 teachers in 15 minutes on 2 cores, in 60 s on one H200.",
        "",
        "| teachers | how | trained | training | a core's own time | asking | features "
        "| one alone | by vote | first class's votes | gap |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in record["rows"]:
        of = f"{row['trained']} of {row['teachers']}"
        lines.append(
            f"| {row['kind']} | {row['how']} | {of if row['trained'] < row['teachers'] else 'all'} "
            f"| {row['seconds']:.1f} s | {row['processor_seconds']:.1f} s "
            f"| {row['asking_seconds']:.1f} s "
            f"| {row['inputs_seconds'] + row['whitening_seconds']:.1f} s "
            f"| {row['teacher_accuracy']:.2%} | {row['vote_accuracy']:.2%} "
            f"| {row['top_count']:.1f} | {row['gap']:.1f} |"
        )
    lines += ["", "Times of a part are multiplied up to all; its votes are of the part."]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
