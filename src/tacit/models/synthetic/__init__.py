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
from tacit.models.synthetic.blobs import blobs
from tacit.models.synthetic.leaves import dead_leaves
from tacit.models.synthetic.noise import noise
from tacit.models.synthetic.strokes import strokes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Kind", "synthetic_images"]

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
        raise InvalidArgument(f"kind must be one of {get_args(Kind)}, got {kind!r}")
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
