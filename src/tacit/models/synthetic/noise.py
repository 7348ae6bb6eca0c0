"""Noise whose spectrum falls with the frequency, as that of photographs does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def noise(random: np.random.Generator, count: int, channels: int, size: int) -> Floats:
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
