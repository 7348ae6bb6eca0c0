"""Parts that several recipes share: images, random views of them, rates and averages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

from tacit import losses

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor, nn

    from tacit.data import Examples


def images(examples: Examples, device: torch.device) -> TensorDataset:
    """Images between -1 and 1, and their labels, on the device: public scaling, and free."""
    pixels = torch.as_tensor(examples.inputs, device=device).float()
    return TensorDataset(pixels / 127.5 - 1.0, torch.as_tensor(examples.labels, device=device))


def crops(images: Tensor, size: int, *, pad: int = 0, flip: bool = False) -> Tensor:
    """A square of each image at a random place, mirrored at even odds if ``flip``.

    Images are first continued by ``pad`` pixels, mirrored at their edges. All of them are cut at
    once, on their device.

    >>> crops(torch.arange(4.0).reshape(1, 1, 2, 2), 2)
    tensor([[[[0., 1.],
              [2., 3.]]]])
    """
    count, channels, height, width = images.shape
    device = images.device
    padded = functional.pad(images, (pad,) * 4, mode="reflect") if pad else images
    down = torch.randint(height + 2 * pad - size + 1, (count, 1), device=device)
    right = torch.randint(width + 2 * pad - size + 1, (count, 1), device=device)
    across = torch.arange(size, device=device)
    rows, columns = down + across, right + across
    if flip:
        columns = torch.where(torch.rand(count, 1, device=device) < 0.5, columns.flip(1), columns)
    which = torch.arange(count, device=device)[:, None, None, None]
    channel = torch.arange(channels, device=device)[:, None, None]
    return padded[which, channel, rows[:, None, :, None], columns[:, None, None, :]]


def loss_of(
    view: Callable[[Tensor], Tensor], compiled: Callable[[Tensor], Tensor] | None = None
) -> Callable[[nn.Module, Any], Tensor]:
    """The cross entropy of a random view of each row; a plan's ``views`` repeats rows for it.

    ``compiled`` is the model that is trained, compiled: it then runs in the model's place.
    """

    def loss(model: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        return losses.cross_entropy((compiled or model)(view(x)), y)

    return loss


def falling(
    optimizer: torch.optim.Optimizer, steps: int, share: float
) -> torch.optim.lr_scheduler.LRScheduler:
    """A rate that stays, and then falls linearly to 0 over the last ``share`` of the steps."""
    first = steps * (1.0 - share)

    def factor(step: int) -> float:
        return 1.0 if step <= first else max(0.0, (steps - step) / (steps - first))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def moving_average(model: nn.Module, decay: float) -> AveragedModel:
    """The weights' exponential moving average, short at first: min(decay, (1 + t)/(10 + t)).

    Post-processing of what is released at every step, and so free.
    """

    def move(averages: Any, current: Any, count: Tensor | int) -> None:
        taken = torch.as_tensor(count, device=averages[0].device, dtype=torch.float32)
        keep = ((1.0 + taken) / (10.0 + taken)).clamp(max=decay)
        for average, value in zip(averages, current, strict=True):
            average.lerp_(value, 1.0 - keep.to(average.dtype))

    return AveragedModel(model, multi_avg_fn=move)
