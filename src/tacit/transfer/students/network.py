"""The students' networks: a short residual one, narrow for grey images, and a small one."""

from __future__ import annotations

from torch import Tensor, nn

from tacit._validation import whole

__all__ = ["residual_network", "small_network"]

GREY, COLOUR = 8, 64  # channels of the first layer, unless told
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
