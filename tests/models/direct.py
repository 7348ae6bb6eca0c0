"""The scattering transform from its definition: one path and one image at a time, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def scattered(image: Array, scales: int, angles: int) -> Array:
    """All paths of one image, in kymatio's order: shape (paths, height/2^J, width/2^J)."""
    padded = _padded(image, scales)
    low = _gaussian(padded.shape, 0.8 * 2 ** (scales - 1), 0.0, 0.0, 1.0).real
    waves = [
        (scale, _morlet(padded.shape, scale, at, angles))
        for scale in range(scales)
        for at in range(angles)
    ]
    first, second = [], []
    for scale, wave in waves:
        envelope = np.abs(_convolved(padded, wave))[:: 2**scale, :: 2**scale]
        first.append(_average(envelope, low, 2 ** (scales - scale)))
        for next_scale, next_wave in waves:
            if next_scale > scale:
                step = 2 ** (next_scale - scale)
                deeper = np.abs(_convolved(envelope, next_wave))[::step, ::step]
                second.append(_average(deeper, low, 2 ** (scales - next_scale)))
    return np.stack([_average(padded, low, 2**scales), *first, *second])


def _padded(image: Array, scales: int) -> Array:
    step = 2**scales
    missing = [(size // step + 2) * step - size for size in image.shape]
    return np.pad(image, [(one // 2, one - one // 2) for one in missing], mode="reflect")


def _average(image: Array, low: Array, step: int) -> Array:
    return _convolved(image, low).real[::step, ::step][1:-1, 1:-1]


def _convolved(image: Array, kernel: NDArray[np.complex128] | Array) -> NDArray[np.complex128]:
    """The circular convolution; a kernel on a finer grid acts by those frequencies that fit."""
    spectrum = np.fft.fft2(kernel)
    if image.shape != kernel.shape:
        signed = [np.fft.fftfreq(size, 1 / size).astype(int) for size in image.shape]
        spectrum = spectrum[np.ix_(*signed)]  # negative ones count from the end, as in the kernel
    return np.fft.ifft2(np.fft.fft2(image) * spectrum)


def _morlet(shape: tuple[int, ...], scale: int, at: int, angles: int) -> NDArray[np.complex128]:
    angle = (int(angles / 2 - 1) - at) * np.pi / angles
    sigma, frequency = 0.8 * 2**scale, 0.75 * np.pi / 2**scale
    wave = _gaussian(shape, sigma, angle, frequency, 4 / angles)
    envelope = _gaussian(shape, sigma, angle, 0.0, 4 / angles)
    return wave - envelope * (wave.sum() / envelope.sum())


def _gaussian(
    shape: tuple[int, ...], sigma: float, angle: float, frequency: float, slant: float
) -> NDArray[np.complex128]:
    """A wave under a Gaussian, added up over the copies of the image around it."""
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    places = np.moveaxis(np.indices(shape), 0, -1)
    total = np.zeros(shape, dtype=np.complex128)
    for copy in np.ndindex(5, 5):
        along, across = np.moveaxis((places + (np.array(copy) - 2) * shape) @ turn.T, -1, 0)
        bell = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
        total += bell * np.exp(1j * frequency * along)
    return total / (2 * 3.1415 * sigma**2 / slant)  # as kymatio has it
