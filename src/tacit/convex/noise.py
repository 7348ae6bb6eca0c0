"""Noise in every direction alike: a Gaussian vector on a fine grid, and one of Gamma length."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaincinv, ndtri

from tacit._validation import positive, whole

if TYPE_CHECKING:
    from tacit.convex.losses import Array
    from tacit.randomness import Stream

_FINENESS = 32  # the grid is 2³² times finer than the noise


def gaussian_vector(sigma: float, size: int, stream: Stream) -> tuple[Array, float]:
    """``size`` Gaussian numbers of at least this σ, rounded to a grid, and how far that moved them.

    Guarantee:
        The vector is a real Gaussian one of independent N(0, s²) numbers, s ≥ sigma, moved by at
        most the second number in norm (see ``tacit.randomness.RoundedGaussian``).

    >>> from tacit.randomness import UnsafeSeededStream
    >>> vector, moved = gaussian_vector(2.0, 3, UnsafeSeededStream(0, "noise"))
    >>> vector.round(3).tolist(), moved < 1e-9
    ([2.161, 0.382, 0.401], True)
    """
    import torch  # noqa: PLC0415 - the noise is drawn by torch

    from tacit.randomness import RoundedGaussian  # noqa: PLC0415

    step = math.ldexp(1.0, math.frexp(positive("sigma", sigma))[1] - 1 - _FINENESS)
    drawn = torch.empty(whole("size", size), dtype=torch.int64)
    scale = sigma / step * (1.0 + 2.0**-50)
    RoundedGaussian(stream, torch.device("cpu")).integers_(drawn, scale)
    return drawn.numpy() * step, 0.5 * step * math.sqrt(size)


def gamma_vector(scale: float, size: int, stream: Stream) -> Array:
    """A vector with density ∝ exp(-|b|/scale): uniform direction, length Gamma(size, scale).

    The direction is a normalised vector of normal numbers, each the normal quantile of 53 random
    bits, and the length the Gamma quantile of 53 more.

    Guarantee:
        None by itself: float64 numbers are taken for real ones, so that an attacker who reads the
        last bits of what this noise hides may learn more (Mironov 2012). Use Gaussian noise, which
        is on a grid, where that matters.

    >>> from tacit.randomness import UnsafeSeededStream
    >>> gamma_vector(1.0, 2, UnsafeSeededStream(0, "noise")).shape
    (2,)
    """
    count = whole("size", size)
    uniform = _uniform(count + 1, stream)
    direction = ndtri(uniform[:-1])
    length = positive("scale", scale) * float(gammaincinv(count, uniform[-1]))
    return np.asarray(direction * (length / np.linalg.norm(direction)))


def _uniform(count: int, stream: Stream) -> Array:
    """Numbers strictly between 0 and 1, on the middles of 2⁵² cells."""
    words = np.frombuffer(stream.bytes(8 * count), dtype=np.uint64)
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
