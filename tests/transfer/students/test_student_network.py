"""The students' networks."""

import pytest
import torch

from tacit.transfer.students.student import residual_network, small_network


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_it_takes_images_of_any_size(shape: tuple[int, int, int]) -> None:
    for make in (residual_network, small_network):
        found = make(shape[0], 7, width=4)(torch.zeros(2, *shape))
        assert found.shape == (2, 7)
        assert found.isfinite().all()


def test_colour_images_have_the_wider_one() -> None:
    grey, colour = (
        sum(one.numel() for one in residual_network(channels, 10).parameters())
        for channels in (1, 3)
    )
    assert grey < 150_000
    assert colour > 5_000_000
