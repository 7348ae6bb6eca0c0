r"""What came out of a prior: its images, its first filters, accuracy against ε, and each class.

    python benchmarks/prior_report.py --prior FILE --out DIR
    python benchmarks/prior_report.py --prior FILE --runs RUN [RUN ...] --data FOLDER --out DIR

Writes prior_images.png, prior_filters.png and prior.md to DIR; with finished runs of cifar10-prior
or svhn-prior also prior_accuracy.png, beside what was published, and a table of accuracy by class.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import figures_style
import tacit.data
import tacit.recipes
from tacit.models import style_images
from tacit.recipes import prior

SHOWN = (8, 16)  # rows and columns of the images that are shown
LARGER = 8  # pixels of a filter's pixel


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = prior.read(arguments.prior)
    images(found.settings, arguments.out / "prior_images.png")
    filters(found, arguments.out / "prior_filters.png")
    runs = [tacit.recipes.load(one, data=arguments.data) for one in arguments.runs]
    parts = [about(found)]
    if runs:
        accuracy(runs, arguments.out / "prior_accuracy.png")
        parts.append(by_class(runs, arguments.data))
    text = "\n\n".join(parts) + "\n"
    (arguments.out / "prior.md").write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prior", type=Path, required=True)
    parser.add_argument("--runs", type=Path, nargs="+", default=[], help="folders of finished runs")
    parser.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def images(settings: prior.PriorSettings, path: Path) -> None:
    """The first image of each of the first networks: what the prior was learned from."""
    rows, columns = SHOWN
    made = style_images(4 * rows * columns, size=settings.size, seed=settings.seed)[::4]
    save(tiles(made.permute(0, 2, 3, 1).numpy(), columns), path)


def filters(found: prior.Prior, path: Path) -> None:
    """The filters of the first layer as they are used, each from its least to its largest value."""
    network = found.settings.network()
    network.load_state_dict(found.weights, strict=False)
    with torch.no_grad():
        weights: NDArray[np.float32] = network[0].standardised().permute(0, 2, 3, 1).numpy()  # type: ignore[operator]
    low, high = weights.min((1, 2, 3), keepdims=True), weights.max((1, 2, 3), keepdims=True)
    light = (255 * (weights - low) / (high - low)).astype(np.uint8)
    large = light.repeat(LARGER, axis=1).repeat(LARGER, axis=2)
    save(tiles(np.pad(large, ((0, 0), (2, 2), (2, 2), (0, 0)), constant_values=255), 8), path)


def tiles(pictures: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    """Pictures in rows, as one."""
    count, height, width, channels = pictures.shape
    grid = pictures.reshape(count // columns, columns, height, width, channels)
    return grid.transpose(0, 2, 1, 3, 4).reshape(-1, columns * width, channels)


def save(picture: NDArray[np.uint8], path: Path) -> None:
    from matplotlib.image import imsave  # noqa: PLC0415

    imsave(path, picture)


def about(found: prior.Prior) -> str:
    chosen = found.settings
    return (
        f"# The prior of {chosen.images:,} synthetic images\n\nSHA-256 {found.sha256}, seed "
        f"{chosen.seed}, {chosen.steps:,} steps of {chosen.batch} images in two views each."
    )


def accuracy(runs: Sequence[Any], path: Path) -> None:
    """Accuracy of the runs against their ε, and what was published."""
    figure = figures_style.new_figure(6.4, 4.2, "Accuracy on the test images")
    axes = figure.subplots()
    points = sorted((one.statement.epsilon, 100 * one.record.test_accuracy) for one in runs)
    axes.plot(*zip(*points, strict=True), "o", color="#1f5fbf", label=runs[0].record.recipe)
    for name, mark in (("cifar10-prior", "s"), ("cifar10-wrn", "^")):
        anchors = tacit.recipes.find(name).anchors
        axes.plot(
            [one.epsilon for one in anchors], [one.accuracy for one in anchors], mark,
            color="#777777", label=anchors[0].source,
        )  # fmt: skip
    figures_style.logarithmic(axes, "x", (0.5, 1, 2, 4, 8))
    figures_style.style(axes, "", "ε", "%")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def by_class(runs: Sequence[Any], folder: Path | None) -> str:
    """Accuracy by class, on the test images, judged as the recipe judges."""
    data = tacit.data.load(tacit.recipes.find(runs[0].record.recipe).data, folder)
    labels = np.asarray(data.test.labels)
    pixels = torch.as_tensor(np.asarray(data.test.inputs)).float() / 127.5 - 1.0
    heads = [f"ε = {one.statement.epsilon:.3g}" for one in runs]
    lines = [f"| class | {' | '.join(heads)} |", f"|---|{'---:|' * len(runs)}"]
    right = [
        guesses(one.model, pixels, mirrored=one.record.settings["flip"]) == labels for one in runs
    ]
    for number, name in enumerate(data.classes):
        shares = [100 * float(found[labels == number].mean()) for found in right]
        lines.append(f"| {name} | {' | '.join(f'{share:.1f}' for share in shares)} |")
    lines.append(f"| all | {' | '.join(f'{100 * float(found.mean()):.2f}' for found in right)} |")
    return "\n".join(lines)


def guesses(model: torch.nn.Module, pixels: torch.Tensor, *, mirrored: bool) -> NDArray[np.int64]:
    model.eval()
    found = []
    with torch.no_grad():
        for part in pixels.split(500):
            chances = model(part).softmax(-1)
            if mirrored:
                chances = chances + model(part.flip(-1)).softmax(-1)
            found.append(chances.argmax(1))
    answers: NDArray[np.int64] = torch.cat(found).numpy()
    return answers


if __name__ == "__main__":
    main()
