"""Training a student, on digits and on small images made here."""

import numpy as np
import pytest
import torch

from tacit import data
from tacit.errors import InvalidArgument
from tacit.transfer.students import STUDENT_METHODS, Student, StudentMethod, train_student


def squares(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Images of 8×8 with a bright square above (class 0) or below (class 1), somewhat noisy."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, count)
    images = generator.integers(0, 60, (count, 1, 8, 8))
    for image, label in zip(images, truth, strict=True):
        image[0, 4 * label : 4 * label + 4, 2:6] += 150
    return images.astype(np.uint8), truth


def some(truth: np.ndarray, count: int, wrong: int = 0) -> np.ndarray:
    labels = np.full(len(truth), -1)
    labels[:count] = truth[:count]
    labels[:wrong] = (labels[:wrong] + 1) % (truth.max() + 1)
    return labels


@pytest.mark.parametrize("method", STUDENT_METHODS)
def test_every_method_learns(method: StudentMethod) -> None:
    images, truth = squares()
    student = train_student(images, some(truth, 20), classes=2, method=method, epochs=12, seed=1)
    assert (student.predict(images) == truth).mean() > 0.9


@pytest.mark.parametrize("method", STUDENT_METHODS)
def test_a_seed_repeats_the_run_and_leaves_torchs_own_generator_alone(
    method: StudentMethod,
) -> None:
    images, truth = squares(100)

    def trained(seed: int | None) -> np.ndarray:
        student = train_student(
            images, some(truth, 20), classes=2, method=method, epochs=3, seed=seed
        )
        return student.probabilities(images)

    before = torch.random.get_rng_state()
    first, again, other = trained(3), trained(3), trained(4)
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > (0 if method == "graph" else 1e-3)


@pytest.mark.parametrize(
    "method",
    [
        "graph",
        pytest.param("committee", marks=pytest.mark.slow),
        pytest.param("consistency", marks=pytest.mark.slow),
    ],
)
def test_digits_from_a_hundred_labels_of_which_some_are_wrong(method: StudentMethod) -> None:
    split = data.load("digits")
    labels = some(split.train.labels, 100, wrong=4)
    student = train_student(split.train.inputs, labels, classes=10, method=method, epochs=8, seed=0)
    assert (student.predict(split.test.inputs) == split.test.labels).mean() > 0.93


def test_the_default_suits_the_images() -> None:
    images, truth = squares(100)
    labels = some(truth, 20)
    usual, named = (
        train_student(images, labels, classes=2, method=method, seed=0).probabilities(images)
        for method in (None, "committee")
    )
    np.testing.assert_array_equal(usual, named)
    colours = np.repeat(images, 3, axis=1)
    usual, named = (
        train_student(
            colours, labels, classes=2, method=method, seed=0, epochs=1,
            network=lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2)),
        ).probabilities(colours)
        for method in (None, "consistency")
    )  # fmt: skip
    np.testing.assert_array_equal(usual, named)


def test_arrays_that_cannot_be_changed_are_taken() -> None:
    images, truth = squares(100)
    labels, weights = some(truth, 20), np.ones(100)
    for array in (images, labels, weights):
        array.setflags(write=False)
    student = train_student(images, labels, classes=2, method="graph", weights=weights, seed=0)
    assert len(student.predict(images)) == 100


def test_progress_is_told_after_every_epoch() -> None:
    images, truth = squares(100)
    told: list[tuple[int, int]] = []
    train_student(
        images, some(truth, 10), classes=2, method="plain", epochs=3, seed=0,
        progress=lambda done, of: told.append((done, of)),
    )  # fmt: skip
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_only_labels_with_weight_are_learned() -> None:
    images, truth = squares()
    labels = some(truth, 60, wrong=30)
    weights = np.where(np.arange(len(truth)) < 30, 0.0, 1.0)
    student = train_student(
        images, labels, classes=2, method="plain", epochs=20, seed=0, weights=weights
    )
    assert (student.predict(images) == truth).mean() > 0.95


def test_the_network_may_be_ones_own() -> None:
    images, truth = squares(100)

    def network() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))

    student = train_student(
        images, some(truth, 20), classes=2, method="plain", network=network, epochs=60, seed=0
    )
    assert isinstance(student, Student)
    assert sum(weights.numel() for weights in student.model.parameters()) == 130
    assert (student.predict(images) == truth).mean() > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "fixmatch"}, "method must be one of"),
        ({"images": np.zeros((10, 8, 8), dtype=np.uint8)}, "images must be uint8 of shape"),
        ({"images": np.zeros((10, 1, 8, 8))}, "images must be uint8 of shape"),
        ({"labels": np.zeros(9, dtype=np.int64)}, "one for each of the 10 images"),
        ({"labels": np.zeros(10)}, "labels must be whole numbers"),
        ({"labels": np.full(10, 2)}, r"between -1 \(none\) and classes - 1 = 1"),
        ({"labels": np.full(10, -2)}, r"between -1 \(none\)"),
        ({"labels": np.full(10, -1)}, "labels must hold a label other than -1"),
        ({"weights": np.ones(9)}, "weights must be finite"),
        ({"weights": np.full(10, np.nan)}, "weights must be finite"),
        ({"weights": np.full(10, -1.0)}, "weights must be finite"),
        ({"weights": np.zeros(10)}, "weights must be above zero"),
        ({"classes": 1}, "classes must be a whole number, 2 or more"),
        ({"epochs": 0}, "epochs must be a whole number, 1 or more"),
        ({"seed": -1}, "seed must be a whole number, 0 or more"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "images": np.zeros((10, 1, 8, 8), dtype=np.uint8),
        "labels": np.zeros(10, dtype=np.int64),
        "classes": 2,
    } | change
    images, labels = arguments.pop("images"), arguments.pop("labels")
    with pytest.raises(InvalidArgument, match=message):
        train_student(images, labels, **arguments)  # type: ignore[arg-type]
