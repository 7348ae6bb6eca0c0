"""The semi-supervised GAN's losses and networks."""

import pytest
import torch
from torch import nn

from tacit.errors import InvalidArgument
from tacit.transfer.students import gan, train_student
from tacit.transfer.students.gan import HIDDEN, discriminator, generator


def test_real_or_made_is_a_softmax_with_one_class_more() -> None:
    """Salimans et al. 2016: K + 1 classes, of which the last, "made", has a score of 0."""
    real, made = torch.randn(7, 4), torch.randn(7, 4)

    def of_the_last(scores: torch.Tensor) -> torch.Tensor:
        return torch.cat([scores, torch.zeros(len(scores), 1)], dim=1).softmax(1)[:, -1]

    expected = -(1 - of_the_last(real)).log().mean() - of_the_last(made).log().mean()
    torch.testing.assert_close(gan._real_or_made(real, made), expected)


def test_mismatch_is_the_distance_of_means() -> None:
    features = nn.Linear(5, 3)
    real, made = torch.randn(6, 5), torch.randn(9, 5)
    expected = (features(real).mean(0) - features(made).mean(0)).square().sum() / 3
    torch.testing.assert_close(gan._mismatch(features, real, made), expected)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_networks_fit_the_images(shape: tuple[int, int, int]) -> None:
    images = torch.zeros(4, *shape, dtype=torch.uint8)
    made = generator(images)(torch.randn(4, HIDDEN))
    assert made.shape == images.shape
    assert made.min() >= 0
    assert made.max() <= 1
    assert discriminator(images, 7)(made).shape == (4, 7)


def test_a_network_without_a_linear_end_is_refused() -> None:
    images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    with pytest.raises(InvalidArgument, match=r"ends in nn\.Linear"):
        train_student(
            images, torch.tensor([0, 1, 0, 1]), classes=2, method="gan", epochs=1,
            network=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2), nn.ReLU()),
        )  # fmt: skip
