r"""Runs a recipe that takes hours, in pieces of some minutes each; and measures how fast it goes.

    python benchmarks/recipe_pieces.py cifar10-wrn --epsilon 8 --device cuda --folder RUN \
        --seconds 540 --out PIECES.json [--record]

The first call begins the run in the folder RUN, later ones go on at the step where it stopped
(checkpoints need safetensors). Without --folder nothing is kept, and the speed is measured only.
Every piece is added to PIECES.json: its steps, seconds, views per second, and the held-out accuracy
by epoch. --record writes all of them to results/. --random needs no data: noise for CIFAR-10, whose
speed is the same.
"""

import argparse
import io
import itertools
import json
import re
import statistics
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch

import machine
import recipes
import tacit.recipes
from tacit.data import Examples, Split

RESULTS = Path(__file__).resolve().parent / "results"
STOPPED = re.compile(r"stopped after step ([\d,]+) of")
EPOCH = re.compile(r"epoch (\d+)  step (\d+)  held-out ([\d.]+)%  ε ([\d.]+)")


def main() -> None:
    arguments = parse_arguments()
    pieces = json.loads(arguments.out.read_text())["pieces"] if arguments.out.exists() else []
    before = sum(one["steps"] for one in pieces) if arguments.folder is not None else 0
    pieces.append(piece(arguments, before))
    text = json.dumps({"pieces": pieces}, indent=1, ensure_ascii=False) + "\n"
    arguments.out.write_text(text)
    report = markdown(pieces)
    print(report)
    if arguments.record:
        name = arguments.recipe.replace("-", "_")
        (RESULTS / f"{name}.json").write_text(text)
        (RESULTS / f"{name}.md").write_text(report + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe", choices=tacit.recipes.names())
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--random", action="store_true", help="noise in place of CIFAR-10")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=Path, help="where the run is kept")
    parser.add_argument("--seconds", type=float, default=540.0, help="when to stop")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file for the pieces")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    return parser.parse_args()


def piece(arguments: argparse.Namespace, before: int) -> dict[str, Any]:
    """One piece, as far as it came; the pieces before it took ``before`` steps."""
    changes = recipes.choices(arguments.set, [])[0]
    settings = recipes.settings_of(
        tacit.recipes.find(arguments.recipe).settings(arguments.epsilon), changes
    )
    ends = time.perf_counter() + arguments.seconds
    moments: list[float] = []

    def stop() -> bool:
        if arguments.device.startswith("cuda"):
            torch.cuda.synchronize()
        moments.append(time.perf_counter())
        return moments[-1] > ends

    seen, statement = Seen(), None
    try:
        with redirect_stderr(seen):
            done = tacit.recipes.run(
                arguments.recipe, epsilon=arguments.epsilon, settings=changes,
                data=noise() if arguments.random else arguments.data,
                device=arguments.device, folder=arguments.folder,
                resume=arguments.folder is not None and arguments.folder.exists(),
                progress=True, stop=stop,
            )  # fmt: skip
        statement, ended = json.loads(done.statement.to_json()), "the whole plan"
    except tacit.recipes.Interrupted as stopped:
        ended = str(stopped)
    return {
        "recipe": arguments.recipe,
        "epsilon": arguments.epsilon,
        "settings": settings,
        "device": recipes.device(arguments.device),
        "ended": ended,
        "steps": taken(ended, statement) - before,
        "epochs": curve(seen.getvalue()),
        "statement": statement,
        "versions": recipes.versions(),
        **speed(moments, settings),
        **machine.stamp(),
    }


def noise() -> Split:
    """As many images of noise as CIFAR-10 has, and as large."""
    rng = np.random.default_rng(0)

    def part(count: int) -> Examples:
        images = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        return Examples(images, rng.integers(0, 10, count))

    return Split("noise", part(50_000), part(10_000), tuple("0123456789"), {"made": "up"})


def taken(ended: str, statement: dict[str, Any] | None) -> int:
    """Steps of the run so far.

    >>> taken("stopped after step 1,024 of 3,477; go on with --resume", None)
    1024
    """
    if statement is not None:
        return int(statement["steps_taken"])
    found = STOPPED.search(ended)
    return 0 if found is None else int(found[1].replace(",", ""))


class Seen(io.StringIO):
    """Keeps what is written, and passes it on."""

    def write(self, text: str) -> int:
        sys.__stderr__ and sys.__stderr__.write(text)
        return super().write(text)


def speed(moments: list[float], settings: dict[str, Any]) -> dict[str, float]:
    """Of a typical step: the median, since the first ones compile and some come after a test."""
    steps = [later - before for before, later in itertools.pairwise(moments[3:])]
    if not steps:
        return {}
    middle = statistics.median(steps)
    views = settings["lot"] * settings.get("views", 1)
    return {"seconds_a_step": middle, "views_per_second": views / middle}


def curve(text: str) -> list[dict[str, float]]:
    """The epochs that were shown.

    >>> curve("epoch 2  step 9  held-out 31.40%  ε 0.52  3.1 s  (δ 1e-05)")
    [{'epoch': 2, 'step': 9, 'accuracy': 31.4, 'epsilon': 0.52}]
    """
    return [
        {"epoch": int(epoch), "step": int(step), "accuracy": float(right), "epsilon": float(spent)}
        for epoch, step, right, spent in EPOCH.findall(text)
    ]


def markdown(pieces: list[dict[str, Any]]) -> str:
    first = pieces[0]
    lines = [
        f"# {first['recipe']} at ε = {first['epsilon']:g}",
        "",
        f"Settings: {', '.join(f'{name}={value}' for name, value in first['settings'].items())}.",
        "",
        "| piece | steps | ended | s a step | views/s | on |",
        "|---:|---:|---|---:|---:|---|",
    ]
    for number, one in enumerate(pieces, start=1):
        fast = (one.get("seconds_a_step", 0.0), one.get("views_per_second", 0.0))
        lines.append(
            f"| {number} | {one['steps']} | {one['ended']} | {fast[0]:.3f} | {fast[1]:,.0f} | "
            f"{one['device']}, torch {one['versions']['torch']}, `{one['command']}`, "
            f"{one['date']} |"
        )
    epochs = [epoch for one in pieces for epoch in one["epochs"]]
    lines += ["", "| epoch | step | held-out accuracy % | ε so far |", "|---:|---:|---:|---:|"]
    lines += [
        f"| {epoch['epoch']} | {epoch['step']} | {epoch['accuracy']:.2f} | {epoch['epsilon']:g} |"
        for epoch in epochs
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
