"""Compares the methods of training a student, on few or many labels of which some are wrong.

    python benchmarks/students.py --validation [--labels 100 300 9000] [--methods graph consistency]
    python benchmarks/students.py --labels published --out benchmarks/results/students.json

With ``--validation`` only training images are used: it is what methods and settings were chosen by.
Without, the public images are the first test images and the others judge, as published. Labels
are PATE's published ones (``published``: 100 for MNIST) or drawn: so many at random, of which a
share (``--wrong``) is replaced by another class. NumPy, SciPy and torch are all it needs. The
record is written anew after each student, with a table (.md) beside it; it keeps the runs of other
commands that it holds already.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import machine
import tacit
from tacit import data
from tacit.transfer.students import STUDENT_METHODS, train_student

Images, Labels = NDArray[np.uint8], NDArray[np.int64]

# Which images are public and which judge: of the training images, and of the test images.
VALIDATION = {
    "mnist": (slice(50_000, 59_000), slice(59_000, 60_000)),
    "fashion": (slice(50_000, 59_000), slice(59_000, 60_000)),
    "svhn": (slice(55_000, 65_000), slice(65_000, 73_257)),
    "cifar10": (slice(40_000, 49_000), slice(49_000, 50_000)),
    "digits": (slice(0, 1_000), slice(1_000, 1_437)),
}
PUBLISHED = {
    "mnist": (slice(0, 9_000), slice(9_000, 10_000)),
    "fashion": (slice(0, 9_000), slice(9_000, 10_000)),
    "svhn": (slice(0, 10_000), slice(10_000, 26_032)),
    "cifar10": (slice(0, 9_000), slice(9_000, 10_000)),
}
MIRRORED = ("cifar10", "fashion")  # sets whose images show the same in a mirror
PATE = ("mnist_250_student_labels_lap_20.npy", "mnist_250_teachers_100_indices_used_by_student.npy")


def main() -> None:
    arguments = parse_arguments()
    folder = arguments.data or Path(os.environ.get("TACIT_DATA", "."))
    split = data.load(arguments.dataset, folder, download=False, unverified=arguments.unverified)
    source = split.train if arguments.validation else split.test
    public, judging = (VALIDATION if arguments.validation else PUBLISHED)[arguments.dataset]
    record: dict[str, Any] = machine.stamp() | {
        "versions": {"tacit": tacit.__version__, "torch": torch.__version__},
        "device": device_name(arguments.device), "threads": torch.get_num_threads(),
        "dataset": arguments.dataset, "validation": arguments.validation,
        "public": [public.start, public.stop], "judging": [judging.start, judging.stop],
        "wrong": arguments.wrong, "rows": [],
    }  # fmt: skip
    images, truth = np.asarray(source.inputs), np.asarray(source.labels)
    for labels in arguments.labels:
        for method in arguments.methods:
            for seed in range(arguments.seeds):
                given = published(folder) if labels == "published" else None
                if given is None:
                    given = drawn(truth[public], int(labels), arguments.wrong, seed)
                row = judged(arguments, method, seed, images, truth, given, (public, judging))
                record["rows"].append({"labels": labels} | row)
                print(record["rows"][-1], flush=True)
                if arguments.out:
                    keep(arguments.out, record)
    print(table(record))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", default="mnist", choices=VALIDATION)
    parser.add_argument("--data", type=Path, help="the folder of the sets; $TACIT_DATA by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--methods", nargs="+", default=list(STUDENT_METHODS), choices=STUDENT_METHODS
    )
    parser.add_argument("--labels", nargs="+", default=["100"], help="published, or how many")
    parser.add_argument("--wrong", type=float, default=0.02, help="share of drawn labels")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="the method's own by default")
    parser.add_argument("--validation", action="store_true", help="training images only")
    parser.add_argument("--unverified", action="store_true",
                        help="take files other than the published ones: SVHN rebuilt")  # fmt: skip
    parser.add_argument("--out", type=Path, help="where to keep the record (.json)")
    return parser.parse_args()


def published(folder: Path) -> Labels:
    """PATE's labels of the 100 images that its student learned; -1 for the others."""
    where = folder if (folder / PATE[0]).exists() else folder / "pate"
    every, asked = (np.load(where / name) for name in PATE)
    labels = np.full(len(every), -1, dtype=np.int64)
    labels[asked] = every[asked]
    return labels


def drawn(truth: Labels, count: int, wrong: float, seed: int) -> Labels:
    """Labels of ``count`` images; a share of them is another class, drawn at random."""
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(len(truth))[:count]
    labels = np.full(len(truth), -1, dtype=np.int64)
    labels[chosen] = truth[chosen]
    false = chosen[: round(wrong * len(chosen))]
    classes = int(truth.max()) + 1
    labels[false] = (labels[false] + generator.integers(1, classes, len(false))) % classes
    return labels


def judged(
    arguments: argparse.Namespace,
    method: str,
    seed: int,
    images: Images,
    truth: Labels,
    given: Labels,
    parts: tuple[slice, slice],
) -> dict[str, Any]:
    """One student: what it gets right, and how long it took."""
    public, judging = parts
    start = time.perf_counter()
    student = train_student(
        images[public], given, classes=int(truth.max()) + 1, method=method,  # type: ignore[arg-type]
        epochs=arguments.epochs, device=arguments.device, seed=seed,
        flip=arguments.dataset in MIRRORED,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    known = given >= 0
    return {
        "method": method,
        "seed": seed,
        "labelled": int(known.sum()),
        "labels_right": float((given == truth[public])[known].mean()),
        "accuracy": float((student.predict(images[judging]) == truth[judging]).mean()),
        "public_accuracy": float((student.predict(images[public]) == truth[public]).mean()),
        "seconds": round(seconds, 1),
    }


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def keep(path: Path, run: dict[str, Any]) -> None:
    """Writes the record, in which this run replaces that of the same command."""
    found = json.loads(path.read_text())["runs"] if path.exists() else []
    runs = [one for one in found if one["command"] != run["command"]] + [run]
    text = json.dumps({"runs": runs}, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n")
    parts = ["# Students", *(table(one) for one in runs)]
    path.with_suffix(".md").write_text("\n\n".join(parts) + "\n")


def table(run: dict[str, Any]) -> str:
    part = "training" if run["validation"] else "test"
    public, judging = ("{:,}–{:,}".format(*run[name]) for name in ("public", "judging"))
    lines = [
        f"## {run['dataset']}, {part} images",
        "",
        f"Measured {run['date']} at commit {run['commit']} by `{run['command']}` on "
        f"{run['device']} ({run['machine']['cpu']}, {run['threads']} threads); torch "
        f"{run['versions']['torch']}. Public: {part} images {public}; judged on {judging} of "
        "them. Mean of the seeds ± its standard error.",
        "",
        "| labels | of them right | method | accuracy | of the public images | seconds | seeds |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in run["rows"]:
        groups.setdefault((row["labels"], row["method"]), []).append(row)
    for (labels, method), rows in groups.items():
        right = statistics.mean(row["labels_right"] for row in rows)
        seconds = statistics.median(row["seconds"] for row in rows)
        lines.append(
            f"| {labels} | {right:.1%} | {method} | {summary(rows, 'accuracy')} "
            f"| {summary(rows, 'public_accuracy')} | {seconds:.0f} | {len(rows)} |"
        )
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]], what: str) -> str:
    values = [100 * row[what] for row in rows]
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {error:.2f}"


if __name__ == "__main__":
    main()
