"""Images made from nothing but a seed, for statistics that cost no privacy.

They look a little like handwriting, garments and photographs: enough for the *covariance* of
wavelet features, which is what they are for. How wide a nib, how bright a cloth and how coarse its
grain is was settled by two numbers of the training images of MNIST and Fashion-MNIST, their mean
brightness and the mean difference of neighbouring pixels (``benchmarks/synthetic_look.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from tacit._validation import whole
from tacit.errors import InvalidArgument

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Singles = NDArray[np.float32]
    Doubles = NDArray[np.float64]


Kind = Literal["strokes", "blobs", "dead-leaves", "noise"]
CHUNK = 250  # images drawn at a time, so that what is computed on the way fits into a cache


def synthetic_images(
    count: int, *, size: int = 28, channels: int = 1, kind: Kind, seed: int
) -> NDArray[np.uint8]:
    """Random images of shape (count, channels, size, size), the same for the same seed.

    Args:
        count: how many.
        size: of a side, in pixels; 8 or more.
        channels: 1 for grey, 3 for colour; other numbers are colours of as many parts.
        kind: ``"strokes"`` of a pen, ``"blobs"`` with a texture (garments), ``"dead-leaves"``
            (discs that hide each other, with radii of a power law as in photographs; Lee, Mumford
            & Huang 2001) or ``"noise"`` with a spectrum that falls like a power of the frequency.
        seed: of NumPy's generator.

    Guarantee: no data is read. What is computed from these images alone costs no privacy; three
    constants of the drawing were chosen by means of public data sets, as said above.

    >>> images = synthetic_images(4, kind="strokes", seed=1)
    >>> images.shape, images.dtype, int(images.max())
    ((4, 1, 28, 28), dtype('uint8'), 255)
    """
    count = whole("count", count)
    side, parts = whole("size", size, at_least=8), whole("channels", channels)
    if kind not in get_args(Kind):
        raise InvalidArgument(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
    random = np.random.default_rng(whole("seed", seed, at_least=0))
    images = np.empty((count, parts, side, side), dtype=np.uint8)
    for start in range(0, count, CHUNK):
        rows = slice(start, min(start + CHUNK, count))
        drawn = _draw(kind, random, rows.stop - rows.start, parts, side)
        images[rows] = np.rint(255 * drawn.clip(0, 1))
    return images


def _draw(
    kind: Kind, random: np.random.Generator, count: int, channels: int, size: int
) -> NDArray[np.floating]:
    """Light from 0 to 1, shape (count, channels, size, size)."""
    match kind:
        case "strokes":
            return _tinted(random, strokes(random, count, size), channels)
        case "blobs":
            return _tinted(random, blobs(random, count, size), channels)
        case "dead-leaves":
            return dead_leaves(random, count, channels, size)
        case "noise":
            return noise(random, count, channels, size)


def _tinted(
    random: np.random.Generator, grey: NDArray[np.floating], channels: int
) -> NDArray[np.floating]:
    """Grey shapes on black; where there are several channels, in one random colour an image."""
    if channels == 1:
        return grey[:, None]
    colours = random.uniform(0.2, 1.0, (len(grey), channels, 1, 1))
    return grey[:, None] * colours


# ---- strokes of a pen: chains of Bézier curves, drawn and centred like written digits


CURVES = 4  # at most, an image
POINTS = 48  # of a curve, at which the pen is set down: closer than its nib is wide
NIB = (0.024, 0.042)  # widths of the pen, as shares of the image's side
REACH = 20 / 28  # the drawing's larger side, as a share of the image's


def strokes(random: np.random.Generator, count: int, size: int) -> Singles:
    """White strokes on black, shape (count, size, size), from 0 to 1."""
    places, lengths = _fitted(*_path(random, count), size=size)
    return _inked(random, places, lengths, size)


def _path(random: np.random.Generator, count: int) -> tuple[Singles, Singles]:
    """Points on the curves, shape (count, points, 2), and the length that each stands for."""
    angles = random.uniform(-np.pi / 2, np.pi / 2, (count, CURVES, 4, 2))
    controls = np.sin(angles).astype(np.float32)  # more often far out than in the middle
    controls[..., 0] *= 0.75  # what is written is higher than wide
    for at in range(1, CURVES):
        joined = random.random((count, 1)) < 0.75  # else the pen is lifted
        before = controls[:, at - 1]
        smooth = 2 * before[:, 3] - before[:, 2]
        controls[:, at, 0] = np.where(joined, before[:, 3], controls[:, at, 0])
        turned = random.random((count, 1)) < 0.3  # a corner where the pen turns
        controls[:, at, 1] = np.where(joined & ~turned, smooth, controls[:, at, 1])
    t = ((np.arange(POINTS, dtype=np.float32) + 0.5) / POINTS)[:, None]
    basis = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    slope = np.hstack([-3 * (1 - t) ** 2, 3 * (1 - t) * (1 - 3 * t), 3 * t * (2 - 3 * t), 3 * t**2])
    points = np.einsum("pk,nckx->ncpx", basis, controls)
    speeds = np.linalg.norm(np.einsum("pk,nckx->ncpx", slope, controls), axis=-1) / POINTS
    drawn = np.arange(CURVES) < random.choice([1, 2, 3, 4], (count, 1), p=[0.25, 0.45, 0.25, 0.05])
    points = np.where(drawn[..., None, None], points, points[:, :1])
    lengths = speeds * drawn[..., None]
    return points.reshape(count, -1, 2), lengths.reshape(count, -1)


def _fitted(points: Singles, lengths: Singles, *, size: int) -> tuple[Singles, Singles]:
    """In pixels: scaled to the size of a digit and centred by its ink, as MNIST's are."""
    low, high = points.min(1, keepdims=True), points.max(1, keepdims=True)
    scale = REACH * size / (high - low).max(-1, keepdims=True).clip(min=0.5)
    ink = lengths / lengths.sum(1, keepdims=True)
    centre = np.einsum("np,npx->nx", ink, points)[:, None]
    return (points - centre) * scale + (size - 1) / 2, lengths * scale[..., 0]


def _inked(random: np.random.Generator, points: Singles, lengths: Singles, size: int) -> Singles:
    """A Gaussian nib along the points, saturated: white in the middle, grey at the edges.

    A Gaussian is a product of one an axis, so that the picture is a product of two matrices.
    """
    width = random.uniform(*NIB, (len(points), 1, 1)).astype(np.float32) * size
    pixels = np.arange(size, dtype=np.float32)
    across, down = (
        np.exp(-0.5 * ((points[..., axis, None] - pixels) / width) ** 2) for axis in (0, 1)
    )
    # The line integral of the nib over a straight line is 1 in its middle.
    ink = np.matmul((down * lengths[..., None] / width / np.sqrt(2 * np.pi)).swapaxes(1, 2), across)
    light: Singles = ((ink - 0.3) / 0.4).clip(0, 1)
    return light


# ---- textured blobs: outlines with sleeves, legs or soles, lit and patterned like garments


LEVEL = (0.6, 1.0)  # brightness of a cloth
GRAIN = (0.01, 0.25)  # how much single pixels differ, as a share of it
KNOTS = 6  # of an outline, from one end to the other


def blobs(random: np.random.Generator, count: int, size: int) -> Doubles:
    """Light shapes on black, shape (count, size, size), from 0 to 1."""
    upright = random.random((count, 1, 1)) < 0.7
    shape = np.where(upright, _garment(random, count, size), _shoe(random, count, size))
    light: Doubles = (shape * _texture(random, count, size)).clip(0, 1)
    return light


def _garment(random: np.random.Generator, count: int, size: int) -> Doubles:
    """Two mirrored outlines, in part with sleeves and with a gap between two legs."""
    down, across = _grid(size)
    half = _outline(random, count, size, low=0.15, high=0.75)[:, :, None]
    top, bottom = _ends(random, count)
    side = np.abs(across - random.normal(0, 0.03, (count, 1, 1)))
    body = _edge(half - side, size) * _edge(down - top, size) * _edge(bottom - down, size)
    reach = random.uniform(0.05, 0.6, (count, 1, 1)) * (random.random((count, 1, 1)) < 0.6)
    slope = random.uniform(0.3, 2.5, (count, 1, 1))
    thick = random.uniform(0.12, 0.3, (count, 1, 1))
    middle = top + thick + slope * (side - half).clip(min=0)
    sleeve = _edge(thick * np.sqrt(1 + slope**2) - np.abs(down - middle), size)
    sleeve = sleeve * _edge(half[:, :1] + reach - side, size) * _edge(side - 0.1, size)
    gap = random.uniform(0.03, 0.15, (count, 1, 1)) * (random.random((count, 1, 1)) < 0.3)
    fork = random.uniform(-0.6, 0.2, (count, 1, 1))
    legs = 1 - _edge(gap * (down - fork).clip(0, 1) * 2 - side, size) * (gap > 0)
    whole: Doubles = np.maximum(body, sleeve * (reach > 0)) * legs
    return whole


def _shoe(random: np.random.Generator, count: int, size: int) -> Doubles:
    """A flat bottom and a free top: shoes and bags, looking to either side."""
    down, across = _grid(size)
    base = random.uniform(0.2, 0.7, (count, 1, 1))
    top = base - 1.2 * _outline(random, count, size, low=0.1, high=0.9)[:, None, :]
    left, right = _ends(random, count)
    ends = _edge(across - left, size) * _edge(right - across, size)
    return _edge(down - top, size) * _edge(base - down, size) * ends


def _texture(random: np.random.Generator, count: int, size: int) -> Doubles:
    """Brightness, shade from side to side, stripes or checks, and a fine grain."""
    down, across = _grid(size)
    level = random.uniform(*LEVEL, (count, 1, 1))
    tilt = random.normal(0, 0.12, (2, count, 1, 1))
    shade = 1 + tilt[0] * down + tilt[1] * across - 0.15 * random.random((count, 1, 1)) * across**2
    angle = random.choice([0, np.pi / 2, 1], (count, 1, 1)) + random.normal(0, 0.1, (count, 1, 1))
    waves = random.uniform(4, 25, (count, 1, 1))
    phase = waves * (np.cos(angle) * down + np.sin(angle) * across)
    depth = random.uniform(0, 0.4, (count, 1, 1)) * (random.random((count, 1, 1)) < 0.4)
    stripes = 1 + depth * np.sin(phase + random.uniform(0, 2 * np.pi, (count, 1, 1)))
    strength = random.uniform(*GRAIN, (count, 1, 1))
    grain = 1 + strength * random.standard_normal((count, size, size))
    light: Doubles = level * shade * stripes * grain
    return light


def _outline(
    random: np.random.Generator, count: int, size: int, *, low: float, high: float
) -> Doubles:
    """A smooth random function on the pixels of a side, shape (count, size)."""
    widths = random.uniform(low, high, (count, 1)) + random.normal(0, 0.12, (count, KNOTS))
    place = np.linspace(0, KNOTS - 1, size)
    weights = np.exp(-0.5 * ((place[:, None] - np.arange(KNOTS)) / 0.6) ** 2)
    smooth = widths @ (weights / weights.sum(1, keepdims=True)).T
    within: Doubles = smooth.clip(0.05, 0.95)
    return within


def _ends(random: np.random.Generator, count: int) -> tuple[Doubles, Doubles]:
    """Where a shape begins and ends, near the image's borders: garments fill their pictures."""
    first, last = random.uniform(-1.0, -0.6, (count, 1, 1)), random.uniform(0.6, 1.0, (count, 1, 1))
    return first, last


def _grid(size: int) -> tuple[Doubles, Doubles]:
    """Coordinates from −1 to 1: down as a column, across as a row."""
    line = ((2 * np.arange(size) + 1) / size) - 1
    return line[:, None], line[None, :]


def _edge(inside: Doubles, size: int) -> Doubles:
    """0 outside and 1 inside, with an edge of a pixel."""
    share: Doubles = (inside * size / 2 + 0.5).clip(0, 1)
    return share


# ---- dead leaves: discs of all sizes that hide each other, as things in photographs do


DISCS = 80  # an image; with these radii they leave hardly a pixel free
SMALLEST, LARGEST = 0.06, 1.0  # radii, in sides of the image


def dead_leaves(random: np.random.Generator, count: int, channels: int, size: int) -> Singles:
    """Shape (count, channels, size, size), from 0 to 1.

    Radii have the density r^−3, for which the picture looks alike at all scales (Lee, Mumford &
    Huang 2001, "Occlusion models for natural images").
    """
    radii = size * _radii(random.random((DISCS, count))).astype(np.float32)
    centres = random.uniform(-0.2, 1.2, (DISCS, 2, count)).astype(np.float32) * size
    colours = _colours(random, count, channels)
    line = np.arange(size, dtype=np.float32) + 0.5
    images = np.empty((count, channels, size, size), dtype=np.float32)
    images[:] = colours[0][:, :, None, None]
    for radius, (y, x), colour in zip(radii, centres, colours[1:], strict=True):
        squares = (line - y[:, None])[:, :, None] ** 2 + (line - x[:, None])[:, None, :] ** 2
        inside = squares <= (radius**2)[:, None, None]
        np.copyto(images, colour[:, :, None, None], where=inside[:, None])
    return images


def _radii(quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The law's quantiles: r^−2 is uniform between those of the largest and the smallest."""
    inverse: NDArray[np.float64] = quantiles * LARGEST**-2 + (1 - quantiles) * SMALLEST**-2
    return inverse**-0.5


def _colours(random: np.random.Generator, count: int, channels: int) -> Singles:
    """Shape (DISCS + 1, count, channels): mostly light and dark, a little hue, around a mean."""
    light = random.normal(0, 0.22, (DISCS + 1, count, 1))
    hue = random.normal(0, 0.08, (DISCS + 1, count, channels)) * (channels > 1)
    mean = random.uniform(0.25, 0.7, (1, count, 1)) + random.normal(0, 0.06, (1, count, channels))
    return (mean + light + hue).clip(0, 1).astype(np.float32)


# ---- noise whose spectrum falls with the frequency, as that of photographs does


def noise(random: np.random.Generator, count: int, channels: int, size: int) -> Doubles:
    """Shape (count, channels, size, size), around a grey and mostly between 0 and 1.

    The amplitude falls like f^−a, with a from 0.8 to 1.6 an image (photographs: about 1; Field
    1987); the channels share most of their light.
    """
    steepness = random.uniform(0.8, 1.6, (count, 1, 1, 1))
    white = random.standard_normal((count, channels, size, size))
    shared = random.uniform(0.5, 0.95, (count, 1, 1, 1)) if channels > 1 else 0.0
    mixed = np.sqrt(1 - shared) * white + np.sqrt(shared) * white[:, :1]
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.rfftfreq(size))
    frequency[0, 0] = np.inf  # the mean is set below
    spectrum = np.fft.rfft2(mixed) * frequency**-steepness
    field = np.fft.irfft2(spectrum, s=(size, size))
    field /= field.std((1, 2, 3), keepdims=True)
    mean = random.uniform(0.3, 0.6, (count, 1, 1, 1))
    colour = random.normal(0, 0.06, (count, channels, 1, 1)) * (channels > 1)
    return mean + colour + random.uniform(0.08, 0.25, (count, 1, 1, 1)) * field
