"""Runs the recipes and prints their test accuracy beside what was published.

    python benchmarks/recipes.py --recipe mnist-tempered [--epsilon 2.93] --out ROWS.json
    python benchmarks/recipes.py --recipe mnist-tempered --validation --grid lr=4,8 lot=2048,4096
    python benchmarks/recipes.py --merge ROWS.json MORE.json --record

The mean is over the seeds 0, 1, …, none left out; a seed sets the first weights, and sampling and
noise are fresh in every run. With --validation a recipe trains without the last 10,000 training
examples and is judged on them: for choosing settings without the test set. What is done is written
to --out at once. A run needs NumPy, SciPy and PyTorch only (adult-logistic: scikit-learn too).
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import machine
import tacit.recipes
from recipes_report import markdown
from tacit.data import Examples, Split

RESULTS = Path(__file__).resolve().parent / "results"
HELD_OUT = 10_000
# Settings that say how a model is trained, whatever its features are.
TRAINING = ("epochs", "lot", "clip", "lr", "momentum", "falling", "averaged", "decay", "mean_noise")
Run = dict[str, Any]


def main() -> None:
    arguments = parse_arguments()
    if arguments.merge:
        rows = merged(json.loads(path.read_text())["rows"] for path in arguments.merge)
        for row in rows:  # what was published is no measurement: as the recipes quote it now
            row["anchors"] = [vars_of(one) for one in tacit.recipes.find(row["recipe"]).anchors]
    else:
        rows = measured(arguments)
    report = markdown(rows)
    print(report)
    if arguments.record:
        RESULTS.mkdir(exist_ok=True)
        write(RESULTS / "recipes.json", rows)
        (RESULTS / "recipes.md").write_text(report + "\n")


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", nargs="+", choices=tacit.recipes.names(), default=[])
    parser.add_argument("--epsilon", nargs="+", type=float, help="default: those published")
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 0")
    parser.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1, help="runs side by side")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")
    parser.add_argument("--grid", nargs="+", action="extend", default=[], metavar="KEY=V1,V2")
    parser.add_argument("--also", nargs="+", action="append", default=[], metavar="KEY=VALUE",
                        help="settings to try beside the grid; may be given again")  # fmt: skip
    parser.add_argument("--validation", action="store_true", help="judge on training examples")
    parser.add_argument(
        "--share-features", action="store_true",
        help="compute scattering features once a process, and not in every run (times then differ)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="a JSON file for the rows, kept up to date")
    parser.add_argument("--merge", nargs="+", type=Path, help="files of rows, later ones first")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args(given)
    if bool(arguments.recipe) == bool(arguments.merge):
        parser.error("give either --recipe or --merge")
    return arguments


def measured(arguments: argparse.Namespace) -> list[Run]:
    """Every run, in processes side by side; rows are written as soon as they grow."""
    rows: list[Run] = []
    asked = list(runs(arguments))
    threads = max(1, (os.cpu_count() or 1) // arguments.processes)
    with ProcessPoolExecutor(
        arguments.processes, get_context("spawn"), initializer=limited, initargs=(threads,)
    ) as pool:
        waiting = {pool.submit(one, job): job for job in asked}
        for count, future in enumerate(as_completed(waiting), start=1):
            if (error := future.exception()) is not None:
                print(f"{count}/{len(asked)} {waiting[future]}: {error!r}", file=sys.stderr)
                continue
            done = future.result()
            rows = merged([rows, [done]])
            print(line(done, count, len(asked)), file=sys.stderr, flush=True)
            if arguments.out:
                write(arguments.out, rows)
    return rows


def runs(arguments: argparse.Namespace) -> Iterator[Run]:
    """What is to be run, all settings of one seed before the next."""
    for seed in range(arguments.seeds):
        for name in arguments.recipe:
            recipe = tacit.recipes.find(name)
            for epsilon in arguments.epsilon or [one.epsilon for one in recipe.anchors] or [1.0]:
                for settings in choices(arguments.set, arguments.grid, arguments.also):
                    yield {
                        "recipe": name,
                        "epsilon": epsilon,
                        "delta": arguments.delta,
                        "seed": seed,
                        "settings": settings,
                        "validation": arguments.validation,
                        "device": arguments.device,
                        "data": arguments.data and str(arguments.data),
                        "processes": arguments.processes,
                        "share_features": arguments.share_features,
                    }


def choices(
    fixed: Sequence[str], grid: Sequence[str], also: Sequence[Sequence[str]] = ()
) -> list[dict[str, str]]:
    """All combinations of the grid's values, and what is to be tried beside, with the fixed ones.

    >>> choices(["clip=1"], ["lr=1,2"], [["lr=3", "clip=2"]])
    [{'clip': '1', 'lr': '1'}, {'clip': '1', 'lr': '2'}, {'clip': '2', 'lr': '3'}]
    """
    names = [one.split("=", 1)[0] for one in grid]
    values = [one.split("=", 1)[1].split(",") for one in grid]
    whole = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]
    beside = [dict(one.split("=", 1) for one in tried) for tried in also]
    first = whole if grid or not also else []
    return [dict(one.split("=", 1) for one in fixed) | chosen for chosen in [*first, *beside]]


def limited(threads: int) -> None:
    """Shares the cores out among the processes."""
    import torch  # noqa: PLC0415 - in the worker

    torch.set_num_threads(min(threads, int(os.environ.get("OMP_NUM_THREADS", threads))))


def one(job: Run) -> Run:
    """One run in a worker: the row that it makes by itself."""
    data = loaded(tacit.recipes.find(job["recipe"]).data, job["data"], job["validation"])
    if job.get("share_features"):
        share_features()
    started = time.perf_counter()
    done = tacit.recipes.run(
        job["recipe"], epsilon=job["epsilon"], delta=job["delta"], settings=job["settings"],
        data=data, device=job["device"], seed=job["seed"], progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    return row_of(job, done, seconds)


@lru_cache(maxsize=2)
def loaded(name: str, folder: str | None, validation: bool = False) -> Split:
    whole = tacit.data.load(name, folder)
    return without_test(whole) if validation else whole


@lru_cache(maxsize=1)
def share_features() -> None:
    """Lets runs of one process that differ in how they train share their features."""
    from tacit.recipes import scattering  # noqa: PLC0415 - in the worker

    compute, latest = scattering.features, {}

    def shared(data: Split, settings: Any, device: Any) -> Any:
        plain = asdict(settings)
        key = json.dumps([id(data), str(device), {k: plain[k] for k in plain if k not in TRAINING}])
        if key not in latest:
            latest.clear()
            latest[key] = compute(data, settings, device)
        return latest[key]

    scattering.features = shared


def without_test(data: Split) -> Split:
    """The training examples alone, the last of them to be judged on."""
    kept = len(data.train) - min(HELD_OUT, len(data.train) // 5)
    inputs, labels = data.train.inputs, data.train.labels
    return replace(
        data,
        train=Examples(inputs[:kept], labels[:kept]),
        test=Examples(inputs[kept:], labels[kept:]),
    )


def row_of(job: Run, done: Any, seconds: float) -> Run:
    from tacit.accounting import bounds  # noqa: PLC0415 - SciPy, in the worker
    from tacit.accounting.serialization import from_dict  # noqa: PLC0415

    claim = done.statement
    spent = bounds(from_dict(claim.event), claim.delta, adjacency=claim.adjacency)
    plan = claim.plan or {}
    recipe = tacit.recipes.find(job["recipe"])
    settings = settings_of(recipe.settings(job["epsilon"]), job["settings"])
    return {
        "recipe": job["recipe"],
        "epsilon": job["epsilon"],
        "validation": job["validation"],
        "settings": settings,
        "delta": job["delta"],
        "epsilon_lower": spent.lower,
        "epsilon_upper": spent.upper,
        "noise_multiplier": plan.get("noise_multiplier"),
        "sample_rate": plan["lot_size"] / plan["examples"] if plan else None,
        "steps": plan.get("steps"),
        "clip": plan.get("clip"),
        "views": plan.get("views"),
        "notes": list(done.notes),
        "anchors": [vars_of(anchor) for anchor in recipe.anchors],
        "device": device(job["device"]),
        "processes": job["processes"],
        "share_features": job.get("share_features", False),
        "runs": {str(job["seed"]): {"accuracy": done.accuracy, "seconds": seconds}},
        "versions": versions(),
        **machine.stamp(),
    }


def settings_of(default: Any, changes: Mapping[str, str]) -> dict[str, Any]:
    from tacit.runs import settings  # noqa: PLC0415

    return settings.as_dict(settings.changed(default, changes))


def vars_of(anchor: tacit.recipes.Anchor) -> dict[str, Any]:
    return {name: getattr(anchor, name) for name in ("epsilon", "accuracy", "source", "shortcuts")}


def device(name: str) -> str:
    import torch  # noqa: PLC0415 - in the worker

    return torch.cuda.get_device_name(name) if name.startswith("cuda") else name


def versions() -> dict[str, str]:
    import numpy  # noqa: PLC0415
    import scipy  # noqa: PLC0415
    import torch  # noqa: PLC0415

    found = {"tacit": tacit.__version__, "torch": torch.__version__}
    return found | {"numpy": numpy.__version__, "scipy": scipy.__version__}


def merged(parts: Any) -> list[Run]:
    """One row for each recipe, ε, settings and device; of the same seed the later run counts."""
    rows: dict[str, Run] = {}
    for row in itertools.chain.from_iterable(parts):
        key = json.dumps(
            [
                row[name]
                for name in ("recipe", "epsilon", "delta", "validation", "settings", "device")
            ]
        )
        before = rows.get(key, {"runs": {}})
        rows[key] = summed(row | {"runs": before["runs"] | row["runs"]})
    order = list(tacit.recipes.names())
    return sorted(rows.values(), key=lambda row: (order.index(row["recipe"]), row["epsilon"]))


def summed(row: Run) -> Run:
    """The row with its mean, and the standard error of it."""
    found = [100.0 * run["accuracy"] for run in row["runs"].values()]
    error = statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else None
    seconds = statistics.mean(run["seconds"] for run in row["runs"].values())
    return row | {"mean": statistics.mean(found), "standard_error": error, "seconds": seconds}


def line(row: Run, count: int, asked: int) -> str:
    ((seed, run),) = row["runs"].items()
    return (
        f"{count}/{asked} {row['recipe']} ε={row['epsilon']:g} seed {seed} {row['settings']}: "
        f"{run['accuracy']:.2%} in {run['seconds']:.1f} s"
    )


def write(path: Path, rows: Sequence[Run]) -> None:
    """Whole or not at all: a run that is cut keeps the rows it had."""
    draft = path.with_suffix(".part")
    text = json.dumps({"rows": rows}, indent=1, ensure_ascii=False, allow_nan=False)
    draft.write_text(text + "\n")
    draft.replace(path)


if __name__ == "__main__":
    main()
