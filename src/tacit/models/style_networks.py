"""Colour images of untrained style-based networks: structure without a single photograph.

After Baradad et al. 2021, "Learning to See by Looking at Noise" (https://arxiv.org/abs/2106.05963):
a synthesis network like StyleGAN2's is never trained; its filters are drawn from a bank of edges,
bars and dots, so that what comes out has contours, textures and shading at all scales. Unlike
there, no colour statistic is borrowed: the mean, the spread and the saturation of an image are
uniform draws, and so are the other strengths.

All random numbers come from NumPy, keyed by the seed and the number of the network; the rest is
computed in single precision on any device. Devices therefore agree but for the rounding of a grey
level here and there.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tacit._validation import whole
from tacit.errors import InvalidArgument
from tacit.models.devices import full_precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Singles = NDArray[np.float32]

TOGETHER = 32  # images that one random network makes
AT_ONCE = 16  # networks that a GPU computes at a time; the images do not depend on it
FIRST = 4  # pixels of a side, where a network begins
CHANNELS = 64  # of a network's maps
LAYERS = 2  # convolutions at each size
FEWEST = 5  # filters of the bank that a layer may have
STRONGEST = 0.3  # noise of a layer, in standard deviations of its maps
LARGEST_BIAS = 0.2
SLOPES = (0.5, 1.5)  # of the noise's spectrum, by powers of the frequency
MEANS, SPREADS = (0.15, 0.85), (0.05, 0.35)  # of an image's channels, where 1 is white


def style_images(
    count: int, *, size: int = 64, seed: int, device: str | torch.device = "cpu"
) -> Tensor:
    """Random colour images, uint8 of shape (count, 3, size, size), on the device.

    Args:
        count: how many.
        size: of a side, in pixels: 8, 16, 32, 64, ….
        seed: of all of them.
        device: where they are computed, and stay.

    Guarantee: no data is read, and no constant here was fitted to images. What is computed from
    them alone costs no privacy.

    >>> images = style_images(2, size=16, seed=1)
    >>> images.shape, images.dtype
    (torch.Size([2, 3, 16, 16]), torch.uint8)
    """
    count, side = whole("count", count), whole("size", size, at_least=2 * FIRST)
    if side & (side - 1):
        raise InvalidArgument(f"size must be a power of 2, as 32 or 64, got {size!r}")
    place = torch.device(device)
    draw = partial(_drawn, whole("seed", seed, at_least=0), side)
    images = torch.empty(count, 3, side, side, dtype=torch.uint8, device=place)
    networks = range(math.ceil(count / TOGETHER))
    at_once = AT_ONCE if place.type == "cuda" else 1
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool, full_precision(place.type):
        for first in networks[::at_once]:
            drawn = list(pool.map(draw, networks[first : first + at_once]))
            made = _painted(_on(place, drawn), side)
            room = images[first * TOGETHER :][: len(made)]
            room.copy_(made[: len(room)])
    return images


# ---- what is drawn


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """One convolution: of each network its filters, their mixture and bias; of each image a style.

    ``filters`` (networks, channels, 3, 3); ``mixture`` (networks, channels, channels); ``bias`` and
    ``strength`` (networks, channels) and (networks,); ``style`` (networks, images, channels).
    """

    filters: Tensor
    mixture: Tensor
    bias: Tensor
    strength: Tensor
    style: Tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """Networks and the images they are to make, as random numbers.

    ``start`` (networks, channels, 4, 4); ``colours`` (networks, sizes, images, 3, channels);
    ``noise`` (networks, images, size, size); ``looks`` (networks, images, 3, 2): the mean and the
    spread of each channel; ``grey`` (networks, images): how far the channels are alike.
    """

    start: Tensor
    layers: tuple[_Layer, ...]
    colours: Tensor
    noise: Tensor
    looks: Tensor
    grey: Tensor


def _drawn(seed: int, size: int, network: int) -> _Drawn:
    """One network's random numbers, by the seed and its number alone."""
    random = np.random.default_rng((seed, network))

    def normal(*shape: int) -> Tensor:
        return torch.from_numpy(random.standard_normal(shape, dtype=np.float32))

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.from_numpy(random.uniform(low, high, shape).astype(np.float32))

    def layer() -> _Layer:
        return _Layer(
            filters=torch.from_numpy(_chosen(random)),
            mixture=normal(CHANNELS, CHANNELS),
            bias=uniform(-LARGEST_BIAS, LARGEST_BIAS, CHANNELS),
            strength=uniform(0.0, STRONGEST, 1)[0],
            style=1.0 + functional.leaky_relu(normal(TOGETHER, CHANNELS), 0.2),
        )

    sizes = int(math.log2(size // FIRST)) + 1
    return _Drawn(
        start=normal(CHANNELS, FIRST, FIRST),
        layers=tuple(layer() for _ in range(LAYERS * sizes)),
        colours=normal(sizes, TOGETHER, 3, CHANNELS),
        noise=torch.from_numpy(_pink(random, size)),
        looks=torch.stack(
            [uniform(*MEANS, TOGETHER, 3), uniform(*SPREADS, TOGETHER, 3)], dim=-1
        ),
        grey=uniform(0.0, 1.0, TOGETHER),
    )  # fmt: skip


def _on(place: torch.device, drawn: Sequence[_Drawn]) -> _Drawn:
    """Several networks as one value, on the device."""

    def joined(parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(parts)).to(place)

    def layer(parts: Sequence[_Layer]) -> _Layer:
        return _Layer(
            filters=joined([one.filters for one in parts]),
            mixture=joined([one.mixture for one in parts]),
            bias=joined([one.bias for one in parts]),
            strength=joined([one.strength for one in parts]),
            style=joined([one.style for one in parts]),
        )

    return _Drawn(
        start=joined([one.start for one in drawn]),
        layers=tuple(map(layer, zip(*(one.layers for one in drawn), strict=True))),
        colours=joined([one.colours for one in drawn]),
        noise=joined([one.noise for one in drawn]),
        looks=joined([one.looks for one in drawn]),
        grey=joined([one.grey for one in drawn]),
    )


@cache
def _bank() -> Singles:
    """40 filters of 3×3 and norm 1: 8 edges, 8 bars, a dot, a ring and two crosses; negatives."""
    down, across = np.mgrid[-1:2, -1:2].astype(np.float64)
    angles = np.arange(8) * np.pi / 8
    along = np.cos(angles)[:, None, None] * across + np.sin(angles)[:, None, None] * down
    bars = np.cos(np.pi * along.clip(-1, 1))
    far = np.hypot(down, across)
    plus = np.where((down == 0) | (across == 0), 1.0, -1.0)
    dots = np.stack([far == 0, (far > 0) * 1.0, plus, np.where(far == 1, -1.0, 1.0)])
    half = np.concatenate([along, bars - bars.mean((1, 2), keepdims=True), dots])
    half /= np.linalg.norm(half, axis=(1, 2), keepdims=True)
    both: Singles = np.concatenate([half, -half]).astype(np.float32)
    return both


def _chosen(random: np.random.Generator) -> Singles:
    """A filter for each channel, out of a random part of the bank."""
    bank = _bank()
    part = random.permutation(len(bank))[: random.integers(FEWEST, len(bank) + 1)]
    chosen: Singles = bank[random.choice(part, CHANNELS)]
    return chosen


def _pink(random: np.random.Generator, size: int) -> Singles:
    """Noise whose spectrum falls with the frequency, stronger in some corners than in others."""
    white = random.standard_normal((TOGETHER, size, size), dtype=np.float32)
    slope = random.uniform(*SLOPES, (TOGETHER, 1, 1))
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size))
    frequency[0, 0] = np.inf  # its mean is 0
    field = np.fft.irfft2(np.fft.rfft2(white) * frequency**-slope, s=(size, size))
    field /= field.std((1, 2), keepdims=True)
    where = torch.from_numpy(random.laplace(size=(TOGETHER, 1, FIRST, FIRST)))
    envelope = functional.interpolate(where, (size, size), mode="bilinear")[:, 0].numpy()
    noise: Singles = (field * envelope).astype(np.float32)
    return noise


# ---- what is computed from it


def _painted(drawn: _Drawn, size: int) -> Tensor:
    """The images, uint8, those of one network after those of the other."""
    networks, images = drawn.noise.shape[:2]
    maps = drawn.start[:, None].expand(-1, images, -1, -1, -1)
    picture = torch.zeros(networks, images, 3, FIRST, FIRST, device=maps.device)
    layers = iter(drawn.layers)
    for at, colour in enumerate(drawn.colours.unbind(1)):
        if at:
            maps, picture = _doubled(maps), _doubled(picture)
        noise = _pooled(drawn.noise, maps.shape[-1])
        for _ in range(LAYERS):
            maps = _convolved(maps, next(layers), noise)
        picture = picture + torch.einsum("nick,nikhw->nichw", colour, maps) / CHANNELS**0.5
    assert picture.shape[-1] == size
    return _coloured(picture, drawn).flatten(0, 1)


def _convolved(maps: Tensor, layer: _Layer, noise: Tensor) -> Tensor:
    """One layer: each channel by its own filter, mixed as the image's style has it, then a ReLU."""
    networks, images, channels, side, _ = maps.shape
    rows = maps.transpose(0, 1).reshape(images, networks * channels, side, side)
    rows = functional.pad(rows, (1, 1, 1, 1), mode="reflect")
    found = functional.conv2d(rows, layer.filters.flatten(0, 1)[:, None], groups=len(rows[0]))
    found = found.view(images, networks, channels, side, side).transpose(0, 1)
    found = found * layer.style[..., None, None]
    mixed = torch.einsum("nok,nikhw->niohw", layer.mixture, found)
    mixed = mixed / mixed.std((2, 3, 4), keepdim=True).clamp(min=1e-6)
    mixed = mixed + layer.strength[:, None, None, None, None] * noise[:, :, None]
    return torch.relu(mixed + layer.bias[:, None, :, None, None])


def _coloured(picture: Tensor, drawn: _Drawn) -> Tensor:
    """The picture with the mean, the spread and the saturation that were drawn for it."""
    shared = picture.mean(2, keepdim=True)
    grey = drawn.grey[:, :, None, None, None]
    mixed = _standard(shared) * grey + _standard(picture) * (1.0 - grey)
    mean, spread = drawn.looks[..., None, None].unbind(-3)
    light = mean + spread * _standard(mixed)
    return (255.0 * light.clamp(0.0, 1.0)).round().to(torch.uint8)


def _standard(picture: Tensor) -> Tensor:
    """Each channel with mean 0 and spread 1."""
    centred = picture - picture.mean((-2, -1), keepdim=True)
    return centred / centred.std((-2, -1), keepdim=True).clamp(min=1e-6)


def _doubled(maps: Tensor) -> Tensor:
    larger = functional.interpolate(maps.flatten(0, 1), scale_factor=2, mode="bilinear")
    return larger.reshape(*maps.shape[:2], *larger.shape[1:])


def _pooled(noise: Tensor, size: int) -> Tensor:
    """The noise at a smaller size, as strong as before."""
    times = noise.shape[-1] // size
    return functional.avg_pool2d(noise, times) * math.sqrt(times)
