"""Whole sets in batches: the same numbers as at once, whatever the batch and the threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.models import Scattering2d, batched, synthetic_images

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("batch", [None, 1, 7, 100])
def test_batches_are_put_together_in_order(threads: int, batch: int | None) -> None:
    images = synthetic_images(50, size=8, kind="noise", seed=3)
    transform = Scattering2d(8, 8)
    found = batched(transform, images, batch=batch)
    assert torch.allclose(found, transform(torch.from_numpy(images) / 255), atol=1e-6)
    assert torch.get_num_threads() == threads


def test_a_tensor_and_an_array_that_may_not_be_written_do_as_well() -> None:
    images = synthetic_images(20, size=8, kind="noise", seed=3)
    wanted = batched(torch.nn.Flatten(), images)
    assert torch.equal(batched(torch.nn.Flatten(), torch.from_numpy(images)), wanted)
    images.flags.writeable = False
    assert torch.equal(batched(torch.nn.Flatten(), images), wanted)
    assert torch.equal(wanted, torch.tensor(images).flatten(1) / 255)


def test_what_goes_wrong_in_a_thread_is_told(threads: int) -> None:
    def fails(pixels: torch.Tensor) -> torch.Tensor:
        if pixels.max() > 0.5:
            raise ArithmeticError("too light")
        return pixels

    images = np.zeros((90, 1, 8, 8), dtype=np.uint8)
    images[70] = 255
    with pytest.raises(ArithmeticError, match="too light"):
        batched(fails, images)
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("threads")
def test_no_gradients_are_kept() -> None:
    layer = torch.nn.Conv2d(1, 2, 3)
    found = batched(layer, np.zeros((40, 1, 8, 8), dtype=np.uint8))
    assert not found.requires_grad


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((2, 1, 8, 8), dtype=np.float32),
        np.zeros((2, 8, 8), dtype=np.uint8),
        np.zeros((0, 1, 8, 8), dtype=np.uint8),
        torch.zeros(2, 1, 8, 8),
    ],
)
def test_anything_but_images_of_bytes_is_refused(images: np.ndarray | torch.Tensor) -> None:
    with pytest.raises(InvalidArgument, match="images must be uint8 of shape"):
        batched(Scattering2d(8, 8), images)


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="batch must be a whole number"):
        batched(torch.nn.Flatten(), np.zeros((2, 1, 8, 8), dtype=np.uint8), batch=0)
