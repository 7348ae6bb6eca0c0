"""Runs knowledge transfer and prints its students' accuracy beside what was published.

    python benchmarks/transfer.py --method pate knn rknn --dataset mnist --device cuda --out R.json
    python benchmarks/transfer.py --method pate --dataset mnist --out R.json \
        --set aggregator=laplace data_dependent=false queries=100 answers=100
    python benchmarks/transfer.py --method rknn --dataset mnist --validation --grid centres=200,500
    python benchmarks/transfer.py --merge R.json MORE.json --record

The mean is over the seeds 0, 1, …, none left out; a seed sets first weights, and assignment,
samples and noise are fresh in every run. With --validation private, public and evaluated images are
all of the training set: for choosing settings without the test set. What is done is written to
--out at once. A run needs NumPy, SciPy and PyTorch only.
"""

import argparse
import json
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import machine
from recipes import choices, device, summed, vars_of, versions, write
from tacit.data import Split, load
from tacit.recipes.transferring import METHODS, Parts, Transferred, pate, run
from tacit.recipes.transferring.method import find
from tacit.recipes.transferring.splits import DATASETS, parts_of, tuning_parts
from transfer_report import markdown

RESULTS = Path(__file__).resolve().parent / "results"
KEY = ("method", "dataset", "asked", "delta", "validation", "settings", "device")
# Settings of pate that decide what the teachers are.
TEACHING = (*pate.TEACHING, "votes", "holds")
Run = dict[str, Any]


def main() -> None:
    arguments = parse_arguments()
    if arguments.merge:
        rows = merged(json.loads(path.read_text())["rows"] for path in arguments.merge)
        for row in rows:  # what was published is no measurement: as the methods quote it now
            row["anchors"] = anchors_of(row["method"], row["dataset"])
    else:
        rows = measured(arguments)
    report = markdown(rows)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        write(RESULTS / "transfer.json", rows)
        (RESULTS / "transfer.md").write_text(report + "\n")


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--method", nargs="+", choices=METHODS, default=[])
    parser.add_argument("--dataset", nargs="+", choices=DATASETS, default=["digits"])
    parser.add_argument("--epsilon", nargs="+", type=float, help="default: the method's own")
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=5, help="how many, from --first on")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")
    parser.add_argument("--grid", nargs="+", action="extend", default=[], metavar="KEY=V1,V2")
    parser.add_argument("--also", nargs="+", action="append", default=[], metavar="KEY=VALUE",
                        help="settings to try beside the grid; may be given again")  # fmt: skip
    parser.add_argument("--validation", action="store_true", help="use training images alone")
    parser.add_argument("--unverified", action="store_true",
                        help="take files other than the published ones: SVHN rebuilt")  # fmt: skip
    parser.add_argument("--share-teachers", action="store_true",
                        help="train a seed's teachers once, not in every run")  # fmt: skip
    parser.add_argument("--share-features", action="store_true",
                        help="compute features once (times then differ)")  # fmt: skip
    parser.add_argument("--out", type=Path, help="a JSON file for the rows, kept up to date")
    parser.add_argument("--merge", nargs="+", type=Path, help="files of rows, later ones first")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args(given)
    if bool(arguments.method) == bool(arguments.merge):
        parser.error("give either --method or --merge")
    return arguments


def measured(arguments: argparse.Namespace) -> list[Run]:
    """Every run, one after the other; rows are written as soon as they grow."""
    rows: list[Run] = []
    if arguments.out and arguments.out.exists():
        rows = json.loads(arguments.out.read_text())["rows"]
    if arguments.share_teachers:
        share_teachers()
    if arguments.share_features:
        share_features()
    asked = list(runs(arguments))
    for count, job in enumerate(asked, start=1):
        done = one(job)
        rows = merged([rows, [done]])
        print(line(done, count, len(asked)), file=sys.stderr, flush=True)
        if arguments.out:
            write(arguments.out, rows)
    return rows


def runs(arguments: argparse.Namespace) -> Iterator[Run]:
    """What is to be run, all of one seed before the next."""
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for dataset in arguments.dataset:
            for method in arguments.method:
                for epsilon in arguments.epsilon or [None]:
                    for settings in choices(arguments.set, arguments.grid, arguments.also):
                        yield {
                            "method": method,
                            "dataset": dataset,
                            "asked": epsilon,
                            "delta": arguments.delta,
                            "seed": seed,
                            "settings": settings,
                            "validation": arguments.validation,
                            "device": arguments.device,
                            "data": arguments.data and str(arguments.data),
                            "unverified": arguments.unverified,
                            "share_teachers": arguments.share_teachers,
                            "share_features": arguments.share_features,
                        }


def one(job: Run) -> Run:
    """One run: the row that it makes by itself."""
    parts, truth = loaded(job["dataset"], job["data"], job["validation"], job["unverified"])
    started = time.perf_counter()
    done = run(
        job["method"], dataset=job["dataset"], epsilon=job["asked"], delta=job["delta"],
        settings=job["settings"], data=parts, device=job["device"], seed=job["seed"],
        progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    return row_of(job, done, truth, seconds)


@lru_cache(maxsize=2)
def loaded(
    name: str, folder: str | None, validation: bool, unverified: bool = False
) -> tuple[Parts, Any]:
    whole = load(name, folder, unverified=unverified)
    parts = tuning_parts(whole) if validation else parts_of(whole)
    return parts, truth_of(whole, parts)


def truth_of(whole: Split, parts: Parts) -> Any:
    """The labels of the public images, which no run looks at: to tell how right its answers are."""
    images = np.concatenate([np.asarray(whole.train.inputs), np.asarray(whole.test.inputs)])
    labels = np.concatenate([whole.train.labels, whole.test.labels])
    for start in range(len(images) - len(parts.public), -1, -1):
        if np.array_equal(images[start], parts.public[0]) and np.array_equal(
            images[start : start + len(parts.public)], parts.public
        ):
            return labels[start : start + len(parts.public)]
    raise ValueError("the public images are not those of the data set")


def row_of(job: Run, done: Transferred, truth: Any, seconds: float) -> Run:
    from tacit.accounting import bounds  # noqa: PLC0415 - SciPy
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    claim = done.statement
    spent = bounds(from_dict(claim.event), claim.delta, adjacency=claim.adjacency)
    told = claim.data_dependent
    known = done.labels >= 0
    return {
        **{name: job[name] for name in KEY if name not in ("device", "settings")},
        "settings": dict(done.settings),
        "epsilon_lower": spent.lower,
        "epsilon_upper": spent.upper,
        "notes": list(done.notes),
        "anchors": anchors_of(job["method"], job["dataset"]),
        "device": device(job["device"]),
        "unverified": job["unverified"],
        "share_teachers": job["share_teachers"],
        "share_features": job["share_features"],
        "runs": {
            str(job["seed"]): {
                "accuracy": done.accuracy,
                "seconds": seconds,
                "labelled": done.labelled,
                "labels_right": float(np.mean(done.labels[known] == truth[known])),
                "data_dependent": None if told is None else told.epsilon,
            }
        },
        "versions": versions(),
        **machine.stamp(),
    }


def anchors_of(method: str, dataset: str) -> list[dict[str, Any]]:
    return [vars_of(one) for one in find(method).anchors.get(dataset, ())]


@lru_cache(maxsize=1)
def share_teachers() -> None:
    """Lets runs of one seed that differ in how they ask have the same teachers."""
    from tacit.recipes.transferring import teacher_votes  # noqa: PLC0415
    from tacit.transfer import Votes  # noqa: PLC0415

    latest: dict[str, Votes] = {}

    def shared(job: Any, images: Any) -> Votes:
        plain = {name: getattr(job.settings, name) for name in TEACHING}
        key = json.dumps([id(job.data.train), job.seed, str(job.device), plain])
        if key not in latest or latest[key].queries < len(images):
            latest.clear()
            latest[key] = teacher_votes.votes_of(job, images)
        return Votes(latest[key].counts[: len(images)])

    pate.votes_of = shared  # type: ignore[assignment]


@lru_cache(maxsize=1)
def share_features() -> None:
    """Lets runs have the same features of the same images: they are data-free, and always equal."""
    from tacit.recipes.transferring import features  # noqa: PLC0415

    compute, known = features.maker, {}

    def shared(kind: Any, like: Any, device: Any, *, keep: int) -> Any:
        make = compute(kind, like, device, keep=keep)

        def rows(images: Any) -> Any:
            content = zlib.crc32(np.ascontiguousarray(images))
            key = (kind, keep, str(device), images.shape, content)
            if key not in known:
                known[key] = make(images)
            return known[key]

        return rows

    features.maker = shared


def merged(parts: Any) -> list[Run]:
    """One row for each key; of the same seed the later run counts."""
    rows: dict[str, Run] = {}
    for part in parts:
        for row in part:
            key = json.dumps([row[name] for name in KEY])
            before = rows.get(key, {"runs": {}})
            rows[key] = summed(row | {"runs": before["runs"] | row["runs"]})
    return sorted(
        rows.values(),
        key=lambda row: (
            DATASETS.index(row["dataset"]), METHODS.index(row["method"]), row["epsilon_upper"],
        ),
    )  # fmt: skip


def line(row: Run, count: int, asked: int) -> str:
    ((seed, told),) = row["runs"].items()
    dependent = "" if told["data_dependent"] is None else f" (told {told['data_dependent']:.3f})"
    return (
        f"{count}/{asked} {row['method']} {row['dataset']} ε={row['epsilon_upper']:.4g}{dependent} "
        f"seed {seed}: {told['accuracy']:.2%}, {told['labelled']} labels of which "
        f"{told['labels_right']:.2%} right, in {told['seconds']:.1f} s"
    )


if __name__ == "__main__":
    main()
