"""The figures of Abadi et al. 2016, drawn anew from real runs and from the accountants.

    python benchmarks/figures.py --runs FILE --data FOLDER [--device cuda] [--processes 10]
    python benchmarks/figures.py --draw FILE

The first trains (https://arxiv.org/abs/1607.00133, Section 5.2: MNIST, private PCA, one hidden
layer) and appends every run to FILE as it ends, one JSON object a line; called again it goes on
with what is missing. It needs NumPy, SciPy and torch alone. The second draws the pictures of
``docs/figures.md`` and, with ``--record``, writes ``results/figures.md`` and ``.json``; it needs
matplotlib.

FOLDER is where ``tacit.data.load`` finds MNIST. Only held-out accuracy is kept: accuracy on the
training images, which the paper draws beside it, is a private number that no ε here covers.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

import figures_runs
import machine
import tacit

RESULTS = Path(__file__).resolve().parent / "results"
PICTURES = Path(__file__).resolve().parents[1] / "docs" / "figures"


def main() -> None:
    arguments = parse_arguments()
    if arguments.runs:
        collect(arguments)
        return
    import figures_draw  # noqa: PLC0415 - needs matplotlib
    import figures_record  # noqa: PLC0415

    headers, histories = figures_runs.read(arguments.draw)
    figures_draw.write(headers[0], histories, arguments.pictures, arguments.format)
    record = figures_record.record(headers, histories)
    report = figures_record.markdown(record)
    print(report)
    if arguments.record:
        (RESULTS / "figures.json").write_text(json.dumps(record, indent=1) + "\n")
        (RESULTS / "figures.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--runs", type=Path, help="train, and append every run to this file")
    what.add_argument("--draw", type=Path, help="draw from such a file")
    parser.add_argument("--data", type=Path, help="the folder of MNIST's files")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1, help="runs side by side")
    parser.add_argument("--compile", action="store_true", help="compile norms and sums")
    parser.add_argument("--epochs", type=int, default=40, help="of the reference run")
    parser.add_argument("--level-epochs", type=int, default=100, help="of the three noise levels")
    parser.add_argument("--seeds", type=int, default=3, help="runs per point")
    parser.add_argument("--limit", type=int, help="at most so many runs")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run after these")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where to draw")
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args()
    if arguments.runs and not arguments.data:
        parser.error("--runs needs --data FOLDER")
    return arguments


def collect(arguments: argparse.Namespace) -> None:
    """Does the runs that the file lacks."""
    started = time.perf_counter()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes to come, a core each
    wanted = figures_runs.everything(arguments.epochs, arguments.level_epochs, arguments.seeds)
    have = figures_runs.read(arguments.runs)[1] if arguments.runs.exists() else {}
    missing = [run for run in wanted if run not in have][: arguments.limit]
    rows = figures_runs.side_by_side(
        missing, arguments.data, arguments.device, processes=arguments.processes,
        seconds=arguments.seconds, compiled=arguments.compile,
    )  # fmt: skip
    with arguments.runs.open("a") as file:
        append(file, header(arguments))
        for number, row in enumerate(rows, start=len(have) + 1):
            append(file, row)
            print(
                f"{number}/{len(wanted)}  {time.perf_counter() - started:.0f} s  "
                f"{row['steps']} steps in {row['seconds']:.1f} s  {row['history'][-1][1]:.2%}",
                file=sys.stderr, flush=True,
            )  # fmt: skip


def header(arguments: argparse.Namespace) -> dict[str, Any]:
    cuda = torch.device(arguments.device).type == "cuda"
    return machine.stamp() | {
        "device": torch.cuda.get_device_name() if cuda else "CPU",
        "processes": arguments.processes,
        "versions": {"tacit": tacit.__version__, "torch": torch.__version__},
        "epochs": arguments.epochs,
        "level_epochs": arguments.level_epochs,
    }


def append(file: Any, row: dict[str, Any]) -> None:
    file.write(json.dumps(row) + "\n")
    file.flush()


if __name__ == "__main__":
    main()
