"""The attack on low bits (Mironov 2012): it tells floating-point noise apart, and not ours.

Data that differ by one record give 0 or 1. Whoever sees ``answer + noise`` looks only at how many
zeros the released number ends with in binary: floating-point noise on 0 has more last bits than on
1, for a sum of the size of 1 has no room for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from tacit.randomness import (
    GaussianSource,
    RoundedGaussian,
    UnsafeSeededStream,
    granularity,
    grid_gaussian,
    grid_laplace,
    on_grid,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]

_LEVEL = 1e-6
_DRAWS = 100_000


def _stream(answer: float) -> UnsafeSeededStream:
    return UnsafeSeededStream(0, f"answer {answer}")  # unlike answers get unlike noise


def _fast_gaussian(answer: float) -> Reals:
    noise = torch.empty(_DRAWS)
    GaussianSource(torch.device("cpu"), _stream(answer)).normal_(noise)
    return (answer + noise).double().numpy()


def _float_laplace(answer: float) -> Reals:
    """What a textbook does: the logarithm of a uniform float64, with a sign."""
    words = np.frombuffer(_stream(answer).bytes(8 * _DRAWS), dtype=np.uint64)
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return answer + np.log(uniform) * np.where(words & np.uint64(1), 1.0, -1.0)


def _on_the_grid_laplace(answer: float) -> Reals:
    return grid_laplace(np.full(_DRAWS, answer), 1.0, 1.0, _stream(answer))


def _on_the_grid_gaussian(answer: float) -> Reals:
    return grid_gaussian(np.full(_DRAWS, answer), 1.0, 1.0, _stream(answer))


def _secure_gradient(answer: float) -> Reals:
    """A sum rounded to the grid, with rounded Gaussian noise, as ``noise="secure"`` releases it."""
    step = granularity(1.0)
    noise = torch.empty(_DRAWS, dtype=torch.int64)
    RoundedGaussian(_stream(answer), torch.device("cpu")).integers_(noise, 1.0 / step)
    return (on_grid(answer, step) + noise.numpy()) * step


def _ending_zeros(values: Reals) -> NDArray[np.int64]:
    """How many zeros the numbers end with, counted from 2⁻⁶⁰ on and up to 63."""
    steps = np.rint(np.abs(values) * 2.0**60)
    whole = np.where(steps < 2.0**63, steps, 0).astype(np.uint64)
    lowest = whole & (~whole + np.uint64(1))
    return np.where(whole == 0, 63, np.log2(np.maximum(lowest, 1))).astype(np.int64)


def _told_apart(release: Callable[[float], Reals], one: float, other: float) -> bool:
    """The chi-square test of two samples from one law, at a false-alarm rate of 1e-6."""
    counts = [np.bincount(_ending_zeros(release(at)), minlength=64) for at in (one, other)]
    kept = sum(counts) >= 40
    first, second = counts[0][kept], counts[1][kept]
    statistic = float(((first - second) ** 2 / (first + second)).sum())
    return bool(statistic > chi2.isf(_LEVEL, max(1, int(kept.sum()) - 1)))


@pytest.mark.parametrize("release", [_fast_gaussian, _float_laplace])
def test_floating_point_noise_is_told_apart(release: Callable[[float], Reals]) -> None:
    assert _told_apart(release, 0.0, 1.0)


@pytest.mark.parametrize("release", [_on_the_grid_laplace, _on_the_grid_gaussian, _secure_gradient])
@pytest.mark.parametrize(("one", "other"), [(0.0, 1.0), (0.0, 1.0 / 3.0), (0.1, 1.1)])
def test_noise_on_the_grid_is_not(
    release: Callable[[float], Reals], one: float, other: float
) -> None:
    assert not _told_apart(release, one, other)


def test_the_test_finds_a_single_low_bit() -> None:
    """Did the lowest bit of one release in ten tell of the answer, the test would see it."""

    def leaking(answer: float) -> Reals:
        values, step = _secure_gradient(answer), granularity(1.0)
        odd = np.rint(values / step) % 2 == 1
        odd[_DRAWS // 10 :] = False
        values[odd] += step * answer
        return values

    assert _told_apart(leaking, 0.0, 1.0)


def test_zeros_are_counted() -> None:
    values = np.array([1.0, -0.5, 0.75, 2.0**-60, 3 * 2.0**-59, 0.0])
    assert _ending_zeros(values).tolist() == [60, 59, 58, 0, 1, 63]
