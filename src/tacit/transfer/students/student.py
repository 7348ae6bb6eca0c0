"""A student, which knowledge transfer releases: a model that was trained on public points alone.

``StudentTask`` is what every method of training one is given, ``Descent`` how its weights are
improved; ``residual_network`` and ``small_network`` are its usual networks.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray


_SHOWN = 1000  # images at a time: what is computed on the way stays small


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
class StandardisedPixels(nn.Module):
    """Pixels from the public images' mean, in units of their standard deviation, by channel.

    Args:
        images: public ones, uint8.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        sample = images[:: max(1, len(images) // _SHOWN)].float() / 255
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
            parts = [self.model(part.to(place)).softmax(1).cpu() for part in given.split(_SHOWN)]
        found: NDArray[np.float32] = torch.cat(parts).numpy()
        return found

    def predict(self, images: NDArray[Any] | Tensor) -> NDArray[np.int64]:
        """The most probable class of each image."""
        found: NDArray[np.int64] = self.probabilities(images).argmax(1)
        return found


GREY, COLOUR = 8, 64  # channels of the first layer, unless given
SMALL = 12


def residual_network(channels: int, classes: int, *, width: int | None = None) -> nn.Sequential:
    """Eight convolutions with batch norm, two short cuts, and a linear head, for any image size.

    The shape is that of ResNet-9, known from DAWNBench's fast runs on CIFAR-10 (Page 2018, "How to
    train your ResNet"). Batch norm mixes examples, which is fine here: a student's are public.

    Args:
        channels: of the images.
        classes: how many there are.
        width: channels of the first layer; by default 8 for grey images and 64 for others.

    >>> import torch
    >>> residual_network(1, 10)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    grey = whole("channels", channels) == 1
    w = whole("width", width) if width is not None else (GREY if grey else COLOUR)
    halve = nn.MaxPool2d(2, ceil_mode=True)
    return nn.Sequential(
        _convolution(channels, w),
        _convolution(w, 2 * w), halve, _ShortCut(2 * w),
        _convolution(2 * w, 4 * w), halve,
        _convolution(4 * w, 8 * w), halve, _ShortCut(8 * w),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(),
        nn.Linear(8 * w, whole("classes", classes)),
    )  # fmt: skip


def small_network(channels: int, classes: int, *, width: int = SMALL) -> nn.Sequential:
    """Five convolutions with batch norm and a linear head, for any image size.

    Unlike the other it keeps 4 × 4 places apart to the end: where a stroke is says much of a digit.

    >>> import torch
    >>> small_network(1, 10)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    w = whole("width", width)
    return nn.Sequential(
        _convolution(whole("channels", channels), w), nn.MaxPool2d(2),
        _convolution(w, 2 * w), _convolution(2 * w, 2 * w), nn.MaxPool2d(2),
        _convolution(2 * w, 4 * w), _convolution(4 * w, 4 * w), nn.AdaptiveMaxPool2d(4),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * w, whole("classes", classes)),
    )  # fmt: skip


class _ShortCut(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            _convolution(channels, channels), _convolution(channels, channels)
        )

    def forward(self, maps: Tensor) -> Tensor:
        found: Tensor = maps + self.inner(maps)
        return found


def _convolution(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
    )


BATCH = 128


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class StudentTask:
    """Public images, the noisy labels of some, and how long to train on them.

    Args:
        images: uint8, shape (images, channels, height, width), on the device.
        labels: one an image; -1 where there is none.
        weights: how much each label counts; 1 on average, 0 where there is none.
        classes: how many there are.
        epochs: an epoch is as many examples as there are images, labelled or not.
        flip: whether a mirrored image shows the same.
        network: makes a network with fresh weights, if not the method's usual one.
        progress: called after each epoch with how many are done, and of how many.
        upright: whether a slanted image shows the same as an upright one.
    """

    images: Tensor
    labels: Tensor
    weights: Tensor
    classes: int
    epochs: int
    flip: bool
    network: Callable[[], nn.Module] | None
    progress: Callable[[int, int], None] | None
    upright: bool = False

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self.images.device

    @property
    def labelled(self) -> Tensor:
        """The rows that have a label."""
        return self.labels.ge(0).nonzero().squeeze(1)

    def model(self, usual: Callable[[], nn.Module] | None = None) -> nn.Sequential:
        """An untrained model, on the device; ``usual`` makes the method's own network."""
        make = self.network or usual or self._residual
        network = make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return nn.Sequential(Pixels(), StandardisedPixels(self.images), network).to(self.device)

    def _residual(self) -> nn.Module:
        return residual_network(self.images.shape[1], self.classes)

    def pixels(self, rows: Tensor) -> Tensor:
        """Some of the images, from 0 to 1."""
        return self.images[rows].float() / 255

    def draw(self, chances: Tensor, size: int) -> Tensor:
        """Rows drawn with replacement, each in proportion to its chance."""
        return torch.multinomial(chances, size, replacement=True)

    def batches(self) -> Iterator[tuple[float, Tensor]]:
        """All batches of all epochs: how much of the training is done, and a batch's rows."""
        count = len(self.images)
        size = min(BATCH, count)
        steps = count // size  # the rest of a shuffled epoch is left out: batch norm needs many
        for epoch in range(self.epochs):
            order = torch.randperm(count, device=self.device)
            for step in range(steps):
                yield (epoch * steps + step) / (self.epochs * steps), order[step * size :][:size]
            if self.progress is not None:
                self.progress(epoch + 1, self.epochs)


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """One number a row, in single precision whatever autocast does."""
    return functional.cross_entropy(scores.float(), labels, reduction="none")


WARM_UP = 0.1  # of the training, in which the rate rises
WEIGHT_DECAY = 1e-3


@final
class Descent:
    """AdamW whose rate rises and then falls to zero, and an average of the weights.

    Args:
        model: What is trained, in place.
        lr: The largest rate.
        momentum: Adam's β₁.
        memory: Of the average, per step.
    """

    def __init__(
        self, model: nn.Module, *, lr: float = 4e-3, momentum: float = 0.9, memory: float = 0.98
    ) -> None:
        self._lr, self._memory, self._steps = lr, memory, 0
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=lr, betas=(momentum, 0.999), weight_decay=WEIGHT_DECAY
        )
        self._average = copy.deepcopy(model).eval()
        both = zip(self._average.state_dict().values(), model.state_dict().values(), strict=True)
        pairs = list(both)
        self._weights = [pair for pair in pairs if pair[0].is_floating_point()]
        self._counts = [pair for pair in pairs if not pair[0].is_floating_point()]

    @property
    def average(self) -> nn.Module:
        """The model with the averaged weights, in evaluation mode."""
        return self._average

    def step(self, loss: Tensor, done: float) -> None:
        """Takes a step against the gradient of ``loss``; ``done`` is how much is done, of 1."""
        rising, falling = done / WARM_UP, (1 + math.cos(math.pi * done)) / 2
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr * max(min(rising, falling), 1e-3)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        self._remember()

    @torch.no_grad()
    def _remember(self) -> None:
        """An average that forgets, and forgets its first steps the faster.

        Of all weights at once, and without asking the device for anything: who asks waits for it.
        """
        kept = min(self._memory, (1 + self._steps) / (10 + self._steps)) if self._steps else 0.0
        averages, current = ([pair[which] for pair in self._weights] for which in (0, 1))
        torch._foreach_lerp_(averages, current, 1 - kept)
        for average, count in self._counts:
            average.copy_(count)
        self._steps += 1
