"""Whole sets in batches: the same numbers as at once, whatever the batch and the threads.

To the last bit they are those of each image alone. It was not so: with whitened HOG of 4,100 MNIST
images, leaving out the first one changed rows at the end, and could move their votes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tacit.errors import InvalidArgument
from tacit.models import Scattering2d, batched, synthetic_images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


def at_its_place(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.flatten(1) + torch.arange(len(pixels))[:, None]


def beside_the_others(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.flatten(1) - pixels.amax(0).flatten()


def at_the_end(pixels: torch.Tensor) -> torch.Tensor:
    """As libraries do whose last few numbers are computed in another way."""
    rows = pixels.flatten(1).clone()
    rows[-1] += 1e-7
    return rows


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("transform", [at_its_place, beside_the_others, at_the_end])
def test_a_row_is_its_own_images_where_the_transform_mixes_them(
    transform: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    images = synthetic_images(70, size=8, kind="noise", seed=3)
    alone = [transform(torch.tensor(image[None]) / 255) for image in images]
    assert torch.equal(batched(transform, images), torch.cat(alone))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("gone", [0, 37, 69])
def test_to_leave_an_image_out_changes_no_bit_of_the_others(gone: int) -> None:
    images = synthetic_images(70, size=8, kind="noise", seed=3)
    layers = torch.nn.Sequential(Scattering2d(8, 8), torch.nn.Flatten(), torch.nn.LazyLinear(50))
    layers(torch.zeros(1, 1, 8, 8))
    found = batched(layers, images)
    rest = np.delete(np.arange(70), gone)
    for few in (rest, rest[:33], rest[5:6]):  # the last batch has 5, 1 and 1
        assert torch.equal(batched(layers, images[few]), found[few])


def test_whether_rows_are_mixed_is_not_asked_of_the_images() -> None:
    seen: list[torch.Tensor] = []

    def telling(pixels: torch.Tensor) -> torch.Tensor:
        seen.append(pixels.clone())
        return pixels.flatten(1)

    for level in (0, 200):
        batched(telling, np.full((3, 1, 8, 8), level, dtype=np.uint8))
    tried, again = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert len(tried) == len(again) == 5  # four batches of noise, and the images
    assert all(map(torch.equal, tried[:4], again[:4]))


def test_a_tensor_and_an_array_that_may_not_be_written_do_as_well() -> None:
    images = synthetic_images(20, size=8, kind="noise", seed=3)
    wanted = batched(torch.nn.Flatten(), images)
    assert torch.equal(batched(torch.nn.Flatten(), torch.from_numpy(images)), wanted)
    images.flags.writeable = False
    assert torch.equal(batched(torch.nn.Flatten(), images), wanted)
    assert torch.equal(wanted, torch.tensor(images).flatten(1) / 255)


def test_what_goes_wrong_in_a_thread_is_told(threads: int) -> None:
    def fails(pixels: torch.Tensor) -> torch.Tensor:
        if (pixels == 1).all((1, 2, 3)).any():
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
