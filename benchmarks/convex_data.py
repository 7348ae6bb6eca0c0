"""Adult and MNIST as matrices whose bounds are public: nothing here is computed from the data.

Reads the published files from a folder; NumPy alone is needed.
"""

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Column names, and for numbers the bounds that the questionnaire's meaning gives.
NUMBERS = {"age": (17, 90), "education-num": (1, 16), "hours-per-week": (1, 99)}
AMOUNTS = ("capital-gain", "capital-loss")
COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    "native-country",
)
LEFT_OUT = ("fnlwgt",)  # a weight of the census, not a fact about the person
ADULT_NORM = 3.4  # eight one-hot columns, five numbers between 0 and 1: at most √13


class Split(NamedTuple):
    """Training and test rows with their labels, and the public bound on a row's norm."""

    train: NDArray[np.float64]
    train_labels: NDArray[np.int64]
    test: NDArray[np.float64]
    test_labels: NDArray[np.int64]
    norm: float


def load(name: str, folder: Path) -> Split:
    return {"adult": _adult, "mnist": _images, "fashion_mnist": _images}[name](folder / name)


def _adult(folder: Path) -> Split:
    answers = {}
    for line in (folder / "adult.names").read_text().splitlines():
        name, _, values = line.partition(":")
        if name in COLUMNS and "continuous" not in values:
            answers[name] = [one.strip() for one in values.strip().rstrip(".").split(",")]
    train = _people(folder / "adult.data.gz", answers)
    test = _people(folder / "adult.test.gz", answers)
    return Split(*train, *test, ADULT_NORM)


def _people(
    file: Path, answers: dict[str, list[str]]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    people = [[cell.strip() for cell in line.split(",")] for line in lines if line.count(",") == 14]
    blocks = []
    for place, name in enumerate(COLUMNS):
        cells = np.array([person[place] for person in people])
        if name in NUMBERS:
            low, high = NUMBERS[name]
            blocks.append(((cells.astype(float) - low) / (high - low))[:, None])
        elif name in AMOUNTS:
            blocks.append((np.log1p(cells.astype(float)) / np.log1p(1e5))[:, None])
        elif name not in LEFT_OUT:
            blocks.append((cells[:, None] == np.array(answers[name])).astype(float))
    return np.hstack(blocks), np.array([">50K" in person[14] for person in people], dtype=np.int64)


def _images(folder: Path) -> Split:
    """Pixels over the length of their own image, so that every row has norm 1."""
    parts = []
    for part in ("train", "t10k"):
        pixels = _bytes(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(float)
        parts += [
            pixels / np.linalg.norm(pixels, axis=1, keepdims=True),
            _bytes(folder / f"{part}-labels-idx1-ubyte.gz", 8).astype(np.int64),
        ]
    return Split(parts[0], parts[1], parts[2], parts[3], 1.0)


def _bytes(file: Path, header: int) -> NDArray[np.uint8]:
    return np.frombuffer(gzip.decompress(file.read_bytes()), dtype=np.uint8)[header:]
