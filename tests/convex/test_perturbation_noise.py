"""Noise vectors: accepted by tests with power, which reject a few percent less noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, gamma, kstest

from tacit.convex.perturbation import gamma_vector, gaussian_vector
from tacit.errors import InvalidArgument
from tacit.randomness import UnsafeSeededStream


def test_gaussian_vector_has_the_scale_and_no_less():
    sigma, size = 3.7, 200_000
    drawn, moved = gaussian_vector(sigma, size, UnsafeSeededStream(1, "noise"))
    total = np.sum(drawn**2)
    assert chi2.ppf(1e-7, size) < total / sigma**2 < chi2.ppf(1 - 1e-7, size)
    assert not chi2.ppf(1e-7, size) < total / (sigma / 0.97) ** 2  # 3 % less would be found out
    assert kstest(drawn / sigma, "norm").pvalue > 1e-6
    assert 0 < moved < 1e-6 * sigma


def test_gaussian_vector_is_on_its_grid():
    drawn, moved = gaussian_vector(1.3, 1000, UnsafeSeededStream(2, "noise"))
    step = 2 * moved / np.sqrt(1000)
    assert np.all(drawn / step == np.rint(drawn / step))


@pytest.mark.parametrize("size", [1, 2, 30, pytest.param(8000, marks=pytest.mark.slow)])
def test_gamma_vector_has_gamma_length_and_any_direction(size):
    stream = UnsafeSeededStream(3, "noise")
    drawn = np.array([gamma_vector(2.5, size, stream) for _ in range(2000)])
    lengths = np.linalg.norm(drawn, axis=1)
    assert kstest(lengths, gamma(size, scale=2.5).cdf).pvalue > 1e-6
    if size > 1:  # the length of one number spreads too much for 3 %
        assert kstest(lengths, gamma(size, scale=2.5 * 1.3).cdf).pvalue < 1e-6
    directions = drawn / lengths[:, None]
    assert np.max(np.abs(directions.mean(axis=0))) < 6 / np.sqrt(2000 * size)
    if size > 2:
        assert np.var(directions[:, 0]) == pytest.approx(1 / size, rel=0.25)


def test_nothing_is_drawn_twice():
    stream = UnsafeSeededStream(4, "noise")
    assert not np.array_equal(gamma_vector(1, 5, stream), gamma_vector(1, 5, stream))
    first, second = (gaussian_vector(1, 5, stream)[0] for _ in range(2))
    assert not np.array_equal(first, second)


def test_bad_scales_are_refused():
    with pytest.raises(InvalidArgument, match="sigma"):
        gaussian_vector(0.0, 3, UnsafeSeededStream(0, "noise"))
    with pytest.raises(InvalidArgument, match="scale"):
        gamma_vector(np.inf, 3, UnsafeSeededStream(0, "noise"))
