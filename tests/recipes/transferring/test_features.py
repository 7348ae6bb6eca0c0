"""Features of one image at a time: whatever else is there, an image's row is the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.data import load
from tacit.recipes.transferring import features
from tacit.recipes.transferring.splits import parts_of
from tacit.transfer.students import train_student

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return parts_of(load("digits")).public


@pytest.mark.parametrize("kind", ["pixels", "hog", "whitened-hog", "centred-hog", "coloured-hog"])
def test_rows_have_norm_one_and_are_each_images_own(
    kind: features.Kind, images: np.ndarray
) -> None:
    make = features.maker(kind, images, CPU, keep=30)
    rows = make(images)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    alone = np.concatenate([make(images[at : at + 1]) for at in (0, 7, 499)])
    assert np.array_equal(rows[[0, 7, 499]], alone)
    assert np.array_equal(rows[1:], make(images[1:]))


def test_whitened_hog_is_of_even_strength_on_public_images(images: np.ndarray) -> None:
    rows = features.maker("whitened-hog", images, CPU, keep=20)(images)
    assert rows.shape == (500, 20)
    plain = features.maker("hog", images, CPU, keep=20)(images)

    def evenness(some: np.ndarray) -> float:
        strengths = np.sort(np.linalg.eigvalsh(some.T @ some))[::-1][:20]
        return float(strengths[10] / strengths[0])

    assert evenness(rows) > 5 * evenness(plain)


def random_photographs(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


@pytest.mark.slow
def test_what_stands_beside_the_middle_counts_less_in_centred_hog() -> None:
    images = random_photographs(60)
    sides, middle = images.copy(), images.copy()
    sides[:, :, :, :8], sides[:, :, :, 24:] = images[::-1, :, :, :8], images[::-1, :, :, 24:]
    middle[:, :, :, 8:24] = images[::-1, :, :, 8:24]  # as many pixels

    def alike(kind: features.Kind, changed: np.ndarray) -> float:
        make = features.maker(kind, images, CPU, keep=50)
        return float((make(images) * make(changed)).sum(axis=1).mean())

    assert alike("centred-hog", sides) > 0.8
    assert alike("centred-hog", middle) < 0.4
    assert alike("centred-hog", sides) > alike("whitened-hog", sides) + 0.2


def test_colours_count_in_coloured_hog_alone() -> None:
    shapes = np.repeat(random_photographs(60)[:, :1] // 2, 3, axis=1)  # the same in all channels
    red, blue = shapes.copy(), shapes.copy()
    red[:, 0] += 100
    blue[:, 2] += 100
    plain, coloured = (
        features.maker(kind, shapes, CPU, keep=20) for kind in ("whitened-hog", "coloured-hog")
    )
    assert np.allclose(plain(red), plain(blue), atol=1e-5)
    assert coloured(red).shape == (60, 20 + 48)
    assert (coloured(red) * coloured(blue)).sum(axis=1).max() < 0.95


def test_scattering_keeps_so_many_features(
    images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "SYNTHETIC", 200)
    make = features.maker("scattering", images, CPU, keep=17)
    rows = make(images[:50])
    assert rows.shape == (50, 17)
    assert np.array_equal(rows[3], make(images[3:4])[0])


@pytest.mark.parametrize("level", [0, 51, 77])
def test_a_blank_image_has_a_row(level: int) -> None:
    blank = np.full((2, 1, 8, 8), level, np.uint8)
    rows = features.maker("pixels", blank, CPU, keep=1)(blank)
    assert np.array_equal(rows, np.zeros((2, 64), np.float32))


def test_questions_are_different_images_one_for_each_cluster(images: np.ndarray) -> None:
    rows = features.maker("pixels", images, CPU, keep=1)(images)
    asked = features.questions(rows, 40, 0, CPU)
    assert len(asked) == len(set(asked.tolist())) == 40
    assert np.array_equal(asked, features.questions(rows, 40, 0, CPU))
    everyone = features.questions(rows, len(rows), 0, CPU)
    assert np.array_equal(np.sort(everyone), np.arange(len(rows)))


def test_questions_in_the_middle_cover_more_than_any_others(images: np.ndarray) -> None:
    rows = features.maker("pixels", images, CPU, keep=1)(images)

    def far(asked: np.ndarray) -> float:
        return float((1.0 - rows @ rows[asked].T).min(axis=1).mean())

    assert far(features.questions(rows, 40, 0, CPU)) < 0.95 * far(np.arange(40))


def test_a_students_features_are_what_its_last_layer_sees(images: np.ndarray) -> None:
    labels = np.arange(len(images)) % 10
    student = train_student(images, labels, classes=10, method="plain", epochs=1, seed=0)
    make = features.of_student(student, CPU)
    rows = make(images[:20])
    assert np.array_equal(rows[1:], make(images[1:20]))
    last = [one for one in student.model.modules() if isinstance(one, torch.nn.Linear)][-1]
    assert rows.shape == (20, last.in_features)
    with torch.no_grad():
        scores = student.model(torch.tensor(images[:20])) - last.bias
    again = torch.tensor(rows) @ last.weight.T  # of rows of norm 1: the same but for its length
    directions = [torch.nn.functional.normalize(one) for one in (again, scores)]
    assert torch.allclose(*directions, atol=1e-4)
