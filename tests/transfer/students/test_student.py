"""What a student is made of."""

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import InvalidArgument
from tacit.transfer.students import Student
from tacit.transfer.students.student import Pixels, StandardisedPixels, Together


def simple() -> Student:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (50, 2, 4, 4), dtype=torch.uint8)
    head = nn.Sequential(nn.Flatten(), nn.Linear(32, 3))
    return Student(nn.Sequential(Pixels(), StandardisedPixels(images), head))


def test_bytes_and_numbers_are_the_same_images() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2100, 2, 4, 4), dtype=np.uint8)
    student = simple()
    of_bytes = student.probabilities(images)
    of_numbers = student.probabilities(images.astype(np.float32) / 255)
    np.testing.assert_allclose(of_bytes, of_numbers, atol=1e-6)
    np.testing.assert_allclose(of_bytes.sum(1), 1, atol=1e-5)
    assert student.predict(images).tolist() == of_bytes.argmax(1).tolist()


def test_pixels_are_measured_by_channel() -> None:
    images = torch.randint(0, 256, (500, 3, 8, 8), dtype=torch.uint8)
    shown = StandardisedPixels(images)(Pixels()(images))
    torch.testing.assert_close(shown.mean((0, 2, 3)), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close(shown.std((0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)


def test_blank_images_stay_finite() -> None:
    blank = torch.zeros(5, 1, 4, 4, dtype=torch.uint8)
    assert StandardisedPixels(blank)(Pixels()(blank)).isfinite().all()


def test_together_is_the_normalised_geometric_mean() -> None:
    first, second = nn.Linear(4, 3), nn.Linear(4, 3)
    rows = torch.randn(5, 4)
    product = first(rows).softmax(1).sqrt() * second(rows).softmax(1).sqrt()
    expected = product / product.sum(1, keepdim=True)
    torch.testing.assert_close(Together(first, second)(rows).softmax(1), expected)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="images must have the shape"):
        simple().predict(np.zeros((4, 4), dtype=np.uint8))
