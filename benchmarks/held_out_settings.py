"""Compares settings of a recipe for pictures on training images that it does not learn from.

    python benchmarks/held_out_settings.py cifar10-prior --epsilon 1 --set views=4 \
        --grid lr=0.1,0.2 --data FOLDER --device cuda --out ROWS.json

The last --validation training images are held out; the test images are not looked at. The plan's ε
is that of a run on the rest. "before" is the accuracy with which all layers begin: that of the last
layer alone. Each row is written as it is done, so that a limit on the time costs only the rest.
"""

import argparse
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import machine
import tacit.recipes
from tacit.data import Examples, Split, load
from tacit.models.devices import device_named
from tacit.runs import settings as settings_of
from tacit.runs.recipe import Task, free
from tacit.training import Prepared
from tacit.training.evaluation import accuracy
from tacit.training.fit import Watch, carry_out


def main() -> None:
    arguments = parse_arguments()
    given = dict(one.split("=", 1) for one in arguments.set)
    names = [one.partition("=")[0] for one in arguments.grid]
    values = [one.partition("=")[2].split(",") for one in arguments.grid]
    recipe = tacit.recipes.find(arguments.recipe)
    data = without_test(load(recipe.data, arguments.data), arguments.validation)
    end, rows = time.monotonic() + arguments.seconds, []
    for chosen in itertools.product(*values):
        if time.monotonic() > end:
            break
        changes = given | dict(zip(names, chosen, strict=True))
        rows.append(changes | judged(arguments, recipe, data, changes))
        print(json.dumps(rows[-1]), flush=True)
        content = {**machine.stamp(), "recipe": recipe.name, "epsilon": arguments.epsilon}
        text = json.dumps(content | {"held_out": arguments.validation, "rows": rows}, indent=1)
        arguments.out.write_text(text + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe", choices=tacit.recipes.names())
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--validation", type=int, default=5000, metavar="N")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--grid", nargs="*", default=[], metavar="NAME=V,W")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin nothing after these")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def without_test(found: Split, held_out: int) -> Split:
    """The last training images in place of the test images."""
    inputs, labels = found.train.inputs, found.train.labels
    return replace(
        found,
        train=Examples(inputs[:-held_out], labels[:-held_out]),
        test=Examples(inputs[-held_out:], labels[-held_out:]),
    )


def judged(
    arguments: argparse.Namespace, recipe: Any, data: Split, changes: dict[str, str]
) -> dict[str, Any]:
    """One run."""
    start = time.perf_counter()
    torch.manual_seed(0)
    task = Task(
        settings=settings_of.changed(recipe.settings(arguments.epsilon), changes),
        data=data, epsilon=arguments.epsilon, delta=arguments.delta,
        device=device_named(arguments.device), seed=0,
    )  # fmt: skip
    prepared = recipe.prepare(task, recipe.outline(task).plan, free)
    before, ready = right(prepared, prepared.model), time.perf_counter()
    done = carry_out(prepared, delta=task.delta, watch=Watch(progress=False))
    return {
        "before": before,
        "averaged": right(prepared, prepared.final),
        "last": right(prepared, prepared.model),
        "epsilon_of_all_layers": done.statement.epsilon,
        "seconds_before": round(ready - start, 1),
        "seconds": round(time.perf_counter() - ready, 1),
    }


def right(prepared: Prepared, model: torch.nn.Module) -> float:
    assert prepared.held_out is not None
    return round(100 * accuracy(model, prepared.held_out, correct=prepared.correct), 2)


if __name__ == "__main__":
    main()
