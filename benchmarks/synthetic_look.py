"""How bright and how rough synthetic images are, beside the training images they stand in for.

    python benchmarks/synthetic_look.py --data FOLDER [--record]

Of every candidate for a constant: the mean brightness, and the mean difference of neighbouring
pixels, as ratios to those of the training images. The candidate whose logarithms are nearest to 0
is the constant of `tacit.models.synthetic`. Test images are not read.
"""

import argparse
import itertools
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import machine
import tacit.data
from tacit.models import synthetic, synthetic_images

RESULTS = Path(__file__).resolve().parent / "results"
COUNT = 4000
NIBS = [(0.024 * part / 10, 0.042 * part / 10) for part in range(7, 14)]
LEVELS = [(low, 1.0) for low in (0.25, 0.4, 0.5, 0.6, 0.7)]
GRAINS = [(0.01, high) for high in (0.1, 0.15, 0.2, 0.25, 0.3)]
Row = tuple[str, float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--record", action="store_true", help=f"write to {RESULTS.name}/")
    arguments = parser.parse_args()
    report = "\n\n".join(
        ["# The look of synthetic images", provenance(), *sections(arguments.data)]
    )
    print(report)
    if arguments.record:
        (RESULTS / "synthetic_look.md").write_text(report + "\n")


def provenance() -> str:
    made = machine.stamp()
    return f"`{made['command']}`, {made['date']}, commit {made['commit']}."


def sections(folder: Path | None) -> Iterator[str]:
    """A table for each kind."""
    strokes = [{"NIB": nib} for nib in NIBS]
    blobs = [{"LEVEL": level, "GRAIN": grain} for level, grain in itertools.product(LEVELS, GRAINS)]
    for data, kind, candidates in (("mnist", "strokes", strokes), ("fashion", "blobs", blobs)):
        wanted = look(np.asarray(tacit.data.load(data, folder).train.inputs))
        rows = [row(kind, constants, wanted) for constants in candidates]
        best = min(rows, key=lambda one: abs(math.log(one[1])) + abs(math.log(one[2])))
        lines = [f"| {name} | {light:.3f} | {rough:.3f} |" for name, light, rough in rows]
        yield "\n".join(
            [
                f"## `{kind}` beside {data}'s training images\n",
                "| constants | brightness | difference of neighbours |",
                "|---|---:|---:|",
                *lines,
                f"\nNearest: {best[0]}.",
            ]
        )


def row(kind: str, constants: dict[str, tuple[float, float]], wanted: NDArray[np.float64]) -> Row:
    """The look of images drawn with other constants, as ratios."""
    with ExitStack() as changed:
        for name, value in constants.items():
            changed.enter_context(patch.object(synthetic, name, value))
        found = look(synthetic_images(COUNT, kind=kind, seed=0)) / wanted  # type: ignore[arg-type]
    names = ", ".join(f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in constants.items())
    return names, float(found[0]), float(found[1])


def look(images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Mean brightness, and mean difference of neighbours in rows and columns."""
    light = images.astype(np.float32) / 255
    across = np.abs(np.diff(light, axis=-1)).mean()
    down = np.abs(np.diff(light, axis=-2)).mean()
    return np.array([light.mean(), (across + down) / 2], dtype=np.float64)


if __name__ == "__main__":
    main()
