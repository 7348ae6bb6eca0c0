"""What every method of training a student is given, and the steps that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import nn
from torch.nn import functional

from tacit.transfer.students.network import residual_network
from tacit.transfer.students.student import Measured, Pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

BATCH = 128


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """Public images, the noisy labels of some, and how long to train on them.

    Args:
        images: uint8, shape (images, channels, height, width), on the device.
        labels: one an image; -1 where there is none.
        weights: how much each label counts; 1 on average, 0 where there is none.
        classes: how many there are.
        epochs: an epoch is as many examples as there are images, labelled or not.
        flip: whether a mirrored image shows the same.
        network: makes a network with fresh weights, if not the method's usual one.
        progress: told after each epoch how many are done, and of how many.
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
        return nn.Sequential(Pixels(), Measured(self.images), network).to(self.device)

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
