"""What knowledge transfer releases: a model that was trained on public points alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 1000  # images at a time: what is computed on the way stays small


def as_tensor(values: NDArray[Any] | Tensor) -> Tensor:
    """A tensor as it is; of an array a copy, for the array may be one that cannot be changed."""
    return values if isinstance(values, Tensor) else torch.tensor(values)


@final
class Pixels(nn.Module):
    """Numbers from 0 to 1 of images as they are stored, uint8; such numbers stay as they are."""

    def forward(self, images: Tensor) -> Tensor:
        """Floating-point pixels."""
        return images if images.is_floating_point() else images.float() / 255


@final
class Measured(nn.Module):
    """Pixels from the public images' mean, in units of their standard deviation, by channel.

    Args:
        images: public ones, uint8.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        sample = images[:: max(1, len(images) // BATCH)].float() / 255
        self.register_buffer("mean", sample.mean((0, 2, 3)).view(-1, 1, 1))
        self.register_buffer("deviation", sample.std((0, 2, 3)).clamp(min=1e-3).view(-1, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Numbers of mean 0 and deviation 1, laid out as convolutions like it."""
        shown: Tensor = (pixels - self.mean) / self.deviation
        return shown.contiguous(memory_format=torch.channels_last)


@final
class Together(nn.Module):
    """Several models that take the same images: the mean of their log-probabilities."""

    def __init__(self, *models: nn.Module) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, images: Tensor) -> Tensor:
        """Scores, shape (images, classes)."""
        return torch.stack([model(images).log_softmax(1) for model in self.models]).mean(0)


@final
@dataclass(frozen=True, eq=False)
class Student:
    """A trained student.

    Guarantee: it is computed from public images and from labels that were released, and from
    nothing else; it may be used as often as one likes at no further cost. What the labels cost is
    in the event of whoever gave them.

    Args:
        model: takes images, uint8 or floating-point from 0 to 1, and gives scores.
    """

    model: nn.Module

    def probabilities(self, images: NDArray[Any] | Tensor) -> NDArray[np.float32]:
        """The probability of each class, shape (images, classes)."""
        given = as_tensor(images)
        if given.ndim != 4:
            raise InvalidArgument(
                "images must have the shape (images, channels, height, width), "
                f"got {tuple(given.shape)}"
            )
        place = next(self.model.parameters()).device
        self.model.eval()
        with torch.no_grad():
            parts = [self.model(part.to(place)).softmax(1).cpu() for part in given.split(BATCH)]
        found: NDArray[np.float32] = torch.cat(parts).numpy()
        return found

    def predict(self, images: NDArray[Any] | Tensor) -> NDArray[np.int64]:
        """The most probable class of each image."""
        found: NDArray[np.int64] = self.probabilities(images).argmax(1)
        return found
