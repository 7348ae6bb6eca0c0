"""The filters of the scattering transform: Morlet wavelets and a Gaussian, in Fourier space.

The family is that of Bruna & Mallat (2013) as kymatio 0.3 (Andreux et al. 2020) writes it down, so
that features can be compared path by path: at scale j the envelope is 0.8·2^j pixels wide along the
wave and L/4 times that across it, and the wave turns by 3π/4·2^−j radians a pixel.
Everything here is in double precision, and is computed once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Spectra = NDArray[np.float64]

WIDTH = 0.8  # of the envelope at scale 0, in pixels
FREQUENCY = 3 * math.pi / 4  # of the wave at scale 0, in radians a pixel
PI = 3.1415  # what kymatio divides envelopes by; with π proper all would be 3e-5 smaller
COPIES = range(-2, 3)  # an envelope is wrapped around the image's edges this many times


def wavelets(height: int, width: int, *, scale: int, angles: int) -> Spectra:
    """The Fourier transforms of one scale's wavelets, shape (angles, height, width).

    They are real, for a wavelet at −u is the conjugate of that at u; and 0 at frequency 0.
    """
    return np.stack([_wavelet(height, width, scale, at, angles) for at in range(angles)])


def _wavelet(height: int, width: int, scale: int, at: int, angles: int) -> Spectra:
    angle = (int(angles / 2 - 1) - at) * math.pi / angles
    slant = 4 / angles
    envelope = _gabor(height, width, WIDTH * 2**scale, angle, 0.0, slant)
    wave = _gabor(height, width, WIDTH * 2**scale, angle, FREQUENCY / 2**scale, slant)
    morlet = wave - wave.sum() / envelope.sum() * envelope
    return np.fft.fft2(morlet).real


def _gabor(
    height: int, width: int, sigma: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """exp(−(a² + slant²·b²)/2σ² + i·frequency·a), a along ``angle`` and b across, wrapped."""
    total = np.zeros((height, width), dtype=np.complex128)
    rows, columns = np.mgrid[:height, :width]
    for down in COPIES:
        for right in COPIES:
            y, x = rows + down * height, columns + right * width
            along = math.cos(angle) * y + math.sin(angle) * x
            across = math.cos(angle) * x - math.sin(angle) * y
            exponent = -(along**2 + (slant * across) ** 2) / (2 * sigma**2)
            total += np.exp(exponent + 1j * frequency * along)
    return total * slant / (2 * PI * sigma**2)


def averaging(size: int, *, level: int, scale: int) -> Spectra:
    """The matrix that averages one axis and keeps every 2^scale-th pixel but the outermost two.

    The axis had ``size`` pixels in the padded image, and has been halved ``level`` times since. The
    window is a Gaussian of 0.8·2^(scale−1) pixels; as it is a product of one Gaussian an axis, the
    average of an image U is A·U·Bᵀ.
    """
    sigma = WIDTH * 2 ** (scale - 1)
    place = np.arange(size)
    window = sum(np.exp(-((place + at * size) ** 2) / (2 * sigma**2)) for at in COPIES)
    spectrum = np.fft.fft(window / math.sqrt(2 * PI * sigma**2)).real
    left = coarser(spectrum[None], level)[0]
    circulant = np.fft.ifft(left[:, None] * np.fft.fft(np.eye(len(left)), axis=0), axis=0).real
    return circulant[:: 2 ** (scale - level)][1:-1]


def coarser(spectra: Spectra, level: int) -> Spectra:
    """Filters for images that were halved ``level`` times: of the frequencies, those left."""
    for axis in range(1, spectra.ndim):
        size = spectra.shape[axis]
        kept = size >> level
        high = np.arange(kept - kept // 2, size - kept // 2)
        spectra = np.delete(spectra, high, axis=axis)
    return spectra
