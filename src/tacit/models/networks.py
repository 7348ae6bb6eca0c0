"""The small networks of the papers whose results the recipes are measured by.

Each is a plain ``nn.Sequential`` with fresh weights; ``torch.manual_seed`` before the call makes
them reproducible. None has a layer that mixes examples, so ``tacit.private`` takes all of them.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from tacit._validation import whole
from tacit.errors import InvalidArgument

__all__ = ["abadi_cnn", "abadi_mlp", "scatter_cnn", "scatter_linear", "tempered_cnn"]

Activation = Literal["tanh", "relu"]


def abadi_mlp(inputs: int = 60, hidden: int = 1000, classes: int = 10) -> nn.Sequential:
    """One hidden layer of ReLUs, on principal components (Abadi et al. 2016, section 5.2).

    >>> abadi_mlp()
    Sequential(
      (0): Linear(in_features=60, out_features=1000, bias=True)
      (1): ReLU()
      (2): Linear(in_features=1000, out_features=10, bias=True)
    )
    """
    return nn.Sequential(
        nn.Linear(whole("inputs", inputs), whole("hidden", hidden)),
        nn.ReLU(),
        nn.Linear(hidden, whole("classes", classes)),
    )


def abadi_cnn(channels: int = 3, classes: int = 10) -> nn.Sequential:
    """Two convolutions and two dense layers for crops of 24×24 (Abadi et al. 2016, section 5.3).

    >>> sum(weights.numel() for weights in abadi_cnn().parameters())
    1144138
    """
    return nn.Sequential(
        nn.Conv2d(whole("channels", channels), 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 6 * 6, 384), nn.ReLU(),
        nn.Linear(384, 384), nn.ReLU(),
        nn.Linear(384, whole("classes", classes)),
    )  # fmt: skip


def tempered_cnn(
    channels: int = 1, classes: int = 10, *, activation: Activation = "tanh"
) -> nn.Sequential:
    """The network for 28×28 of Papernot et al. 2020, "Tempered sigmoid activations", table 1.

    A tempered sigmoid s·σ(T·x)−o bounds what a layer hands on, and with it the gradients that are
    to be clipped; tanh is the one with s=2, T=2, o=1.

    >>> sum(weights.numel() for weights in tempered_cnn().parameters())
    26010
    """
    return nn.Sequential(
        nn.Conv2d(whole("channels", channels), 16, 8, stride=2, padding=2), _unit(activation),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2), _unit(activation),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32), _unit(activation),
        nn.Linear(32, whole("classes", classes)),
    )  # fmt: skip


def scatter_linear(
    channels: int = 1, classes: int = 10, *, size: int = 28, groups: int | None = 27
) -> nn.Sequential:
    """A linear model of scattering features (Tramèr & Boneh 2021, "ScatterNet + linear").

    Args:
        channels: of the images: 1 for grey, 3 for colour.
        classes: how many there are.
        size: of the images, in pixels.
        groups: groups of the normalisation, which looks at one example at a time and is free;
            None leaves it out.

    >>> import torch
    >>> scatter_linear()(torch.zeros(2, 1, 81, 7, 7)).shape
    torch.Size([2, 10])
    """
    paths, places = _features(channels, size)
    return nn.Sequential(
        *_normalised(paths, groups),
        nn.Flatten(),
        nn.Linear(paths * places**2, whole("classes", classes)),
    )


def scatter_cnn(
    channels: int = 1, classes: int = 10, *, size: int | None = None, groups: int | None = 27
) -> nn.Sequential:
    """A small CNN on scattering features (Tramèr & Boneh 2021, "ScatterNet + CNN", appendix).

    Of grey images of 28×28 pixels it makes two convolutions of 16 and 32 channels and a dense
    layer of 32; of colour images of 32×32, two of 64 around a max pool.

    Args:
        channels: of the images: 1 for grey, 3 for colour.
        classes: how many there are.
        size: of the images, in pixels; by default 28 for grey and 32 for colour.
        groups: groups of the normalisation, or None for none.

    >>> import torch
    >>> scatter_cnn(3)(torch.zeros(2, 3, 81, 8, 8)).shape
    torch.Size([2, 10])
    """
    grey = whole("channels", channels) == 1
    paths, places = _features(channels, size if size is not None else (28 if grey else 32))
    left = (places + 1) // 2 if grey else places // 2
    if grey:
        head = [
            nn.Conv2d(paths, 16, 3, stride=2, padding=1), nn.Tanh(),
            nn.Conv2d(16, 32, 3, padding=1), nn.Tanh(),
            nn.Flatten(),
            nn.Linear(32 * left**2, 32), nn.Tanh(),
            nn.Linear(32, whole("classes", classes)),
        ]  # fmt: skip
    else:
        head = [
            nn.Conv2d(paths, 64, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64 * left**2, whole("classes", classes)),
        ]  # fmt: skip
    return nn.Sequential(*_normalised(paths, groups), *head)


def _features(channels: int, size: int) -> tuple[int, int]:
    """How many features a place has, all channels together, and how many places a side."""
    scattering = 81  # 1 + J·L + J(J−1)/2·L² with J=2, L=8
    places = whole("size", size) // 4
    if places < 2:
        raise InvalidArgument(f"size must be at least 8 pixels, got {size!r}")
    return whole("channels", channels) * scattering, places


def _normalised(paths: int, groups: int | None) -> list[nn.Module]:
    """What makes one axis of channels and paths, and normalises it without weights."""
    flat: list[nn.Module] = [nn.Flatten(1, -3)]  # of maps with that axis it makes the same again
    if groups is None:
        return flat
    if paths % whole("groups", groups):
        raise InvalidArgument(
            f"groups must divide the {paths} features of a place, as 27 does, got {groups!r}"
        )
    return [*flat, nn.GroupNorm(groups, paths, affine=False)]


def _unit(activation: Activation) -> nn.Module:
    match activation:
        case "tanh":
            return nn.Tanh()
        case "relu":
            return nn.ReLU()
    raise InvalidArgument(f"activation must be 'tanh' or 'relu', got {activation!r}")
