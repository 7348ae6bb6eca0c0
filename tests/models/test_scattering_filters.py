"""The filters against sums over the whole plane, and what each must be for the transform."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from tacit.models import scattering


def morlet(y: float, x: float, scale: int, angle: float) -> tuple[complex, float]:
    """The wave and its envelope at one place, from the formula, without any wrapping."""
    sigma, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    along = y * math.cos(angle) + x * math.sin(angle)
    across = x * math.cos(angle) - y * math.sin(angle)
    envelope = math.exp(-(along**2 + across**2 / 4) / (2 * sigma**2))
    return envelope * cmath.exp(1j * frequency * along), envelope


@pytest.mark.parametrize(("scale", "at"), [(0, 0), (0, 5), (1, 3), (1, 6)])
def test_a_wavelet_is_the_fourier_sum_of_its_formula(scale: int, at: int) -> None:
    height, width, angles = 20, 24, 8
    spectrum = scattering.wavelets(height, width, scale=scale, angles=angles)[at]
    angle = (3 - at) * math.pi / angles
    places = [(y, x) for y in range(-30, 31) for x in range(-30, 31)]
    values = [morlet(y, x, scale, angle) for y, x in places]
    beta = sum(wave for wave, _ in values) / sum(envelope for _, envelope in values)
    for u, v in ((1, 0), (3, 7), (18, 20), (10, 12)):
        wanted = sum(
            (wave - beta * envelope) * cmath.exp(-2j * math.pi * (u * y / height + v * x / width))
            for (y, x), (wave, envelope) in zip(places, values, strict=True)
        )
        wanted *= 0.5 / (2 * math.pi * (0.8 * 2**scale) ** 2)
        assert spectrum[u, v] == pytest.approx(wanted.real, rel=1e-4, abs=1e-9)  # 3.1415 for π
        assert wanted.imag == pytest.approx(0, abs=1e-9)


def test_wavelets_have_no_mean_and_look_in_different_directions() -> None:
    spectra = scattering.wavelets(36, 36, scale=1, angles=8)
    assert np.abs(spectra[:, 0, 0]).max() < 1e-12
    peaks = {np.unravel_index(one.argmax(), one.shape) for one in spectra}
    assert len(peaks) == 8


@pytest.mark.parametrize("level", [0, 1])
def test_averaging_is_a_gaussian_window_at_every_fourth_pixel(level: int) -> None:
    matrix = scattering.averaging(36, level=level, scale=2)
    assert matrix.shape == (7, 36 >> level)
    assert matrix.sum(1) == pytest.approx(np.full(7, math.sqrt(math.pi / 3.1415)), abs=1e-9)
    step = 1 << level
    distance = np.arange(0, 36, step) - 4 * 4  # the fourth window of seven is at pixel 16
    window = np.exp(-(distance**2) / (2 * 1.6**2)) * step / math.sqrt(2 * math.pi * 1.6**2)
    tolerance = 1e-4 if level == 0 else 1e-2  # halving cuts high frequencies
    assert matrix[3] == pytest.approx(window, abs=tolerance)


def test_coarser_filters_keep_the_low_frequencies_in_their_order() -> None:
    frequencies = np.fft.fftfreq(12, 1 / 12)
    spectra = frequencies[None, :, None] * 100 + frequencies[None, None, :]
    low = np.fft.fftfreq(6, 1 / 6)
    assert (scattering.coarser(spectra, 1)[0] == low[:, None] * 100 + low).all()
    assert (scattering.coarser(spectra, 0) == spectra).all()
