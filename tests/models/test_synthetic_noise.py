"""Noise: the power law of its spectrum, measured, and its light."""

from __future__ import annotations

import numpy as np
import pytest

from tacit.models.synthetic import noise


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return noise(np.random.default_rng(0), 300, 3, 32)


def test_the_amplitude_falls_like_a_power_of_the_frequency(images: np.ndarray) -> None:
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(32), np.fft.fftfreq(32)))
    used = (frequency > 0.05) & (frequency < 0.5)
    amplitude = np.abs(np.fft.fft2(images))[..., used].mean(1)
    slopes = np.array([np.polyfit(np.log(frequency[used]), np.log(one), 1)[0] for one in amplitude])
    assert -1.8 < slopes.min() < -1.4
    assert -1.0 < slopes.max() < -0.6
    assert slopes.mean() == pytest.approx(-1.2, abs=0.05)


def test_it_lies_around_a_grey_with_channels_that_share_light(images: np.ndarray) -> None:
    assert images.mean() == pytest.approx(0.45, abs=0.03)
    assert ((images > 0) & (images < 1)).mean() > 0.95
    flat = images - images.mean((2, 3), keepdims=True)
    red, green, _ = flat.swapaxes(0, 1).reshape(3, -1)
    assert 0.5 < np.corrcoef(red, green)[0, 1] < 0.95


def test_one_channel_is_grey() -> None:
    grey = noise(np.random.default_rng(1), 50, 1, 16)
    assert grey.shape == (50, 1, 16, 16)
    assert 0.05 < grey.std((1, 2, 3)).min() < grey.std((1, 2, 3)).max() < 0.3
